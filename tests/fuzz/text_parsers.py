"""Parsers of text: paths, headers, credentials, addresses, settings, streams and opaque tokens."""

from __future__ import annotations

import base64
import os
import tempfile
from collections.abc import Callable
from ipaddress import IPv4Address, ip_network
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import jwt
import orjson
from cryptography.hazmat.primitives.asymmetric import ec
from multidict import CIMultiDict
from tests.fuzz.parser import Parser
from yarl import URL

from dragoman.bindings import cards, method_table
from dragoman.bindings.http import rest
from dragoman.bindings.pipeline import VERSION_HEADER, check_version, minor_version, requested_extensions
from dragoman.core import names
from dragoman.core.access import caller_credentials, identity, jwt_claims
from dragoman.core.access.identity import check_grants, check_principal
from dragoman.core.durations import parse_age
from dragoman.core.errors import A2AError, Unauthenticated
from dragoman.core.limits import quotas
from dragoman.core.net import addresses, targets
from dragoman.core.push import configuration
from dragoman.core.task import blob_references, cursors, maintenance
from dragoman.core.task.contents import StoredContent
from dragoman.security.authenticators import composite, jwks
from dragoman.security.authenticators.jwt_tokens import JwtAuthenticator
from dragoman.settings.settings import SettingsError, load_settings
from dragoman.settings.types import Address
from dragoman.wire.http import httprule, sse
from dragoman.wire.http.routes import NoMatch, Routes
from dragoman.wire.http.transcode import WHOLE_REQUEST, Transcoder
from dragoman.wire.json import request as json_request

NOW: Final = 1_700_000_000


def _finish(coroutine: Any) -> Any:
    """The result of a coroutine that does not suspend."""
    try:
        coroutine.send(None)
    except StopIteration as over:
        return over.value
    raise AssertionError("the coroutine suspended")


# Paths ------------------------------------------------------------------------------------------------------------


def read_template(data: bytes) -> None:
    """An accepted template formats to an equivalent one."""
    try:
        template = httprule.parse(data.decode(errors="surrogateescape"))
    except httprule.TemplateError:
        return
    assert httprule.parse(str(template)) == template


def _routes() -> Routes[tuple[method_table.RpcRow, Transcoder[Any]]]:
    routes: Routes[tuple[method_table.RpcRow, Transcoder[Any]]] = Routes()
    for descriptor, rows in method_table.rpc_services():
        for method, rule in httprule.rules(descriptor):
            row = rows[method.name]
            shapes = row.bodies or (() if rule.body else (WHOLE_REQUEST,))
            transcoder: Transcoder[Any] = Transcoder(row.request, row.json, body=rule.body, shapes=shapes)
            routes.add(rule.http_method, rule.template, (row, transcoder))
    return routes


_ROUTES: Final = _routes()


def read_request(data: bytes) -> None:
    """A request line and body of the REST binding."""
    line, _, body = data.partition(b"\n")
    method, _, raw = line.decode("latin-1").partition(" ")
    try:
        url = URL(raw, encoded=True)
    except ValueError:  # aiohttp rejects it
        return
    try:
        method, path, _ = rest.canonical_path(method, url.raw_path)
        match = _ROUTES.match(method, path)
        if isinstance(match, NoMatch):
            return
        sent = json_request.loads(body) if body else None
    except A2AError:
        return
    for candidate in match.candidates:
        row, transcoder = candidate.target
        try:
            value = transcoder.request(candidate.variables, url.query.items(), sent)
            if row.decode is not None:
                value = row.decode(value)
        except A2AError:
            continue
        assert type(value).FromString(value.SerializeToString()) == value
        names_of(value.tenant)


def names_of(tenant: str) -> None:
    """A tenant string."""
    try:
        names.resolve_tenant(tenant, "root")
        names.split_resource_name(tenant)
    except A2AError:
        return


# Headers and credentials ------------------------------------------------------------------------------------------


