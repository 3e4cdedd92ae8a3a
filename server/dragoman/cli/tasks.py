"""The commands that work with tasks: `send`, `get`, `watch`, `list`, `explain`, `steps`."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from dragoman.cli import ExitCode, print_error, task_calls
from dragoman.cli.options import (
    DEFAULT_MESSAGE_BYTES,
    DEFAULT_SERVER,
    AgentFilter,
    AgentName,
    Ca,
    Cert,
    Json,
    Key,
    OneTaskState,
    PrincipalFilter,
    Save,
    ScopeFilter,
    Server,
    TaskAgent,
    TaskId,
    TaskScope,
)
from dragoman.cli.output import ConsoleOutput, format_time, json_line, rfc3339
from dragoman.client.calls import message as message_of
from dragoman.client.content import media_type
from dragoman.client.operations import Operator
from dragoman.core.durations import parse_age
from dragoman_pb.dragoman.ops.v1 import ops_pb2 as ops
from dragoman_pb.dragoman.ops.v1 import push_pb2 as ops_push
from dragoman_pb.dragoman.ops.v1 import steps_pb2 as ops_steps
from dragoman_pb.dragoman.ops.v1 import tasks_pb2 as ops_tasks
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb


def register(cli: typer.Typer) -> None:
    """Adds the commands."""
    for name, command in (
        ("send", send),
        ("get", get),
        ("watch", watch),
        ("list", list_tasks),
        ("explain", explain),
        ("steps", list_steps),
    ):
        cli.command(name)(command)


def send(
    text: Annotated[
        str, typer.Argument(metavar="TEXT", help="The message; `-` reads it from stdin.", show_default=False)
    ] = "",
    agent: AgentName = "",
    scope: Annotated[
        str,
        typer.Option("--scope", metavar="NAME", help="Call the agent within this scope: projects/.../assistants/ID."),
    ] = "",
    stream: Annotated[bool, typer.Option("--stream", metavar=" ", help="Print the answer as it is produced.")] = False,
    file: Annotated[
        list[Path] | None,
        typer.Option("--file", "-f", metavar="PATH", help="Attach a file; may be repeated."),
    ] = None,
    task: Annotated[
        str, typer.Option("--task", metavar="ID", help="Send to this task: an answer, or a further message.")
    ] = "",
    context: Annotated[
        str, typer.Option("--context", metavar="ID", help="Start a new task in this conversation.")
    ] = "",
    no_wait: Annotated[
        bool, typer.Option("--no-wait", metavar=" ", help="Print the task's id and exit; the task continues.")
    ] = False,
    save: Save = None,
    json: Json = False,
    server: Server = DEFAULT_SERVER,
    ca: Ca = None,
    cert: Cert = None,
    key: Key = "",
    dialect: Annotated[
        str,
        typer.Option(
            "--dialect", metavar="1.0|0.3|0.1", help="The version of A2A to use. [the newest of the card; else 1.0]"
        ),
    ] = "",
    binding: Annotated[
        str,
        typer.Option(
            "--binding",
            metavar="grpc|rest|jsonrpc|ws",
            help="The protocol binding to use. [the first of the card; else grpc]",
        ),
    ] = "",
    show_wire: Annotated[
        bool, typer.Option("--show-wire", metavar=" ", help="Print requests and responses on stderr.")
    ] = False,
    message_bytes: Annotated[
        int,
        typer.Option(
            "--message-bytes", envvar="DRAGOMAN_MESSAGE_BYTES", hidden=True, help="The server's message size limit."
        ),
    ] = DEFAULT_MESSAGE_BYTES,
) -> None:
    """Send a message to an agent and wait for the result.

    The answer is printed on stdout, progress on stderr. Ctrl-C stops waiting; the task continues.

    **Examples**

    `dragoman send "echo hello"`

    `dragoman send "stream 5 200" --stream`

    `dragoman send --agent csv-profile --file sales.csv --stream`

    `id=$(dragoman send "sleep 60" --no-wait); dragoman watch $id`

    `dragoman send --task $id "forty-two"`  answers a task that waits for input

    `dragoman send "echo hi" --dialect 0.3 --binding jsonrpc --show-wire`

    **Exit codes**: 0 completed, or the task waits for your answer; 1 failed, rejected or canceled; 2 invalid usage;
    3 the server is unreachable or rejected the request; 4 no such task or agent; 130 interrupted by Ctrl-C.
    """
    if no_wait and stream:
        raise typer.BadParameter("--no-wait exits before there is output to --stream; pass only one of them")
    if not text and not file:
        raise typer.BadParameter("the message is empty; pass TEXT, or --file PATH, or both")
    message = build_message(text, file or [], task=task, context=context, limit=message_bytes)
    tenant = task_calls.check_scope(agent, scope)
    build = partial(task_calls.build_client, server, key=key, dialect=dialect, binding=binding, show_wire=show_wire)
    client = build(tenant)  # reports invalid combinations before a call
    run = (
        partial(task_calls.send_without_waiting, request=message, json=json)
        if no_wait
        else partial(task_calls.send, request=message, json=json, stream=stream, save=save)
    )
    if task and dialect != "0.1":  # whose clients choose the ids of new tasks
        command = task_calls.run_on_task(client.address, key, task, agent=agent, scope=scope, command=run, client=build)
    else:
        command = task_calls.name_agents(client.address, key, agent, run(client))
    task_calls.run_command(client.address, command)


def get(
    task: TaskId,
    agent: TaskAgent = "",
    scope: TaskScope = "",
    history: Annotated[
        int | None, typer.Option("--history", min=0, metavar="N", help="Also print the last N messages.")
    ] = None,
    save: Save = None,
    json: Json = False,
    server: Server = DEFAULT_SERVER,
    ca: Ca = None,
    cert: Cert = None,
    key: Key = "",
) -> None:
    """Show a task: state, status message, artifacts.

    **Example**: `dragoman get 0199f3c2-5c1e-7000-8000-3b1f0a52c0de --history 10`
    """
    show = partial(task_calls.get, task_id=task, history=history, json=json, save=save)
    task_calls.run_command(server, task_calls.run_on_task(server, key, task, agent=agent, scope=scope, command=show))


def watch(
    task: TaskId,
    agent: TaskAgent = "",
    scope: TaskScope = "",
    after: Annotated[
        str, typer.Option("--after", metavar="CURSOR", help="Start after this cursor or event number.")
    ] = "",
    save: Save = None,
    json: Json = False,
    server: Server = DEFAULT_SERVER,
    ca: Ca = None,
    cert: Cert = None,
    key: Key = "",
) -> None:
    """Follow a task until it ends.

    Prints what the task has produced so far, then each event as it happens. Any number of clients can watch a task.
    A broken connection is resumed at the same event, for up to a minute.

    **Example**: `dragoman watch 0199f3c2-5c1e-7000-8000-3b1f0a52c0de`
    """
    follow = partial(task_calls.watch, task_id=task, after=after, json=json, save=save)
    task_calls.run_command(server, task_calls.run_on_task(server, key, task, agent=agent, scope=scope, command=follow))


def list_tasks(
    agent: AgentFilter = "",
    scope: ScopeFilter = "",
    context: Annotated[str, typer.Option("--context", metavar="ID", help="Only this conversation.")] = "",
    state: OneTaskState = None,
    since: Annotated[
        str, typer.Option("--since", metavar="AGE", help="Only tasks that changed within this time: 30m, 12h, 7d.")
    ] = "",
    limit: Annotated[
        int, typer.Option("--limit", "-n", metavar="N", min=1, max=1000, help="The maximum number of tasks.")
    ] = 20,
    wide: Annotated[
        bool, typer.Option("--wide", "-w", metavar=" ", help="Also show scope, context, time and usage.")
    ] = False,
    everyone: Annotated[
        bool, typer.Option("--all", metavar=" ", help="The tasks of all callers: for operators and viewers.")
    ] = False,
    json: Json = False,
    server: Server = DEFAULT_SERVER,
    ca: Ca = None,
    cert: Cert = None,
    key: Key = "",
) -> None:
    """List your tasks with the agents of this server, in all scopes, most recently changed first.

    The columns are state, agent, time since the last change, id, and the first words of what was asked; where the
    server does not tell that, of the status message: an answer, a question or an error. `--wide` adds the status
    message, scope, context, time and usage. Only terminals get a header. With `--json` each line is a task with the
    further keys `agent` and `scope`. The store also keeps the tasks of agents that the server does not serve now.

    **Examples**

    `dragoman list --state failed --since 1h`

    `dragoman list --state working --json | jq -r .id`
    """
    try:
        oldest = int(time.time() * 1000) - parse_age(since) if since else 0
    except ValueError as error:
        raise typer.BadParameter(f"--since: {error}") from error
    request = ops_tasks.ListTasksRequest(
        agent=agent,
        scope=scope,
        context_id=context,
        state=f"TASK_STATE_{state.name}" if state else None,
        limit=limit,
        include_artifacts=json,
        own=not everyone,
    )
    task_calls.run_command(server, task_calls.list_tasks(server, key, request, since=oldest, wide=wide, json=json))


def explain(
    task: TaskId,
    agent: AgentFilter = "",
    principal: PrincipalFilter = "",
    scope: ScopeFilter = "",
    json: Json = False,
    server: Server = DEFAULT_SERVER,
    ca: Ca = None,
    cert: Cert = None,
    key: Key = "",
) -> None:
    """Explain a task: who runs it, what happens next, and what to do.

    For operators. Finds tasks of every agent, principal and scope by id. The console shows the same under Execution.

    **Example**: `dragoman explain 0199f3c2-5c1e-7000-8000-3b1f0a52c0de`
    """
    request = ops.ExplainRequest(task_id=task, agent=agent, principal=principal, scope=scope)
    task_calls.run_command(server, print_explanation(server, request, key=key, json=json))


def list_steps(
    task: TaskId,
    agent: AgentFilter = "",
    principal: PrincipalFilter = "",
    scope: ScopeFilter = "",
    json: Json = False,
    server: Server = DEFAULT_SERVER,
    ca: Ca = None,
    cert: Cert = None,
    key: Key = "",
) -> None:
    """List the durable steps of a task: state, attempt, duration, result, error.

    For operators. The columns are step, state, attempt, start, duration or end of a pause, bytes of the result, and the
    error of the last failed attempt. The steps of earlier turns of the task come first.

    **Example**: `dragoman steps 0199f3c2-5c1e-7000-8000-3b1f0a52c0de`
    """
    request = ops_steps.ListStepsRequest(task_id=task, agent=agent, principal=principal, scope=scope)
    task_calls.run_command(server, print_steps(server, request, key=key, json=json))


async def print_steps(server: str, request: ops_steps.ListStepsRequest, *, key: str, json: bool) -> ExitCode:
    """Prints a table of steps, or a line of JSON for each."""
    async with Operator(server, token=key) as operator:
        response = await operator.list_steps(request)
    out = ConsoleOutput()
    if json:
        for step in response.steps:
            out.line(json_line(step))
        return ExitCode.OK
    if not response.steps:
        out.line("no steps")
    width = max((len(step.name) for step in response.steps), default=0)
    turn = 0
    for step in response.steps:
        if step.turn != turn:
            out.line(f"turn that ended with message {step.turn}" if step.turn else "current turn")
            turn = step.turn
        out.line(_format_step(step, width))
    return ExitCode.OK


def _format_step(step: ops_steps.TaskStep, width: int) -> str:
    state = ops_steps.TaskStepState.Name(step.state).removeprefix("TASK_STEP_STATE_")
    started, ended, wake_at = (at.ToMilliseconds() for at in (step.started, step.ended, step.wake_at))
    if 0 < wake_at <= time.time() * 1000:
        state = "SLEPT"
    columns = [step.name.ljust(width), f"{state:<8}", f"attempt {step.attempt:<3}", format_time(started)]
    if wake_at:
        columns.append(f"until {format_time(wake_at)}")
    elif ended:
        columns.append(f"{(ended - started) / 1000:9.3f} s")
    if state == "DONE":
        columns.append(f"{step.result_bytes:,} bytes")
    if step.error:
        columns.append(step.error)
    return "  ".join(columns).rstrip()


async def print_explanation(server: str, request: ops.ExplainRequest, *, key: str, json: bool) -> ExitCode:
    """Prints a task's state, who runs it, and what happens next."""
    async with Operator(server, token=key) as operator:
        response = await operator.explain(request)
    out = ConsoleOutput()
    for one in response.tasks:
        if json:
            times = {"since": one.since, "sessionExpires": one.session_expires}
            out.json(one, **{name: rfc3339(time) for name, time in times.items() if time})
            continue
        out.line(f"task         {one.task_id}")
        out.line(f"agent        {one.agent}")
        out.line(f"scope        {one.scope}")
        out.line(f"principal    {one.principal}")
        out.line(f"state        {one.state.removeprefix('TASK_STATE_')} since {format_time(one.since)}")
        out.line(f"created by   A2A {one.dialect or '?'} client, context {one.context_id}")
        out.line(f"last event   {one.last_event}; {one.subscribers} subscribers on this server")
        out.line(f"messages     {one.queued_messages} not delivered to the agent yet")
        if one.state in ("TASK_STATE_SUBMITTED", "TASK_STATE_WORKING"):  # it counts those of the open turn
            out.line(f"attempt      {one.attempt} of {one.attempts_allowed}")
        out.line(f"held by      {_format_holder(one)}")
        if one.worker:
            out.line(f"worker       {one.worker}")
        if one.tokens or one.cost:
            out.line(f"usage        {one.tokens:,} tokens, cost {one.cost:g}{_format_delegated(one)}")
        if one.trace_id:
            out.line(f"trace        {one.trace_url or one.trace_id}")
        for push in one.pushes:
            out.line(f"push         {_format_push(push)}")
        out.line(f"next         {one.next}")
    return ExitCode.OK


