"""Retries of calls, resumption of broken streams, also across a restart of the server, and recovery of messages."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from tests.clocks import SleepingClock

from dragoman.calling.errors import Busy, NotFound, OutcomeUnknown, ServerUnavailable
from dragoman.calling.retry import (
    RETRY_BACKOFF,
    RetryBudget,
    contains_message,
    find_task_of_message,
    has_accepted,
    pop_cursor,
)
from dragoman.calling.transport import StreamResponses
from dragoman.client import ClientError
from dragoman.client.calls import Client, message
from dragoman.core.cards.agent_spec import RESUME_EXTENSION
from dragoman.playground import playground
from dragoman.settings.settings import Address, Settings
from dragoman.wiring.app import open_app
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

pytestmark = pytest.mark.long


def update(state: pb.TaskState, cursor: str = "e.t.1") -> pb.StreamResponse:
    event = pb.StreamResponse(status_update=pb.TaskStatusUpdateEvent(status=pb.TaskStatus(state=state)))
    if cursor:
        event.status_update.metadata.update({RESUME_EXTENSION.uri: {"cursor": cursor, "sequence": 1}, "own": 1})
    return event


def test_the_cursor_is_removed_and_other_metadata_stay() -> None:
    event = update(pb.TASK_STATE_WORKING)
    assert pop_cursor(event) == "e.t.1"
    assert list(event.status_update.metadata) == ["own"]
    assert pop_cursor(event) == ""
    assert pop_cursor(pb.StreamResponse()) == ""


class ScriptedClient(Client):
    """A client whose streams are scripts: each call takes the next one, and the last is used again."""

    def __init__(self, *scripts: Sequence[pb.StreamResponse | ClientError], retry_timeout: float = 60.0) -> None:
        super().__init__("127.0.0.1:1", retry_timeout=retry_timeout)
        self._scripts = list(scripts)
        self.after: list[str] = []

    async def _stream(self, rpc: str, request: Any, *, after: str = "", key: str = "") -> StreamResponses:
        self.after.append(after)
        for entry in self._scripts.pop(0) if len(self._scripts) > 1 else self._scripts[0]:
            if isinstance(entry, ClientError):
                raise entry
            yield entry


UNAVAILABLE = ServerUnavailable.for_reason("connection lost")


async def received(client: Client, *, to_the_end: bool = True) -> int:
    """The number of events of a subscription, or of a stream of one turn."""
    async with client:
        events = client.subscribe("t") if to_the_end else client.stream(message("hi"))
        return len([event async for event in events])


@pytest.mark.parametrize(
    ("state", "to_the_end", "over"),
    [
        (pb.TASK_STATE_COMPLETED, True, True),
        (pb.TASK_STATE_INPUT_REQUIRED, True, False),
        (pb.TASK_STATE_INPUT_REQUIRED, False, True),
        (pb.TASK_STATE_WORKING, False, False),
    ],
)
async def test_a_stream_that_ends_before_its_task_or_turn_is_resumed(
    state: pb.TaskState, to_the_end: bool, over: bool
) -> None:
    client = ScriptedClient([update(state)], [UNAVAILABLE], [update(pb.TASK_STATE_COMPLETED, "e.t.2")])
    assert await received(client, to_the_end=to_the_end) == (1 if over else 2)
    assert client.after == ([""] if over else ["", "e.t.1", "e.t.1"])


async def test_a_stream_without_cursors_is_not_resumed() -> None:
    client = ScriptedClient([update(pb.TASK_STATE_WORKING, "")])
    assert await received(client) == len(client.after) == 1


@pytest.mark.parametrize(
    "script",
    [[UNAVAILABLE], [update(pb.TASK_STATE_WORKING), NotFound("NOT_FOUND", "no")]],
    ids=["a server that was never reached", "an error that retries cannot help"],
)
async def test_an_error_that_is_not_retried_is_raised(script: list[Any]) -> None:
    client = ScriptedClient(script)
    with pytest.raises(ClientError):
        await received(client)
    assert len(client.after) == 1


@pytest.mark.parametrize("next_script", [[UNAVAILABLE], []], ids=["broken", "ended early"])
async def test_a_stream_that_stays_broken_raises_its_error_after_the_time_for_retries(next_script: list[Any]) -> None:
    client = ScriptedClient([update(pb.TASK_STATE_WORKING)], next_script, retry_timeout=0.6)
    with pytest.raises(ServerUnavailable):
        await received(client)
    assert len(client.after) == 2


@pytest.mark.parametrize("binding", ["grpc", "rest", "jsonrpc", "ws"])
async def test_a_stream_survives_a_restart_of_its_server(tmp_path: Path, binding: str) -> None:
    def settings(http: int = 0, grpc: int = 0) -> Settings:
        return Settings(
            http=Address("127.0.0.1", http), grpc=Address("127.0.0.1", grpc), store=f"sqlite:///{tmp_path}/tasks.db"
        )

    states: list[int] = []
    begun = asyncio.Event()

    async def stream(client: Client) -> None:
        async with client, aclosing(client.stream(message("sleep 60"))) as events:
            async for event in events:
                states.append((event.task if event.HasField("task") else event.status_update).status.state)
                begun.set()

    async with asyncio.timeout(60):
        async with open_app(settings(), [playground]) as app:
            at_http, at_grpc = app.http, app.grpc
            client = Client(str(at_grpc) if binding == "grpc" else f"http://{at_http}", binding=binding)
            following = asyncio.create_task(stream(client))
            await begun.wait()
        async with open_app(settings(at_http.port, at_grpc.port), [playground]):
            await following
    assert states[0] == pb.TASK_STATE_SUBMITTED
    assert states[-1] == pb.TASK_STATE_FAILED


# Retries of calls -----------------------------------------------------------------------------------------------------


async def test_a_call_is_repeated_until_it_succeeds() -> None:
    pauses: list[float] = []
    failures = [ServerUnavailable.for_reason("down"), Busy("UNAVAILABLE", "busy", retry_after=3.0)]

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    async def call() -> str:
        if failures:
            raise failures.pop(0)
        return "result"

    assert await RetryBudget(60, sleep=sleep).retry(call) == "result"
    assert len(pauses) == 2
    assert pauses[1] == 3.0


async def test_retries_end_with_the_budget_or_a_final_error() -> None:
    clock = SleepingClock()
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        clock.now += seconds
        pauses.append(seconds)

    async def fail(error: ClientError) -> None:
        raise error

    with pytest.raises(ServerUnavailable):
        await RetryBudget(10, sleep=sleep, clock=clock).retry(lambda: fail(ServerUnavailable.for_reason("down")))
    assert 5 < clock.now <= 10
    assert pauses == sorted(pauses)
    assert pauses[-1] <= RETRY_BACKOFF.longest
    with pytest.raises(NotFound):
        await RetryBudget(10, sleep=sleep, clock=clock).retry(lambda: fail(NotFound("NOT_FOUND", "no")))


# Recovery -------------------------------------------------------------------------------------------------------------

SENT = pb.Message(message_id="m1")


async def find(page: pb.ListTasksResponse) -> pb.Task | None:
    async def list_tasks(request: pb.ListTasksRequest) -> pb.ListTasksResponse:
        assert (request.context_id, request.tenant) == ("c", "agent")
        return page

    return await find_task_of_message(list_tasks, SENT, "c", tenant="agent")


def with_history(id: str, *messages: str) -> pb.Task:
    return pb.Task(id=id, history=[pb.Message(message_id=message) for message in messages])


async def test_the_task_of_a_message_is_found_by_its_history() -> None:
    found = await find(pb.ListTasksResponse(tasks=[with_history("a", "m0"), with_history("b", "m0", "m1")]))
    assert found is not None
    assert found.id == "b"
    assert await find(pb.ListTasksResponse(tasks=[with_history("a", "m0")])) is None


@pytest.mark.parametrize(
    "page",
    [
        pb.ListTasksResponse(tasks=[with_history("a", "m0")], next_page_token="more"),
        pb.ListTasksResponse(tasks=[with_history("a")]),
    ],
)
async def test_an_incomplete_list_leaves_the_outcome_unknown(page: pb.ListTasksResponse) -> None:
    with pytest.raises(OutcomeUnknown):
        await find(page)


def test_a_task_has_accepted_a_message_unless_it_is_still_interrupted_without_it() -> None:
    task = with_history("a", "m0")
    task.status.state = pb.TASK_STATE_INPUT_REQUIRED
    assert not has_accepted(task, SENT)
    task.status.state = pb.TASK_STATE_WORKING
    assert has_accepted(task, SENT)
    assert contains_message(with_history("a", "m1"), SENT)
    assert not contains_message(with_history("a", ""), pb.Message())
