"""Callers that send more than their quotas of rates and bytes allow."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from tests.simulation.callers import SimulatedCaller
from tests.simulation.operated.quotas import (
    HEAVY,
    LIMITED_AGENT,
    RATED_AGENT,
    REQUESTS_PER_SECOND,
    STARTS_PER_MINUTE,
    Limited,
    Requested,
    Served,
)
from tests.simulation.stage import OWNER, NoAnswer, call_of

from dragoman.core.errors import A2AError, RateLimited, Unavailable
from dragoman.runtime import Call, Runtime
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

T = TypeVar("T")

SIZES: Final = (9_000, 15_000, 50_000)
"""Characters of the messages that wait; the last is above the quota, and waits only alone."""


class QuotaCaller(SimulatedCaller):
    """A caller that exceeds quotas."""

    _identity = OWNER
    _retry_after = 0.0
    """Of the last send that a quota rejected."""

    async def do_limited(self, words: str) -> None:
        """More tasks than the quota allows, sent to all servers at the same time."""
        self._agent = LIMITED_AGENT
        times = [self._rng.randint(200, 2500) for _ in range(self._rng.randint(3, 6))]
        await asyncio.gather(
            *(self.send(f"sleep {ms}", how="at once", to=number % 2) for number, ms in enumerate(times))
        )

    async def do_rated(self, words: str) -> None:
        """More turns than may begin in a minute at one server; some are sent again at the time that it names."""
        self._agent, self._identity, self._retry_after = RATED_AGENT, HEAVY, 0.0
        count, key = STARTS_PER_MINUTE + self._rng.randint(0, 3), self._key()
        await asyncio.gather(*(self._later(1.0, self.send("echo", how="at once")) for _ in range(count)))
        # The same message with the same key: a rejected send has not used it.
        answer = await self.send("echo", how="at once", key=key, once=key)
        if answer is None and self._retry_after and self._rng.random() < 0.5:
            await asyncio.sleep(self._retry_after)
            await self.send("echo", how="at once", key=key, once=key)

    async def do_queued(self, words: str) -> None:
        """More messages to a working task than may wait for its next turn, sent to all servers."""
        self._agent, self._identity = "once", HEAVY
        task = await self.send(f"stream 6 {self._rng.randint(100, 300)}", how="at once")
        if task is None:
            return
        texts = ["echo " + self._rng.choice(SIZES) * "x" for _ in range(self._rng.randint(3, 6))]
        await asyncio.gather(
            *(
                self._later(1.0, self.send(text, how="at once", task=task.id, to=number % 2))
                for number, text in enumerate(texts)
            )
        )

    async def do_requests(self, words: str) -> None:
        """More requests than one server takes in a second, and one more at the time that it names."""
        self._identity, self._retry_after = HEAVY, 0.0
        count = 2 * REQUESTS_PER_SECOND + self._rng.randint(2, 8)
        await asyncio.gather(*(self._later(0.8, self._request_list()) for _ in range(count)))
        await asyncio.sleep(self._retry_after)
        await self._request_list()

    async def _later(self, most: float, work: Awaitable[object]) -> None:
        await self._pause(most)
        await work

    async def _request_list(self) -> None:
        """A request that is counted, as a binding counts it, before anything else is done."""
        stage, server = self._stage, await self._chosen(-1)
        process = server.name

        async def work(runtime: Runtime) -> None:
            try:
                runtime.operations.admission.check_rate(HEAVY)
            except RateLimited as error:
                stage.record.add(Requested(at=stage.now, process=process, retry_after=error.retry_after))
                raise
            stage.record.add(Requested(at=stage.now, process=process))
            await runtime.operations.read.list_tasks(self._call_of(runtime), pb.ListTasksRequest(page_size=1))

        try:
            await stage.call(server, work)
        except RateLimited as error:
            self._retry_after = error.retry_after
        except (NoAnswer, Unavailable):
            return

    async def _call(self, work: Callable[[Runtime], Awaitable[T]], server: int = -1, op: int = 0) -> T:
        chosen = await self._chosen(server)
        if op:
            self._stage.record.add(Served(at=self._stage.now, op=op, process=chosen.name))
        return await self._stage.call(chosen, work)

    def _rejected(self, op: int, error: A2AError) -> None:
        super()._rejected(op, error)
        if isinstance(error, RateLimited):
            self._retry_after = error.retry_after
            named = error.metadata or {}
            self._stage.record.add(
                Limited(
                    at=self._stage.now,
                    op=op,
                    limit=named.get("limit", ""),
                    maximum=named.get("maximum", ""),
                    retry_after=error.retry_after,
                )
            )

    def _call_of(self, runtime: Runtime, *, key: str = "") -> Call:
        return call_of(runtime, self._agent, self._identity, key=key)
