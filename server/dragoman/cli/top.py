"""`top`: shows the metrics of a server as a live table, from its /metrics page."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Final

import aiohttp
import typer
from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from dragoman.cli import ExitCode, escape_controls, print_error
from dragoman.cli.options import DEFAULT_SERVER, Key, http_address, use_server


def register(cli: typer.Typer) -> None:
    """Adds the command."""
    cli.command("top")(top)


def top(
    server: Annotated[
        str,
        typer.Option(
            "--server",
            envvar="DRAGOMAN_SERVER",
            metavar="URL",
            callback=use_server,
            help="The server: http(s)://HOST[:PORT], or its --metrics address.",
        ),
    ] = DEFAULT_SERVER,
    every: Annotated[float, typer.Option("--every", metavar="S", min=0.2, help="Seconds between two readings.")] = 2.0,
    once: Annotated[bool, typer.Option("--once", metavar=" ", help="Print the metrics once and exit.")] = False,
    ca: Annotated[
        Path | None,
        typer.Option(
            "--ca",
            envvar="DRAGOMAN_CA",
            metavar="FILE",
            help="CA certificates to verify the server's certificate with, in PEM. [the system's CAs]",
            show_default=False,
        ),
    ] = None,
    key: Key = "",
) -> None:
    """Show live metrics of a server.

    Shows turns, queues, request rates, commits, subscribers and push notifications, from the server's /metrics. Rates
    cover the time between two readings. Press Ctrl-C to exit.

    **Examples**

    `dragoman top`  the server on this machine

    `dragoman top --server https://agents.example.com --key dgm_...`  with an API key with the grant `operator`

    `dragoman top --once`  for a script
    """
    raise typer.Exit(run_top(TopOptions(http_address(server, "top"), every, once, ca, key)))


METRICS_TIMEOUT: Final = 10.0
MAX_SHOWN_METHODS: Final = 8
"""Methods in the table, busiest first."""

Labels = frozenset[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class TopOptions:
    """The options of the command line."""

    url: str
    every: float
    once: bool
    ca: Path | None
    key: str


class MetricsUnavailable(Exception):
    """The metrics cannot be read. The text gives the reason."""


@dataclass(slots=True)
class MetricsSnapshot:
    """One reading of /metrics. `at` is in seconds of the monotonic clock."""

    at: float
    samples: dict[str, dict[Labels, float]] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str, at: float) -> MetricsSnapshot:
        """Parses Prometheus' text format."""
        found: defaultdict[str, dict[Labels, float]] = defaultdict(dict)
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                labels = {name: escape_controls(value) for name, value in sample.labels.items()}
                found[sample.name][frozenset(labels.items())] = sample.value
        return cls(at, dict(found))

    def value(self, name: str, **labels: str) -> float:
        """The sum over all series with these labels; 0 if there are none."""
        wanted = labels.items()
        return sum(value for has, value in self.samples.get(name, {}).items() if wanted <= has)

    def maximum(self, name: str, **labels: str) -> float:
        """The maximum over all series with these labels; 0 if there are none."""
        wanted = labels.items()
        return max((value for has, value in self.samples.get(name, {}).items() if wanted <= has), default=0.0)

    def label_values(self, name: str, label: str) -> Iterator[str]:
        """The values of a label, sorted."""
        yield from sorted({dict(has)[label] for has in self.samples.get(name, {}) if label in dict(has)})


@dataclass(frozen=True, slots=True)
class MetricsDelta:
    """The difference between two readings."""

    before: MetricsSnapshot
    after: MetricsSnapshot

    @property
    def seconds(self) -> float:
        return max(self.after.at - self.before.at, 1e-9)

    def rate(self, name: str, **labels: str) -> float:
        """Increase per second. Never negative: counters restart at 0 with the server."""
        return max(self.after.value(name, **labels) - self.before.value(name, **labels), 0.0) / self.seconds

    def quantile(self, share: float, name: str, **labels: str) -> float:
        """Upper bound of the histogram bucket with this quantile of the new values; 0 if there are none."""
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


def run_top(options: TopOptions) -> ExitCode:
    """Shows the metrics until Ctrl-C. Returns the exit code."""
    try:
        return asyncio.run(_watch(options))
    except MetricsUnavailable as error:
        return print_error(error, ExitCode.UNAVAILABLE)
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED if options.once else ExitCode.OK


async def _watch(options: TopOptions) -> ExitCode:
    context = ssl.create_default_context(cafile=str(options.ca)) if options.ca else True
    headers = {"Authorization": f"Bearer {options.key}"} if options.key else {}
    timeout = aiohttp.ClientTimeout(total=METRICS_TIMEOUT)
    async with aiohttp.ClientSession(headers=headers, timeout=timeout) as session:
        before = await _fetch_metrics(session, options, context)
        if options.once:
            await asyncio.sleep(options.every)
            Console().print(
                render_dashboard(MetricsDelta(before, await _fetch_metrics(session, options, context)), options.url)
            )
            return ExitCode.OK
        with Live(screen=True, auto_refresh=False) as live:
            live.update(render_dashboard(MetricsDelta(before, before), options.url), refresh=True)
            while True:
                await asyncio.sleep(options.every)
                try:
                    after = await _fetch_metrics(session, options, context)
                except MetricsUnavailable as error:  # the server may come back
                    live.update(Text(f"{options.url}: {error}", style="red"), refresh=True)
                    continue
                live.update(render_dashboard(MetricsDelta(before, after), options.url), refresh=True)
                before = after


