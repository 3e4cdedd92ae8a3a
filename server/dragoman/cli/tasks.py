"""`send`, `get`, `watch`, `list`, `cancel`: what can be asked of tasks, and how it is said.

Only the options are here. What the commands do is in `talk.py`, imported when one of them runs, so that
`dragoman --help` need not wait for gRPC.
"""

from __future__ import annotations

import time
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from google.protobuf.json_format import MessageToJson

from dragoman.cli import completion
from dragoman.cli.output import ConsoleOutput
from dragoman.client.operations import Operator
from dragoman_pb.dragoman.ops.v1 import ops_pb2 as ops
from dragoman_pb.dragoman.ops.v1 import push_pb2 as ops_push

Grpc = Annotated[
    str,
    typer.Option(
        "--grpc",
        envvar="DRAGOMAN_GRPC",
        metavar="HOST:PORT",
        help="The server's gRPC address; grpcs://HOST:PORT where it is encrypted.",
    ),
]


def _use_ca(ctx: typer.Context, ca: Path | None) -> Path | None:
    if ca is not None:
        from dragoman.calling import tls

        ctx.call_on_close(tls.use_ca(ca))
    return ca


Ca = Annotated[
    Path | None,
    typer.Option(
        "--ca",
        envvar="DRAGOMAN_CA",
        metavar="FILE",
        callback=_use_ca,
        help="Who may have signed the server's certificate, in PEM. [the system's authorities]",
        show_default=False,
    ),
]
"""Holds until the command ends, so commands need not hand it on."""


def _use_cert(ctx: typer.Context, cert: Path | None) -> Path | None:
    if cert is not None:
        from dragoman.calling import tls

        ctx.call_on_close(tls.use_cert(cert))
    return cert


Cert = Annotated[
    Path | None,
    typer.Option(
        "--cert",
        envvar="DRAGOMAN_CERT",
        metavar="FILE",
        callback=_use_cert,
        help="Your certificate and its key, in one file in PEM, if the server asks for one.",
        show_default=False,
    ),
]
"""As `Ca`."""
Token = Annotated[
    str,
    typer.Option(
        "--token",
        envvar="DRAGOMAN_TOKEN",
        metavar="TOKEN",
        help="Who you are, if the server asks: an API key or token.",
    ),
]
AgentName = Annotated[
    str,
    typer.Option(
        "--agent",
        metavar="NAME",
        help="The agent's id; without it, the server's root agent.",
        autocompletion=completion.agents,
    ),
]
Json = Annotated[bool, typer.Option("--json", metavar=" ", help="ProtoJSON on stdout, one object a line.")]
Save = Annotated[
    Path | None,
    typer.Option("--save", metavar="DIR", file_okay=False, help="Write files that come back into this folder."),
]
TaskId = Annotated[
    str,
    typer.Argument(metavar="TASK", help="The id of a task.", show_default=False, autocompletion=completion.tasks),
]

DEFAULT_GRPC_ADDRESS = "127.0.0.1:50051"
DEFAULT_HTTP_URL = "http://127.0.0.1:8080"
DEFAULT_MESSAGE_BYTES = 16 * 1024 * 1024


class TaskStateOption(StrEnum):
    """States as one types them."""

    SUBMITTED = "submitted"
    WORKING = "working"
    INPUT_REQUIRED = "input-required"
    AUTH_REQUIRED = "auth-required"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELED = "canceled"
    REJECTED = "rejected"


def register(cli: typer.Typer) -> None:
    """Adds the commands."""
    for name, command in (
        ("send", send),
        ("get", get),
        ("watch", watch),
        ("list", list_tasks),
        ("cancel", cancel),
        ("explain", explain),
    ):
        cli.command(name)(command)


