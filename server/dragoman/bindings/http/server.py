"""HTTP server: routes REST, JSON-RPC, WebSocket, cards, health, OpenAPI, blobs and pages.

One trie holds every path except those of JSON-RPC, which are any path that names an agent. The trie gets the path as in
the request line, still percent-encoded, because only it knows whether an encoded slash is part of an id.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import lru_cache, partial
from inspect import isawaitable
from typing import Any, Final, cast

from aiohttp import web

from dragoman.bindings import pages, well_known
from dragoman.bindings.admin.endpoints import HttpEndpoint, http_endpoints
from dragoman.bindings.admin.table import AdminTable
from dragoman.bindings.cards import Cards
from dragoman.bindings.http import connections, listener, rest
from dragoman.bindings.http.asgi import AsgiExchange, Receive, Scope, Send
from dragoman.bindings.http.blobs import BLOB_PREFIX, blob_response
from dragoman.bindings.http.connections import HttpConnections, PlainRequest, Response
from dragoman.bindings.http.cors import CorsHeaders, CrossOriginPolicy, add_response_headers, request_id
from dragoman.bindings.http.jsonrpc import JsonRpcExchange
from dragoman.bindings.http.request import (
    JSON_CONTENT_TYPE,
    AnyRequest,
    HttpExchange,
    accepted,
    as_aiohttp,
    card_response,
    named_versions,
)
from dragoman.bindings.http.rest import RestExchange, RestRoute
from dragoman.bindings.http.websocket import WebSocketEndpoint
from dragoman.bindings.options import BoundAddress, ServerOptions
from dragoman.bindings.pipeline import Pipeline, RequestLogEntry, authenticate_visitor, check_version, minor_version
from dragoman.bindings.stream_registry import StreamRegistry
from dragoman.core.access.identity import Identity
from dragoman.core.errors import A2AError, MethodNotFound, OriginNotAllowed
from dragoman.core.names import AGENT_ID, DEFAULT_SCOPE, RESERVED_AGENT_IDS, RESOURCE_NAME, resolve_tenant
from dragoman.runtime import Operations
from dragoman.supervision import Background, start_task
from dragoman.wire.errors import MethodNotAllowed
from dragoman.wire.http import httprule
from dragoman.wire.http.routes import Candidate, Match, NoMatch, Routes

_NAMED_PATHS: Final = pages.HEALTH_PATHS | {
    "/",
    "/agents",
    "/console",
    "/metrics",
    "/openapi.json",
    "/.well-known/agent-card.json",
}
"""Pages with their own metric label; the others share one."""
RESOURCE_TEMPLATE: Final = "{tenant=projects/*/locations/*/collections/*/engines/*/assistants/*/agents/*}"
"""The path variable of an agent's resource name, as in the protos."""
RESOURCE_BASES: Final = (f"/{RESOURCE_TEMPLATE}", f"/v1/{RESOURCE_TEMPLATE}/a2a", f"/v1/{RESOURCE_TEMPLATE}")
"""The paths below which an agent is called by its resource name."""
_TENANT_BASES: Final = ("", "/{tenant}", *RESOURCE_BASES)
_READ_METHODS: Final = ("GET", "HEAD")

ServeAsgi = Callable[[Scope, Receive, Send], Coroutine[Any, Any, None]]
"""Serves one HTTP exchange of an ASGI application."""

_MAX_CACHED_PATH_CHARS: Final = 256  # finding a route takes 15 µs, and polling clients repeat their (short) paths


@asynccontextmanager
async def serve_http(
    operations: Operations, cards: Cards, options: ServerOptions, admin: AdminTable | None = None
) -> AsyncIterator[BoundAddress]:
    """Serves all HTTP paths while the block runs.

    At the end of the block streams end at once, other requests get `options.grace` seconds. Raises OSError if the
    address cannot be bound.
    """
    async with (
        _open_server(operations, cards, options, admin) as server,
        listener.listen_http(server.handle, options, server.plain_call) as bound,
    ):
        cards.http = bound
        try:
            yield bound
        finally:
            server.streams.close()
            cards.http = None


@asynccontextmanager
async def serve_asgi(
    operations: Operations, cards: Cards, options: ServerOptions, admin: AdminTable | None = None
) -> AsyncIterator[ServeAsgi]:
    """As `serve_http`, for the exchanges that the value is called with; it listens on no address."""
    async with _open_server(operations, cards, options, admin) as server:
        cards.is_mounted = True
        connections = HttpConnections(server.handle, options)
        watch_task = start_task(Background.HTTP_CONNECTIONS, connections.watch)
        try:
            yield lambda scope, receive, send: AsgiExchange(connections, scope, receive, send).serve()
        finally:
            watch_task.cancel()
            server.streams.close()
            await connections.shutdown(options.grace)


