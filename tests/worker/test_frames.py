"""Events larger than the server accepts from a worker."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.agents.workers.tasks import status_text, text_of
from tests.agents.workers.worker_process import WorkerProcess, worker_process
from tests.cli.server import Server, serving

from dragoman.agents.workers.connection import check_hello
from dragoman.client.calls import Client, message
from dragoman.core.cards.agent_spec import AgentSpec, Skill
from dragoman.core.cards.skill_schemas import SkillSchemas, schemas_of, with_schemas
from dragoman.core.task import states
from dragoman.core.task.log import ArtifactChange, StatusChange
from dragoman.ports import NO_CHANGE, StateUpdate
from dragoman.worker.frames import (
    MAX_FRAME_EVENTS,
    TARGET_FRAME_BYTES,
    EventTooLarge,
    encode_events,
    encode_registration,
)
from dragoman_pb.dragoman.worker.v1 import worker_pb2 as wk

LIMIT = 64 * 1024


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, WorkerProcess]]:
    """A server with a low size limit, and a worker."""
    folder = tmp_path_factory.mktemp("narrow")
    with (
        serving("--message-bytes", str(LIMIT), cwd=folder) as server,
        worker_process(server=server.grpc, cwd=folder) as worker,
    ):
        yield server, worker


@pytest.mark.parametrize("agent", ["big", "big-chunks"])
async def test_an_oversized_event_fails_only_its_task(narrow: tuple[Server, WorkerProcess], agent: str) -> None:
    server, worker = narrow
    async with Client(server.grpc, agent=agent) as client:
        task = (await client.send(message(str(2 * LIMIT)))).task
        assert task.status.state == states.FAILED
        assert status_text(task).startswith("EventTooLarge: an event has 131")
        assert "this server accepts at most 65280. Send it in several chunks" in status_text(task)
        assert "before " in "".join(map(text_of, task.artifacts)) or agent == "big"
        fits = (await client.send(message(str(LIMIT // 2)))).task
        assert fits.status.state == states.COMPLETED
    worker.err.until("EventTooLarge")


def chunk(text: str) -> ArtifactChange:
    return ArtifactChange("a", b"", text=text, append=True)


def test_a_registration_keeps_schemas_of_24_levels() -> None:
    schema: dict[str, Any] = {"type": "object", "minimum": 0.5, "maxItems": 3}
    for _ in range(23):
        schema = {"type": "object", "not": schema}
    spec = with_schemas(
        AgentSpec(
            id="shop", name="Shop", description="Sells", skills=(Skill(id="buy", name="Buy", description="Buys"),)
        ),
        {"": SkillSchemas(schema), "buy": SkillSchemas(schema, schema, {"title": "Buy", "readOnlyHint": False})},
    )
    request = wk.ConnectRequest(hello=wk.Hello(agents=[encode_registration(spec, 1)]))
    (received,) = check_hello(wk.ConnectRequest.FromString(request.SerializeToString()).hello)
    assert received.extensions == spec.extensions
    assert schemas_of(received) == schemas_of(spec)


def test_many_events_are_split_into_frames_in_order() -> None:
    changes = [chunk(str(number)) for number in range(MAX_FRAME_EVENTS + 1)]
    first, second = encode_events("t", 7, changes, StateUpdate(task_state=b"{}"), 10 * TARGET_FRAME_BYTES)
    assert [one.text.text for frame in (first, second) for one in frame.events] == [change.text for change in changes]
    assert (first.number, second.number, first.HasField("state_update"), second.state_update.task_state) == (
        7,
        8,
        False,
        "{}",
    )


def test_large_events_have_separate_frames() -> None:
    changes: list[StatusChange | ArtifactChange] = [
        chunk("x" * TARGET_FRAME_BYTES),
        StatusChange(states.WORKING),
        chunk("y" * TARGET_FRAME_BYTES),
    ]
    encoded = list(encode_events("t", 1, changes, NO_CHANGE, 10 * TARGET_FRAME_BYTES))
    assert [len(frame.events) for frame in encoded] == [1, 1, 1]


def test_an_oversized_state_update_raises() -> None:
    with pytest.raises(EventTooLarge):
        list(encode_events("t", 1, [chunk("x")], StateUpdate(task_state=b"x" * LIMIT), LIMIT))


def test_the_events_before_an_oversized_one_have_frames() -> None:
    encoded = encode_events("t", 1, [chunk("x"), chunk("y" * LIMIT), chunk("z")], NO_CHANGE, LIMIT)
    assert [event.text.text for event in next(encoded).events] == ["x"]
    with pytest.raises(EventTooLarge):
        next(encoded)
