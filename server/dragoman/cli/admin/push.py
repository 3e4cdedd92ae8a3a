"""`push list` and `push redeliver`: how far receivers are, and what they get once more.

Only the options are here. What the commands do is in `outbox.py`, imported when one of them runs.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer
from google.protobuf.timestamp_pb2 import Timestamp

from dragoman.cli import completion
from dragoman.cli.admin.maintenance import EXIT_OK, AdminTarget, AgentFilter, PrincipalFilter, ScopeFilter
from dragoman.cli.output import ConsoleOutput, json_line
from dragoman.cli.tasks import DEFAULT_GRPC_ADDRESS, Ca, Cert, Grpc, Json, TaskId, Token
from dragoman.client.operations import Operator
from dragoman_pb.dragoman.ops.v1 import push_pb2 as ops

_push = typer.Typer(
    name="push",
    help="Push notifications: who is told of what, how far they are, and what to tell them again.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)


def register(cli: typer.Typer) -> None:
    """Adds the commands."""
    _push.command("list")(list_configs)
    _push.command("redeliver")(redeliver)
    cli.add_typer(_push)


def list_configs(
    task: Annotated[
        str,
        typer.Argument(metavar="TASK", help="The id of a task.", show_default=False, autocompletion=completion.tasks),
    ] = "",
    agent: AgentFilter = "",
    principal: PrincipalFilter = "",
    scope: ScopeFilter = "",
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, metavar="N", help="Without TASK: so many.")] = 100,
    json: Json = False,
    grpc: Grpc = DEFAULT_GRPC_ADDRESS,
    ca: Ca = None,
    cert: Cert = None,
    token: Token = "",
) -> None:
    """Show the push configurations of a task with their last tries.

    Without a task: every configuration that has something to deliver or was given up, what fails for longest first.
    Secrets are never shown.

    **Examples**

    `dragoman push list`

    `dragoman push list 0199f3c2-5c1e-7000-8000-3b1f0a52c0de`
    """
    from dragoman.cli.admin import maintenance

    where = maintenance.AdminTarget(grpc, "", token)
    asked = build_list_request(task, agent=agent, principal=principal, scope=scope, limit=limit)
    maintenance.run_admin_command(grpc, print_configs(where, asked, json=json))


def redeliver(
    task: TaskId,
    config: Annotated[
        str, typer.Argument(metavar="CONFIG", help="The id of one configuration; else all.", show_default=False)
    ] = "",
    first: Annotated[
        int | None, typer.Option("--from", min=1, metavar="N", help="Again from this event on; 1 is the first.")
    ] = None,
    agent: AgentFilter = "",
    principal: PrincipalFilter = "",
    scope: ScopeFilter = "",
    json: Json = False,
    grpc: Grpc = DEFAULT_GRPC_ADDRESS,
    ca: Ca = None,
    cert: Cert = None,
    token: Token = "",
) -> None:
    """Deliver what a receiver has not taken: at once, and also where it was given up (dead letters).

    With --from also what it has taken. A receiver knows repeats by the header `Dragoman-Event`.

    **Examples**

    `dragoman push redeliver 0199f3c2-5c1e-7000-8000-3b1f0a52c0de`

    `dragoman push redeliver 0199f3c2-5c1e-7000-8000-3b1f0a52c0de orders-hook --from 1`
    """
    from dragoman.cli.admin import maintenance

    where = maintenance.AdminTarget(grpc, "", token)
    asked = build_redeliver_request(task, config, first, agent=agent, principal=principal, scope=scope)
    maintenance.run_admin_command(grpc, redeliver_events(where, asked, json=json))


def build_list_request(task: str, *, agent: str, principal: str, scope: str, limit: int) -> ops.ListPushConfigsRequest:
    """The request that the command line describes."""
    return ops.ListPushConfigsRequest(task_id=task, agent=agent, principal=principal, scope=scope, limit=limit)


def build_redeliver_request(
    task: str, config: str, first: int | None, *, agent: str, principal: str, scope: str
) -> ops.RedeliverRequest:
    """The request that the command line describes."""
    more = {} if first is None else {"from": first}
    return ops.RedeliverRequest(task_id=task, config_id=config, agent=agent, principal=principal, scope=scope, **more)


async def print_configs(target: AdminTarget, request: ops.ListPushConfigsRequest, *, json: bool) -> int:
    """Prints configurations."""
    async with Operator(target.grpc, token=target.token) as operator:
        answer = await operator.list_push_configs(request)
    out = ConsoleOutput()
    for config in answer.configs:
        if json:
            out.line(json_line(config))
            continue
        out.line(f"task       {config.task_id}  (agent {config.agent}, {config.principal} in {config.scope})")
        for line in format_config(config):
            out.line(line)
        out.line("")
    if not answer.configs and not json:
        out.line("no push configurations" if request.task_id else "nothing waits, and nothing was given up")
    return EXIT_OK


async def redeliver_events(target: AdminTarget, request: ops.RedeliverRequest, *, json: bool) -> int:
    """Has events delivered, and prints which."""
    async with Operator(target.grpc, token=target.token) as operator:
        answer = await operator.redeliver(request)
    out = ConsoleOutput()
    for config in answer.configs:
        if json:
            out.line(json_line(config))
            continue
        left = config.last - config.delivered
        what = f"events {config.delivered + 1} to {config.last}" if left > 0 else "nothing is left to deliver"
        out.line(f"{config.id}  {what}  {config.url}")
    return EXIT_OK


def format_config(config: ops.PushConfig) -> list[str]:
    """A configuration for people, its tries included."""
    state = ops.PushState.Name(config.state).removeprefix("PUSH_STATE_")
    said = [
        f"config     {config.id}",
        f"url        {config.url}  (in the words of {config.dialect})",
        f"state      {state}" + (f": {config.why}" if config.why else ""),
        f"delivered  {config.delivered} of {config.last} events" + _format_lag(config),
    ]
    if config.HasField("failing_since"):
        said.append(
            f"failing    since {_format_time(config.failing_since)}; tries of the next event: {config.failures}"
        )
    if config.HasField("next_try"):
        said.append(f"next try   {_format_time(config.next_try)}")
    elif config.delivering:
        said.append("next try   now")
    for one in config.attempts:
        what = one.error or f"answered {one.status}"
        said.append(f"  {_format_time(one.time)}  event {one.sequence}  {what}  ({one.milliseconds} ms)")
    return said


def _format_lag(config: ops.PushConfig) -> str:
    left = config.last - config.delivered
    return f", {left} to go" if left > 0 else ""


def _format_time(time: Timestamp) -> str:
    return f"{datetime.fromtimestamp(time.ToMilliseconds() / 1000, UTC).astimezone():%Y-%m-%d %H:%M:%S}"
