"""Report of a run: Markdown tables for the terminal, and the generated part of docs/explanation/performance.md."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from bench.measurements import ladder, replicas, steps, telemetry
from bench.measurements.task_lists import STATES
from bench.measurements.webhooks import CASES, NO_WEBHOOK, STREAMS
from bench.report import plot
from bench.report.tables import replace_generated, table
from bench.report.targets import targets
from bench.responses import EVENTS
from bench.rows import Key, Rows, format_number
from bench.sections import (
    BINDING_NAMES,
    DISK,
    LIST,
    MEMORY,
    SIZE,
    SIZING,
    START,
    STEPS,
    TELEMETRY,
    TIMED,
    WEBHOOKS,
    Section,
)
from bench.servers.commits import PREFIX
from bench.servers.contestants import A2A_SDK_SQLITE, CEILING, CONTESTANTS, DRAGOMAN
from tools.environments import ROOT

LOAD_BOUND_SHARE: Final = 0.95
"""Share of its core from which on the load may be the bottleneck."""

QUIET_LOAD_AVERAGE: Final = 0.5
"""Load average before a run up to which the machine counts as quiet."""

DISTURBED_SHARE: Final = 0.1
"""Share of the server's core used by other servers from which on a row gets a remark."""

DOCUMENT: Final = ROOT / "docs" / "explanation" / "performance.md"
PLOT: Final = ROOT / "docs" / "explanation" / "performance.svg"
BEGIN: Final = "<!-- make bench: begin -->"
END: Final = "<!-- make bench: end -->"


def write(rows: Rows) -> Iterator[Path]:
    """Writes the plot and the document, and yields their paths relative to the root. Raises NoMarkers.

    Rows of the section on sizing have a page of their own (bench.report.sizing); without others nothing is written.
    """
    if all(key.section == SIZING for key in rows):
        return
    picture = plot.svg(rows)
    text = render(rows)
    if picture:
        PLOT.write_text(picture, "utf-8")
        yield PLOT.relative_to(ROOT)
        text = f"![Rates of every server by load and binding, logarithmic]({PLOT.name})\n\n{text}"
    DOCUMENT.write_text(replace_generated(DOCUMENT.read_text("utf-8"), text, (BEGIN, END)), "utf-8")
    yield DOCUMENT.relative_to(ROOT)


def render(rows: Rows) -> str:
    """Returns the complete report."""
    parts = [run_description(rows), commit_table(rows), target_table(rows), durable_table(rows)]
    parts += [section_table(rows, section) for section in TIMED]
    parts += [start_table(rows), list_table(rows), size_table(rows), steps_table(rows)]
    parts += [memory_table(rows), webhook_table(rows), replicas_table(rows)]
    parts.append(telemetry_table(rows))
    parts.append(ladder.render(rows))
    parts.append(remarks(rows))
    return "\n\n".join(part for part in parts if part) + "\n"


def run_description(rows: Rows) -> str:
    """Describes the machine, the versions and the arguments of each run."""
    lines = []
    for run in rows.run_rows:
        arguments = run["arguments"]
        versions = ", ".join(f"{name} {version}" for name, version in run["versions"].items())
        tools = ", ".join(run["tools"].values()) or "none, so our own client"
        if arguments["own_load"] or arguments["short"]:
            tools = "our own client only"
        if run.get("busy", 0.0) > QUIET_LOAD_AVERAGE:
            lines.append(f"**The machine was not quiet: load average {run['busy']:.1f} before the run.**")
        lines += [
            f"Measured on {run['date']} at {run['commit']}: {run['cpu']}, {run['cores']} cores,",
            f"{run['system']}, {run['disk']}; Python {run['python']}, SQLite {run['sqlite']}, {versions}.",
            f"{arguments['rounds']} interleaved rounds of {arguments['seconds']} s per case. Load tools: {tools}.",
        ]
    return "\n".join(lines)


def commit_table(rows: Rows) -> str:
    """Compares the working tree with another commit, case by case: ratios of rates and of CPU within a round."""
    keys = [key for key in rows if key.server.startswith(PREFIX) and key.section not in (START, DISK)]
    if not keys:
        return ""
    lines: list[tuple[str, ...]] = [("", "rate", "CPU each")]
    for key in keys:
        mine = key._replace(server=DRAGOMAN)
        ratios = rows.ratio(mine, key), rows.ratio(mine, key, "cpu_us")
        lines.append((f"{key.section}, {key.case}", *map(_cell, ratios)))
    return f"### The working tree / {keys[0].server}\n\n{table(lines)}"


def target_table(rows: Rows) -> str:
    """Lists each target that was measured."""
    lines = []
    for target in targets():
        result = target.find(rows)
        if result is not None:
            sign = "at most" if target.lower_is_better else "at least"
            bounds = f"{sign} {target.format(target.bound)}", target.format(target.aim)
            lines.append((target.title, f"{result} {target.unit}".strip(), *bounds, target.verdict(result)))
    if not lines:
        return ""
    head = ("measure (ratios are to the bare transport unless stated)", "result", "required", "aim", "reached")
    return "### Targets\n\n" + table([head, *lines])


