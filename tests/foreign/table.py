"""The tables of docs/reference/clients.md, from the `op` lines that foreign clients print."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

OPERATIONS = (
    "send", "non-blocking send", "stream", "get", "list", "cancel", "subscribe", "follow-up", "push configs", "push",
    "card", "errors", "refusals",
)  # fmt: skip

MCP_OPERATIONS = (
    "list", "call", "progress", "handle", "input", "tools", "cancel", "errors", "restart", "listen",
)  # fmt: skip
MCP = "MCP "
"""How transports of MCP clients begin; the rest is the version."""

HEAD = """\
# Tested clients

`make foreign-all` runs each of these published clients against a real server, each in its own environment, and writes
this table from their output. `a2a-go` and `a2a-protocol-sdk` (Rust) are built with their own toolchains; the module
proxy has `a2a-go` up to 0.3.15 and 2.4.0. a2a-go 0.3 has no HTTP+JSON, and the gRPC of `a2a-protocol-sdk` 0.3 is a
service of its own, with JSON in a bytes field, so that only its own servers answer it. *yes*: all checks of the
operation passed; *FAILED*: a check failed; —: the client lacks the operation. *push configs* are the client's
operations on webhooks; *push*: a receiver got a notification that the client's own types can read. *errors*: the
client raised the right exception. *refusals* come from a second run, against a server whose cards declare no
capabilities (`--no-push`, an agent with `streaming=False`, no extended card) and an agent that requires an extension:
requests for an undeclared capability get the error of the specification. *non-blocking send*: fasta2a also against a
server with `--blocking-default return`, 0.2 only there. The client classes of fasta2a have methods for sending,
streaming and getting only, and Google's client has none for a list of tasks; other requests were built with the
package's types and sent through the client's connection. Of the Java SDK, Maven Central served 0.3.3.Final and
1.0.0.Alpha3 here, a draft of 1.0 whose webhooks and gRPC service have another form; the final versions of 1.0 have the
group `org.a2aproject.sdk`, which was not served.

The same run has agents of other SDKs as [upstream agents](../how-to/upstream.md), behind a Dragoman and called
by its client: of a2a-sdk 0.3.26 and 1.3.0, of a2a-go 0.3.15 and 2.4.0, and of the reference server of a2a-java
0.3.3.Final over JSON-RPC and HTTP+JSON; of that, neither a gRPC module of 0.3 nor any version of 1.0 was served. An
agent of `a2a-protocol-sdk` 0.3 (Rust) cannot be one: its server requires fields in each message that 1.0 does not have,
and nothing in its card tells it from a server of 1.0. [The checks and findings](../../tests/foreign/README.md)
"""

MCP_HEAD = """\
## MCP clients

Each of these calls a function, a worker, an executor and an upstream agent, and a server that is killed (`kill -9`) and
started again. *handle*: a call returns a task ([tasks
extension](https://github.com/modelcontextprotocol/ext-tasks)), which is read, answered and canceled by its handle;
versions before 2026-07-28 have none. *input*: a question of an agent becomes a form (elicitation), which is answered or
declined. *tools*: clients without either use `get_task`, `answer_task` and `cancel_task`. *cancel*: the client gives a
call up, or cancels a task. *restart*: after the server's death, handles and questions are still good, and a stream of
2025-11-25 goes on where it broke. *listen*: changes of tasks and of the list of tools are announced. `mcp` knows tasks
by an extension in the checks, `@modelcontextprotocol/client` by `@modelcontextprotocol/ext-tasks` 0.2.2.
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
    known = MCP_OPERATIONS if transport.startswith(MCP) else OPERATIONS
    if operation not in known or result not in ("ok", "failed"):
        raise ValueError(f"no record of an operation: {line!r}")
    return Record(client, transport, operation, result == "ok")


def markdown(records: Iterable[Record]) -> str:
    """Returns the document, with rows in order of first appearance."""
    of_a2a: list[Record] = []
    of_mcp: list[Record] = []
    for record in records:
        (of_mcp if record.transport.startswith(MCP) else of_a2a).append(record)
    return f"{HEAD}\n{_table(of_a2a, 'transport', OPERATIONS)}\n{MCP_HEAD}\n{_table(of_mcp, 'version', MCP_OPERATIONS)}"


def _table(records: Iterable[Record], column: str, operations: Sequence[str]) -> str:
    rows: dict[tuple[str, str], dict[str, bool]] = {}
    for client, transport, operation, ok in records:
        cells = rows.setdefault((client, transport.removeprefix(MCP)), {})
        cells[operation] = cells.get(operation, True) and ok
    lines = [("client", column, *operations), ("---",) * (len(operations) + 2)]
    lines += [(*row, *(_cell(cells, operation) for operation in operations)) for row, cells in rows.items()]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _cell(cells: dict[str, bool], operation: str) -> str:
    if operation not in cells:
        return "—"
    return "yes" if cells[operation] else "FAILED"
