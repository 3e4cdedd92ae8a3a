"""HTML pages, OpenAPI documents, the console, health and metrics, with their headers (CSP Level 3 §2.3)."""

from __future__ import annotations

import gzip
import re
from base64 import b64encode
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from functools import cache
from hashlib import sha256
from importlib.metadata import distribution
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

import orjson
from aiohttp import web

from dragoman.bindings.admin.endpoints import HttpEndpoint, authorize_http
from dragoman.bindings.cards import Cards, Origin
from dragoman.bindings.http import listener
from dragoman.bindings.http.request import read_json
from dragoman.bindings.options import BoundAddress, ServerOptions
from dragoman.bindings.pipeline import authenticate
from dragoman.core.access.identity import AccessPolicy
from dragoman.core.cards.agent_spec import AgentSpec
from dragoman.core.cards.security_schemes import ServerSecurity
from dragoman.core.errors import InvalidParams, MethodNotFound
from dragoman.core.media_types import accepted_types
from dragoman.core.net.addresses import is_loopback_host
from dragoman.core.net.targets import names_this_machine

_NO_STORE_HEADERS: Final = {"Cache-Control": "no-store"}

# ---- Headers


def html_headers(csp: str) -> dict[str, str]:
    """The headers of an HTML page with its CSP."""
    return {
        "Content-Type": "text/html; charset=utf-8",
        "Content-Security-Policy": csp,
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
        "X-Frame-Options": "DENY",
        "Cache-Control": "no-cache",
    }


# ---- Documentation


@cache
def openapi_files() -> Mapping[str, bytes]:
    """The documents that are installed with the protos, by relative path: 1.2 MB, read when first asked for.

    `make openapi` writes them from the routes and the comments of the protos (`tools/openapi`).
    """
    package = files("dragoman_pb")
    for folder in (package / "openapi", package / ".." / "openapi"):  # a wheel, a source tree
        root = Path(str(folder))
        if root.is_dir():
            return {path.relative_to(root).as_posix(): path.read_bytes() for path in sorted(root.rglob("*.json"))}
    return {}


def served_document(url: str, security: ServerSecurity, access_policy: AccessPolicy) -> bytes:
    """OpenAPI 3.1 with the URL of a server and the credentials that it accepts.

    Operations that need no credentials have an empty `security` of their own.
    """
    document = {**_openapi_document(), "servers": [{"url": url}]}
    components = {**document["components"], "securitySchemes": security.schemes}
    requirements: list[Mapping[str, tuple[str, ...]]] = [*security.requirements]
    if requirements and access_policy.public_agents:
        requirements.append({})  # public and other agents share the paths
    return orjson.dumps({**document, "components": components, "security": requirements})


@cache
def _openapi_document() -> Any:
    return orjson.loads(openapi_files()["dragoman.openapi.json"])


_SWAGGER_FILES: Final = {
    "swagger-ui.css": ("swagger_style.css", "text/css; charset=utf-8"),
    "swagger-ui-bundle.js": ("swagger_bundle.js", "text/javascript; charset=utf-8"),
}
_INLINE_ELEMENT: Final = re.compile(r"<(script|style)>(.*?)</\1>", re.DOTALL)


@cache
def _docs_page() -> str:
    return files("dragoman.bindings").joinpath("docs.html").read_text("utf-8")


