"""Frames and texts that both ends of dragoman.worker.v1 create."""

from __future__ import annotations

from dragoman.core.task import states
from dragoman_pb.dragoman.worker.v1 import worker_pb2 as wk
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb


def failed_turn_end(turn_id: str, text: str) -> wk.TurnEnd:
    """A turn end with FAILED and this text, for a turn whose own end cannot be sent."""
    message = pb.Message(parts=[pb.Part(text=text)])
    return wk.TurnEnd(turn_id=turn_id, status=wk.StatusChange(state=pb.TaskState.Name(states.FAILED), message=message))


def oversized_event_text(size: int, max_bytes: int) -> str:
    """The error text for an event that is larger than the server accepts. Sizes are in bytes."""
    return (
        f"an event has {size} bytes; this server accepts at most {max_bytes}. "
        "Send it in several chunks, or start the server with a larger --message-bytes."
    )
