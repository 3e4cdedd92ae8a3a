"""Finds the agent and the scope of a task, and names the agents that were meant by an unknown one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Annotated, Final

import typer

from dragoman.calling.contents import read_part
from dragoman.calling.errors import ClientError, NotFound
from dragoman.calling.transport import no_wire_trace
from dragoman.cli import ExitCode, print_error, print_note
from dragoman.cli.commands import flag, option
from dragoman.cli.options import DEFAULT_HTTP_URL, DEFAULT_SERVER, ServerTarget, http_address
from dragoman.client.calls import Client, current_traceparent
from dragoman.client.operations import Operator
from dragoman.client.options import CallOptions, ContentReceiver
from dragoman.core.names import DEFAULT_SCOPE, RESOURCE_NAME, nearest, tenant_of
from dragoman_pb.dragoman.ops import v1 as ops

MAX_NAMED_AGENTS: Final = 10  # agents that the error of an unknown agent names


@dataclass(frozen=True, slots=True)
class ProtocolOptions:
    """The version and the protocol binding of a call."""

    dialect: Annotated[
        str, option("--dialect", "1.0|0.3|0.1", "The version of A2A to use. [the newest of the card; else 1.0]")
    ] = ""
    binding: Annotated[
        str,
        option("--binding", "grpc|rest|jsonrpc|ws", "The protocol binding to use. [the first of the card; else grpc]"),
    ] = ""
    show_wire: Annotated[bool, flag("--show-wire", "Print requests and responses on stderr.")] = False

    def client(self, target: ServerTarget, tenant: str, receive: ContentReceiver = read_part) -> Client:
        """Returns an unopened client. receive: reads the contents that responses link to. Ends the process with a usage
        error for unsupported combinations."""
        server = target.server
        if self.binding in ("rest", "jsonrpc", "ws"):
            server = http_address(server, f"--binding {self.binding}")
        trace = (lambda direction, text: print_note(f"{direction} {text}")) if self.show_wire else no_wire_trace
        try:
            return Client(
                server,
                agent=tenant,
                dialect=self.dialect,
                binding=self.binding,
                parent=current_traceparent(),
                options=CallOptions(token=target.key, trace=trace, receive_content=receive),
            )
        except ValueError as error:
            raise typer.Exit(print_error(error, ExitCode.USAGE)) from error


async def task_client(
    target: ServerTarget,
    task_id: str,
    agent: str,
    scope: str,
    receive: ContentReceiver = read_part,
    protocol: ProtocolOptions = ProtocolOptions(),
) -> Client:
    """Returns the unopened client of the agent and scope that a task belongs to. Empty `agent` and `scope` match any.
    For a task that is not found, and on other servers than Dragoman, the client is that of the named agent, so that the
    call reports the error."""
    if not (agent and scope):
        request = ops.ListTasksRequest(task_id=task_id, agent=agent, scope=scope, own=True)
        found: Sequence[ops.ListedTask] = ()
        try:
            found = (await target.call(Operator.list_tasks, request)).tasks
        except ClientError as error:
            if error.unreachable:
                raise
        if len(found) > 1:
            places = "; ".join(sorted(f"--agent {one.agent} --scope {one.scope}" for one in found))
            text = f"several of your tasks have the id {task_id}; choose one: {places}"
            raise typer.Exit(print_error(text, ExitCode.USAGE))
        if found:
            agent, scope = found[0].agent, found[0].scope
    return protocol.client(target, check_scope(agent, scope), receive)


@asynccontextmanager
async def open_task_client(
    target: ServerTarget, task_id: str, agent: str, scope: str, receive: ContentReceiver = read_part
) -> AsyncIterator[Client]:
    """Opens the client of `task_client`."""
    client = await task_client(target, task_id, agent, scope, receive)
    async with naming_agents(target, client), client:
        yield client


@asynccontextmanager
async def naming_agents(target: ServerTarget, client: Client) -> AsyncIterator[None]:
    """Replaces the error of an unknown agent by one that names the agents meant."""
    try:
        yield
    except ClientError as error:
        agent = scope_and_agent(client)[1]
        is_unknown = error.reason == "AGENT_NOT_FOUND" or any(one.field == "tenant" for one in error.violations)
        if not agent or not is_unknown:
            raise
        raise unknown_agent(agent, await served_agents(target)) from error


async def served_agents(target: ServerTarget) -> Sequence[str]:
    """The ids of a server's agents; none for callers without the grant `operator`."""
    with suppress(ClientError):
        return [one.id for one in (await target.call(Operator.list_agents, ops.ListAgentsRequest())).agents]
    return ()


def unknown_agent(agent: str, ids: Sequence[str]) -> NotFound:
    """The error of an agent that is not one of a server's `ids`."""
    near = nearest(agent, ids)
    names = f"; use one of {', '.join(ids[:MAX_NAMED_AGENTS])}" if ids else ""
    advice = f"; did you mean {near}?" if near else names
    return NotFound("NOT_FOUND", f'no agent "{agent}"{advice}', reason="AGENT_NOT_FOUND")


def check_scope(agent: str, scope: str) -> str:
    """Returns the tenant of an agent in a scope. Ends the process with a usage error for a scope without agent."""
    if scope not in ("", DEFAULT_SCOPE) and not agent:
        raise typer.Exit(print_error(f"--scope {scope}: name the agent in this scope: --agent NAME", ExitCode.USAGE))
    return tenant_of(scope or DEFAULT_SCOPE, agent)


def scope_and_agent(client: Client) -> tuple[str, str]:
    resource = RESOURCE_NAME.fullmatch(client.agent)
    return (resource["scope"], resource["agent"]) if resource else (DEFAULT_SCOPE, client.agent)


def command_line(verb: str, task_id: str, client: Client) -> str:
    """The command line that continues with a task, with agent, scope and address where they are not the defaults."""
    words = ["dragoman", verb, task_id]
    scope, agent = scope_and_agent(client)
    if agent:
        words += ["--agent", agent]
    if scope != DEFAULT_SCOPE:
        words += ["--scope", scope]
    if client.address not in (DEFAULT_SERVER, DEFAULT_HTTP_URL):
        words += ["--server", client.address]
    return " ".join(words)