def _format_delegated(explanation: ops.Explanation) -> str:
    if not explanation.delegated_tokens and not explanation.delegated_cost:
        return ""
    return f"; of these {explanation.delegated_tokens:,} and {explanation.delegated_cost:g} by delegated tasks"


def _format_push(push: ops_push.PushConfig) -> str:
    state = ops_push.PushState.Name(push.state).removeprefix("PUSH_STATE_")
    behind = push.last - push.delivered
    lag = f", {behind} events behind" if behind > 0 else ""
    return f"{push.id} to {push.url}: {state}{lag}" + (f"; {push.reason}" if push.reason else "")


def _format_holder(explanation: ops.Explanation) -> str:
    if not explanation.session:
        waiting = f"; waiting, with {explanation.free_slots} free slots on this server" if explanation.ready else ""
        return "no process" + waiting
    where = "this server" if explanation.here else "another process"
    if not explanation.session_expires:
        return f"session {explanation.session}, which has expired"
    left = explanation.session_expires / 1000 - time.time()
    return f"session {explanation.session} of {where}, expires in {left:.0f} s unless renewed"


def build_message(text: str, files: Sequence[Path], *, task: str, context: str, limit: int) -> pb.Message:
    """Builds the message of the command line. Ends the process with a usage error for unreadable files."""
    if text == "-":
        text = sys.stdin.read()
    try:
        parts = file_parts(files, limit)
    except FileError as error:
        raise typer.Exit(print_error(error, ExitCode.USAGE)) from error
    return message_of(text, parts=parts, task=task, context=context)


class FileError(Exception):
    """A file cannot be sent. The text names the file and the reason."""


def file_parts(paths: Sequence[Path], limit: int) -> list[pb.Part]:
    """Returns one part per file, with file name and media type.

    Raises FileError for unreadable files, and, before reading, for files that together exceed `limit` bytes.
    """
    left = limit
    parts = []
    for path in paths:
        try:
            size = path.stat().st_size
            left -= size
            if left < 0:
                raise FileError(
                    f"--file {path}: {size:,} bytes; the files of a message may have {limit:,} bytes in all; "
                    "raise it with serve --message-bytes, or DRAGOMAN_MESSAGE_BYTES for server and client"
                )
            parts.append(pb.Part(raw=path.read_bytes(), filename=path.name, media_type=media_type(path.name)))
        except OSError as error:
            raise FileError(f"--file {path}: {error.strerror or error}") from error
    return parts
