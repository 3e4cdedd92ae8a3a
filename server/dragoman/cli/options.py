"""Options and arguments that several commands share, and shell completion of agent and task ids.

Completion reads ids from the server that the command line names. It is silent on errors and stops after two seconds.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from dragoman.calling import tls
from dragoman.calling.errors import CallRefused, ProtocolError
from dragoman.calling.secret_files import check_header_secret, read_secret
from dragoman.cli import ExitCode, print_error
from dragoman.cli.commands import Resolved, argument, flag, option
from dragoman.cli.output import state_name
from dragoman.cli.profiles import Profile, find_profile
from dragoman.client.agent_connection import is_http_url, server_url, url_problem
from dragoman.client.operations import M, Operator, OperatorMethod, Q
from dragoman.core.durations import parse_age
from dragoman.core.names import nearest
from dragoman.ids import now_ms
from dragoman_pb.dragoman.ops import v1 as ops

DEFAULT_SERVER: Final = "127.0.0.1:50051"
DEFAULT_HTTP_URL: Final = "http://127.0.0.1:8080"  # the same machine, for what needs HTTP

COMPLETION_TIMEOUT: Final = 2.0  # seconds for the server to answer
MAX_COMPLETED_TASKS: Final = 30  # number of task ids offered, most recently changed first
MAX_NAMED_TASKS: Final = 5  # tasks that the error of an ambiguous id names
MAX_SEARCHED_TASKS: Final = 1000  # number of tasks whose ids are compared with the text typed so far
Completions = list[tuple[str, str]]  # candidates, each with a one-line description


def complete_agents(ctx: typer.Context, incomplete: str) -> Completions:
    """Agent ids that begin with `incomplete`."""
    response = _call_in_time(ctx, Operator.list_agents, ops.ListAgentsRequest())
    agents = response.agents if response else ()
    return [(agent.id, agent.description) for agent in agents if agent.id.startswith(incomplete)]


def complete_tasks(ctx: typer.Context, incomplete: str) -> Completions:
    """Ids of the caller's recently changed tasks that begin with `incomplete`."""
    request = ops.ListTasksRequest(
        agent=ctx.params.get("agent") or "", scope=ctx.params.get("scope") or "", limit=MAX_SEARCHED_TASKS, own=True
    )
    response = _call_in_time(ctx, Operator.list_tasks, request)
    tasks = [listed.task for listed in response.tasks if listed.task.id.startswith(incomplete)] if response else ()
    return [
        (task.id, f"{state_name(task.status.state)} {task.status.timestamp.ToJsonString()[:16]}")
        for task in tasks[:MAX_COMPLETED_TASKS]
    ]


def _call_in_time(ctx: typer.Context, method: OperatorMethod[Q, M], request: Q) -> M | None:
    """Calls the server that the command line typed so far names; None for every error."""
    target = ServerTarget(ctx.params.get("server") or DEFAULT_SERVER, key=ctx.params.get("key") or "")
    try:
        return asyncio.run(asyncio.wait_for(target.call(method, request), COMPLETION_TIMEOUT))
    except Exception:  # an error message would garble the line that the user is typing
        return None


_SHORT_ID: Final = re.compile(r"[0-9a-f]{8}[0-9a-f-]{0,27}")


async def find_task_id(values: Mapping[str, Any], given: str) -> str:
    """The id of the one task that begins with these eight or more digits, else `given`.

    Searches the caller's recently changed tasks and, for operators and viewers, those of all. Ends the process with a
    usage error if several tasks begin with them, or may do so, because not all were searched.
    """
    if values.get("store") or not _SHORT_ID.fullmatch(given):
        return given
    ids: set[str] = set()
    is_whole = True
    async with values["target"].operator() as operator:
        for request in (ops.ListTasksRequest(own=True), ops.ListTasksRequest(text=given)):
            request.limit = MAX_SEARCHED_TASKS
            with suppress(CallRefused, ProtocolError):  # for callers who are no operators, and of other servers
                found = await operator.list_tasks(request)
                ids.update(one.task.id for one in found.tasks if one.task.id.startswith(given))
                is_whole = found.total <= len(found.tasks)
    if given not in ids and (len(ids) > 1 or (ids and not is_whole)):
        names = ", ".join(sorted(ids)[:MAX_NAMED_TASKS])
        number = f"{len(ids)} tasks begin" if len(ids) > 1 else "not only this task may begin"
        advice = "type more of one" if is_whole else "type a complete id"
        raise typer.Exit(print_error(f"{number} with {given}: {names}; {advice}", ExitCode.USAGE))
    return ids.pop() if len(ids) == 1 else given


