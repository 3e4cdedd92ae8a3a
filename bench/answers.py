"""Fixed answers of the bare servers, of the shape and size that a real one sends."""

from __future__ import annotations

from typing import Final

import orjson

from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

EVENTS: Final = 100
"""Chunks in one benchmark stream."""

TEXT: Final = "thirty-two bytes of message text"

_TASK: Final = pb.Task(
    id="01a1fb16-45f2-7e9c-986e-a47076da8d1c",
    context_id="b08b654e-b050-4a8e-9077-f4e2ec0f09bd",
    status=pb.TaskStatus(state=pb.TASK_STATE_COMPLETED),
    artifacts=[pb.Artifact(artifact_id="output", parts=[pb.Part(text=TEXT)])],
    history=[pb.Message(message_id="m", role=pb.ROLE_USER, parts=[pb.Part(text=TEXT)])],
)
_TASK.status.timestamp.FromJsonString("2026-01-01T00:00:00.123Z")

UNARY: Final = pb.SendMessageResponse(task=_TASK).SerializeToString()
TASK_EVENT: Final = pb.StreamResponse(task=_TASK).SerializeToString()
_MESSAGE: Final = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": TEXT}]}
UNARY_JSON: Final = orjson.dumps(
    {
        "task": {
            "id": _TASK.id,
            "contextId": _TASK.context_id,
            "status": {"state": "TASK_STATE_COMPLETED", "timestamp": "2026-01-01T00:00:00.123Z"},
            "artifacts": [{"artifactId": "output", "parts": [{"text": TEXT}]}],
            "history": [_MESSAGE],
        }
    }
)


def chunk_event(number: int) -> bytes:
    """The StreamResponse of one chunk."""
    update = pb.TaskArtifactUpdateEvent(
        task_id=_TASK.id,
        context_id=_TASK.context_id,
        artifact=pb.Artifact(artifact_id="output", parts=[pb.Part(text=f"chunk-{number} ")]),
        append=number > 0,
    )
    return pb.StreamResponse(artifact_update=update).SerializeToString()


SSE_EVENT: Final = b"data: %s\n\n" % orjson.dumps(
    {
        "artifactUpdate": {
            "taskId": _TASK.id,
            "contextId": _TASK.context_id,
            "artifact": {"artifactId": "output", "parts": [{"text": "chunk-42 "}]},
            "append": True,
        }
    }
)


def send_request(text: str) -> pb.SendMessageRequest:
    """A 1.0 request with one text part."""
    return pb.SendMessageRequest(message=pb.Message(message_id="bench", role=pb.ROLE_USER, parts=[pb.Part(text=text)]))


def send_json(text: str) -> bytes:
    """The same as JSON."""
    return orjson.dumps({"message": {"messageId": "bench", "role": "ROLE_USER", "parts": [{"text": text}]}})
