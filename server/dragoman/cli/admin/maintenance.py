"""`purge`, `export`, `backup`, `restore`: maintenance of a store, through its server or without one."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack, aclosing
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated, Final
from urllib.parse import urlsplit

import typer

from dragoman.cli import ExitCode, format_count, options
from dragoman.cli.admin import open_admin_client, store_settings
from dragoman.cli.commands import Command, argument, option
from dragoman.cli.output import ConsoleOutput, format_time, json_line
from dragoman.cli.tasks import bulk
from dragoman.core.net.addresses import is_loopback_host
from dragoman_pb.dragoman.ops import v1 as ops


async def purge(
    task: Annotated[str, option("--task", "ID", "This task.")] = "",
    *,
    tasks: bulk.TaskFilter,
    answers: bulk.Answers,
    store: options.StoreUrl = "",
    target: options.ServerTarget,
) -> ExitCode:
    """Erase tasks with their events, messages and artifacts.

    Erases the tasks that match all given options; pass at least one of --task, --context, --principal and
    --older-than. Running tasks are stopped and erased, too; --older-than alone matches only tasks that ended before
    this age. A receipt without names remains.

    With --since, --text, --metadata, --cause or several states the number of tasks is printed first, and the command
    asks unless --yes is given. The server erases them one by one, each with a receipt.

    **Examples**

    `dragoman purge --older-than 30d --state failed --dry-run`

    `dragoman purge --principal alice@example.com`

    `dragoman purge --store sqlite:///dragoman.db --task 0199f3c2-5c1e-7000-8000-3b1f0a52c0de`
    """
    states, selected = tasks.state or [], tasks.request()
    if tasks.since or tasks.text or tasks.metadata or tasks.cause or len(states) > 1:
        if store:
            text = "--since, --text, --metadata, --cause and several states need a server; leave out --store"
            raise typer.BadParameter(text)
        selected.task_id = task
        return await bulk.change_tasks(target, bulk.ERASE, selected, answers)
    if not (task or tasks.context or tasks.principal or tasks.older_than):
        raise typer.BadParameter("no tasks selected; pass --task, --context, --principal or --older-than")
    selection = ops.Selection(
        task_id=task, context_id=tasks.context, principal=tasks.principal, scope=tasks.scope, agent=tasks.agent,
        state=selected.states[0] if selected.states else None,
    )  # fmt: skip
    if tasks.older_than:
        selection.older_than.FromMilliseconds(options.age_option("--older-than", tasks.older_than))
        if not selection.older_than.ToMilliseconds():
            raise typer.BadParameter("--older-than: must be greater than 0")
    async with open_admin_client(target, store) as client:
        response: ops.PurgeResponse = await client.purge(ops.PurgeRequest(selection=selection, dry_run=answers.dry_run))
    describe = partial(_describe_purge, "would remove" if answers.dry_run else "removed")
    ConsoleOutput().messages([response], describe, json=answers.json)
    return ExitCode.OK


async def export(
    task: options.TaskId, *, owner: options.TaskOwner, store: options.StoreUrl = "", target: options.ServerTarget
) -> None:
    """Write everything stored about a task as JSON lines.

    Writes a header, the task, its events, its messages and an end line to stdout. Without the end line the export is
    incomplete.

    **Example**: `dragoman export 0199f3c2-5c1e-7000-8000-3b1f0a52c0de > task.jsonl`
    """
    out, request = ConsoleOutput(), ops.ExportTaskRequest(task_id=task, **asdict(owner))
    async with open_admin_client(target, store) as client, aclosing(client.export_task(request)) as entries:
        async for entry in entries:
            out.line(json_line(entry))


async def backup(
    destination: Annotated[Path, argument("DEST", "A folder to create.")],
    store: Annotated[str, option("--store", "URL", "Copy this store, whether or not a server has it open.")] = "",
    *,
    target: options.ServerTarget,
) -> None:
    """Copy a store while it is in use, and verify the copy.

    Without --store the server writes the copy on its own machine. DEST must not exist. For a server on another machine
    it is a name: the server creates the folder beside its store.

    **Example**: `dragoman backup /var/backups/dragoman-$(date +%F)`
    """
    from dragoman.wiring.offline_admin import copy_store

    host = urlsplit(target.server if "//" in target.server else f"//{target.server}").hostname or ""
    folder, copied_bytes = destination.absolute() if store or is_loopback_host(host) else destination, 0
    async with AsyncExitStack() as stack:
        if store:
            steps = copy_store(store_settings(store), folder)
        else:
            operator = await stack.enter_async_context(target.operator())
            steps = operator.backup(ops.BackupRequest(destination=str(folder)))
        async for step in await stack.enter_async_context(aclosing(steps)):
            _print_progress(step.bytes, step.total_bytes)
            copied_bytes = step.bytes if step.done else 0
    ConsoleOutput().line(f"{folder}: {format_count(copied_bytes, 'byte')}, verified")


async def restore(
    source: Annotated[Path, argument("SRC", "A folder written by `backup`.")],
    store: Annotated[
        str, option("--store", "URL", "The store to create; it must not exist.")
    ] = "sqlite:///dragoman.db",
) -> None:
    """Create a store from a backup, and verify it.

    Prints what happens to tasks, clients and receivers that have seen later changes.

    **Example**: `dragoman restore /var/backups/dragoman-2026-11-20 --store sqlite:////var/lib/dragoman/tasks.db`
    """
    from dragoman.wiring.offline_admin import restore_store

    out, settings = ConsoleOutput(), store_settings(store)
    restored = await asyncio.to_thread(restore_store, settings, source)
    when = f"as of {format_time(restored.copied_at)}" if restored.copied_at else "as of the time of the copy"
    out.line(f"restored     {settings.store.path}")
    out.line(f"tasks        {format_count(restored.tasks, 'task')}, {when}; later changes are lost")
    if restored.running:
        out.line(
            f"running      {format_count(restored.running, 'task')} then running; FAILED (INTERRUPTED) at next start"
        )
    if restored.pushes:
        out.line(f"pushes       {format_count(restored.pushes, 'receiver')}; events since the backup are sent again")
    if restored.missing_blobs:
        parts = format_count(restored.missing_blobs, "large part")
        out.line(f"missing      {parts}: {source} has no file of them in blobs/; readers get links without content")
    out.line(f"epoch        {restored.epoch}, before {restored.previous_epoch}")
    out.line("signing      a new key signs webhooks and cards, and links to contents from before are invalid")
    out.line("cursors      of the old store are rejected (INVALID_ARGUMENT: another epoch); clients read anew")
    out.line("keys         idempotency keys used since the backup are unknown: a repeated send runs again")
    out.line("erasures     tasks purged since the backup are back; purge them again")


def _describe_purge(verb: str, response: ops.PurgeResponse) -> Iterator[str]:
    receipt = response.receipt
    yield f"{verb:<12} {format_count(receipt.tasks, 'task')}: {receipt.selection}"
    if receipt.tasks:
        yield (
            f"{'with':<12} {format_count(receipt.events, 'event')}, {format_count(receipt.messages, 'message')}, "
            f"{format_count(receipt.artifacts, 'artifact')}, {format_count(receipt.bytes, 'byte')}"
        )
    if receipt.number:
        yield f"{'receipt':<12} {receipt.number}, {format_time(receipt.began)} to {format_time(receipt.ended)}"
        yield f"{'sha256':<12} {receipt.digest}"


def _print_progress(done: int, total: int) -> None:
    if sys.stderr.isatty():
        end = "\n" if done == total else ""
        percent = done * 100 // max(total, 1)
        print(f"\r{percent:3} % of {format_count(total, 'byte')}", end=end, file=sys.stderr, flush=True)


COMMANDS: Final = {
    "purge": Command(purge),
    "export": Command(export),
    "backup": Command(backup),
    "restore": Command(restore),
}
