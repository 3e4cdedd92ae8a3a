"""What a run says: tables in Markdown that can be read on a terminal too."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from bench import replicas, watched
from bench.answers import EVENTS
from bench.goals import goals
from bench.hooked import CASES, NONE, STREAMS
from bench.rows import Key, Rows
from bench.sections import DISK, HOOKED, LIST, MEMORY, SIZE, START, TIMED, WATCHED, Section
from bench.servers import CONTESTANTS, OURS
from bench.spread import figure
from bench.stored import STATES

BOUND: Final = 0.95
"""Share of its core from which on a load may be what is slow."""

BUSY: Final = 0.5
"""Load average before a run, above which it is no run for comparing."""

DISTURBED: Final = 0.1
"""Share of the server's core that others used meanwhile, from which on a row is named."""


def text(rows: Rows) -> str:
    """Everything, for the terminal and the document."""
    parts = [described(rows), goal_table(rows)]
    parts += [section_table(rows, section) for section in TIMED]
    parts += [start_table(rows), list_table(rows), size_table(rows), memory_table(rows), hooked_table(rows)]
    parts.append(replicas_table(rows))
    parts.append(watched_table(rows))
    parts.append(remarks(rows))
    return "\n\n".join(part for part in parts if part) + "\n"


def described(rows: Rows) -> str:
    """What it was measured on and with."""
    lines = []
    for about in rows.about:
        value = about["arguments"]
        versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
        tools = ", ".join(about["tools"].values()) or "none, so our own client"
        if value["own_load"] or value["short"]:
            tools = "our own client only"
        if about.get("busy", 0.0) > BUSY:
            lines.append(f"**The machine was not quiet: load average {about['busy']:.1f} before the run.**")
        lines += [
            f"Measured on {about['date']} at {about['commit']}: {about['cpu']}, {about['cores']} cores,",
            f"{about['system']}, {about['disk']}; Python {about['python']}, SQLite {about['sqlite']}, {versions}.",
            f"{value['rounds']} interleaved rounds of {value['seconds']} s a cell. Load tools: {tools}.",
        ]
    return "\n".join(lines)


def goal_table(rows: Rows) -> str:
    """Each goal that was measured."""
    lines = []
    for goal in goals():
        found = goal.find(rows)
        if found is not None:
            sign = "at most" if goal.most else "at least"
            value = f"{found} {goal.unit}".strip()
            bounds = f"{sign} {goal.spelled(goal.bound)}", goal.spelled(goal.aim)
            lines.append((goal.title, value, *bounds, goal.verdict(found)))
    if not lines:
        return ""
    head = ("measure (a ratio is of the bare transport, unless said)", "found", "must", "aim", "reached")
    return "### What has to be reached\n\n" + table([head, *lines])


def section_table(rows: Rows, section: Section) -> str:
    """One section: rates, ratios to the limit and to each peer, times, and what one costs the server."""
    measured = [key for key in rows if key.section == section.name]
    cases = [case for case in map(section.case, section.cases) if any(key.case == case for key in measured)]
    servers = [name for name in section.servers if any(key.server == name for key in measured)]
    if not cases:
        return ""

    def line(title: str, cell: Callable[[Key], object], name: str) -> tuple[str, ...]:
        return (title.format(name), *(_cell(cell(Key(section.name, case, name))) for case in cases))

    lines = [("", *cases), *(line("{}", rows.spread, name) for name in servers)]
    if OURS in servers:
        ratio = f"{OURS} / {{}}"
        lines += [line(ratio, lambda key: rows.ratio(key._replace(server=OURS), key), n) for n in servers if n != OURS]
    if section.kind in ("send", "get"):
        lines += [line("{}: p50 / p99 ms", lambda key: _times(rows, key), name) for name in servers]
    lines += [line("{}: CPU µs each", lambda key: rows.spread(key, "cpu_us"), name) for name in servers]
    if section.kind == "get":
        lines += [line("{}: bytes of an answer", lambda key: rows.spread(key, "bytes"), name) for name in servers]
    return f"### {section.title}, {section.unit}\n\n{table(lines)}\n\n{load_of(rows, section, cases, servers)}"


def load_of(rows: Rows, section: Section, cases: list[str], servers: list[str]) -> str:
    """Which program was the load, and of whom it was another one."""
    used: dict[str, list[str]] = {}
    for name in servers:
        found = {row["tool"] for case in cases for (row,) in rows.together(Key(section.name, case, name))}
        used.setdefault(" and ".join(sorted(found)), []).append(name)
    most = max(used, key=lambda tool: len(used[tool]))
    rest = [f"{tool} for {', '.join(names)}" for tool, names in used.items() if tool != most]
    return f"Load: {'; '.join([most, *rest])}."


def start_table(rows: Rows) -> str:
    """Start-up of each server, and the disk."""
    starts = {name: rows.spread(Key(START, "to listening", name)) for name in CONTESTANTS}
    lines = [(f"{name}, to listening", f"{found} s") for name, found in starts.items() if found is not None]
    for disk in (key for key in rows if key.section == DISK):
        lines.append((f"{disk.case}, p50", f"{rows.spread(disk)} ms"))
        lines.append((f"{disk.case}, p99", f"{rows.spread(disk, 'p99')} ms"))
    return f"### Start-up, and the disk\n\n{table([('', ''), *lines])}" if lines else ""


