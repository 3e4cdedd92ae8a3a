"""Connection to one agent: its card, and the transports to its interfaces."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, cast
from urllib.parse import quote, unquote, urlsplit

from google.protobuf.message import Message

from dragoman.calling.errors import ClientError, NotSupported, ProtocolError
from dragoman.client import content
from dragoman.client.options import CallOptions
from dragoman.client.transport import ContentTransport, open_transport
from dragoman.core import trace
from dragoman.core.cards.agent_spec import IDEMPOTENCY_EXTENSION, RESUME_EXTENSION
from dragoman.wire.cards import remote_card
from dragoman.wire.cards.remote_card import Interface, RemoteCard
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

Webhook = str | pb.TaskPushNotificationConfig  # a webhook URL, or a complete push configuration
GRPC_SCHEMES: Final = ("grpc://", "grpcs://")  # URLs that are called without a card
_CARD_NAME_BY_BINDING: Final = {"grpc": "GRPC", "rest": "HTTP+JSON", "jsonrpc": "JSONRPC", "ws": "WEBSOCKET"}


class AgentConnection:
    """One agent, its capabilities, and the transport in use. Calls raise ClientError."""

    def __init__(
        self, card: RemoteCard, interfaces: Sequence[Interface], options: CallOptions, *, card_url: str = ""
    ) -> None:
        """`interfaces`: at least one, the best first. `card_url`: from which the card was read."""
        uris = {extension.uri for extension in card.extensions}
        self.card = card
        self.supports_streaming = card.streaming
        """Whether the agent streams, according to its card and its responses so far."""
        self.is_idempotent = IDEMPOTENCY_EXTENSION.uri in uris
        """Whether the agent supports idempotency keys: a repeated send with the same key has no effect."""
        self.supports_resume = RESUME_EXTENSION.uri in uris  # whether the agent's events have cursors
        required = [extension.uri for extension in card.extensions if extension.required]
        self._options = replace(options, extensions=",".join(dict.fromkeys([RESUME_EXTENSION.uri, *required])))
        self._interfaces = list(interfaces)
        self._has_card = bool(card_url)
        self._secure = card_url.startswith("https:")
        """Whether gRPC addresses of the card without a scheme are encrypted."""
        named = [card_url, *(interface.url for interface in card.interfaces)]
        http_urls = [url for url in named if is_http_url(url)]
        self._server_urls = http_urls or [url if "://" in url else f"grpc://{url}" for url in named if url]
        """The URLs that name the server, from which contents of its responses are fetched."""
        self._tried: list[Interface] = []
        self._transports: dict[Interface, ContentTransport] = {}

    @property
    def interface(self) -> Interface:
        """The interface in use."""
        return self._interfaces[0]

    @property
    def address(self) -> str:
        """The URL of the interface in use: `grpc://` or `grpcs://` for gRPC."""
        if self.interface.binding != "GRPC" or not self._has_card:
            return self.interface.url
        scheme, _, target = remote_card.grpc_url(self.interface.url, encrypted=self._secure).partition("://")
        return f"{'grpcs' if scheme == 'https' else 'grpc'}://{target}"

    @property
    def transport(self) -> ContentTransport:
        interface = self.interface
        if interface not in self._transports:
            transport = open_transport(replace(interface, url=self.address), self._options)
            self._transports[interface] = ContentTransport(transport, self._server_urls, self._options)
        return self._transports[interface]

    def next_transport(self) -> bool:
        """Switches to the next interface after a failure of this one. False when all were tried."""
        self._tried.append(self.interface)
        untried = [interface for interface in self._interfaces if interface not in self._tried]
        if not untried:
            self._tried.clear()
            return False
        self._interfaces.remove(untried[0])
        self._interfaces.insert(0, untried[0])
        self.supports_streaming = self.card.streaming
        return True

    def mark_reachable(self) -> None:
        """Records that the interface in use responded."""
        self._tried.clear()

    def request(
        self,
        message: pb.Message,
        metadata: Mapping[str, Any] | None = None,
        *,
        accepts: Sequence[str] = (),
        webhook: Webhook = "",
    ) -> pb.SendMessageRequest:
        """The request that sends a message and does not wait for the task."""
        request = pb.SendMessageRequest(tenant=self.interface.tenant, message=message)
        request.configuration.return_immediately = True
        if self.interface.dialect == "0.3" and not accepts:
            accepts = self.card.output_modes  # required in 0.2, and still by some servers
        request.configuration.accepted_output_modes.extend(accepts)
        if isinstance(webhook, pb.TaskPushNotificationConfig):
            request.configuration.task_push_notification_config.CopyFrom(webhook)
        elif webhook:
            request.configuration.task_push_notification_config.url = webhook
        if self.interface.dialect == "0.1" and not message.task_id:
            request.message.task_id = str(uuid.uuid4())  # in 0.1 clients choose the ids of tasks
        if metadata:
            content.check_json_value(metadata, "metadata")
            request.metadata.update(metadata)
        trace.add_delegation(request)
        return request

    async def get(self, task_id: str, *, history: int | None = None, parent: str = "") -> pb.Task:
        request = pb.GetTaskRequest(tenant=self.interface.tenant, id=task_id, history_length=history)
        return cast(pb.Task, await self.call("GetTask", request, parent=parent))

    async def call(self, rpc: str, request: Message, *, parent: str = "") -> Message:
        """Makes an idempotent call, repeated over the next interface if the server does not know the method."""
        while True:
            try:
                response = await self.transport.call(rpc, request, parent=parent)
            except ClientError as error:
                if error.remote_error.is_unknown_method and self.next_transport():
                    continue
                raise
            self.mark_reachable()
            return response

    async def close(self) -> None:
        transports, self._transports = self._transports, {}
        for transport in transports.values():
            await transport.close()


def url_problem(url: str) -> str:
    """Why a URL cannot be one of a server or an agent, in an error message's words; empty if it can."""
    rule = "use http(s)://HOST[:PORT][/PATH] or grpc(s)://HOST:PORT[/AGENT]"
    try:
        parts = urlsplit(url)
        known_port = parts.port
    except ValueError as error:
        return f'"{url}" is not the URL of a server: {error}; {rule}'
    if not url.startswith(("http://", "https://", *GRPC_SCHEMES)) or not parts.hostname:
        return f'"{url}" is not the URL of a server; {rule}'
    if url.startswith(GRPC_SCHEMES) and (known_port is None or parts.query or parts.fragment or "@" in parts.netloc):
        return f'"{url}" is not the address of a gRPC server; {rule}'
    return ""


