"""`get`, `watch`, `list`: show one task, follow it, list many."""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated, Final

from dragoman.calling.contents import read_part
from dragoman.calling.errors import ClientError, NotFound
from dragoman.cli import ExitCode, options, print_note
from dragoman.cli.commands import Command, flag, option
from dragoman.cli.output import ConsoleOutput, format_elapsed, format_time, format_usage, state_name, text_of
from dragoman.cli.tasks.bulk import TaskFilter
from dragoman.cli.tasks.client import open_task_client, scope_and_agent, served_agents, unknown_agent
from dragoman.cli.tasks.printer import TaskPrinter, single_event
from dragoman.client.operations import Operator
from dragoman.core.names import DEFAULT_SCOPE
from dragoman.core.task import states
from dragoman.ids import now_ms
from dragoman_pb.dragoman.ops import v1 as ops
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

MAX_MESSAGE_WIDTH: Final = 60  # characters of a task's status message in a list


async def get(
    task: options.TaskId,
    agent: options.TaskAgent = "",
    scope: options.TaskScope = "",
    history: Annotated[int | None, option("--history", "N", "Also print the last N messages.", min=0)] = None,
    save: options.Save = None,
    json: options.Json = False,
    *,
    target: options.ServerTarget,
) -> None:
    """Show a task: state, status message, artifacts.

    Operators and viewers also see tasks of other principals, without their messages.

    **Example**: `dragoman get 0199f3c2-5c1e-7000-8000-3b1f0a52c0de --history 10`
    """
    out = ConsoleOutput(save)
    async with open_task_client(target, task, agent, scope, read_part if json else out.receive) as client:
        scope, principal = scope_and_agent(client)[0], ""
        try:
            shown = await client.get(task, history=history if json else history or 0)
        except NotFound:
            if (listed := await _task_of_others(target, task, agent, scope)) is None:
                raise
            shown, scope, principal = listed.task, listed.scope, listed.principal
    if json:
        out.json(shown)
        return
    out.line(f"task     {shown.id}")
    out.line(f"state    {state_name(shown.status.state)}", state=shown.status.state)
    out.line(f"since    {format_time(shown.status.timestamp)}")
    out.line(f"scope    {scope}")
    if principal:
        out.line(f"of       {principal}; its messages are in: dragoman export {shown.id}")
    out.line(f"context  {shown.context_id}")
    if usage := format_usage(shown):
        out.line(f"usage    {usage}")
    for past in shown.history:
        out.line(f"{'user' if past.role == pb.ROLE_USER else 'agent':<8} {text_of(past)}")
    if shown.status.HasField("message"):
        out.line(f"agent    {text_of(shown.status.message)}")
    for artifact in shown.artifacts:
        out.line()
        out.line(f"artifact {artifact.name or artifact.artifact_id}")
        out.artifacts([artifact])


async def _task_of_others(target: options.ServerTarget, task: str, agent: str, scope: str) -> ops.ListedTask | None:
    """The task of another principal, for operators and viewers; None if there is none, or several, or for others."""
    request = ops.ListTasksRequest(task_id=task, agent=agent, scope=scope, include_artifacts=True)
    with suppress(ClientError):  # of other servers, which have no such list
        found = (await target.call(Operator.list_tasks, request)).tasks
        return found[0] if len(found) == 1 else None
    return None


async def watch(
    task: options.TaskId,
    agent: options.TaskAgent = "",
    scope: options.TaskScope = "",
    after: Annotated[str, option("--after", "CURSOR", "Start after this cursor or event number.")] = "",
    save: options.Save = None,
    json: options.Json = False,
    *,
    target: options.ServerTarget,
) -> ExitCode:
    """Follow a task until it ends.

    Prints what the task has produced so far, then each event as it happens. Any number of clients can watch a task.
    A broken connection is resumed at the same event, for up to a minute.

    **Example**: `dragoman watch 0199f3c2-5c1e-7000-8000-3b1f0a52c0de`
    """
    out = ConsoleOutput(save)
    async with open_task_client(target, task, agent, scope, read_part if json else out.receive) as client:
        printer = TaskPrinter(client, out, json=json, live=True, until_terminal=True)
        try:
            return await printer.follow(client.subscribe(task, after=after))
        except ClientError as error:
            if error.reason != "UNSUPPORTED_OPERATION":
                raise
            ended = await client.get(task, history=0)
            if ended.status.state not in states.TERMINAL:
                raise
            return await printer.follow(single_event(pb.StreamResponse(task=ended)))


