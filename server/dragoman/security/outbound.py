"""HTTP client for URLs that others choose; it connects only to allowed addresses (SSRF protection).

Three checks, so that no single bug opens the network: the URL; each address that its host resolves to, which is
resolved once and then connected to; and the peer address of the socket, before the request is written. Error texts omit
path and query of the URL (they may contain secrets), resolved addresses and responses: a caller who registers a webhook
must not learn about our network.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import re
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final

import aiohttp
from aiohttp.abc import AbstractResolver, AbstractStreamWriter, ResolveResult
from yarl import URL

from dragoman.core.net.targets import OutboundPolicy, UrlTarget, parse_target
from dragoman.ports import ConnectFailed, OutboundFailed, OutboundForbidden, OutboundResponse, OutboundResponseStream

Lookup = Callable[[str, int], Awaitable[Sequence[str]]]
"""Resolves a host and port to addresses. Raises OSError if there are none."""

Dial = Callable[[Any], socket.socket]  # creates the socket for one address, given as a result of `socket.getaddrinfo`
MAX_GET_BODY_BYTES: Final = 1024 * 1024
MAX_POST_BODY_BYTES: Final = 64 * 1024

MAX_OUTBOUND_CONNECTIONS: Final = 512
MAX_CONNECTIONS_PER_HOST: Final = 80  # as many as webhook requests to one host (runtime.push.delivery.CallLimiter)
OUTBOUND_KEEPALIVE_TIMEOUT: Final = 15.0  # seconds for which an idle connection is kept

DNS_LOOKUP_THREADS: Final = 8
"""Threads for DNS lookups, apart from others: a name server that does not respond blocks one for half a minute."""

MAX_HOST_ADDRESSES: Final = 16

_HEADER_NAME_PATTERN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_CONTROL_CHARACTERS_PATTERN: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_RESERVED_HEADERS: Final = frozenset(
    {"accept-encoding", "connection", "content-length", "expect", "host", "keep-alive"}
    | {"te", "trailer", "transfer-encoding", "upgrade"}
)
"""Headers that decide where a request goes or where it ends; callers must not set them."""

log = logging.getLogger("dragoman.outbound")

_current_host: ContextVar[str] = ContextVar("host of the current request", default="")


@dataclass(frozen=True, slots=True)
class _StreamedResponse:
    """Implements `dragoman.ports.OutboundResponseStream`."""

    status: int
    headers: Mapping[str, str]
    chunks: Callable[[], AsyncIterator[bytes]]


@dataclass(frozen=True, slots=True)
class OutboundTimeouts:
    """Timeouts in seconds: for the connection, between two reads, and in total."""

    connect: float = 10.0
    read: float = 10.0
    total: float = 30.0


class OutboundClient:
    """Sends requests to the addresses that a policy allows. Implements `OutboundHttp` and `OutboundStreams`.

    Create it on the event loop that uses it.
    """

    def __init__(
        self,
        rules: OutboundPolicy,
        *,
        ca: Path | None = None,
        timeouts: OutboundTimeouts | None = None,
        lookup: Lookup | None = None,
        dial: Dial | None = None,
        per_host: int = MAX_CONNECTIONS_PER_HOST,
    ) -> None:
        """ca: CA certificates (PEM), in addition to the system's. Raises OSError if they cannot be read. per_host:
        maximum connections to one host; further requests wait. 0: no limit, and a new connection for each request, so
        that a closed connection is never a stale one."""
        self._rules = rules
        self._lookup_host = lookup or self._system_lookup
        self._timeouts = timeouts or OutboundTimeouts()
        self._pool = ThreadPoolExecutor(DNS_LOOKUP_THREADS, thread_name_prefix="lookup")
        self._dial = dial or (lambda info: socket.socket(*info[:3]))  # family, type and protocol
        trusted: ssl.SSLContext | bool = True  # the system's: aiohttp has loaded it already, which takes 30 ms
        if ca is not None:
            trusted = ssl.create_default_context()
            trusted.load_verify_locations(ca)
        connector = _CheckedConnector(
            self._check_address,
            ssl=trusted,
            resolver=_CheckedResolver(self._lookup_host, self._allowed_addresses),
            use_dns_cache=False,  # each new connection resolves and checks again
            socket_factory=self._socket,
            limit=MAX_OUTBOUND_CONNECTIONS if per_host else 0,
            limit_per_host=per_host,
            **({"keepalive_timeout": OUTBOUND_KEEPALIVE_TIMEOUT} if per_host else {"force_close": True}),
        )
        self._session = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            trust_env=False,
            headers={"User-Agent": "Dragoman", "Accept-Encoding": "identity"},
            skip_auto_headers=("Content-Type",),
            timeout=aiohttp.ClientTimeout(
                self._timeouts.total, self._timeouts.connect, self._timeouts.read, self._timeouts.connect
            ),
        )

    async def get(self, url: str, headers: Mapping[str, str] = {}) -> OutboundResponse:
        return await self._call("GET", url, headers, None, MAX_GET_BODY_BYTES)

    async def post(
        self, url: str, body: bytes, headers: Mapping[str, str], *, may_send: Callable[[], bool] | None = None
    ) -> OutboundResponse:
        data = body if may_send is None else _GuardedBody(body, may_send)
        return await self._call("POST", url, headers, data, MAX_POST_BODY_BYTES)

    async def close(self) -> None:
        await self._session.close()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def check_url(self, url: str) -> UrlTarget:
        try:
            target = parse_target(url)
        except ValueError as error:
            raise OutboundForbidden(f"the URL {error}") from None
        if problem := self._rules.problem(target):
            raise OutboundForbidden(problem)
        return target

    async def _call(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | aiohttp.BytesPayload | None, limit: int
    ) -> OutboundResponse:
        async with self._request(method, url, headers, body, self._session.timeout) as (target, response):
            complete, content = await _read_body(response, limit)
            if method == "GET" and not complete:
                raise OutboundFailed(f"{target.host_port}: responded with more than {limit} bytes")
            if method == "GET" and content:
                _check_uncompressed(target, response)
            return OutboundResponse(response.status, _headers(response), content)

    @asynccontextmanager
    async def open(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None = None, *, idle_timeout: float
    ) -> AsyncIterator[OutboundResponseStream]:
        connect = self._timeouts.connect
        timeout = aiohttp.ClientTimeout(None, connect, idle_timeout, connect)
        async with self._request(method, url, headers, body, timeout) as (target, response):
            _check_uncompressed(target, response)
            yield _StreamedResponse(response.status, _headers(response), response.content.iter_any)

    async def resolve(self, url: str) -> Sequence[str]:
        target = self.check_url(url)
        try:
            return self._allowed_addresses(target.host, target.port, await self._lookup_host(target.host, target.port))
        except OSError as error:
            log.info("%s: no such host", target.host_port, extra={"cause": repr(error)[:500]})
            raise ConnectFailed(f"{target.host_port}: no such host, or its name server does not answer") from None

    @asynccontextmanager
    async def _request(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: bytes | aiohttp.BytesPayload | None,
        limits: aiohttp.ClientTimeout,
    ) -> AsyncIterator[tuple[UrlTarget, aiohttp.ClientResponse]]:
        target = self.check_url(url)
        _check_headers(headers)
        exact = URL.build(
            scheme=target.scheme,
            host=f"[{target.host}]" if ":" in target.host else target.host,
            port=target.port,
            path=target.path,
            query_string=target.query,
            encoded=True,  # sent unchanged: receivers may have signed it
        )
        try:
            token = _current_host.set(target.host)
            try:
                response = await self._session.request(
                    method, exact, data=body, headers=headers, allow_redirects=False, timeout=limits
                )
            finally:
                _current_host.reset(token)
            async with response:
                yield target, response
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            reason = self._explain(error)
            log.info("%s: %s", target.host_port, reason, extra={"cause": repr(error)[:500]})
            raise (ConnectFailed if isinstance(error, _CONNECT_ERRORS) else OutboundFailed)(
                f"{target.host_port}: {reason}"
            ) from None

    def _check_address(self, host: str, port: int, address: str) -> None:
        """Raises OutboundForbidden for an address of a host."""
        if problem := self._rules.address_policy.problem(ip_address(address), port, host):
            log.warning("refused to connect to %s, which is %s: %s", host, address, problem)
            if host == address:
                raise OutboundForbidden(f"{host}: {problem}")
            allowed = "public addresses, and those that the operator allows (outbound_allow)"
            raise OutboundForbidden(f"{host}: resolves to no allowed address; allowed are {allowed}")

    def _allowed_addresses(self, host: str, port: int, addresses: Sequence[str]) -> list[str]:
        """The allowed ones of a host's addresses. Raises OutboundForbidden if all are forbidden."""
        allowed: list[str] = []
        rejection: OutboundForbidden | None = None
        for address in dict.fromkeys(addresses[:MAX_HOST_ADDRESSES]):
            try:
                self._check_address(host, port, address)
            except OutboundForbidden as error:
                rejection = error
            else:
                allowed.append(address)
        if not allowed and rejection is not None:
            raise rejection
        return allowed

    def _socket(self, info: Any) -> socket.socket:
        """Creates the socket for one address, and checks the address a second time."""
        try:
            self._check_address(_current_host.get(), info[4][1], info[4][0])
        except OutboundForbidden as error:
            raise PermissionError(errno.EACCES, str(error)) from None
        return self._dial(info)

    async def _system_lookup(self, host: str, port: int) -> Sequence[str]:
        def lookup() -> list[str]:
            return [str(info[4][0]) for info in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]

        return await asyncio.get_running_loop().run_in_executor(self._pool, lookup)

    def _explain(self, error: Exception) -> str:
        """The reason for an error, without details about our network."""
        if isinstance(error.__cause__, _NotSent):
            return "not sent: the delivery now belongs to another process"
        match error:
            case aiohttp.ConnectionTimeoutError():
                return f"no connection within {self._timeouts.connect:g} s"
            case aiohttp.SocketTimeoutError():
                return f"silent for {self._timeouts.read:g} s"
            case TimeoutError():
                return f"not done within {self._timeouts.total:g} s"
            case aiohttp.ClientConnectorDNSError():
                return "no such host, or its name server does not answer"
            case aiohttp.ClientConnectorCertificateError():
                cause = error.certificate_error
                why = (
                    cause.verify_message if isinstance(cause, ssl.SSLCertVerificationError) else "it cannot be verified"
                )
                return f"its TLS certificate is invalid: {why}"
            case aiohttp.ClientConnectorSSLError():
                return "does not support TLS, or no secure version of it"
            case aiohttp.ClientConnectorError():
                return _REASON_BY_ERRNO.get(error.os_error.errno or 0, "connection failed")
            case aiohttp.ClientResponseError():
                return "responded with invalid HTTP"
        return "connection lost"


