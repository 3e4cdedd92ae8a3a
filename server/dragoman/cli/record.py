"""`record`, `replay`: a task as a test of its agent."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dragoman.cli.admin.maintenance import AgentFilter, PrincipalFilter, ScopeFilter, StoreUrl
from dragoman.cli.tasks import DEFAULT_GRPC_ADDRESS, Ca, Cert, Grpc, TaskId, Token

if TYPE_CHECKING:
    from dragoman.cli.admin.maintenance import AdminTarget


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
    grpc: Grpc = DEFAULT_GRPC_ADDRESS,
    ca: Ca = None,
    cert: Cert = None,
    token: Token = "",
) -> None:
    """Write down what was sent to a task and what its agent answered, to hold new code against it (`replay`).

    Ids, times and the borders of chunks are left out, so that what is recorded again differs only where the agent does.

    **Example**: `dragoman record 01a1fb2a-bd29-7b48-8221-ff7b0dc19d30 -o case.json`
    """
    from dragoman.cli.admin import maintenance

    maintenance.run_admin_command(
        grpc, _record(maintenance.AdminTarget(grpc, store, token), task, out, agent, principal, scope)
    )


def replay(
    case: Annotated[Path, typer.Argument(metavar="FILE", help="What `record` wrote.", show_default=False)],
    app: Annotated[str, typer.Argument(metavar="APP", help="The agents: a .py file or a module.", show_default=False)],
) -> None:
    """Send a recorded task's messages to the agents of APP, in memory, and tell what they answer otherwise.

    Exit code 1 when they do.

    **Example**: `dragoman replay case.json agents.py`
    """
    raise typer.Exit(_replay(case, app))


async def _record(target: AdminTarget, task: str, out: Path, agent: str, principal: str, scope: str) -> int:
    from contextlib import aclosing

    from dragoman.cli.admin.maintenance import EXIT_OK, EXIT_USAGE, open_admin_client
    from dragoman.testing.kit.recording import recording_of_export
    from dragoman_pb.dragoman.ops.v1 import ops_pb2 as ops

    asked = ops.ExportTaskRequest(task_id=task, agent=agent, principal=principal, scope=scope)
    async with open_admin_client(target) as asked_of, aclosing(asked_of.export_task(asked)) as entries:
        told = [entry async for entry in entries]
    try:
        made = recording_of_export(told)
        made.write(out)
    except (ValueError, OSError) as error:
        typer.echo(f"error: {error}", err=True)
        return EXIT_USAGE
    typer.echo(f"{out}: {_format_turns(len(made.turns))} of {made.agent}")
    return EXIT_OK


def _replay(case: Path, app: str) -> int:
    from dragoman.cli.admin.maintenance import EXIT_FAILED, EXIT_OK, EXIT_USAGE
    from dragoman.testing.kit.recording import Recording
    from dragoman.testing.kit.replay import Different
    from dragoman.testing.kit.replay import replay as replayed
    from dragoman.wiring.agent_loader import LoadError, load_agents

    try:
        known = Recording.read(case)
        replayed(case, *load_agents(app))
    except Different as different:
        typer.echo(str(different))
        return EXIT_FAILED
    except AssertionError as error:  # a turn that does not end
        typer.echo(f"{case}: {error}")
        return EXIT_FAILED
    except (ValueError, OSError, LoadError) as error:
        typer.echo(f"error: {error}", err=True)
        return EXIT_USAGE
    typer.echo(f"{case}: {_format_turns(len(known.turns))} of {known.agent}, as recorded")
    return EXIT_OK


def _format_turns(number: int) -> str:
    return "1 turn" if number == 1 else f"{number} turns"
