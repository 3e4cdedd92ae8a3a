"""`push list`, `push redeliver`: push configurations, the state of their deliveries, and redelivery."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Annotated, Final

from dragoman.cli.commands import Command, CommandGroup, argument, option
from dragoman.cli.options import Json, ServerTarget, TaskId, TaskOwner
from dragoman.cli.output import ConsoleOutput, format_time
from dragoman.client.operations import Operator
from dragoman_pb.dragoman.ops import v1 as ops


async def list_configs(
    task: TaskId = "",
    limit: Annotated[
        int, option("--limit", "N", "Maximum number of configurations, without TASK.", min=1, max=1000)
    ] = 100,
    *,
    owner: TaskOwner,
    json: Json = False,
    target: ServerTarget,
) -> None:
    """List the push configurations of a task with their recent delivery attempts.

    Without a task: every configuration with undelivered events or a dead letter, longest failing first. Secrets are
    never printed.

    **Examples**

    `dragoman push list`

    `dragoman push list 0199f3c2-5c1e-7000-8000-3b1f0a52c0de`
    """
    request = ops.ListPushConfigsRequest(task_id=task, limit=limit, **asdict(owner))
    response = await target.call(Operator.list_push_configs, request)
    out = ConsoleOutput()
    out.messages(response.configs, _describe_config, json=json)
    if not response.configs and not json:
        out.line("no push configurations" if task else "no undelivered events and no dead letters")


async def redeliver(
    task: TaskId,
    config: Annotated[str, argument("CONFIG", "The id of one configuration. [all]")] = "",
    first: Annotated[int | None, option("--from", "N", "Redeliver from this event on; 1 is the first.", min=1)] = None,
    *,
    owner: TaskOwner,
    json: Json = False,
    target: ServerTarget,
) -> None:
    """Deliver undelivered events now, including those of configurations given up as dead letters.

    With --from, events already delivered are sent again. Receivers recognize repeats by the header `Dragoman-Event`.

    **Examples**

    `dragoman push redeliver 0199f3c2-5c1e-7000-8000-3b1f0a52c0de`

    `dragoman push redeliver 0199f3c2-5c1e-7000-8000-3b1f0a52c0de orders-hook --from 1`
    """
    request = ops.RedeliverRequest(task_id=task, config_id=config, **asdict(owner))
    if first is not None:
        setattr(request, "from", first)  # a Python keyword
    response = await target.call(Operator.redeliver, request)
    ConsoleOutput().messages(response.configs, _describe_redelivery, json=json)


def _describe_redelivery(config: ops.PushConfig) -> tuple[str]:
    left = config.last - config.delivered
    events = f"events {config.delivered + 1} to {config.last}" if left > 0 else "nothing to deliver"
    return (f"{config.id}  {events}  {config.url}",)


def _describe_config(config: ops.PushConfig) -> Iterator[str]:
    state = ops.PushState.Name(config.state).removeprefix("PUSH_STATE_")
    left = config.last - config.delivered
    remaining = f", {left} remaining" if left > 0 else ""
    yield f"task       {config.task_id}  (agent {config.agent}, {config.principal} in {config.scope})"
    yield f"config     {config.id}"
    yield f"url        {config.url}  (A2A {config.dialect})"
    yield f"state      {state}" + (f": {config.reason}" if config.reason else "")
    yield f"delivered  {config.delivered} of {config.last} events{remaining}"
    if config.HasField("failing_since"):
        yield f"failing    since {format_time(config.failing_since)}; attempts for the next event: {config.failures}"
    if config.HasField("next_attempt"):
        yield f"next       {format_time(config.next_attempt)}"
    elif config.delivering:
        yield "next       now"
    for one in config.attempts:
        outcome = one.error or f"HTTP {one.status}"
        yield f"  {format_time(one.time)}  event {one.sequence}  {outcome}  ({one.milliseconds} ms)"
    yield ""


COMMANDS: Final = {
    "push": CommandGroup(
        "List push configurations and redeliver events.",
        {"list": Command(list_configs), "redeliver": Command(redeliver)},
    )
}
