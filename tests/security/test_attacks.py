"""Invalid credentials over every binding: rejected with the right status, and logged without secrets."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.security.endpoints import ENDPOINTS, OPERATORS, Headers, over_http
from tests.security.token_issuer import AUDIENCE, URL, by_hand, claims, public_jwk, rsa_key, token

from dragoman import Turn, agent
from dragoman.bindings import rejection_log
from dragoman.cli.logs import JsonLogFormatter
from dragoman.core.access import caller_credentials
from dragoman.core.access.caller_credentials import ApiKey
from dragoman.ids import now_ms
from dragoman.runtime.maintenance.api_keys import ApiKeyService
from dragoman.settings.settings import Address, Settings
from dragoman.stores.sqlite import open_store
from dragoman.wiring.app import App, open_app

pytestmark = pytest.mark.long

STATIC = "a token that the operator made up"


@agent(default=True)
async def echo(turn: Turn) -> str:
    return f"{turn.principal}: {turn.text}"


@agent
async def other(turn: Turn) -> str:
    return turn.text


class Keys:
    """The API keys of the server by state."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}

    async def make(self, path: Path) -> None:
        store = open_store(path)
        now = now_ms()
        keyring = ApiKeyService(store.api_keys, clock=lambda: now)
        for name, grants in (("good", ()), ("operator", ("operator",)), ("other", ("agent:other",)), ("revoked", ())):
            key, self.texts[name] = await keyring.create(name, grants=grants)
        await keyring.revoke(key.id)
        text = caller_credentials.format_api_key(caller_credentials.new_api_key_id(b"expired."), b"e" * 32)
        self.texts["expired"] = text
        shown = caller_credentials.parse_api_key(text)
        assert shown is not None
        await store.api_keys.add(
            ApiKey(id=shown.id, name="e", principal="e", digest=shown.digest, created=1, expires=now)
        )
        key, self.texts["rotated"] = await keyring.create("rotated")
        await keyring.rotate(key.id)
        await store.close()


@pytest.fixture
async def keys(tmp_path: Path) -> Keys:
    keys = Keys()
    await keys.make(tmp_path / "tasks.db")
    return keys


