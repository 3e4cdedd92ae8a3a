"""A provider of tokens as a real server, and a way out to it that asks nobody for permission."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Self

import aiohttp
from aiohttp import web
from tests.security.provider import public_jwk, rsa_key

from dragoman.ports import Reply, Unreachable


class AnyOutbound:
    """Calls whatever it is told to. Implements `dragoman.ports.Outbound`."""

    def __init__(self) -> None:
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10))

    def check(self, url: str) -> None: ...

    async def get(self, url: str, headers: Mapping[str, str] = {}) -> Reply:
        try:
            async with self._session.get(url, headers=headers, allow_redirects=False) as answer:
                names = {name.lower(): value for name, value in answer.headers.items()}
                return Reply(answer.status, names, await answer.read())
        except aiohttp.ClientError as error:
            raise Unreachable(str(error)) from error

    async def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> Reply:
        raise AssertionError("key sets are read")

    async def close(self) -> None:
        await self._session.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class Provider:
    """An OpenID provider on this machine. Its keys, and whether it answers, change as a test likes."""

    def __init__(self) -> None:
        self.url = ""
        self.keys: list[dict[str, Any]] = [public_jwk(rsa_key("one"), "one")]
        self.up = True
        self.asked: list[str] = []

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        self.asked.append(request.path)
        if not self.up:
            return web.Response(status=503)
        if request.path == "/.well-known/openid-configuration":
            return web.json_response({"issuer": self.url, "jwks_uri": f"{self.url}/jwks"})
        return web.json_response({"keys": self.keys})


@asynccontextmanager
async def provider() -> AsyncIterator[Provider]:
    """A provider for as long as the block runs."""
    one = Provider()
    runner = web.ServerRunner(web.Server(one.answer, access_log=None))
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        one.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield one
    finally:
        await runner.cleanup()
