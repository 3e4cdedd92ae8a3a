"""Calls of a turn that are repeated while the other server is available."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from dragoman.agents.called.calls import TurnCalls
from dragoman.calling.errors import CallForbidden, CallRefused, ClientError, ProtocolError, ServerUnavailable
from dragoman.ports import WorkerLost
from dragoman.wire.remote_errors import RemoteError

BROKEN = ServerUnavailable.for_reason("the connection was lost")
NOT_SENT = ServerUnavailable.for_reason("refused the connection", may_have_arrived=False)
BUSY = CallRefused.from_answer(RemoteError("RESOURCE_EXHAUSTED", "too many calls"))
REFUSED = CallRefused.from_answer(RemoteError("NOT_FOUND", "no such task", "TASK_NOT_FOUND"))


class Caller:
    """The calls of a turn to a server that is unavailable after three failures, with the waits between them."""

    kind = "other server"

    def __init__(self, *results: Any, is_sent: bool = False) -> None:
        self.waits: list[float] = []
        self.failures: list[str] = []
        self.marked = 0
        self.results = list(results)
        self.calls = TurnCalls(cast(Any, self), self.mark_unsent, self.sleep)
        self.calls.is_sent = is_sent

    @property
    def is_unavailable(self) -> bool:
        return len(self.failures) >= 3

    def record_success(self) -> None:
        self.failures.clear()

    def record_failure(self, reason: str) -> None:
        self.failures.append(reason)

    async def mark_unsent(self) -> None:
        self.marked += 1

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        await asyncio.sleep(0)

    async def call(self) -> Any:
        found = self.results.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    async def repeat(self) -> Any:
        return await self.calls.repeat(self.call)


async def test_a_call_is_repeated_with_growing_pauses() -> None:
    caller = Caller(BROKEN, NOT_SENT, "done")
    assert await caller.repeat() == "done"
    assert caller.waits == sorted(set(caller.waits))
    assert (len(caller.waits), caller.failures, caller.calls.is_sent) == (2, [], False)


async def test_a_busy_server_is_available_and_called_again() -> None:
    caller = Caller(BUSY, BUSY, BUSY, BUSY, "done")
    assert await caller.repeat() == "done"
    assert (len(caller.waits), caller.waits == sorted(set(caller.waits)), caller.failures) == (4, True, [])


@pytest.mark.parametrize("error", [REFUSED, CallForbidden("a private address"), ProtocolError("not JSON")])
async def test_other_errors_end_the_calls(error: ClientError) -> None:
    caller = Caller(error)
    with pytest.raises(type(error)) as raised:
        await caller.repeat()
    assert raised.value is error
    assert caller.waits == []


async def test_a_refusal_is_an_answer_that_ends_a_series_of_failures() -> None:
    caller = Caller(BROKEN, BROKEN, REFUSED)
    with pytest.raises(CallRefused):
        await caller.repeat()
    assert caller.failures == []


async def test_a_connection_without_an_answer_does_not_end_a_series_of_failures() -> None:
    caller = Caller(NOT_SENT, "connected")
    await caller.calls.until_available(caller.call)
    assert caller.failures == ["refused the connection"]


@pytest.mark.parametrize(("is_sent", "marked"), [(False, 1), (True, 0)])
async def test_a_server_that_stays_unavailable_ends_the_turn(is_sent: bool, marked: int) -> None:
    caller = Caller(BROKEN, NOT_SENT, BROKEN, is_sent=is_sent)
    with pytest.raises(WorkerLost, match=r"The other server is unavailable\.") as raised:
        await caller.repeat()
    assert (raised.value.may_have_started, caller.marked, len(caller.waits)) == (is_sent, marked, 2)
