"""`dragoman.ops.v1` over gRPC: the workers that dialled in, seen by those who run the server."""

from __future__ import annotations

from datetime import UTC, datetime

import grpc

from dragoman.bindings import ops_calls
from dragoman.bindings.ops_calls import Check, Refuse
from dragoman.core.errors import InvalidParams
from dragoman.ports import WorkerHub
from dragoman_pb.dragoman.ops.v1 import workers_pb2 as ops


class WorkerOperations:
    """The operations, as messages in and messages out. All raise children of core.errors.A2AError."""

    def __init__(self, switchboard: WorkerHub) -> None:
        self._switchboard = switchboard

    async def list_workers(self, _: ops.ListWorkersRequest) -> ops.ListWorkersResponse:
        """The agents of workers, by id."""
        return ops.ListWorkersResponse(
            agents=[
                ops.WorkerAgent(
                    agent=one.agent,
                    principal=one.principal,
                    seen=datetime.fromtimestamp(one.last_seen / 1000, UTC),
                    workers=[
                        ops.Worker(
                            name=worker.name,
                            peer=worker.peer,
                            free=worker.free_turns,
                            running=worker.running_turns,
                            draining=worker.draining,
                        )
                        for worker in one.workers
                    ],
                )
                for one in self._switchboard.list_agents()
            ]
        )

    async def forget_agent(self, request: ops.ForgetAgentRequest) -> ops.ForgetAgentResponse:
        """Frees the id of an agent."""
        if not request.agent:
            raise InvalidParams.field("agent", "is required")
        return ops.ForgetAgentResponse(ended_tasks=await self._switchboard.forget(request.agent))


def unary(switchboard: WorkerHub) -> ops_calls.Unary:
    """These operations, by the names of their methods."""
    operations = WorkerOperations(switchboard)
    return {
        "ListWorkers": (ops.ListWorkersRequest, operations.list_workers),
        "ForgetAgent": (ops.ForgetAgentRequest, operations.forget_agent),
    }


def handler(switchboard: WorkerHub, check: Check, refuse: Refuse) -> grpc.GenericRpcHandler:
    """What grpc calls for these operations."""
    return ops_calls.handler(unary(switchboard), check, refuse)
