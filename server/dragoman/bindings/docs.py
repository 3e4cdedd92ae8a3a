"""`/docs`: the description of the routes as a page to read and to try, with Swagger UI.

The files of Swagger UI come out of the installed package `offapi`, so nothing is fetched from anywhere, and the page's
policy holds it to this server (CSP Level 3 §2.3). Addresses are relative: behind a proxy the page finds its files and
the description where it is itself.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import distribution
from pathlib import Path
from typing import Final

from aiohttp import web

from dragoman.bindings import page
from dragoman.core.errors import MethodNotFound

_MAX_AGE: Final = 3600
_ASSETS: Final = {
    "swagger-ui.css": ("swagger_style.css", "text/css; charset=utf-8"),
    "swagger-ui-bundle.js": ("swagger_bundle.js", "text/javascript; charset=utf-8"),
}
_PAGE: Final = """\
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


def respond() -> web.Response:
    """The page."""
    policy = page.policy(_PAGE, scripts="'self'", styles="'self'", images="'self' data:")
    return web.Response(body=_PAGE.encode(), headers=page.headers(policy))


def asset(name: str) -> web.Response:
    """One of its files. Raises MethodNotFound."""
    if name not in _ASSETS:
        raise MethodNotFound(f"no file {name[:200]} here")
    file, media_type = _ASSETS[name]
    headers = {
        "Content-Type": media_type,
        "X-Content-Type-Options": "nosniff",
        "Cache-Control": f"public, max-age={_MAX_AGE}",
    }
    return web.Response(body=_read(file), headers=headers)


@cache
def _read(file: str) -> bytes:
    # By the path and not by an import: the package reads every file it has when it is imported.
    return Path(str(distribution("offapi").locate_file(f"offapi/{file}"))).read_bytes()
