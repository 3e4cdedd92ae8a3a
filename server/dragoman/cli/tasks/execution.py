"""`failures`, `explain`, `steps`: why tasks failed, and how a task is executed, for operators."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Annotated, Final

from dragoman.cli import print_note
from dragoman.cli.commands import Command, flag, option
from dragoman.cli.options import Json, ServerTarget, TaskId, TaskOwner
from dragoman.cli.output import ConsoleOutput, format_elapsed, format_time, json_line, rfc3339
from dragoman.cli.tasks.bulk import TaskFilter
from dragoman.client.operations import Operator
from dragoman.core.task import states
from dragoman.ids import now_ms
from dragoman_pb.dragoman.ops import v1 as ops
from dragoman_pb.dragoman.worker.v1 import worker_pb2 as wk


async def explain(task: TaskId, *, owner: TaskOwner, json: Json = False, target: ServerTarget) -> None:
    """Explain a task: who runs it, what happens next, and what to do.

    For operators. Finds tasks of every agent, principal and scope by id. The console shows the same under Execution.

    **Example**: `dragoman explain 0199f3c2-5c1e-7000-8000-3b1f0a52c0de`
    """
    response = await target.call(Operator.explain, ops.ExplainRequest(task_id=task, **asdict(owner)))
    out = ConsoleOutput()
    for one in response.tasks:
        if json:
            times = {"since": one.since, "sessionExpires": one.session_expires}
            out.json(one, **{name: rfc3339(time) for name, time in times.items() if time})
            continue
        for line in _describe_task(one):
            out.line(line)


async def list_failures(
    *,
    tasks: TaskFilter,
    limit: Annotated[int, option("--limit", "N", "The maximum number of groups.", "-n", min=1, max=500)] = 20,
    json: Json = False,
    target: ServerTarget,
) -> None:
    """Group failed tasks by what failed.

    For operators. The tasks of a group have the class of the exception and the function that raised it in common. The
    columns are tasks, tasks rerun, agent, time since the last and the first failure, name of the group, last failure.

    **Example**: `dragoman failures --since 24h`, then `dragoman rerun --cause 4f1c2a9be0d37a55`
    """
    response = await target.call(Operator.list_failures, ops.ListFailuresRequest(filter=tasks.request(), limit=limit))
    out = ConsoleOutput()
    if json:
        out.messages(response.groups, lambda _: (), json=True)
    elif response.groups:
        rows = [
            (
                f"{group.count:,}{'+' * group.count_is_minimum}",
                f"{group.reruns.count:,}" if group.reruns.count else "",
                group.agent,
                *(format_elapsed(now_ms() - at.ToMilliseconds()) for at in (group.last, group.first)),
                group.cause,
                " ".join(_failure_title(group.failure).split()),
            )
            for group in response.groups
        ]
        out.table(("TASKS", "RERUN", "AGENT", "LAST", "FIRST", "CAUSE", "FAILURE"), rows, [states.FAILED] * len(rows))
        print_note("see a group with: dragoman list --cause CAUSE; repeat its tasks with: dragoman rerun --cause CAUSE")
    else:
        print_note("no failed tasks")


def _failure_title(failure: wk.Failure) -> str:
    return ": ".join(filter(None, (failure.type, failure.text))) or "without a text"


def describe_failure(failure: wk.Failure) -> Iterator[str]:
    """Lines that say why an attempt failed: class and text, step and number, the author's code, what is behind it."""
    yield from _failure_title(failure).splitlines()
    ended = f", {format_time(failure.ended.ToMilliseconds())}" if failure.HasField("ended") else ""
    yield f"{f'step {failure.step}, ' if failure.step else ''}attempt {failure.attempt}{ended}"
    for frame in failure.frames:
        yield f"{frame.file}:{frame.line} in {frame.function}: {frame.code}"
    yield from (f"after {text}" for text in failure.causes)


