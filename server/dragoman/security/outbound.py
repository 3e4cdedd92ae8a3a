"""The one way out: an HTTP client that connects only to addresses that were looked at.

Three checks, so that no single bug opens the network: the URL; each address its name resolves to, resolved once and
then connected to as it is; and the peer address of the socket, before a byte of the request is written. Error texts
leave out path and query of the URL (they can contain secrets), resolved addresses, and responses: a caller who
registers a webhook must not learn how our network looks.
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
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from dragoman.core.net.targets import OutboundPolicy, UrlTarget, parse_target
from dragoman.ports import ConnectFailed, OutboundFailed, OutboundForbidden, OutboundResponse, OutboundResponseStream

Lookup = Callable[[str, int], Awaitable[Sequence[str]]]
"""The addresses of a host, for a port. Raises OSError when there are none."""

Dial = Callable[[Any], socket.socket]
"""Makes the socket for one address, given as `socket.getaddrinfo` does."""

MAX_GET_BODY_BYTES: Final = 1024 * 1024
MAX_POST_BODY_BYTES: Final = 64 * 1024

MAX_OUTBOUND_CONNECTIONS: Final = 256
MAX_CONNECTIONS_PER_HOST: Final = 8
OUTBOUND_KEEPALIVE_TIMEOUT: Final = 15.0
"""Seconds that a connection is kept for the next call."""

DNS_LOOKUP_THREADS: Final = 8
"""Threads that look up names. Their own, because a name server that never answers holds one for half a minute."""

MAX_HOST_ADDRESSES: Final = 16

_HEADER_NAME_PATTERN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_CONTROL_CHARACTERS_PATTERN: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_RESERVED_HEADERS: Final = frozenset(
    {"accept-encoding", "connection", "content-length", "expect", "host", "keep-alive"}
    | {"te", "trailer", "transfer-encoding", "upgrade"}
)
"""Headers that say where a request goes or where it ends, and are nobody else's to set."""

log = logging.getLogger("dragoman.outbound")

_current_host: ContextVar[str] = ContextVar("host of the call under way", default="")


@dataclass(frozen=True, slots=True)
class _StreamedResponse:
    """Implements `dragoman.ports.Opened`."""

    status: int
    headers: Mapping[str, str]
    chunks: Callable[[], AsyncIterator[bytes]]


@dataclass(frozen=True, slots=True)
class OutboundTimeouts:
    """Seconds: until there is a connection, between two reads, and for everything together."""

    connect: float = 10.0
    read: float = 10.0
    total: float = 30.0


