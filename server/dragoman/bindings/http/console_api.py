"""Endpoints of the console besides the API: sign-in providers, and the caller's identity."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from aiohttp import web

from dragoman.bindings.admin.endpoints import HttpEndpoint
from dragoman.bindings.http.request import read_json
from dragoman.bindings.options import ServerOptions
from dragoman.bindings.pipeline import authenticate
from dragoman.core.errors import InvalidParams

_NO_STORE: Final = {"Cache-Control": "no-store"}
_MAX_BODY_BYTES: Final = 64 * 1024
_FIELDS: Final = ("issuer", "code", "codeVerifier", "redirectUri")


def console_endpoints(options: ServerOptions) -> Iterator[tuple[str, str, HttpEndpoint]]:
    """Yields method, path and endpoint of each."""
    sign_in = options.console_sign_in

    async def providers(request: web.BaseRequest, _: Mapping[str, str]) -> web.StreamResponse:
        """Lists where people sign in. Public, like the console."""
        found = await sign_in.providers() if sign_in is not None else []
        return web.json_response({"providers": [_camel_case(one._asdict()) for one in found]}, headers=_NO_STORE)

    async def token(request: web.BaseRequest, _: Mapping[str, str]) -> web.StreamResponse:
        """Exchanges an authorization code for a token."""
        body = await read_json(request, _MAX_BODY_BYTES)
        fields = body if isinstance(body, dict) else {}
        for name in _FIELDS:
            if not isinstance(fields.get(name), str):
                raise InvalidParams(f"{name}: must be a string")
        if sign_in is None:
            raise InvalidParams("issuer: nobody signs in at an issuer here; set console_client of --issuers")
        found = await sign_in.exchange(*(fields[name] for name in _FIELDS))
        return web.json_response(_camel_case(found._asdict()), headers=_NO_STORE)

    async def caller(request: web.BaseRequest, _: Mapping[str, str]) -> web.StreamResponse:
        """Tells callers who they are, and their grants."""
        identity = await authenticate(request.headers.items(), options, request)
        body = {"principal": identity.principal, "grants": sorted(identity.grants)}
        return web.json_response(body, headers=_NO_STORE)

    yield "GET", "/console/sign-in", providers
    yield "POST", "/console/token", token
    yield "GET", "/console/caller", caller


def _camel_case(fields: dict[str, Any]) -> dict[str, Any]:
    return {name.split("_")[0] + "".join(map(str.title, name.split("_")[1:])): fields[name] for name in fields}
