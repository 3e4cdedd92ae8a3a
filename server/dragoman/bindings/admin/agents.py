"""Operator calls for workers and upstream agents (`dragoman.ops.v1`)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import grpc

from dragoman.bindings.admin import rpc_handler
from dragoman.bindings.admin.rpc_handler import AbortCall, AuthorizeOperator
from dragoman.core import agent_sources
from dragoman.core.errors import InvalidParams
from dragoman.ports import UpstreamRegistry, UpstreamStatus, WorkerHub
from dragoman_pb.dragoman.ops.v1 import upstreams_pb2 as upstreams_pb
from dragoman_pb.dragoman.ops.v1 import workers_pb2 as workers_pb


class WorkerOperations:
    """Operator calls from request message to response message. They raise A2AError."""

    def __init__(self, hub: WorkerHub) -> None:
        self._hub = hub

    async def list_workers(self, _: workers_pb.ListWorkersRequest) -> workers_pb.ListWorkersResponse:
        """Lists the agents of workers by id."""
        return workers_pb.ListWorkersResponse(
            agents=[
                workers_pb.WorkerAgent(
                    agent=one.agent,
                    principal=one.principal,
                    seen=datetime.fromtimestamp(one.last_seen / 1000, UTC),
                    workers=[
                        workers_pb.Worker(
                            name=worker.name,
                            peer=worker.peer,
                            free=worker.free_turns,
                            running=worker.running_turns,
                            draining=worker.draining,
                        )
                        for worker in one.workers
                    ],
                )
                for one in self._hub.list_agents()
            ]
        )

    async def forget_agent(self, request: workers_pb.ForgetAgentRequest) -> workers_pb.ForgetAgentResponse:
        """Removes an agent of workers, which frees its id."""
        if not request.agent:
            raise InvalidParams.field("agent", "is required")
        return workers_pb.ForgetAgentResponse(ended_tasks=await self._hub.forget(request.agent))


def worker_operations(hub: WorkerHub) -> rpc_handler.UnaryOperations:
    """The operations by method name."""
    operations = WorkerOperations(hub)
    return {
        "ListWorkers": (workers_pb.ListWorkersRequest, operations.list_workers),
        "ForgetAgent": (workers_pb.ForgetAgentRequest, operations.forget_agent),
    }


def worker_handler(hub: WorkerHub, authorize: AuthorizeOperator, abort: AbortCall) -> grpc.GenericRpcHandler:
    """The handler for grpc."""
    return rpc_handler.service_handler(worker_operations(hub), authorize, abort)


class UpstreamOperations:
    """Operator calls from request message to response message. They raise A2AError."""

    def __init__(self, registry: UpstreamRegistry) -> None:
        self._registry = registry

    async def list_upstreams(self, _: upstreams_pb.ListUpstreamsRequest) -> upstreams_pb.ListUpstreamsResponse:
        """Lists the upstream agents with their status, by id."""
        return upstreams_pb.ListUpstreamsResponse(upstreams=map(_upstream_message, self._registry.status()))

    async def add_upstream(self, request: upstreams_pb.AddUpstreamRequest) -> upstreams_pb.AddUpstreamResponse:
        """Adds an upstream agent."""
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
        return upstreams_pb.AddUpstreamResponse(upstream=_upstream_message(await self._registry.add(upstream)))

    async def remove_upstream(self, request: upstreams_pb.RemoveUpstreamRequest) -> upstreams_pb.RemoveUpstreamResponse:
        """Removes an upstream agent."""
        if not request.agent:
            raise InvalidParams.field("agent", "is required")
        return upstreams_pb.RemoveUpstreamResponse(ended_tasks=await self._registry.remove(request.agent))


def _upstream_message(status: UpstreamStatus) -> upstreams_pb.Upstream:
    return upstreams_pb.Upstream(
        agent=status.agent,
        url=status.url,
        settings=status.from_settings,
        credentials=status.has_credentials,
        away=round(status.seconds_absent * 1000),
        trouble=status.problem,
        interfaces=status.interfaces,
        left_out=status.skipped_interfaces,
        running=status.running_turns,
        turns=status.max_turns,
    )


def upstream_handler(
    registry: UpstreamRegistry, authorize: AuthorizeOperator, abort: AbortCall
) -> grpc.GenericRpcHandler:
    """The handler for grpc."""
    operations = UpstreamOperations(registry)
    unary: rpc_handler.UnaryOperations = {
        "ListUpstreams": (upstreams_pb.ListUpstreamsRequest, operations.list_upstreams),
        "AddUpstream": (upstreams_pb.AddUpstreamRequest, operations.add_upstream),
        "RemoveUpstream": (upstreams_pb.RemoveUpstreamRequest, operations.remove_upstream),
    }
    return rpc_handler.service_handler(unary, authorize, abort)