def read_headers(data: bytes) -> None:
    """Header lines as aiohttp passes them on."""
    lines = [line.partition(b":") for line in data.split(b"\n")]
    headers = CIMultiDict(
        [(name.decode("latin-1"), value.strip().decode("utf-8", "surrogateescape")) for name, _, value in lines]
    )
    for keys in (False, True):
        try:
            credentials = composite.read_credentials(headers.items(), keys=keys)
        except Unauthenticated:
            continue
        assert credentials is None or bool(credentials.bearer) != bool(credentials.key)
    try:
        assert minor_version(check_version(headers.getall(VERSION_HEADER, ()))).count(".") <= 1
    except A2AError:
        pass
    for uri in requested_extensions(headers):
        assert uri.strip() == uri != ""
    request: Any = SimpleNamespace(headers=headers, scheme="http", remote="10.0.0.1", transport=None)
    origin = cards.request_origin(request, [ip_network("10.0.0.0/8")])
    assert origin is None or (origin.url.isprintable() and '"' not in origin.url and " " not in origin.url)


def read_key(data: bytes) -> None:
    """Only a complete text is a key."""
    text = data.decode("latin-1")
    key = caller_credentials.parse_api_key(text)
    if key is not None:
        assert text.startswith(caller_credentials.API_KEY_PREFIX)
        assert key.digest == caller_credentials.api_key_digest(text)


_KEY: Final = ec.derive_private_key(7, ec.SECP256R1())
_ISSUER: Final = jwt_claims.parse_issuer("https://login.example.com audience=a scope_claim=roles skew=0")
_JWK: Final = jwt.PyJWK({**jwt.algorithms.ECAlgorithm.to_jwk(_KEY.public_key(), as_dict=True), "alg": "ES256"})


class _OneKey:
    """A key set with one key."""

    async def find(self, kid: str | None, algorithm: str) -> jwt.PyJWK:
        return _JWK


_KEYS: Any = _OneKey()
_VALID_CLAIMS: Final = {"iss": _ISSUER.url, "aud": "a", "sub": "s", "exp": NOW + 60, "roles": "agent:echo"}


def read_token(data: bytes) -> None:
    """Only tokens signed with the issuer's key are accepted."""
    check = JwtAuthenticator([(_ISSUER, _KEYS)], clock=lambda: NOW)
    text = data.decode("latin-1")
    try:
        caller = _finish(check.identify(text))
    except A2AError:
        return
    if caller is not None:
        assert jwt.decode(text, _KEY.public_key(), ["ES256"], options={"verify_exp": False}, audience="a")


def read_claims(data: bytes) -> None:
    """Arbitrary claims with a valid signature."""
    if not data.startswith(b"{"):
        return
    body = base64.urlsafe_b64encode(data).rstrip(b"=")
    head = base64.urlsafe_b64encode(orjson.dumps({"alg": "ES256", "kid": "k"})).rstrip(b"=")
    signature = jwt.get_algorithm_by_name("ES256").sign(head + b"." + body, _KEY)
    token = b".".join((head, body, base64.urlsafe_b64encode(signature).rstrip(b"=")))
    check = JwtAuthenticator([(_ISSUER, _KEYS)], clock=lambda: NOW)
    try:
        caller = _finish(check.identify(token.decode()))
    except A2AError:
        return
    assert caller is not None
    check_principal(caller.principal)


def read_keys(data: bytes) -> None:
    """A published key set of an issuer."""
    try:
        document = jwks.json_object("issuer", data)
    except A2AError:
        return
    keys = document.get("keys")
    if not isinstance(keys, list):
        return
    snapshot = jwks._KeySnapshot(keys, 0.0)
    for kid in (None, *snapshot.ids):
        for algorithm in ("ES256", "RS256", "EdDSA"):
            key = snapshot.find(kid, algorithm)
            assert key is None or not hasattr(key.key, "private_bytes")


# Addresses --------------------------------------------------------------------------------------------------------


