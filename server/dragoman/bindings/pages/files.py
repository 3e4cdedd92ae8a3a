"""Pages and files for browsers, and their headers (CSP Level 3 §2.3).

And what stands at `/` for everyone but browsers: the addresses of the cards.
"""

from __future__ import annotations

import asyncio
import re
from base64 import b64encode
from collections.abc import Iterable
from functools import cache
from hashlib import sha256
from importlib.metadata import distribution
from importlib.resources import files
from pathlib import Path
from typing import Final
from urllib.parse import quote

from aiohttp import web

from dragoman.bindings.cards import Cards, Origin
from dragoman.core.cards.agent_spec import AgentSpec
from dragoman.core.errors import MethodNotFound
from dragoman.ports import Blobs

_INLINE_ELEMENT: Final = re.compile(r"<(script|style)>(.*?)</\1>", re.DOTALL)


def wants_html(request: web.BaseRequest) -> bool:
    """Whether the client is a browser."""
    return "text/html" in request.headers.get("Accept", "")


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


def index_response(specs: Iterable[AgentSpec], cards: Cards, origin: Origin | None) -> web.Response:
    """The list of agents and the URLs of their cards, in the given order."""
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
    answer = {"server": "dragoman", "agents": agents, "openapi": f"{base}/openapi.json"}
    return web.json_response(answer, headers={"Vary": "Accept", "Cache-Control": "no-cache"})


def content_security_policy(text: str, *, scripts: str = "", styles: str = "", images: str = "data:") -> str:
    """The CSP of a page: inline code by hash, the named sources, and requests to this server only."""
    sources = {"script": [scripts] if scripts else [], "style": [styles] if styles else []}
    for kind, content in _INLINE_ELEMENT.findall(text):
        digest = b64encode(sha256(content.encode()).digest()).decode()
        sources[kind].append(f"'sha256-{digest}'")
    return (
        f"default-src 'none'; script-src {' '.join(sources['script'])}; style-src {' '.join(sources['style'])}; "
        f"connect-src 'self'; img-src {images}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


_SWAGGER_MAX_AGE: Final = 3600
_SWAGGER_FILES: Final = {
    "swagger-ui.css": ("swagger_style.css", "text/css; charset=utf-8"),
    "swagger-ui-bundle.js": ("swagger_bundle.js", "text/javascript; charset=utf-8"),
}
_DOCS_PAGE: Final = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Dragoman API</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="docs/swagger-ui.css">
<style>body { margin: 0; }</style>
</head>
<body>
<div id="ui"></div>
<script src="docs/swagger-ui-bundle.js"></script>
<script>
"use strict";
SwaggerUIBundle({
  url: "openapi.json", dom_id: "#ui", deepLinking: true, docExpansion: "list", filter: true, validatorUrl: null,
  displayRequestDuration: true, defaultModelsExpandDepth: 0, queryConfigEnabled: false,
});
</script>
</body>
</html>
"""


def docs_response() -> web.Response:
    """The API documentation page."""
    policy = content_security_policy(_DOCS_PAGE, scripts="'self'", styles="'self'", images="'self' data:")
    return web.Response(body=_DOCS_PAGE.encode(), headers=html_headers(policy))


def docs_asset(name: str) -> web.Response:
    """A file of the API documentation page. Raises MethodNotFound."""
    if name not in _SWAGGER_FILES:
        raise MethodNotFound(f"no file {name[:200]} here")
    file, media_type = _SWAGGER_FILES[name]
    headers = {
        "Content-Type": media_type,
        "X-Content-Type-Options": "nosniff",
        "Cache-Control": f"public, max-age={_SWAGGER_MAX_AGE}",
    }
    return web.Response(body=_read_swagger_file(file), headers=headers)


@cache
def _read_swagger_file(file: str) -> bytes:
    # Read by path: importing the package would read all of its files.
    return Path(str(distribution("offapi").locate_file(f"offapi/{file}"))).read_bytes()


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
    headers = {"Location": location, "Vary": "Accept", "Cache-Control": "no-cache"}
    return web.Response(status=302, headers=headers)


def console_response(request: web.BaseRequest, file: str | None) -> web.Response:
    """A file of the console; None: its page. Raises MethodNotFound."""
    if file == "":  # as people write it; what is relative would not be found from there
        return redirect_to_console("../console")
    name = file or _CONSOLE_PAGE
    if name not in _CONSOLE_FILES or file == _CONSOLE_PAGE:
        raise MethodNotFound(f"no file {name[:200]} here")
    content, tag = _read_console_file(name)
    headers = {
        **html_headers(_CONSOLE_CSP),
        "Content-Type": _CONSOLE_FILES[name],
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cross-Origin-Resource-Policy": "same-origin",
        "ETag": tag,
    }
    if request.headers.get("If-None-Match") == tag:
        return web.Response(status=304, headers=headers)
    return web.Response(body=content, headers=headers)


@cache
def _read_console_file(name: str) -> tuple[bytes, str]:
    """A file and its ETag."""
    content = files("dragoman").joinpath("console", name).read_bytes()
    return content, f'"{sha256(content).hexdigest()[:32]}"'


_BLOB_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
_MEDIA_TYPE_PATTERN: Final = re.compile(r"[\w!#$&^.+-]+/[\w!#$&^.+-]+(; ?[\w-]+=[\w.+-]+)*", re.ASCII)
_NO_STORE_HEADERS: Final = {"Cache-Control": "no-store"}
_BLOB_HEADERS: Final = {
    "Cache-Control": "private, max-age=3600, immutable",
    "Content-Security-Policy": "default-src 'none'; sandbox",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


async def blob_response(request: web.BaseRequest, blobs: Blobs | None, digest: str) -> web.StreamResponse:
    """A blob or the requested range of it; 403 for an invalid link, 404 for a deleted blob.

    Raises MethodNotFound where there can be no such thing.
    """
    if blobs is None or not _BLOB_DIGEST.fullmatch(digest):
        raise MethodNotFound(f"nothing is served at {request.rel_url.raw_path[:200]}")
    try:
        path = await asyncio.to_thread(blobs.find, digest, request.query)
    except PermissionError as error:
        return web.Response(status=403, text=f"{error}\n", headers=_NO_STORE_HEADERS)
    if path is None:
        return web.Response(
            status=404, text="these bytes are gone, with the task they belonged to\n", headers=_NO_STORE_HEADERS
        )
    media_type = request.query.get("type", "")
    if not _MEDIA_TYPE_PATTERN.fullmatch(media_type):
        media_type = "application/octet-stream"
    name = quote(request.query.get("filename", ""), safe="")
    disposition = f"attachment; filename*=UTF-8''{name}" if name else "attachment"
    headers = {**_BLOB_HEADERS, "Content-Type": media_type, "Content-Disposition": disposition}
    return web.FileResponse(path, headers=headers)
