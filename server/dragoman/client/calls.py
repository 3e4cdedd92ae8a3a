"""The calls of A2A 1.0, each a method, whatever dialect and binding carries them."""

from __future__ import annotations

import asyncio
import os
import sys
import uuid
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import aclosing
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Self, cast

from google.protobuf.message import Message as ProtoMessage

from dragoman.calling import retry
from dragoman.calling.errors import ClientError
from dragoman.calling.transport import (
    BINDING_NAMES,
    DIALECT_NAMES,
    StreamResponses,
    Transport,
    WireTrace,
    no_wire_trace,
)
from dragoman.client.transport import CallOptions, open_transport
from dragoman.core import trace
from dragoman.core import trace as delegation
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb


def message(text: str = "", *, parts: Iterable[pb.Part] = (), task: str = "", context: str = "") -> pb.Message:
    """A user's message with an id of its own: `text` first, if there is any, then `parts`."""
    made = pb.Message(message_id=str(uuid.uuid4()), role=pb.ROLE_USER, task_id=task, context_id=context)
    if text:
        made.parts.add(text=text)
    made.parts.extend(parts)
    return made


class Client:
    """One server, and one of its agents (`""`: the root agent).

    An asynchronous context manager; calls may run at the same time. All raise ClientError.
    """

    def __init__(
        self,
        address: str,
        *,
        agent: str = "",
        dialect: str = "1.0",
        binding: str = "grpc",
        token: str = "",
        trace: WireTrace = no_wire_trace,
        retry_timeout: float = 60.0,
        ca: Path | None = None,
        cert: Path | None = None,
        parent: str = "",
    ) -> None:
        """`address` is HOST:PORT for gRPC, grpcs://HOST:PORT where it is encrypted, and a URL for `rest`,
        `jsonrpc`
        and `ws`. `page_token` proves who calls: an API key or any other bearer token. `trace` is told what goes over
        the
        wire, but not the token. `patience`: seconds for which a broken stream is taken up again. `ca`: a file of the
        authorities (PEM) that may have signed the server's certificate, by default those of the system.
        `cert`: our own certificate and its key in one file (PEM), for a server that asks for one. `parent`: the
        trace context (a `traceparent`) that calls carry, if any. Raises ValueError for a dialect that is not spoken
        over a binding.
        """
        check_protocol(dialect, binding)
        self.address = address
        self.agent = agent
        self.binding = binding
        self._dialect = dialect
        self._options = CallOptions(token=token, trace=trace, ca=ca, cert=cert)
        self._retry_timeout = retry_timeout
        self._parent = parent
        self._open_transport: Transport | None = None

    async def __aenter__(self) -> Self:
        self._open_transport = open_transport(self.address, self._dialect, self.binding, self.agent, self._options)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._open_transport is not None:
            await self._open_transport.close()
        self._open_transport = None

    async def send(
        self,
        message: pb.Message,
        *,
        configuration: pb.SendMessageConfiguration | None = None,
        metadata: Mapping[str, Any] | None = None,
        key: str = "",
    ) -> pb.SendMessageResponse:
        """Sends a message and waits for the task to end or to ask, as long as the server lets a caller wait.

        `key` is the send's idempotency key, by default one of its own: repeated with it, a send runs nothing again.

        With `configuration.return_immediately` it does not wait. The answer holds a task, or a message from
        an agent that needs no task.
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

        A connection that breaks is taken up again where it broke, under the same idempotency key.
        """
        request = self._request(message, configuration, metadata)
        return self._follow("SendStreamingMessage", request, key=key or str(uuid.uuid4()))

    def subscribe(self, task_id: str, *, after: str = "") -> StreamResponses:
        """Yields the Task as it is, then its updates until it has ended; after a cursor, only what follows that.

        A connection that breaks is taken up again where it broke. Raises ClientError with reason
        UNSUPPORTED_OPERATION when the task has ended already and no cursor is given.
        """
        request = pb.SubscribeToTaskRequest(tenant=self.agent, id=task_id)
        return self._follow("SubscribeToTask", request, after=after)

    async def _follow(
        self, rpc: str, request: pb.SendMessageRequest | pb.SubscribeToTaskRequest, *, after: str = "", key: str = ""
    ) -> StreamResponses:
        follow = retry.StreamResumption(
            after, until_terminal=rpc == "SubscribeToTask", retry_timeout=self._retry_timeout
        )
        while not follow.is_over:
            try:
                async with aclosing(
                    self._transport.stream(rpc, request, after=follow.cursor, key=key, parent=self._parent)
                ) as events:
                    async for event in events:
                        yield follow.record(event)
                follow.on_end()
            except ClientError as error:
                follow.on_error(error)
            if not follow.is_over:
                await asyncio.sleep(follow.delay)

    async def get(self, task_id: str, *, history: int | None = None) -> pb.Task:
        """The task with its last `history` messages (None: as many as the server likes)."""
        request = pb.GetTaskRequest(tenant=self.agent, id=task_id, history_length=history)
        return cast(pb.Task, await self._call("GetTask", request))

    async def list(
        self,
        *,
        context: str = "",
        state: pb.TaskState | str = pb.TASK_STATE_UNSPECIFIED,
        since: datetime | None = None,
        page_size: int | None = None,
        history: int | None = None,
        artifacts: bool | None = None,
    ) -> AsyncGenerator[pb.Task, None]:
        """Tasks by these filters, newest status first, page after page as they are asked for."""
        request = pb.ListTasksRequest(
            tenant=self.agent,
            context_id=context,
            status=state,
            page_size=page_size,
            history_length=history,
            include_artifacts=artifacts,
        )
        if since is not None:
            request.status_timestamp_after.FromDatetime(since)
        while True:
            page = cast(pb.ListTasksResponse, await self._call("ListTasks", request))
            for task in page.tasks:
                yield task
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    async def cancel(self, task_id: str) -> pb.Task:
        """Asks for the task to stop and gives it as it is then: still running when its agent is slow."""
        request = pb.CancelTaskRequest(tenant=self.agent, id=task_id)
        return cast(pb.Task, await self._call("CancelTask", request))

    async def _call(self, rpc: str, request: ProtoMessage, *, key: str = "") -> ProtoMessage:
        return await self._transport.call(rpc, request, key=key, parent=self._parent)

    @property
    def _transport(self) -> Transport:
        if self._open_transport is None:
            raise RuntimeError("use a Client inside `async with`")
        return self._open_transport

    def _request(
        self,
        message: pb.Message,
        configuration: pb.SendMessageConfiguration | None,
        metadata: Mapping[str, Any] | None,
    ) -> pb.SendMessageRequest:
        request = pb.SendMessageRequest(tenant=self.agent, message=message, configuration=configuration)
        if metadata:
            request.metadata.update(metadata)
        delegation.add_delegation(request)
        return request


