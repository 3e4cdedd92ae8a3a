"""`dragoman.ops.v1` over gRPC: the agents upstream, seen and chosen by those who run the server."""

from __future__ import annotations

from typing import Any

import grpc

from dragoman.bindings import ops_calls
from dragoman.bindings.ops_calls import Check, Refuse
from dragoman.core import agent_sources
from dragoman.core.errors import InvalidParams
from dragoman.ports import UpstreamRegistry, UpstreamStatus
from dragoman_pb.dragoman.ops.v1 import upstreams_pb2 as ops


class UpstreamOperations:
    """The operations, as messages in and messages out. All raise children of core.errors.A2AError."""

    def __init__(self, directory: UpstreamRegistry) -> None:
        self._directory = directory

    async def list_upstreams(self, _: ops.ListUpstreamsRequest) -> ops.ListUpstreamsResponse:
        """How it stands with each, by id."""
        return ops.ListUpstreamsResponse(upstreams=map(_message, self._directory.status()))

    async def add_upstream(self, request: ops.AddUpstreamRequest) -> ops.AddUpstreamResponse:
        """Stands in front of one more."""
        table: dict[str, Any] = {
            "url": request.url,
            "id": request.id,
            "prefix": request.prefix,
            "headers": dict(request.headers),
        }
        if request.turns:
            table["turns"] = request.turns
        limit = request.time_limit
        try:
            upstream = agent_sources.upstream_from_table({**table, "time_limit": limit.seconds + limit.nanos / 1e9})
        except ValueError as error:
            field, _, rule = str(error).partition(": ")
            if not rule:
                raise InvalidParams(str(error)) from error
            raise InvalidParams.field(field, rule) from error
        return ops.AddUpstreamResponse(upstream=_message(await self._directory.add(upstream)))

    async def remove_upstream(self, request: ops.RemoveUpstreamRequest) -> ops.RemoveUpstreamResponse:
        """Stands in front of one no longer."""
        if not request.agent:
            raise InvalidParams.field("agent", "is required")
        return ops.RemoveUpstreamResponse(ended_tasks=await self._directory.remove(request.agent))


def _message(one: UpstreamStatus) -> ops.Upstream:
    return ops.Upstream(
        agent=one.agent,
        url=one.url,
        settings=one.from_settings,
        credentials=one.has_credentials,
        away=round(one.seconds_absent * 1000),
        trouble=one.problem,
        interfaces=one.interfaces,
        left_out=one.skipped_interfaces,
        running=one.running_turns,
        turns=one.max_turns,
    )


def handler(directory: UpstreamRegistry, check: Check, refuse: Refuse) -> grpc.GenericRpcHandler:
    """What grpc calls for these operations."""
    operations = UpstreamOperations(directory)
    unary: ops_calls.Unary = {
        "ListUpstreams": (ops.ListUpstreamsRequest, operations.list_upstreams),
        "AddUpstream": (ops.AddUpstreamRequest, operations.add_upstream),
        "RemoveUpstream": (ops.RemoveUpstreamRequest, operations.remove_upstream),
    }
    return ops_calls.handler(unary, check, refuse)
