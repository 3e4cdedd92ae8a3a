"""A server with authentication for tests of operators: its callers, and its stubs."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import aiohttp
import grpc
from tests.callers import ByHeader, named

from dragoman.core.task import states
from dragoman.ports import Agent
from dragoman.settings.settings import Address, Settings
from dragoman.wiring.app import App, open_app
from dragoman_pb.dragoman.ops.v1 import ops_pb2
from dragoman_pb.dragoman.ops.v1 import ops_pb2_grpc as ops_rpc
from dragoman_pb.dragoman.ops.v1 import tasks_pb2 as ops
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb
from dragoman_pb.lf.a2a.v1 import a2a_pb2_grpc as rpc

SCOPE: Final = "projects/p/locations/l/collections/c/engines/e/assistants/a"
ALICE, BOB = named("alice"), named("bob")
OLGA, VERA = named("olga", "operator"), named("vera", "viewer")
TENANT_OPERATOR, TENANT_VIEWER = named("tom", "operator", f"scope:{SCOPE}"), named("tina", "viewer", f"scope:{SCOPE}")


class Server:
    """A running server with authentication, and its stubs."""

    def __init__(self, app: App, channel: grpc.aio.Channel, http: aiohttp.ClientSession) -> None:
        self.app = app
        self.channel = channel
        self._v1: Any = rpc.A2AServiceStub(channel)
        self.ops: Any = ops_rpc.OpsServiceStub(channel)
        self.http = http

    async def send(
        self,
        text: str,
        caller: Mapping[str, str] = ALICE,
        tenant: str = "",
        *,
        task_id: str = "",
        parts: Sequence[pb.Part] = (),
        metadata: Mapping[str, Any] | None = None,
    ) -> str:
        """Sends a message and returns the id of its task. `parts`: beside the text."""
        message = pb.Message(message_id="m", role=pb.ROLE_USER, task_id=task_id, parts=[pb.Part(text=text), *parts])
        configuration = pb.SendMessageConfiguration(return_immediately=text.startswith("wait"))
        request = pb.SendMessageRequest(tenant=tenant, message=message, configuration=configuration)
        request.metadata.update(metadata or {})
        return str((await self._v1.SendMessage(request, metadata=tuple(caller.items()))).task.id)

    async def get(self, task: str, caller: Mapping[str, str] = ALICE, tenant: str = "") -> pb.Task:
        """The task as its owner sees it."""
        response: pb.Task = await self._v1.GetTask(
            pb.GetTaskRequest(tenant=tenant, id=task), metadata=tuple(caller.items())
        )
        return response

    async def list(self, caller: Mapping[str, str] = OLGA, **filters: Any) -> ops.ListTasksResponse:
        """The tasks that a caller sees."""
        request = ops.ListTasksRequest(**filters)
        response: ops.ListTasksResponse = await self.ops.ListTasks(request, metadata=tuple(caller.items()))
        return response

    async def cancel(self, task: str, caller: Mapping[str, str] = OLGA, **names: Any) -> ops.ListedTask:
        """Cancels a task as an operator."""
        request = ops.CancelTaskRequest(task_id=task, **names)
        response: ops.CancelTaskResponse = await self.ops.CancelTask(request, metadata=tuple(caller.items()))
        return response.task

    async def rerun(self, task: str, caller: Mapping[str, str] = OLGA, **fields: Any) -> ops.ListedTask:
        """Reruns a task as an operator."""
        request = ops.RerunTaskRequest(task_id=task, **fields)
        response: ops.RerunTaskResponse = await self.ops.RerunTask(request, metadata=tuple(caller.items()))
        return response.task

    async def ended(self, task: str, caller: Mapping[str, str] = ALICE, tenant: str = "") -> pb.Task:
        """The task when it has ended or asks, as its owner sees it."""
        request = pb.SubscribeToTaskRequest(tenant=tenant, id=task)
        stream = self._v1.SubscribeToTask(request, metadata=tuple(caller.items()))
        with suppress(grpc.aio.AioRpcError):  # it has ended already
            async for response in stream:
                state = response.task.status.state or response.status_update.status.state
                if state in states.TERMINAL | states.INTERRUPTED:
                    break
        found = await self.get(task, caller, tenant)
        assert found.status.state in states.TERMINAL | states.INTERRUPTED
        return found

    async def audit(self) -> Sequence[dict[str, Any]]:
        """The audit log."""
        stream = self.ops.ExportAudit(ops_pb2.ExportAuditRequest(), metadata=tuple(OLGA.items()))
        return [json.loads(line) async for response in stream for line in response.lines]


@asynccontextmanager
async def running_server(store: str, agents: Sequence[Agent], **more: Any) -> AsyncIterator[Server]:
    """Serves these agents from a store, with a header for the caller's name."""
    anywhere = Address("127.0.0.1", 0)
    settings = Settings(http=anywhere, grpc=anywhere, store=store, api_keys=True, **more)
    async with (
        open_app(settings, agents, ByHeader()) as app,
        aiohttp.ClientSession(f"http://{app.http}") as http,
        grpc.aio.insecure_channel(str(app.grpc)) as channel,
    ):
        yield Server(app, channel, http)
