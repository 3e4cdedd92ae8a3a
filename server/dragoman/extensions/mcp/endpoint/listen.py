"""Streams of notifications: changed tasks and changed tools (2026-07-28 basic/patterns/subscriptions; SEP-2663)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Final

import orjson

from dragoman.core.access.identity import Identity
from dragoman.core.errors import A2AError, InvalidParams
from dragoman.extensions.mcp.endpoint.answers import read_view
from dragoman.extensions.mcp.endpoint.services import McpServices
from dragoman.extensions.mcp.endpoint.tool_call import notification
from dragoman.extensions.mcp.wire import results, tools
from dragoman.extensions.mcp.wire.envelope import SUBSCRIPTION_META, ClientFeatures
from dragoman.extensions.mcp.wire.errors import TASKS_REQUIRED, MissingClientCapability
from dragoman.runtime.access import Call
from dragoman.wire.dialects import Dialect
from dragoman.wire.http import sse
from dragoman.wire.json import request as json_request
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

MAX_FOLLOWED_TASKS: Final = 100
"""Tasks of one stream. Each counts as an open stream of its caller."""


class Listener:
    """One stream of notifications."""

    def __init__(
        self,
        services: McpServices,
        client: ClientFeatures,
        rpc_id: str | int | None,
        params: Mapping[str, Any],
        identity: Identity,
    ) -> None:
        """Raises InvalidParams, and MissingClientCapability for tasks without the extension."""
        wanted = params.get("notifications")
        if not isinstance(wanted, dict):
            raise InvalidParams.field("notifications", "is required, and must be an object")
        handles = wanted.get("taskIds", [])
        if not isinstance(handles, list) or not all(isinstance(handle, str) for handle in handles):
            raise InvalidParams.field("notifications.taskIds", "must be a list of strings")
        if len(handles) > MAX_FOLLOWED_TASKS:
            raise InvalidParams.field("notifications.taskIds", f"must have at most {MAX_FOLLOWED_TASKS} tasks")
        if handles and not client.takes_tasks:
            raise MissingClientCapability("notifications.taskIds: needs the tasks extension", TASKS_REQUIRED)
        self._services = services
        self._client = client
        self._rpc_id = rpc_id
        self._identity = identity
        self._handles = list(dict.fromkeys(handles))
        self._wants_tools = wanted.get("toolsListChanged") is True
        self._frames: asyncio.Queue[bytes | Exception] = asyncio.Queue(MAX_FOLLOWED_TASKS)

    async def frames(self) -> AsyncGenerator[Sequence[bytes], None]:
        """The acknowledgment, then notifications, until the client disconnects."""
        calls = [(handle, call) for handle in self._handles if (call := await self._call_for(handle)) is not None]
        accepted: dict[str, Any] = {"toolsListChanged": True} if self._wants_tools else {}
        if self._handles:
            accepted["taskIds"] = [handle for handle, _ in calls]
        yield (self._notification("notifications/subscriptions/acknowledged", {"notifications": accepted}),)
        workers = [asyncio.create_task(self._run(self._follow(handle, call))) for handle, call in calls]
        if self._wants_tools:
            workers.append(asyncio.create_task(self._run(self._watch_tools())))
        try:
            while True:
                frame = await self._frames.get()
                if isinstance(frame, Exception):
                    raise frame
                yield (frame,)
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)

    def last_frame(self) -> bytes:
        """The last event when the server stops: the response to the request, as an end in order has one."""
        result = {"resultType": "complete", "_meta": {SUBSCRIPTION_META: self._rpc_id}}
        return sse.frame(json_request.encode_result(self._rpc_id, orjson.dumps(result)))

    async def _call_for(self, handle: str) -> Call | None:
        """The call that follows a task; None for one that the caller does not see."""
        tenant, task_id = tools.split_handle(handle)
        operations = self._services.pipeline.operations
        try:
            caller = operations.access.authorize(tenant, self._identity)
            call = Call(caller, dialect=Dialect.V1.value, shows_finished=True)
            await read_view(operations, call, tenant, task_id)
        except A2AError:
            return None
        return call

    async def _run(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Exception as error:
            await self._frames.put(error)

    async def _follow(self, handle: str, call: Call) -> None:
        """Sends the task at each change of its status, and at once as it is."""
        tenant, task_id = tools.split_handle(handle)
        operations = self._services.pipeline.operations
        events = operations.read.subscribe_to_task(call, pb.SubscribeToTaskRequest(id=task_id))
        async with aclosing(events):
            async for batch in events:
                if any(event.state for event in batch):
                    view = await read_view(operations, call, tenant, task_id)
                    task = results.task_object(view, self._client, self._services.clock())
                    await self._frames.put(self._notification("notifications/tasks", task))

    async def _watch_tools(self) -> None:
        """Tells when the tools of the caller may have changed."""
        while True:
            await self._services.cards.changed.wait()
            await self._frames.put(self._notification("notifications/tools/list_changed", {}))

    def _notification(self, method: str, params: Mapping[str, Any]) -> bytes:
        meta = {**params.get("_meta", {}), SUBSCRIPTION_META: self._rpc_id}
        return sse.frame(notification(method, {**params, "_meta": meta}))