class OutboundClient:
    """Calls other servers within `rules`. Implements `dragoman.ports.Outbound`. Made on the loop that it serves."""

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
        """`ca`: certificates (PEM) to trust beside the system's. Raises OSError when it cannot be read. `per_host`:
        connections to one host at a time, others wait; 0 for as many as are asked for, and a new one for each call:
        one that is closed without a word is then none that had been left from before."""
        self._rules = rules
        self._lookup_host = lookup or self._system_lookup
        self._timeouts = timeouts or OutboundTimeouts()
        self._pool = ThreadPoolExecutor(DNS_LOOKUP_THREADS, thread_name_prefix="lookup")
        self._dial = dial or _dial
        trusted: ssl.SSLContext | bool = True  # the system's, which aiohttp has read already: that takes 30 ms
        if ca is not None:
            trusted = ssl.create_default_context()
            trusted.load_verify_locations(ca)
        connector = _CheckedConnector(
            self._check_address,
            ssl=trusted,
            resolver=_CheckedResolver(self._lookup_host, self._allowed_addresses),
            use_dns_cache=False,  # each new connection asks again, and what is answered is looked at again
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

    def check_url(self, url: str) -> None:
        """Looks at the text alone. Raises Forbidden."""
        self._check_url(url)

    async def get(
        self, url: str, headers: Mapping[str, str] = {}, *, limit: int = MAX_GET_BODY_BYTES
    ) -> OutboundResponse:
        """GET. A body over `limit` bytes, or a compressed one, is an Unreachable: it could not be used."""
        return await self._call("GET", url, headers, None, limit)

    async def post(
        self, url: str, body: bytes, headers: Mapping[str, str], *, limit: int = MAX_POST_BODY_BYTES
    ) -> OutboundResponse:
        """POST. The answer's body is cut at `limit` bytes: what counts is that the receiver took the message."""
        return await self._call("POST", url, headers, body, limit)

    async def close(self) -> None:
        await self._session.close()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _check_url(self, url: str) -> UrlTarget:
        try:
            target = parse_target(url)
        except ValueError as error:
            raise OutboundForbidden(f"the URL {error}") from None
        if problem := self._rules.problem(target):
            raise OutboundForbidden(problem)
        return target

    async def _call(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None, limit: int
    ) -> OutboundResponse:
        async with self._request(method, url, headers, body, self._session.timeout, _NO_RESPONSE_ERRORS) as (
            target,
            response,
        ):
            complete, content = await _read_body(response, limit)
            if method == "GET" and not complete:
                raise OutboundFailed(f"{target.host_port}: answered with more than {limit} bytes")
            response_headers = _headers(response)
            if (
                method == "GET"
                and content
                and response_headers.get("content-encoding", "identity").lower() != "identity"
            ):
                raise OutboundFailed(f"{target.host_port}: answered compressed, which was not asked for")
            return OutboundResponse(response.status, response_headers, content)

    @asynccontextmanager
    async def open(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None = None, *, idle_timeout: float
    ) -> AsyncIterator[OutboundResponseStream]:
        """A call whose answer is read as it comes (`dragoman.ports.Outlet`)."""
        connect = self._timeouts.connect
        timeout = aiohttp.ClientTimeout(None, connect, idle_timeout, connect)
        async with self._request(method, url, headers, body, timeout, _CONNECT_ERRORS) as (target, response):
            response_headers = _headers(response)
            if response_headers.get("content-encoding", "identity").lower() != "identity":
                raise OutboundFailed(f"{target.host_port}: answered compressed, which was not asked for")
            yield _StreamedResponse(response.status, response_headers, response.content.iter_any)

    async def resolve(self, url: str) -> Sequence[str]:
        """The addresses behind a URL that may be connected to (`dragoman.ports.Outlet`)."""
        target = self._check_url(url)
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
        body: bytes | None,
        limits: aiohttp.ClientTimeout,
        unconnected_errors: tuple[type[Exception], ...],
    ) -> AsyncIterator[tuple[UrlTarget, aiohttp.ClientResponse]]:
        target = self._check_url(url)
        _check_headers(headers)
        exact = URL.build(
            scheme=target.scheme,
            host=f"[{target.host}]" if ":" in target.host else target.host,
            port=target.port,
            path=target.path,
            query_string=target.query,
            encoded=True,  # sent as it was given: receivers may have signed it
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
            why = self._explain(error)
            log.info("%s: %s", target.host_port, why, extra={"cause": repr(error)[:500]})
            raise (ConnectFailed if isinstance(error, unconnected_errors) else OutboundFailed)(
                f"{target.host_port}: {why}"
            ) from None

    def _check_address(self, host: str, port: int, address: str) -> None:
        """Raises Forbidden for an address that may not be called for this host."""
        problem = self._rules.address_policy.problem(ip_address(address), port, host)
        if problem:
            log.warning("refused to call %s, which is %s: %s", host, address, problem)
            if host == address:
                raise OutboundForbidden(f"{host}: {problem}")
            allowed = "public addresses, and what the operator allows (outbound_allow)"
            raise OutboundForbidden(f"{host}: stands for no address that may be called; allowed are {allowed}")

    def _allowed_addresses(self, host: str, port: int, addresses: Sequence[str]) -> list[str]:
        """Those addresses of a host that may be called. Raises Forbidden when there are none among several."""
        good: list[str] = []
        refusal: OutboundForbidden | None = None
        for address in dict.fromkeys(addresses[:MAX_HOST_ADDRESSES]):
            try:
                self._check_address(host, port, address)
            except OutboundForbidden as error:
                refusal = error
            else:
                good.append(address)
        if not good and refusal is not None:
            raise refusal
        return good

    def _socket(self, info: Any) -> socket.socket:
        """The socket for one address, which is looked at once more just before."""
        try:
            self._check_address(_current_host.get(), info[4][1], info[4][0])
        except OutboundForbidden as error:
            raise PermissionError(errno.EACCES, str(error)) from None
        return self._dial(info)

    async def _system_lookup(self, host: str, port: int) -> Sequence[str]:
        def ask() -> list[str]:
            return [str(info[4][0]) for info in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]

        return await asyncio.get_running_loop().run_in_executor(self._pool, ask)

    def _explain(self, error: Exception) -> str:
        """What went wrong, in words that tell nothing of what is behind the address."""
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
                return f"its TLS certificate is not good: {_certificate_problem(error.certificate_error)}"
            case aiohttp.ClientConnectorSSLError():
                return "speaks no TLS, or none that is safe"
            case aiohttp.ClientConnectorError():
                return _REASON_BY_ERRNO.get(error.os_error.errno or 0, "cannot be connected to")
            case aiohttp.ClientResponseError():
                return "answered with what is no HTTP"
        return "broke off"


_NO_RESPONSE_ERRORS: Final = (
    aiohttp.ClientConnectorError,
    aiohttp.ClientOSError,
    aiohttp.ConnectionTimeoutError,
    aiohttp.ServerDisconnectedError,
)
"""What goes wrong before anybody has said a word."""

_CONNECT_ERRORS: Final = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)
"""What goes wrong before anything was sent."""

