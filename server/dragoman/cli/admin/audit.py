"""`audit export`, `audit verify`: the audit log, and how it is said.

Only the options are here. What the commands do is in `auditing.py`, imported when one of them runs.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from contextlib import aclosing
from pathlib import Path
from typing import Annotated

import typer

from dragoman.cli.admin.maintenance import EXIT_FAILED, EXIT_OK, EXIT_USAGE, AdminTarget, open_admin_client
from dragoman.cli.tasks import DEFAULT_GRPC_ADDRESS, Ca, Grpc, Token
from dragoman.core.audit import AuditChainBroken, AuditChainVerifier, parse_audit_line
from dragoman_pb.dragoman.ops.v1 import ops_pb2 as ops

_AUDIT_HELP = """The audit log: who did what to which task, who was refused, what operators did, what was erased.

Entries are added and never changed; each is bound to the one before it by a hash.
"""

_audit = typer.Typer(name="audit", help=_AUDIT_HELP, no_args_is_help=True, rich_markup_mode="markdown")


def register(cli: typer.Typer) -> None:
    """Adds the commands."""
    _audit.command("export")(export)
    _audit.command("verify")(verify)
    cli.add_typer(_audit)


def export(
    after: Annotated[
        int, typer.Option("--after", metavar="N", min=0, help="Only entries after this one; to go on with an export.")
    ] = 0,
    store: Annotated[
        str,
        typer.Option(
            "--store",
            metavar="URL",
            help="Of this store, without a server: sqlite:///PATH (no server may hold it), postgresql://...",
        ),
    ] = "",
    grpc: Grpc = DEFAULT_GRPC_ADDRESS,
    ca: Ca = None,
    token: Token = "",
) -> None:
    """Write out the audit log, as lines of JSON on stdout. Asking for it is itself noted.

    **Examples**

    `dragoman audit export >> audit.jsonl`

    `dragoman audit export --after $(tail -n 1 audit.jsonl | jq .number) >> audit.jsonl`
    """
    from dragoman.cli.admin import maintenance

    maintenance.run_admin_command(grpc, print_audit_log(maintenance.AdminTarget(grpc, store, token), after))


def verify(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What `export` wrote; - is stdin.", show_default=False)],
) -> None:
    """Check that an exported log is whole: nothing changed, left out, or put in between.

    Its end cannot be checked so: compare the last hash with one kept elsewhere. Exit code 1 when it is not whole.

    **Example**: `dragoman audit export | dragoman audit verify -`
    """
    pass

    raise typer.Exit(verify_file(file))


async def print_audit_log(target: AdminTarget, after: int) -> int:
    """Prints the log."""
    asked = ops.ExportAuditRequest(after=after)
    async with open_admin_client(target) as open_operations, aclosing(open_operations.export_audit(asked)) as answers:
        async for answer in answers:
            for line in answer.lines:
                print(line)
    return EXIT_OK


def verify_file(file: Path) -> int:
    """Reads an export, and says what it found; the exit code."""
    if str(file) == "-":
        return _verify_lines(sys.stdin)
    try:
        with file.open(encoding="utf-8") as lines:
            return _verify_lines(lines)
    except (OSError, UnicodeDecodeError) as error:
        print(f"error: {file}: {error}", file=sys.stderr)
        return EXIT_USAGE


def _verify_lines(lines: Iterable[str]) -> int:
    chain, first = AuditChainVerifier(), 0
    for count, line in enumerate(lines, 1):
        try:
            kept = parse_audit_line(line)
            chain.verify(kept)
        except AuditChainBroken as error:
            print(f"error: line {count}: {error}", file=sys.stderr)
            return EXIT_FAILED
        except ValueError as error:
            print(f"error: line {count}: {error}", file=sys.stderr)
            return EXIT_USAGE
        first = first or kept.number
    if not first:
        print("error: there are no entries", file=sys.stderr)
        return EXIT_USAGE
    print(f"entries {first} to {chain.number} are whole; who did it is erased in {chain.erased}")
    print(f"hash of the last: {chain.hash.hex()}")
    return EXIT_OK
