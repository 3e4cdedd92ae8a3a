"""The commands on tasks: calls through `dragoman.client`, results on stdout, progress on stderr.

Every coroutine returns the exit code of its command; `run_command` maps exceptions to exit codes.
"""

from __future__ import annotations

import asyncio
import difflib
import os
import sys
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any, Final, NoReturn

import typer

from dragoman.calling import tls
from dragoman.calling.errors import NotFound, is_resolution_failure
from dragoman.calling.transport import StreamResponses, no_wire_trace
from dragoman.cli import ExitCode, print_error, print_note, wants_json
from dragoman.cli.options import DEFAULT_HTTP_URL, DEFAULT_SERVER, http_address
from dragoman.cli.output import ConsoleOutput, Progress, format_elapsed, format_time, format_usage, state_name, text_of
from dragoman.client import ClientError, calls
from dragoman.client.calls import Client
from dragoman.client.operations import Operator
from dragoman.core.errors import TaskNotFound
from dragoman.core.names import DEFAULT_SCOPE, RESOURCE_NAME, tenant_of
from dragoman.core.task import states
from dragoman_pb.dragoman.ops.v1 import ops_pb2 as ops
from dragoman_pb.dragoman.ops.v1 import tasks_pb2 as ops_tasks
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

_UNSUCCESSFUL: Final = states.TERMINAL - {states.COMPLETED}

MAX_NAMED_AGENTS: Final = 10
"""Agents that the error of an unknown agent names."""

MAX_MESSAGE_WIDTH: Final = 60
"""Characters of a task's status message in a list."""


def run_command(server: str, command: Coroutine[Any, Any, ExitCode]) -> NoReturn:
    """Runs a command against a server and ends the process with its exit code."""
    try:
        code = asyncio.run(command)
    except ClientError as error:
        code = _print_client_error(server, error)
    except KeyboardInterrupt:
        code = ExitCode.INTERRUPTED
    except BrokenPipeError:  # `| head` has closed the pipe; flushing the rest at exit must not fail
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = ExitCode.OK
    raise typer.Exit(code)


def open_client(server: str, agent: str, key: str) -> Client:
    """Returns the unopened client of one agent, over the binding that the address or its card suggests."""
    return Client(server, agent=agent, token=key, parent=calls.current_traceparent())


async def run_on_task(
    server: str,
    key: str,
    task_id: str,
    *,
    agent: str,
    scope: str,
    command: Callable[[Client], Coroutine[Any, Any, ExitCode]],
    client: Callable[[str], Client] | None = None,
) -> ExitCode:
    """Runs a command with the client of the agent and scope that a task belongs to.

    Empty `agent` and `scope` match any. For a task that is not found, and on other servers than Dragoman, the client is
    that of the named agent, so that the command reports the error. `client` makes the client of a tenant; by default it
    is that of `open_client`.
    """
    if not (agent and scope):
        request = ops_tasks.ListTasksRequest(task_id=task_id, agent=agent, scope=scope, own=True)
        found: Sequence[ops_tasks.ListedTask] = ()
        try:
            async with Operator(server, token=key) as operator:
                found = (await operator.list_tasks(request)).tasks
        except ClientError as error:
            if error.unreachable:
                raise
        if len(found) > 1:
            places = "; ".join(sorted(f"--agent {one.agent} --scope {one.scope}" for one in found))
            return print_error(f"several of your tasks have the id {task_id}; choose one: {places}", ExitCode.USAGE)
        if found:
            agent, scope = found[0].agent, found[0].scope
    tenant = check_scope(agent, scope)
    return await name_agents(
        server, key, agent, command(client(tenant) if client else open_client(server, tenant, key))
    )


async def name_agents(server: str, key: str, agent: str, command: Coroutine[Any, Any, ExitCode]) -> ExitCode:
    """Runs a command. If the server has no such agent, raises an error that names the agents meant."""
    try:
        return await command
    except ClientError as error:
        is_unknown = error.reason == "AGENT_NOT_FOUND" or any(one.field == "tenant" for one in error.violations)
        if not agent or not is_unknown:
            raise
        raise _unknown_agent(agent, await _served_agents(server, key)) from error


async def _served_agents(server: str, key: str) -> Sequence[str]:
    """The ids of a server's agents; none for callers without the grant `operator`."""
    ids: Sequence[str] = ()
    with suppress(ClientError):
        async with Operator(server, token=key) as operator:
            ids = [one.id for one in (await operator.list_agents(ops.ListAgentsRequest())).agents]
    return ids