def list_table(rows: Rows) -> str:
    """ListTasks by size of the store."""
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
                    found = (rows.spread(Key(LIST, case, name)) for case in cases)
                    lines.append((f"{name}, page {page}, {filtered}", *map(_cell, found)))
    return f"### ListTasks over gRPC, pages of 10, p50\n\n{table(lines)}"


def size_table(rows: Rows) -> str:
    """What size costs inside our store."""
    units = {key: row["unit"] for key in rows if key.section == SIZE for (row,) in rows.together(key)}
    lines = [(key.case, f"{rows.spread(key)} {unit.replace('us', 'µs')}") for key, unit in units.items()]
    return f"### What size costs in our store (synchronous=normal)\n\n{table([('', ''), *lines])}" if lines else ""


def memory_table(rows: Rows) -> str:
    """Resident memory."""
    keys = [key for key in rows if key.section == MEMORY]
    if not keys:
        return ""
    cases = list(dict.fromkeys(key.case for key in keys))
    servers = dict.fromkeys(key.server for key in keys)
    lines = [("KB", *cases)]
    lines += [(name, *(_kilobytes(rows, Key(MEMORY, case, name)) for case in cases)) for name in servers]
    return f"### Resident memory, KB each\n\n{table(lines)}"


def hooked_table(rows: Rows) -> str:
    """Streams whose task has a webhook, beside those whose task has none."""
    measured = [key for key in rows if key.section == HOOKED]
    keys = [key for case in CASES for key in measured if key.case == case]
    if not keys:
        return ""
    none = Key(HOOKED, NONE, OURS)
    lines: list[tuple[str, ...]] = [("ms", "p50", "p99", "p50 against none", "calls")]
    for key in keys:
        found = (rows.spread(key), rows.spread(key, "p99"), rows.ratio(key, none), rows.spread(key, "letters"))
        lines.append((key.case, *map(_cell, found)))
    title = f"Streams of {EVENTS} chunks with a webhook, {STREAMS} at a time over REST"
    return f"### {title}\n\n{table(lines)}"


def replicas_table(rows: Rows) -> str:
    """What one send and one chunk cost each part of a cluster."""
    found = [replicas.lines(kind, rows.spread) for kind in replicas.KINDS]
    tables = "\n\n".join(table(lines) for lines in found if lines)
    return f"### Servers on one PostgreSQL and one NATS, over gRPC\n\n{tables}" if tables else ""


def watched_table(rows: Rows) -> str:
    """Sends on servers that are looked at, beside those on one that is not; and what the pieces of that cost."""
    lines: list[tuple[str, ...]] = [("", "req/s", "against nobody", "server's CPU, µs", "against nobody")]
    small = [key for key in rows if key.section == WATCHED]
    for binding in watched.BINDINGS:
        none = Key(WATCHED, watched.case(binding, watched.OFF), OURS)
        for looked in watched.CASES:
            key = Key(WATCHED, watched.case(binding, looked), OURS)
            if key in rows:
                small.remove(key)
                rate, cost = rows.ratio(key, none), rows.ratio(key, none, "cpu")
                lines.append((key.case, *map(_cell, (rows.spread(key), rate, rows.spread(key, "cpu"), cost))))
    found = [table(lines)] if lines[1:] else []
    found += [table([("", "CPU, µs"), *((key.case, _cell(rows.spread(key))) for key in small)])] if small else []
    return (
        "\n\n".join([f"### What telemetry costs a blocking send, {watched.CALLERS} callers", *found]) if found else ""
    )


def remarks(rows: Rows) -> str:
    """What a reader has to know of single rows: a load at its limit, a busy neighbour, what failed."""
    found = []
    for key in rows:
        load, others = rows.spread(key, "load"), rows.spread(key, "others")
        where = f"{key.section}, {key.case}, {key.server}"
        if load is not None and load.median > BOUND:
            found.append(f"- {where}: the load used {load.median:.0%} of its core, so it may be what is slow.")
        if others is not None and others.median > DISTURBED:
            found.append(f"- {where}: other servers used {others.median:.0%} of the core meanwhile.")
    found += [
        f"- {row['section']}, {row['case']}, {row['server']}, round {row['round'] + 1}: {row['error']}"
        for row in rows.errors
    ]
    return "### Remarks\n\n" + "\n".join(found) if found else ""


def table(lines: Iterable[tuple[str, ...]]) -> str:
    """A Markdown table whose columns are aligned."""
    rows = [list(line) for line in lines]
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    rule = ["-" * width for width in widths]
    return "\n".join(
        f"| {' | '.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))} |"
        for row in [rows[0], rule, *rows[1:]]
    )


def _cell(found: object) -> str:
    return "" if found is None else str(found)


def _times(rows: Rows, key: Key) -> str:
    p50, p99 = rows.spread(key, "p50"), rows.spread(key, "p99")
    return "" if p50 is None or p99 is None else f"{figure(p50.median)} / {figure(p99.median)}"


def _kilobytes(rows: Rows, key: Key) -> str:
    found = [row["value"] / 1e3 for (row,) in rows.together(key)]
    return "" if not found else " / ".join(figure(value) for value in sorted(found))
