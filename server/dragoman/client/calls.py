"""Single calls to one agent, in the messages of A2A 1.0: what the command line makes of its arguments."""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Iterable, Mapping
from contextlib import aclosing
from typing import Any, Final, Self, cast

from google.protobuf.message import Message as ProtoMessage

from dragoman.calling import retry
from dragoman.calling.errors import ClientError, NotSupported, ServerUnavailable
from dragoman.calling.transport import BINDING_NAMES, DIALECT_NAMES, StreamResponses
from dragoman.client.agent_connection import (
    AgentConnection,
    agent_url,
    connect_without_card,
    discover,
    is_http_url,
    split_grpc_url,
    url_problem,
)
from dragoman.client.options import CallOptions
from dragoman.core import trace as trace_context
from dragoman.core.task import states
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb


def message(text: str = "", *, parts: Iterable[pb.Part] = (), task: str = "", context: str = "") -> pb.Message:
    """A user's message with a new id: `text` first, if any, then `parts`."""
    result = pb.Message(message_id=str(uuid.uuid4()), role=pb.ROLE_USER, task_id=task, context_id=context)
    if text:
        result.parts.add(text=text)
    result.parts.extend(parts)
    return result


class Client:
    """The calls of one agent of a server (`""`: the root agent), over the dialect and binding that its caller names.
    Not public: programs use `dragoman.client.connect`. An asynchronous context manager. Calls may run concurrently; all
    raise ClientError."""

    def __init__(
        self,
        address: str,
        *,
        agent: str = "",
        dialect: str = "",
        binding: str = "",
        retry_timeout: float = 60.0,
        parent: str = "",
        options: CallOptions | None = None,
    ) -> None:
        """Stores the settings; `async with` connects.

        address: HOST:PORT, grpc://HOST:PORT or grpcs://HOST:PORT (encrypted) for gRPC; http:// or https:// for a server
        or its card, whose first interface is used. dialect: by default the newest of the card; 1.0 without a card.
        binding: `grpc` for the gRPC interface of the card; `rest`, `jsonrpc` and `ws` call the URL without a card.
        retry_timeout: seconds for which a broken stream is resumed. parent: the trace context (a `traceparent`) of all
        calls. Raises ValueError for an invalid address, and for a dialect that does not exist over a binding.
        """
        check_protocol(dialect, binding)
        if "://" in address and (problem := url_problem(address)):
            raise ValueError(problem)
        if binding not in ("", "grpc") and not is_http_url(address):
            raise ValueError(f"binding {binding} needs the HTTP address of the server, not {address}")
        if not is_http_url(address):
            check_protocol(dialect, "grpc")
            address, path = split_grpc_url(address)
            agent = agent or path
        self.address = address
        self.agent = agent
        self._binding = binding
        self._dialect = dialect
        self._options = options or CallOptions()
        self._retry_timeout = retry_timeout
        self._parent = parent
        self._connection: AgentConnection | None = None

    async def __aenter__(self) -> Self:
        if is_http_url(self.address) and self._binding in ("", "grpc"):
            url = agent_url(self.address, self.agent)
            self._connection = await discover(url, self._options, binding=self._binding, dialect=self._dialect)
        else:
            self._connection = connect_without_card(
                self.address, self.agent, self._options, binding=self._binding or "grpc", dialect=self._dialect or "1.0"
            )
        return self

    async def __aexit__(self, *_: object) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    async def send(
        self,
        message: pb.Message,
        *,
        configuration: pb.SendMessageConfiguration | None = None,
        metadata: Mapping[str, Any] | None = None,
        key: str = "",
    ) -> pb.SendMessageResponse:
        """Sends a message and waits until the task ends or is interrupted, at most for the server's limit.

        With `configuration.return_immediately` it does not wait. The response holds a task, or the message of an agent
        that needs no task. `key` is the idempotency key, by default a new one: a send repeated with the same key
        has no effect.
        """
        request = self._request(message, configuration, metadata)
        return cast(pb.SendMessageResponse, await self._call("SendMessage", request, key=key or str(uuid.uuid4())))

    def stream(self, message: pb.Message, *, key: str = "") -> StreamResponses:
        """Sends a message and yields the Task, then its updates until the turn ends; or one Message. A broken stream is
        resumed at its last event, with the same idempotency key."""
        request = self._request(message)
        return self._follow("SendStreamingMessage", request, key=key or str(uuid.uuid4()))

    def subscribe(self, task_id: str, *, after: str = "") -> StreamResponses:
        """Yields the Task, then its updates until it ends; with `after`, a cursor, only the events that follow it. A
        broken stream is resumed at its last event. Raises ClientError with reason UNSUPPORTED_OPERATION if the task has
        already ended and no cursor is given."""
        request = pb.SubscribeToTaskRequest(tenant=self._agent.interface.tenant, id=task_id)
        return self._follow("SubscribeToTask", request, after=after)

    async def replay(self, task_id: str) -> StreamResponses:
        """Yields the events of a task from its first to its newest one, and waits for no others. Raises NotSupported
        for servers without cursors."""
        request, newest = pb.SubscribeToTaskRequest(tenant=self._agent.interface.tenant, id=task_id), ""
        try:
            async with aclosing(self._stream("SubscribeToTask", request)) as events:
                async for event in events:
                    newest = retry.pop_cursor(event)
                    break
        except ClientError as error:
            if error.reason != "UNSUPPORTED_OPERATION":
                raise
        else:
            if not newest:
                raise NotSupported("UNIMPLEMENTED", "the server does not number the events of its tasks")
        # A task that has ended has no further events: its stream ends by itself.
        async with aclosing(self._stream("SubscribeToTask", request, after="0")) as events:
            async for event in events:
                cursor = retry.pop_cursor(event)
                yield event
                if newest and cursor == newest:
                    return

    async def _follow(
        self, rpc: str, request: pb.SendMessageRequest | pb.SubscribeToTaskRequest, *, after: str = "", key: str = ""
    ) -> StreamResponses:
        """Yields the events of a stream, which is over once the task or the turn has ended. One that ends earlier was
        interrupted: servers close their streams without an error at shutdown. Without cursors none is resumed, and a
        server that was never reached is not retried."""
        last_states = states.TERMINAL if rpc == "SubscribeToTask" else states.TERMINAL | states.INTERRUPTED
        budget, is_over = retry.RetryBudget(self._retry_timeout), False
        while True:
            failure: ClientError = ServerUnavailable.for_reason("the server ended the stream before the task")
            try:
                async with aclosing(self._stream(rpc, request, after=after, key=key)) as events:
                    async for event in events:
                        budget.reset()
                        after = retry.pop_cursor(event) or after
                        if not event.HasField("artifact_update"):
                            status = event.task.status if event.HasField("task") else event.status_update.status
                            is_over = event.HasField("message") or status.state in last_states
                        yield event
                if is_over or not after:
                    return
            except ClientError as error:
                if not after or "UNAVAILABLE" not in (error.code, error.reason):
                    raise
                failure = error
            await budget.wait(failure)

    async def get(self, task_id: str, *, history: int | None = None) -> pb.Task:
        """Reads a task with its last `history` messages (None: the server's default)."""
        request = pb.GetTaskRequest(tenant=self._agent.interface.tenant, id=task_id, history_length=history)
        return cast(pb.Task, await self._call("GetTask", request))

    async def cancel(self, task_id: str, *, metadata: Mapping[str, Any] | None = None) -> pb.Task:
        """Requests that a task stops, and returns the task, which may still be running."""
        request = pb.CancelTaskRequest(tenant=self._agent.interface.tenant, id=task_id)
        if metadata:
            request.metadata.update(metadata)
        return cast(pb.Task, await self._call("CancelTask", request))

    async def _call(self, rpc: str, request: ProtoMessage, *, key: str = "") -> ProtoMessage:
        return await self._agent.transport.call(rpc, request, key=key, parent=self._parent)

    def _stream(self, rpc: str, request: ProtoMessage, *, after: str = "", key: str = "") -> StreamResponses:
        return self._agent.transport.stream(rpc, request, after=after, key=key, parent=self._parent)

    @property
    def _agent(self) -> AgentConnection:
        if self._connection is None:
            raise RuntimeError("use a Client inside `async with`")
        return self._connection

    def _request(
        self,
        message: pb.Message,
        configuration: pb.SendMessageConfiguration | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> pb.SendMessageRequest:
        tenant = self._agent.interface.tenant
        request = pb.SendMessageRequest(tenant=tenant, message=message, configuration=configuration)
        if metadata:
            request.metadata.update(metadata)
        trace_context.add_delegation(request)
        return request


def check_protocol(dialect: str, binding: str) -> None:
    """Raises ValueError for an unknown dialect or binding, and for a dialect that does not exist over the binding.
    Empty: any."""
    if dialect not in ("", *DIALECT_NAMES):
        raise ValueError(f'dialect: "{dialect}" is unknown; use one of {", ".join(DIALECT_NAMES)}')
    if binding not in ("", *BINDING_NAMES):
        raise ValueError(f'binding: "{binding}" is unknown; use one of {", ".join(BINDING_NAMES)}')
    if dialect == "0.1" and binding in ("grpc", "rest"):
        raise ValueError("dialect 0.1 exists over jsonrpc and ws only")


TRACEPARENT_VARIABLE: Final = "TRACEPARENT"  # environment variable that passes a trace context to a child process


def current_traceparent() -> str:
    """Returns the trace context (`traceparent`) for a new call. The first of: the trace of the agent turn that makes
    this call; OpenTelemetry's current span, if its API is loaded; the environment variable TRACEPARENT; a new trace."""
    traceparent = trace_context.CURRENT_TRACE.get() or _opentelemetry_traceparent()
    traceparent = traceparent or trace_context.parse_traceparent(os.environ.get(TRACEPARENT_VARIABLE, "").strip())
    return traceparent or trace_context.format_traceparent(os.urandom(16).hex(), os.urandom(8).hex(), recorded=True)


def _opentelemetry_traceparent() -> str:
    api: Any = sys.modules.get("opentelemetry.trace")  # optional, so not imported here
    if api is None:
        return ""
    span = api.get_current_span().get_span_context()
    if not span.is_valid:
        return ""
    return trace_context.format_traceparent(
        f"{span.trace_id:032x}", f"{span.span_id:016x}", recorded=bool(span.trace_flags & 1)
    )