@pytest.fixture
async def app(tmp_path: Path, keys: Keys, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[App]:
    """A server with every kind of authentication. Its failure log has room for all of a test's failures."""
    monkeypatch.setattr(rejection_log, "REJECTION_BURST", 1000)
    (tmp_path / "keys.json").write_text(json.dumps({"keys": [public_jwk(rsa_key("one"), "one")]}))
    settings = Settings(
        http=Address("127.0.0.1", 0),
        grpc=Address("127.0.0.1", 0),
        store=f"sqlite:///{tmp_path}/tasks.db",
        token=STATIC,  # becomes a secret
        api_keys=True,
        issuers=[{"url": URL, "audience": AUDIENCE, "jwks": str(tmp_path / "keys.json")}],
    )
    async with open_app(settings, [echo, other]) as app:
        yield app


def bearer(text: str) -> Headers:
    return [("Authorization", f"Bearer {text}")]


def attacks(keys: Keys) -> dict[str, tuple[Headers, int, str, str]]:
    """By name: headers, status, error code of RFC 6750, and log text."""
    texts, past, soon = keys.texts, int(time.time()) - 3600, int(time.time()) + 3600
    bad, once = "invalid_token", "invalid_request"
    return {
        "nothing": ([], 401, "", "credentials are required"),
        "another scheme": ([("Authorization", "Basic b3Blbjpz")], 401, "", "credentials are required"),
        "garbage": (bearer("garbage"), 401, bad, "not known to this server"),
        "an empty token": ([("Authorization", "Bearer ")], 401, once, "must contain a credential"),
        "a part of the static token": (bearer(STATIC[:-1]), 401, bad, "not known to this server"),
        "more than the static token": (bearer(STATIC + "x"), 401, bad, "not known to this server"),
        "alg none": (bearer(by_hand({"alg": "none"})), 401, bad, 'alg "none" is not accepted'),
        "HMAC": (bearer(by_hand({"alg": "HS256", "kid": "one"}, signature=b"s" * 32)), 401, bad, "is not accepted"),
        "wrong audience": (bearer(token(claims(aud="x"))), 401, bad, "aud does not name this server"),
        "wrong issuer": (bearer(token(claims(iss="https://eve.example"))), 401, bad, "issuer is not trusted"),
        "expired": (bearer(token(claims(exp=past))), 401, bad, "the token has expired"),
        "not yet valid": (bearer(token(claims(nbf=soon))), 401, bad, "not valid yet"),
        "from the future": (bearer(token(claims(iat=soon))), 401, bad, "issued in the future"),
        "unknown kid": (bearer(token(kid="nine")), 401, bad, "publishes no key"),
        "somebody else's signature": (bearer(token(key=rsa_key("eve"))), 401, bad, "signature is not its issuer's"),
        "wrong typ": (bearer(token(typ="logout+jwt")), 401, bad, "typ is not that"),
        "crit": (bearer(token(crit=["urn:x"])), 401, bad, "extensions (crit)"),
        "a name of the server's own": (bearer(token(claims(sub="token"))), 401, bad, "the name of callers with"),
        "an oversized header": (bearer(token(claims(padding="x" * 8000))), 401, once, "at most 8192 bytes"),
        "an oversized key": ([("X-API-Key", "dgm_" + "x" * 9000)], 401, once, "at most 8192 bytes"),
        "the same twice": (bearer(texts["good"]) + bearer(texts["good"]), 401, once, "must be given once"),
        "two callers": (bearer(texts["good"]) + bearer(texts["operator"]), 401, once, "must be given once"),
        "two keys": ([("X-API-Key", texts["good"])] * 2, 401, once, "must be given once"),
        "a key and a token": ([("X-API-Key", texts["good"]), *bearer(token())], 401, once, "give credentials once"),
        "a token as key": ([("X-API-Key", token())], 401, bad, "not known to this server"),
        "the static token as key": ([("X-API-Key", STATIC)], 401, bad, "not known to this server"),
        "a truncated key": (bearer(texts["good"][:-3]), 401, bad, "truncated or mistyped"),
        "a mistyped key": ([("X-API-Key", texts["good"][:-8] + "aaaaaaaa")], 401, bad, "truncated or mistyped"),
        "an unknown key": (
            bearer(caller_credentials.format_api_key("a" * 12, b"x" * 32)), 401, bad, "this API key does not exist"
        ),
        "a guess at a key": (bearer(guess(texts["good"])), 401, bad, "this API key does not exist"),
        "a revoked key": (bearer(texts["revoked"]), 401, bad, "this API key was revoked"),
        "an expired key": ([("X-API-Key", texts["expired"])], 401, bad, "this API key has expired"),
        "the secret before a rotation": (bearer(texts["rotated"]), 401, bad, "this API key does not exist"),
        "a key for another agent": (bearer(texts["other"]), 403, "insufficient_scope", "do not reach agent"),
        "a token for another agent": (
            bearer(token(claims(scope="dragoman:agent:other"))), 403, "insufficient_scope", "do not reach agent"
        ),
        "a token for another scope": (
            bearer(token(claims(scope="scope:elsewhere"))), 403, "insufficient_scope", "do not reach agent"
        ),
    }  # fmt: skip


def guess(text: str) -> str:
    shown = caller_credentials.parse_api_key(text)
    assert shown is not None
    return caller_credentials.format_api_key(shown.id, b"guess" * 6 + b"..")


def secrets_in(headers: Headers) -> list[str]:
    """Texts that no log may contain: the credentials, and long parts of them."""
    shown = [value.removeprefix("Bearer ").strip() for _, value in headers]
    parts = [part for text in shown for part in text.replace("_", ".").split(".")]
    return [text for text in (*shown, *parts) if len(text) > 20]


def written(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Every log line with its fields."""
    return [JsonLogFormatter().format(record) for record in caplog.records]


@pytest.mark.parametrize("transport", ENDPOINTS)
async def test_invalid_credentials_are_rejected_and_logged_without_them(
    app: App, keys: Keys, transport: str, caplog: pytest.LogCaptureFixture
) -> None:
    slips = []
    for name, (headers, status, word, reason) in attacks(keys).items():
        caplog.clear()
        caplog.set_level(logging.DEBUG)
        response = await ENDPOINTS[transport](app, headers)
        lines = written(caplog)
        texts = [line for line in lines if "request rejected" in line]
        if response.status != status:
            slips.append(f"{name}: {response.status} and not {status}: {response.text[:200]}")
        if len(texts) != 1 or reason not in json.loads(texts[0])["message"]:
            slips.append(f"{name}: the log has {texts}")
        in_http = "gRPC" not in transport and (transport != "WebSocket" or status == 401)
        if in_http and not says(response.challenge, word):
            slips.append(f"{name}: WWW-Authenticate: {response.challenge}")
        for secret in secrets_in(headers):
            slips += [f"{name}: the log holds {secret}" for line in lines if secret in line]
            if secret in response.text + response.challenge:
                slips.append(f"{name}: the answer holds {secret}")
    assert slips == []


def says(challenge: str, word: str) -> bool:
    return (
        challenge == 'Bearer realm="dragoman"' if not word else f'Bearer realm="dragoman", error="{word}"' in challenge
    )


@pytest.mark.parametrize("transport", ENDPOINTS)
async def test_valid_credentials_are_accepted_over_the_same_bindings(app: App, keys: Keys, transport: str) -> None:
    good: dict[str, Headers] = {
        "key": bearer(keys.texts["good"]),
        "key in its own header": [("X-API-Key", keys.texts["good"])],
        "token": bearer(token()),
        "token for this agent": bearer(token(claims(scope="openid dragoman:agent:echo"))),
        "static": bearer(STATIC),
        "the largest token": bearer(token(claims(padding="x" * 5400))),
    }
    found = {name: (await ENDPOINTS[transport](app, headers)).status for name, headers in good.items()}
    assert found == dict.fromkeys(good, 200)


NO_HTTP: dict[str, tuple[bytes, int]] = {
    "a header over every limit": (b"GET /tasks HTTP/1.1\r\nAuthorization: Bearer %b\r\n\r\n", 431),
    "a name over every limit": (b"GET /tasks HTTP/1.1\r\nBearer%b: x\r\n\r\n", 431),
    "a line over every limit": (b"GET /tasks?access_token=%b HTTP/1.1\r\n\r\n", 414),
    "a header without a name": (b"GET /tasks HTTP/1.1\r\nBearer SECRET-%.8b\r\n\r\n", 400),
    "a header with a null": (b"GET /tasks HTTP/1.1\r\nAuthorization: Bearer SECRET-%.8b\x00\r\n\r\n", 400),
    "no method": (b"Authorization: Bearer SECRET-%.8b\r\n\r\n", 400),
}


@pytest.mark.parametrize("what", NO_HTTP)
async def test_invalid_http_is_not_logged_verbatim(app: App, what: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    form, status = NO_HTTP[what]
    reader, writer = await asyncio.open_connection(app.http.host, app.http.port)
    writer.write(form % (b"SECRET-" * 10_000))
    data = await reader.read()
    writer.close()
    assert data.split(b" ", 2)[1] == b"%d" % status, data[:200]
    assert b"SECRET" not in data
    head, _, body = data.partition(b"\r\n\r\n")
    assert b"Content-Type: application/json" in head
    answer = json.loads(body)
    assert (answer["error"]["code"], answer["error"]["status"]) == (status, "INVALID_ARGUMENT")
    assert answer["message"] == answer["error"]["message"]
    lines = written(caplog)
    assert not [line for line in lines if "SECRET" in line or line.count("Traceback")]
    assert len([line for line in lines if "invalid HTTP request" in line]) == 1


async def test_oversized_grpc_metadata_is_rejected_by_the_transport(app: App, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    response = await ENDPOINTS["gRPC 1.0"](app, bearer("SECRET-" * 10_000))
    assert response.status == 500
    assert not [line for line in written(caplog) if "SECRET" in line]


async def test_operator_calls_require_the_operator_grant(app: App, keys: Keys) -> None:
    allowed = [bearer(keys.texts["operator"]), bearer(STATIC), bearer(token(claims(scope="dragoman:operator")))]
    for headers in allowed:
        assert (await OPERATORS(app, headers)).status == 200
    for headers in (bearer(keys.texts["good"]), bearer(keys.texts["other"]), bearer(token(claims(scope="operator")))):
        assert (await OPERATORS(app, headers)).status == 403
    for name, (headers, status, _, _) in attacks(keys).items():
        assert (await OPERATORS(app, headers)).status == status, name


async def test_rejections_over_json_rpc_are_json_rpc_errors(app: App) -> None:
    response = await ENDPOINTS["JSON-RPC 1.0"](app, [])
    assert response.body["jsonrpc"] == "2.0"
    assert response.body["id"] is None
    assert response.body["error"]["code"] == -32603
    assert response.body["error"]["data"][0]["reason"] == "UNAUTHENTICATED"
    response = await ENDPOINTS["REST 1.0"](app, [])
    assert response.body["error"]["status"] == "UNAUTHENTICATED"
    assert response.body["error"]["details"][0]["reason"] == "UNAUTHENTICATED"


async def test_credentials_are_checked_before_anything_else(app: App) -> None:
    """Otherwise a caller without credentials would learn which agents exist, and why a request is invalid."""
    wrong: list[tuple[str, str, Any]] = [
        ("POST", "/message:send", "no message"),
        ("POST", "/nobody/message:send", {}),
        ("GET", "/tasks/none", None),
        ("GET", "/tasks?pageSize=0", None),
        ("POST", "/v1/message:send", []),
        ("POST", "/", "no JSON-RPC"),
        ("POST", "/nobody", {}),
        ("GET", "/extendedAgentCard", None),
        ("POST", "/tasks/x/pushNotificationConfigs", {}),
    ]
    for method, path, body in wrong:
        response = await over_http(method, path, body)(app, [("A2A-Version", "99.0")])
        assert response.status == 401, (method, path, response.text)


async def test_public_endpoints_need_no_credentials(app: App) -> None:
    paths = ("/", "/healthz", "/readyz", "/docs", "/openapi.json", "/agents", "/.well-known/agent-card.json")
    for path in (*paths, "/.well-known/agent.json", "/other/.well-known/agent-card.json", "/v1/card"):
        assert (await over_http("GET", path)(app, [])).status == 200, path
