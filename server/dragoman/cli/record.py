"""`record`, `replay`: a recorded task as a test of its agent."""

from __future__ import annotations

from contextlib import aclosing
from pathlib import Path
from typing import Annotated

import typer

from dragoman.cli import ExitCode, format_count, print_error
from dragoman.cli.admin import AdminTarget, open_admin_client, run_admin_command
from dragoman.cli.options import (
    DEFAULT_SERVER,
    AgentFilter,
    Ca,
    Cert,
    Key,
    PrincipalFilter,
    ScopeFilter,
    Server,
    StoreUrl,
    TaskId,
)
from dragoman.testing.kit.recording import Recording, recording_of_export
from dragoman.testing.kit.replay import Different
from dragoman.testing.kit.replay import replay as replay_recording
from dragoman.wiring.agent_loader import LoadError, load_agents
from dragoman_pb.dragoman.ops.v1 import ops_pb2 as ops


def register(cli: typer.Typer) -> None:
    """Adds the commands."""
    for name, command in (("record", record), ("replay", replay)):
        cli.command(name)(command)


def record(
    task: TaskId,
    out: Annotated[Path, typer.Option("-o", "--out", metavar="FILE", help="The file to write.", show_default=False)],
    agent: AgentFilter = "",
    principal: PrincipalFilter = "",
    scope: ScopeFilter = "",
    store: StoreUrl = "",
    server: Server = DEFAULT_SERVER,
    ca: Ca = None,
    cert: Cert = None,
    key: Key = "",
) -> None:
    """Record the messages and answers of a task as a test case.

    Run new code against it with `dragoman replay`. Ids, times and chunk boundaries are left out, so two recordings
    differ only where the agent's answers differ.

    **Example**: `dragoman record 01a1fb2a-bd29-7b48-8221-ff7b0dc19d30 -o case.json`
    """
    run_admin_command(server, _record(AdminTarget(server, key, store), task, out, agent, principal, scope))


def replay(
    case: Annotated[Path, typer.Argument(metavar="FILE", help="A file written by `record`.", show_default=False)],
    app: Annotated[str, typer.Argument(metavar="APP", help="The agents: a .py file or a module.", show_default=False)],
) -> None:
    """Run a recorded test case against the agents of APP.

    Sends the recorded messages in memory, without a server, and prints where the answers differ.

    **Example**: `dragoman replay case.json agents.py`

    **Exit codes**: 0 same answers; 1 different answers; 2 the case or the agents cannot be loaded.
    """
    raise typer.Exit(_replay(case, app))


async def _record(target: AdminTarget, task: str, out: Path, agent: str, principal: str, scope: str) -> ExitCode:
    request = ops.ExportTaskRequest(task_id=task, agent=agent, principal=principal, scope=scope)
    async with open_admin_client(target) as client, aclosing(client.export_task(request)) as export:
        entries = [entry async for entry in export]
    try:
        recording = recording_of_export(entries)
        recording.write(out)
    except (ValueError, OSError) as error:
        return print_error(error, ExitCode.USAGE)
    typer.echo(f"{out}: {format_count(len(recording.turns), 'turn')} of {recording.agent}")
    return ExitCode.OK


def _replay(case: Path, app: str) -> ExitCode:
    try:
        recording = Recording.read(case)
        replay_recording(case, *load_agents(app))
    except Different as different:
        typer.echo(str(different))
        return ExitCode.FAILED
    except AssertionError as error:  # a turn that does not end
        typer.echo(f"{case}: {error}")
        return ExitCode.FAILED
    except (ValueError, OSError, LoadError) as error:
        return print_error(error, ExitCode.USAGE)
    typer.echo(f"{case}: {format_count(len(recording.turns), 'turn')} of {recording.agent}, same answers as recorded")
    return ExitCode.OK
