"""What the commands on tasks do: calls through `dragoman.client`, results on stdout, progress on stderr.

Every coroutine gives the exit code of its command; `run` turns what goes wrong into the others.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Coroutine, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, Final, NoReturn

import typer

from dragoman.calling import tls
from dragoman.calling.transport import StreamResponses, no_wire_trace
from dragoman.cli.output import ConsoleOutput, Progress, format_status_time, format_usage, state_name, text_of
from dragoman.cli.tasks import DEFAULT_GRPC_ADDRESS
from dragoman.client import Client, ClientError, calls, message
from dragoman.client.content import media_type
from dragoman.core.task import states
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

EXIT_OK: Final = 0
EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_UNAVAILABLE: Final = 3
EXIT_INTERRUPTED: Final = 130

_UNSUCCESSFUL: Final = states.TERMINAL - {states.COMPLETED}


def run_command(grpc: str, command: Coroutine[Any, Any, int], *, by_agent: bool = True) -> NoReturn:
    """Runs a command that talks to the server at `grpc` to its exit code. `by_agent`: it asks one agent for a task."""
    try:
        code = asyncio.run(command)
    except ClientError as error:
        _print_error(grpc, error, by_agent=by_agent)
        code = EXIT_UNAVAILABLE
    except KeyboardInterrupt:
        code = EXIT_INTERRUPTED
    except BrokenPipeError:  # `| head` has seen enough; what is still buffered must not fail at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = EXIT_OK
    raise typer.Exit(code)


def build_message(text: str, files: Sequence[Path], *, task: str, context: str, limit: int) -> pb.Message:
    """The message that the command line describes. Ends the process with a usage error for files it cannot read."""
    if text == "-":
        text = sys.stdin.read()
    try:
        parts = file_parts(files, limit)
    except FileError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(EXIT_USAGE) from error
    return message(text, parts=parts, task=task, context=context)


def grpc_client(grpc: str, agent: str, token: str) -> Client:
    """The client of the commands that speak 1.0 over gRPC alone."""
    return Client(grpc, agent=agent, token=token, parent=calls.current_traceparent())


def build_client(grpc: str, url: str, agent: str, *, token: str, dialect: str, binding: str, show_wire: bool) -> Client:
    """The client that the command line describes. Ends the process with a usage error for what is not spoken."""
    try:
        address = grpc if binding == "grpc" else url
        trace = print_wire if show_wire else no_wire_trace
        parent = calls.current_traceparent()
        return Client(address, agent=agent, token=token, dialect=dialect, binding=binding, trace=trace, parent=parent)
    except ValueError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(EXIT_USAGE) from error


def print_wire(direction: str, text: str) -> None:
    """Prints what goes over the wire."""
    _print_note(f"{direction} {text}")


async def send_without_waiting(client: Client, request: pb.Message, *, json: bool) -> int:
    """Sends and does not wait: the task's id, and nothing else, on stdout."""
    async with client:
        now = pb.SendMessageConfiguration(return_immediately=True)
        answer = await client.send(request, configuration=now)
    out = ConsoleOutput()
    if json:
        out.json(answer)
    elif answer.HasField("message"):
        out.message(answer.message)
    else:
        out.line(answer.task.id)
        state = state_name(answer.task.status.state)
        _print_note(f"{state}; follow it with: {_command_line('watch', answer.task.id, client)}")
    return EXIT_OK


async def send(client: Client, request: pb.Message, *, json: bool, stream: bool, save: Path | None) -> int:
    """Sends and waits for the turn to end. Waiting is a stream underneath, so that no proxy or limit cuts it; but for
    an agent that does not stream."""
    async with client:
        shown = _TaskView(client, ConsoleOutput(save), json=json, live=stream)
        try:
            return await shown.follow(client.stream(request))
        except ClientError as error:
            if error.reason != "UNSUPPORTED_OPERATION":
                raise
        answer = await client.send(request)  # refused once more where it was something else
        told = (
            pb.StreamResponse(task=answer.task)
            if answer.HasField("task")
            else pb.StreamResponse(message=answer.message)
        )
        return await shown.follow(_single_event(told))


