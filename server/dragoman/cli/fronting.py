"""What the commands of `agents.py` do: calls of `dragoman.ops.v1`, answers on stdout."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import typer

from dragoman.cli.operate import DONE, Where
from dragoman.cli.render import Output, json_line
from dragoman.client.operations import Operator
from dragoman_pb.dragoman.ops.v1 import ops_pb2 as ops
from dragoman_pb.dragoman.ops.v1 import upstreams_pb2 as up


def asked(
    url: str, id: str, prefix: str, token_file: str, headers: Sequence[str], turns: int | None
) -> up.AddUpstreamRequest:
    """The request that options mean. Raises typer.BadParameter."""
    request = up.AddUpstreamRequest(url=url, id=id, prefix=prefix, turns=turns or 0)
    for header in headers:
        name, colon, value = header.partition(":")
        if not colon or not name.strip():
            raise typer.BadParameter("is NAME: TEXT, such as 'X-Api-Key: abc'", param_hint="--header")
        request.headers[name.strip()] = value.strip()
    if token_file:
        try:
            text = sys.stdin.read() if token_file == "-" else Path(token_file).read_text("utf-8")
        except (OSError, ValueError) as error:
            raise typer.BadParameter(f"{token_file} cannot be read: {error}", param_hint="--token-file") from error
        request.headers["Authorization"] = f"Bearer {text.strip()}"
    return request


async def show(where: Where, *, json: bool) -> int:
    """Prints agents, and what is known of those upstream."""
    async with Operator(where.grpc, token=where.token) as operator:
        agents = (await operator.list_agents(ops.ListAgentsRequest())).agents
        upstream = (await operator.list_upstreams(up.ListUpstreamsRequest())).upstreams
    out, known = Output(), {one.agent: one for one in upstream}
    for agent in agents:
        if json:
            out.line(json_line(agent))
            continue
        out.line(f"{agent.id}{'  (root)' if agent.root else ''}  {agent.name}: {agent.description}")
        if agent.id in known:
            _tell(out, known[agent.id])
    if json:
        for one in upstream:
            out.line(json_line(one))
    return DONE


async def add(where: Where, request: up.AddUpstreamRequest, *, json: bool) -> int:
    """Has an agent added."""
    async with Operator(where.grpc, token=where.token) as operator:
        added = (await operator.add_upstream(request)).upstream
    out = Output()
    out.line(json_line(added) if json else f"added: {added.agent}")
    if not json:
        _tell(out, added)
    return DONE


async def remove(where: Where, agent: str) -> int:
    """Has an agent removed."""
    async with Operator(where.grpc, token=where.token) as operator:
        answer = await operator.remove_upstream(up.RemoveUpstreamRequest(agent=agent))
    Output().line(f"removed: {agent}; tasks that waited for it and ended as FAILED: {answer.ended_tasks}")
    return DONE


def _tell(out: Output, one: up.Upstream) -> None:
    source = "in the settings" if one.settings else "added"
    shown = ", with credentials" if one.credentials else ""
    out.line(f"  upstream {one.url} ({source}{shown}): {one.running} of {one.turns} turns")
    for index, interface in enumerate(one.interfaces):
        out.line(f"  {'uses' if not index else 'also'} {interface}")
    for why in one.left_out:
        out.line(f"  left out: {why}")
    if one.away:
        out.line(f"  away for {one.away // 1000} s: {one.trouble}")
    elif one.trouble:
        out.line(f"  not reached just now: {one.trouble}")
