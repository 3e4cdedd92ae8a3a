"""What the commands of `push.py` do: calls of `dragoman.ops.v1`, answers on stdout."""

from __future__ import annotations

from datetime import UTC, datetime

from google.protobuf.timestamp_pb2 import Timestamp

from dragoman.cli.operate import DONE, Where
from dragoman.cli.render import Output, json_line
from dragoman.client.operations import Operator
from dragoman_pb.dragoman.ops.v1 import push_pb2 as ops


def asked(task: str, *, agent: str, principal: str, scope: str, limit: int) -> ops.ListPushConfigsRequest:
    """The request that the command line describes."""
    return ops.ListPushConfigsRequest(task_id=task, agent=agent, principal=principal, scope=scope, limit=limit)


def again(task: str, config: str, first: int | None, *, agent: str, principal: str, scope: str) -> ops.RedeliverRequest:
    """The request that the command line describes."""
    more = {} if first is None else {"from": first}
    return ops.RedeliverRequest(task_id=task, config_id=config, agent=agent, principal=principal, scope=scope, **more)


async def show(where: Where, request: ops.ListPushConfigsRequest, *, json: bool) -> int:
    """Prints configurations."""
    async with Operator(where.grpc, token=where.token) as operator:
        answer = await operator.list_push_configs(request)
    out = Output()
    for config in answer.configs:
        if json:
            out.line(json_line(config))
            continue
        out.line(f"task       {config.task_id}  (agent {config.agent}, {config.principal} in {config.scope})")
        for line in lines(config):
            out.line(line)
        out.line("")
    if not answer.configs and not json:
        out.line("no push configurations" if request.task_id else "nothing waits, and nothing was given up")
    return DONE


async def redeliver(where: Where, request: ops.RedeliverRequest, *, json: bool) -> int:
    """Has events delivered, and prints which."""
    async with Operator(where.grpc, token=where.token) as operator:
        answer = await operator.redeliver(request)
    out = Output()
    for config in answer.configs:
        if json:
            out.line(json_line(config))
            continue
        left = config.last - config.delivered
        what = f"events {config.delivered + 1} to {config.last}" if left > 0 else "nothing is left to deliver"
        out.line(f"{config.id}  {what}  {config.url}")
    return DONE


def lines(config: ops.PushConfig) -> list[str]:
    """A configuration for people, its tries included."""
    state = ops.PushState.Name(config.state).removeprefix("PUSH_STATE_")
    said = [
        f"config     {config.id}",
        f"url        {config.url}  (in the words of {config.dialect})",
        f"state      {state}" + (f": {config.why}" if config.why else ""),
        f"delivered  {config.delivered} of {config.last} events" + _lag(config),
    ]
    if config.HasField("failing_since"):
        said.append(f"failing    since {_when(config.failing_since)}; tries of the next event: {config.failures}")
    if config.HasField("next_try"):
        said.append(f"next try   {_when(config.next_try)}")
    elif config.delivering:
        said.append("next try   now")
    for one in config.attempts:
        what = one.error or f"answered {one.status}"
        said.append(f"  {_when(one.time)}  event {one.sequence}  {what}  ({one.milliseconds} ms)")
    return said


def _lag(config: ops.PushConfig) -> str:
    left = config.last - config.delivered
    return f", {left} to go" if left > 0 else ""


def _when(time: Timestamp) -> str:
    return f"{datetime.fromtimestamp(time.ToMilliseconds() / 1000, UTC).astimezone():%Y-%m-%d %H:%M:%S}"
