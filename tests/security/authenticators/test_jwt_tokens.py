"""JWTs with one defect each, against a fixed key set."""

from __future__ import annotations

import hashlib
import hmac
import json
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from jwt.utils import base64url_encode
from tests.security.token_issuer import (
    AUDIENCE,
    URL,
    by_hand,
    claims,
    ec_key,
    ed_key,
    public_jwk,
    public_pem,
    rsa_key,
    token,
)

from dragoman.core.access.jwt_claims import Issuer
from dragoman.core.errors import PermissionDenied, Unauthenticated, Unavailable
from dragoman.security.authenticators import jwt_tokens
from dragoman.security.authenticators.jwks import IssuerKeySet
from dragoman.security.authenticators.jwt_tokens import MAX_VERIFIED_TOKENS, JwtAuthenticator

OTHER = "https://other.example.com"
KEYS = {
    "keys": [
        public_jwk(rsa_key("one"), "one"),
        public_jwk(ec_key("e"), "e"),
        public_jwk(ed_key("d"), "d"),
    ]
}


class World:
    def __init__(self, max_verified: int = MAX_VERIFIED_TOKENS) -> None:
        self.fetched = 0
        self.now = time.time()
        first = Issuer(url=URL, audience=(AUDIENCE,), alias="corp")
        second = Issuer(url=OTHER, audience=(AUDIENCE,), alias="other", required_scopes=("a2a",), jwks="https://x/y")
        self.sets = [IssuerKeySet(first, self.get), IssuerKeySet(second, self.get)]
        self.check = JwtAuthenticator(
            zip((first, second), self.sets, strict=True), clock=lambda: self.now, max_verified=max_verified
        )

    async def get(self, url: str) -> bytes:
        self.fetched += 1
        return json.dumps({"issuer": URL, "jwks_uri": f"{URL}/jwks", **KEYS}).encode()


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = World()
    yield world
    for one in world.sets:
        await one.close()


@pytest.mark.parametrize(
    "good",
    [
        token(),
        token(typ="at+jwt"),
        token(algorithm="PS512"),
        token(key=ec_key("e"), algorithm="ES256", kid="e"),
        token(key=ed_key("d"), algorithm="EdDSA", kid="d"),
        token(key=ec_key("e"), algorithm="ES256", kid=None),
        token(claims(huge=2**60, deep={"a": [1]})),
    ],
)
async def test_a_token_of_a_trusted_issuer_gives_an_identity(world: World, good: str) -> None:
    identity = await world.check.identify(good)
    assert identity is not None
    assert (identity.principal, identity.credential_id) == ("corp:alice", "")


@pytest.mark.parametrize("text", ["", "abc", "a.b", "a.b.c.d", "a.b.c.d.e", "a b.c.d", "é.é.é", "dgm_x_y", ".."])
async def test_other_texts_are_not_tokens(world: World, text: str) -> None:
    assert await world.check.identify(text) is None


HEADER = {"alg": "RS256", "kid": "one"}
WRONG_SIGNATURE = token()[:-4] + "AAAA"
PARTS = token().split(".")
TWICE = base64url_encode(b'{"iss":"%b","sub":"a","sub":"b"}' % URL.encode()).decode()
ATTACKS: dict[str, tuple[str, str]] = {
    "no algorithm": (by_hand({"alg": "none"}), "alg"),
    "no algorithm, written otherwise": (by_hand({"alg": "nOnE", "kid": "one"}), "alg"),
    "no algorithm, no signature": (by_hand({"kid": "one"}), "alg"),
    "a secret that somebody made up": (by_hand({"alg": "HS256", "kid": "one"}, signature=b"s" * 32), "alg"),
    "the header says RSA, nobody signed": (by_hand(HEADER), "signature"),
    "the signature of another token": (f"{PARTS[0]}.{token(claims(sub='eve')).split('.')[1]}.{PARTS[2]}", "signature"),
    "a signature that is cut": (token()[:-10], "signature"),
    "a signature that is changed": (WRONG_SIGNATURE, "signature"),
    "signed with a key of its own": (token(key=rsa_key("eve")), "signature"),
    "a key of its own in the header": (
        token(key=rsa_key("eve"), jwk=public_jwk(rsa_key("eve"), "one")),
        "signature",
    ),
    "a key set of its own in the header": (token(key=rsa_key("eve"), jku="https://eve.example/jwks"), "signature"),
    "an unknown key": (token(kid="nine"), "no key"),
    "a key of another kind": (token(kid="e"), "no key"),
    "a kid that is a path": (token(key=rsa_key("eve"), kid="../../../dev/null"), "no key"),
    "another audience": (token(claims(aud="somebody")), "aud"),
    "another issuer": (token(claims(iss="https://eve.example")), "issuer is not trusted"),
    "no issuer": (token(claims(iss=None)), "issuer is not trusted"),
    "an issuer that is a list": (token(claims(iss=[URL])), "issuer is not trusted"),
    "another trusted issuer": (token(claims(iss=OTHER, aud="x")), "aud"),
    "expired": (token(claims(exp=int(time.time()) - 3600)), "expired"),
    "without an end": (token(claims(exp=None)), "no exp"),
    "not valid yet": (token(claims(nbf=int(time.time()) + 3600)), "not valid yet"),
    "from the future": (token(claims(iat=int(time.time()) + 3600)), "issued in the future"),
    "of another type": (token(typ="logout+jwt"), "typ"),
    "critical extensions": (token(crit=["urn:x"]), "crit"),
    "a payload that is not encoded": (by_hand({**HEADER, "b64": False, "crit": ["b64"]}), "crit"),
    "no subject": (token(claims(sub=None)), "no sub"),
    "a subject that is nobody": (token(claims(sub="")), "no sub"),
    "a header that is no object": (by_hand([]), "header"),  # type: ignore[arg-type]
    "claims that are no object": (by_hand(HEADER, []), "claims"),  # type: ignore[arg-type]
    "no JSON": ("YWJj.YWJj.YWJj", "header"),
    "no base64": ("a.b.c", "header"),
    "claims said twice": (f"{PARTS[0]}.{TWICE}.x", "claims"),
}