def read_url(data: bytes) -> None:
    """An accepted URL has the same host and port for another parser."""
    text = data.decode("utf-8", "surrogateescape")
    try:
        target = targets.parse_target(text)
    except ValueError:
        return
    rules = targets.OutboundPolicy()
    rules.problem(target)
    assert target.path.startswith("/")
    assert 0 < target.port < 65536
    url = URL(text)
    if target.address is None:
        assert (url.raw_host or "").lower() == target.host
    elif isinstance(target.address, IPv4Address):
        assert url.host == str(target.address)
    assert url.port == target.port
    try:
        configuration.check_push_config(configuration.PushConfig(id="c", url=text, token="", scheme="", credentials=""))
    except A2AError:
        pass


# Settings --------------------------------------------------------------------------------------------------------

_TEXT_PARSERS: Final[tuple[Callable[[str], object], ...]] = (
    addresses.parse_allow_entry,
    parse_age,
    maintenance.parse_retention_ages,
    identity.parse_isolation,
    jwt_claims.parse_issuer,
    quotas.parse_agent_limits,
    targets.parse_port,
    Address.parse,
    check_principal,
    lambda text: check_grants(text.split(",")),
)


def read_values(data: bytes) -> None:
    """The value of one setting. Parsers raise ValueError only."""
    text = data.decode("utf-8", "replace")
    for parse in _TEXT_PARSERS:
        try:
            parse(text)
        except ValueError:
            continue


_FILE: Final = Path(tempfile.gettempdir()) / f"dragoman-fuzz-{os.getpid()}.toml"


def read_config(data: bytes) -> None:
    """A settings file. Any error is a SettingsError."""
    _FILE.write_bytes(data)
    try:
        settings = load_settings({"config": _FILE})
    except SettingsError:
        return
    assert settings.process.config == _FILE


# Streams and opaque tokens ----------------------------------------------------------------------------------------


def read_stream(data: bytes) -> None:
    """A stream gives the same events with chunks of any size."""
    size = data[0] + 1 if data else 1
    small_chunks = [data[at : at + size] for at in range(0, len(data), size)]
    results: list[list[sse.SseEvent]] = []
    for chunks in ([data], small_chunks):
        parser, events = sse.SseParser(limit=1024), []
        try:
            for chunk in chunks:
                events += parser.feed(chunk)
        except A2AError:
            events = []
        results.append(events)
    if all(results) and len(data) < 1024:
        assert results[0] == results[1]
    for event in results[0]:
        if event.data and b"\n" not in event.data and "\0" not in event.id + event.event:
            assert sse.SseParser().feed(sse.frame(event.data, id=event.id or None))[0].data == event.data


_QUERY: Final = cursors.TaskQuery(names.Owner("default", "p"), "echo")
_LAST: Final = (1_700_000_000_000, b"0123456789abcdef")
_CURSOR: Final = cursors.cursor_prefix("0a0b0c0d", b"key")


def read_opaque(data: bytes) -> None:
    """Page tokens, cursors, task ids and blob links: only our own are accepted."""
    text = data.decode("utf-8", "surrogateescape")
    try:
        at = cursors.parse_page_token(_QUERY, text)
        assert cursors.parse_page_token(_QUERY, cursors.page_token(_QUERY, at)) == at
    except A2AError:
        pass
    try:
        assert 0 <= cursors.parse_cursor(text, _CURSOR, 10) <= 10
    except A2AError:
        pass
    key = names.task_key_of(text)
    assert key is None or names.task_id_of(key) == text.lower()
    query = URL(f"/blobs/x?{text.encode(errors='replace').decode()}", encoded=False).query
    assert not blob_references.is_valid_blob_link(b"secret", "00", dict(query), NOW)
    content = StoredContent.parse(text)
    assert content is None or StoredContent.parse(content.name) == content
    names_of(text)


_TOKEN: Final = jwt.encode(_VALID_CLAIMS, _KEY, "ES256", headers={"kid": "k"}).encode()
_RULES: Final = sorted(
    {str(rule.template) for descriptor, _ in method_table.rpc_services() for _, rule in httprule.rules(descriptor)}
)