def _unknown_agent(agent: str, ids: Sequence[str]) -> NotFound:
    """The error of an agent that is not one of a server's `ids`."""
    near = difflib.get_close_matches(agent, ids, n=1)
    names = f"; use one of {', '.join(ids[:MAX_NAMED_AGENTS])}" if ids else ""
    advice = f"; did you mean {near[0]}?" if near else names
    return NotFound("NOT_FOUND", f'no agent "{agent}"{advice}', reason="AGENT_NOT_FOUND")


def check_scope(agent: str, scope: str) -> str:
    """Returns the tenant of an agent in a scope. Ends the process with a usage error for a scope without agent."""
    if scope not in ("", DEFAULT_SCOPE) and not agent:
        raise typer.Exit(print_error(f"--scope {scope}: name the agent in this scope: --agent NAME", ExitCode.USAGE))
    return tenant_of(scope or DEFAULT_SCOPE, agent)


def build_client(server: str, agent: str, *, key: str, dialect: str, binding: str, show_wire: bool) -> Client:
    """Returns the client of the command line. Ends the process with a usage error for unsupported combinations."""
    if binding in ("rest", "jsonrpc", "ws"):
        server = http_address(server, f"--binding {binding}")
    try:
        trace = print_wire if show_wire else no_wire_trace
        parent = calls.current_traceparent()
        return Client(server, agent=agent, token=key, dialect=dialect, binding=binding, trace=trace, parent=parent)
    except ValueError as error:
        raise typer.Exit(print_error(error, ExitCode.USAGE)) from error


def print_wire(direction: str, text: str) -> None:
    """Prints a request or response on stderr."""
    print_note(f"{direction} {text}")


async def send_without_waiting(client: Client, request: pb.Message, *, json: bool) -> ExitCode:
    """Sends without waiting. Prints only the task's id on stdout."""
    async with client:
        configuration = pb.SendMessageConfiguration(return_immediately=True)
        response = await client.send(request, configuration=configuration)
    out = ConsoleOutput()
    if json:
        out.json(response)
    elif response.HasField("message"):
        out.message(response.message)
    else:
        out.line(response.task.id)
        state = state_name(response.task.status.state)
        print_note(f"{state}; follow it with: {_command_line('watch', response.task.id, client)}")
    return ExitCode.OK


async def send(client: Client, request: pb.Message, *, json: bool, stream: bool, save: Path | None) -> ExitCode:
    """Sends and waits for the turn to end.

    Uses a stream, so that no proxy or wait limit ends the call early, unless the agent does not support streaming.
    """
    out = _output(client, save, json=json)
    async with client:
        view = _TaskView(client, out, json=json, live=stream)
        try:
            return await view.follow(client.stream(request))
        except ClientError as error:
            if error.reason != "UNSUPPORTED_OPERATION":
                raise
        response = await client.send(request)  # fails again if streaming was not the reason
        event = (
            pb.StreamResponse(task=response.task)
            if response.HasField("task")
            else pb.StreamResponse(message=response.message)
        )
        return await view.follow(_single_event(event))


async def watch(client: Client, task_id: str, *, after: str, json: bool, save: Path | None) -> ExitCode:
    """Follows a task to its end. Prints the final task if it has ended already."""
    out = _output(client, save, json=json)
    async with client:
        view = _TaskView(client, out, json=json, live=True, until_terminal=True)
        try:
            return await view.follow(client.subscribe(task_id, after=after))
        except ClientError as error:
            if error.reason != "UNSUPPORTED_OPERATION":
                raise
            task = await client.get(task_id, history=0)
            if task.status.state not in states.TERMINAL:
                raise
            return await view.follow(_single_event(pb.StreamResponse(task=task)))


async def get(client: Client, task_id: str, *, history: int | None, json: bool, save: Path | None) -> ExitCode:
    """Prints one task."""
    out = _output(client, save, json=json)
    async with client:
        task = await client.get(task_id, history=history if json else history or 0)
    if json:
        out.json(task)
        return ExitCode.OK
    out.line(f"task     {task.id}")
    out.line(f"state    {state_name(task.status.state)}", state=task.status.state)
    out.line(f"since    {format_time(task.status.timestamp)}")
    out.line(f"scope    {scope_and_agent(client)[0]}")
    out.line(f"context  {task.context_id}")
    if usage := format_usage(task):
        out.line(f"usage    {usage}")
    for past in task.history:
        out.line(f"{'user' if past.role == pb.ROLE_USER else 'agent':<8} {text_of(past)}")
    if task.status.HasField("message"):
        out.line(f"agent    {text_of(task.status.message)}")
    for artifact in task.artifacts:
        out.line()
        out.line(f"artifact {artifact.name or artifact.artifact_id}")
        out.artifacts([artifact])
    return ExitCode.OK


