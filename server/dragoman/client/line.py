"""One agent, and the roads to it: those of its card, the best first."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, cast

import aiohttp
from google.protobuf.message import Message

from dragoman.client import trust, values
from dragoman.client.calls import open_road
from dragoman.client.failure import ClientError, Nonsense
from dragoman.client.over_http import away
from dragoman.client.roads import Means, Road
from dragoman.core import delegation
from dragoman.core.extensions import IDEMPOTENCY, RESUME
from dragoman.wire import card_reading, finding_cards
from dragoman.wire.card_reading import Card, Interface
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

Webhook = str | pb.TaskPushNotificationConfig
"""Where to tell of a task: a URL, or a whole configuration."""

CARD_BYTES: Final = 4 * 1024 * 1024
CARD_SECONDS: Final = 30.0
"""Of a card."""

_BINDINGS: Final = {"GRPC": "grpc", "HTTP+JSON": "rest", "JSONRPC": "jsonrpc"}
_CALLED: Final = {"grpc": "GRPC", "rest": "HTTP+JSON", "jsonrpc": "JSONRPC"}


class Line:
    """What is known of one agent, and how it is spoken to. Calls raise ClientError."""

    def __init__(self, card: Card, interfaces: Sequence[Interface], means: Means, *, safe: bool = False) -> None:
        """`interfaces`: the best first, at least one. `safe`: gRPC is encrypted where its address does not say."""
        uris = {extension.uri for extension in card.extensions}
        self.card = card
        self.streams = card.streaming
        """It has streams, as far as is known."""
        self.is_idempotent = IDEMPOTENCY.uri in uris
        """A repeated send with the same key runs nothing."""
        self.resumes = RESUME.uri in uris
        """Its events have cursors."""
        required = [extension.uri for extension in card.extensions if extension.required]
        self._means = replace(means, extensions=",".join(dict.fromkeys([RESUME.uri, *required])))
        self._interfaces = list(interfaces)
        self._safe = safe
        self._tried: list[Interface] = []
        self._roads: dict[Interface, Road] = {}

    @property
    def interface(self) -> Interface:
        """The way that is used."""
        return self._interfaces[0]

    @property
    def road(self) -> Road:
        """The road to it."""
        used = self.interface
        if used not in self._roads:
            address = used.url
            if used.binding == "GRPC":
                scheme, _, place = finding_cards.url_of(address, safe=self._safe).partition("://")
                address = f"{'grpcs' if scheme == 'https' else 'grpc'}://{place}"
            binding = _BINDINGS[used.binding]
            self._roads[used] = open_road(address, used.dialect, binding, used.tenant, self._means, exact=True)
        return self._roads[used]

    def other(self) -> bool:
        """Takes the next road, after one that leads nowhere. False when all were tried."""
        self._tried.append(self.interface)
        left = [one for one in self._interfaces if one not in self._tried]
        if not left:
            self._tried.clear()
            return False
        self._interfaces.remove(left[0])
        self._interfaces.insert(0, left[0])
        self.streams = self.card.streaming
        return True

    def reached(self) -> None:
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
            values.check(metadata, "metadata")
            made.metadata.update(metadata)
        delegation.stamp(made)
        return made

    async def get(self, task_id: str, *, history: int | None = None, parent: str = "") -> pb.Task:
        """The task as it is."""
        asked = pb.GetTaskRequest(tenant=self.interface.tenant, id=task_id, history_length=history)
        return cast(pb.Task, await self.call("GetTask", asked, parent=parent))

    async def call(self, rpc: str, request: Message, *, parent: str = "") -> Message:
        """A call that may be made twice: over another road if the first is unknown there."""
        while True:
            try:
                answer = await self.road.call(rpc, request, parent=parent)
            except ClientError as error:
                if error.complaint.is_unknown_call and self.other():
                    continue
                raise
            self.reached()
            return answer

    async def close(self) -> None:
        """Lets go of its connections."""
        roads, self._roads = self._roads, {}
        for road in roads.values():
            await road.close()


async def find(url: str, means: Means, *, binding: str = "", dialect: str = "") -> Line:
    """Fetches the card of the agent at `url` and chooses among its interfaces, those of a binding and dialect if one is
    named. `grpc://HOST:PORT` and `grpcs://HOST:PORT` need no card. Raises ClientError."""
    if url.startswith(("grpc://", "grpcs://")):
        interface = Interface(url, "GRPC", dialect or "1.0")
        bare = Card(name=url, description=url, version="unknown", interfaces=(interface,), streaming=True)
        return Line(bare, (interface,), means)
    document, at = await _fetched(url, means)
    try:
        card = card_reading.read(document, at)
        choice = finding_cards.chosen(card, at, credentials=bool(means.shown))
    except card_reading.Unfit as error:
        raise Nonsense(f"the card at {at}: {error}") from error
    fit = [
        one
        for one in choice.interfaces
        if one.binding == _CALLED.get(binding, one.binding) and one.dialect == (dialect or one.dialect)
    ]
    if not fit:
        there = "; ".join(map(str, choice.interfaces))
        raise Nonsense(f"the card at {at} names no interface for {dialect or 'any version'} over {binding}: {there}")
    return Line(card, fit, means, safe=at.startswith("https:"))


async def _fetched(url: str, means: Means) -> tuple[bytes, str]:
    """A card, and where it was."""
    tls = trust.context(means.ca, means.cert) if url.startswith("https:") else True
    limit = aiohttp.ClientTimeout(total=CARD_SECONDS, sock_connect=10)
    # What shows who we are is for this server alone.
    follows = not means.shown
    found: ClientError | None = None
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=tls), timeout=limit) as session:
        for place in finding_cards.places(url):
            for form in finding_cards.HEADERS:
                means.trace(">", f"GET {place}")
                try:
                    headers = {**means.shown, **form}
                    async with session.get(place, headers=headers, allow_redirects=follows) as answer:
                        means.trace("<", f"{answer.status} {answer.content_type}")
                        document = await answer.content.read(CARD_BYTES + 1)
                        while len(document) <= CARD_BYTES and (more := await answer.content.read(CARD_BYTES)):
                            document += more
                except aiohttp.ClientError as error:
                    raise away(place, error) from error
                except TimeoutError as error:
                    raise away(place, aiohttp.ServerTimeoutError(f"no card within {CARD_SECONDS:g} s")) from error
                if len(document) > CARD_BYTES:
                    raise Nonsense(f"the card at {place} is longer than {CARD_BYTES} bytes")
                if answer.status == 200:
                    return document, str(answer.url)
                if 300 <= answer.status < 400:
                    to = answer.headers.get("Location", "")[:500]
                    raise Nonsense(f"{place} answered with a redirect to {to}; name that place")
                if answer.status != 400:
                    break
            failure = ClientError.of_answer(answer.status, answer.headers, None)
            if answer.status in (401, 403, 429, 502, 503, 504):
                raise ClientError.told(replace(failure.complaint, message=f"{place}: {failure.message}"), type(failure))
            found = found or failure
    status = found.message if found is not None else "nothing was found"
    raise ClientError.told(replace(_NO_CARD, message=f"there is no card at {url}: {status}"))


_NO_CARD: Final = ClientError("NOT_FOUND", "there is no card", reason="AGENT_NOT_FOUND").complaint