def send(
    text: Annotated[
        str, typer.Argument(metavar="TEXT", help="The message; `-` reads it from stdin.", show_default=False)
    ] = "",
    agent: AgentName = "",
    stream: Annotated[bool, typer.Option("--stream", metavar=" ", help="Print the answer as it is made.")] = False,
    file: Annotated[
        list[Path] | None,
        typer.Option("--file", "-f", metavar="PATH", help="Attach a file; may be repeated."),
    ] = None,
    task: Annotated[
        str, typer.Option("--task", metavar="ID", help="Continue this task: answer it, or tell it more.")
    ] = "",
    context: Annotated[
        str, typer.Option("--context", metavar="ID", help="Start a new task in this conversation.")
    ] = "",
    no_wait: Annotated[
        bool, typer.Option("--no-wait", metavar=" ", help="Print the task's id and leave; the task goes on.")
    ] = False,
    save: Save = None,
    json: Json = False,
    grpc: Grpc = DEFAULT_GRPC_ADDRESS,
    ca: Ca = None,
    cert: Cert = None,
    token: Token = "",
    url: Annotated[
        str,
        typer.Option(
            "--url",
            envvar="DRAGOMAN_URL",
            metavar="URL",
            help="The server's HTTP address, but for gRPC; https:// where it is encrypted.",
        ),
    ] = DEFAULT_HTTP_URL,
    dialect: Annotated[
        str, typer.Option("--dialect", metavar="1.0|0.3|0.1", help="The generation of A2A to speak.")
    ] = "1.0",
    binding: Annotated[
        str, typer.Option("--binding", metavar="grpc|rest|jsonrpc|ws", help="What carries the call.")
    ] = "grpc",
    show_wire: Annotated[
        bool, typer.Option("--show-wire", metavar=" ", help="Print what goes over the wire on stderr.")
    ] = False,
    message_bytes: Annotated[
        int,
        typer.Option("--message-bytes", envvar="DRAGOMAN_MESSAGE_BYTES", hidden=True, help="What the server accepts."),
    ] = DEFAULT_MESSAGE_BYTES,
) -> None:
    """Send a message to an agent and wait for what comes of it.

    The answer goes to stdout, everything about its making to stderr. Ctrl-C leaves the task running.

    **Examples**

    `dragoman send "echo hello"`

    `dragoman send "stream 5 200" --stream`

    `dragoman send --agent csv-profile --file sales.csv --stream`

    `id=$(dragoman send "sleep 60" --no-wait); dragoman watch $id`

    `dragoman send --task $id "forty-two"`  answers a task that asked

    `dragoman send "echo hi" --dialect 0.3 --binding jsonrpc --show-wire`

    **Exit codes**: 0 completed, or the task waits for your answer; 1 failed, rejected or canceled; 2 wrong usage;
    3 no server, or it refused; 130 Ctrl-C.
    """
    from dragoman.cli import task_calls

    if no_wait and stream:
        raise typer.BadParameter("--no-wait leaves before there is anything to --stream; use one of them")
    if not text and not file:
        raise typer.BadParameter("say something: TEXT, or --file PATH, or both")
    message = task_calls.build_message(text, file or [], task=task, context=context, limit=message_bytes)
    client = task_calls.build_client(
        grpc, url, agent, token=token, dialect=dialect, binding=binding, show_wire=show_wire
    )
    task_calls.run_command(
        client.address,
        task_calls.send_without_waiting(client, message, json=json)
        if no_wait
        else task_calls.send(client, message, json=json, stream=stream, save=save),
    )


def get(
    task: TaskId,
    agent: AgentName = "",
    history: Annotated[
        int | None, typer.Option("--history", min=0, metavar="N", help="Show the last N messages too.")
    ] = None,
    save: Save = None,
    json: Json = False,
    grpc: Grpc = DEFAULT_GRPC_ADDRESS,
    ca: Ca = None,
    cert: Cert = None,
    token: Token = "",
) -> None:
    """Show a task as it is now: state, what its agent last said, artifacts.

    **Example**: `dragoman get 0199f3c2-5c1e-7000-8000-3b1f0a52c0de --history 10`
    """
    from dragoman.cli import task_calls

    client = task_calls.grpc_client(grpc, agent, token)
    task_calls.run_command(grpc, task_calls.get(client, task, history=history, json=json, save=save))


def watch(
    task: TaskId,
    agent: AgentName = "",
    after: Annotated[
        str, typer.Option("--after", metavar="CURSOR", help="Only what follows this cursor (or event number).")
    ] = "",
    save: Save = None,
    json: Json = False,
    grpc: Grpc = DEFAULT_GRPC_ADDRESS,
    ca: Ca = None,
    cert: Cert = None,
    token: Token = "",
) -> None:
    """Follow a task until it ends: what there is of it already, then everything as it happens.

    Many may watch one task; whoever stops watching changes nothing.

    A connection that breaks is taken up again where it broke, for a minute.

    **Example**: `dragoman watch 0199f3c2-5c1e-7000-8000-3b1f0a52c0de`
    """
    from dragoman.cli import task_calls

    task_calls.run_command(
        grpc, task_calls.watch(task_calls.grpc_client(grpc, agent, token), task, after=after, json=json, save=save)
    )


