"""`cancel` and `rerun`: of one task, or of all tasks that a filter selects. Erases such tasks for `purge`."""

from __future__ import annotations

import sys
import time
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Annotated, Any, Final, NamedTuple

import typer

from dragoman.cli import ExitCode, format_count, print_error, print_note, task_calls
from dragoman.cli.options import (
    DEFAULT_SERVER,
    AgentFilter,
    Ca,
    Cert,
    ChangedSince,
    DryRun,
    Json,
    Key,
    MetadataFilter,
    PrincipalFilter,
    ScopeFilter,
    Server,
    TaskStates,
    TextFilter,
    UnchangedFor,
    Yes,
    complete_tasks,
)
from dragoman.cli.output import ConsoleOutput, json_line
from dragoman.client.operations import Operator
from dragoman.core.durations import parse_age
from dragoman_pb.dragoman.ops.v1 import bulk_pb2 as bulk
from dragoman_pb.dragoman.ops.v1 import tasks_pb2 as ops_tasks

PAGE_SIZE: Final = 100
MAX_LISTED_REASONS: Final = 20

_OptionalTask = Annotated[
    str,
    typer.Argument(
        metavar="TASK", help="The id of a task; without it, options select the tasks.", show_default=False,
        autocompletion=complete_tasks,
    ),
]  # fmt: skip
_ContextFilter = Annotated[str, typer.Option("--context", metavar="ID", help="Only tasks of this conversation.")]


def register(cli: typer.Typer) -> None:
    """Adds the commands."""
    for name, command in (("cancel", cancel), ("rerun", rerun)):
        cli.command(name)(command)


def cancel(
    task: _OptionalTask = "",
    agent: AgentFilter = "",
    scope: ScopeFilter = "",
    principal: PrincipalFilter = "",
    state: TaskStates = None,
    context: _ContextFilter = "",
    since: ChangedSince = "",
    older_than: UnchangedFor = "",
    text: TextFilter = "",
    metadata: MetadataFilter = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    json: Json = False,
    server: Server = DEFAULT_SERVER,
    ca: Ca = None,
    cert: Cert = None,
    key: Key = "",
) -> None:
    """Request that a task stops, or all tasks that the options select.

    With TASK: one of your tasks. Succeeds when the server has accepted the request; the printed state shows whether the
    task has stopped yet. Without TASK, for operators: all tasks of all principals that match and have not ended. Their
    number is printed first.

    **Examples**

    `dragoman cancel 0199f3c2-5c1e-7000-8000-3b1f0a52c0de`

    `dragoman cancel mine --agent csv-profile`  if several tasks have this id, which clients of A2A 0.1 choose

    `dragoman cancel --state working --older-than 10m`  all that have been stuck for ten minutes
    """
    selected = build_filter(agent, scope, principal, state, context, since, older_than, text, metadata)
    if not task:
        task_calls.run_command(server, change_tasks(server, key, CANCEL, selected, Answers(dry_run, yes, json)))
    _check_single(selected, ("agent", "scope"), dry_run)
    stop = partial(task_calls.cancel, task_id=task, json=json)
    task_calls.run_command(server, task_calls.run_on_task(server, key, task, agent=agent, scope=scope, command=stop))


def rerun(
    task: _OptionalTask = "",
    agent: AgentFilter = "",
    scope: ScopeFilter = "",
    principal: PrincipalFilter = "",
    state: TaskStates = None,
    context: _ContextFilter = "",
    since: ChangedSince = "",
    older_than: UnchangedFor = "",
    text: TextFilter = "",
    metadata: MetadataFilter = None,
    repeat_steps: Annotated[
        bool, typer.Option("--repeat-steps", metavar=" ", help="Do all durable steps again, also finished ones.")
    ] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    json: Json = False,
    server: Server = DEFAULT_SERVER,
    ca: Ca = None,
    cert: Cert = None,
    key: Key = "",
) -> None:
    """Send the first message of an ended task again, or of all tasks that the options select.

    For operators. A rerun is a new task of the same principal, agent and conversation; finished durable steps are kept.
    Prints the id of the new task. Without TASK: all tasks that match and have failed, or were canceled or rejected;
    `--state completed` selects others. Their number is printed first.

    **Examples**

    `dragoman rerun 0199f3c2-5c1e-7000-8000-3b1f0a52c0de`

    `dragoman rerun --principal bob --state failed --since 12h --text quota`
    """
    selected = build_filter(agent, scope, principal, state, context, since, older_than, text, metadata)
    if not task:
        change = RERUN._replace(options={"repeat_steps": repeat_steps})
        task_calls.run_command(server, change_tasks(server, key, change, selected, Answers(dry_run, yes, json)))
    _check_single(selected, ("agent", "scope", "principal"), dry_run)
    request = ops_tasks.RerunTaskRequest(
        task_id=task, agent=agent, scope=scope, principal=principal, repeat_steps=repeat_steps
    )
    task_calls.run_command(server, rerun_task(server, key, request, json=json))