async def watch(client: Client, task_id: str, *, after: str, json: bool, save: Path | None) -> int:
    """Follows a task to its end; one that has ended is shown as it is."""
    async with client:
        shown = _TaskView(client, ConsoleOutput(save), json=json, live=True, until_terminal=True)
        try:
            return await shown.follow(client.subscribe(task_id, after=after))
        except ClientError as error:
            if error.reason != "UNSUPPORTED_OPERATION":
                raise
            task = await client.get(task_id, history=0)
            if task.status.state not in states.TERMINAL:
                raise
            return await shown.follow(_single_event(pb.StreamResponse(task=task)))


async def get(client: Client, task_id: str, *, history: int | None, json: bool, save: Path | None) -> int:
    """Shows one task."""
    async with client:
        task = await client.get(task_id, history=history if json else history or 0)
    out = ConsoleOutput(save)
    if json:
        out.json(task)
        return EXIT_OK
    out.line(f"task     {task.id}")
    out.line(f"state    {state_name(task.status.state)}")
    out.line(f"since    {format_status_time(task)}")
    out.line(f"context  {task.context_id}")
    if used := format_usage(task):
        out.line(f"used     {used}")
    for said in task.history:
        out.line(f"{'user' if said.role == pb.ROLE_USER else 'agent':<8} {text_of(said)}")
    if task.status.HasField("message"):
        out.line(f"agent    {text_of(task.status.message)}")
    for artifact in task.artifacts:
        out.line()
        out.line(f"artifact {artifact.name or artifact.artifact_id}")
        out.artifacts([artifact])
    return EXIT_OK


async def list_tasks(client: Client, *, context: str, state: str, limit: int, json: bool) -> int:
    """Lists tasks, one line each."""
    out = ConsoleOutput()
    wanted = f"TASK_STATE_{state}" if state else pb.TASK_STATE_UNSPECIFIED
    found = 0
    async with (
        client,
        aclosing(client.list(context=context, state=wanted, page_size=min(limit, 100), history=0)) as tasks,
    ):
        async for task in tasks:
            found += 1
            if json:
                out.json(task)
            else:
                used = f"  {told}" if (told := format_usage(task)) else ""
                out.line(
                    f"{task.id}  {state_name(task.status.state):<14}  {format_status_time(task)}  {task.context_id}{used}"
                )
            if found == limit:
                break
    if not found and not json:
        _print_note("no tasks")
    return EXIT_OK


async def cancel(client: Client, task_id: str, *, json: bool) -> int:
    """Asks for a task to stop."""
    async with client:
        task = await client.cancel(task_id)
    out = ConsoleOutput()
    if json:
        out.json(task)
        return EXIT_OK
    out.line(f"{state_name(task.status.state)}  {task.id}")
    if task.status.state not in states.TERMINAL:
        _print_note(f"its agent has not stopped yet; follow it with: {_command_line('watch', task_id, client)}")
    return EXIT_OK