def durable_table(rows: Rows) -> str:
    """Lists the blocking sends per second of servers that keep tasks on disk."""
    case = "64 callers"
    bindings = [binding for binding in BINDING_NAMES if Key(f"{binding}-send", case, DRAGOMAN) in rows]
    lines = [("", *(BINDING_NAMES[binding] for binding in bindings))]
    for name in (DRAGOMAN, CEILING, A2A_SDK_SQLITE):
        spreads = [rows.spread(Key(f"{binding}-send", case, name)) for binding in bindings]
        if any(spreads):
            lines.append((name, *map(_cell, spreads)))
    return f"### Durable sends per second and core, {case}\n\n{table(lines)}" if bindings else ""


def section_table(rows: Rows, section: Section) -> str:
    """Lists rates, ratios to the bare transport and to each peer, latencies, and CPU per response of a section."""
    measured = [key for key in rows if key.section == section.name]
    cases = [case for case in map(section.case, section.cases) if any(key.case == case for key in measured)]
    servers = [name for name in section.servers if any(key.server == name for key in measured)]
    if not cases:
        return ""

    def line(title: str, cell: Callable[[Key], object], name: str) -> tuple[str, ...]:
        return (title.format(name), *(_cell(cell(Key(section.name, case, name))) for case in cases))

    lines = [("", *cases), *(line("{}", rows.spread, name) for name in servers)]
    if DRAGOMAN in servers:
        ratio = f"{DRAGOMAN} / {{}}"
        lines += [
            line(ratio, lambda key: rows.ratio(key._replace(server=DRAGOMAN), key), name)
            for name in servers
            if name != DRAGOMAN
        ]
    if section.kind in ("send", "get"):
        lines += [line("{}: p50 / p99 ms", lambda key: _latencies(rows, key), name) for name in servers]
    lines += [line("{}: CPU µs each", lambda key: rows.spread(key, "cpu_us"), name) for name in servers]
    if section.kind == "get":
        lines += [line("{}: response bytes", lambda key: rows.spread(key, "bytes"), name) for name in servers]
    return f"### {section.title}, {section.unit}\n\n{table(lines)}\n\n{load_tools(rows, section, cases, servers)}"


def load_tools(rows: Rows, section: Section, cases: list[str], servers: list[str]) -> str:
    """Names the load tool of most servers, and the servers with other tools."""
    servers_by_tool: dict[str, list[str]] = {}
    for name in servers:
        tools = {row["tool"] for case in cases for (row,) in rows.joined(Key(section.name, case, name))}
        servers_by_tool.setdefault(" and ".join(sorted(tools)), []).append(name)
    main_tool = max(servers_by_tool, key=lambda tool: len(servers_by_tool[tool]))
    others = [f"{tool} for {', '.join(names)}" for tool, names in servers_by_tool.items() if tool != main_tool]
    return f"Load: {'; '.join([main_tool, *others])}."


def start_table(rows: Rows) -> str:
    """Lists the start-up time of each server, and the latency of the disk."""
    starts = {name: rows.spread(Key(START, "to listening", name)) for name in CONTESTANTS}
    lines = [(f"{name}, to listening", f"{spread} s") for name, spread in starts.items() if spread is not None]
    for disk in (key for key in rows if key.section == DISK):
        lines.append((f"{disk.case}, p50", f"{rows.spread(disk)} ms"))
        lines.append((f"{disk.case}, p99", f"{rows.spread(disk, 'p99')} ms"))
    return f"### Start-up and disk\n\n{table([('', ''), *lines])}" if lines else ""


def list_table(rows: Rows) -> str:
    """Lists the latency of ListTasks by store size."""
    keys = [key for key in rows if key.section == LIST]
    if not keys:
        return ""
    sizes = list(dict.fromkeys(key.case.split(" tasks")[0] for key in keys))
    lines = [("ms", *(f"{size} tasks" for size in sizes))]
    for name in CONTESTANTS:
        for filtered in STATES.values():
            for page in (1, 100):
                cases = [f"{size} tasks, page {page}, {filtered}" for size in sizes]
                if any(Key(LIST, case, name) in rows for case in cases):
                    spreads = (rows.spread(Key(LIST, case, name)) for case in cases)
                    lines.append((f"{name}, page {page}, {filtered}", *map(_cell, spreads)))
    return f"### ListTasks over gRPC, pages of 10, p50\n\n{table(lines)}"


def size_table(rows: Rows) -> str:
    """Lists the cost of operations by task size."""
    units = {key: row["unit"] for key in rows if key.section == SIZE for (row,) in rows.joined(key)}
    lines = [(key.case, f"{rows.spread(key)} {unit.replace('us', 'µs')}") for key, unit in units.items()]
    return f"### Cost of task size in our store (synchronous=normal)\n\n{table([('', ''), *lines])}" if lines else ""


