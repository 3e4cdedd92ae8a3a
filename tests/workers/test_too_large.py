"""What is larger than a server takes from a worker at once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.cli.server import Server, serving
from tests.workers.process import WorkerProcess, working
from tests.workers.reading import said, text_of

from dragoman.client import Client, message
from dragoman.core import states
from dragoman.core.log import ArtifactChange, StatusChange
from dragoman.ports import NOTHING, Notes
from dragoman.worker.frames import BYTES, EVENTS, EventTooLarge, events

LIMIT = 64 * 1024


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, WorkerProcess]]:
    """A server that takes little, and a worker."""
    folder = tmp_path_factory.mktemp("narrow")
    with (
        serving("--message-bytes", str(LIMIT), cwd=folder) as server,
        working(server=server.grpc, cwd=folder) as worker,
    ):
        yield server, worker


@pytest.mark.parametrize("agent", ["big", "big-chunks"])
async def test_it_fails_its_task_and_nothing_else(narrow: tuple[Server, WorkerProcess], agent: str) -> None:
    server, worker = narrow
    async with Client(server.grpc, agent=agent) as client:
        task = (await client.send(message(str(2 * LIMIT)))).task
        assert task.status.state == states.FAILED
        assert said(task).startswith("EventTooLarge: an event of 131")
        assert "is more than this server takes at once, 65280: give it in several chunks" in said(task)
        assert "before " in "".join(map(text_of, task.artifacts)) or agent == "big"
        fits = (await client.send(message(str(LIMIT // 2)))).task
        assert fits.status.state == states.COMPLETED
    worker.err.until("EventTooLarge")


def chunk(text: str) -> ArtifactChange:
    return ArtifactChange("a", b"", text=text, append=True)


def test_many_events_are_cut_into_frames_in_order() -> None:
    changes = [chunk(str(number)) for number in range(EVENTS + 1)]
    first, second = events("t", 7, changes, Notes(task=b"{}"), 10 * BYTES)
    assert [one.text.text for frame in (first, second) for one in frame.events] == [change.text for change in changes]
    assert (first.number, second.number, first.HasField("notes"), second.notes.task_state) == (7, 8, False, "{}")


def test_large_events_go_in_frames_of_their_own() -> None:
    made = events("t", 1, [chunk("x" * BYTES), StatusChange(states.WORKING), chunk("y" * BYTES)], NOTHING, 10 * BYTES)
    assert [len(frame.events) for frame in made] == [1, 1, 1]


def test_notes_may_be_too_large_as_well() -> None:
    with pytest.raises(EventTooLarge):
        events("t", 1, [chunk("x")], Notes(task=b"x" * LIMIT), LIMIT)
