"""`audit export`, `audit verify`: the audit log."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from contextlib import aclosing
from pathlib import Path
from typing import Annotated, Final

from dragoman.cli import ExitCode, print_error
from dragoman.cli.admin import open_admin_client
from dragoman.cli.commands import Command, CommandGroup, argument, option
from dragoman.cli.options import ServerTarget, StoreUrl
from dragoman.cli.output import ConsoleOutput
from dragoman.core.audit import AuditChainBroken, AuditChainVerifier, parse_audit_line
from dragoman_pb.dragoman.ops import v1 as ops

_AUDIT_HELP = """Export and verify the audit log.

The log records who did what to which task, rejected requests, operator actions and erasures. It is append-only; each
entry contains the hash of the previous one.
"""


async def export(
    after: Annotated[int, option("--after", "N", "Only entries after this one, to continue an export.", min=0)] = 0,
    store: StoreUrl = "",
    *,
    target: ServerTarget,
) -> None:
    """Write the audit log as JSON lines on stdout. The export itself is recorded.

    **Examples**

    `dragoman audit export >> audit.jsonl`

    `dragoman audit export --after $(tail -n 1 audit.jsonl | jq .number) >> audit.jsonl`
    """
    request, out = ops.ExportAuditRequest(after=after), ConsoleOutput()
    async with open_admin_client(target, store) as client, aclosing(client.export_audit(request)) as responses:
        async for response in responses:
            for line in response.lines:
                out.write(f"{line}\n")


def verify(file: Annotated[Path, argument("FILE", "A file written by `audit export`; - is stdin.")]) -> ExitCode:
    """Verify that no entry of an exported log was changed, removed or inserted.

    Entries missing at the end cannot be detected: compare the last hash with one stored elsewhere.

    **Example**: `dragoman audit export | dragoman audit verify -`

    **Exit codes**: 0 the log is intact; 1 it is not; 2 the file cannot be read.
    """
    if str(file) == "-":
        return _verify_lines(sys.stdin)
    try:
        with file.open(encoding="utf-8") as lines:
            return _verify_lines(lines)
    except (OSError, UnicodeDecodeError) as error:
        return print_error(f"{file}: {error}", ExitCode.USAGE)


def _verify_lines(lines: Iterable[str]) -> ExitCode:
    chain, first = AuditChainVerifier(), 0
    for count, line in enumerate(lines, 1):
        try:
            entry = parse_audit_line(line)
            chain.verify(entry)
        except AuditChainBroken as error:
            return print_error(f"line {count}: {error}", ExitCode.FAILED)
        except ValueError as error:
            return print_error(f"line {count}: {error}", ExitCode.USAGE)
        first = first or entry.number
    if not first:
        return print_error("the log has no entries", ExitCode.USAGE)
    print(f"entries {first} to {chain.number} are intact; principals erased in {chain.erased}")
    print(f"hash of the last entry: {chain.hash.hex()}")
    return ExitCode.OK


COMMANDS: Final = {"audit": CommandGroup(_AUDIT_HELP, {"export": Command(export), "verify": Command(verify)})}
