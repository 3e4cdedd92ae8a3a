"""The table of docs/reference/clients.md: what each foreign client did in a run, from the `op` lines they print."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

OPERATIONS = (
    "send", "non-blocking send", "stream", "get", "list", "cancel", "subscribe", "follow-up", "push configs", "push",
    "card", "errors", "refusals",
)  # fmt: skip

HEAD = """\
# Clients that were tried

`make foreign` runs each of these published clients, in an environment of its own, against a real server, and writes
this table from what they print. *yes*: every check of the operation passed; *FAILED*: one did not; —: the client has
no such operation. *push configs* are the operations on webhooks that the client has; *push* means that a receiver was
told in words that the client's own types read. *errors* means that the client raised the exception it has for what was
wrong. *refusals* come from a second run, against a server whose cards declare nothing (`--no-push`, an agent with
`streaming=False`, no extended card) and an agent that requires an extension: each capability that is asked for all the
same is refused with the error that the specification has for it. The client classes of fasta2a have methods for
sending, streaming and getting only; what the package has merely types for was sent with these types through the
client's connection. [How the checks look, and what was found out](../../tests/foreign/README.md)
"""


class Record(NamedTuple):
    """One operation that one check covered."""

    client: str
    transport: str
    operation: str
    ok: bool


def read(line: str) -> Record | None:
    """The record of a line of output, if it is one. Raises ValueError when it is a wrong one."""
    word, *fields = line.split("\t")
    if word != "op":
        return None
    client, transport, operation, result = fields
    if operation not in OPERATIONS or result not in ("ok", "failed"):
        raise ValueError(f"no record of an operation: {line!r}")
    return Record(client, transport, operation, result == "ok")


def markdown(records: Iterable[Record]) -> str:
    """The document. Rows are in the order in which they first appear."""
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
