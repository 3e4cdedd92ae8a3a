from __future__ import annotations

from typing import Any

import pytest

from dragoman.core.errors import A2AError, ContentTypeNotSupported, InvalidParams
from dragoman.core.limits import message_checks
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

MODES = ("text/plain", "application/json")


def request(**message: Any) -> pb.SendMessageRequest:
    given = {"message_id": "m", "role": pb.ROLE_USER, "parts": [pb.Part(text="x")], **message}
    return pb.SendMessageRequest(message=pb.Message(**given))


def refusal(sent: pb.SendMessageRequest) -> A2AError:
    with pytest.raises(A2AError) as caught:
        message_checks.check_message(sent, MODES)
    return caught.value


def test_a_valid_message_passes() -> None:
    message_checks.check_message(request(), MODES)


@pytest.mark.parametrize(
    ("sent", "field"),
    [
        (pb.SendMessageRequest(), "message"),
        (request(message_id=""), "message.messageId"),
        (request(message_id="x" * 513), "message.messageId"),
        (request(context_id="x" * 513), "message.contextId"),
        (request(task_id="x" * 513), "message.taskId"),
        (request(role=pb.ROLE_UNSPECIFIED), "message.role"),
        (request(parts=[]), "message.parts"),
        (request(parts=[pb.Part(text="x"), pb.Part()]), "message.parts[1]"),
    ],
)
def test_a_missing_field_is_named(sent: pb.SendMessageRequest, field: str) -> None:
    error = refusal(sent)
    assert isinstance(error, InvalidParams)
    assert error.violations[0].field == field
    assert error.message.startswith(f"{field}: ")


def test_a_negative_history_length_is_named() -> None:
    sent = request()
    sent.configuration.history_length = -1
    assert "configuration.historyLength" in refusal(sent).message


@pytest.mark.parametrize(
    ("part", "mode", "passes"),
    [
        (pb.Part(text="x"), "text/plain", True),
        (pb.Part(text="x"), "text", True),
        (pb.Part(text="x"), "text/*", True),
        (pb.Part(text="x"), "*/*", True),
        (pb.Part(text="x"), "application/json", False),
        (pb.Part(text="x", media_type="text/markdown"), "text/plain", False),
        (pb.Part(text="x", media_type="Text/Plain; charset=utf-8"), "text/plain", True),
        (pb.Part(raw=b"x"), "application/octet-stream", True),
        (pb.Part(raw=b"x"), "text/plain", False),
        (pb.Part(raw=b"x", media_type="image/png"), "image/*", True),
        (pb.Part(raw=b"x", media_type="imagery/png"), "image/*", False),
        (pb.Part(data={"string_value": "x"}), "application/json", True),
        (pb.Part(url="http://x.test/a"), "text/plain", True),
        (pb.Part(url="http://x.test/a", media_type="image/png"), "text/plain", False),
    ],
)
def test_parts_are_checked_against_the_input_modes_of_the_agent(part: pb.Part, mode: str, passes: bool) -> None:
    sent = request(parts=[part])
    if passes:
        message_checks.check_message(sent, [mode])
    else:
        with pytest.raises(ContentTypeNotSupported, match=r"message\.parts\[0\]\.mediaType.*use one of"):
            message_checks.check_message(sent, [mode])
