"""`record`, `replay`: a recorded task as a test of its agent."""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Final

import typer

from dragoman.cli import ExitCode, format_count, print_error
from dragoman.cli.admin import open_admin_client
from dragoman.cli.commands import Command, argument, option
from dragoman.cli.options import ServerTarget, StoreUrl, TaskId, TaskOwner
from dragoman.testing.kit.recording import Recording, recording_of_export
from dragoman.testing.kit.replay import Different
from dragoman.testing.kit.replay import replay as replay_recording
from dragoman.wiring.agent_loader import load_app
from dragoman_pb.dragoman.ops import v1 as ops


async def record(
    task: TaskId,
    out: Annotated[Path, option("-o", "FILE", "The file to write.", "--out", show_default=False)],
    *,
    owner: TaskOwner,
    store: StoreUrl = "",
    target: ServerTarget,
) -> ExitCode:
    """Record the messages and answers of a task as a test case.

    Run new code against it with `dragoman replay`. Ids, times and chunk boundaries are left out, so two recordings
    differ only where the agent's answers differ.

    **Example**: `dragoman record 01a1fb2a-bd29-7b48-8221-ff7b0dc19d30 -o case.json`
    """
    request = ops.ExportTaskRequest(task_id=task, **asdict(owner))
    async with open_admin_client(target, store) as client, aclosing(client.export_task(request)) as export:
        entries = [entry async for entry in export]
    try:
        recording = recording_of_export(entries)
        recording.write(out)
    except (ValueError, OSError) as error:
        return print_error(error, ExitCode.USAGE)
    typer.echo(f"{out}: {format_count(len(recording.turns), 'turn')} of {recording.agent}")
    return ExitCode.OK


def replay(
    case: Annotated[Path, argument("FILE", "A file written by `record`.")],
    app: Annotated[str, argument("APP", "The agents: a .py file or a module.")],
) -> ExitCode:
    """Run a recorded test case against the agents of APP.

    Sends the recorded messages in memory, without a server, and prints where the answers differ.

    **Example**: `dragoman replay case.json agents.py`

    **Exit codes**: 0 same answers; 1 different answers; 2 the case or the agents cannot be loaded.
    """
    try:
        recording = Recording.read(case)
        replay_recording(case, *load_app(app).agents)
    except AssertionError as error:  # different answers, or a turn that does not end
        typer.echo(error if isinstance(error, Different) else f"{case}: {error}")
        return ExitCode.FAILED
    except (ValueError, OSError) as error:
        return print_error(error, ExitCode.USAGE)
    typer.echo(f"{case}: {format_count(len(recording.turns), 'turn')} of {recording.agent}, same answers as recorded")
    return ExitCode.OK


COMMANDS: Final = {"record": Command(record), "replay": Command(replay)}
