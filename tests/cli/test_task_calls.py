"""What is printed of the events of a task."""

from __future__ import annotations

import io

import pytest

from dragoman.calling.errors import ServerUnavailable
from dragoman.calling.transport import StreamResponses
from dragoman.cli.output import ConsoleOutput
from dragoman.cli.task_calls import _TaskView
from dragoman.client import Client
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


async def test_what_follows_half_a_chunk_on_a_terminal_begins_on_a_new_line() -> None:
    async def broken() -> StreamResponses:
        status = pb.TaskStatus(state=pb.TASK_STATE_WORKING)
        yield pb.StreamResponse(task=pb.Task(id="t", status=status))
        artifact = pb.Artifact(artifact_id="a", parts=[pb.Part(text="half a li")])
        yield pb.StreamResponse(artifact_update=pb.TaskArtifactUpdateEvent(task_id="t", artifact=artifact))
        raise ServerUnavailable.for_reason("it is gone")

    for screen, written in ((Terminal(), "half a li\n"), (io.StringIO(), "half a li")):
        view = _TaskView(Client("127.0.0.1:1"), ConsoleOutput(out=screen), json=False, live=True)
        with pytest.raises(ServerUnavailable):
            await view.follow(broken())
        assert screen.getvalue() == written
