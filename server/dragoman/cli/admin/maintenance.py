"""`purge`, `export`, `backup`, `restore`: what operators do to a store, and how it is said.

Only the options are here. What the commands do is in `operate.py`, imported when one of them runs.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Coroutine
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NoReturn

import typer

from dragoman.cli import completion, task_calls
from dragoman.cli.output import json_line
from dragoman.cli.tasks import DEFAULT_GRPC_ADDRESS, Ca, Cert, Grpc, Json, TaskId, TaskStateOption, Token
from dragoman.client.operations import Operator
from dragoman.core.clock import parse_age
from dragoman.core.errors import A2AError
from dragoman_pb.dragoman.ops.v1 import ops_pb2 as ops

if TYPE_CHECKING:
    from dragoman.settings.settings import Settings


StoreUrl = Annotated[
    str,
    typer.Option(
        "--store",
        metavar="URL",
        help="This store, without a server: sqlite:///PATH (no server may hold it), postgresql://...",
    ),
]
AgentFilter = Annotated[
    str, typer.Option("--agent", metavar="NAME", help="Only of this agent.", autocompletion=completion.agents)
]
PrincipalFilter = Annotated[str, typer.Option("--principal", metavar="NAME", help="Only of this principal.")]
ScopeFilter = Annotated[str, typer.Option("--scope", metavar="NAME", help="Only in this scope.")]


def register(cli: typer.Typer) -> None:
    """Adds the commands."""
    for name, command in (("purge", purge), ("export", export), ("backup", backup), ("restore", restore)):
        cli.command(name)(command)


def purge(
    task: Annotated[str, typer.Option("--task", metavar="ID", help="This task.")] = "",
    context: Annotated[str, typer.Option("--context", metavar="ID", help="The tasks of this conversation.")] = "",
    principal: Annotated[str, typer.Option("--principal", metavar="NAME", help="The tasks of this principal.")] = "",
    older_than: Annotated[
        str, typer.Option("--older-than", metavar="AGE", help="Tasks that ended longer ago: 30d, 12h, 90m.")
    ] = "",
    scope: ScopeFilter = "",
    state: Annotated[TaskStateOption | None, typer.Option("--state", help="Only in this state.")] = None,
    agent: AgentFilter = "",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", metavar=" ", help="Remove nothing; tell what would be removed.")
    ] = False,
    json: Json = False,
    store: StoreUrl = "",
    grpc: Grpc = DEFAULT_GRPC_ADDRESS,
    ca: Ca = None,
    cert: Cert = None,
    token: Token = "",
) -> None:
    """Erase tasks with all that belongs to them: events, messages, artifacts.

    All that is said must hold of a task; say one of --task, --context, --principal, --older-than at least. Running
    tasks are erased, too, and their agents stopped; --older-than alone takes only tasks that have ended. What is left
    is a receipt that names nobody.

    **Examples**

    `dragoman purge --older-than 30d --state failed --dry-run`

    `dragoman purge --principal alice@example.com`

    `dragoman purge --store sqlite:///dragoman.db --task 0199f3c2-5c1e-7000-8000-3b1f0a52c0de`
    """
    pass

    selection = build_selection(
        task=task, context=context, principal=principal, older=older_than, scope=scope, state=state, agent=agent
    )
    run_admin_command(grpc, purge_tasks(AdminTarget(grpc, store, token), selection, dry_run=dry_run, json=json))


def export(
    task: TaskId,
    agent: AgentFilter = "",
    principal: PrincipalFilter = "",
    scope: ScopeFilter = "",
    store: StoreUrl = "",
    grpc: Grpc = DEFAULT_GRPC_ADDRESS,
    ca: Ca = None,
    cert: Cert = None,
    token: Token = "",
) -> None:
    """Write out everything that is kept of a task, as lines of JSON on stdout.

    A header, the task, its events, its messages, and an end; without the end it is not complete.

    **Example**: `dragoman export 0199f3c2-5c1e-7000-8000-3b1f0a52c0de > task.jsonl`
    """
    pass

    where = AdminTarget(grpc, store, token)
    run_admin_command(grpc, print_export(where, task, agent=agent, principal=principal, scope=scope))


def backup(
    destination: Annotated[Path, typer.Argument(metavar="DEST", help="A folder to make.", show_default=False)],
    store: Annotated[
        str, typer.Option("--store", metavar="URL", help="This store, whether or not a server runs on it.")
    ] = "",
    grpc: Grpc = DEFAULT_GRPC_ADDRESS,
    ca: Ca = None,
    cert: Cert = None,
    token: Token = "",
) -> None:
    """Copy the store, as it is at this moment, while it is in use, and check the copy.

    Over gRPC the server writes the copy, on its own machine. DEST must not be there yet.

    **Example**: `dragoman backup /var/backups/dragoman-$(date +%F)`
    """
    pass

    run_admin_command(grpc, back_up(AdminTarget(grpc, store, token), destination.absolute()))


def restore(
    source: Annotated[Path, typer.Argument(metavar="SRC", help="What `backup` made.", show_default=False)],
    store: Annotated[
        str, typer.Option("--store", metavar="URL", help="The store to make; it must not be there yet.")
    ] = "sqlite:///dragoman.db",
) -> None:
    """Make a store of a backup, check it, and tell what became of what came after the backup.

    **Example**: `dragoman restore /var/backups/dragoman-2026-11-20 --store sqlite:////var/lib/dragoman/tasks.db`
    """
    pass

    run_admin_command("", restore_backup(source, store))


EXIT_OK: Final = 0
EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_UNAVAILABLE: Final = 3


@dataclass(frozen=True, slots=True)
class AdminTarget:
    """A server's gRPC address, or a store's URL, which then counts."""

    grpc: str
    store: str
    token: str


def run_admin_command(grpc: str, command: Coroutine[Any, Any, int]) -> NoReturn:
    """Runs a command to its exit code."""
    task_calls.run_command(grpc, _exit_code_of(command), by_agent=False)


async def _exit_code_of(command: Coroutine[Any, Any, int]) -> int:
    from dragoman.settings.settings import SettingsError
    from dragoman.wiring.infra import StartError

    try:
        return await command
    except A2AError as error:
        return _report_error(error.message, EXIT_UNAVAILABLE)
    except SettingsError as error:
        return _report_error(str(error), EXIT_USAGE)
    except StartError as error:
        return _report_error(str(error), EXIT_FAILED)


def build_selection(
    *, task: str, context: str, principal: str, older: str, scope: str, state: TaskStateOption | None, agent: str
) -> ops.Selection:
    """The selection that the command line describes. Ends the process with a usage error for none."""
    if not (task or context or principal or older):
        raise typer.BadParameter("say which tasks: --task, --context, --principal or --older-than")
    said = ops.Selection(task_id=task, context_id=context, principal=principal, scope=scope, agent=agent)
    if principal and not scope:
        said.scope = "default"
    if state is not None:
        said.state = f"TASK_STATE_{state.name}"  # type: ignore[assignment]  # by name, as protobuf allows
    if older:
        try:
            said.older_than.FromMilliseconds(parse_age(older))
        except ValueError as error:
            raise typer.BadParameter(f"--older-than: {error}") from error
        if not said.older_than.ToMilliseconds():
            raise typer.BadParameter("--older-than: must be more than nothing")
    return said


async def purge_tasks(target: AdminTarget, selection: ops.Selection, *, dry_run: bool, json: bool) -> int:
    """Erases tasks and prints the receipt."""
    async with open_admin_client(target) as asked_of:
        answer = await asked_of.purge(ops.PurgeRequest(selection=selection, dry_run=dry_run))
    if json:
        _print_line(json_line(answer))
        return EXIT_OK
    receipt = answer.receipt
    verb = "would remove" if dry_run else "removed"
    _print_line(f"{verb:<12} {_format_count(receipt.tasks, 'task')}: {receipt.selection}")
    if receipt.tasks:
        _print_line(
            f"{'with':<12} {_format_count(receipt.events, 'event')}, {_format_count(receipt.messages, 'message')}, "
            f"{_format_count(receipt.artifacts, 'artifact')}, {_format_count(receipt.bytes, 'byte')}"
        )
    if receipt.number:
        began, ended = (_format_time(time.ToMilliseconds()) for time in (receipt.began, receipt.ended))
        _print_line(f"{'receipt':<12} {receipt.number}, {began} to {ended}")
        _print_line(f"{'sha256':<12} {receipt.digest}")
    return EXIT_OK


async def print_export(target: AdminTarget, task: str, *, agent: str, principal: str, scope: str) -> int:
    """Prints a task as lines of JSON."""
    asked = ops.ExportTaskRequest(task_id=task, agent=agent, principal=principal, scope=scope)
    async with open_admin_client(target) as asked_of, aclosing(asked_of.export_task(asked)) as entries:
        async for entry in entries:
            _print_line(json_line(entry))
    return EXIT_OK


async def back_up(target: AdminTarget, destination: Path) -> int:
    """Copies a store to an absolute path, and shows how far it is."""
    from dragoman.wiring.offline_admin import copy_store

    done = 0
    if target.store:
        async with aclosing(copy_store(store_settings(target.store), destination)) as steps:
            async for step in steps:
                _print_progress(step.bytes, step.total)
                done = step.bytes if step.done else 0
    else:
        async with Operator(target.grpc, token=target.token) as operator:
            asked = ops.BackupRequest(destination=str(destination))
            async with aclosing(operator.backup(asked)) as answers:
                async for answer in answers:
                    _print_progress(answer.bytes, answer.total_bytes)
                    done = answer.bytes if answer.done else 0
    _print_line(f"{destination}: {_format_count(done, 'byte')}, checked")
    return EXIT_OK


async def restore_backup(source: Path, store: str) -> int:
    """Makes a store of a copy, and says what that means for those who knew the old one."""
    from dragoman.wiring.offline_admin import restore_store

    settings = store_settings(store)
    restored = await asyncio.to_thread(restore_store, settings, source)
    when = f"as it was at {_format_time(restored.copied_at)}" if restored.copied_at else "as it was when it was copied"
    _print_line(f"restored     {settings.store_path}")
    _print_line(f"tasks        {_format_count(restored.tasks, 'task')}, {when}; what came later is not there")
    if restored.running:
        _print_line(
            f"running      {_format_count(restored.running, 'task')} ran then: FAILED (INTERRUPTED) at the next start"
        )
    if restored.pushes:
        _print_line(
            f"pushes       {_format_count(restored.pushes, 'receiver')}: what they took since the backup they get again"
        )
    _print_line(f"epoch        {restored.epoch}, before {restored.previous_epoch}")
    _print_line("cursors      those of the old store are refused (INVALID_ARGUMENT: another epoch); clients read anew")
    _print_line("keys         idempotency keys used since the backup are unknown: such a send, repeated, runs again")
    _print_line("erasures     what was purged since the backup is there again; purge it again")
    return EXIT_OK


@asynccontextmanager
async def open_admin_client(target: AdminTarget) -> AsyncIterator[Any]:
    """What can purge and export: a server, or the store itself."""
    if target.store:
        from dragoman.wiring.offline_admin import open_operations

        async with open_operations(store_settings(target.store)) as operations_here:
            yield operations_here
    else:
        async with Operator(target.grpc, token=target.token) as operator:
            yield operator


def store_settings(store: str) -> Settings:
    """Settings that say nothing but this store. Raises SettingsError."""
    from dragoman.settings.settings import load_settings

    # Variables that say whom a client calls, and as whom, are settings of a server, too, and mean something else there.
    return load_settings({"store": store, "grpc": DEFAULT_GRPC_ADDRESS, "token": ""})


def _print_progress(done: int, total: int) -> None:
    if sys.stderr.isatty():
        end = "\n" if done == total else ""
        print(
            f"\r{done * 100 // max(total, 1):3} % of {_format_count(total, 'byte')}",
            end=end,
            file=sys.stderr,
            flush=True,
        )


def _format_count(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _format_time(milliseconds: int) -> str:
    return f"{datetime.fromtimestamp(milliseconds / 1000):%Y-%m-%d %H:%M:%S}"


def _print_line(text: str) -> None:
    print(text, flush=True)


def _report_error(text: str, code: int) -> int:
    print(f"error: {text}", file=sys.stderr, flush=True)
    return code
