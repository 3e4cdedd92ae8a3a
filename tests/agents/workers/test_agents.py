"""Behavior of agents: one suite for agents in the server and at a worker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from google.protobuf.json_format import MessageToDict
from tests.agents.workers.tasks import NOW, STATE_TIMEOUT, status_text, texts, wait_for_state, wait_for_text
from tests.agents.workers.worker_process import AGENTS, worker_process
from tests.cli.server import Server, serving

from dragoman.client import ClientError
from dragoman.client.calls import Client, message
from dragoman.client.operations import Operator
from dragoman.core.task import states
from dragoman_pb.dragoman.ops import v1 as ops

pytestmark = pytest.mark.long

At = Callable[[str], Client]


@pytest.fixture(scope="module", params=["in the server", "at a worker", "at two workers"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("agents")
    with ExitStack() as stack:
        if request.param == "in the server":
            yield stack.enter_context(serving(str(AGENTS), cwd=folder))
            return
        server = stack.enter_context(serving(cwd=folder))
        for _ in range(2 if request.param == "at two workers" else 1):
            stack.enter_context(worker_process(server=server.grpc, cwd=folder))
        yield server


@pytest.fixture
def at(server: Server) -> At:
    return lambda agent: Client(server.grpc, agent=agent)


async def test_a_returned_value_is_an_artifact(at: At) -> None:
    async with at("returns") as client:
        task = (await client.send(message("hello"))).task
        assert task.status.state == states.COMPLETED
        assert list(texts(task).values()) == ["hello"]


@pytest.mark.parametrize("agent", ["chunks", "plain"])
async def test_yielded_values_are_streamed_in_order(at: At, agent: str) -> None:
    async with at(agent) as client:
        events = [event async for event in client.stream(message("50"))]
        updates = [event.artifact_update for event in events if event.HasField("artifact_update")]
        assert [update.artifact.parts[0].text for update in updates] == [f"{number} " for number in range(50)]
        assert [update.append for update in updates] == [False] + [True] * 49
        assert texts(await client.get(events[0].task.id)) == {"output": "".join(f"{n} " for n in range(50))}


async def test_values_of_every_kind_arrive_unchanged(at: At) -> None:
    async with at("kinds") as client:
        task = (await client.send(message("x"), metadata={"key": ["v"]})).task
        by_id = {artifact.artifact_id: artifact for artifact in task.artifacts}
        assert by_id["bytes"].parts[0].raw == b"\x00\x01\x02"
        assert by_id["bytes"].name == "bytes"
        assert [part.text for part in by_id["parts"].parts] == ["one ", "two", "added"]
        assert MessageToDict(by_id["parts"].metadata) == {"deep": {"er": [1, None]}}
        (last,) = [one for id, one in by_id.items() if id not in ("bytes", "parts")]
        data = MessageToDict(last.parts[0].data)
        assert data == {"answer": 42, "list": [1.5, "x", None], "kept": {"key": ["v"]}}


async def test_metadata_of_the_task_and_of_events_arrives_unchanged(at: At) -> None:
    async with at("labels") as client:
        events = [event async for event in client.stream(message("one"))]
        updates = [MessageToDict(event.artifact_update) for event in events if event.HasField("artifact_update")]
        assert [update["metadata"] for update in updates] == [{"line": 1}, {"line": 2}]
        statuses = [MessageToDict(event.status_update) for event in events if event.HasField("status_update")]
        assert [one["metadata"] for one in statuses[-2:]] == [{"percent": 50}, {"turns": 1, "last": "one"}]
        paused = await client.get(events[0].task.id)
        assert texts(paused) == {"output": "ab"}
        assert len(paused.artifacts[0].parts) == 1
        done = (await client.send(message("two", task=paused.id))).task
        assert MessageToDict(done)["metadata"] == {"turns": 2, "last": "two"}


async def test_a_reply_to_a_question_starts_a_turn_with_the_stored_state(at: At) -> None:
    async with at("asks") as client:
        paused = (await client.send(message("hi"))).task
        assert (paused.status.state, status_text(paused)) == (states.INPUT_REQUIRED, "what is your name?")
        done = (await client.send(message("Ada", task=paused.id))).task
        assert list(texts(done).values()) == ["Ada, turn 2, seen 2, after ['hi', 'what is your name?']"]
        other = (await client.send(message("hi", context=done.context_id))).task
        done = (await client.send(message("Bob", task=other.id))).task
        assert "turn 2, seen 4" in next(iter(texts(done).values()))


async def test_a_direct_agent_responds_with_a_message(at: At) -> None:
    async with at("replies") as client:
        # The response is a task if the turn could not start immediately or took more than two seconds.
        answers = [await client.send(message("Ada")) for _ in range(10)]
        (reply,) = {answer.message.parts[0].text for answer in answers if not answer.HasField("task")}
        assert reply == "hello Ada"


@pytest.mark.parametrize(
    ("agent", "state", "text"),
    [
        ("rejects", states.REJECTED, "no"),
        ("needs", states.AUTH_REQUIRED, "log in first"),
        ("fails", states.FAILED, "RuntimeError: the pump is broken"),
        ("wrong", states.FAILED, "InvalidAgentResponse: agent wrong, agents.py line"),
        ("dawdles", states.FAILED, "TIMED_OUT: The turn exceeded its time limit."),
    ],
)
async def test_a_turn_ends_in_the_state_that_its_function_chose(at: At, agent: str, state: int, text: str) -> None:
    async with at(agent) as client:
        task = (await client.send(message("x"))).task
        assert task.status.state == state
        assert text in status_text(task)


async def test_operators_see_the_authors_line_of_a_failure(at: At, server: Server) -> None:
    """Also of a worker's, which sends it with the end of the turn."""
    async with at("fails") as client, Operator(server.grpc) as operator:
        task = (await client.send(message("x"))).task
        (one,) = (await operator.explain(ops.ExplainRequest(task_id=task.id))).tasks
    assert (one.failure.type, one.failure.text) == ("RuntimeError", "the pump is broken")
    (frame,) = one.failure.frames
    assert (Path(frame.file).name, frame.function) == ("agents.py", "fails")
    assert frame.code == 'raise RuntimeError("the pump is broken")'