async def list_tasks(
    *,
    tasks: TaskFilter,
    limit: Annotated[int, option("--limit", "N", "The maximum number of tasks.", "-n", min=1, max=1000)] = 20,
    wide: Annotated[bool, flag("--wide", "Also show the status, scope, context, time and usage.", "-w")] = False,
    everyone: Annotated[bool, flag("--all", "The tasks of all callers: for operators and viewers.")] = False,
    json: options.Json = False,
    target: options.ServerTarget,
) -> None:
    """List your tasks with the agents of this server, in all scopes, most recently changed first.

    The columns are state, agent, time since the last change, id, and the first words of what was asked; where the
    server does not tell that, of the status message. Operators also see failures. `--wide` adds the status message,
    scope, context, time and usage. Only terminals get a header. With `--json` each line is a task with the further keys
    `agent` and `scope`. The store also keeps the tasks of agents that the server does not serve now. `--principal`,
    `--text`, `--metadata`, `--cause`, `--older-than` and several states select among the tasks of all callers.

    **Examples**

    `dragoman list --state failed --since 1h`

    `dragoman list --state working --json | jq -r .id`

    `dragoman list --principal bob --text quota --older-than 2h`
    """
    request = tasks.request()
    request.limit, request.include_artifacts = limit, json
    if not everyone and not tasks.selects_among_all:
        request.own = True
        if request.states:
            request.state = request.states[0]
        request.ClearField("states")
        request.ClearField("changed_since")
    elif everyone:
        request.order = ops.TASK_ORDER_CHANGED  # that of all lists; only lists of all principals take the field
    try:
        response = await target.call(Operator.list_tasks, request)
    except ClientError as error:
        if not everyone or tasks.selects_among_all or all(one.field != "order" for one in error.violations):
            raise
        print_note("these are your own tasks: --all is for operators and viewers")
        request.own = True
        request.ClearField("order")
        response = await target.call(Operator.list_tasks, request)
    if tasks.agent and not response.tasks and (ids := await served_agents(target)) and tasks.agent not in ids:
        raise unknown_agent(tasks.agent, ids)
    oldest = options.time_option("--since", tasks.since)
    listed = [one for one in response.tasks if one.task.status.timestamp.ToMilliseconds() >= oldest]
    out = ConsoleOutput()
    if json:
        for one in listed:
            out.json(one.task, agent=one.agent, scope=one.scope)
        return
    if not listed:
        print_note("no tasks")
        return
    has_failures = not wide and any(one.failure_text for one in listed)
    more_columns = ("STATUS", "SCOPE", "CONTEXT", "CHANGED", "USAGE") if wide else ("FAILURE",) * has_failures
    header = ("STATE", "AGENT", "AGE", "ID", "MESSAGE", *more_columns)
    now = now_ms()
    rows = [_list_row(one, now, wide=wide) + (one.failure_text,) * has_failures for one in listed]
    out.table(header, rows, [one.task.status.state for one in listed], unbroken=len(header) - len(more_columns))
    if out.is_terminal and len(listed) == limit and response.total > limit:
        more = "more than " if response.total_is_minimum else ""
        print_note(f"{limit} of {more}{response.total:,} tasks; --limit shows more")


def _list_row(one: ops.ListedTask, now: float, *, wide: bool) -> tuple[str, ...]:
    """The columns of a task in a list. now: milliseconds since the epoch."""
    status = one.task.status
    row = (
        state_name(status.state),
        one.agent if wide or one.scope == DEFAULT_SCOPE else f"{one.scope}/agents/{one.agent}",
        format_elapsed(now - status.timestamp.ToMilliseconds()),
        one.task.id,
        " ".join((one.summary or text_of(status.message)).split())[:MAX_MESSAGE_WIDTH] or "-",
    )
    if not wide:
        return row
    text = (one.failure_text or (text_of(status.message) if one.summary else ""))[:MAX_MESSAGE_WIDTH] or "-"
    return (*row, text, one.scope, one.task.context_id, format_time(status.timestamp), format_usage(one.task))


COMMANDS: Final = {"get": Command(get), "watch": Command(watch), "list": Command(list_tasks)}
