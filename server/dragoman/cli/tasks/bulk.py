"""`cancel` and `rerun`: of one task, or of all tasks that a filter selects. Erases such tasks for `purge`."""

from __future__ import annotations

import sys
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, NamedTuple

import typer

from dragoman.calling.errors import ClientError, NotAllowed, NotFound
from dragoman.cli import ExitCode, format_count, print_error, print_note
from dragoman.cli.commands import Command, Resolved, argument, flag, option
from dragoman.cli.options import (
    AgentFilter,
    Json,
    PrincipalFilter,
    ScopeFilter,
    ServerTarget,
    TaskStateOption,
    complete_tasks,
    find_task_id,
    parse_state,
    time_option,
)
from dragoman.cli.output import ConsoleOutput, format_time, json_line, state_name
from dragoman.cli.tasks.client import command_line, open_task_client
from dragoman.client.operations import Operator
from dragoman.core.task import states
from dragoman_pb.dragoman.ops import v1 as ops

PAGE_SIZE: Final = 100
MAX_LISTED_REASONS: Final = 20

_OptionalTask = Annotated[
    str,
    argument("TASK", "The id of a task; without it, options select the tasks.", autocompletion=complete_tasks),
    Resolved(find_task_id),
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class TaskFilter:
    """Options that select tasks of all principals."""

    agent: AgentFilter = ""
    scope: ScopeFilter = ""
    principal: PrincipalFilter = ""
    state: Annotated[
        list[TaskStateOption] | None,
        option(
            "--state", "STATE", f"Only this state; may be repeated: {', '.join(TaskStateOption)}.", parser=parse_state
        ),
    ] = None
    context: Annotated[str, option("--context", "ID", "Only tasks of this conversation.")] = ""
    since: Annotated[str, option("--since", "AGE", "Only tasks that changed within this time: 30m, 12h, 7d.")] = ""
    older_than: Annotated[
        str, option("--older-than", "AGE", "Only tasks that have not changed for this time: 10m, 2h.")
    ] = ""
    text: Annotated[str, option("--text", "TEXT", "Only tasks with this text in the first message or the error.")] = ""
    metadata: Annotated[
        list[str] | None, option("--metadata", "KEY=VALUE", "Only tasks with this in their metadata; may be repeated.")
    ] = None
    cause: Annotated[str, option("--cause", "CAUSE", "Only failed tasks of this group of dragoman failures.")] = ""

    @property
    def selects_among_all(self) -> bool:
        """Whether an option exists for lists of all principals' tasks only."""
        only_all = (self.principal, self.older_than, self.text, self.metadata, self.cause)
        return any(only_all) or len(self.state or ()) > 1

    def request(self) -> ops.ListTasksRequest:
        """Builds the filter of a request. Ends the process with a usage error for an invalid age."""
        selected = ops.ListTasksRequest(
            agent=self.agent,
            scope=self.scope,
            principal=self.principal,
            context_id=self.context,
            states=[f"TASK_STATE_{one.name}" for one in self.state or ()],
            text=self.text,
            metadata=self.metadata or (),
            cause=self.cause,
        )
        if since := time_option("--since", self.since):
            selected.changed_since.FromMilliseconds(since)
        if before := time_option("--older-than", self.older_than):
            selected.changed_before.FromMilliseconds(before)
        return selected


@dataclass(frozen=True, slots=True)
class Answers:
    """How a change of many tasks asks and prints."""

    dry_run: Annotated[bool, flag("--dry-run", "Change nothing; print how many tasks match.")] = False
    yes: Annotated[bool, flag("--yes", "Do not ask.", "-y")] = False
    json: Json = False


async def cancel(task: _OptionalTask = "", *, tasks: TaskFilter, answers: Answers, target: ServerTarget) -> ExitCode:
    """Request that a task stops, or all tasks that the options select.

    With TASK: one of your tasks, for operators one of any principal. Succeeds when the server has accepted the request;
    the printed state shows whether the task has stopped yet. Without TASK, for operators: all tasks of all principals
    that match and have not ended. Their number is printed first.

    **Examples**

    `dragoman cancel 0199f3c2-5c1e-7000-8000-3b1f0a52c0de`

    `dragoman cancel mine --agent csv-profile`  if several tasks have this id, which clients of A2A 0.1 choose

    `dragoman cancel --state working --older-than 10m`  all that have been stuck for ten minutes
    """
    selected = tasks.request()
    if not task:
        return await change_tasks(target, CANCEL, selected, answers)
    _check_single(selected, ("agent", "scope"), answers)
    async with open_task_client(target, task, tasks.agent, tasks.scope) as client:
        try:
            canceled = await client.cancel(task)
        except NotFound as missing:
            request = ops.CancelTaskRequest(task_id=task, agent=tasks.agent, scope=tasks.scope)
            try:
                canceled = (await target.call(Operator.cancel_task, request)).task.task
            except NotAllowed:
                raise missing from None
        except ClientError as error:
            if error.reason != "TASK_NOT_CANCELABLE":
                raise
            status = (await client.get(task, history=0)).status
            ended = f"task {task} is {state_name(status.state)} since {format_time(status.timestamp)}"
            return print_error(
                f"{ended}; a task that has ended cannot be canceled", ExitCode.UNAVAILABLE, name=error.reason
            )
    out = ConsoleOutput()
    if answers.json:
        out.json(canceled)
        return ExitCode.OK
    out.line(f"{state_name(canceled.status.state)}  {canceled.id}", state=canceled.status.state)
    if canceled.status.state not in states.TERMINAL:
        print_note(f"the agent has not stopped yet; follow it with: {command_line('watch', task, client)}")
    return ExitCode.OK


async def rerun(
    task: _OptionalTask = "",
    *,
    tasks: TaskFilter,
    repeat_steps: Annotated[bool, flag("--repeat-steps", "Do all durable steps again, also finished ones.")] = False,
    answers: Answers,
    target: ServerTarget,
) -> ExitCode:
    """Send the first message of an ended task again, or of all tasks that the options select.

    For operators. A rerun is a new task of the same principal, agent and conversation; finished durable steps are kept.
    Prints the id of the new task. Without TASK: all tasks that match and have failed, or were canceled or rejected;
    `--state completed` selects others. Their number is printed first.

    **Examples**

    `dragoman rerun 0199f3c2-5c1e-7000-8000-3b1f0a52c0de`

    `dragoman rerun --principal bob --state failed --since 12h --text quota`

    `dragoman rerun --cause 4f1c2a9be0d37a55`  the tasks of a group of `dragoman failures`, each once
    """
    selected = tasks.request()
    if not task:
        return await change_tasks(target, RERUN._replace(options={"repeat_steps": repeat_steps}), selected, answers)
    _check_single(selected, ("agent", "scope", "principal"), answers)
    request = ops.RerunTaskRequest(
        task_id=task, agent=tasks.agent, scope=tasks.scope, principal=tasks.principal, repeat_steps=repeat_steps
    )
    new = (await target.call(Operator.rerun_task, request)).task
    out = ConsoleOutput()
    if answers.json:
        out.json(new.task, agent=new.agent, scope=new.scope)
    else:
        out.line(new.task.id)
        print_note(f"a new task of {new.principal} with {new.agent}; see it with: dragoman explain {new.task.id}")
    return ExitCode.OK


def _check_single(selected: ops.ListTasksRequest, allowed: tuple[str, ...], answers: Answers) -> None:
    """Ends the process with a usage error for options that select tasks, beside a task."""
    other = [field.name for field, _ in selected.ListFields() if field.name not in allowed]
    if other or answers.dry_run:
        raise typer.BadParameter("pass either TASK, or options that select tasks, and not both")


class BulkChange(NamedTuple):
    """A change of many tasks: its verb, what was done with a task, its call, and the class and fields of requests."""

    verb: str
    participle: str
    call: Callable[[Operator, Any], Awaitable[Any]]
    request: Callable[..., Any]
    options: Mapping[str, Any] = {}


CANCEL: Final = BulkChange("Cancel", "canceled", Operator.cancel_tasks, ops.CancelTasksRequest)
RERUN: Final = BulkChange("Rerun", "rerun", Operator.rerun_tasks, ops.RerunTasksRequest)
ERASE: Final = BulkChange("Erase", "erased", Operator.erase_tasks, ops.EraseTasksRequest)


async def change_tasks(
    target: ServerTarget, change: BulkChange, selected: ops.ListTasksRequest, answers: Answers
) -> ExitCode:
    """Counts the tasks that match, asks, and changes them page by page. The exit code is FAILED if some were not."""
    if not selected.ListFields():
        text = "select the tasks: TASK, or --agent, --scope, --principal, --state, --context, --since, --older-than, "
        raise typer.Exit(print_error(f"{text}--text, --metadata or --cause", ExitCode.USAGE))
    out = ConsoleOutput()
    async with target.operator() as operator:
        counted = await change.call(operator, change.request(filter=selected, dry_run=True))
        tasks = ("more than " if counted.matched_is_minimum else "") + format_count(counted.matched, "task")
        if answers.dry_run or not counted.matched:
            out.line(json_line(counted) if answers.json else f"{tasks} would be {change.participle}")
            return ExitCode.OK
        if not answers.yes and not _confirm(f"{change.verb} {tasks}?"):
            return ExitCode.FAILED
        total = await _change_pages(operator, change, selected, counted)
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


async def _change_pages(operator: Operator, change: BulkChange, selected: ops.ListTasksRequest, counted: Any) -> Any:
    """Changes all pages. Returns the sum of their responses. counted: the response of the dry run."""
    total = type(counted)()
    name = "" if selected.cause else f"cli-{uuid.uuid4()}"  # of tasks that failed alike, the server reruns each once
    request = change.request(filter=selected, limit=PAGE_SIZE, request_id=name, **change.options)
    try:
        while True:
            page = await change.call(operator, request)
            total.matched += page.matched
            total.changed += page.changed
            total.skipped += page.skipped
            total.failures.extend(page.failures)
            _show_progress(f"{total.matched:,} of {max(counted.matched, total.matched):,} tasks")
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


COMMANDS: Final = {"cancel": Command(cancel), "rerun": Command(rerun)}
