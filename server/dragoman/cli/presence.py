"""What the commands of `workers.py` do: calls of `dragoman.ops.v1`, answers on stdout."""

from __future__ import annotations

from dragoman.cli.operate import DONE, Where
from dragoman.cli.render import Output, json_line
from dragoman.client.operations import Operator
from dragoman_pb.dragoman.ops.v1 import workers_pb2 as ops


async def show(where: Where, *, json: bool) -> int:
    """Prints agents and their workers."""
    async with Operator(where.grpc, token=where.token) as operator:
        answer = await operator.list_workers(ops.ListWorkersRequest())
    out = Output()
    for one in answer.agents:
        if json:
            out.line(json_line(one))
            continue
        seen = "" if one.workers else f", seen {one.seen.ToDatetime():%Y-%m-%d %H:%M:%S} UTC"
        out.line(f"{one.agent}  ({one.principal}{seen})")
        for worker in one.workers:
            drains = ", drains" if worker.draining else ""
            out.line(f"  {worker.name} ({worker.peer}): {worker.running} running, {worker.free} free{drains}")
        if not one.workers:
            out.line("  no worker is here")
    if not answer.agents and not json:
        out.line("no worker ever came")
    return DONE


async def forget(where: Where, agent: str) -> int:
    """Has an agent forgotten."""
    async with Operator(where.grpc, token=where.token) as operator:
        answer = await operator.forget_agent(ops.ForgetAgentRequest(agent=agent))
    Output().line(f"forgotten: {agent}; tasks that waited for it and ended as FAILED: {answer.ended_tasks}")
    return DONE
