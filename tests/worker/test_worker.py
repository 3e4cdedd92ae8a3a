"""How a worker handles the frames of its server, however they arrive."""

from __future__ import annotations

import asyncio
import math
from contextlib import suppress
from typing import Any

import pytest

from dragoman import Turn, agent
from dragoman.ports import LeaseLost
from dragoman.runtime.lease import Lease
from dragoman.worker import Worker
from dragoman_pb.dragoman.worker.v1 import worker_pb2 as wk
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb


class Stream:
    """Stands for the stream to the server: keeps what the worker sends."""

    def __init__(self, *_: Any, on_frame: Any, on_end: Any, **__: Any) -> None:
        self.receive, self.end = on_frame, on_end
        self.lease = Lease(math.inf, margin=0.0)
        self.sent: asyncio.Queue[wk.ConnectRequest] = asyncio.Queue()

    def send(self, **frame: Any) -> None:
        self.sent.put_nowait(wk.ConnectRequest(**frame))

    def half_close(self) -> None:
        self.end(None)

    def close(self) -> None:
        pass

    def give_lease(self, seconds: int = 8) -> None:
        """Answers a heartbeat."""
        answer = wk.Heartbeat(number=1)
        answer.lease.FromSeconds(seconds)
        self.receive(wk.ConnectResponse(heartbeat=answer))


@pytest.mark.parametrize(
    ("frame", "answers"),
    [
        (wk.ConnectResponse(cancel=wk.Cancel(turn_id="1", reason="client")), ["turn_end", "credit"]),
        (wk.ConnectResponse(cancel=wk.Cancel(turn_id="1", reason="drain")), ["turn_end", "credit"]),
        (wk.ConnectResponse(turn_revoked=wk.TurnRevoked(turn_id="1", reason="over")), ["credit"]),
    ],
)
async def test_a_turn_that_is_stopped_before_its_first_step_is_answered(
    frame: wk.ConnectResponse, answers: list[str]
) -> None:
    streams: list[Stream] = []

    def connect(*words: Any, **options: Any) -> Any:
        streams.append(Stream(*words, **options))
        return streams[-1]

    calls: list[str] = []

    @agent
    async def notes(turn: Turn) -> None:
        calls.append(turn.text)

    worker = Worker([notes], "server:1", open_stream=connect)
    running = asyncio.create_task(worker.run())
    await asyncio.sleep(0)
    (stream,) = streams
    message = pb.Message(message_id="m", role=pb.ROLE_USER, parts=[pb.Part(text="go")])
    stream.receive(wk.ConnectResponse(turn_start=wk.TurnStart(turn_id="1", agent_id="notes", message=message)))
    stream.receive(frame)
    async with asyncio.timeout(60):
        hello, *sent = [await stream.sent.get() for _ in range(1 + len(answers))]
    assert hello.HasField("hello")
    assert [one.WhichOneof("frame") for one in sent] == answers
    assert worker.running == 0
    assert calls == []
    await worker.drain(0)
    await running


async def test_an_agent_that_ignores_the_end_of_its_connection_is_abandoned_with_the_lease() -> None:
    """Its server waits as long before it reports a canceled task as CANCELED."""
    streams: list[Stream] = []

    def connect(*words: Any, **options: Any) -> Any:
        streams.append(Stream(*words, **options))
        return streams[-1]

    now, refused, closed = [0.0], asyncio.Event(), asyncio.Event()

    @agent
    async def stubborn(turn: Turn) -> None:
        try:
            while True:
                with suppress(asyncio.CancelledError):
                    await asyncio.Event().wait()
                with pytest.raises(LeaseLost):
                    turn.status("still here")
                refused.set()
        finally:
            closed.set()

    worker = Worker([stubborn], "server:1", open_stream=connect)
    running = asyncio.create_task(worker.run())
    await asyncio.sleep(0)
    (stream,) = streams
    stream.lease = Lease(8.0, margin=0.0, clock=lambda: now[0])
    stream.give_lease()
    message = pb.Message(message_id="m", role=pb.ROLE_USER, parts=[pb.Part(text="go")])
    stream.receive(wk.ConnectResponse(turn_start=wk.TurnStart(turn_id="1", agent_id="stubborn", message=message)))
    await asyncio.sleep(0)
    now[0] = 8.95
    stream.end(None)
    async with asyncio.timeout(60):
        await refused.wait()
        assert not closed.is_set()
        now[0] = 9.0
        await closed.wait()
    await worker.drain(0)
    await running


@pytest.mark.parametrize("is_canceled", [False, True], ids=["that comes", "that does not come before a cancel"])
async def test_a_turn_waits_for_the_first_lease_of_its_stream(is_canceled: bool) -> None:
    streams: list[Stream] = []

    def connect(*words: Any, **options: Any) -> Any:
        streams.append(Stream(*words, **options))
        return streams[-1]

    begun = asyncio.Event()

    @agent
    async def notes(turn: Turn) -> str:
        begun.set()
        return "done"

    worker = Worker([notes], "server:1", open_stream=connect)
    running = asyncio.create_task(worker.run())
    await asyncio.sleep(0)
    (stream,) = streams
    message = pb.Message(message_id="m", role=pb.ROLE_USER, parts=[pb.Part(text="go")])
    stream.receive(wk.ConnectResponse(turn_start=wk.TurnStart(turn_id="1", agent_id="notes", message=message)))
    stream.give_lease(0)
    for _ in range(10):
        await asyncio.sleep(0)
    assert not begun.is_set()
    if is_canceled:
        stream.receive(wk.ConnectResponse(cancel=wk.Cancel(turn_id="1", reason="drain")))
    else:
        stream.give_lease()
    async with asyncio.timeout(60):
        _, turn_end, _ = [await stream.sent.get() for _ in range(3)]
    assert turn_end.turn_end.WhichOneof("outcome") == ("released" if is_canceled else "status")
    assert turn_end.turn_end.released.not_begun == is_canceled
    assert begun.is_set() != is_canceled
    await worker.drain(0)
    await running