async def list_tasks(
    server: str, key: str, request: ops_tasks.ListTasksRequest, *, since: int, wide: bool, json: bool
) -> ExitCode:
    """Prints tasks, one line each. since: milliseconds since the epoch; tasks that changed before are left out."""
    async with Operator(server, token=key) as operator:
        tasks = (await operator.list_tasks(request)).tasks
    if request.agent and not tasks and (ids := await _served_agents(server, key)) and request.agent not in ids:
        raise _unknown_agent(request.agent, ids)
    listed = [one for one in tasks if one.task.status.timestamp.ToMilliseconds() >= since]
    out = ConsoleOutput()
    if json:
        for one in listed:
            out.json(one.task, agent=one.agent, scope=one.scope)
        return ExitCode.OK
    if not listed:
        print_note("no tasks")
        return ExitCode.OK
    now = time.time() * 1000
    more_columns = ("STATUS", "SCOPE", "CONTEXT", "CHANGED", "USAGE") if wide else ()
    header = ("STATE", "AGENT", "AGE", "ID", "MESSAGE", *more_columns)
    rows: list[tuple[str, ...]] = []
    for one in listed:
        status = one.task.status
        row = (
            state_name(status.state),
            one.agent if wide or one.scope == DEFAULT_SCOPE else f"{one.scope}/agents/{one.agent}",
            format_elapsed(now - status.timestamp.ToMilliseconds()),
            one.task.id,
            " ".join((one.summary or text_of(status.message)).split())[:MAX_MESSAGE_WIDTH] or "-",
        )
        text = (text_of(status.message) if one.summary else "")[:MAX_MESSAGE_WIDTH] or "-"
        more = (text, one.scope, one.task.context_id, format_time(status.timestamp), format_usage(one.task))
        rows.append((*row, *more) if wide else row)
    out.table(header, rows, [one.task.status.state for one in listed])
    return ExitCode.OK


async def cancel(client: Client, task_id: str, *, json: bool) -> ExitCode:
    """Requests that a task stops."""
    async with client:
        try:
            task = await client.cancel(task_id)
        except ClientError as error:
            if error.reason != "TASK_NOT_CANCELABLE":
                raise
            status = (await client.get(task_id, history=0)).status
            ended = f"task {task_id} is {state_name(status.state)} since {format_time(status.timestamp)}"
            return print_error(
                f"{ended}; a task that has ended cannot be canceled", ExitCode.UNAVAILABLE, name=error.reason
            )
    out = ConsoleOutput()
    if json:
        out.json(task)
        return ExitCode.OK
    out.line(f"{state_name(task.status.state)}  {task.id}", state=task.status.state)
    if task.status.state not in states.TERMINAL:
        print_note(f"the agent has not stopped yet; follow it with: {_command_line('watch', task_id, client)}")
    return ExitCode.OK


def _output(client: Client, save: Path | None, *, json: bool) -> ConsoleOutput:
    """The output of a command, which also receives large files. In JSON they are in their parts, like small ones."""
    out = ConsoleOutput(save)
    if not json:
        client.set_content_receiver(out.receive)
    return out


