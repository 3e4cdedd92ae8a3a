"""Resumption of broken streams: the rules alone, and across a restart of the server."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, suppress
from pathlib import Path

import pytest

from dragoman.calling.retry import RESUME_BACKOFF, StreamResumption
from dragoman.client import Client, ClientError, message
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


def test_an_error_that_retries_cannot_fix_is_raised() -> None:
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