def check_protocol(dialect: str, binding: str) -> None:
    """Raises ValueError, naming what is spoken, for a dialect that is not spoken over a binding."""
    if dialect not in DIALECT_NAMES:
        raise ValueError(f'dialect: "{dialect}" is not spoken; use one of {", ".join(DIALECT_NAMES)}')
    if binding not in BINDING_NAMES:
        raise ValueError(f'binding: there is no "{binding}"; use one of {", ".join(BINDING_NAMES)}')
    if dialect == "0.1" and binding in ("grpc", "rest"):
        raise ValueError("dialect 0.1 is spoken over jsonrpc and ws only")


TRACEPARENT_VARIABLE: Final = "TRACEPARENT"
"""The environment variable by which one program tells another which trace it is in."""


def current_traceparent() -> str:
    """A `traceparent` for a run.

    The first there is of: the turn of an agent that makes this call, in our own server; OpenTelemetry's current span,
    if its API is loaded; the environment variable TRACEPARENT; a new trace.
    """
    found = trace.CURRENT_TRACE.get() or _opentelemetry_traceparent()
    found = found or trace.parse_traceparent(os.environ.get(TRACEPARENT_VARIABLE, "").strip())
    return found or trace.format_traceparent(os.urandom(16).hex(), os.urandom(8).hex(), recorded=True)


def _opentelemetry_traceparent() -> str:
    api: Any = sys.modules.get("opentelemetry.trace")  # who does not use it need not have it
    if api is None:
        return ""
    span = api.get_current_span().get_span_context()
    if not span.is_valid:
        return ""
    return trace.format_traceparent(
        f"{span.trace_id:032x}", f"{span.span_id:016x}", recorded=bool(span.trace_flags & 1)
    )