_CONNECT_ERRORS: Final = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)
"""Errors before the request was sent."""

_REASON_BY_ERRNO: Final = {
    errno.ECONNREFUSED: "refused the connection",
    errno.ENETUNREACH: "its network is unreachable",
    errno.EHOSTUNREACH: "host unreachable",
    errno.ETIMEDOUT: "connection timed out",
}


def _check_headers(headers: Mapping[str, str]) -> None:
    """Raises OutboundForbidden for a header that would change where the request goes, or where it ends."""
    for name, value in headers.items():
        if (
            not _HEADER_NAME_PATTERN.fullmatch(name)
            or name.lower() in _RESERVED_HEADERS
            or name.lower().startswith("proxy-")
        ):
            raise OutboundForbidden(f"the header {name[:100]!r} is reserved")
        if _CONTROL_CHARACTERS_PATTERN.search(value):
            text = "its value contains control characters; use printable characters"
            raise OutboundForbidden(f"the header {name}: {text}")


def _headers(response: aiohttp.ClientResponse) -> dict[str, str]:
    return {name.lower(): ", ".join(response.headers.getall(name)) for name in response.headers}


def _check_uncompressed(target: UrlTarget, response: aiohttp.ClientResponse) -> None:
    coding = ", ".join(response.headers.getall("Content-Encoding", ["identity"]))
    if coding.lower() != "identity":
        log.warning("%s: responded in %s, although only identity is accepted", target.host_port, coding[:100])
        raise OutboundFailed(f"{target.host_port}: sent a compressed response, which was not requested")