class _TaskView:
    """One task as it is shown while its events arrive: each of them (`live`), or the whole at the end.

    They end with the task if they are read `to_the_end`, otherwise when it waits for its caller, too.
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
        self._status = pb.TaskStatus()
        self._progress = Progress(may_show=lambda: out.at_line_start or not out.is_terminal)

    async def follow(self, events: StreamResponses) -> int:
        """Shows what `events` tell of a task. Gives the exit code of the state it has then."""
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
                if self._id and self._status.state not in states.TERMINAL:
                    self._progress.note(f"the task goes on; follow it with: {self._follow_up('watch')}")
                raise
            if self._id:
                self._finish()
        return EXIT_FAILED if self._status.state in _UNSUCCESSFUL else EXIT_OK

    def _on_event(self, event: pb.StreamResponse) -> None:
        if self._json and (self._live or event.HasField("message")):
            self._out.json(event)
        for_people = self._live and not self._json
        match event.WhichOneof("payload"):
            case "task":
                self._id = event.task.id
                self._on_status(event.task.status)
                if for_people:
                    self._out.artifacts(event.task.artifacts)
            case "status_update":
                self._id = self._id or event.status_update.task_id  # 0.1 streams hold no Task
                self._on_status(event.status_update.status)
            case "artifact_update" if for_people:
                self._out.chunk(event.artifact_update)
            case "message" if not self._json:
                self._out.message(event.message)

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
        """What the agent said last, on stdout unless it explains a failure, and how it went, on stderr."""
        self._progress.hide()
        state, said = self._status.state, text_of(self._status.message)
        self._out.end_line()
        if self._status.HasField("message") and state not in _UNSUCCESSFUL and not self._json:
            self._out.message(self._status.message)
        why = f": {said}" if said and state in _UNSUCCESSFUL else ""
        self._progress.note(f"{state_name(state)}  task {self._id}  {self._progress.elapsed}{why}")
        if state in states.INTERRUPTED:
            self._progress.note(f"answer it with: {self._follow_up('send --task')} TEXT")
        elif state not in states.TERMINAL:
            self._progress.note(f"follow it with: {self._follow_up('watch')}")

    def _follow_up(self, verb: str) -> str:
        return _command_line(verb, self._id, self._client)


async def _single_event(event: pb.StreamResponse) -> StreamResponses:
    yield event


def _command_line(verb: str, task_id: str, client: Client) -> str:
    """The command line that goes on with a task, with what is needed to reach it from the same place."""
    words = ["dragoman", verb, task_id]
    if client.agent:
        words += ["--agent", client.agent]
    if client.binding == "grpc" and client.address != DEFAULT_GRPC_ADDRESS:
        words += ["--grpc", client.address]
    return " ".join(words)


def _print_error(grpc: str, error: ClientError, *, by_agent: bool) -> None:
    if error.unreachable:
        if advice := tls.tls_advice(error.message):
            _print_note(f"error: {grpc}: {advice}")
            return
        _print_note(f"error: no server answers at {grpc}: {error.message.rpartition(': ')[2]}")
        _print_note(
            "start one with: dragoman serve; or name another with --grpc HOST:PORT (DRAGOMAN_GRPC) or --url URL"
        )
        return
    _print_note(f"error: {error.message} ({error.reason or error.code})")
    if "UNAUTHENTICATED" in (error.reason, error.code):
        _print_note(
            "say who you are with --token TOKEN (DRAGOMAN_TOKEN): an API key, or another token that the server takes"
        )
    if by_agent and error.reason == "TASK_NOT_FOUND":
        _print_note(
            "a task is found with its agent: --agent NAME, where that is not the root agent (dragoman agents list)"
        )
    for violation in error.violations:
        if violation.description not in error.message:
            _print_note(f"  {violation.field}: {violation.description}")


def _print_note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


class FileError(Exception):
    """A file cannot be sent; the text says which and why."""


def file_parts(paths: Sequence[Path], limit: int) -> list[pb.Part]:
    """One part for each file, with its name and media type.

    Raises FileError for a file that cannot be read, and before reading for files that are over `limit` together.
    """
    left = limit
    parts = []
    for path in paths:
        try:
            size = path.stat().st_size
            left -= size
            if left < 0:
                raise FileError(
                    f"--file {path}: {size:,} bytes; a message may hold {limit:,} in all "
                    "(serve --message-bytes, or DRAGOMAN_MESSAGE_BYTES here and there)"
                )
            parts.append(pb.Part(raw=path.read_bytes(), filename=path.name, media_type=media_type(path.name)))
        except OSError as error:
            raise FileError(f"--file {path}: {error.strerror or error}") from error
    return parts
