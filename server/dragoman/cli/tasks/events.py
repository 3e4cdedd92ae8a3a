"""`logs`: the event log of a task, and the changes of all tasks, one line each."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated, Final

import orjson

from dragoman.cli.commands import Command, Resolved, argument, flag, option
from dragoman.cli.options import Json, ServerTarget, TaskOwner, complete_tasks, find_task_id, time_option
from dragoman.cli.output import ConsoleOutput, format_time, json_line, state_name, text_of
from dragoman.cli.tasks.client import naming_agents, scope_and_agent, task_client
from dragoman.client import NotAllowed, NotFound
from dragoman.client.operations import Operator
from dragoman.core.names import DEFAULT_SCOPE
from dragoman.core.task import states
from dragoman.wire.json.protojson import Codec, JsonDialect
from dragoman_pb.dragoman.ops import v1 as ops
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

MAX_WATCHED_TASKS: Final = 200  # tasks of which `logs` reads the state at a time, most recently changed first
SHOWN_WITHOUT_SINCE: Final = 10  # earlier changes that `logs` shows without --since
MAX_TEXT: Final = 100  # characters of a message or a chunk on a line


async def logs(
    task: Annotated[
        str,
        argument("TASK", "The id of a task. [all tasks that you may see]", autocompletion=complete_tasks),
        Resolved(find_task_id),
    ] = "",
    follow: Annotated[bool, flag("--follow/--no-follow", "Wait for further events.")] = True,
    since: Annotated[str, option("--since", "AGE", "Begin with what happened within this time: 30m, 12h, 7d.")] = "",
    *,
    owner: TaskOwner,
    json: Json = False,
    target: ServerTarget,
) -> None:
    """Show the events of a task, or the changes of all tasks, as they happen.

    With TASK: its event log from the beginning, until the task ends. Without: a line for each task that changes its
    state or its status message, of all callers for operators and viewers, else of your own tasks. States that last
    less than a second may be left out there.

    The columns are time, agent, task and event; events of artifacts have no time. With `--json` each line is an object
    with `time`, `agent`, `scope`, `task` and the `event` as in a stream of A2A 1.0.

    **Examples**

    `dragoman logs 0199f3c2-5c1e-7000-8000-3b1f0a52c0de`

    `dragoman logs --agent csv-profile --since 1h --json`
    """
    lines = EventLines(since=time_option("--since", since), json=json)
    if task:
        await _print_task_log(lines, target, task, owner, follow=follow)
    else:
        await _print_changes(lines, target, owner, shows_all=bool(since), follow=follow)


class EventLines:
    """Prints events, each on one line. since: milliseconds since the epoch; earlier events are left out."""

    def __init__(self, *, since: int, json: bool) -> None:
        self._out = ConsoleOutput()
        self._since = since
        self._json = json
        self._time = 0

    def print(self, agent: str, scope: str, task_id: str, event: pb.StreamResponse, failure: str = "") -> None:
        """Prints an event; FAILED with a failure in place of its message. One without a time is as old as the last."""
        status = event.task.status if event.HasField("task") else event.status_update.status
        at = status.timestamp if status.HasField("timestamp") else None
        self._time = at.ToMilliseconds() if at else self._time
        if self._time < self._since:
            return
        if self._json:
            fields = {"time": at.ToJsonString() if at else None, "agent": agent, "scope": scope, "task": task_id}
            self._out.write(orjson.dumps({**fields, "event": orjson.loads(json_line(event))}).decode() + "\n")
            return
        name = agent if scope in ("", DEFAULT_SCOPE) else f"{scope}/agents/{agent}"
        shown = format_time(at) if at else f"{'-':<19}"  # as wide as a time
        text = f"FAILED  {failure[:MAX_TEXT]}" if failure and status.state == states.FAILED else describe(event)
        self._out.line(f"{shown}  {name or '-'}  {task_id}  {text}", state=status.state)


def describe(event: pb.StreamResponse) -> str:
    """An event in a few words: state and message, or the beginning of a chunk."""
    match event.WhichOneof("payload"):
        case "task":
            words = " ".join(map(text_of, event.task.history[:1])) or text_of(event.task.status.message)
            return f"{state_name(event.task.status.state)}  {words[:MAX_TEXT]}".rstrip()
        case "status_update":
            status = event.status_update.status
            return f"{state_name(status.state)}  {text_of(status.message)[:MAX_TEXT]}".rstrip()
        case "artifact_update":
            update = event.artifact_update
            verb = "append" if update.append else "artifact"
            name = update.artifact.name or update.artifact.artifact_id
            return f"{verb} {name}  {_describe_parts(update.artifact)}".rstrip()
        case _:
            return f"message  {text_of(event.message)[:MAX_TEXT]}".rstrip()


def _describe_parts(artifact: pb.Artifact) -> str:
    texts = "".join(part.text for part in artifact.parts)
    others = [
        f"[{part.filename or part.media_type or part.WhichOneof('content')}]"
        for part in artifact.parts
        if not part.HasField("text")
    ]
    return " ".join(filter(None, (" ".join(texts.split())[:MAX_TEXT], *others)))


async def _print_task_log(
    lines: EventLines, target: ServerTarget, task_id: str, owner: TaskOwner, *, follow: bool
) -> None:
    """Prints the event log of a task of the caller, or of any principal for operators."""
    client = await task_client(target, task_id, owner.agent, owner.scope)
    scope, agent = scope_and_agent(client)
    async with naming_agents(target, client):
        try:
            if owner.principal:
                raise NotFound("NOT_FOUND", "of a principal")
            async with client:
                events = client.subscribe(task_id, after="0") if follow else client.replay(task_id)
                async with aclosing(events):
                    async for event in events:
                        lines.print(agent, scope, task_id, event)
        except NotFound as error:
            request = ops.ListEventsRequest(
                task_id=task_id, agent=agent, principal=owner.principal, scope=scope if agent else "", limit=100
            )
            try:
                async with (
                    target.operator() as operator,
                    aclosing(_stored_events(operator, request, follow=follow)) as stored,
                ):
                    async for listed, event in stored:
                        lines.print(listed.agent, listed.scope, task_id, event, listed.failure_text)
            except NotAllowed:
                raise error from None


async def _stored_events(
    operator: Operator, request: ops.ListEventsRequest, *, follow: bool
) -> AsyncGenerator[tuple[ops.ListedTask, pb.StreamResponse], None]:
    """Yields the events of a task of any principal; with `follow` until it ends, whenever its status has changed."""
    codec = Codec(pb.StreamResponse, JsonDialect("1.0"))
    search = ops.ListTasksRequest(
        task_id=request.task_id, agent=request.agent, scope=request.scope, principal=request.principal
    )
    watch = operator.watch_tasks(ops.WatchTasksRequest(filter=search))
    async with aclosing(watch) as changes:
        async for change in changes:
            if not change.list.tasks:
                raise NotFound("NOT_FOUND", "Task not found", reason="TASK_NOT_FOUND")
            listed = change.list.tasks[0]
            while True:
                page = await operator.list_events(request)
                for event in page.events:
                    request.after = event.sequence
                    yield listed, codec.decode(orjson.loads(event.v1_json))
                if not page.events or request.after >= page.last:
                    break
            if not follow or listed.task.status.state in states.TERMINAL:
                return


async def _print_changes(
    lines: EventLines, target: ServerTarget, owner: TaskOwner, *, shows_all: bool, follow: bool
) -> None:
    """Prints a line for each task that changed, oldest first, and with `follow` for each that changes. shows_all: of
    the earlier changes all that are not too old, else the last few."""
    request = ops.ListTasksRequest(agent=owner.agent, scope=owner.scope, limit=MAX_WATCHED_TASKS)
    if owner.principal:
        request.principal = owner.principal
    known: dict[tuple[str, str, str], bytes] | None = None
    async with (
        target.operator() as operator,
        aclosing(operator.watch_tasks(ops.WatchTasksRequest(filter=request))) as changes,
    ):
        async for change in changes:
            listed = {
                (one.scope, one.agent, one.task.id): one.task.status.SerializeToString() for one in change.list.tasks
            }
            changed = [
                one
                for one, (place, status) in zip(change.list.tasks, listed.items(), strict=True)
                if known is None or known.get(place) != status
            ]
            if known is None and not shows_all:
                changed = changed[:SHOWN_WITHOUT_SINCE]
            known = listed
            for one in reversed(changed):
                update = pb.TaskStatusUpdateEvent(
                    task_id=one.task.id, context_id=one.task.context_id, status=one.task.status
                )
                event = pb.StreamResponse(status_update=update)
                lines.print(one.agent, one.scope, one.task.id, event, one.failure_text)
            if not follow:
                break


COMMANDS: Final = {"logs": Command(logs)}
