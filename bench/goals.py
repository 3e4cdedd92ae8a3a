"""What has to be reached, what is aimed at, and how each is taken from the rows. Ratios are those inside a round."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from bench.hooked import DOWN, NONE
from bench.rows import Key, Rows
from bench.sections import HOOKED, LIST, MEMORY, SIZE, SPELLED, START, TIMED, Section, commit_before
from bench.servers import OURS, limit_of
from bench.size import LARGE, SMALL, appending_case
from bench.spread import Spread, figure
from bench.stored import FEW, HUGE, LAST, MANY, STATES, case

Find = Callable[[Rows], Spread | None]

NOTHING_KB: Final = 0.1
"""KB for a finished task that cannot be told from none: the pages a process gains by chance, over so many tasks."""


@dataclass(frozen=True, slots=True)
class Goal:
    """One row of the table. `most`: the figure may not be above the bounds, else not below."""

    title: str
    find: Find
    bound: float
    aim: float
    most: bool = False
    unit: str = ""

    def verdict(self, found: Spread | None) -> str:
        """`aim`, `yes` or `NO`; empty when it was not measured."""
        if found is None:
            return ""
        sign = 1 if self.most else -1
        if sign * found.median <= sign * self.aim:
            return "aim"
        return "yes" if sign * found.median <= sign * self.bound else "NO"

    def spelled(self, value: float) -> str:
        """A bound with its unit."""
        return f"{figure(value)} {self.unit}".strip()


def section(name: str) -> Section:
    """A timed section by name."""
    return next(one for one in TIMED if one.name == name)


def of_limit(name: str, callers: int) -> Find:
    """Ours over the bare transport."""
    one = section(name)
    ours, bare = (Key(name, one.case(callers), server) for server in (OURS, limit_of(one.binding)))
    return lambda rows: rows.ratio(ours, bare)


def over_limit(binding: str) -> Find:
    """Milliseconds of one caller's p50 above the bare transport and two commits of the disk."""
    name = f"{binding}-send"
    one = section(name).case(1)
    keys = Key(name, one, OURS), Key(name, one, limit_of(binding)), commit_before(name)
    return lambda rows: Spread.of(
        ours["p50"] - bare["p50"] - 2 * disk["value"] for ours, bare, disk in rows.together(*keys)
    )


def tail(binding: str) -> Find:
    """p99 over p50 at 64 callers."""
    key = Key(f"{binding}-send", section(f"{binding}-send").case(64), OURS)
    return lambda rows: Spread.of(row["p99"] / row["p50"] for (row,) in rows.together(key))


def page_growth(tasks: int, page: int, state: str) -> Find:
    """A page of many tasks over the same page of few."""
    many, few = (Key(LIST, case(count, page, state), OURS) for count in (tasks, FEW))
    return lambda rows: rows.ratio(many, few)


def append_growth(rows: Rows) -> Spread | None:
    """One more event of a large task over one more of a small one."""
    large, small = (Key(SIZE, appending_case(size), OURS) for size in (LARGE, SMALL))
    return rows.ratio(large, small)


def held(case: str, per: float) -> Find:
    """Memory, in units of so many bytes."""
    key = Key(MEMORY, case, OURS)
    return lambda rows: Spread.of(row["value"] / per for (row,) in rows.together(key))


def receiver_down(rows: Rows) -> Spread | None:
    """A stream whose receiver is down over one without a webhook."""
    return rows.ratio(Key(HOOKED, DOWN, OURS), Key(HOOKED, NONE, OURS))


def started(rows: Rows) -> Spread | None:
    """Seconds to listening."""
    return rows.spread(Key(START, "to listening", OURS))


def goals() -> Iterator[Goal]:
    """The table, in its order."""
    bounds = {"grpc": (0.28, 0.40), "rest": (0.16, 0.28), "jsonrpc": (0.16, 0.28)}
    for binding, (bound, aim) in bounds.items():
        yield Goal(f"{SPELLED[binding]} blocking send, 64 callers", of_limit(f"{binding}-send", 64), bound, aim)
    for binding in bounds:
        title = f"{SPELLED[binding]} one caller, p50 over bare and two commits"
        yield Goal(title, over_limit(binding), 1.0, 0.5, most=True, unit="ms")
    for binding in bounds:
        yield Goal(f"{SPELLED[binding]} p99 / p50 at 64 callers", tail(binding), 3, 2, most=True)
    streams = {"grpc": (0.45, 0.65), "rest": (0.15, 0.28), "jsonrpc": (0.15, 0.28)}
    for binding, (bound, aim) in streams.items():
        yield Goal(f"{SPELLED[binding]} 100 chunks on 16 streams", of_limit(f"{binding}-stream", 16), bound, aim)
    shared = {"grpc": (1.3, 1.8), "rest": (1.0, 1.4), "jsonrpc": (1.0, 1.4)}
    for binding, (bound, aim) in shared.items():
        title = f"{SPELLED[binding]} 100 subscribers, delivered events"
        yield Goal(title, of_limit(f"{binding}-subscribers", 100), bound, aim)
    read = {"grpc": (0.6, 0.9), "rest": (0.20, 0.35), "jsonrpc": (0.20, 0.35)}
    for binding, (bound, aim) in read.items():
        yield Goal(f"{SPELLED[binding]} GetTask, 50 messages", of_limit(f"{binding}-get", 16), bound, aim)
    for tasks in (MANY, HUGE):
        for state, spelled in STATES.items():
            for page in (1, LAST):
                title = f"ListTasks page {page}, {spelled}, {tasks:,} tasks against {FEW:,}"
                yield Goal(title, page_growth(tasks, page, state), 1.5, 1.2, most=True)
    yield Goal(f"append after {LARGE:,} events against {SMALL}", append_growth, 1.2, 1.05, most=True)
    yield Goal("memory, idle server", held("idle server", 1e6), 90, 60, most=True, unit="MB")
    yield Goal("memory, idle gRPC stream", held("idle stream", 1e3), 60, 30, most=True, unit="KB")
    yield Goal("memory, waiting task", held("waiting task", 1e3), 2, 0.5, most=True, unit="KB")
    yield Goal("memory, finished task", held("finished task", 1e3), NOTHING_KB, NOTHING_KB, most=True, unit="KB")
    yield Goal("100 chunks on a stream, its receiver down, against no webhook", receiver_down, 1.2, 1.05, most=True)
    yield Goal("`dragoman serve` to listening", started, 1.0, 0.5, most=True, unit="s")
