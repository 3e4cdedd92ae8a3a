"""An OpenID provider as a real server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web
from tests.security.token_issuer import public_jwk, rsa_key


class Provider:
    """An OpenID provider on this machine. Tests change its keys, and whether it responds."""

    def __init__(self) -> None:
        self.url = ""
        self.keys: list[dict[str, Any]] = [public_jwk(rsa_key("one"), "one")]
        self.up = True
        self.requests: list[str] = []

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        self.requests.append(request.path)
        if not self.up:
            return web.Response(status=503)
        if request.path == "/.well-known/openid-configuration":
            return web.json_response({"issuer": self.url, "jwks_uri": f"{self.url}/jwks"})
        return web.json_response({"keys": self.keys})


@asynccontextmanager
async def provider() -> AsyncIterator[Provider]:
    """Runs a provider while the block runs."""
    one = Provider()
    runner = web.ServerRunner(web.Server(one.answer, access_log=None))
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        one.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield one
    finally:
        await runner.cleanup()
