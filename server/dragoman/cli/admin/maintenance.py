"""`purge`, `export`, `backup`, `restore`: maintenance of a store, through its server or without one."""

from __future__ import annotations

import asyncio
import sys
from contextlib import aclosing
from pathlib import Path
from typing import Annotated

import typer

from dragoman.cli import ExitCode, format_count
from dragoman.cli.admin import AdminTarget, bulk, open_admin_client, run_admin_command, store_settings
from dragoman.cli.options import (
    DEFAULT_SERVER,
    AgentFilter,
    Ca,
    Cert,
    ChangedSince,
    Json,
    Key,
    MetadataFilter,
    OneTaskState,
    PrincipalFilter,
    ScopeFilter,
    Server,
    StoreUrl,
    TaskId,
    TaskStateOption,
    TextFilter,
    Yes,
)
from dragoman.cli.output import format_time, json_line
from dragoman.core.durations import parse_age
from dragoman_pb.dragoman.ops.v1 import ops_pb2 as ops


def register(cli: typer.Typer) -> None:
    """Adds the commands."""
    for name, command in (("purge", purge), ("export", export), ("backup", backup), ("restore", restore)):
        cli.command(name)(command)


def purge(
    task: Annotated[str, typer.Option("--task", metavar="ID", help="This task.")] = "",
    context: Annotated[str, typer.Option("--context", metavar="ID", help="Tasks of this conversation.")] = "",
    principal: Annotated[str, typer.Option("--principal", metavar="NAME", help="Tasks of this principal.")] = "",
    older_than: Annotated[
        str, typer.Option("--older-than", metavar="AGE", help="Tasks that ended before this age: 30d, 12h, 90m.")
    ] = "",
    scope: ScopeFilter = "",
    state: OneTaskState = None,
    agent: AgentFilter = "",
    since: ChangedSince = "",
    text: TextFilter = "",
    metadata: MetadataFilter = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", metavar=" ", help="Erase nothing; print what would be erased.")
    ] = False,
    yes: Yes = False,
    json: Json = False,
    store: StoreUrl = "",
    server: Server = DEFAULT_SERVER,
    ca: Ca = None,
    cert: Cert = None,
    key: Key = "",
) -> None:
    """Erase tasks with their events, messages and artifacts.

    Erases the tasks that match all given options; pass at least one of --task, --context, --principal and
    --older-than. Running tasks are stopped and erased, too; --older-than alone matches only tasks that have ended.
    A receipt without names remains.

    With --since, --text or --metadata the number of tasks is printed first, and the command asks unless --yes is given.
    The server erases them one by one, each with a receipt.

    **Examples**

    `dragoman purge --older-than 30d --state failed --dry-run`

    `dragoman purge --principal alice@example.com`

    `dragoman purge --store sqlite:///dragoman.db --task 0199f3c2-5c1e-7000-8000-3b1f0a52c0de`
    """
    if since or text or metadata:
        if store:
            raise typer.BadParameter("--since, --text and --metadata need a server; leave out --store")
        named = [state] if state else None
        selected = bulk.build_filter(agent, scope, principal, named, context, since, older_than, text, metadata)
        selected.task_id = task
        answers = bulk.Answers(dry_run, yes, json)
        run_admin_command(server, bulk.change_tasks(server, key, bulk.ERASE, selected, answers))
    selection = build_selection(
        task=task, context=context, principal=principal, older=older_than, scope=scope, state=state, agent=agent
    )
    run_admin_command(server, purge_tasks(AdminTarget(server, key, store), selection, dry_run=dry_run, json=json))


def export(
    task: TaskId,
    agent: AgentFilter = "",
    principal: PrincipalFilter = "",
    scope: ScopeFilter = "",
    store: StoreUrl = "",
    server: Server = DEFAULT_SERVER,
    ca: Ca = None,
    cert: Cert = None,
    key: Key = "",
) -> None:
    """Write everything stored about a task as JSON lines.

    Writes a header, the task, its events, its messages and an end line to stdout. Without the end line the export is
    incomplete.

    **Example**: `dragoman export 0199f3c2-5c1e-7000-8000-3b1f0a52c0de > task.jsonl`
    """
    target = AdminTarget(server, key, store)
    run_admin_command(server, print_export(target, task, agent=agent, principal=principal, scope=scope))


def backup(
    destination: Annotated[Path, typer.Argument(metavar="DEST", help="A folder to create.", show_default=False)],
    store: Annotated[
        str, typer.Option("--store", metavar="URL", help="Copy this store, whether or not a server has it open.")
    ] = "",
    server: Server = DEFAULT_SERVER,
    ca: Ca = None,
    cert: Cert = None,
    key: Key = "",
) -> None:
    """Copy a store while it is in use, and verify the copy.

    Without --store the server writes the copy on its own machine. DEST must not exist.

    **Example**: `dragoman backup /var/backups/dragoman-$(date +%F)`
    """
    run_admin_command(server, back_up(AdminTarget(server, key, store), destination.absolute()))