def list_tasks(
    agent: AgentName = "",
    context: Annotated[str, typer.Option("--context", metavar="ID", help="Of this conversation only.")] = "",
    state: Annotated[TaskStateOption | None, typer.Option("--state", help="In this state only.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="At most so many.")] = 20,
    json: Json = False,
    grpc: Grpc = DEFAULT_GRPC_ADDRESS,
    ca: Ca = None,
    cert: Cert = None,
    token: Token = "",
) -> None:
    """List an agent's tasks, the one that changed last first.

    **Example**: `dragoman list --state working --json | jq -r .id`
    """
    from dragoman.cli import task_calls

    chosen = state.name if state else ""
    client = task_calls.grpc_client(grpc, agent, token)
    task_calls.run_command(grpc, task_calls.list_tasks(client, context=context, state=chosen, limit=limit, json=json))


def cancel(
    task: TaskId,
    agent: AgentName = "",
    json: Json = False,
    grpc: Grpc = DEFAULT_GRPC_ADDRESS,
    ca: Ca = None,
    cert: Cert = None,
    token: Token = "",
) -> None:
    """Ask for a task to stop.

    Succeeds when the server took the request; the state that is printed says whether the task has stopped yet.

    **Examples**

    `dragoman cancel 0199f3c2-5c1e-7000-8000-3b1f0a52c0de`

    `dragoman cancel 0199f3c2-5c1e-7000-8000-3b1f0a52c0de --agent csv-profile`  of another agent than the root one
    """
    from dragoman.cli import task_calls

    task_calls.run_command(grpc, task_calls.cancel(task_calls.grpc_client(grpc, agent, token), task, json=json))


def explain(
    task: TaskId,
    json: Json = False,
    grpc: Grpc = DEFAULT_GRPC_ADDRESS,
    ca: Ca = None,
    cert: Cert = None,
    token: Token = "",
) -> None:
    """Say where a task stands: who holds it, since when, what happens next and by when, and what helps.

    For operators, and for tasks of every agent: the id is enough. The console says the same under Execution.

    **Example**: `dragoman explain 0199f3c2-5c1e-7000-8000-3b1f0a52c0de`
    """
    pass
    from dragoman.cli import task_calls

    task_calls.run_command(grpc, print_explanation(grpc, task, token=token, json=json), by_agent=False)


async def print_explanation(address: str, task_id: str, *, token: str, json: bool) -> int:
    """Shows where a task stands, who holds it, and what happens next."""
    async with Operator(address, token=token) as operator:
        answer = await operator.explain(ops.ExplainRequest(task_id=task_id))
    out = ConsoleOutput()
    for one in answer.tasks:
        if json:
            out.line(MessageToJson(one, indent=None))
            continue
        out.line(f"task         {one.task_id}")
        out.line(f"agent        {one.agent}  (scope {one.scope}, principal {one.principal})")
        out.line(f"state        {one.state.removeprefix('TASK_STATE_')} since {_format_time(one.since)}")
        out.line(f"made in      A2A {one.dialect or '?'}, context {one.context_id}")
        out.line(f"last event   {one.last_event}; {one.subscribers} following here")
        out.line(f"messages     {one.queued_messages} not seen by the agent yet")
        out.line(f"attempt      {one.attempt} of {one.attempts_allowed}")
        out.line(f"held by      {_format_holder(one)}")
        if one.worker:
            out.line(f"worker       {one.worker}")
        if one.tokens or one.cost:
            below = f"; {one.delegated_tokens:,} and {one.delegated_cost:g} of that by tasks that it delegated"
            told = below if one.delegated_tokens or one.delegated_cost else ""
            out.line(f"used         {one.tokens:,} tokens, cost {one.cost:g}{told}")
        if one.trace_id:
            out.line(f"trace        {one.trace_id}")
        for push in one.pushes:
            out.line(f"push         {_format_push(push)}")
        out.line(f"next         {one.next}")
    return 0


def _format_push(push: ops_push.PushConfig) -> str:
    state = ops_push.PushState.Name(push.state).removeprefix("PUSH_STATE_")
    left = push.last - push.delivered
    behind = f", {left} events behind" if left > 0 else ""
    return f"{push.id} to {push.url}: {state}{behind}" + (f"; {push.why}" if push.why else "")


def _format_holder(explanation: ops.Explanation) -> str:
    if not explanation.session:
        return "nobody" + (f"; it waits, and {explanation.free_slots} slots are free here" if explanation.ready else "")
    where = "this server" if explanation.here else "another process"
    if not explanation.session_expires:
        return f"session {explanation.session}, which has expired"
    left = explanation.session_expires / 1000 - time.time()
    return f"session {explanation.session} of {where}, good for {left:.0f} s more"


def _format_time(milliseconds: int) -> str:
    return f"{datetime.fromtimestamp(milliseconds / 1000).astimezone():%Y-%m-%d %H:%M:%S}"
