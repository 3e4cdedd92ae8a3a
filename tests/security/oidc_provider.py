"""An OpenID provider as a real server."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256
from typing import Any
from urllib.parse import parse_qsl, urlencode

from aiohttp import web
from tests.security.token_issuer import claims, public_jwk, rsa_key, token


class Provider:
    """An OpenID provider on this machine. Tests change its keys, and whether it responds."""

    def __init__(self) -> None:
        self.url = ""
        self.keys: list[dict[str, Any]] = [public_jwk(rsa_key("one"), "one")]
        self.up = True
        self.requests: list[str] = []

        self.person = "alice"
        """Who signs in; empty if the sign-in is refused."""
        self._codes: dict[str, dict[str, str]] = {}

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        self.requests.append(request.path)
        if not self.up:
            return web.Response(status=503)
        match request.path:
            case "/.well-known/openid-configuration":
                endpoints = {f"{name}_endpoint": f"{self.url}/{name}" for name in ("authorization", "token")}
                return web.json_response({"issuer": self.url, "jwks_uri": f"{self.url}/jwks", **endpoints})
            case "/authorization":
                return self._authorize(dict(request.query))
            case "/token":
                return self._exchange(dict(parse_qsl(await request.text())))
        return web.json_response({"keys": self.keys})

    def _authorize(self, query: dict[str, str]) -> web.Response:
        """Sends the person back to the client at once, in place of a form with a password."""
        assert (query["response_type"], query["code_challenge_method"]) == ("code", "S256")
        code = f"code-{len(self._codes)}"
        self._codes[code] = query
        outcome = {"code": code} if self.person else {"error": "access_denied", "error_description": "Not today."}
        location = f"{query['redirect_uri']}?{urlencode({**outcome, 'state': query['state']})}"
        return web.Response(status=302, headers={"Location": location})

    def _exchange(self, form: dict[str, str]) -> web.Response:
        """Accepts a code once, with its verifier (RFC 7636 §4.6)."""
        granted = self._codes.pop(form.get("code", ""), {})
        challenge = urlsafe_b64encode(sha256(form.get("code_verifier", "").encode()).digest()).decode().rstrip("=")
        same = all(form.get(name) == granted.get(name) for name in ("client_id", "redirect_uri"))
        if not granted or not same or challenge != granted["code_challenge"]:
            return web.json_response({"error": "invalid_grant", "error_description": "The code is used."}, status=400)
        access = token(claims(iss=self.url, sub=self.person, scope=granted["scope"]), key=rsa_key("one"), kid="one")
        return web.json_response({"access_token": access, "token_type": "Bearer", "expires_in": 300})


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
