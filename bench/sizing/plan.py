"""What a deployment needs for a number of tasks per day or open streams, and where its limits are, from the constants.

Each server process has its own core, and PostgreSQL its own machine: the model of chunks (`solve_open`) says how many
writes share a commit at the rate of one process, and so what the load costs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from bench.sizing.cases import MANY_CALLERS, MANY_STREAMS, SOME_CALLERS, SOME_STREAMS, Case, Kind
from bench.sizing.constants import MICRO, SEND_WRITES, Figures, Measured, MemoryCosts, Split, case_figures
from bench.sizing.constants import demand as demand_of
from bench.sizing.queueing import Demand, Saturated, Solution, solve_open

DAY_SECONDS: Final = 86_400
PEAK_FACTOR: Final = 6.0
"""Peak rate over the mean of the day: a quarter of the tasks comes in two hours, with bursts of twice their mean."""

CHUNKS: Final = 50
"""Chunks that a turn streams to one reader."""

TURN_SECONDS: Final = 30.0
STREAM_EVENT_SECONDS: Final = 10.0
"""Seconds between two events of an open stream."""

UTILIZATION: Final = 0.6
"""Planned share of each core, so that latency stays flat and one server may fail."""

SLOTS: Final = 5_000
"""Concurrent turns of a process that are planned for: `--slots`, whose default is lower, because a turn that waits for
a model needs memory only.
"""

STREAMS_PER_PROCESS: Final = 10_000
"""Open streams of a process that are planned for, so that a restart moves few."""

CONNECTIONS_PER_PROCESS: Final = 14
"""Of PostgreSQL: `--postgres-connections` and four."""

RETAINED_DAYS: Final = 30
COUNTER_SLOTS: Final = 32
"""Slots of the counters in PostgreSQL: processes with the same slot wait for each other's commits."""

MAX_TASKS_PER_DAY: Final = 1e11
SEARCH_PRECISION: Final = 1.01
MAX_PLANNED: Final = 10_000_000
"""Processes up to which a plan is searched."""


@dataclass(frozen=True, slots=True)
class Load:
    """A load at its peak, per second and at once; the figures per day decide how the store grows."""

    name: str
    sends: float
    chunks: float
    turns: float
    streams: float
    tasks_per_day: float
    chunks_per_day: float


def tasks_load(tasks_per_day: float) -> Load:
    """Returns the load of so many tasks a day, each one send with a turn that streams."""
    sends = tasks_per_day / DAY_SECONDS * PEAK_FACTOR
    turns = sends * TURN_SECONDS
    name = f"{tasks_per_day:,.0f} tasks a day"
    return Load(name, sends, sends * CHUNKS, turns, turns, tasks_per_day, tasks_per_day * CHUNKS)


def streams_load(streams: float) -> Load:
    """Returns the load of so many streams of turns that run for long, with a chunk now and then, and no new tasks."""
    chunks = streams / STREAM_EVENT_SECONDS
    return Load(f"{streams:,.0f} open streams", 0.0, chunks, streams, streams, 0.0, chunks * DAY_SECONDS)


LOADS: Final = (tasks_load(1_000), tasks_load(100_000), tasks_load(10_000_000), streams_load(100_000))


@dataclass(frozen=True, slots=True)
class Costs:
    """Costs of sends and chunks by part, each as a `Split`; bytes of the log and the database; messages of NATS."""

    send: Demand
    chunk: Demand
    send_parts: dict[str, Split]
    chunk_parts: dict[str, Split]
    send_bytes: dict[str, float]
    chunk_bytes: dict[str, float]
    memory: MemoryCosts

    @classmethod
    def of(cls, measured: Measured) -> Costs:
        """Computes them. Raises NotMeasured."""
        ends = {
            kind: tuple(case_figures(measured, Case(kind, callers)) for callers in pair)
            for kind, pair in (
                (Kind.SEND, (SOME_CALLERS, MANY_CALLERS)),
                (Kind.PACED, (SOME_STREAMS, MANY_STREAMS)),
            )
        }

        def parts(kind: Kind) -> dict[str, Split]:
            few, many = ends[kind]
            return {part: Split.of(few, many, _part(part)) for part in ("servers", "postgres", "nats")}

        def sizes(kind: Kind) -> dict[str, float]:
            return {name: ends[kind][1][name] for name in ("wal", "stored", "to_nats", "nats_messages")}

        return cls(
            demand_of(measured, Kind.SEND),
            demand_of(measured, Kind.PACED),
            parts(Kind.SEND),
            parts(Kind.PACED),
            sizes(Kind.SEND),
            sizes(Kind.PACED),
            MemoryCosts.of(measured),
        )


def _part(name: str) -> Callable[[Figures], float]:
    return lambda figures: figures[name] * MICRO


@dataclass(frozen=True, slots=True)
class Plan:
    """What a load needs. Cores are used ones, at the peak; processes have the planned reserve. Bytes per second."""

    load: Load
    processes: int
    limited_by: str
    server_cores: float
    postgres_cores: float
    nats_cores: float
    memory: float
    commits: float
    latency: float
    """Seconds of a write, from the agent to its commit."""
    wal: float
    growth_per_day: float
    nats_messages: float
    nats_bytes: float


