"""`audit export`, `audit verify`: the audit log, and how it is said.

Only the options are here. What the commands do is in `auditing.py`, imported when one of them runs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dragoman.cli.tasks import LOCAL, Ca, Grpc, Token

_HELP = """The audit log: who did what to which task, who was refused, what operators did, what was erased.

Entries are added and never changed; each is bound to the one before it by a hash.
"""

_audit = typer.Typer(name="audit", help=_HELP, no_args_is_help=True, rich_markup_mode="markdown")


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
    grpc: Grpc = LOCAL,
    ca: Ca = None,
    token: Token = "",
) -> None:
    """Write out the audit log, as lines of JSON on stdout. Asking for it is itself noted.

    **Examples**

    `dragoman audit export >> audit.jsonl`

    `dragoman audit export --after $(tail -n 1 audit.jsonl | jq .number) >> audit.jsonl`
    """
    from dragoman.cli import auditing, operate

    operate.run(grpc, auditing.export(operate.Where(grpc, store, token), after))


def verify(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What `export` wrote; - is stdin.", show_default=False)],
) -> None:
    """Check that an exported log is whole: nothing changed, left out, or put in between.

    Its end cannot be checked so: compare the last hash with one kept elsewhere. Exit code 1 when it is not whole.

    **Example**: `dragoman audit export | dragoman audit verify -`
    """
    from dragoman.cli import auditing

    raise typer.Exit(auditing.verify(file))
