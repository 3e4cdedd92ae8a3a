"""What is printed of the events of a task."""

from __future__ import annotations

import io

import pytest

from dragoman.calling.errors import ServerUnavailable
from dragoman.calling.transport import StreamResponses
from dragoman.cli.output import ConsoleOutput
from dragoman.cli.tasks.printer import TaskPrinter
from dragoman.client.calls import Client
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

pytestmark = pytest.mark.long


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
        printer = TaskPrinter(Client("127.0.0.1:1"), ConsoleOutput(out=screen), json=False, live=True)
        with pytest.raises(ServerUnavailable):
            await printer.follow(broken())
        assert screen.getvalue() == written


@pytest.mark.parametrize("screen", [Terminal, io.StringIO])
async def test_an_artifact_that_starts_over_is_noted_on_stderr(
    screen: type[io.StringIO], capsys: pytest.CaptureFixture[str]
) -> None:
    async def crashed() -> StreamResponses:
        yield pb.StreamResponse(task=pb.Task(id="t", status=pb.TaskStatus(state=pb.TASK_STATE_WORKING)))
        for text, append in (("half a ", False), ("li", True), ("a whole ", False), ("line", True), ("", False)):
            parts = [pb.Part(text=text)] if text else []  # some servers end an artifact with an empty chunk
            artifact = pb.Artifact(artifact_id="a", name="Findings", parts=parts)
            update = pb.TaskArtifactUpdateEvent(task_id="t", artifact=artifact, append=append)
            yield pb.StreamResponse(artifact_update=update)
        status = pb.TaskStatus(state=pb.TASK_STATE_COMPLETED)
        yield pb.StreamResponse(status_update=pb.TaskStatusUpdateEvent(task_id="t", status=status))

    written = screen()
    await TaskPrinter(Client("127.0.0.1:1"), ConsoleOutput(out=written), json=False, live=True).follow(crashed())
    assert written.getvalue() == "half a li\na whole line\n"
    assert capsys.readouterr().err.count("artifact Findings starts over; discard its earlier text\n") == 1
