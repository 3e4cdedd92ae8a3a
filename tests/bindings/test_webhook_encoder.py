"""What receivers are sent, by the dialect in which they were registered."""

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
async def test_every_dialect_has_a_form(dialect: Dialect) -> None:
    value = (
        await body(dialect, task=TASK)
        if webhooks.sends_task(dialect.value)
        else await body(dialect, status_update=UPDATE)
    )
    assert value
    assert webhooks.sends_task(dialect.value) == (dialect in (Dialect.V03, Dialect.V01, Dialect.GOOGLE))


async def test_1_0_is_told_what_a_stream_would_show() -> None:
    assert await body(Dialect.V1, status_update=UPDATE) == {
        "statusUpdate": {"taskId": "t-1", "contextId": "c-1", "status": {"state": "TASK_STATE_INPUT_REQUIRED"}}
    }
    assert (await body(Dialect.V1, task=TASK))["task"]["status"] == {"state": "TASK_STATE_CANCELED"}


async def test_fasta2a_and_a2a_rust_are_told_so_in_their_words() -> None:
    values = {"taskId": "t-1", "contextId": "c-1", "status": {"state": "input-required"}}
    assert await body(Dialect.FASTA2A, status_update=UPDATE) == {"statusUpdate": values}
    assert await body(Dialect.RUST, status_update=UPDATE) == {"statusUpdate": values}
    (part,) = (await body(Dialect.RUST, task=TASK))["task"]["artifacts"][0]["parts"]
    assert part == {"type": "text", "text": "out"}
    (part,) = (await body(Dialect.FASTA2A, task=TASK))["task"]["artifacts"][0]["parts"]
    assert part == {"text": "out"}


async def test_0_3_is_told_the_bare_task_with_its_kind() -> None:
    value = await body(Dialect.V03, task=TASK)
    assert (value["kind"], value["id"], value["contextId"], value["status"]) == (
        "task",
        "t-1",
        "c-1",
        {"state": "canceled"},
    )
    assert value["artifacts"] == [{"artifactId": "a", "parts": [{"kind": "text", "text": "out"}]}]
    assert value["history"][0]["kind"] == "message"


async def test_google_is_told_the_task_of_its_package() -> None:
    value = await body(Dialect.GOOGLE, task=TASK)
    assert value["status"] == {"state": "TASK_STATE_CANCELLED"}
    assert value["history"][0]["content"] == [{"text": "hi"}]


async def test_0_1_is_told_the_task_with_session_and_index() -> None:
    value = await body(Dialect.V01, task=TASK)
    assert (value["id"], value["sessionId"], value["status"]) == ("t-1", "c-1", {"state": "canceled"})
    assert value["artifacts"] == [{"parts": [{"type": "text", "text": "out"}], "index": 0}]


# Headers -----------------------------------------------------------------------------------------------------------


async def headers(dialect: Dialect = Dialect.V1, **config: str) -> dict[str, str]:
    push_config = PushConfig(id="c", url="https://x", dialect=dialect.value, **config)
    return dict((await webhooks.encode(push(push_config), event(task=TASK))).headers)


async def test_a_webhook_names_its_event_its_media_type_and_its_sender() -> None:
    size = len((await webhooks.encode(push(PushConfig(id="c", url="https://x", dialect="1.0")), event(task=TASK))).body)
    assert await headers() == {
        "Content-Type": "application/json",
        "Dragoman-Event": CURSOR,
        "Dragoman-Signature": f"https://x t-1 {size}",
    }


@pytest.mark.parametrize("dialect", Dialect)
async def test_a_token_goes_into_the_header_that_the_dialect_has_for_it(dialect: Dialect) -> None:
    name = "a2a-notification-token" if dialect is Dialect.RUST else "X-A2A-Notification-Token"
    assert (await headers(dialect, token="secret"))[name] == "secret"


async def test_credentials_are_shown_under_their_scheme() -> None:
    values = await headers(scheme="Bearer", credentials="abc", token="t")
    assert values["Authorization"] == "Bearer abc"
    assert values["X-A2A-Notification-Token"] == "t"


@pytest.mark.parametrize("scheme", ["Bearer", "bearer"])
async def test_who_asks_for_a_bearer_token_and_names_none_gets_the_signature(scheme: str) -> None:
    values = await headers(scheme=scheme)
    assert values["Authorization"] == f"{scheme} {values['Dragoman-Signature']}"


async def test_half_of_what_authorization_needs_proves_nothing() -> None:
    assert "Authorization" not in await headers(scheme="Basic")
    assert "Authorization" not in await headers(credentials="abc")


async def test_two_receivers_of_one_dialect_share_the_bytes() -> None:
    one = event(task=TASK)
    first = await webhooks.encode(push(PushConfig(id="a", url="https://x", dialect="1.0", token="a")), one)
    second = await webhooks.encode(push(PushConfig(id="b", url="https://y", dialect="1.0")), one)
    assert first.body is second.body
    assert first.headers != second.headers