def build_filter(
    agent: str,
    scope: str,
    principal: str,
    state: list[Any] | None,
    context: str,
    since: str,
    older_than: str,
    text: str,
    metadata: list[str] | None,
) -> ops_tasks.ListTasksRequest:
    """Builds the filter of the command line. Ends the process with a usage error for an invalid age."""
    selected = ops_tasks.ListTasksRequest(
        agent=agent,
        scope=scope,
        principal=principal,
        context_id=context,
        states=[f"TASK_STATE_{one.name}" for one in state or ()],
        text=text,
        metadata=metadata or (),
    )
    for option, age, at in (
        ("--since", since, selected.changed_since), ("--older-than", older_than, selected.changed_before),
    ):  # fmt: skip
        if age:
            try:
                at.FromMilliseconds(int(time.time() * 1000) - parse_age(age))
            except ValueError as error:
                raise typer.BadParameter(f"{option}: {error}") from error
    return selected


def _check_single(selected: ops_tasks.ListTasksRequest, allowed: tuple[str, ...], dry_run: bool) -> None:
    """Ends the process with a usage error for options that select tasks, beside a task."""
    other = [field.name for field, _ in selected.ListFields() if field.name not in allowed]
    if other or dry_run:
        raise typer.BadParameter("pass either TASK, or options that select tasks, and not both")


async def rerun_task(server: str, key: str, request: ops_tasks.RerunTaskRequest, *, json: bool) -> ExitCode:
    """Reruns one task, and prints the id of the new one."""
    async with Operator(server, token=key) as operator:
        listed = (await operator.rerun_task(request)).task
    out = ConsoleOutput()
    if json:
        out.json(listed.task, agent=listed.agent, scope=listed.scope)
    else:
        out.line(listed.task.id)
        print_note(
            f"a new task of {listed.principal} with {listed.agent}; see it with: dragoman explain {listed.task.id}"
        )
    return ExitCode.OK


class Answers(NamedTuple):
    """How a change of many tasks asks and prints."""

    dry_run: bool = False
    yes: bool = False
    json: bool = False


class BulkChange(NamedTuple):
    """A change of many tasks: its verb, what was done with a task, its call and messages, and fields of requests."""

    verb: str
    participle: str
    call: Callable[[Operator, Any], Awaitable[Any]]
    request: Callable[..., Any]
    response: Callable[[], Any]
    options: dict[str, Any]


CANCEL: Final = BulkChange(
    "Cancel", "canceled", Operator.cancel_tasks, bulk.CancelTasksRequest, bulk.CancelTasksResponse, {}
)
RERUN: Final = BulkChange("Rerun", "rerun", Operator.rerun_tasks, bulk.RerunTasksRequest, bulk.RerunTasksResponse, {})
ERASE: Final = BulkChange("Erase", "erased", Operator.erase_tasks, bulk.EraseTasksRequest, bulk.EraseTasksResponse, {})


async def change_tasks(
    server: str, key: str, change: BulkChange, selected: ops_tasks.ListTasksRequest, answers: Answers
) -> ExitCode:
    """Counts the tasks that match, asks, and changes them page by page. The exit code is FAILED if some were not."""
    if not selected.ListFields():
        text = "select the tasks: TASK, or --agent, --scope, --principal, --state, --context, --since, --older-than, "
        raise typer.Exit(print_error(f"{text}--text or --metadata", ExitCode.USAGE))
    out = ConsoleOutput()
    async with Operator(server, token=key) as operator:
        counted = await change.call(operator, change.request(filter=selected, dry_run=True))
        tasks = ("more than " if counted.matched_is_minimum else "") + format_count(counted.matched, "task")
        if answers.dry_run or not counted.matched:
            out.line(json_line(counted) if answers.json else f"{tasks} would be {change.participle}")
            return ExitCode.OK
        if not answers.yes and not _confirm(f"{change.verb} {tasks}?"):
            return ExitCode.FAILED
        total = await _change_pages(operator, change, selected, counted.matched)
    if answers.json:
        out.line(json_line(total))
    else:
        skipped = f", {total.skipped:,} skipped" if total.skipped else ""
        failed = f", {len(total.failures):,} failed" if total.failures else ""
        out.line(f"{format_count(total.changed, 'task')} {change.participle}{skipped}{failed}")
        reasons = Counter(failure.reason for failure in total.failures)
        for reason, count in reasons.most_common(MAX_LISTED_REASONS):
            print_note(f"  {format_count(count, 'task')}: {reason}")
    return ExitCode.FAILED if total.failures else ExitCode.OK


def _confirm(question: str) -> bool:
    """Asks on a terminal. Ends the process with a usage error without one."""
    if not sys.stdin.isatty():
        raise typer.Exit(print_error(f"{question} Pass --yes to do it, or --dry-run to count", ExitCode.USAGE))
    sys.stderr.write(f"{question} [y/N]: ")  # typer.confirm writes a blank to stdout
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


async def _change_pages(
    operator: Operator, change: BulkChange, selected: ops_tasks.ListTasksRequest, expected: int
) -> Any:
    """Changes all pages. Returns the sum of their responses."""
    total = change.response()
    request = change.request(filter=selected, limit=PAGE_SIZE, request_id=f"cli-{uuid.uuid4()}", **change.options)
    try:
        while True:
            page = await change.call(operator, request)
            total.matched += page.matched
            total.changed += page.changed
            total.skipped += page.skipped
            total.failures.extend(page.failures)
            _show_progress(f"{total.matched:,} of {max(expected, total.matched):,} tasks")
            request.page_token = page.next_page_token
            if not request.page_token:
                return total
    except BaseException:
        print_note(f"stopped: {format_count(total.changed, 'task')} {change.participle} until now; repeat the command")
        raise
    finally:
        _show_progress("")


def _show_progress(text: str) -> None:
    """Replaces the progress line of a terminal."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{text}")
        sys.stderr.flush()
