"""`dragoman.ops.v1` over gRPC, third part: push notifications, seen by those who run the server."""

from __future__ import annotations

from typing import Final

import grpc

from dragoman.bindings import ops_calls
from dragoman.bindings.ops_calls import Check, Refuse
from dragoman.bindings.pushes import config
from dragoman.core.errors import InvalidParams
from dragoman.core.push.delivery import PushRecord
from dragoman.core.task.maintenance import TaskSelection
from dragoman.runtime.push.scheduler import Redelivery
from dragoman_pb.dragoman.ops.v1 import push_pb2 as ops

LISTED: Final = 100
MOST_LISTED: Final = 1000


class PushOperations:
    """The operations, as messages in and messages out. All raise children of core.errors.A2AError."""

    def __init__(self, redelivery: Redelivery) -> None:
        self._redelivery = redelivery

    async def list_push_configs(self, request: ops.ListPushConfigsRequest) -> ops.ListPushConfigsResponse:
        """The configurations of a task, or all that have something to deliver."""
        if request.task_id:
            found = await self._redelivery.of_selection(_selection(request))
            return ops.ListPushConfigsResponse(configs=[config(one.push, one.attempts) for one in found])
        if not 0 <= request.limit <= MOST_LISTED:
            raise InvalidParams.field("limit", f"must be 1 to {MOST_LISTED}, or 0 for {LISTED}")
        waiting = await self._redelivery.waiting(request.limit or LISTED)
        return ops.ListPushConfigsResponse(configs=[config(push) for push in waiting if _meant(request, push)])

    async def redeliver(self, request: ops.RedeliverRequest) -> ops.RedeliverResponse:
        """Begins again to deliver."""
        if not request.task_id:
            raise InvalidParams.field("taskId", "is required")
        first: int | None = getattr(request, "from") if request.HasField("from") else None
        after = None if first is None else first - 1
        begun = await self._redelivery.redeliver(_selection(request), request.config_id, after)
        return ops.RedeliverResponse(configs=[config(push) for push in begun])


def unary(redelivery: Redelivery) -> ops_calls.Unary:
    """These operations, by the names of their methods."""
    operations = PushOperations(redelivery)
    return {
        "ListPushConfigs": (ops.ListPushConfigsRequest, operations.list_push_configs),
        "Redeliver": (ops.RedeliverRequest, operations.redeliver),
    }


def handler(redelivery: Redelivery, check: Check, refuse: Refuse) -> grpc.GenericRpcHandler:
    """What grpc calls for these operations."""
    return ops_calls.handler(unary(redelivery), check, refuse)


def _selection(request: ops.ListPushConfigsRequest | ops.RedeliverRequest) -> TaskSelection:
    return TaskSelection(task=request.task_id, agent=request.agent, principal=request.principal, scope=request.scope)


def _meant(request: ops.ListPushConfigsRequest, push: PushRecord) -> bool:
    owner = push.task.owner
    return (
        request.agent in ("", push.agent)
        and request.principal in ("", owner.principal)
        and request.scope in ("", owner.scope)
    )