PARSERS: Final = {
    "template": Parser(
        read_template, tuple(rule.encode() for rule in _RULES[:12]), ("{", "}", "=", "**", "*", ":", "/")
    ),
    "rest": Parser(
        read_request,
        (
            b'POST /message:send\n{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"hi"}]}}',
            b"GET /tasks/x?historyLength=3&A2A-Version=1.0\n",
            b"GET /v1/tasks?pageSize=2&status=TASK_STATE_WORKING\n",
            b"POST /v1/projects/p/locations/l/collections/c/engines/e/assistants/a/agents/x/tasks/t:cancel\n{}",
            b'POST /tasks/t/pushNotificationConfigs\n{"url":"https://a.example"}',
            b'POST /v1/tasks/t/pushNotificationConfigs?configId=c\n{"pushNotificationConfig":{"url":"https://a"}}',
        ),
        ("%2F", "%00", "historyLength=", "statusTimestampAfter=2026-01-01T00:00:00Z", ":subscribe", "/tenants/"),
    ),
    "headers": Parser(
        read_headers,
        (
            b"Authorization: Bearer abc\nA2A-Version: 1.0, 0.3\nA2A-Extensions: https://a, https://b",
            b"X-API-Key: k\nHost: a.example:80\nForwarded: for=1;host=b.example;proto=https",
            b"Host: [::1]:8080\nX-Forwarded-Host: c\nX-Forwarded-Port: 8443\nX-Forwarded-Prefix: /x",
        ),
        ("Bearer ", "Basic ", "X-A2A-Extensions", "proto=", 'host="', "X-Forwarded-Proto: "),
    ),
    "key": Parser(
        read_key,
        (caller_credentials.format_api_key("ab12cd34", bytes(20)).encode(),),
        (caller_credentials.API_KEY_PREFIX,),
    ),
    "token": Parser(read_token, (_TOKEN, b"a.b.c"), ("eyJ", ".", "e30")),
    "claims": Parser(
        read_claims,
        (orjson.dumps(_VALID_CLAIMS),),
        ('"iss"', '"aud"', '"exp"', '"nbf"', '"iat"', '"sub"', "1e309", "[]"),
    ),
    "keys": Parser(
        read_keys,
        (
            orjson.dumps({"keys": [{**_JWK._jwk_data, "kid": "k", "use": "sig"}]}),
            b'{"keys":[{"kty":"RSA","n":"AQAB","e":"AQAB","alg":"RS256"},{"kty":"OKP","crv":"Ed25519","x":"AA"}]}',
        ),
        ('"kty"', '"crv"', '"key_ops"', '"Ed448"', '"X25519"', '"d"'),
    ),
    "url": Parser(
        read_url,
        (b"https://a.example/x?y=1#z", b"http://[::1]:80/", b"http://127.1/", b"https://xn--a.example.:443"),
        ("http://", "https://", "@", "%", "[", "]", "0x7f", "\\"),
    ),
    "words": Parser(
        read_values,
        (
            b"10.0.0.0/8,[fd00::/8]:443,*.a.example",
            b"completed=30d,echo.completed=1d",
            b"https://login.example.com audience=a algorithms=ES256 skew=30",
            b"echo.live-tasks=5",
            b"scope,desk=owner",
            b"operator,agent:echo,scope:x,worker:echo",
        ),
    ),
    "config": Parser(
        read_config,
        (
            b'store = "sqlite:///x.db"\nslots = 3\n'
            b'[retention]\ncompleted = "30d"\n[agent-limits.echo]\nlive-tasks = 5\n',
            b'http = "127.0.0.1:0"\n[[issuers]]\nurl = "https://login.example.com"\naudience = "a"\n'
            b'[isolation]\necho = "scope"\n',
        ),
        ("[", "]]", '"""', "= true", "1979-05-27T07:32:00Z", "inf", "outbound-allow"),
    ),
    "stream": Parser(
        read_stream, (b"\x05id: 1\nevent: x\ndata: {}\n\n: hi\r\n\r\ndata: a\rdata: b\r\r",), ("data:", "id:", "retry:")
    ),
    "opaque": Parser(
        read_opaque,
        (cursors.page_token(_QUERY, _LAST).encode(), f"{_CURSOR}7".encode(), b"01a1fb2a-bd29-7b48-8221-ff7b0dc19d30"),
        ("projects/", "/agents/", "signature=", "expires="),
    ),
}
