"""`/console`: agents, tasks and what becomes of them, for people with a browser.

It is made of three files, which `make console` builds from `console/` and which are committed, so that nobody else
needs what builds them. They hold nothing of this server: what the console shows it asks for as any client does, with
its user's credentials. Addresses are relative, so that it finds the server behind a proxy that adds a path.
"""

from __future__ import annotations

from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Final

from aiohttp import web

from dragoman.bindings import page
from dragoman.core.errors import MethodNotFound

_PAGE: Final = "index.html"
_TYPES: Final = {
    _PAGE: "text/html; charset=utf-8",
    "console.css": "text/css; charset=utf-8",
    "console.js": "text/javascript; charset=utf-8",
}
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data: blob:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
"""Images of agents' answers are made from their bytes (`blob:`); one at an address elsewhere is a link."""


def lead(to: str = "console") -> web.Response:
    """Where a browser goes that asks for the server itself."""
    headers = {"Location": to, "Vary": "Accept", "Cache-Control": "no-cache"}
    return web.Response(status=302, headers=headers)


def respond(request: web.BaseRequest, file: str | None) -> web.Response:
    """One of its files, None for the page. Raises MethodNotFound."""
    if file == "":  # as people write it; what is relative would not be found from there
        return lead("../console")
    name = file or _PAGE
    if name not in _TYPES or file == _PAGE:
        raise MethodNotFound(f"no file {name[:200]} here")
    content, tag = _read(name)
    headers = {
        **page.headers(_POLICY),
        "Content-Type": _TYPES[name],
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cross-Origin-Resource-Policy": "same-origin",
        "ETag": tag,
    }
    if request.headers.get("If-None-Match") == tag:
        return web.Response(status=304, headers=headers)
    return web.Response(body=content, headers=headers)


@cache
def _read(name: str) -> tuple[bytes, str]:
    """A file, and the tag of its content."""
    content = files("dragoman").joinpath("console", name).read_bytes()
    return content, f'"{sha256(content).hexdigest()[:32]}"'
