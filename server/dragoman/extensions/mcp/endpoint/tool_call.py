"""A call of a tool that waits for its task: progress, questions and the result, as frames of its response."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any, Final

import orjson

from dragoman.core.errors import InvalidParams, Unavailable
from dragoman.core.names import tenant_of
from dragoman.core.task import states
from dragoman.core.task.log import Event
from dragoman.extensions.mcp.endpoint.answers import read_view
from dragoman.extensions.mcp.wire import results
from dragoman.extensions.mcp.wire.envelope import CURSOR_META, TASK_META, ClientFeatures, Envelope
from dragoman.extensions.mcp.wire.results import TaskView
from dragoman.extensions.mcp.wire.tools import AgentTool, handle_of
from dragoman.runtime import Operations
from dragoman.runtime.access import Call
from dragoman.runtime.feeds import EventStream
from dragoman.wire.http import sse
from dragoman.wire.json import request as json_request
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

MIN_PROGRESS_INTERVAL: Final = 0.1
"""Seconds between two progress notifications for streamed output."""

ANSWER_WAIT: Final = 300.0
"""Seconds for which an open call waits for the answer of its user."""

RECONNECT_MILLISECONDS: Final = 3000
"""After which a client reconnects a broken stream (SSE `retry`). The official clients try twice: a server that was
killed has to serve again within twice this time."""

MAX_RESULT_EVENT_BYTES: Final = 1_000_000
"""Bytes of a result in a stream: the official Python client reads no event above 1 MiB, but JSON of any size."""

_ELICITATION_PREFIX: Final = "elicit."
_RESUME_PREFIX: Final = "r1."


@dataclass(frozen=True, slots=True)
class ResumePoint:
    """Where the stream of a call continues (2025-11-25 Streamable HTTP, "Resumability"): the id of its SSE events."""

    tenant: str
    task_id: str
    cursor: str
    rpc_id: str | int | None
    progress_token: str | int | None
    tool: str

    def __str__(self) -> str:
        values = [self.tenant, self.task_id, self.cursor, self.rpc_id, self.progress_token, self.tool]
        return _RESUME_PREFIX + _encode(values)

    @classmethod
    def parse(cls, text: str) -> ResumePoint:
        """The position that an event id names. Raises InvalidParams."""
        values = _decode(text, _RESUME_PREFIX)
        if (
            values is None
            or len(values) != 6
            or not all(isinstance(values[n], str) for n in (0, 1, 2, 5))
            or not all(isinstance(values[n], str | int | None) for n in (3, 4))
        ):
            raise InvalidParams.field("Last-Event-ID", "is no event id of this server")
        return cls(*values)


@dataclass(frozen=True, slots=True)
class ElicitationId:
    """The id of a request to the client: which question of which task its response answers."""

    tenant: str
    task_id: str
    key: str

    def __str__(self) -> str:
        return _ELICITATION_PREFIX + _encode([self.tenant, self.task_id, self.key])

    @classmethod
    def parse(cls, text: object) -> ElicitationId:
        """The question that the id of a response names. Raises InvalidParams."""
        values = _decode(text, _ELICITATION_PREFIX) if isinstance(text, str) else None
        if values is None or len(values) != 3 or not all(isinstance(value, str) for value in values):
            raise InvalidParams.field("id", "answers no request of this server")
        return cls(*values)


def _encode(values: Sequence[object]) -> str:
    return base64.urlsafe_b64encode(orjson.dumps(values)).decode().rstrip("=")


def _decode(text: str, prefix: str) -> list[Any] | None:
    encoded = text.removeprefix(prefix)
    if encoded == text:
        return None
    try:
        values = orjson.loads(base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)))
    except ValueError:
        return None
    return values if isinstance(values, list) else None


class WaitingCall:
    """One call that waits for its task."""

    def __init__(
        self,
        operations: Operations,
        call: Call,
        envelope: Envelope,
        rpc_id: str | int | None,
        tool: AgentTool | None,
        *,
        wait: float,
        on_disconnect: Callable[[WaitingCall], None] | None = None,
        find_task: Callable[[], Awaitable[pb.SendMessageResponse]] | None = None,
    ) -> None:
        """`tool`: None for tools of tasks. `wait`: seconds. `on_disconnect`: called if the client leaves before the
        end. `find_task`: returns what the call began, when no event has named it."""
        self._operations = operations
        self.call = call
        self._client = envelope.client
        self._rpc_id = rpc_id
        self._token = envelope.progress_token
        self.tenant = tenant_of(call.caller.owner.scope, call.caller.agent)
        self._tool = tool
        self._wait = wait
        self._on_disconnect = on_disconnect
        self._find_task = find_task
        self._clock = asyncio.get_running_loop().time
        self._next_progress = 0.0
        self._reply: pb.Message | None = None
        self._cursor = call.cursor
        self.task_id = ""
        """Known with the first event."""
        self.result: bytes | None = None
        """The JSON-RPC response, when the call has ended."""

    async def frames(self, events: EventStream) -> AsyncGenerator[Sequence[bytes], None]:
        """The response as server-sent events, in batches; the last event is the result.

        An error before the first event is raised.
        """
        try:
            deadline = self._clock() + self._wait
            async with aclosing(self._batches(events, deadline)) as batches:
                async for batch in batches:
                    if frames := self._progress(batch):
                        yield frames
            if self._reply is None and not self.task_id:
                await self._take_task()
            if self._reply is None:
                async with aclosing(self._ask_in_stream()) as questions:
                    async for question in questions:
                        yield question
            result = await self._final_result()
            self.result = json_request.encode_result(self._rpc_id, orjson.dumps(result))
            frame = self.result
            if len(frame) > MAX_RESULT_EVENT_BYTES:
                handle = handle_of(self.tenant, self.task_id)
                short = results.large_result(handle, has_output_schema=self._has_output_schema)
                frame = json_request.encode_result(self._rpc_id, orjson.dumps(complete(short, self._client)))
            yield (sse.frame(frame),)
        finally:
            if self.result is None and self._on_disconnect is not None:
                self._on_disconnect(self)

    def last_frame(self) -> bytes:
        """The last event when the server stops: a result that names the task. Older revisions resume the stream."""
        if not self._client.is_stateless or not self.task_id:
            return b""
        handle = handle_of(self.tenant, self.task_id)
        result = results.unfinished_result(handle, has_output_schema=self._has_output_schema)
        return sse.frame(json_request.encode_result(self._rpc_id, orjson.dumps(complete(result, self._client))))

    @property
    def _has_output_schema(self) -> bool:
        return self._tool is not None and self._tool.schemas.output is not None

    async def _batches(self, events: EventStream, deadline: float) -> AsyncGenerator[Sequence[Event], None]:
        """The batches of a stream until it ends, or until `deadline`."""
        async with aclosing(events):
            while True:
                try:
                    async with asyncio.timeout_at(deadline):
                        batch = await anext(events)
                except (StopAsyncIteration, TimeoutError):
                    return
                yield batch

    async def _take_task(self) -> None:
        """Learns the task of a call that got no event: no event may follow the cursor of a repeated one.

        Raises Unavailable if there is no way to.
        """
        if self._find_task is None:
            raise Unavailable
        sent = await self._find_task()
        if sent.HasField("message"):
            self._reply = sent.message
        self.task_id = sent.task.id

    def _progress(self, batch: Sequence[Event]) -> list[bytes]:
        """The frames for a batch of events: at most one notification."""
        text, is_first = "", not self.task_id
        for event in batch:
            response = pb.StreamResponse.FromString(event.data)
            match response.WhichOneof("payload"):
                case "message":
                    self._reply = response.message
                    return []
                case "task":
                    self.task_id = response.task.id
                case "status_update":
                    self.task_id = self.task_id or response.status_update.task_id
                case "artifact_update":
                    self.task_id = self.task_id or response.artifact_update.task_id
            self._cursor = event.cursor or self._cursor
            text = results.progress_text(response) or text
        frames = [self._priming_frame()] if is_first and not batch[-1].ends else []
        now = self._clock()
        if self._token is not None and text and now >= self._next_progress:
            self._next_progress = now + MIN_PROGRESS_INTERVAL
            params = {
                "progressToken": self._token,
                "progress": batch[-1].sequence,
                "message": text,
                "_meta": {TASK_META: handle_of(self.tenant, self.task_id), CURSOR_META: self._cursor},
            }
            frames.append(self._frame(notification("notifications/progress", params)))
        return [frame for frame in frames if frame]

    def _priming_frame(self) -> bytes:
        """An event without data: it gives the client an id to resume from (2025-11-25; earlier clients fail on it)."""
        if self._client.is_stateless or self._client.version < "2025-11-25":
            return b""
        return f"id: {self._resume_point()}\nretry: {RECONNECT_MILLISECONDS}\ndata: \n\n".encode()

    def _frame(self, message: bytes) -> bytes:
        return sse.frame(message, id=None if self._client.is_stateless else str(self._resume_point()))

    def _resume_point(self) -> ResumePoint:
        name = self._tool.name if self._tool else ""
        return ResumePoint(self.tenant, self.task_id, self._cursor, self._rpc_id, self._token, name)

    async def _ask_in_stream(self) -> AsyncGenerator[Sequence[bytes], None]:
        """Asks the questions of the task within the stream, in revisions whose servers send requests to clients."""
        if self._client.is_stateless:
            return
        view = await read_view(self._operations, self.call, self.tenant, self.task_id)
        while (request := results.elicitation_of(view, self._client)) is not None:
            id = ElicitationId(self.tenant, self.task_id, view.question_key)
            yield (self._frame(orjson.dumps({"jsonrpc": "2.0", "id": str(id), **request})),)
            follow = replace(self.call, cursor=self._cursor, stops_with_turn=False, shows_finished=True)
            events = self._operations.subscribe.subscribe_to_task(follow, pb.SubscribeToTaskRequest(id=self.task_id))
            deadline, asks_again = self._clock() + ANSWER_WAIT, False
            async with aclosing(self._batches(events, deadline)) as batches:
                async for batch in batches:
                    if frames := self._progress(batch):
                        yield frames
                    if any(event.state in states.INTERRUPTED for event in batch):
                        asks_again = True
                        break
            view = await read_view(self._operations, self.call, self.tenant, self.task_id)
            if not asks_again:
                return

    async def _final_result(self) -> Mapping[str, Any]:
        if self._reply is not None:
            result: Mapping[str, Any] = results.message_result(self._reply)
        else:
            view = await read_view(self._operations, self.call, self.tenant, self.task_id)
            if self._client.is_stateless and (request := results.elicitation_of(view, self._client)) is not None:
                state = str(ElicitationId(self.tenant, self.task_id, view.question_key))
                return {
                    "resultType": "input_required",
                    "inputRequests": {view.question_key: request},
                    "requestState": state,
                    "_meta": view.meta,
                }
            result = tool_result(view, self._tool)
        return complete(result, self._client)


def tool_result(view: TaskView, tool: AgentTool | None) -> Mapping[str, Any]:
    """The result of a call, checked against the output schema of its tool, if it has one."""
    has_schema = tool is not None and tool.schemas.output is not None
    result = results.task_result(view, has_output_schema=has_schema)
    if tool is None or not has_schema or result["isError"] or view.state != states.COMPLETED:
        return result
    problem = (
        tool.check_result(result["structuredContent"])
        if "structuredContent" in result
        else "the result has no data, or more than one value"
    )
    if not problem:
        return result
    text = f"The agent's result does not match the output schema of the tool: {problem}"
    return results.text_result(text, is_error=True, meta=view.meta)


def complete(result: Mapping[str, Any], client: ClientFeatures) -> Mapping[str, Any]:
    """A result in the client's revision."""
    if client.is_stateless:
        return {"resultType": "complete", **result}
    if not isinstance(result.get("structuredContent", {}), dict):  # only objects before 2026-07-28
        return {name: value for name, value in result.items() if name != "structuredContent"}
    return result


def notification(method: str, params: Mapping[str, Any]) -> bytes:
    """A JSON-RPC notification."""
    return orjson.dumps({"jsonrpc": json_request.JSONRPC_VERSION, "method": method, "params": params})
