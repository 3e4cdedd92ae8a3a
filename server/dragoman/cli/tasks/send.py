"""`send`: sends a message with files, and prints the answer."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Final

import typer
from google.protobuf.json_format import ParseError

from dragoman.calling.contents import read_part
from dragoman.calling.errors import ClientError
from dragoman.cli import ExitCode, print_error, print_note
from dragoman.cli.commands import Command, argument, check_text, flag, option, run_command
from dragoman.cli.options import AgentName, Json, Save, ServerTarget
from dragoman.cli.output import ConsoleOutput, state_name
from dragoman.cli.tasks import answers
from dragoman.cli.tasks.client import ProtocolOptions, check_scope, command_line, naming_agents, task_client
from dragoman.cli.tasks.printer import TaskPrinter, single_event
from dragoman.client.calls import Client
from dragoman.client.calls import message as message_of
from dragoman.client.content import MAX_SAFE_JSON_INTEGER, data_part, to_part
from dragoman.client.turn_stream import first_event
from dragoman.core.limits.message_limits import MAX_MESSAGE_BYTES
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb


@dataclass(frozen=True, slots=True)
class MessageOptions:
    """The message of the command line."""

    text: Annotated[str, argument("TEXT", "The message; `-` reads it from stdin.")] = ""
    file: Annotated[list[Path] | None, option("--file", "PATH", "Attach a file; may be repeated.", "-f")] = None
    data: Annotated[
        list[str] | None, option("--data", "JSON|@PATH", "Attach JSON as data; may be repeated. @- reads stdin.", "-d")
    ] = None
    task: Annotated[str, option("--task", "ID", "Send to this task: an answer, or a further message.")] = ""
    context: Annotated[str, option("--context", "ID", "Start a new task in this conversation.")] = ""
    message_bytes: Annotated[
        int,
        typer.Option(
            "--message-bytes", envvar="DRAGOMAN_MESSAGE_BYTES", hidden=True, help="The server's message size limit."
        ),
    ] = MAX_MESSAGE_BYTES

    def build(self) -> pb.Message:
        """Builds the message. Ends the process with a usage error for unreadable files and invalid JSON."""
        if not self.text and not self.file and not self.data:
            raise typer.BadParameter("the message is empty; pass TEXT, --data JSON, or --file PATH")
        text = sys.stdin.read() if self.text == "-" else self.text
        check_text(text, "TEXT")
        try:
            parts = [*map(read_data, self.data or ()), *file_parts(self.file or (), self.message_bytes)]
        except ValueError as error:
            raise typer.Exit(print_error(error, ExitCode.USAGE)) from error
        return message_of(text, parts=parts, task=self.task, context=self.context)


def send(
    message: MessageOptions,
    agent: AgentName = "",
    scope: Annotated[
        str, option("--scope", "NAME", "Call the agent within this scope: projects/.../assistants/ID.")
    ] = "",
    stream: Annotated[bool, flag("--stream", "Print the answer as it is produced.")] = False,
    no_wait: Annotated[bool, flag("--no-wait", "Print the task's id and exit; the task continues.")] = False,
    save: Save = None,
    as_json: Json = False,
    *,
    target: ServerTarget,
    protocol: ProtocolOptions,
) -> None:
    """Send a message to an agent and wait for the result.

    The answer is printed on stdout, progress on stderr. Ctrl-C stops waiting; the task continues. On a terminal, a
    question of the agent is asked there; leave it with Ctrl-D.

    **Examples**

    `dragoman send "echo hello"`

    `dragoman send "stream 5 200" --stream`

    `dragoman send --agent csv-profile --file sales.csv --stream`

    `dragoman send --agent booking --data '{"guests": 3}'`

    `id=$(dragoman send "sleep 60" --no-wait); dragoman watch $id`

    `dragoman send --task $id "forty-two"`  answers a task that waits for input

    `dragoman send "echo hi" --dialect 0.3 --binding jsonrpc --show-wire`

    **Exit codes**: 0 completed, or the task waits for your answer; 1 failed, rejected or canceled; 2 invalid usage;
    3 the server is unreachable or rejected the request; 4 no such task or agent; 130 interrupted by Ctrl-C.
    """
    if no_wait and stream:
        raise typer.BadParameter("--no-wait exits before there is output to --stream; pass only one of them")
    request = message.build()
    out = ConsoleOutput(save)
    # In JSON large files are in their parts, like small ones.
    receive = read_part if as_json or no_wait else out.receive
    client = protocol.client(target, check_scope(agent, scope), receive)  # reports invalid combinations before a call
    asks = answers.can_ask() and not as_json

    async def deliver(request: pb.Message) -> tuple[ExitCode, TaskPrinter | None]:
        of_agent = protocol.client(target, check_scope(agent, scope), receive)
        if request.task_id and protocol.dialect != "0.1":  # whose clients choose the ids of new tasks
            of_agent = await task_client(target, request.task_id, agent, scope, receive, protocol)
        async with naming_agents(target, of_agent), of_agent:
            if no_wait:
                return await _send_without_waiting(of_agent, request, out, as_json=as_json), None
            printer = TaskPrinter(of_agent, out, json=as_json, live=stream, asks=asks)
            return await _send_and_wait(of_agent, request, printer), printer

    def converse() -> ExitCode:
        """Sends, asks what the agent asks, and sends the answers: outside the loop, so that Ctrl-C ends a prompt."""
        sent = request
        while True:
            code, printer = asyncio.run(deliver(sent))
            if printer is None or (question := printer.question) is None:
                return code
            if (parts := answers.ask(question)) is None:
                printer.print_hint()
                return code
            sent = message_of(parts=parts, task=printer.task_id)

    run_command(client.address, converse)


async def _send_without_waiting(client: Client, request: pb.Message, out: ConsoleOutput, *, as_json: bool) -> ExitCode:
    """Prints only the task's id on stdout."""
    response = await client.send(request, configuration=pb.SendMessageConfiguration(return_immediately=True))
    if as_json:
        out.json(response)
    elif response.HasField("message"):
        out.message(response.message)
    else:
        out.line(response.task.id)
        state = state_name(response.task.status.state)
        print_note(f"{state}; follow it with: {command_line('watch', response.task.id, client)}")
    return ExitCode.OK


