"""HTTP: REST, JSON-RPC, WebSocket, cards, health, OpenAPI, blobs and the pages behind one aiohttp server.

One trie holds every path but those of JSON-RPC, which are whatever names an agent. Paths reach it as they stood in
the request line, because only it knows whether an encoded slash is part of an id.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import cache, lru_cache
from typing import Final, cast

import orjson
from aiohttp import web

from dragoman.bindings import (
    blobs,
    callers,
    cards,
    connections,
    console,
    docs,
    health,
    http_port,
    metrics,
    openapi,
    ops_rest,
    page,
    rest,
    versions,
)
from dragoman.bindings.access import Access
from dragoman.bindings.calls import Calls
from dragoman.bindings.cards import Cards
from dragoman.bindings.closing import Streams
from dragoman.bindings.cross_origin import CrossOrigin
from dragoman.bindings.jsonrpc import JsonRpc
from dragoman.bindings.ops_rest import Endpoint, Operated
from dragoman.bindings.pages import Pages, request_id, tell
from dragoman.bindings.rest import Route
from dragoman.bindings.serving import Bound, HttpOptions
from dragoman.bindings.tally import PAGE
from dragoman.bindings.websocket import WebSocket
from dragoman.core.access.identity import Identity
from dragoman.core.errors import MethodNotFound, OriginNotAllowed
from dragoman.core.names import AGENT_ID, DEFAULT_SCOPE, RESERVED_AGENT_IDS, RESOURCE_NAME
from dragoman.runtime.operations.service import TaskService
from dragoman.wire.errors import MethodNotAllowed
from dragoman.wire.http import httprule
from dragoman.wire.http.routes import Candidate, Match, NoMatch, Routes

_FIXED: Final = health.PATHS | {"/", "/agents", "/console", "/metrics", "/openapi.json", "/.well-known/agent-card.json"}
"""Pages that are counted by name."""
_LINKS: Final = "/blobs/"
"""Whoever has such a link may follow it, pages included."""
_READ: Final = ("GET", "HEAD")

_KNOWN: Final = 1024
_SHORT: Final = 256
"""Paths of at most so many characters whose route is remembered: to find one takes 15 µs, and who polls asks again."""


@asynccontextmanager
async def serve(
    service: TaskService, cards: Cards, options: HttpOptions, operated: Operated | None = None
) -> AsyncIterator[Bound]:
    """Serves REST, cards, health, OpenAPI, the console and operators' calls over HTTP.

    On the way out streams end at once, other requests after `options.grace` seconds. Raises OSError when the
    address cannot be had.
    """
    streams = Streams()
    options.tally.watch("http", lambda: streams.count)
    site = _Site(service, cards, options, streams, operated)
    looking = asyncio.create_task(streams.watch(options.authenticator), name="http-credentials")
    try:
        async with http_port.listen(site.handle, options) as bound:
            cards.http = bound
            try:
                yield bound
            finally:
                streams.close()
    finally:
        looking.cancel()
        cards.http = None


def _rpc_tenant(path: str) -> str | None:
    """The tenant whose JSON-RPC is at a path, empty for the root agent's; None when no agent could be there.

    A slash may follow the agent: one client puts it there.
    """
    tenant = path.strip("/").removeprefix("tenants/")
    if not tenant or RESOURCE_NAME.fullmatch(tenant):
        return tenant
    return tenant if AGENT_ID.fullmatch(tenant) and tenant not in RESERVED_AGENT_IDS else None


class _Site:
    """Every path of one server."""

    def __init__(
        self,
        service: TaskService,
        known: Cards,
        options: HttpOptions,
        streams: Streams,
        operated: Operated | None,
    ) -> None:
        self._cards = known
        self._options = options
        self._pages = Pages(options.cors)
        self._cross_origin = CrossOrigin(known, options)
        calls = Calls(service, known)
        self._rpc = JsonRpc(calls, known, options, streams)
        self._ws = WebSocket(calls, known, options, streams)
        self._routes: Routes[Route | Endpoint] = Routes()
        routes = list(rest.routes(service, known, options, streams))
        for rule, route in routes:
            # What a stream would be is known only when it begins.
            for method in _READ if rule.http_method == "GET" and not route.row.streaming else (rule.http_method,):
                self._routes.add(method, rule.template, route)
        for rule, operation in ops_rest.routes(operated, known, options):
            for method in _READ if rule.http_method == "GET" else (rule.http_method,):
                self._routes.add(method, rule.template, operation)
        self._known = lru_cache(_KNOWN)(self._match)
        push = service.push_enabled
        served = [openapi.Served(rule, route.row, route.dialect) for rule, route in routes]
        self._openapi = cache(
            lambda: openapi.document(
                served,
                root=known.root,
                table=options.table,
                push=push,
                enforced=known.enforced,
                doorway=options.doorway,
            )
        )
        for path, endpoint in (
            ("/.well-known/agent-card.json", self._card),
            ("/.well-known/agent.json", self._old_card),
            ("/{agent}/.well-known/agent-card.json", self._card),
            ("/{agent}/.well-known/agent.json", self._old_card),
            ("/.well-known/jwks.json", self._keys),
            ("/agents", self._agents),
            ("/ws", self._ws),
            ("/{tenant}/ws", self._ws),
            ("/tenants/{tenant}/ws", self._ws),
            ("/healthz", self._alive),
            ("/health", self._alive),
            ("/readyz", self._ready),
            ("/ready", self._ready),
            (metrics.PATH, self._metrics),
            ("/openapi.json", self._openapi_document),
            ("/openapi/{file=**}", self._openapi_file),
            ("/console", self._console),
            ("/console/{file=**}", self._console),
            ("/docs", self._docs),
            ("/docs/{file}", self._docs_file),
            ("/blobs/{hash}", self._blob),
        ):
            for method in _READ:
                self._routes.add(method, httprule.parse(path), endpoint)

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answers any request."""
        self._pages.open(request)
        response = self._pages.preflight(request) or await self._answer(request)
        if not response.prepared:
            tell(request, response)
        return response

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        path = request.rel_url.raw_path
        try:
            if path not in health.PATHS:
                connections.check(request)
                if not path.startswith(_LINKS):
                    self._cross_origin.check(request)
            if request.method == "POST" and (tenant := _rpc_tenant(path)) is not None:
                return await self._rpc(request, {"tenant": tenant})
            if path == "/":
                return await self._watched(request, self._root, {})
            match, rust = (self._known if len(path) <= _SHORT else self._match)(request.method, path)
            if isinstance(match, NoMatch):
                method, path, _ = rest.canonical(request.method, path)
                if match.allow:
                    raise MethodNotAllowed(method, match.allow)
                raise MethodNotFound(f"nothing is served at {path[:200]}")
            first = match.candidates[0]
            if not isinstance(first.target, Route):
                return await self._watched(request, first.target, first.variables)
            chosen = cast("Candidate[Route]", first)
            if len(match.candidates) > 1:
                chosen = rest.choose(request, cast("tuple[Candidate[Route], ...]", match.candidates))
            return await chosen.target(request, chosen.variables, rust=rust)
        except Exception as error:
            if isinstance(error, OriginNotAllowed) and request.method == "POST" and _rpc_tenant(path) is not None:
                return self._rpc.refuse(request, error)
            response = rest.failure(request, error, rest.dialect_of(path), self._options)
            self._access(request, known=False).done(response.status)
            return response

    def _match(self, method: str, path: str) -> tuple[Match[Route | Endpoint] | NoMatch, bool]:
        """What serves a path, and whether a2a-rust calls it so. Raises InvalidParams."""
        method, path, rust = rest.canonical(method, path)
        return self._routes.match(method, path), rust

    async def _watched(
        self, request: web.BaseRequest, endpoint: Endpoint, variables: Mapping[str, str]
    ) -> web.StreamResponse:
        access = self._access(request, known=request.rel_url.raw_path in _FIXED)
        response = await endpoint(request, variables)
        access.done(response.status)
        return response

    def _access(self, request: web.BaseRequest, *, known: bool) -> Access:
        name = f"{request.method} {request.rel_url.raw_path[:200]}"
        return Access(self._options.tally, PAGE, name, "", request_id(request), known=known)

    async def _root(self, request: web.BaseRequest, _: Mapping[str, str]) -> web.StreamResponse:
        if request.method not in _READ:
            raise MethodNotAllowed(request.method, (*_READ, "POST"))
        if page.is_for(request):
            return console.lead()
        return await self._agents(request, _)

    async def _card(self, request: web.BaseRequest, variables: Mapping[str, str]) -> web.StreamResponse:
        return await self._served(request, variables, old=False)

    async def _old_card(self, request: web.BaseRequest, variables: Mapping[str, str]) -> web.StreamResponse:
        return await self._served(request, variables, old=True)

    async def _served(self, request: web.BaseRequest, variables: Mapping[str, str], *, old: bool) -> web.Response:
        agent = variables.get("agent", self._cards.root)
        await self._admit(request, agent)
        version = versions.minor(versions.check(rest.named_versions(request)))
        origin = cards.origin(request, self._cards)
        served, private = self._cards.document(agent, origin, version, old=old), self._options.private_pages
        vary = "A2A-Version, Authorization, X-API-Key" if private else "A2A-Version"
        return cards.respond(request, served, vary=vary, private=private)

    async def _admit(self, request: web.BaseRequest, agent: str = "") -> Identity:
        return await callers.visitor(request.headers.items(), self._options, request, agent)

    async def _agents(self, request: web.BaseRequest, _: Mapping[str, str]) -> web.StreamResponse:
        who = await self._admit(request)
        doorway = self._options.doorway
        shown = [spec for spec in self._cards.catalogue() if doorway.may_see(DEFAULT_SCOPE, spec.id, who)]
        return page.index(shown, self._cards, cards.origin(request, self._cards))

    async def _keys(self, request: web.BaseRequest, _: Mapping[str, str]) -> web.StreamResponse:
        """For everybody, whoever may call: receivers of letters have no credentials."""
        if self._options.keys is None:
            raise MethodNotFound("this server signs nothing: neither push notifications nor cards")
        headers = {"Content-Type": rest.JSON, "Cache-Control": "public, max-age=300"}
        return web.Response(body=await self._options.keys(), headers=headers)

    async def _alive(self, request: web.BaseRequest, _: Mapping[str, str]) -> web.StreamResponse:
        return health.alive()

    async def _ready(self, request: web.BaseRequest, _: Mapping[str, str]) -> web.StreamResponse:
        return health.ready(self._options)

    async def _metrics(self, request: web.BaseRequest, _: Mapping[str, str]) -> web.StreamResponse:
        return await metrics.respond(request, self._options)

    async def _openapi_document(self, request: web.BaseRequest, _: Mapping[str, str]) -> web.StreamResponse:
        await self._admit(request)
        base = self._cards.url(cards.origin(request, self._cards))
        described = {**self._openapi(), "servers": [{"url": base}]}
        return web.Response(body=orjson.dumps(described), headers={"Content-Type": rest.JSON})

    async def _console(self, request: web.BaseRequest, variables: Mapping[str, str]) -> web.StreamResponse:
        """For everybody: it holds nothing, and a browser shows no credentials before it has a page to ask for them."""
        return console.respond(request, variables.get("file"))

    async def _docs(self, request: web.BaseRequest, _: Mapping[str, str]) -> web.StreamResponse:
        await self._admit(request)
        return docs.respond()

    async def _docs_file(self, request: web.BaseRequest, variables: Mapping[str, str]) -> web.StreamResponse:
        return docs.asset(variables["file"])

    async def _blob(self, request: web.BaseRequest, variables: Mapping[str, str]) -> web.StreamResponse:
        return await blobs.respond(request, self._options.blobs, variables["hash"])

    async def _openapi_file(self, request: web.BaseRequest, variables: Mapping[str, str]) -> web.StreamResponse:
        await self._admit(request)
        name = variables["file"]
        if not name:
            return web.json_response({"files": [f"/openapi/{file}" for file in sorted(self._options.openapi)]})
        found = self._options.openapi.get(name)
        if found is None:
            raise MethodNotFound(f"no file {name[:200]} here; /openapi/ lists them")
        return web.Response(body=found, headers={"Content-Type": rest.JSON})