def check_server(server: str) -> str:
    """Returns the address of a server. Ends the process with a usage error for an invalid one."""
    if "://" in server and (problem := url_problem(server)):
        raise typer.BadParameter(problem)
    return server


def _is_given(ctx: typer.Context, name: str) -> bool:
    """Whether the command line or the environment has a value for an option."""
    source = ctx.get_parameter_source(name)
    return source is not None and source.name != "DEFAULT"


def _profile(ctx: typer.Context) -> tuple[str, Profile] | None:
    """The profile of `dragoman login` that applies, with its name."""
    return find_profile(ctx.find_root().params.get("profile") or "")


def use_server(ctx: typer.Context, server: str) -> str:
    """Callback of `--server`: by default the server of the profile."""
    if not _is_given(ctx, "server") and (found := _profile(ctx)) is not None:
        return found[1].server
    return check_server(server)


def _profile_of_server(ctx: typer.Context) -> tuple[str, Profile] | None:
    """The profile, if the command calls its server: keys and certificates are for no other one."""
    found = _profile(ctx)
    return found if found and found[1].server == str(ctx.params.get("server")).rstrip("/") else None


def _use_key(ctx: typer.Context, key: str) -> str:
    """Callback of `--key`: by default the key in DRAGOMAN_KEY_FILE, then that of the profile. Exits for a bad one."""
    source = getattr(ctx.get_parameter_source("key"), "name", "DEFAULT")
    place = "DRAGOMAN_KEY (environment)" if source == "ENVIRONMENT" else "--key"
    try:
        if (file := os.environ.get("DRAGOMAN_KEY_FILE")) and source != "COMMANDLINE":
            place = "DRAGOMAN_KEY_FILE (environment)"
            if key:
                raise ValueError("DRAGOMAN_KEY is set, too; remove one")
            key = read_secret(file)
        elif source == "DEFAULT" and (found := _profile_of_server(ctx)) is not None:
            key, place = found[1].read_key(found[0]), f"the key of profile {found[0]}"
        return check_header_secret(key)
    except ValueError as error:
        # completion prints nothing: a message would garble the line that the user is typing
        raise typer.Exit(ctx.resilient_parsing or print_error(f"{place}: {error}", ExitCode.USAGE)) from error


def http_address(server: str, need: str) -> str:
    """The HTTP address of a server, for `need`. Ends the process with a usage error for a gRPC address."""
    if server == DEFAULT_SERVER:
        return DEFAULT_HTTP_URL
    if not is_http_url(server):
        raise typer.BadParameter(f"{need} needs HTTP; pass --server http://HOST:PORT in place of {server}")
    return server_url(server)


Server = Annotated[str, option(
    "--server", "URL",
    "The server: http(s)://HOST[:PORT] or the URL of its card; grpc(s)://HOST:PORT, or HOST:PORT for gRPC.",
    envvar="DRAGOMAN_SERVER", callback=use_server,
)]  # fmt: skip


def _file_option(name: str, help: str, default: ContextVar[Path | None]) -> Any:
    """`--ca` or `--cert`, by default the file of the profile.

    Takes effect in its callback and lasts until the command ends, so commands need not pass it on.
    """

    def use_file(ctx: typer.Context, file: Path | None) -> Path | None:
        if not _is_given(ctx, name) and (found := _profile_of_server(ctx)) and (own := getattr(found[1], name)):
            file = Path(own)
        if file is not None:
            ctx.call_on_close(partial(default.reset, default.set(file)))
        return file

    variable = f"DRAGOMAN_{name.upper()}"
    return option(f"--{name}", "FILE", help, envvar=variable, callback=use_file, show_default=False)


