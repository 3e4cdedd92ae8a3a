"""What the operators' commands do: the same calls to a server over gRPC, or to a store that no server holds.

Every coroutine gives the exit code of its command; `run` turns what goes wrong into the others.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Coroutine
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

import typer

from dragoman.cli import talk
from dragoman.cli.render import json_line
from dragoman.cli.tasks import LOCAL, State
from dragoman.client.operations import Operator
from dragoman.core.ages import parse_age
from dragoman.core.errors import A2AError
from dragoman_pb.dragoman.ops.v1 import ops_pb2 as ops

if TYPE_CHECKING:
    from dragoman.settings import Settings

DONE: Final = 0
NOT_DONE: Final = 1
USAGE: Final = 2
REFUSED: Final = 3


@dataclass(frozen=True, slots=True)
class Where:
    """A server's gRPC address, or a store's URL, which then counts."""

    grpc: str
    store: str
    token: str


def run(grpc: str, command: Coroutine[Any, Any, int]) -> NoReturn:
    """Runs a command to its exit code."""
    talk.run(grpc, _told(command), by_agent=False)


async def _told(command: Coroutine[Any, Any, int]) -> int:
    from dragoman.foundation import StartError
    from dragoman.settings import SettingsError

    try:
        return await command
    except A2AError as error:
        return _sorry(error.message, REFUSED)
    except SettingsError as error:
        return _sorry(str(error), USAGE)
    except StartError as error:
        return _sorry(str(error), NOT_DONE)


def selection(
    *, task: str, context: str, principal: str, older: str, scope: str, state: State | None, agent: str
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


async def purge(where: Where, selection: ops.Selection, *, dry_run: bool, json: bool) -> int:
    """Erases tasks and prints the receipt."""
    async with operations(where) as asked_of:
        answer = await asked_of.purge(ops.PurgeRequest(selection=selection, dry_run=dry_run))
    if json:
        _line(json_line(answer))
        return DONE
    receipt = answer.receipt
    verb = "would remove" if dry_run else "removed"
    _line(f"{verb:<12} {_number(receipt.tasks, 'task')}: {receipt.selection}")
    if receipt.tasks:
        _line(
            f"{'with':<12} {_number(receipt.events, 'event')}, {_number(receipt.messages, 'message')}, "
            f"{_number(receipt.artifacts, 'artifact')}, {_number(receipt.bytes, 'byte')}"
        )
    if receipt.number:
        began, ended = (_when(time.ToMilliseconds()) for time in (receipt.began, receipt.ended))
        _line(f"{'receipt':<12} {receipt.number}, {began} to {ended}")
        _line(f"{'sha256':<12} {receipt.digest}")
    return DONE


async def export(where: Where, task: str, *, agent: str, principal: str, scope: str) -> int:
    """Prints a task as lines of JSON."""
    asked = ops.ExportTaskRequest(task_id=task, agent=agent, principal=principal, scope=scope)
    async with operations(where) as asked_of, aclosing(asked_of.export_task(asked)) as entries:
        async for entry in entries:
            _line(json_line(entry))
    return DONE


async def backup(where: Where, destination: Path) -> int:
    """Copies a store to an absolute path, and shows how far it is."""
    from dragoman.offline import copy_store

    done = 0
    if where.store:
        async with aclosing(copy_store(settings_of(where.store), destination)) as steps:
            async for step in steps:
                _progress(step.bytes, step.total)
                done = step.bytes if step.done else 0
    else:
        async with Operator(where.grpc, token=where.token) as operator:
            asked = ops.BackupRequest(destination=str(destination))
            async with aclosing(operator.backup(asked)) as answers:
                async for answer in answers:
                    _progress(answer.bytes, answer.total_bytes)
                    done = answer.bytes if answer.done else 0
    _line(f"{destination}: {_number(done, 'byte')}, checked")
    return DONE


async def restore(source: Path, store: str) -> int:
    """Makes a store of a copy, and says what that means for those who knew the old one."""
    from dragoman.offline import restore_store

    settings = settings_of(store)
    restored = await asyncio.to_thread(restore_store, settings, source)
    when = f"as it was at {_when(restored.taken)}" if restored.taken else "as it was when it was copied"
    _line(f"restored     {settings.store_path}")
    _line(f"tasks        {_number(restored.tasks, 'task')}, {when}; what came later is not there")
    if restored.running:
        _line(f"running      {_number(restored.running, 'task')} ran then: FAILED (INTERRUPTED) at the next start")
    if restored.pushes:
        _line(f"pushes       {_number(restored.pushes, 'receiver')}: what they took since the backup they get again")
    _line(f"epoch        {restored.epoch}, before {restored.former}")
    _line("cursors      those of the old store are refused (INVALID_ARGUMENT: another epoch); clients read anew")
    _line("keys         idempotency keys used since the backup are unknown: such a send, repeated, runs again")
    _line("erasures     what was purged since the backup is there again; purge it again")
    return DONE


@asynccontextmanager
async def operations(where: Where) -> AsyncIterator[Any]:
    """What can purge and export: a server, or the store itself."""
    if where.store:
        from dragoman.offline import open_operations

        async with open_operations(settings_of(where.store)) as operations_here:
            yield operations_here
    else:
        async with Operator(where.grpc, token=where.token) as operator:
            yield operator


def settings_of(store: str) -> Settings:
    """Settings that say nothing but this store. Raises SettingsError."""
    from dragoman.settings import load

    # Variables that say whom a client calls, and as whom, are settings of a server, too, and mean something else there.
    return load({"store": store, "grpc": LOCAL, "token": ""})


def _progress(done: int, total: int) -> None:
    if sys.stderr.isatty():
        end = "\n" if done == total else ""
        print(f"\r{done * 100 // max(total, 1):3} % of {_number(total, 'byte')}", end=end, file=sys.stderr, flush=True)


def _number(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _when(milliseconds: int) -> str:
    return f"{datetime.fromtimestamp(milliseconds / 1000):%Y-%m-%d %H:%M:%S}"


def _line(text: str) -> None:
    print(text, flush=True)


def _sorry(text: str, code: int) -> int:
    print(f"error: {text}", file=sys.stderr, flush=True)
    return code
