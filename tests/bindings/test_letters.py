"""What receivers are sent, by the dialect in which they were registered."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dragoman.bindings.letters import PushLetters
from dragoman.core.log import Event
from dragoman.core.webhook import PushConfig
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
letters = PushLetters()


def event(**payload: Any) -> Event:
    return Event(2, pb.StreamResponse(**payload).SerializeToString(), cursor=CURSOR)


def body(dialect: Dialect, **payload: Any) -> Any:
    config = PushConfig(id="c", url="https://x", dialect=dialect.value)
    return json.loads(letters.write(config, event(**payload)).body)


@pytest.mark.parametrize("dialect", Dialect)
def test_every_dialect_has_a_form(dialect: Dialect) -> None:
    told = body(dialect, task=TASK) if letters.whole(dialect.value) else body(dialect, status_update=UPDATE)
    assert told
    assert letters.whole(dialect.value) == (dialect in (Dialect.V03, Dialect.V01, Dialect.GOOGLE))


def test_1_0_is_told_what_a_stream_would_show() -> None:
    assert body(Dialect.V1, status_update=UPDATE) == {
        "statusUpdate": {"taskId": "t-1", "contextId": "c-1", "status": {"state": "TASK_STATE_INPUT_REQUIRED"}}
    }
    assert body(Dialect.V1, task=TASK)["task"]["status"] == {"state": "TASK_STATE_CANCELED"}


def test_fasta2a_and_a2a_rust_are_told_so_in_their_words() -> None:
    said = {"taskId": "t-1", "contextId": "c-1", "status": {"state": "input-required"}}
    assert body(Dialect.FASTA2A, status_update=UPDATE) == {"statusUpdate": said}
    assert body(Dialect.RUST, status_update=UPDATE) == {"statusUpdate": said}
    (part,) = body(Dialect.RUST, task=TASK)["task"]["artifacts"][0]["parts"]
    assert part == {"type": "text", "text": "out"}
    (part,) = body(Dialect.FASTA2A, task=TASK)["task"]["artifacts"][0]["parts"]
    assert part == {"text": "out"}


def test_0_3_is_told_the_bare_task_with_its_kind() -> None:
    told = body(Dialect.V03, task=TASK)
    assert (told["kind"], told["id"], told["contextId"], told["status"]) == (
        "task",
        "t-1",
        "c-1",
        {"state": "canceled"},
    )
    assert told["artifacts"] == [{"artifactId": "a", "parts": [{"kind": "text", "text": "out"}]}]
    assert told["history"][0]["kind"] == "message"


def test_google_is_told_the_task_of_its_package() -> None:
    told = body(Dialect.GOOGLE, task=TASK)
    assert told["status"] == {"state": "TASK_STATE_CANCELLED"}
    assert told["history"][0]["content"] == [{"text": "hi"}]


def test_0_1_is_told_the_task_with_session_and_index() -> None:
    told = body(Dialect.V01, task=TASK)
    assert (told["id"], told["sessionId"], told["status"]) == ("t-1", "c-1", {"state": "canceled"})
    assert told["artifacts"] == [{"parts": [{"type": "text", "text": "out"}], "index": 0}]


# Headers -----------------------------------------------------------------------------------------------------------


def headers(dialect: Dialect = Dialect.V1, **config: str) -> dict[str, str]:
    made = PushConfig(id="c", url="https://x", dialect=dialect.value, **config)
    return dict(letters.write(made, event(task=TASK)).headers)


def test_a_letter_says_which_event_it_is_and_that_it_is_json() -> None:
    assert headers() == {"Content-Type": "application/json", "Dragoman-Event": CURSOR}


@pytest.mark.parametrize("dialect", Dialect)
def test_a_token_goes_into_the_header_that_the_dialect_has_for_it(dialect: Dialect) -> None:
    name = "a2a-notification-token" if dialect is Dialect.RUST else "X-A2A-Notification-Token"
    assert headers(dialect, token="secret")[name] == "secret"


def test_credentials_are_shown_under_their_scheme() -> None:
    told = headers(scheme="Bearer", credentials="abc", token="t")
    assert told["Authorization"] == "Bearer abc"
    assert told["X-A2A-Notification-Token"] == "t"


def test_a_scheme_without_credentials_proves_nothing() -> None:
    assert "Authorization" not in headers(scheme="Bearer")
    assert "Authorization" not in headers(credentials="abc")


def test_two_receivers_of_one_dialect_share_the_bytes() -> None:
    one = event(task=TASK)
    first = letters.write(PushConfig(id="a", url="https://x", dialect="1.0", token="a"), one)
    second = letters.write(PushConfig(id="b", url="https://y", dialect="1.0"), one)
    assert first.body is second.body
    assert first.headers != second.headers