_CA_HELP: Final = "CA certificates to verify the server's certificate with, in PEM. [the system's CAs]"
_CERT_HELP: Final = "Client certificate and its key, both in one PEM file, if the server requires one."
Ca = Annotated[Path | None, _file_option("ca", _CA_HELP, tls.default_ca)]
Cert = Annotated[Path | None, _file_option("cert", _CERT_HELP, tls.default_cert)]
Key = Annotated[str, option(
    "--key", "KEY", "API key or another bearer token, if the server requires authentication.",
    envvar="DRAGOMAN_KEY", callback=_use_key,
)]  # fmt: skip


@dataclass(frozen=True, slots=True)
class ServerTarget:
    """The server that a command calls, and the caller's credentials."""

    server: Server = DEFAULT_SERVER
    ca: Ca = None
    cert: Cert = None
    key: Key = ""

    def operator(self) -> Operator:
        return Operator(self.server, token=self.key)

    async def call(self, method: OperatorMethod[Q, M], request: Q) -> M:
        """Makes one call as an operator."""
        async with self.operator() as operator:
            return await method(operator, request)


AgentName = Annotated[str, option(
    "--agent", "NAME", "The agent's id; without it, the server's root agent.", autocompletion=complete_agents
)]  # fmt: skip
TaskAgent = Annotated[str, option(
    "--agent", "NAME", "The task's agent; without it, your tasks with all agents are searched.",
    autocompletion=complete_agents,
)]  # fmt: skip
TaskScope = Annotated[
    str, option("--scope", "NAME", "The task's scope; without it, your tasks in all scopes are searched.")
]
Json = Annotated[bool, flag("--json", "Print ProtoJSON on stdout, one object per line.")]
Save = Annotated[Path | None, option("--save", "DIR", "Write received files into this folder.", file_okay=False)]
TaskId = Annotated[str, argument(
    "TASK", "The id of a task, or its first 8 or more characters.", autocompletion=complete_tasks
), Resolved(find_task_id)]  # fmt: skip
StoreUrl = Annotated[str, option(
    "--store", "URL",
    "Use this store without a server: a URL as for `serve --store`. No server may have an SQLite store open.",
)]  # fmt: skip
AgentFilter = Annotated[str, option("--agent", "NAME", "Only this agent.", autocompletion=complete_agents)]
PrincipalFilter = Annotated[str, option("--principal", "NAME", "Only this principal.")]
ScopeFilter = Annotated[str, option("--scope", "NAME", "Only this scope.")]


@dataclass(frozen=True, slots=True)
class TaskOwner:
    """The owner of tasks, for operators; an empty field matches any."""

    agent: AgentFilter = ""
    principal: PrincipalFilter = ""
    scope: ScopeFilter = ""


class TaskStateOption(StrEnum):
    """Task states as typed on the command line."""

    SUBMITTED = "submitted"
    WORKING = "working"
    INPUT_REQUIRED = "input-required"
    AUTH_REQUIRED = "auth-required"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELED = "canceled"
    REJECTED = "rejected"


def parse_state(text: str) -> TaskStateOption:
    """Parses a task state. Ends the process with a usage error for an unknown one."""
    if text in list(TaskStateOption):
        return TaskStateOption(text)
    near = nearest(text, TaskStateOption)
    advice = f"did you mean {near}?" if near else f"use one of {', '.join(TaskStateOption)}"
    raise typer.BadParameter(f'"{text}" is not a task state; {advice}')


def age_option(option: str, text: str) -> int:
    """Parses the age that an option has, into milliseconds; 0 for "". Ends the process with a usage error."""
    try:
        return parse_age(text) if text else 0
    except ValueError as error:
        raise typer.BadParameter(f"{option}: {error}") from error


def time_option(option: str, text: str) -> int:
    """The time that was an option's age ago, in milliseconds since the epoch; 0 for "". As `age_option`."""
    return now_ms() - age_option(option, text) if text else 0
