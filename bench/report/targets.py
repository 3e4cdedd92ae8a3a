"""Performance targets, and how each is computed from the rows. Ratios are computed within a round."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from bench.measurements import steps
from bench.measurements.task_lists import FEW, HUGE, LAST, MANY, STATES, case
from bench.measurements.task_size import LARGE, SMALL, append_case
from bench.measurements.webhooks import NO_WEBHOOK, RECEIVER_DOWN
from bench.rows import Key, Rows, Spread, format_number
from bench.sections import BINDING_NAMES, LIST, MEMORY, SIZE, START, STEPS, TIMED, WEBHOOKS, Section
from bench.servers.contestants import CEILING, DRAGOMAN, FASTA2A, bare_server_of

Find = Callable[[Rows], Spread | None]

NEGLIGIBLE_KB: Final = 0.1
"""KB per finished task that count as zero: random pages of the process divided by the number of tasks."""


@dataclass(frozen=True, slots=True)
class Target:
    """One row of the table. `lower_is_better`: bounds are upper bounds, else lower bounds."""

    title: str
    find: Find
    bound: float
    aim: float
    lower_is_better: bool = False
    unit: str = ""

    def verdict(self, result: Spread | None) -> str:
        """Returns `aim`, `yes` or `NO`; empty without a measurement."""
        if result is None:
            return ""
        sign = 1 if self.lower_is_better else -1
        if sign * result.median <= sign * self.aim:
            return "aim"
        return "yes" if sign * result.median <= sign * self.bound else "NO"

    def format(self, value: float) -> str:
        """Formats a bound with its unit."""
        return f"{format_number(value)} {self.unit}".strip()


def section(name: str) -> Section:
    """Returns a timed section by name."""
    return next(section for section in TIMED if section.name == name)


def ratio_to(server: str, name: str, callers: int, field: str = "value") -> Find:
    """Ratio of Dragoman to another server: of rates, or of another field."""
    ours, theirs = (Key(name, section(name).case(callers), one) for one in (DRAGOMAN, server))
    return lambda rows: rows.ratio(ours, theirs, field)


def ratio_to_bare(name: str, callers: int) -> Find:
    """Ratio of Dragoman to the bare transport."""
    return ratio_to(bare_server_of(section(name).binding), name, callers)


def tail_ratio(binding: str) -> Find:
    """Ratio of p99 to p50 at 64 callers."""
    key = Key(f"{binding}-send", section(f"{binding}-send").case(64), DRAGOMAN)
    return lambda rows: Spread.of(row["p99"] / row["p50"] for (row,) in rows.joined(key))


def page_growth(tasks: int, page: int, state: str) -> Find:
    """Ratio of a page of a large store to the same page of a small one."""
    many, few = (Key(LIST, case(count, page, state), DRAGOMAN) for count in (tasks, FEW))
    return lambda rows: rows.ratio(many, few)


def append_growth(rows: Rows) -> Spread | None:
    """Ratio of an append to a large task to one to a small task."""
    large, small = (Key(SIZE, append_case(size), DRAGOMAN) for size in (LARGE, SMALL))
    return rows.ratio(large, small)


def steps_difference(more: str, less: str) -> Find:
    """Milliseconds by which one case of the section on steps exceeds another."""
    keys = [Key(STEPS, case, DRAGOMAN) for case in (more, less)]
    return lambda rows: Spread.of(above["value"] - below["value"] for above, below in rows.joined(*keys))


def steps_per_second(rows: Rows) -> Spread | None:
    """Steps per second of many tasks."""
    return rows.spread(Key(STEPS, steps.RATE, DRAGOMAN))


def memory(case: str, unit_bytes: float) -> Find:
    """Memory in units of `unit_bytes`."""
    key = Key(MEMORY, case, DRAGOMAN)
    return lambda rows: Spread.of(row["value"] / unit_bytes for (row,) in rows.joined(key))


def receiver_down(rows: Rows) -> Spread | None:
    """A stream implementation receiver is down over one without a webhook."""
    return rows.ratio(Key(WEBHOOKS, RECEIVER_DOWN, DRAGOMAN), Key(WEBHOOKS, NO_WEBHOOK, DRAGOMAN))


def start_seconds(rows: Rows) -> Spread | None:
    """Seconds until the server listens."""
    return rows.spread(Key(START, "to listening", DRAGOMAN))


def targets() -> Iterator[Target]:
    """Yields the targets in table order."""
    bounds = {"grpc": (0.80, 0.90), "rest": (0.65, 0.80), "jsonrpc": (0.65, 0.80)}
    for binding, (bound, aim) in bounds.items():
        title = f"{BINDING_NAMES[binding]} blocking send, 64 callers / ceiling"
        yield Target(title, ratio_to(CEILING, f"{binding}-send", 64), bound, aim)
    title = "JSON-RPC blocking send, 64 callers / fasta2a in memory"
    yield Target(title, ratio_to(FASTA2A, "jsonrpc-send", 64), 0.80, 1.0)
    for binding in bounds:
        title = f"{BINDING_NAMES[binding]} one caller, p50 / ceiling"
        yield Target(title, ratio_to(CEILING, f"{binding}-send", 1, "p50"), 1.55, 1.3, lower_is_better=True)
    for binding in bounds:
        yield Target(
            f"{BINDING_NAMES[binding]} p99 / p50 at 64 callers", tail_ratio(binding), 3, 2, lower_is_better=True
        )
    streams = {"grpc": (0.65, 0.75), "rest": (0.35, 0.45), "jsonrpc": (0.35, 0.45)}
    for binding, (bound, aim) in streams.items():
        yield Target(
            f"{BINDING_NAMES[binding]} 100 chunks on 16 streams", ratio_to_bare(f"{binding}-stream", 16), bound, aim
        )
    shared = {"grpc": (1.4, 1.8), "rest": (1.0, 1.4), "jsonrpc": (1.0, 1.4)}
    for binding, (bound, aim) in shared.items():
        title = f"{BINDING_NAMES[binding]} 100 subscribers, delivered events"
        yield Target(title, ratio_to_bare(f"{binding}-subscribers", 100), bound, aim)
    read = {"grpc": (0.8, 1.0), "rest": (0.35, 0.45), "jsonrpc": (0.35, 0.45)}
    for binding, (bound, aim) in read.items():
        yield Target(f"{BINDING_NAMES[binding]} GetTask, 50 messages", ratio_to_bare(f"{binding}-get", 16), bound, aim)
    for tasks in (MANY, HUGE):
        for state, label in STATES.items():
            for page in (1, LAST):
                title = f"ListTasks page {page}, {label}, {tasks:,} tasks / {FEW:,} tasks"
                yield Target(title, page_growth(tasks, page, state), 1.5, 1.2, lower_is_better=True)
    yield Target(f"append after {LARGE:,} events / after {SMALL}", append_growth, 1.2, 1.05, lower_is_better=True)
    extra = steps_difference(steps.STEP, steps.COMMIT)
    yield Target("one step minus one commit, one caller", extra, 0.5, 0.4, lower_is_better=True, unit="ms")
    yield Target(f"steps of {steps.TASKS} tasks at once, one core", steps_per_second, 2_500, 5_000, unit="steps/s")
    title = f"{steps.FINISHED:,} finished steps found again, minus the same turn without steps"
    replay = steps_difference(steps.answer_case(steps.FINISHED), steps.answer_case(0))
    yield Target(title, replay, 50, 20, lower_is_better=True, unit="ms")
    yield Target("memory, idle server", memory("idle server", 1e6), 75, 60, lower_is_better=True, unit="MB")
    yield Target("memory, idle gRPC stream", memory("idle stream", 1e3), 60, 30, lower_is_better=True, unit="KB")
    yield Target("memory, waiting task", memory("waiting task", 1e3), 2, 0.5, lower_is_better=True, unit="KB")
    yield Target(
        "memory, finished task",
        memory("finished task", 1e3),
        NEGLIGIBLE_KB,
        NEGLIGIBLE_KB,
        lower_is_better=True,
        unit="KB",
    )
    yield Target(
        "100 chunks on a stream, webhook receiver down / no webhook", receiver_down, 1.2, 1.05, lower_is_better=True
    )
    yield Target("`dragoman serve` to listening", start_seconds, 0.8, 0.5, lower_is_better=True, unit="s")
