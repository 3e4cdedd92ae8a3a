"""Contract of every timer: it follows elapsed time, also when the clock of this machine is set by an hour.

Each timer begins, the clock is set, and the server renews its session, by which the store follows the clock. Then the
timer is due after the time that it was given, no sooner and no later.
"""

from __future__ import annotations

import asyncio
import re
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from dragoman.agents.workers.agent import WorkerAgent
from dragoman.core.cards.agent_spec import AgentSpec
from dragoman.core.push.delivery import DeliveryOutcome, PushState
from dragoman.core.task.log import Append, ClaimHeld, TaskRecord
from dragoman.ids import SteadyClock
from dragoman.runtime.lease import Lease
from dragoman.stores.sqlite import open_store, schema
from dragoman.stores.sqlite.cold.claims import TIMERS
from dragoman.stores.sqlite.store import SqliteStore
from dragoman.testing.contracts.store_pushes import attempt_at, claim_due, report_of, with_push
from dragoman.testing.fixtures import created, new_ref

HOUR: Final = 3600.0
LENGTH: Final = 60.0  # seconds after which each timer is due


@dataclass
class Machine:
    """The clocks of a machine, in seconds."""

    wall: float = 1_700_000_000.0
    elapsed: float = 500.0

    def forward(self, seconds: float) -> None:
        self.wall += seconds
        self.elapsed += seconds


@dataclass
class Server:
    """A store on a machine, and the session of the server that uses it."""

    machine: Machine
    store: SqliteStore
    session: int
    clock: SteadyClock

    async def renew(self) -> None:
        await asyncio.to_thread(self.store.renew_session, self.session, LENGTH)

    async def claimed(self) -> TaskRecord:
        return (await self.store.append(created(new_ref(), claim=self.session))).record


IsDue = Callable[[], Awaitable[bool]]


async def _paused(server: Server, *, retry: bool) -> IsDue:
    record, wake_at = await server.claimed(), server.store.now() + round(LENGTH * 1000)
    guard = ClaimHeld(record.session, record.token)
    await server.store.append(Append(task=record.ref, guard=guard, retry=retry, suspend=not retry, wake_at=wake_at))

    async def is_due() -> bool:
        return bool(await server.store.sleeping_tasks(server.store.now(), 9))

    return is_due


async def sleep_of_a_turn(server: Server) -> IsDue:
    return await _paused(server, retry=False)


async def retry_of_a_turn(server: Server) -> IsDue:
    return await _paused(server, retry=True)


async def lease_of_another_process(server: Server) -> IsDue:
    other = await server.store.open_session(LENGTH)

    async def is_due() -> bool:
        return other not in await server.store.sessions()

    return is_due


async def orphaned_task(server: Server) -> IsDue:
    other = await server.store.open_session(LENGTH)
    await server.store.append(created(new_ref(), claim=other))

    async def is_due() -> bool:
        return bool(await server.store.orphaned_tasks(server.session, 9))

    return is_due


async def unconfirmed_cancel(server: Server) -> IsDue:
    await server.store.cancel_requests.request((await server.claimed()).ref)

    async def is_due() -> bool:
        return bool(await server.store.cancel_requests.overdue(LENGTH))

    return is_due


async def _fail_delivery(server: Server, retry_delay: float) -> PushState:
    """A failed attempt of the only delivery, which is given up a minute after its first failure."""
    (push,) = await claim_due(server.store, server.session)
    delays = {"retry_delay": round(retry_delay * 1000), "give_up_after": round(LENGTH * 1000)}
    report = report_of(push, DeliveryOutcome.FAILED, 0, attempt=attempt_at(1, 500), **delays)
    (stored,) = await server.store.pushes.apply_reports([report])
    assert stored is not None
    return stored.state


async def retry_of_a_webhook(server: Server) -> IsDue:
    await server.store.append(with_push(created(new_ref())))
    await _fail_delivery(server, LENGTH)

    async def is_due() -> bool:
        due, _ = await server.store.pushes.due(per_share=9, max_hosts=9)
        return bool(due)

    return is_due


