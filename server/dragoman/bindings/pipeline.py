"""The path of a request: ten steps, in one order, for every binding.

1. authenticate: who calls, by the credentials of the transport (A2A 1.0 §7)
2. rate: count the request; a caller over its rate gets no further
3. trace: continue the caller's trace, if traces are recorded
4. read: the body, within the limits
5. version: reject unknown values of `A2A-Version` (1.0 §3.6)
6. decode: find the row of the method table, and convert the dialect's request to that of 1.0
7. authorize: whether the caller may call the agent, and whose tasks it sees
8. call: the operation
9. encode: the response, or each event of a stream, in the dialect
10. observe: metrics, access log, span

`Pipeline.serve` runs them. A binding supplies a `RequestExchange`: how it reads a request and how it answers. An error
in any step becomes the binding's error response, and is observed too.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, ClassVar, Final, Generic, TypeVar

from multidict import MultiMapping

from dragoman.bindings import a2a_headers, authentication
from dragoman.bindings.authentication import CallerConnection
from dragoman.bindings.cards import Cards
from dragoman.bindings.method_table import ExtensionRow, JsonRpcRow, RpcRow
from dragoman.bindings.options import ServerOptions
from dragoman.bindings.request_log import RequestLogEntry
from dragoman.bindings.stream_registry import OpenStream, StreamRegistry
from dragoman.core.access.identity import ANONYMOUS, Caller, Identity
from dragoman.core.errors import A2AError
from dragoman.core.trace import TRACE_HEADER
from dragoman.runtime import Operations
from dragoman.runtime.access import Call
from dragoman.runtime.feeds import EventStream
from dragoman.supervision import log_fault

_log: Final = logging.getLogger("dragoman.bindings.pipeline")

Answer = TypeVar("Answer")
Options = TypeVar("Options", bound=ServerOptions)


class ClientDisconnected(Exception):
    """The response cannot be sent: the client has disconnected."""


class RequestExchange(ABC, Generic[Answer]):
    """One request, and the way back to its caller. `Answer`: what the binding's server takes as the response."""

    DISCONNECTED_STATUS: ClassVar[str]
    """The status, in logs and metrics, of a request whose client disconnected."""

    is_public = False
    """Whether the request needs no credentials: it reads a public card."""
    row: RpcRow | JsonRpcRow | ExtensionRow
    """The row of the method table; known after `decode`."""
    caller: Caller
    """Known after authorization."""

    def __init__(
        self, log_entry: RequestLogEntry, headers: MultiMapping[str], connection: CallerConnection, tenant: str = ""
    ) -> None:
        """`headers`: HTTP headers or gRPC metadata. `tenant`: of the path, which wins over the request's."""
        self.log_entry = log_entry
        self.headers = headers
        self.connection = connection
        self.tenant = tenant
        self.identity: Identity = ANONYMOUS
        self.version = ""
        """The `A2A-Version` of the request, as written; empty for none."""
        self.extensions: tuple[str, ...] = ()
        """The URIs of the extensions that the caller requests."""
        self.status: object = "OK"
        """The status for logs and metrics."""

    @property
    @abstractmethod
    def peer(self) -> str:
        """The client's address."""

    @property
    def name(self) -> str:
        """How the log of rejected requests names this one."""
        return self.log_entry.method

    def credentials(self) -> Iterable[tuple[str, str]]:
        """The headers that may contain credentials."""
        return self.headers.items()

    def versions(self) -> Iterable[str]:
        """Every `A2A-Version` of the request."""
        return self.headers.getall(a2a_headers.VERSION_HEADER, ())

    @abstractmethod
    async def read(self) -> None:
        """Reads and parses the body. Raises A2AError."""

    @abstractmethod
    async def decode(self) -> Any:
        """Sets `row`, and returns the request as a message of 1.0. Raises A2AError."""

    @abstractmethod
    def call(self) -> Call:
        """Returns the call of `caller`, with what transport and dialect imply."""

    @abstractmethod
    async def describe(self) -> Answer:
        """Returns the response to a request that needs no operation: a card, or what the server offers."""

    @abstractmethod
    async def respond(self, response: bytes) -> Answer:
        """Returns the response. `response`: a serialized message of 1.0."""

    @abstractmethod
    async def stream(self, events: EventStream, registration: OpenStream) -> Answer:
        """Sends events until they end or the client disconnects. Raises the error of a stream without an event."""

    @abstractmethod
    async def reject(self, error: Exception) -> Answer:
        """Sets `status`, and returns the error response."""