async def _read_body(response: aiohttp.ClientResponse, limit: int) -> tuple[bool, bytes]:
    """Whether the body is complete, and at most `limit` bytes of it. The rest of a longer body is not read."""
    chunks: list[bytes] = []
    size = 0
    async for chunk in response.content.iter_any():
        chunks.append(chunk)
        size += len(chunk)
        if size > limit:
            response.close()  # closes the connection, too: it would carry the rest of the body
            return False, b"".join(chunks)[:limit]
    return True, b"".join(chunks)


class _NotSent(Exception):
    """`may_send` of a request returned False."""


class _GuardedBody(aiohttp.BytesPayload):
    """A body that is written only if `may_send` returns True. The headers wait for it in the same buffer."""

    def __init__(self, body: bytes, may_send: Callable[[], bool]) -> None:
        super().__init__(body)
        self._may_send = may_send

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        if not self._may_send():
            raise _NotSent
        await super().write_with_length(writer, content_length)


class _CheckedResolver(AbstractResolver):
    """Resolves a host once, to its allowed addresses."""

    def __init__(self, lookup: Lookup, allowed_addresses: Callable[[str, int, Sequence[str]], list[str]]) -> None:
        self._lookup = lookup
        self._allowed_addresses = allowed_addresses

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        addresses = self._allowed_addresses(host, port, await self._lookup(host, port))
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=0,
                flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            )
            for address in addresses
        ]

    async def close(self) -> None:
        """Nothing to close."""


class _CheckedConnector(aiohttp.TCPConnector):
    """Checks the peer address of each connection before its use."""

    def __init__(self, check_address: Callable[[str, int, str], None], **options: Any) -> None:
        super().__init__(**options)
        self._check_address = check_address

    async def connect(self, req: Any, traces: Any, timeout: Any) -> Any:  # noqa: ASYNC109 (aiohttp's own signature)
        connection = await super().connect(req, traces, timeout)
        try:
            peer = connection.transport and connection.transport.get_extra_info("peername")
            if not peer:
                raise aiohttp.ClientConnectionError("closed before its address could be checked")
            self._check_address(req.url.host or "", req.url.port or 0, peer[0])
        except BaseException:
            connection.close()
            raise
        return connection
