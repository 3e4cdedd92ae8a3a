"""What `top` does: reads /metrics again and again, and draws what changed."""

from __future__ import annotations

import asyncio
import ssl
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import aiohttp
from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

DONE: Final = 0
UNREACHABLE: Final = 3
INTERRUPTED: Final = 130

PATIENCE: Final = 10.0
METHODS: Final = 8
"""Methods that are shown, the busiest first."""

Labels = frozenset[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Given:
    """What the command line said."""

    url: str
    every: float
    once: bool
    ca: Path | None
    token: str


class Unreadable(Exception):
    """The numbers cannot be had; the text says why."""


@dataclass(slots=True)
class Numbers:
    """What /metrics said at one moment, in seconds by a clock that only grows."""

    at: float
    samples: dict[str, dict[Labels, float]] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str, at: float) -> Numbers:
        """Reads Prometheus' text form."""
        found: defaultdict[str, dict[Labels, float]] = defaultdict(dict)
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                found[sample.name][frozenset(sample.labels.items())] = sample.value
        return cls(at, dict(found))

    def value(self, name: str, **labels: str) -> float:
        """The sum over all labels that are not named; 0 for what is not there."""
        wanted = labels.items()
        return sum(value for has, value in self.samples.get(name, {}).items() if wanted <= has)

    def most(self, name: str, **labels: str) -> float:
        """The largest of them."""
        wanted = labels.items()
        return max((value for has, value in self.samples.get(name, {}).items() if wanted <= has), default=0.0)

    def by(self, name: str, label: str) -> Iterator[str]:
        """The values of a label, in order."""
        yield from sorted({dict(has)[label] for has in self.samples.get(name, {}) if label in dict(has)})


@dataclass(frozen=True, slots=True)
class Change:
    """Two looks, and what happened between them."""

    before: Numbers
    after: Numbers

    @property
    def seconds(self) -> float:
        return max(self.after.at - self.before.at, 1e-9)

    def rate(self, name: str, **labels: str) -> float:
        """How often in a second. A server that was started anew counts from 0."""
        return max(self.after.value(name, **labels) - self.before.value(name, **labels), 0.0) / self.seconds

    def quantile(self, share: float, name: str, **labels: str) -> float:
        """The bound below which that share of the values between the looks was; 0 when there were none."""
        counts: defaultdict[float, float] = defaultdict(float)
        for numbers, sign in ((self.after, 1), (self.before, -1)):
            for has, value in numbers.samples.get(f"{name}_bucket", {}).items():
                if labels.items() <= has:
                    counts[float(dict(has)["le"])] += sign * value
        total = counts.get(float("inf"), 0.0)
        if total <= 0:
            return 0.0
        finite = max((bound for bound in counts if bound != float("inf")), default=0.0)
        reached = next(bound for bound, count in sorted(counts.items()) if count >= share * total)
        return min(reached, finite)


def run(given: Given) -> int:
    """Draws until Ctrl-C. Gives the exit code."""
    try:
        return asyncio.run(_watch(given))
    except Unreadable as error:
        print(f"error: {error}", file=sys.stderr)
        return UNREACHABLE
    except KeyboardInterrupt:
        return INTERRUPTED if given.once else DONE


async def _watch(given: Given) -> int:
    context = ssl.create_default_context(cafile=str(given.ca)) if given.ca else True
    headers = {"Authorization": f"Bearer {given.token}"} if given.token else {}
    patience = aiohttp.ClientTimeout(total=PATIENCE)
    async with aiohttp.ClientSession(headers=headers, timeout=patience) as session:
        before = await _look(session, given, context)
        if given.once:
            await asyncio.sleep(given.every)
            Console().print(drawn(Change(before, await _look(session, given, context)), given.url))
            return DONE
        with Live(screen=True, auto_refresh=False) as live:
            live.update(drawn(Change(before, before), given.url), refresh=True)
            while True:
                await asyncio.sleep(given.every)
                try:
                    after = await _look(session, given, context)
                except Unreadable as error:  # it may come back
                    live.update(Text(f"{given.url}: {error}", style="red"), refresh=True)
                    continue
                live.update(drawn(Change(before, after), given.url), refresh=True)
                before = after


async def _look(session: aiohttp.ClientSession, given: Given, context: ssl.SSLContext | bool) -> Numbers:
    try:
        async with session.get(f"{given.url}/metrics", ssl=context) as answer:
            text = await answer.text()
    except (OSError, aiohttp.ClientError, TimeoutError) as error:
        raise Unreadable(
            f"no server answers at {given.url}: {str(error) or 'it takes too long'}; name one with --url"
        ) from error
    if answer.status in (401, 403):
        raise Unreadable(f"{given.url} shows its numbers to operators; show a key with --token (DRAGOMAN_TOKEN)")
    if answer.status != 200:
        raise Unreadable(f"{given.url}/metrics answers {answer.status}; is it a Dragoman?")
    return Numbers.parse(text, time.monotonic())


# Drawing -----------------------------------------------------------------------------------------------------------


def drawn(change: Change, url: str) -> Group:
    """Everything, as tables."""
    return Group(_head(change, url), _server(change), _agents(change), _methods(change))