def restore(
    source: Annotated[Path, typer.Argument(metavar="SRC", help="A folder written by `backup`.", show_default=False)],
    store: Annotated[
        str, typer.Option("--store", metavar="URL", help="The store to create; it must not exist.")
    ] = "sqlite:///dragoman.db",
) -> None:
    """Create a store from a backup, and verify it.

    Prints what happens to tasks, clients and receivers that have seen later changes.

    **Example**: `dragoman restore /var/backups/dragoman-2026-11-20 --store sqlite:////var/lib/dragoman/tasks.db`
    """
    run_admin_command("", restore_backup(source, store))


def build_selection(
    *, task: str, context: str, principal: str, older: str, scope: str, state: TaskStateOption | None, agent: str
) -> ops.Selection:
    """Builds the selection of the command line. Ends the process with a usage error if it is empty."""
    if not (task or context or principal or older):
        raise typer.BadParameter("no tasks selected; pass --task, --context, --principal or --older-than")
    selection = ops.Selection(task_id=task, context_id=context, principal=principal, scope=scope, agent=agent)
    if state is not None:
        selection.state = f"TASK_STATE_{state.name}"  # type: ignore[assignment]  # by name, as protobuf allows
    if older:
        try:
            selection.older_than.FromMilliseconds(parse_age(older))
        except ValueError as error:
            raise typer.BadParameter(f"--older-than: {error}") from error
        if not selection.older_than.ToMilliseconds():
            raise typer.BadParameter("--older-than: must be greater than 0")
    return selection


async def purge_tasks(target: AdminTarget, selection: ops.Selection, *, dry_run: bool, json: bool) -> ExitCode:
    """Erases tasks and prints the receipt."""
    async with open_admin_client(target) as client:
        response = await client.purge(ops.PurgeRequest(selection=selection, dry_run=dry_run))
    if json:
        _print_line(json_line(response))
        return ExitCode.OK
    receipt = response.receipt
    verb = "would remove" if dry_run else "removed"
    _print_line(f"{verb:<12} {format_count(receipt.tasks, 'task')}: {receipt.selection}")
    if receipt.tasks:
        _print_line(
            f"{'with':<12} {format_count(receipt.events, 'event')}, {format_count(receipt.messages, 'message')}, "
            f"{format_count(receipt.artifacts, 'artifact')}, {format_count(receipt.bytes, 'byte')}"
        )
    if receipt.number:
        _print_line(f"{'receipt':<12} {receipt.number}, {format_time(receipt.began)} to {format_time(receipt.ended)}")
        _print_line(f"{'sha256':<12} {receipt.digest}")
    return ExitCode.OK


async def print_export(target: AdminTarget, task: str, *, agent: str, principal: str, scope: str) -> ExitCode:
    """Prints a task as JSON lines."""
    request = ops.ExportTaskRequest(task_id=task, agent=agent, principal=principal, scope=scope)
    async with open_admin_client(target) as client, aclosing(client.export_task(request)) as entries:
        async for entry in entries:
            _print_line(json_line(entry))
    return ExitCode.OK


async def back_up(target: AdminTarget, destination: Path) -> ExitCode:
    """Copies a store to an absolute path and prints the progress."""
    from dragoman.wiring.offline_admin import copy_store

    copied_bytes = 0
    if target.store:
        async with aclosing(copy_store(store_settings(target.store), destination)) as steps:
            async for step in steps:
                _print_progress(step.bytes, step.total)
                copied_bytes = step.bytes if step.done else 0
    else:
        async with target.operator() as operator:
            request = ops.BackupRequest(destination=str(destination))
            async with aclosing(operator.backup(request)) as responses:
                async for response in responses:
                    _print_progress(response.bytes, response.total_bytes)
                    copied_bytes = response.bytes if response.done else 0
    _print_line(f"{destination}: {format_count(copied_bytes, 'byte')}, verified")
    return ExitCode.OK


async def restore_backup(source: Path, store: str) -> ExitCode:
    """Creates a store from a backup, and prints what that means for clients of the old store."""
    from dragoman.wiring.offline_admin import restore_store

    settings = store_settings(store)
    restored = await asyncio.to_thread(restore_store, settings, source)
    when = f"as of {format_time(restored.copied_at)}" if restored.copied_at else "as of the time of the copy"
    _print_line(f"restored     {settings.store.path}")
    _print_line(f"tasks        {format_count(restored.tasks, 'task')}, {when}; later changes are lost")
    if restored.running:
        _print_line(
            f"running      {format_count(restored.running, 'task')} then running; FAILED (INTERRUPTED) at next start"
        )
    if restored.pushes:
        _print_line(f"pushes       {format_count(restored.pushes, 'receiver')}; events since the backup are sent again")
    _print_line(f"epoch        {restored.epoch}, before {restored.previous_epoch}")
    _print_line("cursors      of the old store are rejected (INVALID_ARGUMENT: another epoch); clients read anew")
    _print_line("keys         idempotency keys used since the backup are unknown: a repeated send runs again")
    _print_line("erasures     tasks purged since the backup are back; purge them again")
    return ExitCode.OK


def _print_progress(done: int, total: int) -> None:
    if sys.stderr.isatty():
        end = "\n" if done == total else ""
        percent = done * 100 // max(total, 1)
        print(f"\r{percent:3} % of {format_count(total, 'byte')}", end=end, file=sys.stderr, flush=True)


def _print_line(text: str) -> None:
    print(text, flush=True)