async def _send_and_wait(client: Client, request: pb.Message, printer: TaskPrinter) -> ExitCode:
    """Waits for the turn to end. Uses a stream, so that no proxy or wait limit ends the call early, unless the agent
    does not support streaming."""
    try:
        return await printer.follow(client.stream(request))
    except ClientError as error:
        if error.reason != "UNSUPPORTED_OPERATION":
            raise
    response = await client.send(request)  # fails again if streaming was not the reason
    return await printer.follow(single_event(first_event(response)))


def read_data(given: str) -> pb.Part:
    """Returns the data part of `--data`. Raises ValueError for unreadable files and invalid JSON."""
    try:
        text = given
        if given.startswith("@"):
            text = sys.stdin.read() if given == "@-" else Path(given[1:]).read_text("utf-8")
        return data_part(json.loads(text, parse_float=_read_fraction), "--data")
    except OSError as error:
        raise ValueError(f"--data {given}: {error.strerror or error}") from error
    except (RecursionError, ParseError) as error:
        raise ValueError("--data: has too many levels of objects and arrays; a message may have 24") from error
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise ValueError(f"--data: not JSON: {error.msg} at {place}; texts need quotes: '\"text\"'") from error


def _read_fraction(text: str) -> float:
    """Reads a number with a point or an exponent. Raises ValueError for a whole one that would be rounded."""
    number = float(text)
    if "e" not in text.lower() and abs(number) >= MAX_SAFE_JSON_INTEGER and number != Decimal(text):
        raise ValueError(f"--data: the number {text[:40]} is beyond 2^53 and would be rounded; give it as text")
    return number


def file_parts(paths: Sequence[Path], limit: int) -> list[pb.Part]:
    """Returns one part per file, with file name and media type. Raises ValueError for unreadable files, and, before
    reading, for files that together exceed `limit` bytes."""
    left = limit
    parts = []
    for path in paths:
        try:
            left -= (size := path.stat().st_size)
            if left < 0:
                raise ValueError(
                    f"--file {path}: {size:,} bytes; the files of a message may have {limit:,} bytes in all; "
                    "raise it with serve --message-bytes, or DRAGOMAN_MESSAGE_BYTES for server and client"
                )
            parts.append(to_part(path))
        except OSError as error:
            raise ValueError(f"--file {path}: {error.strerror or error}") from error
    return parts


COMMANDS: Final = {"send": Command(send)}