async def _fetch_metrics(
    session: aiohttp.ClientSession, options: TopOptions, context: ssl.SSLContext | bool
) -> MetricsSnapshot:
    try:
        async with session.get(f"{options.url}/metrics", ssl=context) as response:
            text = await response.text()
    except (OSError, aiohttp.ClientError, TimeoutError) as error:
        raise MetricsUnavailable(
            f"cannot connect to {options.url}: {str(error) or 'timed out'}; start a server, or pass another --server"
        ) from error
    if response.status in (401, 403):
        raise MetricsUnavailable(
            f"{options.url} shows metrics to operators only; pass an operator's key with --key (DRAGOMAN_KEY)"
        )
    if response.status != 200:
        raise MetricsUnavailable(
            f"{options.url}/metrics answered HTTP {response.status}; check that it is a Dragoman server"
        )
    return MetricsSnapshot.parse(text, time.monotonic())


# Drawing -----------------------------------------------------------------------------------------------------------


def render_dashboard(change: MetricsDelta, url: str) -> Group:
    """Renders all tables."""
    return Group(_title(change, url), _server_table(change), _agent_table(change), _method_table(change))


def _title(change: MetricsDelta, url: str) -> Text:
    now = change.after
    about = dict(next(iter(now.samples.get("dragoman_build_info", {frozenset[tuple[str, str]](): 1.0}))))
    text = Text(f"dragoman {about.get('version', '?')} at {url}, {about.get('store', '?')}", style="bold")
    for name, bad, warning in (
        ("dragoman_draining", 1.0, "draining"),
        ("dragoman_store_up", 0.0, "store unavailable"),
        ("dragoman_bus_up", 0.0, "bus unavailable"),
        ("dragoman_traces_up", 0.0, "trace collector unavailable"),
    ):
        if name in now.samples and now.value(name) == bad:
            text.append(f"  {warning}", style="bold red")
    return text


def _server_table(change: MetricsDelta) -> Table:
    now, table = change.after, Table(box=None, pad_edge=False, show_header=False)
    for _ in range(4):
        table.add_column()
    rate, spread = change.rate, change.quantile
    changes, commits = rate("dragoman_commit_changes_sum"), rate("dragoman_commit_changes_count")
    rows: Mapping[str, tuple[str, str, str]] = {
        "turns": (
            f"{now.value('dragoman_runs_active'):.0f} of {now.value('dragoman_slots'):.0f} running",
            f"{rate('dragoman_runs_begun_total'):.1f}/s started",
            f"{rate('dragoman_runs_ended_total', state='failed'):.1f}/s failed",
        ),
        "queue": (
            f"{now.value('dragoman_waiting_tasks'):.0f} waiting",
            f"oldest {format_seconds(now.maximum('dragoman_queue_age_seconds'))}",
            f"{rate('dragoman_rejected_appends_total', reason='over_quota'):.1f}/s over quota",
        ),
        "requests": (
            f"{rate('dragoman_requests_total'):.1f}/s",
            f"p95 {format_seconds(spread(0.95, 'dragoman_request_duration_seconds'))}",
            f"{now.value('dragoman_open_streams'):.0f} streams open",
        ),
        "events": (
            f"{rate('dragoman_events_total'):.1f}/s",
            f"{now.value('dragoman_subscribers'):.0f} following",
            f"slowest {now.value('dragoman_event_lag_events'):.0f} behind",
        ),
        "commits": (
            f"{commits:.1f}/s of {changes / commits if commits else 0:.1f} changes",
            f"p99 {format_seconds(spread(0.99, 'dragoman_commit_duration_seconds'))}",
            f"{now.value('dragoman_rejected_appends_total', reason='fenced'):.0f} fenced",
        ),
        "pushes": (
            f"{rate('dragoman_push_deliveries_total', outcome='taken'):.1f}/s taken",
            f"{now.value('dragoman_pushes_due'):.0f} due,"
            f" oldest {format_seconds(now.value('dragoman_push_age_seconds'))}",
            f"{rate('dragoman_push_deliveries_total', outcome='failed'):.1f}/s failed,"
            f" {now.value('dragoman_pushes_dead'):.0f} given up",
        ),
        "process": (
            f"CPU {100 * rate('process_cpu_seconds_total'):.0f} %",
            f"{now.value('process_resident_memory_bytes') / 1024**2:.0f} MiB",
            f"loop p99 {format_seconds(spread(0.99, 'dragoman_loop_delay_seconds'))}",
        ),
    }
    for name, cells in rows.items():
        table.add_row(Text(name, style="cyan"), *cells)
    return table


def _agent_table(change: MetricsDelta) -> Table:
    now, table = change.after, Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("agent")
    for name in ("running", "waiting", "oldest", "ended/s", "failed/s", "p95", "unfinished", "tokens/s"):
        table.add_column(name, justify="right")
    for agent in now.label_values("dragoman_runs_begun_total", "agent"):
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
            format_seconds(now.value("dragoman_queue_age_seconds", agent=agent)),
            f"{ended:.1f}",
            f"{change.rate('dragoman_runs_ended_total', agent=agent, state='failed'):.1f}",
            format_seconds(change.quantile(0.95, "dragoman_run_duration_seconds", agent=agent)),
            f"{live:.0f}",
            f"{change.rate('dragoman_usage_tokens_total', agent=agent):.0f}",
        )
    return table


def _method_table(change: MetricsDelta) -> Table:
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

    for method, binding in sorted(kinds, key=busy, reverse=True)[:MAX_SHOWN_METHODS]:
        rate, calls = busy((method, binding))
        slow = change.quantile(0.95, "dragoman_request_duration_seconds", method=method, binding=binding)
        table.add_row(method, binding, f"{rate:.1f}", format_seconds(slow), f"{calls:.0f}")
    return table


def format_seconds(value: float) -> str:
    """Formats seconds as `12 ms`, `3.1 s` or `5 min`; `-` for 0."""
    if not value:
        return "-"
    return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.1f} s" if value < 120 else f"{value / 60:.0f} min"
