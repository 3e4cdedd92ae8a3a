"""Writes docs/reference/scorecard.md, the measured results of a release: python -m tools.scorecard [--to PATH]

It measures nothing: figures come from the pages that `make foreign` and `make bench` write, from
docs/reference/limits.md, which a test compares with the code, and from the reports of chaos runs in `.chaos/`. Without
a report, the page's own entry stays; runs that never were are listed.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
CHAOS: Final = ".chaos"
"""Folder with the latest report of each kind of chaos run."""

PAGE: Final = Path("docs") / "reference" / "scorecard.md"
RUNS: Final = {False: "one server on SQLite", True: "three servers, two workers, PostgreSQL and NATS"}
"""Kinds of chaos runs: with several servers, or one."""

HEAD: Final = """# Scorecard of {version}

Measured results of this release, for those who change Dragoman. `make scorecard` collects them from the linked pages
and from the reports of chaos runs; it measures nothing itself. *Required* and *aim* are our own targets for this
machine; [benchmarks](../explanation/performance.md) compares with other servers.
"""

Row = Sequence[str]


class NoTable(Exception):
    """A page lacks a required table. The text names it."""


def tables(page: str) -> Iterator[tuple[str, list[Row]]]:
    """Yields the Markdown tables of a page: the heading above, and the rows including the header row."""
    heading, rows = "", list[Row]()
    for line in [*page.splitlines(), ""]:
        if line.startswith("|"):
            cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
            if not all(re.fullmatch(r":?-+:?", cell) for cell in cells):
                rows.append(cells)
        elif rows:
            yield heading, rows
            rows = []
        if line.startswith("#"):
            heading = line.lstrip("# ")


def table(page: str, heading: str) -> list[Row]:
    """Returns the first table under a heading. Raises NoTable."""
    for above, rows in tables(page):
        if above == heading:
            return rows
    raise NoTable(f'no table under "{heading}"')


def markdown(rows: Sequence[Row]) -> str:
    head, *rest = (f"| {' | '.join(row)} |" for row in rows)
    return "\n".join([head, "|---" * len(rows[0]) + "|", *rest])


# The parts -------------------------------------------------------------------------------------------------------


def clients(page: str) -> str:
    """Returns the section on published clients: their transports, and how many operations succeeded."""
    head, *rows = next(tables(page))[1]
    found: dict[str, tuple[list[str], list[str]]] = {}
    for client, transport, *cells in rows:
        ways, seen = found.setdefault(client, ([], []))
        ways.append(transport)
        seen += [cell for cell in cells if cell != "—"]
    shown = [("client", "by", "operations done")]
    for client, (ways, seen) in found.items():
        shown.append((client, ", ".join(ways), f"{seen.count('yes')} of {len(seen)}"))
    all_of_them = [cell for _, seen in found.values() for cell in seen]
    failed = [
        f"{row[0]} by {row[1]}: {name}" for row in rows for name, cell in zip(head[2:], row[2:], strict=True)
        if cell not in ("yes", "—")
    ]  # fmt: skip
    text = (
        f"{len(found)} published clients, {len(rows)} ways to call: {all_of_them.count('yes')} of {len(all_of_them)} "
        f"operations done ([each of them](clients.md)). " + (f"Failed: {'; '.join(failed)}." if failed else "")
    )
    return f"## Dialects and clients\n\n{text.rstrip()}\n\n{markdown(shown)}\n"


def earlier_run(page: str, where: str) -> str:
    """Returns the entry of a kind of chaos run in an earlier page, or an empty text."""
    found = re.search(rf"^- {re.escape(where)}, .*\n(?:  .*\n)*", page, re.MULTILINE)
    return found[0].rstrip() if found else ""


def chaos(reports: Sequence[Mapping[str, Any]], earlier: str = "") -> str:
    """Returns the section on chaos runs: faults, and broken promises.

    earlier: the page so far. Its entry stays for a kind of run that has no report, as in a clone.
    """
    lines = ["## Chaos runs", ""]
    for report in reports:
        problems = report["problems"]
        counts = ", ".join(f"{number} {name}" for name, number in {**report["faults"], **report["counts"]}.items())
        where = RUNS[report["several"]]
        verdict = f"**{problems} promises broken**" if problems else "no promise broken"
        at = f" at {report['commit']}" if report["commit"] else ""
        lines += [
            f"- {where}, {report['seconds']} s on {report['date']}{at}, seed {report['seed']}: {verdict}.",
            f"  {counts}",
        ]
    missing = {False: "make chaos", True: "make chaos-cluster"}
    for report in reports:
        missing.pop(report["several"], None)
    for several, command in missing.items():
        lines.append(earlier_run(earlier, RUNS[several]) or f"- `{command}` was not run for this page.")
    return "\n".join(lines) + "\n"


def bench(page: str) -> str:
    """Returns the section on speed, compared with the bare transports and other servers."""
    begin = page.index("<!-- make bench: begin -->")
    results = page[begin:]
    heading = "Targets"
    measured = re.search(r"^Measured on .*?(?=^$|\n\n)", results, re.MULTILINE | re.DOTALL)
    quiet = re.search(r"^\*\*The machine was not quiet.*\*\*$", results, re.MULTILINE)
    if measured is None:
        raise NoTable('the benchmark has no line "Measured on ..."')
    text = "\n".join(filter(None, (quiet and quiet[0], measured[0].strip())))
    return (
        f"## Speed\n\n{text}\n\n{markdown(table(results, heading))}\n\n[All results](../explanation/performance.md)\n"
    )


def limits(page: str) -> str:
    """Returns the section on limits: their number, and those per principal."""
    number = sum(len(rows) - 1 for _, rows in tables(page))
    heading = "Per principal"
    return f"## Limits\n\n{number} are [on one page](limits.md). {heading}:\n\n{markdown(table(page, heading))}\n"


def reports(folder: Path) -> list[dict[str, Any]]:
    """Returns the reports of chaos runs in a folder."""
    return [json.loads(file.read_text("utf-8")) for file in sorted(folder.glob("*.json"))]


def write(root: Path) -> str:
    """Returns the text of the page. Raises NoTable, OSError."""
    docs, page = root / "docs", root / PAGE
    version = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    parts = (
        HEAD.format(version=version),
        clients((docs / "reference" / "clients.md").read_text("utf-8")),
        chaos(reports(root / CHAOS), page.read_text("utf-8") if page.exists() else ""),
        bench((docs / "explanation" / "performance.md").read_text("utf-8")),
        limits((docs / "reference" / "limits.md").read_text("utf-8")),
    )
    return "\n".join(parts)


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.scorecard", description="Write docs/reference/scorecard.md.")
    parser.add_argument("--to", type=Path, default=ROOT / PAGE, metavar="PATH")
    namespace = parser.parse_args(words)
    try:
        page = write(ROOT)
    except (NoTable, OSError) as error:
        print(f"scorecard: {error}", file=sys.stderr)
        return 1
    namespace.to.write_text(page, "utf-8")
    print(f"scorecard: {namespace.to}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