def is_http_url(address: str) -> bool:
    """Whether an address is a URL of HTTP, which may have a card."""
    return address.startswith(("http://", "https://"))


def server_url(url: str) -> str:
    """The URL of a server, given that URL or the URL of its card, without a slash at the end."""
    return url.partition("/.well-known/")[0].rstrip("/")


def split_grpc_url(address: str) -> tuple[str, str]:
    """The server and the agent in `grpc(s)://HOST:PORT[/AGENT]`; an address without a scheme has no agent."""
    scheme, divider, rest = address.partition("://")
    if not divider:
        return address, ""
    target, _, path = rest.partition("/")
    return f"{scheme}://{target}", unquote(path.strip("/"))


async def grpc_address(url: str, options: CallOptions) -> str:
    """The gRPC address that the card of the server at `url` names. Raises ClientError."""
    try:
        connection = await discover(url, options, binding="grpc")
    except ProtocolError as error:
        advice = "pass the gRPC address of the server, grpc://HOST:PORT or grpcs://HOST:PORT"
        raise NotSupported("UNIMPLEMENTED", f"{error.message}; {advice}") from error
    return connection.address


def agent_url(url: str, agent: str) -> str:
    """The URL of an agent, by its id or resource name, on the server at `url`; of that URL itself without an agent.
    `url` may be the server's card: its agents are beside it."""
    if not agent:
        return url
    return f"{server_url(url)}/{quote(agent, safe='/')}"


def connect_without_card(
    address: str, tenant: str, options: CallOptions, *, binding: str, dialect: str
) -> AgentConnection:
    """The connection to an agent over one binding (`grpc`, `rest`, `jsonrpc` or `ws`) of the server at `address`."""
    server = server_url(address)
    url = f"{server}/{tenant}" if binding in ("jsonrpc", "ws") else server
    interface = Interface(url, _CARD_NAME_BY_BINDING[binding], dialect, tenant, options.v03_files or "bytes")
    assumed = RemoteCard(name=address, description=address, version="unknown", interfaces=(interface,), streaming=True)
    return AgentConnection(assumed, (interface,), options)


async def discover(url: str, options: CallOptions, *, binding: str = "", dialect: str = "") -> AgentConnection:
    """Fetches the card of the agent at `url` and chooses its interfaces, with `binding` and `dialect` only those.
    `grpc://HOST:PORT[/AGENT]` and `grpcs://HOST:PORT[/AGENT]` are called without a card, with AGENT as the tenant.
    Raises ClientError."""
    if url.startswith(GRPC_SCHEMES):
        return connect_without_card(*split_grpc_url(url), options, binding="grpc", dialect=dialect or "1.0")
    from dragoman.client.http_client import fetch_agent_card  # imports aiohttp

    document, card_url = await fetch_agent_card(url, options)
    try:
        card = remote_card.parse_card(document, card_url)
        choice = remote_card.choose_interfaces(
            card, card_url, has_credentials=bool(options.request_headers), v03_files=options.v03_files
        )
    except remote_card.InvalidRemoteCard as error:
        raise ProtocolError(f"the card at {card_url}: {error}") from error
    matching = [
        interface
        for interface in choice.interfaces
        if interface.binding == _CARD_NAME_BY_BINDING.get(binding, interface.binding)
        and interface.dialect == (dialect or interface.dialect)
    ]
    if not matching:
        available = "; ".join(map(str, choice.interfaces))
        wanted = f"{dialect or 'any version'} over {binding or 'any binding'}"
        raise ProtocolError(f"the card at {card_url} names no interface for {wanted}; it names {available}")
    return AgentConnection(card, matching, options, card_url=card_url)
