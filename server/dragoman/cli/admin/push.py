"""`push list`, `push redeliver`: push configurations, the state of their deliveries, and redelivery."""

from __future__ import annotations

from typing import Annotated

import typer

from dragoman.cli import ExitCode
from dragoman.cli.admin import AdminTarget, run_admin_command
from dragoman.cli.options import (
    DEFAULT_SERVER,
    AgentFilter,
    Ca,
    Cert,
    Json,
    Key,
    PrincipalFilter,
    ScopeFilter,
    Server,
    TaskId,
    complete_tasks,
)
from dragoman.cli.output import ConsoleOutput, format_time, json_line
from dragoman_pb.dragoman.ops.v1 import push_pb2 as ops

_push = typer.Typer(
    name="push",
    help="List push configurations and redeliver events.",
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
        typer.Argument(metavar="TASK", help="The id of a task.", show_default=False, autocompletion=complete_tasks),
    ] = "",
    agent: AgentFilter = "",
    principal: PrincipalFilter = "",
    scope: ScopeFilter = "",
    limit: Annotated[
        int,
        typer.Option("--limit", min=1, max=1000, metavar="N", help="Maximum number of configurations, without TASK."),
    ] = 100,
    json: Json = False,
    server: Server = DEFAULT_SERVER,
    ca: Ca = None,
    cert: Cert = None,
    key: Key = "",
) -> None:
    """List the push configurations of a task with their recent delivery attempts.

    Without a task: every configuration with undelivered events or a dead letter, longest failing first. Secrets are
    never printed.

    **Examples**

    `dragoman push list`

    `dragoman push list 0199f3c2-5c1e-7000-8000-3b1f0a52c0de`
    """
    request = build_list_request(task, agent=agent, principal=principal, scope=scope, limit=limit)
    run_admin_command(server, print_configs(AdminTarget(server, key), request, json=json))


def redeliver(
    task: TaskId,
    config: Annotated[
        str, typer.Argument(metavar="CONFIG", help="The id of one configuration. [all]", show_default=False)
    ] = "",
    first: Annotated[
        int | None, typer.Option("--from", min=1, metavar="N", help="Redeliver from this event on; 1 is the first.")
    ] = None,
    agent: AgentFilter = "",
    principal: PrincipalFilter = "",
    scope: ScopeFilter = "",
    json: Json = False,
    server: Server = DEFAULT_SERVER,
    ca: Ca = None,
    cert: Cert = None,
    key: Key = "",
) -> None:
    """Deliver undelivered events now, including those of configurations given up as dead letters.

    With --from, events already delivered are sent again. Receivers recognize repeats by the header `Dragoman-Event`.

    **Examples**

    `dragoman push redeliver 0199f3c2-5c1e-7000-8000-3b1f0a52c0de`

    `dragoman push redeliver 0199f3c2-5c1e-7000-8000-3b1f0a52c0de orders-hook --from 1`
    """
    request = build_redeliver_request(task, config, first, agent=agent, principal=principal, scope=scope)
    run_admin_command(server, redeliver_events(AdminTarget(server, key), request, json=json))


def build_list_request(task: str, *, agent: str, principal: str, scope: str, limit: int) -> ops.ListPushConfigsRequest:
    """Builds the request of the command line."""
    return ops.ListPushConfigsRequest(task_id=task, agent=agent, principal=principal, scope=scope, limit=limit)


def build_redeliver_request(
    task: str, config: str, first: int | None, *, agent: str, principal: str, scope: str
) -> ops.RedeliverRequest:
    """Builds the request of the command line."""
    more = {} if first is None else {"from": first}  # `from` is a Python keyword
    return ops.RedeliverRequest(task_id=task, config_id=config, agent=agent, principal=principal, scope=scope, **more)


async def print_configs(target: AdminTarget, request: ops.ListPushConfigsRequest, *, json: bool) -> ExitCode:
    """Prints configurations."""
    async with target.operator() as operator:
        response = await operator.list_push_configs(request)
    out = ConsoleOutput()
    for config in response.configs:
        if json:
            out.line(json_line(config))
            continue
        out.line(f"task       {config.task_id}  (agent {config.agent}, {config.principal} in {config.scope})")
        for line in format_config(config):
            out.line(line)
        out.line("")
    if not response.configs and not json:
        out.line("no push configurations" if request.task_id else "no undelivered events and no dead letters")
    return ExitCode.OK


async def redeliver_events(target: AdminTarget, request: ops.RedeliverRequest, *, json: bool) -> ExitCode:
    """Redelivers events and prints which."""
    async with target.operator() as operator:
        response = await operator.redeliver(request)
    out = ConsoleOutput()
    for config in response.configs:
        if json:
            out.line(json_line(config))
            continue
        left = config.last - config.delivered
        events = f"events {config.delivered + 1} to {config.last}" if left > 0 else "nothing to deliver"
        out.line(f"{config.id}  {events}  {config.url}")
    return ExitCode.OK


def format_config(config: ops.PushConfig) -> list[str]:
    """Formats a configuration and its delivery attempts as text lines."""
    state = ops.PushState.Name(config.state).removeprefix("PUSH_STATE_")
    lines = [
        f"config     {config.id}",
        f"url        {config.url}  (A2A {config.dialect})",
        f"state      {state}" + (f": {config.reason}" if config.reason else ""),
        f"delivered  {config.delivered} of {config.last} events" + _format_lag(config),
    ]
    if config.HasField("failing_since"):
        lines.append(
            f"failing    since {format_time(config.failing_since)}; attempts for the next event: {config.failures}"
        )
    if config.HasField("next_attempt"):
        lines.append(f"next       {format_time(config.next_attempt)}")
    elif config.delivering:
        lines.append("next       now")
    for one in config.attempts:
        outcome = one.error or f"HTTP {one.status}"
        lines.append(f"  {format_time(one.time)}  event {one.sequence}  {outcome}  ({one.milliseconds} ms)")
    return lines


def _format_lag(config: ops.PushConfig) -> str:
    left = config.last - config.delivered
    return f", {left} remaining" if left > 0 else ""