@pytest.mark.parametrize("attack", ATTACKS)
async def test_attacks_are_rejected_with_their_reason(world: World, attack: str) -> None:
    text, why = ATTACKS[attack]
    with pytest.raises(Unauthenticated, match=why) as caught:
        await world.check.identify(text)
    assert caught.value.error == "invalid_token"
    response_text = f"{caught.value}{caught.value.log_details}"
    assert not any(len(part) > 8 and part in response_text for part in text.split("."))


async def test_hmac_with_the_public_key_is_rejected(world: World) -> None:
    """PyJWT refuses to create such a token, so the test does (RFC 8725 §2.1)."""
    head, body, _ = by_hand({"alg": "HS256", "kid": "one"}).split(".")
    for secret in (public_pem(rsa_key("one")), json.dumps(KEYS["keys"][0]).encode()):
        data = hmac.new(secret, f"{head}.{body}".encode(), hashlib.sha256).digest()
        text = f"{head}.{body}.{base64url_encode(data).decode()}"
        with pytest.raises(Unauthenticated, match='alg "HS256" is not accepted'):
            await world.check.identify(text)


async def test_a_token_with_invalid_claims_causes_no_fetch(world: World) -> None:
    for changes in ({"exp": 5}, {"aud": "x"}, {"iss": "https://eve.example"}, {"nbf": 4_000_000_000}):
        with pytest.raises(Unauthenticated):
            await world.check.identify(token(claims(**changes)))
    assert world.fetched == 0


async def test_log_details_name_the_issuer_and_the_key(world: World) -> None:
    with pytest.raises(Unauthenticated) as caught:
        await world.check.identify(token(claims(aud="x")))
    assert caught.value.log_details == {"issuer": URL, "kid": "one"}
    with pytest.raises(Unauthenticated) as caught:
        await world.check.identify(token(kid="k" * 500))
    assert caught.value.log_details == {"issuer": URL, "kid": "k" * 64}


async def test_a_token_expires_with_tolerance_for_clock_skew(world: World) -> None:
    text = token(claims(world.now))
    world.now += 3600 + 59 - 1
    assert await world.check.identify(text) is not None
    world.now += 2
    with pytest.raises(Unauthenticated, match="has expired"):
        await world.check.identify(text)


async def test_signature_checks_are_cached_per_key_and_others_are_not(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked: list[str] = []
    really = jwt_tokens._verify

    def verify(text: str, key: Any, algorithm: str) -> None:
        checked.append(text)
        really(text, key, algorithm)

    monkeypatch.setattr(jwt_tokens, "_verify", verify)
    text = token(claims(world.now))
    for _ in range(3):
        await world.check.identify(text)
    assert checked == [text]
    with pytest.raises(Unauthenticated, match="signature"):
        await world.check.identify(WRONG_SIGNATURE)
    # The same key, fetched again, counts as another one.
    world.sets[0]._keys = None
    world.sets[0]._last_attempt = None
    await world.check.identify(text)
    assert checked == [text, WRONG_SIGNATURE, text]
    world.now += 4000
    with pytest.raises(Unauthenticated, match="has expired"):
        await world.check.identify(text)


async def test_the_cache_of_tokens_is_bounded() -> None:
    world = World(max_verified=2)
    for number in range(5):
        await world.check.identify(token(claims(sub=f"caller {number}")))
    assert len(world.check._verified) == 2


async def test_each_issuer_has_its_own_principals(world: World) -> None:
    identity = await world.check.identify(token(claims(iss=OTHER, scope="a2a dragoman:operator")))
    assert identity is not None
    assert (identity.principal, identity.is_operator) == ("other:alice", True)


async def test_an_identity_ends_when_its_token_is_rejected(world: World) -> None:
    text = token(claims(world.now))
    identity = await world.check.identify(text)
    assert identity is not None
    world.now = identity.expires / 1000 - 1
    assert await world.check.identify(text) == identity
    world.now += 1
    with pytest.raises(Unauthenticated, match="has expired"):
        await world.check.identify(text)


async def test_required_scopes_are_enforced(world: World) -> None:
    with pytest.raises(PermissionDenied, match="lacks the scope a2a") as caught:
        await world.check.identify(token(claims(iss=OTHER)))
    assert caught.value.log_details == {"issuer": OTHER, "kid": "one", "principal": "other:alice"}


async def test_an_unavailable_issuer_is_unavailable_and_not_unauthenticated(world: World) -> None:
    async def down(url: str) -> bytes:
        raise Unavailable("down")

    issuer = Issuer(url=URL, audience=(AUDIENCE,))
    keys = IssuerKeySet(issuer, down)
    with pytest.raises(Unavailable):
        await JwtAuthenticator([(issuer, keys)]).identify(token())
    await keys.close()