async def test_output_before_a_failure_is_kept(at: At) -> None:
    async with at("fails") as client:
        assert texts((await client.send(message("x"))).task) == {"output": "before "}


async def test_messages_reach_a_running_function(at: At) -> None:
    async with at("listens") as client:
        task = (await client.send(message("go"), configuration=NOW)).task
        await wait_for_text(client, task.id, "listening")
        await client.send(message("one", task=task.id), configuration=NOW)
        await wait_for_text(client, task.id, "heard one")
        await client.send(message("two", task=task.id), configuration=NOW)
        assert list(texts(await wait_for_state(client, task.id, states.COMPLETED)).values()) == ["one and two"]


@pytest.mark.parametrize("agent", ["waits", "waits-in-a-thread"])
async def test_a_cancel_stops_the_function_before_the_task_is_canceled(at: At, agent: str, tmp_path: Path) -> None:
    witness = tmp_path / "canceled"
    async with at(agent) as client:
        task = (await client.send(message(str(witness)), configuration=NOW)).task
        await wait_for_text(client, task.id, "waiting")
        await client.cancel(task.id, metadata={"why": "too late"})
        await wait_for_state(client, task.id, states.CANCELED)
        assert witness.read_text() == "client {'why': 'too late'}"


async def test_a_function_can_refuse_a_cancel(at: At) -> None:
    async with at("refuses-cancel") as client:
        task = (await client.send(message("x"), configuration=NOW)).task
        await wait_for_text(client, task.id, "started")
        with pytest.raises(ClientError, match="the rocket has left") as caught:
            await client.cancel(task.id)
        assert caught.value.reason == "TASK_NOT_CANCELABLE"
        await client.send(message("landed", task=task.id), configuration=NOW)
        assert list(texts(await wait_for_state(client, task.id, states.COMPLETED)).values()) == ["landed"]


async def test_a_stream_of_thousands_of_chunks_is_complete(at: At) -> None:
    async with at("plain") as client:
        async with asyncio.timeout(STATE_TIMEOUT):
            task = (await client.send(message("5000"))).task
        assert texts(task) == {"output": "".join(f"{number} " for number in range(5000))}


async def test_many_turns_run_concurrently(at: At) -> None:
    async with at("together") as client:
        tasks = [(await client.send(message("go"), configuration=NOW)).task.id for _ in range(40)]
        await asyncio.gather(*(wait_for_text(client, task) for task in tasks))
        for task in tasks:
            await client.send(message(f"end {task}", task=task), configuration=NOW)
        done = await asyncio.gather(*(wait_for_state(client, task, states.COMPLETED) for task in tasks))
        assert [list(texts(task).values()) for task in done] == [[f"end {task}"] for task in tasks]


async def test_a_part_of_three_megabytes_passes(at: At) -> None:
    async with at("big") as client:
        task = (await client.send(message(str(3 * 1024 * 1024)))).task
        assert [len(part.raw) for part in task.artifacts[0].parts] == [3 * 1024 * 1024]