async def list_steps(
    task: TaskId,
    *,
    results: Annotated[bool, flag("--results", "Show arguments, results and failures, for operators.")] = False,
    owner: TaskOwner,
    json: Json = False,
    target: ServerTarget,
) -> None:
    """List the durable steps of a task: state, attempt, duration, result, error.

    For operators. The columns are step, state, attempt, start, duration or end of a pause, bytes of the result, and the
    error of the last failed attempt. The steps of earlier turns of the task come first.

    **Examples**: `dragoman steps 0199f3c2-5c1e-7000-8000-3b1f0a52c0de`; with `--results`, to read what each step got
    and returned
    """
    names = {"task_id": task, **asdict(owner)}
    if results:
        steps = (await target.call(Operator.list_step_contents, ops.ListStepContentsRequest(**names))).steps
    else:
        steps = (await target.call(Operator.list_steps, ops.ListStepsRequest(**names))).steps
    out = ConsoleOutput()
    if json:
        for step in steps:
            out.line(json_line(step))
        return
    if not steps:
        out.line("no steps")
    width = max((len(step.name) for step in steps), default=0)
    turn = 0
    for step in steps:
        if step.turn != turn:
            out.line(f"turn that ended with message {step.turn}" if step.turn else "current turn")
            turn = step.turn
        out.line(_format_step(step, width))
        for line in _contents(step):
            out.line(f"    {line}")


def _contents(step: ops.TaskStep) -> Iterator[str]:
    """The contents of a step, below its line; none if these were not read."""
    if step.details.input:
        yield f"arguments: {step.details.input}"
    for failure in step.details.failures:
        yield from describe_failure(failure)
    if step.HasField("text"):
        unit = "characters" if step.text.text else "bytes"
        yield f"result: {step.text.media_type}" + (
            f", {step.text.omitted:,} {unit} not shown" if step.text.omitted else ""
        )
        yield from step.text.text.splitlines()


def _format_step(step: ops.TaskStep, width: int) -> str:
    state = ops.TaskStepState.Name(step.state).removeprefix("TASK_STEP_STATE_")
    started, ended, wake_at = (at.ToMilliseconds() for at in (step.started, step.ended, step.wake_at))
    if 0 < wake_at <= now_ms():
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


def _describe_task(explanation: ops.Explanation) -> Iterator[str]:
    if explanation.HasField("failure"):
        for number, line in enumerate(describe_failure(explanation.failure)):
            yield f"{'' if number else 'failed':<13}{line}"
        yield f"cause        {explanation.cause}; list such tasks with: dragoman list --cause {explanation.cause}"
    yield f"task         {explanation.task_id}"
    yield f"agent        {explanation.agent}"
    yield f"scope        {explanation.scope}"
    yield f"principal    {explanation.principal}"
    yield f"state        {explanation.state.removeprefix('TASK_STATE_')} since {format_time(explanation.since)}"
    yield f"created by   A2A {explanation.dialect or '?'} client, context {explanation.context_id}"
    yield f"last event   {explanation.last_event}; {explanation.subscribers} subscribers on this server"
    yield f"messages     {explanation.queued_messages} not delivered to the agent yet"
    if explanation.state in ("TASK_STATE_SUBMITTED", "TASK_STATE_WORKING"):  # it counts those of the open turn
        yield f"attempt      {explanation.attempt} of {explanation.attempts_allowed}"
    yield f"held by      {_format_holder(explanation)}"
    if explanation.worker:
        yield f"worker       {explanation.worker}"
    if explanation.tokens or explanation.cost:
        delegated = f"{explanation.delegated_tokens:,} and {explanation.delegated_cost:g} by delegated tasks"
        has_delegated = explanation.delegated_tokens or explanation.delegated_cost
        of_these = f"; of these {delegated}" if has_delegated else ""
        yield f"usage        {explanation.tokens:,} tokens, cost {explanation.cost:g}{of_these}"
    if explanation.trace_id:
        yield f"trace        {explanation.trace_url or explanation.trace_id}"
    for push in explanation.pushes:
        behind = push.last - push.delivered
        lag = f", {behind} events behind" if behind > 0 else ""
        reason = f"; {push.reason}" if push.reason else ""
        state = ops.PushState.Name(push.state).removeprefix("PUSH_STATE_")
        yield f"push         {push.id} to {push.url}: {state}{lag}{reason}"
    yield f"next         {explanation.next}"


def _format_holder(explanation: ops.Explanation) -> str:
    if not explanation.session:
        waiting = f"; waiting, with {explanation.free_slots} free slots on this server" if explanation.ready else ""
        return "no process" + waiting
    where = "this server" if explanation.here else "another process"
    if not explanation.session_expires:
        return f"session {explanation.session}, which has expired"
    left = (explanation.session_expires - now_ms()) / 1000
    return f"session {explanation.session} of {where}, expires in {left:.0f} s unless renewed"


COMMANDS: Final = {"failures": Command(list_failures), "explain": Command(explain), "steps": Command(list_steps)}
