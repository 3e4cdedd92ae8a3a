"""The table of docs/reference/clients.md, from the `op` lines that foreign clients print."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

OPERATIONS = (
    "send", "non-blocking send", "stream", "get", "list", "cancel", "subscribe", "follow-up", "push configs", "push",
    "card", "errors", "refusals",
)  # fmt: skip

HEAD = """\
# Tested clients

`make foreign` runs each of these published clients against a real server, each in its own environment, and writes this
table from their output. *yes*: all checks of the operation passed; *FAILED*: a check failed; —: the client lacks the
operation. *push configs* are the client's operations on webhooks; *push*: a receiver got a notification that the
client's own types can read. *errors*: the client raised the right exception. *refusals* come from a second run, against
a server whose cards declare no capabilities (`--no-push`, an agent with `streaming=False`, no extended card) and an
agent that requires an extension: requests for an undeclared capability get the error of the specification.
*non-blocking send*: fasta2a also against a server with `--blocking-default return`, 0.2 only there. The client
classes of fasta2a have methods for sending, streaming and getting only, and Google's client has none for a list of
tasks; other requests were built with the package's types and sent through the client's connection. [The checks and
findings](../../tests/foreign/README.md)
"""


class Record(NamedTuple):
    """One operation that one check covered."""

    client: str
    transport: str
    operation: str
    ok: bool


def read(line: str) -> Record | None:
    """Parses a line of output; None for other lines. Raises ValueError for an invalid record."""
    word, *fields = line.split("\t")
    if word != "op":
        return None
    client, transport, operation, result = fields
    if operation not in OPERATIONS or result not in ("ok", "failed"):
        raise ValueError(f"no record of an operation: {line!r}")
    return Record(client, transport, operation, result == "ok")


def markdown(records: Iterable[Record]) -> str:
    """Returns the document, with rows in order of first appearance."""
    rows: dict[tuple[str, str], dict[str, bool]] = {}
    for client, transport, operation, ok in records:
        cells = rows.setdefault((client, transport), {})
        cells[operation] = cells.get(operation, True) and ok
    lines = [("client", "transport", *OPERATIONS), ("---",) * (len(OPERATIONS) + 2)]
    lines += [(*row, *(_cell(cells, operation) for operation in OPERATIONS)) for row, cells in rows.items()]
    return HEAD + "\n" + "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _cell(cells: dict[str, bool], operation: str) -> str:
    if operation not in cells:
        return "—"
    return "yes" if cells[operation] else "FAILED"
