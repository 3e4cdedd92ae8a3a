"""Commands for those who run a server: calls of `dragoman.ops.v1`, answers on stdout."""

from __future__ import annotations

import time
from datetime import datetime

from google.protobuf.json_format import MessageToJson

from dragoman.cli.render import Output
from dragoman.client.operations import Operator
from dragoman_pb.dragoman.ops.v1 import ops_pb2 as ops
from dragoman_pb.dragoman.ops.v1 import push_pb2 as ops_push


async def explain(address: str, task_id: str, *, token: str, json: bool) -> int:
    """Shows where a task stands, who holds it, and what happens next."""
    async with Operator(address, token=token) as operator:
        answer = await operator.explain(ops.ExplainRequest(task_id=task_id))
    out = Output()
    for one in answer.tasks:
        if json:
            out.line(MessageToJson(one, indent=None))
            continue
        out.line(f"task         {one.task_id}")
        out.line(f"agent        {one.agent}  (scope {one.scope}, principal {one.principal})")
        out.line(f"state        {one.state.removeprefix('TASK_STATE_')} since {_when(one.since)}")
        out.line(f"made in      A2A {one.dialect or '?'}, context {one.context_id}")
        out.line(f"last event   {one.last_event}; {one.subscribers} following here")
        out.line(f"messages     {one.queued_messages} not seen by the agent yet")
        out.line(f"attempt      {one.attempt} of {one.attempts_allowed}")
        out.line(f"held by      {_holder(one)}")
        if one.worker:
            out.line(f"worker       {one.worker}")
        if one.tokens or one.cost:
            below = f"; {one.delegated_tokens:,} and {one.delegated_cost:g} of that by tasks that it delegated"
            told = below if one.delegated_tokens or one.delegated_cost else ""
            out.line(f"used         {one.tokens:,} tokens, cost {one.cost:g}{told}")
        if one.trace_id:
            out.line(f"trace        {one.trace_id}")
        for push in one.pushes:
            out.line(f"push         {_pushed(push)}")
        out.line(f"next         {one.next}")
    return 0


def _pushed(push: ops_push.PushConfig) -> str:
    state = ops_push.PushState.Name(push.state).removeprefix("PUSH_STATE_")
    left = push.last - push.delivered
    behind = f", {left} events behind" if left > 0 else ""
    return f"{push.id} to {push.url}: {state}{behind}" + (f"; {push.why}" if push.why else "")


def _holder(one: ops.Explanation) -> str:
    if not one.session:
        return "nobody" + (f"; it waits, and {one.free_slots} slots are free here" if one.ready else "")
    where = "this server" if one.here else "another process"
    if not one.session_expires:
        return f"session {one.session}, which has expired"
    left = one.session_expires / 1000 - time.time()
    return f"session {one.session} of {where}, good for {left:.0f} s more"


def _when(milliseconds: int) -> str:
    return f"{datetime.fromtimestamp(milliseconds / 1000).astimezone():%Y-%m-%d %H:%M:%S}"
