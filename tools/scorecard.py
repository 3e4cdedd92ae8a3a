"""Writes docs/reference/scorecard.md, the measured results of a release: python -m tools.scorecard [--to PATH]

It measures nothing and makes nothing up: figures come from what `make foreign` and `make bench` wrote into their pages,
from docs/reference/limits.md, which a test holds against the code, and from what chaos runs left under `.chaos/`. It
says what was not run.
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
"""The folder of the last report of each kind of chaos run, in the project's."""

HEAD: Final = """# Scorecard of {version}

What this release was seen to do. `make scorecard` writes this page from the pages that it names and from the reports of
chaos runs; it measures nothing itself.
"""

Row = Sequence[str]


class NoTable(Exception):
    """A page has not the table that is looked for. The text says which."""


def tables(page: str) -> Iterator[tuple[str, list[Row]]]:
    """The tables of a page in Markdown: the heading above each, and its rows, the first with the names of columns."""
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
    """The first table under a heading. Raises NoTable."""
    for above, rows in tables(page):
        if above == heading:
            return rows
    raise NoTable(f'no table under "{heading}"')


def markdown(rows: Sequence[Row]) -> str:
    head, *rest = (f"| {' | '.join(row)} |" for row in rows)
    return "\n".join([head, "|---" * len(rows[0]) + "|", *rest])


# The parts -------------------------------------------------------------------------------------------------------


def clients(page: str) -> str:
    """Published clients, each with its ways here, and how many of the operations that it has it did."""
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


def chaos(reports: Sequence[Mapping[str, Any]]) -> str:
    """What was thrown at the server, and whether a promise was broken."""
    lines = ["## Killed, frozen, restarted", ""]
    for values in reports:
        count, wrong = values["counts"], values["problems"]
        where = "three servers, two workers, PostgreSQL and NATS" if values["several"] else "one server on SQLite"
        verdict = f"**{wrong} promises broken**" if wrong else "no promise broken"
        at = f" at {values['commit']}" if values["commit"] else ""
        lines += [
            f"- {where}, {values['seconds']} s on {values['date']}{at}, seed {values['seed']}: {verdict}.",
            f"  {count}",
        ]
    missing = {False: "make chaos", True: "make chaos-cluster"}
    for values in reports:
        missing.pop(values["several"], None)
    lines += [f"- `{command}` was not run for this page." for command in missing.values()]
    return "\n".join(lines) + "\n"


def bench(page: str) -> str:
    """Results compared with the bare transports and other servers."""
    begin = page.index("<!-- make bench: begin -->")
    results = page[begin:]
    heading = "Targets"
    measured = re.search(r"^Measured on .*?(?=^$|\n\n)", results, re.MULTILINE | re.DOTALL)
    quiet = re.search(r"^\*\*The machine was not quiet.*\*\*$", results, re.MULTILINE)
    if measured is None:
        raise NoTable("nothing says when it was measured")
    text = "\n".join(filter(None, (quiet and quiet[0], measured[0].strip())))
    return f"## Speed\n\n{text}\n\n{markdown(table(results, heading))}\n\n[All of it](../explanation/performance.md)\n"


def limits(page: str) -> str:
    """How many limits there are, and those of one principal."""
    number = sum(len(rows) - 1 for _, rows in tables(page))
    heading = "Per principal"
    return f"## Limits\n\n{number} are [on one page](limits.md). {heading}:\n\n{markdown(table(page, heading))}\n"


def reports(folder: Path) -> list[dict[str, Any]]:
    """What chaos runs left there."""
    return [json.loads(file.read_text("utf-8")) for file in sorted(folder.glob("*.json"))]


def write(root: Path) -> str:
    """The page. Raises NoTable, OSError."""
    docs = root / "docs"
    version = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    parts = (
        HEAD.format(version=version),
        clients((docs / "reference" / "clients.md").read_text("utf-8")),
        chaos(reports(root / CHAOS)),
        bench((docs / "explanation" / "performance.md").read_text("utf-8")),
        limits((docs / "reference" / "limits.md").read_text("utf-8")),
    )
    return "\n".join(parts)


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.scorecard", description="Write docs/reference/scorecard.md.")
    parser.add_argument("--to", type=Path, default=ROOT / "docs" / "reference" / "scorecard.md", metavar="PATH")
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