class _TaskView:
    """Prints a task from its events: each event as it arrives (`live`), or the complete task at the end.

    until_terminal: the stream ends only with the task. Otherwise it also ends when the task waits for its caller.
    """

    def __init__(
        self, client: Client, out: ConsoleOutput, *, json: bool, live: bool, until_terminal: bool = False
    ) -> None:
        self._client = client
        self._out = out
        self._json = json
        self._live = live
        self._until_terminal = until_terminal
        self._id = ""
        self._artifact_ids: set[str] = set()
        self._status = pb.TaskStatus()
        self._progress = Progress(may_show=lambda: out.at_line_start or not out.is_terminal)

    async def follow(self, events: StreamResponses) -> ExitCode:
        """Prints the events to their end. Returns the exit code for the task's last state."""
        with self._progress:
            try:
                async with aclosing(events):
                    async for event in events:
                        self._progress.hide()
                        self._on_event(event)
                        self._progress.show()
                if self._id and not self._live:
                    await self._print_task()
            except (asyncio.CancelledError, ClientError):
                if self._out.is_terminal:  # what follows begins on a line of its own, not after half a chunk
                    self._out.end_line()
                if self._id and self._status.state not in states.TERMINAL:
                    self._progress.note(f"the task continues; follow it with: {self._follow_up('watch')}")
                raise
            if self._id:
                self._finish()
        return ExitCode.FAILED if self._status.state in _UNSUCCESSFUL else ExitCode.OK

    def _on_event(self, event: pb.StreamResponse) -> None:
        if self._json and (self._live or event.HasField("message")):
            self._out.json(event)
        as_text = self._live and not self._json
        match event.WhichOneof("payload"):
            case "task":
                self._id = event.task.id
                self._on_status(event.task.status)
                if as_text:
                    for artifact in event.task.artifacts:
                        self._on_artifact(artifact, append=False)
                    self._out.artifacts(event.task.artifacts)
            case "status_update":
                self._id = self._id or event.status_update.task_id  # streams of 0.1 contain no Task
                self._on_status(event.status_update.status)
            case "artifact_update" if as_text:
                self._on_artifact(event.artifact_update.artifact, append=event.artifact_update.append)
                self._out.chunk(event.artifact_update)
            case "message" if not self._json:
                self._out.message(event.message)

    def _on_artifact(self, artifact: pb.Artifact, *, append: bool) -> None:
        """Notes that what was printed of an artifact is void: stdout shows both texts, and not which one counts."""
        if artifact.artifact_id in self._artifact_ids and artifact.parts and not append:
            self._out.end_line()
            name = artifact.name or artifact.artifact_id
            self._progress.note(f"artifact {name} starts over; discard its earlier text")
        self._artifact_ids.add(artifact.artifact_id)

    def _on_status(self, status: pb.TaskStatus) -> None:
        self._status = status
        ends = states.TERMINAL if self._until_terminal else states.TERMINAL | states.INTERRUPTED
        if status.state not in ends:
            self._progress.update(state_name(status.state), text_of(status.message))

    async def _print_task(self) -> None:
        task = await self._client.get(self._id, history=0)
        self._status = task.status
        self._progress.hide()
        if self._json:
            self._out.json(pb.SendMessageResponse(task=task))
        else:
            self._out.artifacts(task.artifacts)

    def _finish(self) -> None:
        """Prints the status message on stdout, unless it explains a failure, and the outcome on stderr."""
        self._progress.hide()
        state, text = self._status.state, text_of(self._status.message)
        self._out.end_line()
        if self._status.HasField("message") and state not in _UNSUCCESSFUL and not self._json:
            self._out.message(self._status.message)
        reason = f": {text}" if text and state in _UNSUCCESSFUL else ""
        outcome = f"{state_name(state)}  task {self._id}  {self._progress.elapsed}{reason}"
        self._progress.note(outcome, state=state)
        if state in states.INTERRUPTED:
            self._progress.note(f"answer it with: {self._follow_up('send --task')} TEXT")
        elif state not in states.TERMINAL:
            self._progress.note(f"follow it with: {self._follow_up('watch')}")

    def _follow_up(self, verb: str) -> str:
        return _command_line(verb, self._id, self._client)


async def _single_event(event: pb.StreamResponse) -> StreamResponses:
    yield event


def scope_and_agent(client: Client) -> tuple[str, str]:
    """The scope and the agent that a client calls."""
    resource = RESOURCE_NAME.fullmatch(client.agent)
    return (resource["scope"], resource["agent"]) if resource else (DEFAULT_SCOPE, client.agent)


def _command_line(verb: str, task_id: str, client: Client) -> str:
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


def _print_client_error(server: str, error: ClientError) -> ExitCode:
    code = ExitCode.NOT_FOUND if isinstance(error, NotFound) else ExitCode.UNAVAILABLE
    if error.unreachable:
        if advice := tls.tls_advice(error.message):
            return print_error(f"{server}: {advice}", code, name=error.code)
        reason = error.message.rpartition(": ")[2]
        if is_resolution_failure(error.message):
            reason = "the name cannot be resolved"
        print_error(f"cannot connect to {server}: {reason}", code, name=error.code)
        if not wants_json():
            print_note(
                "start a server with: dragoman serve; or pass the address of one: --server URL (DRAGOMAN_SERVER)"
            )
        return code
    violations = [one for one in error.violations if one.description not in error.message]
    if wants_json():
        fields = [{"field": one.field, "description": one.description} for one in error.violations]
        details = {"violations": fields} if fields else {}
        return print_error(error.message, code, name=error.reason or error.code, **details)
    print_error(f"{error.message} ({error.reason or error.code})", code)
    if "UNAUTHENTICATED" in (error.reason, error.code):
        print_note("pass an API key or another token that the server accepts: --key KEY (DRAGOMAN_KEY)")
    if error.message == TaskNotFound().message:  # the reason may also mean a push configuration
        print_note(
            "pass the complete id, as `dragoman list` shows it; tasks of other callers, and of agents that this server "
            "does not serve, cannot be found"
        )
    for violation in violations:
        print_note(f"  {violation.field}: {violation.description}")
    return code