def docs_response() -> web.Response:
    """The API documentation page; its CSP allows inline code by hash, and requests to this server only."""
    page = _docs_page()
    inline = {
        kind: b64encode(sha256(content.encode()).digest()).decode() for kind, content in _INLINE_ELEMENT.findall(page)
    }
    policy = (
        f"default-src 'none'; script-src 'self' 'sha256-{inline['script']}'; "
        f"style-src 'self' 'sha256-{inline['style']}'; connect-src 'self'; img-src 'self' data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return web.Response(body=page.encode(), headers=html_headers(policy))


def docs_asset(name: str) -> web.Response:
    """A file of the API documentation page. Raises MethodNotFound."""
    if name not in _SWAGGER_FILES:
        raise MethodNotFound(f"there is no file {name[:200]} here")
    file, media_type = _SWAGGER_FILES[name]
    headers = {"X-Content-Type-Options": "nosniff", "Cache-Control": "public, max-age=3600"}
    return web.Response(body=_read_swagger_file(file), headers={"Content-Type": media_type, **headers})


@cache
def _read_swagger_file(file: str) -> bytes:
    # Read by path: importing the package would read all of its files.
    return Path(str(distribution("offapi").locate_file(f"offapi/{file}"))).read_bytes()


# ---- Console and the list of agents

_CONSOLE_PAGE: Final = "index.html"
_CONSOLE_FILES: Final = {
    _CONSOLE_PAGE: "text/html; charset=utf-8",
    "console.css": "text/css; charset=utf-8",
    "console.js": "text/javascript; charset=utf-8",
}
_CONSOLE_CSP: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data: blob:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
"""Images in responses are shown from their bytes (`blob:`); remote images are links."""


def redirect_to_console(location: str = "console") -> web.Response:
    """Redirects a browser to the console."""
    return web.Response(status=302, headers={"Location": location, "Vary": "Accept", "Cache-Control": "no-cache"})


def console_response(request: web.BaseRequest, file: str | None) -> web.Response:
    """A file of the console; None: its page. Raises MethodNotFound."""
    if file is not None and not file.strip("/"):  # the page's relative links fail under /console/
        return redirect_to_console("../" if file else "../console")  # one slash less, of several
    name = file or _CONSOLE_PAGE
    if name not in _CONSOLE_FILES or file == _CONSOLE_PAGE:
        raise MethodNotFound(f"there is no file {name[:200]} here")
    content, compressed, digest = _read_console_file(name)
    is_compressed = "gzip" in accepted_types(request.headers.get("Accept-Encoding", ""))  # the same form as `Accept`
    tag = f'"{digest}-gzip"' if is_compressed else f'"{digest}"'
    headers = {
        **html_headers(_CONSOLE_CSP),
        "Content-Type": _CONSOLE_FILES[name],
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cross-Origin-Resource-Policy": "same-origin",
        "ETag": tag,
        "Vary": "Accept-Encoding",
    }
    if request.rel_url.query.get("v") == digest[:16]:  # the page links its files with their hashes
        headers["Cache-Control"] = "public, max-age=31536000, immutable"
    if request.headers.get("If-None-Match") == tag:
        return web.Response(status=304, headers=headers)
    if is_compressed:
        return web.Response(body=compressed, headers={**headers, "Content-Encoding": "gzip"})
    return web.Response(body=content, headers=headers)


@cache
def _read_console_file(name: str) -> tuple[bytes, bytes, str]:
    """A file, the same compressed, and its hash."""
    content = files("dragoman").joinpath("console", name).read_bytes()
    return content, gzip.compress(content, mtime=0), sha256(content).hexdigest()[:32]


_SIGN_IN_FIELDS: Final = ("issuer", "code", "codeVerifier", "redirectUri")


def console_endpoints(options: ServerOptions) -> Iterator[tuple[str, str, HttpEndpoint]]:
    """Yields method, path and endpoint of the console's calls besides the API: sign-in, and the caller's identity."""
    sign_in = options.console_sign_in

    async def providers(request: web.BaseRequest, _: Mapping[str, str]) -> web.StreamResponse:
        """Lists where people sign in, and whether they have to. Public, like the console."""
        found = await sign_in.providers() if sign_in is not None else []
        known = [_camel_case(one._asdict()) for one in found]
        body = {"providers": known, "authentication": options.authenticator is not None}
        return web.json_response(body, headers=_NO_STORE_HEADERS)

    async def token(request: web.BaseRequest, _: Mapping[str, str]) -> web.StreamResponse:
        """Exchanges an authorization code for a token."""
        body = await read_json(request, 64 * 1024)
        fields = body if isinstance(body, dict) else {}
        for name in _SIGN_IN_FIELDS:
            if not isinstance(fields.get(name), str):
                raise InvalidParams(f"{name}: must be a string")
        if not fields["redirectUri"].startswith(f"{request.headers.get('Origin')}/"):
            raise InvalidParams("redirectUri: must be the page that makes this call, whose Origin is sent with it")
        if sign_in is None:
            raise InvalidParams("issuer: nobody signs in at an issuer here; set console_client of --issuers")
        found = await sign_in.exchange(*(fields[name] for name in _SIGN_IN_FIELDS), address=request.remote or "")
        return web.json_response(_camel_case(found._asdict()), headers=_NO_STORE_HEADERS)

    async def caller(request: web.BaseRequest, _: Mapping[str, str]) -> web.StreamResponse:
        """Tells callers who they are, and their grants."""
        identity = await authenticate(request.headers.items(), options, request)
        body = {"principal": identity.principal, "grants": sorted(identity.grants)}
        return web.json_response(body, headers=_NO_STORE_HEADERS)

    yield "GET", "/console/sign-in", providers
    yield "POST", "/console/token", token
    yield "GET", "/console/caller", caller


def _camel_case(fields: dict[str, Any]) -> dict[str, Any]:
    return {name.split("_")[0] + "".join(map(str.title, name.split("_")[1:])): fields[name] for name in fields}


def index_response(specs: Iterable[AgentSpec], cards: Cards, origin: Origin | None) -> web.Response:
    """The list of agents with the URLs of their cards, in the given order."""
    base = cards.base_url(origin)
    agents = [
        {
            "id": spec.id,
            "name": spec.name,
            "description": spec.description,
            "root": spec.id == cards.root,
            "card": cards.card_url(spec.id, origin),
        }
        for spec in specs
    ]
    index = {"server": "dragoman", "agents": agents, "openapi": f"{base}/openapi.json"}
    return web.json_response(index, headers={"Vary": "Accept", "Cache-Control": "no-cache"})


# ---- Health and metrics

LIVENESS_PATHS: Final = ("/healthz", "/health")
READINESS_PATHS: Final = ("/readyz", "/ready")
HEALTH_PATHS: Final = frozenset((*LIVENESS_PATHS, *READINESS_PATHS))


def liveness_response() -> web.Response:
    return web.json_response({"status": "ok"}, headers=_NO_STORE_HEADERS)


def readiness_response(options: ServerOptions) -> web.Response:
    """Reports readiness: 200 or 503, and a problem of the store or the bus, if any."""
    status, body = 200, {"status": "ok"}
    if options.draining.is_set():
        status, body = 503, {"status": "draining"}
    elif problem := options.store_problem():
        status, body = 503, {"status": "not ready", "reason": f"store: {problem}"}
    elif problem := options.bus_problem():
        body = {"status": "degraded", "reason": f"bus: {problem}"}
    return web.json_response(body, status=status, headers=_NO_STORE_HEADERS)


def serve_health(options: ServerOptions) -> AbstractAsyncContextManager[BoundAddress]:
    """Serves only health, in worker processes. Raises OSError when the address cannot be bound."""

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        path = request.rel_url.raw_path
        if request.method not in ("GET", "HEAD") or path not in HEALTH_PATHS:
            return web.json_response({"error": "this worker process serves only /healthz and /readyz"}, status=404)
        return liveness_response() if path in LIVENESS_PATHS else readiness_response(options)

    return listener.listen_http(handle, options)


ReadMetrics = Callable[[str], Awaitable[tuple[bytes, str]]]
"""Reads the metrics as text with its media type, for an `Accept` header."""

METRICS_PATH: Final = "/metrics"


async def metrics_response(request: web.BaseRequest, options: ServerOptions) -> web.Response:
    """Serves `/metrics` on the API port, to operators. Raises Unauthenticated, PermissionDenied."""
    if options.metrics is None:
        raise MethodNotFound("this server does not serve metrics here")
    await authorize_http(request, options)
    return await _metrics_text(request, options.metrics)


def serve_metrics(host: str, port: int, read: ReadMetrics) -> AbstractAsyncContextManager[BoundAddress]:
    """Serves only `/metrics`, without authentication. Raises OSError."""

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        if request.path != METRICS_PATH or request.method not in ("GET", "HEAD"):
            return web.Response(status=404, text=f"only GET {METRICS_PATH} is served here\n")
        # A web page can make the browser of a user of this machine call it by a name of its own (DNS rebinding).
        if is_loopback_host(host) and not names_this_machine(request.headers.get("Host", "")):
            return web.Response(status=403, text="this port serves callers that use a loopback address or localhost\n")
        return await _metrics_text(request, read)

    return listener.listen_http(handle, ServerOptions(host=host, port=port, grace=1.0))


async def _metrics_text(request: web.BaseRequest, read: ReadMetrics) -> web.Response:
    body, media_type = await read(request.headers.get("Accept", ""))
    return web.Response(body=body, headers={"Content-Type": media_type, "Cache-Control": "no-store"})