async def end_of_the_attempts_of_a_webhook(server: Server) -> IsDue:
    await server.store.append(with_push(created(new_ref())))
    await _fail_delivery(server, 0)

    async def is_due() -> bool:
        return await _fail_delivery(server, 0) is PushState.GIVEN_UP

    return is_due


async def absence_of_workers(server: Server) -> IsDue:
    agent = WorkerAgent(
        AgentSpec(id="there", name="There", description="Elsewhere"), "ada", server.clock, server.clock()
    )

    async def is_due() -> bool:
        return agent.seconds_absent >= LENGTH

    return is_due


async def lease_of_this_process(server: Server) -> IsDue:
    lease = Lease(LENGTH, margin=0, clock=lambda: server.machine.elapsed)

    async def is_due() -> bool:
        return lease.remaining <= 0

    return is_due


KINDS: Final = (
    sleep_of_a_turn, retry_of_a_turn, lease_of_another_process, orphaned_task, unconfirmed_cancel, retry_of_a_webhook,
    end_of_the_attempts_of_a_webhook, absence_of_workers, lease_of_this_process,
)  # fmt: skip


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    machine = Machine()
    clocks = (lambda: machine.wall), (lambda: machine.elapsed)
    store = open_store(tmp_path / "tasks.db", clock=SteadyClock(*clocks))
    yield Server(machine, store, await store.open_session(LENGTH), SteadyClock(*clocks))
    await store.close()


@pytest.mark.parametrize("step", [HOUR, -HOUR])
@pytest.mark.parametrize("timer", KINDS, ids=lambda timer: timer.__name__)
async def test_a_timer_is_due_after_its_time_whatever_the_clock_shows(
    server: Server, timer: Callable[[Server], Awaitable[IsDue]], step: float
) -> None:
    is_due = await timer(server)
    server.machine.forward(20)
    assert not await is_due()
    server.machine.wall += step
    assert not await is_due(), "before the store follows"
    await server.renew()
    assert abs(server.store.now() - server.machine.wall * 1000) <= 1
    assert not await is_due(), "after the store has followed"
    server.machine.forward(LENGTH - 21)
    await server.renew()
    assert not await is_due()
    server.machine.forward(2)
    assert await is_due()


async def test_a_renewal_that_fails_moves_nothing(server: Server) -> None:
    await sleep_of_a_turn(server)
    before = server.store.now()
    for step in (HOUR, -HOUR):
        server.machine.wall += step
        with pytest.raises(sqlite3.IntegrityError), server.clock.follow():
            raise sqlite3.IntegrityError
        assert server.clock() == before
        server.machine.wall -= step


TIMESTAMPS: Final = {
    "sessions": {"started"},
    "tasks": {"created", "updated", "turn_at"},
    "idempotency": {"created"},
    "long_logs": {"ended"},
    "receipts": {"began", "ended"},
    "api_keys": {"created", "expires", "used", "rotated", "revoked", "former_until"},
    "pushes": {"created"},
    "deliveries": {"at"},
    "worker_agents": {"since", "seen"},
    "upstreams": {"since"},
    "audit": {"at"},
    "steps": {"started", "ended"},
}
"""Times that are shown, or from which ages in hours and days are computed. They stay as they were written: retention
pauses for a day when a clock jumps (`runtime/maintenance/retention.py`). A key expires at a date."""

_NAMES: Final = "created|updated|started|began|ended|expires|used|rotated|revoked|requested|seen|since|until|at"


def test_every_time_of_the_schema_is_a_timer_or_a_timestamp() -> None:
    script = (Path(schema.__file__).parent / "migrations/0001_baseline.sql").read_text()
    found = set()
    for table, body in re.findall(r"CREATE TABLE (\w+) \((.*?)\n\)", script, re.DOTALL):
        found |= {(table, name) for name in re.findall(rf"^ +((?:\w+_)?(?:{_NAMES})) +INTEGER", body, re.MULTILINE)}
    found.remove(("cancel_requests", "until"))  # the number of a message
    stamps = {(table, name) for table, names in TIMESTAMPS.items() for name in names}
    assert not stamps & set(TIMERS)
    assert found == stamps | set(TIMERS)