def plan(costs: Costs, load: Load) -> Plan:
    """Returns the plan with the fewest processes that keep the planned utilization, slots and streams."""
    by_slots = load.turns / SLOTS
    by_streams = load.streams / STREAMS_PER_PROCESS
    processes, limited_by = 1, "one is enough"
    for limit, name in ((by_slots, "slots"), (by_streams, "streams")):
        if math.ceil(limit) > processes:
            processes, limited_by = math.ceil(limit), name
    low, high = processes - 1, MAX_PLANNED
    while high - low > 1:  # `high` is always enough
        middle = (low + high) // 2
        low, high = (low, middle) if _is_enough(costs, load, middle) else (middle, high)
    if high > processes:
        processes, limited_by = high, "CPU"
    solution = _solve(costs, load, processes)
    writes = SEND_WRITES * load.sends + load.chunks
    commits = writes / solution.batch

    def cores(part: str) -> float:
        send, chunk = costs.send_parts[part], costs.chunk_parts[part]
        return load.sends * send.unit + load.chunks * chunk.unit + commits * chunk.commit

    def bytes_of(name: str) -> float:
        return load.sends * costs.send_bytes[name] + load.chunks * costs.chunk_bytes[name]

    return Plan(
        load,
        processes,
        limited_by,
        cores("servers"),
        cores("postgres"),
        cores("nats"),
        processes * costs.memory.idle + load.streams * costs.memory.stream + load.turns * costs.memory.running,
        commits,
        solution.latency,
        bytes_of("wal"),
        load.tasks_per_day * costs.send_bytes["stored"] + load.chunks_per_day * costs.chunk_bytes["stored"],
        bytes_of("nats_messages"),
        bytes_of("to_nats"),
    )


def _solve(costs: Costs, load: Load, processes: int) -> Solution:
    """Returns the steady state of one process, with a write as the unit. Raises Saturated."""
    writes = SEND_WRITES * load.sends + load.chunks
    send, chunk = costs.send_parts["servers"], costs.chunk_parts["servers"]
    unit = (load.sends * send.unit + load.chunks * chunk.unit) / writes
    # The rest of a commit is the work of PostgreSQL and NATS on other cores, which is a delay here.
    delay = costs.chunk.delay + max(costs.chunk.commit - chunk.commit, 0.0)
    one = Demand(unit, chunk.commit, delay, 0.0, 1.0, costs.send.full_batch)
    return solve_open(one, writes / processes)


def _is_enough(costs: Costs, load: Load, processes: int) -> bool:
    try:
        return _solve(costs, load, processes).utilization <= UTILIZATION
    except Saturated:
        return False


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit of this architecture. `tasks_per_day`: at which it is reached, with the loads of `tasks_load`."""

    name: str
    tasks_per_day: float
    change: str


STORED_LIMIT: Final = 1e12
"""Bytes of one database that are planned for: vacuum, backup and restore of more take too long for most teams."""

POSTGRES_CORES: Final = 32
NATS_CORES: Final = 4
"""Cores of the largest single machines that are planned for."""


def limits(costs: Costs) -> list[Limit]:
    """Returns the limits in the order in which a growing load reaches them."""
    stored = costs.send_bytes["stored"] + CHUNKS * costs.chunk_bytes["stored"]
    found = [
        Limit(
            f"the database has 1 TB, with tasks of {RETAINED_DAYS} days",
            STORED_LIMIT / RETAINED_DAYS / stored,
            "Nothing: retention drops whole partitions. From here on the disk is planned for, and"
            " `max_locks_per_transaction` is 512, so that dumps and lists can lock every partition.",
        ),
        Limit(
            f"more than {COUNTER_SLOTS} processes write",
            _tasks_per_day(lambda planned: planned.processes > COUNTER_SLOTS, costs),
            f"Counters have {COUNTER_SLOTS} slots; processes of one slot wait for each other's commits if they"
            " count for the same owner and agent. More slots are a constant in the store, for all servers at once. At"
            f" {CONNECTIONS_PER_PROCESS} connections each, eight processes need more than PostgreSQL's default of 100.",
        ),
        Limit(
            f"PostgreSQL uses {UTILIZATION:.0%} of {POSTGRES_CORES} cores",
            _tasks_per_day(lambda planned: planned.postgres_cores > UTILIZATION * POSTGRES_CORES, costs),
            "Several databases by scope. Every key begins with the owner (scope and principal), so rows of two scopes"
            " never meet; but a process has one store. Today: one cluster per group of scopes, each with its own"
            " `--store`, `--bus-prefix` and addresses. In one cluster it needs a store that routes by scope.",
        ),
        Limit(
            f"NATS uses {UTILIZATION:.0%} of {NATS_CORES} cores",
            _tasks_per_day(lambda planned: planned.nats_cores > UTILIZATION * NATS_CORES, costs),
            "Several NATS servers: `--bus` takes the addresses of one NATS cluster today, and a subject per task lets"
            " it forward only what a server follows. Clusters by `--bus-prefix` share nothing.",
        ),
    ]
    return sorted(found, key=lambda limit: limit.tasks_per_day)


def _tasks_per_day(is_met: Callable[[Plan], bool], costs: Costs) -> float:
    """Returns the smallest load at which a limit is reached, within 1 %; infinity above MAX_TASKS_PER_DAY."""
    low, high = 1.0, 1.0
    while not is_met(plan(costs, tasks_load(high))):
        low, high = high, high * 2
        if high > MAX_TASKS_PER_DAY:
            return math.inf
    while high / low > SEARCH_PRECISION:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if is_met(plan(costs, tasks_load(middle))) else (middle, high)
    return high