def steps_table(rows: Rows) -> str:
    """Lists the cost of durable steps, and compares a step with a commit."""
    units = {key: row["unit"] for key in rows if key.section == STEPS for (row,) in rows.joined(key)}
    lines = [(key.case, f"{rows.spread(key)} {unit}") for key, unit in units.items()]
    step, commit = (Key(STEPS, case, DRAGOMAN) for case in (steps.STEP, steps.COMMIT))
    if step in units and commit in units:
        lines.append(("one step / one commit", str(rows.ratio(step, commit))))
    return f"### Durable steps in our store (synchronous=full)\n\n{table([('', ''), *lines])}" if lines else ""


def memory_table(rows: Rows) -> str:
    """Lists the resident memory of each server."""
    keys = [key for key in rows if key.section == MEMORY]
    if not keys:
        return ""
    cases = list(dict.fromkeys(key.case for key in keys))
    servers = dict.fromkeys(key.server for key in keys)
    lines = [("KB", *cases)]
    lines += [(name, *(_kilobytes(rows, Key(MEMORY, case, name)) for case in cases)) for name in servers]
    return f"### Resident memory, KB each\n\n{table(lines)}"


def webhook_table(rows: Rows) -> str:
    """Compares streams whose task has a webhook with streams without."""
    measured = [key for key in rows if key.section == WEBHOOKS]
    keys = [key for case in CASES for key in measured if key.case == case]
    if not keys:
        return ""
    baseline = Key(WEBHOOKS, NO_WEBHOOK, DRAGOMAN)
    lines: list[tuple[str, ...]] = [("ms", "p50", "p99", "p50 / no webhook", "webhook calls")]
    for key in keys:
        cells = (rows.spread(key), rows.spread(key, "p99"), rows.ratio(key, baseline), rows.spread(key, "calls"))
        lines.append((key.case, *map(_cell, cells)))
    title = f"Streams of {EVENTS} chunks with a webhook, {STREAMS} at a time over REST"
    return f"### {title}\n\n{table(lines)}"


def replicas_table(rows: Rows) -> str:
    """Lists the cost of one send and one chunk for each part of a cluster."""
    tables = [table(lines) for kind in replicas.KINDS if (lines := replicas.lines(kind, rows.spread))]
    return "\n\n".join(["### Servers on one PostgreSQL and one NATS, over gRPC", *tables]) if tables else ""


def telemetry_table(rows: Rows) -> str:
    """Compares sends on observed servers with an unobserved one, and lists the cost of single operations."""
    lines: list[tuple[str, ...]] = [("", "req/s", "ratio to baseline", "server CPU, µs", "ratio to baseline")]
    operations = [key for key in rows if key.section == TELEMETRY]
    for binding in telemetry.BINDINGS:
        baseline = Key(TELEMETRY, telemetry.case(binding, telemetry.BASELINE), DRAGOMAN)
        for observation in telemetry.CASES:
            key = Key(TELEMETRY, telemetry.case(binding, observation), DRAGOMAN)
            if key in rows:
                operations.remove(key)
                rate, cost = rows.ratio(key, baseline), rows.ratio(key, baseline, "cpu")
                lines.append((key.case, *map(_cell, (rows.spread(key), rate, rows.spread(key, "cpu"), cost))))
    tables = [table(lines)] if lines[1:] else []
    if operations:
        tables.append(table([("", "CPU, µs"), *((key.case, _cell(rows.spread(key))) for key in operations)]))
    title = f"### Cost of telemetry for a blocking send, {telemetry.CALLERS} callers"
    return "\n\n".join([title, *tables]) if tables else ""


def remarks(rows: Rows) -> str:
    """Lists rows with a saturated load process or a busy core, and failed measurements."""
    lines = []
    for key in rows:
        load, others = rows.spread(key, "load"), rows.spread(key, "others")
        if key.section == SIZING:  # its own report has verdicts
            continue
        where = f"{key.section}, {key.case}, {key.server}"
        if load is not None and load.median > LOAD_BOUND_SHARE:
            lines.append(f"- {where}: the load used {load.median:.0%} of its core and may be the bottleneck.")
        if others is not None and others.median > DISTURBED_SHARE:
            lines.append(f"- {where}: other servers used {others.median:.0%} of the core meanwhile.")
    lines += [
        f"- {row['section']}, {row['case']}, {row['server']}, round {row['round'] + 1}: {row['error']}"
        for row in rows.errors
    ]
    return "### Remarks\n\n" + "\n".join(lines) if lines else ""


def _cell(value: object) -> str:
    return "" if value is None else str(value)


def _latencies(rows: Rows, key: Key) -> str:
    p50, p99 = rows.spread(key, "p50"), rows.spread(key, "p99")
    return "" if p50 is None or p99 is None else f"{format_number(p50.median)} / {format_number(p99.median)}"


def _kilobytes(rows: Rows, key: Key) -> str:
    values = [row["value"] / 1e3 for (row,) in rows.joined(key)]
    return " / ".join(format_number(value) for value in sorted(values))
