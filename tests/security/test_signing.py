"""Signatures under letters, checked as a receiver would: with the keys that are shown, by a library."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any

import jwt
import pytest
from jwt.types import Options

from dragoman.security.signing import LetterSigner

HOME, HOOK = "https://agents.example", "https://client.example/hook?x=1"
NOW = 1_700_000_000.9
BODY = b'{"task":{"id":"t-1"}}'


def signer(secret: bytes = b"s" * 32) -> LetterSigner:
    return LetterSigner(secret, lambda: HOME, clock=lambda: NOW, ids=lambda: "j-1")


async def checked(text: str, keys: bytes, *, audience: str = HOOK) -> dict[str, Any]:
    """What a receiver reads in a signature. Raises what PyJWT raises."""
    key = jwt.PyJWKSet.from_dict(json.loads(keys))[jwt.get_unverified_header(text)["kid"]]
    # The time is the test's own.
    options: Options = {"verify_exp": False, "verify_iat": False, "require": ["iss", "aud", "iat", "exp", "jti"]}
    found: dict[str, Any] = jwt.decode(text, key, algorithms=["ES256"], audience=audience, issuer=HOME, options=options)
    return found


async def test_a_signature_says_who_sends_what_to_whom_and_when() -> None:
    mine = signer()
    found = await checked(await mine.sign(HOOK, "t-1", BODY), await mine.keys())
    assert found == {
        "iss": HOME,
        "aud": HOOK,
        "iat": 1_700_000_000,
        "exp": 1_700_000_300,
        "jti": "j-1",
        "taskId": "t-1",
        "request_body_sha256": sha256(BODY).hexdigest(),
    }


async def test_no_half_of_the_key_is_shown_but_the_public_one() -> None:
    (key,) = json.loads(await signer().keys())["keys"]
    assert key.keys() == {"kty", "crv", "x", "y", "kid", "alg", "use"}
    assert (key["kty"], key["crv"], key["alg"], key["use"]) == ("EC", "P-256", "ES256", "sig")


async def test_the_same_store_signs_with_the_same_key_and_another_one_with_another() -> None:
    assert await signer().keys() == await signer().keys()
    theirs = signer(b"t" * 32)
    assert await theirs.keys() != await signer().keys()
    with pytest.raises(KeyError):
        await checked(await theirs.sign(HOOK, "t-1", BODY), await signer().keys())


async def test_a_signature_of_another_key_under_the_same_name_is_found_out() -> None:
    mine, theirs = signer(), signer(b"t" * 32)
    text = await theirs.sign(HOOK, "t-1", BODY)
    (shown,) = json.loads(await mine.keys())["keys"]
    renamed = json.dumps({"keys": [{**shown, "kid": jwt.get_unverified_header(text)["kid"]}]}).encode()
    with pytest.raises(jwt.InvalidSignatureError):
        await checked(text, renamed)


async def test_a_letter_to_somebody_else_is_no_letter_to_me() -> None:
    mine = signer()
    text = await mine.sign("https://somebody.example/", "t-1", BODY)
    with pytest.raises(jwt.InvalidAudienceError):
        await checked(text, await mine.keys())


async def test_the_name_of_a_key_follows_from_it() -> None:
    """RFC 7638 §3.3: the members in this order, without blanks."""
    (key,) = json.loads(await signer().keys())["keys"]
    text = f'{{"crv":"P-256","kty":"EC","x":"{key["x"]}","y":"{key["y"]}"}}'
    assert jwt.utils.base64url_decode(key["kid"]) == sha256(text.encode()).digest()