def _head(change: Change, url: str) -> Text:
    now = change.after
    about = dict(next(iter(now.samples.get("dragoman_build_info", {frozenset[tuple[str, str]](): 1.0}))))
    text = Text(f"dragoman {about.get('version', '?')} at {url}, {about.get('store', '?')}", style="bold")
    for name, bad, told in (
        ("dragoman_draining", 1.0, "draining"),
        ("dragoman_store_up", 0.0, "the store does not answer"),
        ("dragoman_bus_up", 0.0, "the bus is away"),
        ("dragoman_traces_up", 0.0, "traces are not taken"),
    ):
        if name in now.samples and now.value(name) == bad:
            text.append(f"  {told}", style="bold red")
    return text


def _server(change: Change) -> Table:
    now, table = change.after, Table(box=None, pad_edge=False, show_header=False)
    for _ in range(4):
        table.add_column()
    rate, spread = change.rate, change.quantile
    changes, commits = rate("dragoman_commit_changes_sum"), rate("dragoman_commit_changes_count")
    rows: Mapping[str, tuple[str, str, str]] = {
        "turns": (
            f"{now.value('dragoman_runs_active'):.0f} of {now.value('dragoman_slots'):.0f} running",
            f"{rate('dragoman_runs_begun_total'):.1f}/s begun",
            f"{rate('dragoman_runs_ended_total', state='failed'):.1f}/s failed",
        ),
        "queue": (
            f"{now.value('dragoman_waiting_tasks'):.0f} waiting",
            f"oldest {seconds(now.most('dragoman_queue_age_seconds'))}",
            f"{rate('dragoman_refused_writes_total', reason='over'):.1f}/s over quota",
        ),
        "requests": (
            f"{rate('dragoman_requests_total'):.1f}/s",
            f"p95 {seconds(spread(0.95, 'dragoman_request_duration_seconds'))}",
            f"{now.value('dragoman_open_streams'):.0f} streams open",
        ),
        "events": (
            f"{rate('dragoman_events_total'):.1f}/s",
            f"{now.value('dragoman_subscribers'):.0f} following",
            f"slowest {now.value('dragoman_event_lag_events'):.0f} behind",
        ),
        "commits": (
            f"{commits:.1f}/s of {changes / commits if commits else 0:.1f} changes",
            f"p99 {seconds(spread(0.99, 'dragoman_commit_duration_seconds'))}",
            f"{now.value('dragoman_refused_writes_total', reason='fenced'):.0f} fenced",
        ),
        "pushes": (
            f"{rate('dragoman_push_deliveries_total', outcome='taken'):.1f}/s taken",
            f"{now.value('dragoman_pushes_due'):.0f} due, oldest {seconds(now.value('dragoman_push_age_seconds'))}",
            f"{rate('dragoman_push_deliveries_total', outcome='failed'):.1f}/s failed,"
            f" {now.value('dragoman_pushes_dead'):.0f} given up",
        ),
        "process": (
            f"CPU {100 * rate('process_cpu_seconds_total'):.0f} %",
            f"{now.value('process_resident_memory_bytes') / 1024**2:.0f} MiB",
            f"loop p99 {seconds(spread(0.99, 'dragoman_loop_delay_seconds'))}",
        ),
    }
    for name, cells in rows.items():
        table.add_row(Text(name, style="cyan"), *cells)
    return table


def _agents(change: Change) -> Table:
    now, table = change.after, Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("agent")
    for name in ("running", "waiting", "oldest", "ended/s", "failed/s", "p95", "unfinished", "tokens/s"):
        table.add_column(name, justify="right")
    for agent in now.by("dragoman_runs_begun_total", "agent"):
        ended = change.rate("dragoman_runs_ended_total", agent=agent)
        running = now.value("dragoman_runs_begun_total", agent=agent) - now.value(
            "dragoman_runs_ended_total", agent=agent
        )
        live = sum(
            now.value("dragoman_tasks", agent=agent, state=state)
            for state in ("submitted", "working", "input-required", "auth-required")
        )
        table.add_row(
            agent,
            f"{running:.0f}",
            f"{now.value('dragoman_waiting_tasks', agent=agent):.0f}",
            seconds(now.value("dragoman_queue_age_seconds", agent=agent)),
            f"{ended:.1f}",
            f"{change.rate('dragoman_runs_ended_total', agent=agent, state='failed'):.1f}",
            seconds(change.quantile(0.95, "dragoman_run_duration_seconds", agent=agent)),
            f"{live:.0f}",
            f"{change.rate('dragoman_usage_tokens_total', agent=agent):.0f}",
        )
    return table


def _methods(change: Change) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("method")
    table.add_column("binding")
    for name in ("calls/s", "p95", "calls"):
        table.add_column(name, justify="right")
    kinds = {
        (dict(has)["method"], dict(has)["binding"]) for has in change.after.samples.get("dragoman_requests_total", {})
    }

    def busy(kind: tuple[str, str]) -> tuple[float, float]:
        labels = {"method": kind[0], "binding": kind[1]}
        name = "dragoman_requests_total"
        return change.rate(name, **labels), change.after.value(name, **labels)

    for method, binding in sorted(kinds, key=busy, reverse=True)[:METHODS]:
        rate, calls = busy((method, binding))
        slow = change.quantile(0.95, "dragoman_request_duration_seconds", method=method, binding=binding)
        table.add_row(method, binding, f"{rate:.1f}", seconds(slow), f"{calls:.0f}")
    return table


def seconds(value: float) -> str:
    """A time for people: what is short in milliseconds."""
    if not value:
        return "-"
    return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.1f} s" if value < 120 else f"{value / 60:.0f} min"
