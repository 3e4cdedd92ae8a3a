"""Retries of calls, resumption of broken streams, also across a restart of the server, and recovery of messages."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, suppress
from pathlib import Path

import pytest

from dragoman.calling.errors import Busy, NotFound, OutcomeUnknown, ServerUnavailable
from dragoman.calling.retry import (
    RESUME_BACKOFF,
    RetryBudget,
    StreamResumption,
    contains_message,
    find_task_of_message,
    has_accepted,
)
from dragoman.client import ClientError
from dragoman.client.calls import Client, message
from dragoman.core.cards.agent_spec import RESUME_EXTENSION
from dragoman.playground import playground
from dragoman.settings.settings import Address, Settings
from dragoman.wiring.app import open_app
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

UNAVAILABLE = ClientError("UNAVAILABLE", "connection lost")


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def update(state: pb.TaskState, cursor: str = "e.t.1") -> pb.StreamResponse:
    event = pb.StreamResponse(status_update=pb.TaskStatusUpdateEvent(status=pb.TaskStatus(state=state)))
    event.status_update.metadata.update({RESUME_EXTENSION.uri: {"cursor": cursor, "sequence": 1}, "own": 1})
    return event


def resumption(*, until_terminal: bool = True, clock: Clock | None = None) -> StreamResumption:
    return StreamResumption("", until_terminal=until_terminal, retry_timeout=60, clock=clock or Clock())


def test_the_cursor_is_removed_and_other_metadata_stay() -> None:
    stream = resumption()
    seen = stream.record(update(pb.TASK_STATE_WORKING))
    assert stream.cursor == "e.t.1"
    assert list(seen.status_update.metadata) == ["own"]


@pytest.mark.parametrize(
    ("state", "to_the_end", "over"),
    [
        (pb.TASK_STATE_COMPLETED, True, True),
        (pb.TASK_STATE_INPUT_REQUIRED, True, False),
        (pb.TASK_STATE_INPUT_REQUIRED, False, True),
        (pb.TASK_STATE_WORKING, False, False),
    ],
)
def test_a_stream_that_ends_before_its_task_or_turn_is_resumed(
    state: pb.TaskState, to_the_end: bool, over: bool
) -> None:
    stream = resumption(until_terminal=to_the_end)
    stream.record(update(state))
    stream.on_end()
    assert stream.is_over is over


def test_a_server_that_was_never_reached_is_not_retried() -> None:
    with pytest.raises(ClientError):
        resumption().on_error(UNAVAILABLE)


def test_an_error_that_retries_cannot_help_is_raised() -> None:
    stream = resumption()
    stream.record(update(pb.TASK_STATE_WORKING))
    with pytest.raises(ClientError):
        stream.on_error(ClientError("NOT_FOUND", "no"))


def test_delays_grow_to_a_limit_and_retries_end() -> None:
    clock = Clock()
    stream = resumption(clock=clock)
    stream.record(update(pb.TASK_STATE_WORKING))
    pauses: list[float] = []
    while not stream.is_over:
        clock.now += stream.delay
        with suppress(ClientError):  # raised once the time is up
            stream.on_error(UNAVAILABLE)
        pauses.append(stream.delay)
    assert pauses == sorted(pauses)
    assert pauses[-1] == RESUME_BACKOFF.longest
    assert 50 < clock.now <= 61


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
    clock = Clock()

    async def sleep(seconds: float) -> None:
        clock.now += seconds

    async def fail(error: ClientError) -> None:
        raise error

    with pytest.raises(ServerUnavailable):
        await RetryBudget(10, sleep=sleep, clock=clock).retry(lambda: fail(ServerUnavailable.for_reason("down")))
    assert 5 < clock.now <= 10
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
