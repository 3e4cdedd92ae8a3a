"""One agent, and the roads to it: those of its card, the best first."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, cast

import aiohttp
from google.protobuf.message import Message

from dragoman.calling import discovery, tls
from dragoman.calling.discovery import CardResponse
from dragoman.calling.errors import ClientError, ProtocolError
from dragoman.calling.transport import Transport
from dragoman.client import content
from dragoman.client.transport import CallOptions, connection_error, open_transport
from dragoman.core import trace
from dragoman.core.cards.agent_spec import IDEMPOTENCY_EXTENSION, RESUME_EXTENSION
from dragoman.wire.cards import remote_card
from dragoman.wire.cards.remote_card import Interface, RemoteCard
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

Webhook = str | pb.TaskPushNotificationConfig
"""Where to tell of a task: a URL, or a whole configuration."""

CLIENT_CARD_MAX_BYTES: Final = 4 * 1024 * 1024
CLIENT_CARD_TIMEOUT: Final = 30.0
"""Of a card."""

_BINDING_BY_CARD_NAME: Final = {"GRPC": "grpc", "HTTP+JSON": "rest", "JSONRPC": "jsonrpc"}
_CARD_NAME_BY_BINDING: Final = {"grpc": "GRPC", "rest": "HTTP+JSON", "jsonrpc": "JSONRPC"}


class AgentConnection:
    """What is known of one agent, and how it is spoken to. Calls raise ClientError."""

    def __init__(
        self, card: RemoteCard, interfaces: Sequence[Interface], options: CallOptions, *, secure: bool = False
    ) -> None:
        """`interfaces`: the best first, at least one. `safe`: gRPC is encrypted where its address does not say."""
        uris = {extension.uri for extension in card.extensions}
        self.card = card
        self.supports_streaming = card.streaming
        """It has streams, as far as is known."""
        self.is_idempotent = IDEMPOTENCY_EXTENSION.uri in uris
        """A repeated send with the same key runs nothing."""
        self.supports_resume = RESUME_EXTENSION.uri in uris
        """Its events have cursors."""
        required = [extension.uri for extension in card.extensions if extension.required]
        self._options = replace(options, extensions=",".join(dict.fromkeys([RESUME_EXTENSION.uri, *required])))
        self._interfaces = list(interfaces)
        self._secure = secure
        self._tried: list[Interface] = []
        self._transports: dict[Interface, Transport] = {}

    @property
    def interface(self) -> Interface:
        """The way that is used."""
        return self._interfaces[0]

    @property
    def transport(self) -> Transport:
        """The road to it."""
        used = self.interface
        if used not in self._transports:
            address = used.url
            if used.binding == "GRPC":
                scheme, _, place = remote_card.grpc_url(address, encrypted=self._secure).partition("://")
                address = f"{'grpcs' if scheme == 'https' else 'grpc'}://{place}"
            binding = _BINDING_BY_CARD_NAME[used.binding]
            self._transports[used] = open_transport(
                address, used.dialect, binding, used.tenant, self._options, is_endpoint=True
            )
        return self._transports[used]

    def next_transport(self) -> bool:
        """Takes the next road, after one that leads nowhere. False when all were tried."""
        self._tried.append(self.interface)
        left = [one for one in self._interfaces if one not in self._tried]
        if not left:
            self._tried.clear()
            return False
        self._interfaces.remove(left[0])
        self._interfaces.insert(0, left[0])
        self.supports_streaming = self.card.streaming
        return True

    def mark_reachable(self) -> None:
        """The road is a good one."""
        self._tried.clear()

    def request(
        self,
        message: pb.Message,
        metadata: Mapping[str, Any] | None = None,
        *,
        accepts: Sequence[str] = (),
        webhook: Webhook = "",
    ) -> pb.SendMessageRequest:
        """The send of a message, without waiting for what comes of it."""
        made = pb.SendMessageRequest(tenant=self.interface.tenant, message=message)
        made.configuration.return_immediately = True
        if self.interface.dialect == "0.3" and not accepts:
            accepts = self.card.output_modes  # 0.2 wants them said, and so do servers still
        made.configuration.accepted_output_modes.extend(accepts)
        if isinstance(webhook, pb.TaskPushNotificationConfig):
            made.configuration.task_push_notification_config.CopyFrom(webhook)
        elif webhook:
            made.configuration.task_push_notification_config.url = webhook
        if self.interface.dialect == "0.1" and not message.task_id:
            made.message.task_id = str(uuid.uuid4())  # there, clients name their tasks
        if metadata:
            content.check_json_value(metadata, "metadata")
            made.metadata.update(metadata)
        trace.add_delegation(made)
        return made

    async def get(self, task_id: str, *, history: int | None = None, parent: str = "") -> pb.Task:
        """The task as it is."""
        asked = pb.GetTaskRequest(tenant=self.interface.tenant, id=task_id, history_length=history)
        return cast(pb.Task, await self.call("GetTask", asked, parent=parent))

    async def call(self, rpc: str, request: Message, *, parent: str = "") -> Message:
        """A call that may be made twice: over another road if the first is unknown there."""
        while True:
            try:
                answer = await self.transport.call(rpc, request, parent=parent)
            except ClientError as error:
                if error.remote_error.is_unknown_method and self.next_transport():
                    continue
                raise
            self.mark_reachable()
            return answer

    async def close(self) -> None:
        """Lets go of its connections."""
        roads, self._transports = self._transports, {}
        for road in roads.values():
            await road.close()


async def discover(url: str, options: CallOptions, *, binding: str = "", dialect: str = "") -> AgentConnection:
    """Fetches the card of the agent at `url` and chooses among its interfaces, those of a binding and dialect if one is
    named. `grpc://HOST:PORT` and `grpcs://HOST:PORT` need no card. Raises ClientError."""
    if url.startswith(("grpc://", "grpcs://")):
        interface = Interface(url, "GRPC", dialect or "1.0")
        bare = RemoteCard(name=url, description=url, version="unknown", interfaces=(interface,), streaming=True)
        return AgentConnection(bare, (interface,), options)
    document, at = await _fetch_card(url, options)
    try:
        card = remote_card.parse_card(document, at)
        choice = remote_card.choose_interfaces(card, at, has_credentials=bool(options.request_headers))
    except remote_card.InvalidRemoteCard as error:
        raise ProtocolError(f"the card at {at}: {error}") from error
    fit = [
        one
        for one in choice.interfaces
        if one.binding == _CARD_NAME_BY_BINDING.get(binding, one.binding) and one.dialect == (dialect or one.dialect)
    ]
    if not fit:
        there = "; ".join(map(str, choice.interfaces))
        raise ProtocolError(
            f"the card at {at} names no interface for {dialect or 'any version'} over {binding}: {there}"
        )
    return AgentConnection(card, fit, options, secure=at.startswith("https:"))


async def _fetch_card(url: str, options: CallOptions) -> tuple[bytes, str]:
    """A card and its URL. Raises ClientError."""
    context = tls.ssl_context(options.ca, options.cert) if url.startswith("https:") else True
    timeout = aiohttp.ClientTimeout(total=CLIENT_CARD_TIMEOUT, sock_connect=10)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context), timeout=timeout) as session:
        responses = await discovery.fetch_card(url, lambda at, headers: _get_card(session, at, headers, options))
    last = responses[-1]
    if last.status == 200:
        return last.document, last.url
    if last.is_redirect:
        location = last.headers.get("Location", "")[:500]
        raise ProtocolError(f"{last.url} answered with a redirect to {location}; name that place")
    failures = [ClientError.from_response(one.status, one.headers, None) for one in responses]
    if last.is_conclusive:
        failure = failures[-1]
        remote_error = replace(failure.remote_error, message=f"{last.url}: {failure.message}")
        raise ClientError.from_remote_error(remote_error, type(failure))
    text = f"there is no card at {url}: {failures[0].message}"
    raise ClientError.from_remote_error(replace(_CARD_NOT_FOUND, message=text))


async def _get_card(
    session: aiohttp.ClientSession, url: str, headers: Mapping[str, str], options: CallOptions
) -> CardResponse:
    # Credentials are for this server alone, so requests with credentials follow no redirects.
    follows = not options.request_headers
    options.trace(">", f"GET {url}")
    try:
        async with session.get(
            url, headers={**options.request_headers, **headers}, allow_redirects=follows
        ) as response:
            options.trace("<", f"{response.status} {response.content_type}")
            document = bytearray()
            async for chunk in response.content.iter_any():
                document += chunk
                if len(document) > CLIENT_CARD_MAX_BYTES:
                    raise ProtocolError(f"the card at {url} is longer than {CLIENT_CARD_MAX_BYTES} bytes")
            final_url = str(response.url) if response.status == 200 else url
            return CardResponse(final_url, response.status, response.headers, bytes(document))
    except aiohttp.ClientError as error:
        raise connection_error(url, error) from error
    except TimeoutError as error:
        timeout = aiohttp.ServerTimeoutError(f"no card within {CLIENT_CARD_TIMEOUT:g} s")
        raise connection_error(url, timeout) from error


_CARD_NOT_FOUND: Final = ClientError("NOT_FOUND", "there is no card", reason="AGENT_NOT_FOUND").remote_error