@asynccontextmanager
async def _open_server(
    operations: Operations, cards: Cards, options: ServerOptions, admin: AdminTable | None
) -> AsyncIterator[_HttpServer]:
    """Opens a server that checks the credentials of its open streams; the caller closes the streams."""
    streams = StreamRegistry()
    options.request_metrics.add_stream_count("http", lambda: streams.count)
    credentials_task = start_task(
        Background.CREDENTIALS,
        partial(streams.watch_credentials, options.authenticator, options.credential_check_interval),
        "over HTTP",
    )
    try:
        yield _HttpServer(operations, cards, options, streams, admin)
    finally:
        credentials_task.cancel()


def _jsonrpc_tenant(path: str) -> str | None:
    """Returns the tenant of a JSON-RPC path, empty for the root agent; None for a path that cannot name an agent.

    A trailing slash is allowed, because one client sends it.
    """
    tenant = path.strip("/").removeprefix("tenants/")
    if not tenant or RESOURCE_NAME.fullmatch(tenant):
        return tenant
    return tenant if AGENT_ID.fullmatch(tenant) and tenant not in RESERVED_AGENT_IDS else None


class _HttpServer:
    """Routes and serves every HTTP path of one server."""

    def __init__(
        self,
        operations: Operations,
        agent_cards: Cards,
        options: ServerOptions,
        stream_registry: StreamRegistry,
        admin: AdminTable | None,
    ) -> None:
        self.streams = stream_registry
        self._cards = agent_cards
        self._options = options
        self._cors = CorsHeaders(options)
        self._cross_origin_policy = CrossOriginPolicy(agent_cards, options)
        self._pipeline = Pipeline(operations, agent_cards, options, stream_registry)
        self._routes: Routes[RestRoute | HttpEndpoint] = Routes()
        for rule, route in rest.rest_routes(self._pipeline):
            # No HEAD for streams: the headers of a stream are known only when it starts.
            methods = _READ_METHODS if rule.http_method == "GET" and not route.row.streaming else (rule.http_method,)
            for method in methods:
                self._routes.add(method, rule.template, route)
        for rule, operation in http_endpoints(admin, options, stream_registry):
            for method in _READ_METHODS if rule.http_method == "GET" else (rule.http_method,):
                self._routes.add(method, rule.template, self._logged(operation))
        for method, path, endpoint in pages.console_endpoints(options) if options.console else ():
            self._routes.add(method, httprule.parse(path), self._logged(endpoint))
        names = []
        for paths, settings in options.extension_paths:
            serve = _extension_endpoint(paths.open(settings, self._pipeline, agent_cards))
            names.append(paths.name)
            for base in _TENANT_BASES:
                for method in paths.methods:
                    self._routes.add(method, httprule.parse(f"{base}/{paths.name}"), serve)
        self._index_page: Candidate[HttpEndpoint] = Candidate(self._logged(self._index), {})
        self._cached_match = lru_cache(1024)(self._match)
        for page_path, page in self._pages(names):
            page = self._logged(page)
            for method in _READ_METHODS:
                self._routes.add(method, httprule.parse(page_path), page)

    def _pages(self, extensions: Sequence[str]) -> Iterator[tuple[str, HttpEndpoint]]:
        """Yields path and endpoint of each page. `extensions`: their path segments."""
        agent_cards, options = self._cards, self._options
        for base in ("", "/{agent}", *RESOURCE_BASES):
            yield f"{base}/.well-known/agent-card.json", partial(self._card, legacy=False)
            yield f"{base}/.well-known/agent.json", partial(self._card, legacy=True)
        for endpoint_path in ("", *(f"{base}/{name}" for name in extensions for base in _TENANT_BASES)):
            yield (
                well_known.PROTECTED_RESOURCE_PATH + endpoint_path,
                lambda request, _: well_known.protected_resource_response(request, agent_cards, options),
            )
        for base in ("", "/{tenant}", "/tenants/{tenant}"):
            yield f"{base}/ws", WebSocketEndpoint(self._pipeline)
        for path in pages.LIVENESS_PATHS:
            yield path, lambda request, _: pages.liveness_response()
        for path in pages.READINESS_PATHS:
            yield path, lambda request, _: pages.readiness_response(options)
        yield "/.well-known/jwks.json", self._jwks
        yield well_known.CATALOG_PATH, lambda request, _: well_known.catalog_response(request, agent_cards, options)
        yield "/agents", self._agents
        yield pages.METRICS_PATH, lambda request, _: pages.metrics_response(request, options)
        yield "/openapi.json", self._openapi_document
        yield "/openapi/{file=**}", self._openapi_file
        if options.console:  # without authentication: it contains no data, and its page asks for the credentials
            yield "/console", lambda request, _: pages.console_response(request, None)
            yield "/console/{file=**}", lambda request, variables: pages.console_response(request, variables["file"])
        yield "/docs", self._docs
        yield "/docs/{file}", lambda request, variables: pages.docs_asset(variables["file"])
        yield "/blobs/{name}", lambda request, variables: blob_response(request, options.blobs, variables["name"])

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Serves any request; errors become responses."""
        has_headers = self._cors.prepare(request)
        preflight = self._cors.preflight(request) if request.method == "OPTIONS" else None
        response = preflight or await self._route(request)
        if has_headers and not response.prepared:
            add_response_headers(request, response)
        return response

    async def _route(self, request: web.BaseRequest) -> web.StreamResponse:
        path = request.rel_url.raw_path
        try:
            connections.check_request(request)
            if path not in pages.HEALTH_PATHS:
                connections.check_connection(request)
            found = self._find(request, path)
            if isinstance(found, HttpExchange):
                return as_aiohttp(await self._pipeline.serve(found))
            response = found.target(request, found.variables)
            return await response if isawaitable(response) else response
        except Exception as error:
            if isinstance(error, OriginNotAllowed) and request.method == "POST" and _jsonrpc_tenant(path) is not None:
                exchange = JsonRpcExchange(self._pipeline, request, path, "")
                return as_aiohttp(await self._pipeline.reject(exchange, error))
            self._pipeline.record_failure(error, request.remote or "", f"{request.method} {path}")
            if isinstance(error, MethodNotAllowed) and request.method == "OPTIONS":  # RFC 9110 §9.3.7
                allowed = ", ".join((*error.allowed, "OPTIONS"))
                response = web.Response(status=204, headers={"Allow": allowed})
            else:
                response = as_aiohttp(rest.error_response(request, error, rest.path_dialect(path), self._pipeline))
            self._log_entry(request, is_known=False).finish(response.status)
            return response

    def plain_call(self, request: PlainRequest) -> Coroutine[Any, Any, Response | web.StreamResponse] | None:
        """Returns the coroutine that serves a plain request; None if it has to be served by aiohttp."""
        if self._cors.origins:
            return None
        try:
            found = self._find(request, request.path)
        except A2AError:
            return None
        return self._pipeline.serve(found) if isinstance(found, HttpExchange) and found.is_unary else None

    def _find(self, request: AnyRequest, path: str) -> HttpExchange | Candidate[HttpEndpoint]:
        """Returns the exchange of a call, or else the endpoint of its path. Raises A2AError."""
        if path not in pages.HEALTH_PATHS and not path.startswith(BLOB_PREFIX):  # any page may follow signed links
            self._cross_origin_policy.check(request)
        if request.method == "POST" and (tenant := _jsonrpc_tenant(path)) is not None:
            return JsonRpcExchange(self._pipeline, request, path, tenant)
        if path == "/":
            return self._index_page
        match, rust = (self._cached_match if len(path) <= _MAX_CACHED_PATH_CHARS else self._match)(request.method, path)
        if isinstance(match, NoMatch):
            method, path, _ = rest.canonical_path(request.method, path)
            advice = self._colon_advice(method, path)
            if match.allow:
                raise MethodNotAllowed(method, match.allow, advice)
            raise MethodNotFound(f"nothing is served at {path[:200]}{advice}")
        first = match.candidates[0]
        if not isinstance(first.target, RestRoute):
            return cast("Candidate[HttpEndpoint]", first)
        chosen = cast("Candidate[RestRoute]", first)
        if len(match.candidates) > 1:
            chosen = rest.choose_candidate(request, cast("tuple[Candidate[RestRoute], ...]", match.candidates))
        return RestExchange(self._pipeline, request, path, chosen.target, chosen.variables, is_rust=rust)

    def _match(self, method: str, path: str) -> tuple[Match[RestRoute | HttpEndpoint] | NoMatch, bool]:
        """Returns the match of a path, and whether the path is a2a-rust's. Raises InvalidParams.

        Empty segments are ignored where nothing else matches: clients add slashes at the end and where URLs are joined.
        """
        canonical_method, canonical, rust = rest.canonical_path(method, path)
        match = self._routes.match(canonical_method, canonical)
        if isinstance(match, NoMatch) and (path.endswith("/") or "//" in path):
            joined = "/" + "/".join(filter(None, path.split("/")))
            if joined != path:
                return self._match(method, joined)
        return match, rust

    def _colon_advice(self, method: str, path: str) -> str:
        """The end of an error's text, if the path had a route with a colon in place of `%3A`.

        An encoded colon belongs to the id before it (RFC 3986 §2.2), so it does not begin a verb.
        """
        plain = path.replace("%3A", ":").replace("%3a", ":")
        if plain == path or isinstance(self._match(method, plain)[0], NoMatch):
            return ""
        return f"; write the colon before the verb as it is: {plain[:200]}"

    def _logged(self, endpoint: HttpEndpoint) -> HttpEndpoint:
        """An endpoint whose requests are in the request log."""

        async def serve(request: web.BaseRequest, variables: Mapping[str, str]) -> web.StreamResponse:
            log_entry = self._log_entry(request, is_known=request.rel_url.raw_path in _NAMED_PATHS)
            response = endpoint(request, variables)
            if isawaitable(response):
                response = await response
            log_entry.finish(response.status)
            return response

        return serve

    def _log_entry(self, request: web.BaseRequest, *, is_known: bool) -> RequestLogEntry:
        name = f"{request.method} {request.rel_url.raw_path[:200]}"
        return RequestLogEntry(self._options, "page", name, "", request_id(request), is_known_method=is_known)

    async def _index(self, request: web.BaseRequest, _: Mapping[str, str]) -> web.StreamResponse:
        if request.method not in _READ_METHODS:
            raise MethodNotAllowed(request.method, (*_READ_METHODS, "POST"))
        if self._options.console and "text/html" in accepted(request):
            return pages.redirect_to_console()
        return await self._agents(request, _)

    async def _card(self, request: web.BaseRequest, variables: Mapping[str, str], *, legacy: bool) -> web.Response:
        scope, agent = DEFAULT_SCOPE, variables.get("agent", self._cards.root)
        if tenant := variables.get("tenant"):
            scope, agent = resolve_tenant(tenant, self._cards.root)
        await self._authenticate(request, agent, scope)
        version = minor_version(check_version(named_versions(request)))
        origin, private = self._cards.origin(request), self._options.private_pages
        card = self._cards.document(agent, origin, version, legacy=legacy, scope=scope)
        vary = "A2A-Version, A2A-Extensions" + (", Authorization, X-API-Key" if private else "")
        return card_response(request, card, vary=vary, private=private)

    async def _authenticate(self, request: web.BaseRequest, agent: str = "", scope: str = DEFAULT_SCOPE) -> Identity:
        return await authenticate_visitor(request.headers.items(), self._options, request, agent, scope)

    async def _agents(self, request: web.BaseRequest, _: Mapping[str, str]) -> web.StreamResponse:
        identity = await self._authenticate(request)
        policy = self._options.access_policy
        visible = [spec for spec in self._cards.sorted_agents() if policy.may_see(DEFAULT_SCOPE, spec.id, identity)]
        return pages.index_response(visible, self._cards, self._cards.origin(request))

    async def _jwks(self, request: web.BaseRequest, _: Mapping[str, str]) -> web.StreamResponse:
        """Serves the signing keys without authentication: webhook receivers have no credentials."""
        if self._options.jwks is None:
            raise MethodNotFound("this server does not sign push notifications or cards, so it has no keys")
        headers = {"Content-Type": JSON_CONTENT_TYPE, "Cache-Control": "public, max-age=300"}
        return web.Response(body=await self._options.jwks(), headers=headers)

    async def _openapi_document(self, request: web.BaseRequest, _: Mapping[str, str]) -> web.StreamResponse:
        await self._authenticate(request)
        base = self._cards.base_url(self._cards.origin(request))
        document = pages.served_document(base, self._cards.security, self._options.access_policy)
        return web.Response(body=document, headers={"Content-Type": JSON_CONTENT_TYPE})

    async def _docs(self, request: web.BaseRequest, _: Mapping[str, str]) -> web.StreamResponse:
        await self._authenticate(request)
        return pages.docs_response()

    async def _openapi_file(self, request: web.BaseRequest, variables: Mapping[str, str]) -> web.StreamResponse:
        await self._authenticate(request)
        name = variables["file"]
        if not name:
            return web.json_response({"files": [f"/openapi/{file}" for file in sorted(pages.openapi_files())]})
        content = pages.openapi_files().get(name)
        if content is None:
            raise MethodNotFound(f"there is no file {name[:200]}; /openapi/ lists the files")
        return web.Response(body=content, headers={"Content-Type": JSON_CONTENT_TYPE})


def _extension_endpoint(serve: Callable[[Any, str, str], Awaitable[Response | web.StreamResponse]]) -> HttpEndpoint:
    """The endpoint of an extension, whose exchanges write the request log. `serve`: as in `HttpPaths.open`."""

    async def endpoint(request: web.BaseRequest, variables: Mapping[str, str]) -> web.StreamResponse:
        return as_aiohttp(await serve(request, request.rel_url.raw_path, variables.get("tenant", "")))

    return endpoint
