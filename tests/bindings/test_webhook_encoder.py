"""Webhook requests, by the dialect of their configuration."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.runtime.push.receivers import Stamp

from dragoman.bindings.event_encoders import DialectWebhookEncoder
from dragoman.core.names import Owner
from dragoman.core.push.configuration import PushConfig
from dragoman.core.push.delivery import PushRecord
from dragoman.core.task.log import Event, TaskRef
from dragoman.security.secret_box import AesGcmSecretBox
from dragoman.wire.dialects import Dialect
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

CURSOR = "0123abcd.4567cdef.2"
TASK = pb.Task(
    id="t-1",
    context_id="c-1",
    status=pb.TaskStatus(state=pb.TASK_STATE_CANCELED),
    history=[pb.Message(message_id="m", role=pb.ROLE_USER, parts=[pb.Part(text="hi")])],
    artifacts=[pb.Artifact(artifact_id="a", parts=[pb.Part(text="out")])],
)
UPDATE = pb.TaskStatusUpdateEvent(
    task_id="t-1", context_id="c-1", status=pb.TaskStatus(state=pb.TASK_STATE_INPUT_REQUIRED)
)
webhooks = DialectWebhookEncoder(Stamp(), AesGcmSecretBox())


def push(config: PushConfig) -> PushRecord:
    return PushRecord(task=TaskRef(Owner("p", "s"), b"t"), config=config, created=0, last_delivered=1, task_id="t-1")


def event(**payload: Any) -> Event:
    return Event(2, pb.StreamResponse(**payload).SerializeToString(), cursor=CURSOR)


async def body(dialect: Dialect, **payload: Any) -> Any:
    config = PushConfig(id="c", url="https://x", dialect=dialect.value)
    return json.loads((await webhooks.encode(push(config), event(**payload))).body)


@pytest.mark.parametrize("dialect", Dialect)
async def test_every_dialect_has_a_body(dialect: Dialect) -> None:
    payload: dict[str, Any] = {"task": TASK} if webhooks.sends_task(dialect.value) else {"status_update": UPDATE}
    assert await body(dialect, **payload)
    assert webhooks.sends_task(dialect.value) == (dialect in (Dialect.V03, Dialect.V01, Dialect.GOOGLE))


async def test_1_0_gets_stream_events() -> None:
    assert await body(Dialect.V1, status_update=UPDATE) == {
        "statusUpdate": {"taskId": "t-1", "contextId": "c-1", "status": {"state": "TASK_STATE_INPUT_REQUIRED"}}
    }
    assert (await body(Dialect.V1, task=TASK))["task"]["status"] == {"state": "TASK_STATE_CANCELED"}


async def test_fasta2a_and_a2a_rust_get_stream_events_in_their_format() -> None:
    update: dict[str, Any] = {"taskId": "t-1", "contextId": "c-1", "status": {"state": "input-required"}}
    assert await body(Dialect.FASTA2A, status_update=UPDATE) == {"statusUpdate": update}
    update["status"] = {"state": "TASK_STATE_INPUT_REQUIRED"}
    assert await body(Dialect.RUST, status_update=UPDATE) == {"statusUpdate": update}
    (part,) = (await body(Dialect.RUST, task=TASK))["task"]["artifacts"][0]["parts"]
    assert part == {"type": "text", "text": "out"}
    (part,) = (await body(Dialect.FASTA2A, task=TASK))["task"]["artifacts"][0]["parts"]
    assert part == {"text": "out"}


async def test_0_3_gets_the_task_with_its_kind() -> None:
    task = await body(Dialect.V03, task=TASK)
    assert (task["kind"], task["id"], task["contextId"]) == ("task", "t-1", "c-1")
    assert task["status"] == {"state": "canceled"}
    assert task["artifacts"] == [{"artifactId": "a", "parts": [{"kind": "text", "text": "out"}]}]
    assert task["history"][0]["kind"] == "message"


async def test_google_gets_the_task_of_its_package() -> None:
    task = await body(Dialect.GOOGLE, task=TASK)
    assert task["status"] == {"state": "TASK_STATE_CANCELLED"}
    assert task["history"][0]["content"] == [{"text": "hi"}]


async def test_0_1_gets_the_task_with_session_and_index() -> None:
    task = await body(Dialect.V01, task=TASK)
    assert (task["id"], task["sessionId"], task["status"]) == ("t-1", "c-1", {"state": "canceled"})
    assert task["artifacts"] == [{"parts": [{"type": "text", "text": "out"}], "index": 0}]


# Headers -----------------------------------------------------------------------------------------------------------


async def headers(dialect: Dialect = Dialect.V1, **config: str) -> dict[str, str]:
    push_config = PushConfig(id="c", url="https://x", dialect=dialect.value, **config)
    return dict((await webhooks.encode(push(push_config), event(task=TASK))).headers)


async def test_a_webhook_has_media_type_event_and_signature_headers() -> None:
    size = len((await webhooks.encode(push(PushConfig(id="c", url="https://x", dialect="1.0")), event(task=TASK))).body)
    assert await headers() == {
        "Content-Type": "application/json",
        "Dragoman-Event": CURSOR,
        "Dragoman-Signature": f"https://x t-1 {size}",
    }


@pytest.mark.parametrize("dialect", Dialect)
async def test_a_token_is_sent_in_the_header_of_its_dialect(dialect: Dialect) -> None:
    name = "a2a-notification-token" if dialect is Dialect.RUST else "X-A2A-Notification-Token"
    assert (await headers(dialect, token="secret"))[name] == "secret"


async def test_credentials_are_sent_with_their_scheme() -> None:
    sent = await headers(scheme="Bearer", credentials="abc", token="t")
    assert sent["Authorization"] == "Bearer abc"
    assert sent["X-A2A-Notification-Token"] == "t"


@pytest.mark.parametrize("scheme", ["Bearer", "bearer"])
async def test_bearer_without_credentials_sends_the_signature(scheme: str) -> None:
    sent = await headers(scheme=scheme)
    assert sent["Authorization"] == f"{scheme} {sent['Dragoman-Signature']}"


async def test_no_authorization_is_sent_without_scheme_or_credentials() -> None:
    assert "Authorization" not in await headers(scheme="Basic")
    assert "Authorization" not in await headers(credentials="abc")


async def test_webhooks_of_one_dialect_share_the_body() -> None:
    shared = event(task=TASK)
    first = await webhooks.encode(push(PushConfig(id="a", url="https://x", dialect="1.0", token="a")), shared)
    second = await webhooks.encode(push(PushConfig(id="b", url="https://y", dialect="1.0")), shared)
    assert first.body is second.body
    assert first.headers != second.headers
