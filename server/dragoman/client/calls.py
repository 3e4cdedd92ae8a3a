"""Single calls to one agent, in the messages of A2A 1.0: what the command line makes of its arguments."""

from __future__ import annotations

import asyncio
import os
import sys
import uuid
from collections.abc import Iterable, Mapping
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Self, cast

from google.protobuf.message import Message as ProtoMessage

from dragoman.calling import retry
from dragoman.calling.errors import ClientError, NotSupported
from dragoman.calling.transport import (
    BINDING_NAMES,
    DIALECT_NAMES,
    StreamResponses,
    WireTrace,
    no_wire_trace,
)
from dragoman.client.agent_connection import (
    AgentConnection,
    agent_url,
    discover,
    is_http_url,
    server_url,
    split_grpc_url,
    url_problem,
)
from dragoman.client.content_transport import ContentReceiver, ContentTransport
from dragoman.client.transport import CallOptions, open_transport
from dragoman.core import trace as trace_context
from dragoman.core.agent_sources import FileForm
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

    Not public: programs use `dragoman.client.connect`. An asynchronous context manager. Calls may run concurrently;
    all raise ClientError.
    """

    def __init__(
        self,
        address: str,
        *,
        agent: str = "",
        dialect: str = "",
        binding: str = "",
        token: str = "",
        trace: WireTrace = no_wire_trace,
        retry_timeout: float = 60.0,
        ca: Path | None = None,
        cert: Path | None = None,
        parent: str = "",
        v03_files: FileForm = "bytes",
    ) -> None:
        """Stores the settings; `async with` connects.

        address: HOST:PORT, grpc://HOST:PORT or grpcs://HOST:PORT (encrypted) for gRPC; http:// or https:// for a server
        or its card, whose first interface is used. dialect: by default the newest of the card; 1.0 without a card.
        binding: `grpc` for the gRPC interface of the card; `rest`, `jsonrpc` and `ws` call the URL without a card.
        token: an API key or any other bearer token. trace: receives the wire traffic, without the token.
        retry_timeout: seconds for which a broken stream is resumed. ca: a file (PEM) of the authorities to trust, by
        default those of the system. cert: a file (PEM) with the client certificate and its key. parent: the trace
        context (a `traceparent`) of all calls. v03_files: the form of files in 0.3 over gRPC and REST, see `connect`.
        Raises ValueError for an invalid address, and for a dialect that does not exist over a binding or an address.
        """
        self._calls_card = is_http_url(address) and binding in ("", "grpc")
        if not self._calls_card:
            binding, dialect = binding or "grpc", dialect or "1.0"
        check_protocol(dialect, binding)
        if "://" in address and (problem := url_problem(address)):
            raise ValueError(problem)
        if binding not in ("", "grpc") and not is_http_url(address):
            raise ValueError(f"binding {binding} needs the HTTP address of the server, not {address}")
        if not is_http_url(address):
            address, path = split_grpc_url(address)
            agent = agent or path
        self.address = address
        self.agent = agent
        self._binding = binding
        self._dialect = dialect
        self._options = CallOptions(token=token, trace=trace, ca=ca, cert=cert, v03_files=v03_files)
        self._retry_timeout = retry_timeout
        self._parent = parent
        self._tenant = agent
        self._open_transport: ContentTransport | None = None
        self._connection: AgentConnection | None = None

    def set_content_receiver(self, receive: ContentReceiver) -> None:
        """Sets what reads the contents that responses link to, before `async with`. By default they are read whole."""
        self._options = replace(self._options, receive_content=receive)

    async def __aenter__(self) -> Self:
        if self._calls_card:
            url = agent_url(self.address, self.agent)
            self._connection = await discover(url, self._options, binding=self._binding, dialect=self._dialect)
            self._open_transport = self._connection.transport
            self._tenant = self._connection.interface.tenant
        else:
            address = server_url(self.address) if is_http_url(self.address) else self.address
            self._open_transport = open_transport(address, self._dialect, self._binding, self.agent, self._options)
        return self

    async def __aexit__(self, *_: object) -> None:
        connection, self._connection = self._connection, None
        transport, self._open_transport = self._open_transport, None
        if connection is not None:
            await connection.close()
        elif transport is not None:
            await transport.close()

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

    def stream(
        self,
        message: pb.Message,
        *,
        configuration: pb.SendMessageConfiguration | None = None,
        metadata: Mapping[str, Any] | None = None,
        key: str = "",
    ) -> StreamResponses:
        """Sends a message and yields the Task, then its updates until the turn ends; or one Message.

        A broken stream is resumed at its last event, with the same idempotency key.
        """
        request = self._request(message, configuration, metadata)
        return self._follow("SendStreamingMessage", request, key=key or str(uuid.uuid4()))

    def subscribe(self, task_id: str, *, after: str = "") -> StreamResponses:
        """Yields the Task, then its updates until it ends; with `after`, a cursor, only the events that follow it.

        A broken stream is resumed at its last event. Raises ClientError with reason UNSUPPORTED_OPERATION if the task
        has already ended and no cursor is given.
        """
        request = pb.SubscribeToTaskRequest(tenant=self._tenant, id=task_id)
        return self._follow("SubscribeToTask", request, after=after)

    async def replay(self, task_id: str) -> StreamResponses:
        """Yields the events of a task from its first to its newest one, and waits for no others.

        Raises NotSupported for servers without cursors.
        """
        request = pb.SubscribeToTaskRequest(tenant=self._tenant, id=task_id)
        newest = ""
        try:
            async with aclosing(self._transport.stream("SubscribeToTask", request, parent=self._parent)) as events:
                async for event in events:
                    newest = retry.pop_cursor(event.task)
                    break
        except ClientError as error:
            if error.reason != "UNSUPPORTED_OPERATION":
                raise
        else:
            if not newest:
                raise NotSupported("UNIMPLEMENTED", "the server does not number the events of its tasks")
        # A task that has ended has no further events: its stream ends by itself.
        async with aclosing(
            self._transport.stream("SubscribeToTask", request, after="0", parent=self._parent)
        ) as events:
            async for event in events:
                cursor = retry.pop_cursor(getattr(event, str(event.WhichOneof("payload"))))
                yield event
                if newest and cursor == newest:
                    return

    async def _follow(
        self, rpc: str, request: pb.SendMessageRequest | pb.SubscribeToTaskRequest, *, after: str = "", key: str = ""
    ) -> StreamResponses:
        resumption = retry.StreamResumption(
            after, until_terminal=rpc == "SubscribeToTask", retry_timeout=self._retry_timeout
        )
        while not resumption.is_over:
            try:
                async with aclosing(
                    self._transport.stream(rpc, request, after=resumption.cursor, key=key, parent=self._parent)
                ) as events:
                    async for event in events:
                        yield resumption.record(event)
                resumption.on_end()
            except ClientError as error:
                resumption.on_error(error)
            if not resumption.is_over:
                await asyncio.sleep(resumption.delay)

    async def get(self, task_id: str, *, history: int | None = None) -> pb.Task:
        """Reads a task with its last `history` messages (None: the server's default)."""
        request = pb.GetTaskRequest(tenant=self._tenant, id=task_id, history_length=history)
        return cast(pb.Task, await self._call("GetTask", request))

    async def cancel(self, task_id: str, *, metadata: Mapping[str, Any] | None = None) -> pb.Task:
        """Requests that a task stops, and returns the task, which may still be running."""
        request = pb.CancelTaskRequest(tenant=self._tenant, id=task_id)
        if metadata:
            request.metadata.update(metadata)
        return cast(pb.Task, await self._call("CancelTask", request))

    async def _call(self, rpc: str, request: ProtoMessage, *, key: str = "") -> ProtoMessage:
        return await self._transport.call(rpc, request, key=key, parent=self._parent)

    @property
    def _transport(self) -> ContentTransport:
        if self._open_transport is None:
            raise RuntimeError("use a Client inside `async with`")
        return self._open_transport

    def _request(
        self,
        message: pb.Message,
        configuration: pb.SendMessageConfiguration | None,
        metadata: Mapping[str, Any] | None,
    ) -> pb.SendMessageRequest:
        request = pb.SendMessageRequest(tenant=self._tenant, message=message, configuration=configuration)
        if metadata:
            request.metadata.update(metadata)
        trace_context.add_delegation(request)
        return request


def check_protocol(dialect: str, binding: str) -> None:
    """Raises ValueError for an unknown dialect or binding, and for a dialect that does not exist over the binding.

    Empty: any.
    """
    if dialect not in ("", *DIALECT_NAMES):
        raise ValueError(f'dialect: "{dialect}" is unknown; use one of {", ".join(DIALECT_NAMES)}')
    if binding not in ("", *BINDING_NAMES):
        raise ValueError(f'binding: "{binding}" is unknown; use one of {", ".join(BINDING_NAMES)}')
    if dialect == "0.1" and binding in ("grpc", "rest"):
        raise ValueError("dialect 0.1 exists over jsonrpc and ws only")


TRACEPARENT_VARIABLE: Final = "TRACEPARENT"
"""Environment variable that passes a trace context to a child process."""


def current_traceparent() -> str:
    """Returns the trace context (`traceparent`) for a new call.

    The first of: the trace of the agent turn that makes this call; OpenTelemetry's current span, if its API is loaded;
    the environment variable TRACEPARENT; a new trace.
    """
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