_REASON_BY_ERRNO: Final = {
    errno.ECONNREFUSED: "refused the connection",
    errno.ENETUNREACH: "no way to its network",
    errno.EHOSTUNREACH: "no way to it",
    errno.ETIMEDOUT: "no connection",
}


def _certificate_problem(error: BaseException) -> str:
    return error.verify_message if isinstance(error, ssl.SSLCertVerificationError) else "it cannot be checked"


def _dial(info: Any) -> socket.socket:
    family, kind, proto, _, _ = info
    return socket.socket(family, kind, proto)


def _check_headers(headers: Mapping[str, str]) -> None:
    """Raises Forbidden for a header that would change where the request goes, or what it is."""
    for name, value in headers.items():
        if (
            not _HEADER_NAME_PATTERN.fullmatch(name)
            or name.lower() in _RESERVED_HEADERS
            or name.lower().startswith("proxy-")
        ):
            raise OutboundForbidden(f"the header {name[:100]!r} cannot be chosen by others")
        if _CONTROL_CHARACTERS_PATTERN.search(value):
            raise OutboundForbidden(
                f"the header {name}: its value holds control characters; allowed are printable ones"
            )


def _headers(response: aiohttp.ClientResponse) -> dict[str, str]:
    return {name.lower(): ", ".join(response.headers.getall(name)) for name in response.headers}


async def _read_body(response: aiohttp.ClientResponse, limit: int) -> tuple[bool, bytes]:
    """Whether the body is whole, and at most `limit` bytes of it. One that is longer is not read to its end."""
    chunks: list[bytes] = []
    size = 0
    async for chunk in response.content.iter_any():
        chunks.append(chunk)
        size += len(chunk)
        if size > limit:
            response.close()  # and with it the connection, on which the rest would come
            return False, b"".join(chunks)[:limit]
    return True, b"".join(chunks)


class _CheckedResolver(AbstractResolver):
    """Looks up a name once, and gives only addresses that may be called."""

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
        """Nothing is held."""


class _CheckedConnector(aiohttp.TCPConnector):
    """Gives a connection away only after a look at who is really at its other end."""

    def __init__(self, check_address: Callable[[str, int, str], None], **options: Any) -> None:
        super().__init__(**options)
        self._check_address = check_address

    async def connect(self, req: Any, traces: Any, timeout: Any) -> Any:  # noqa: ASYNC109 (aiohttp's own signature)
        connection = await super().connect(req, traces, timeout)
        try:
            peer = connection.transport and connection.transport.get_extra_info("peername")
            if not peer:
                raise aiohttp.ClientConnectionError("gone before it could be looked at")
            self._check_address(req.url.host or "", req.url.port or 0, peer[0])
        except BaseException:
            connection.close()
            raise
        return connection