class Pipeline(Generic[Options]):
    """Runs the requests of one port, with everything that their steps need."""

    def __init__(self, operations: Operations, cards: Cards, options: Options, streams: StreamRegistry) -> None:
        self.operations = operations
        self.cards = cards
        self.options = options
        self.streams = streams

    async def serve(self, exchange: RequestExchange[Answer]) -> Answer:
        """Runs a request. Errors become responses.

        A disconnected client raises CancelledError, or ClientDisconnected if a write shows it.
        """
        operations, options, headers, log_entry = self.operations, self.options, exchange.headers, exchange.log_entry
        try:
            # 1 authenticate
            identity = ANONYMOUS
            if options.authenticator is not None:
                identity = exchange.identity = await authentication.authenticate(
                    exchange.credentials(), options, exchange.connection, public=exchange.is_public
                )
            # 2 rate
            operations.admission.check_rate(identity)
            # 3 trace
            if log_entry.is_traced:
                log_entry.start_trace(headers.get(TRACE_HEADER, ""))
            # 4 read
            await exchange.read()
            # 5 version
            exchange.version = a2a_headers.check_version(exchange.versions())
            exchange.extensions = a2a_headers.requested_extensions(headers)
            # 6 decode
            request = await exchange.decode()
            # 7 authorize
            op = exchange.row.op
            if op.names_agent:
                caller = exchange.caller = authentication.authorize(
                    operations.access, exchange.tenant or request.tenant, identity, public=exchange.is_public
                )
                log_entry.set_caller(caller, request)
            # 8 call, 9 encode
            if op.operation is None:
                answer = await exchange.describe()
            else:
                response = op.operation(operations)(exchange.call(), request)
                if op.streaming:
                    with self.streams.open(identity) as registration:
                        answer = await exchange.stream(response, registration)
                else:
                    answer = await exchange.respond(await response)
        except ClientDisconnected:
            log_entry.finish(exchange.DISCONNECTED_STATUS)
            raise
        except Exception as error:
            return await self.reject(exchange, error)
        except asyncio.CancelledError:
            end_reason = self.streams.take_end_reason()
            if end_reason is None:
                log_entry.finish(exchange.DISCONNECTED_STATUS)
                raise
            return await self.reject(exchange, end_reason)
        # 10 observe
        log_entry.finish(exchange.status)
        return answer

    async def reject(self, exchange: RequestExchange[Answer], error: Exception) -> Answer:
        """Answers a request with an error."""
        self.record_failure(error, exchange.peer, exchange.name, exchange.log_entry.agent, exchange.identity)
        try:
            return await exchange.reject(error)
        finally:
            exchange.log_entry.finish(exchange.status)

    def record_failure(
        self, error: Exception, peer: str, name: str, agent: str = "", identity: Identity = ANONYMOUS
    ) -> None:
        """Logs a fault of the server, or the rejection of a caller. `name`: of the request."""
        self.log_fault(error, name)
        self.options.rejections.record(error, peer=peer, method=name, agent=agent, identity=identity)

    def log_fault(self, error: Exception, name: str) -> None:
        """Logs an error that is a fault of the server; its caller does not see the text."""
        if not isinstance(error, A2AError):
            log_fault(_log, f"{name} failed", error)

    async def task_dialect(self, exchange: RequestExchange[Any], tenant: str, task_id: str) -> str:
        """The dialect in which a task was created; empty if the caller sees no such task. Before authorization."""
        try:
            caller = self.operations.access.authorize(exchange.tenant or tenant, exchange.identity)
        except A2AError:
            return ""  # authorization raises it again
        return await self.operations.read.dialect_of(caller, task_id)
