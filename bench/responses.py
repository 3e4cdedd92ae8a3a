"""Fixed responses of the bare servers, with the fields and sizes of a real server's."""

from __future__ import annotations

from typing import Any, Final

import orjson

from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

EVENTS: Final = 100
"""Chunks of one stream."""

TICKS: Final = 200
"""Events that each of many subscribers receives."""

SENTENCES: Final = 49
"""Messages of the agent in the task that is read; with the user's message, its history has 50."""

TEXT: Final = "thirty-two bytes of message text"
ID: Final = "01a1fb16-45f2-7e9c-986e-a47076da8d1c"
CONTEXT: Final = "b08b654e-b050-4a8e-9077-f4e2ec0f09bd"
STAMP: Final = "2026-01-01T00:00:00.123Z"


def _task(history: list[pb.Message]) -> pb.Task:
    task = pb.Task(id=ID, context_id=CONTEXT, history=history)
    task.status.state = pb.TASK_STATE_COMPLETED
    task.status.timestamp.FromJsonString(STAMP)
    return task


def _message(role: str, text: str, message_id: str) -> pb.Message:
    return pb.Message(message_id=message_id, context_id=CONTEXT, task_id=ID, role=role, parts=[pb.Part(text=text)])


def _task_json(history: list[dict[str, Any]]) -> dict[str, Any]:
    status = {"state": "TASK_STATE_COMPLETED", "timestamp": STAMP}
    return {"id": ID, "contextId": CONTEXT, "status": status, "history": history}


def _message_json(role: str, text: str, message_id: str) -> dict[str, Any]:
    ids = {"messageId": message_id, "contextId": CONTEXT, "taskId": ID}
    return {**ids, "role": role, "parts": [{"text": text}]}


_ARTIFACT_ID: Final = "f399ef73bd914dfd8b40cb1e07e34a0b"
_ANSWERED = _task([_message("ROLE_USER", TEXT, "bench")])
_ANSWERED.artifacts.add(artifact_id=_ARTIFACT_ID, parts=[pb.Part(text=TEXT)])
_ANSWERED_JSON = _task_json([_message_json("ROLE_USER", TEXT, "bench")]) | {
    "artifacts": [{"artifactId": _ARTIFACT_ID, "parts": [{"text": TEXT}]}]
}

_SPOKEN: Final = [
    ("ROLE_USER", f"talk {SENTENCES}", "bench"),
    *(("ROLE_AGENT", TEXT, f"{number:032x}") for number in range(SENTENCES)),
]

SEND_RESPONSE: Final = pb.SendMessageResponse(task=_ANSWERED).SerializeToString()
SEND_RESPONSE_JSON: Final = orjson.dumps({"task": _ANSWERED_JSON})
GET_RESPONSE: Final = _task([_message(*one) for one in _SPOKEN]).SerializeToString()
GET_RESPONSE_JSON: Final = orjson.dumps(_task_json([_message_json(*one) for one in _SPOKEN]))
STREAM_TASK: Final = pb.StreamResponse(task=_task([])).SerializeToString()
STREAM_TASK_JSON: Final = orjson.dumps({"task": _task_json([])})


def jsonrpc_response(result: bytes) -> bytes:
    """Returns a JSON-RPC response with this result."""
    return b'{"jsonrpc":"2.0","id":1,"result":%s}' % result


def sse(event: bytes, number: int) -> bytes:
    """Returns a server-sent event, with an id as long as Dragoman's."""
    return b"id: 8d244801.a7994062.%d\ndata: %s\n\n" % (number, event)


def chunk(number: int) -> bytes:
    """Returns the StreamResponse of one chunk."""
    update = pb.TaskArtifactUpdateEvent(
        task_id=ID,
        context_id=CONTEXT,
        artifact=pb.Artifact(artifact_id="output", parts=[pb.Part(text=f"chunk-{number} ")]),
        append=number > 0,
    )
    return pb.StreamResponse(artifact_update=update).SerializeToString()


def chunk_json(number: int) -> bytes:
    """Returns the StreamResponse of one chunk as JSON."""
    artifact = {"artifactId": "output", "parts": [{"text": f"chunk-{number} "}]}
    update = {"taskId": ID, "contextId": CONTEXT, "artifact": artifact, "append": number > 0}
    return orjson.dumps({"artifactUpdate": update})
