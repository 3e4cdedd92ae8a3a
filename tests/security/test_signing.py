"""Signatures of webhooks, verified like a receiver does: with the published keys and PyJWT."""

from __future__ import annotations

import asyncio
import json
from hashlib import sha256
from typing import Any

import jwt
import pytest
from tests.security.key_values import InMemoryKeyValues

from dragoman.core.access.signing_keys import DEFAULT_KEY_LEAD_MS, DEFAULT_KEY_RETENTION_MS
from dragoman.core.errors import InvalidParams, KeyNotFound, Unavailable
from dragoman.security.secret_box import SEALED_PREFIX, AesGcmSecretBox
from dragoman.security.signing import SIGNING_KEYS_CACHE_TTL, SIGNING_KEYS_ENTRY, StoredSigningKeys, WebhookSigner

HOME, HOOK = "https://agents.example", "https://client.example/hook?x=1"
NOW = 1_700_000_000.9
BODY = b'{"task":{"id":"t-1"}}'
EVENT = "0123abcd.4567cdef.7"


class Time:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = NOW

    def milliseconds(self) -> int:
        return int(self.now * 1000)

    def seconds(self) -> float:
        return self.now

    def past(self, milliseconds: int) -> None:
        self.now += milliseconds / 1000


def keys_of(
    time: Time | None = None,
    key_values: InMemoryKeyValues | None = None,
    secret: bytes = b"s" * 32,
    secret_box: AesGcmSecretBox | None = None,
) -> StoredSigningKeys:
    time = time or Time()
    return StoredSigningKeys(
        key_values or InMemoryKeyValues(),
        secret,
        secret_box or AesGcmSecretBox(),
        clock=time.milliseconds,
        monotonic=time.seconds,
        random_bytes=_counted(),
    )


def _counted() -> Any:
    number = iter(range(1, 100))
    return lambda size: bytes([next(number)]) * size


async def delivery(keys: StoredSigningKeys, audience: str = HOOK) -> str:
    signer = WebhookSigner(keys, lambda: HOME, clock=lambda: NOW, ids=lambda: "j-1")
    return await signer.sign(audience, "t-1", "c-1", EVENT, BODY)


def checked(text: str, keys: bytes, *, audience: str = HOOK) -> dict[str, Any]:
    """The claims of a signature. Raises PyJWT's errors, and KeyError for a key that is not published."""
    key = jwt.PyJWKSet.from_dict(json.loads(keys))[jwt.get_unverified_header(text)["kid"]]
    # The test has its own clock.
    options: Any = {"verify_exp": False, "verify_iat": False, "require": ["iss", "aud", "iat", "exp", "jti"]}
    found: dict[str, Any] = jwt.decode(
        text, key, algorithms=["ES256", "EdDSA"], audience=audience, issuer=HOME, options=options
    )
    return found


def kid(text: str) -> str:
    return str(jwt.get_unverified_header(text)["kid"])


async def shown(keys: StoredSigningKeys) -> list[str]:
    return [key["kid"] for key in json.loads(await keys.public())["keys"]]


async def test_a_signature_has_issuer_audience_time_id_and_body_digest() -> None:
    keys = keys_of()
    assert checked(await delivery(keys), await keys.public()) == {
        "iss": HOME,
        "aud": HOOK,
        "iat": 1_700_000_000,
        "exp": 1_700_000_300,
        "jti": "j-1",
        "taskId": "t-1",
        "configId": "c-1",
        "event": EVENT,
        "sequence": 7,
        "request_body_sha256": sha256(BODY).hexdigest(),
    }


async def test_only_the_public_key_is_published() -> None:
    keys = keys_of()
    await keys.rotate("EdDSA", lead=DEFAULT_KEY_LEAD_MS, retention=DEFAULT_KEY_RETENTION_MS)
    edwards, key = json.loads(await keys.public())["keys"]
    assert key.keys() == {"kty", "crv", "x", "y", "kid", "alg", "use"}
    assert (key["kty"], key["crv"], key["alg"], key["use"]) == ("EC", "P-256", "ES256", "sig")
    assert edwards.keys() == {"kty", "crv", "x", "kid", "alg", "use"}
    assert (edwards["kty"], edwards["crv"], edwards["alg"]) == ("OKP", "Ed25519", "EdDSA")


async def test_each_store_has_a_stable_key_of_its_own() -> None:
    assert await keys_of().public() == await keys_of().public()
    theirs = keys_of(secret=b"t" * 32)
    assert await theirs.public() != await keys_of().public()
    with pytest.raises(KeyError):
        checked(await delivery(theirs), await keys_of().public())


async def test_a_signature_of_another_key_with_the_same_id_is_rejected() -> None:
    text = await delivery(keys_of(secret=b"t" * 32))
    (mine,) = json.loads(await keys_of().public())["keys"]
    renamed = json.dumps({"keys": [{**mine, "kid": kid(text)}]}).encode()
    with pytest.raises(jwt.InvalidSignatureError):
        checked(text, renamed)


async def test_a_webhook_for_another_receiver_is_rejected() -> None:
    keys = keys_of()
    text = await delivery(keys, "https://somebody.example/")
    with pytest.raises(jwt.InvalidAudienceError):
        checked(text, await keys.public())


async def test_a_key_id_is_the_thumbprint_of_the_key() -> None:
    """RFC 7638 §3.3: the members in this order, without spaces."""
    (key,) = json.loads(await keys_of().public())["keys"]
    text = f'{{"crv":"P-256","kty":"EC","x":"{key["x"]}","y":"{key["y"]}"}}'
    assert jwt.utils.base64url_decode(key["kid"]) == sha256(text.encode()).digest()


@pytest.mark.parametrize("algorithm", ["ES256", "EdDSA"])
async def test_a_new_key_is_published_before_it_signs_and_the_old_one_after(algorithm: str) -> None:
    time = Time()
    keys = keys_of(time)
    before = await delivery(keys)
    fresh = await keys.rotate(algorithm, lead=DEFAULT_KEY_LEAD_MS, retention=DEFAULT_KEY_RETENTION_MS)
    # A key set cached from now on suffices for all signatures until the old key is removed.
    remembered = await keys.public()
    assert await shown(keys) == [fresh.id, kid(before)]
    time.past(DEFAULT_KEY_LEAD_MS - 1)
    assert kid(await delivery(keys)) == kid(before)
    time.past(1)
    after = await delivery(keys)
    assert kid(after) == fresh.id
    assert jwt.get_unverified_header(after)["alg"] == algorithm
    checked(after, remembered)
    checked(before, await keys.public())
    time.past(DEFAULT_KEY_RETENTION_MS - 1)
    assert await shown(keys) == [fresh.id, kid(before)]
    time.past(1)
    assert await shown(keys) == [fresh.id]
    with pytest.raises(KeyError):
        checked(before, await keys.public())


async def test_a_compromised_key_can_be_replaced_at_once() -> None:
    keys = keys_of()
    stolen = await delivery(keys)
    fresh = await keys.rotate("", lead=0, retention=0)
    assert await shown(keys) == [fresh.id]
    assert kid(await delivery(keys)) == fresh.id
    with pytest.raises(KeyError):
        checked(stolen, await keys.public())


async def test_every_server_of_a_store_publishes_a_new_key_at_once() -> None:
    key_values = InMemoryKeyValues()
    here, there = keys_of(key_values=key_values), keys_of(key_values=key_values)
    (first,) = await shown(there)
    fresh = await here.rotate("EdDSA", lead=0, retention=DEFAULT_KEY_RETENTION_MS)
    assert await shown(there) == [fresh.id, first]
    checked(await delivery(here), await there.public())


async def test_a_request_for_keys_during_a_read_waits_for_a_second_read() -> None:
    time, key_values = Time(), InMemoryKeyValues()
    keys, reads = keys_of(time, key_values), 0
    read = key_values.get

    async def counted(name: str) -> str:
        nonlocal reads
        reads += 1
        time.past(1)
        await asyncio.sleep(0)
        return await read(name)

    key_values.get = counted  # type: ignore[method-assign]  # what the store is asked is what is counted
    await asyncio.gather(*(keys.public() for _ in range(50)))
    assert reads == 2


async def test_a_former_key_can_be_withdrawn_and_the_active_one_cannot() -> None:
    keys = keys_of()
    (first,) = await shown(keys)
    fresh = await keys.rotate("", lead=0, retention=DEFAULT_KEY_RETENTION_MS)
    with pytest.raises(InvalidParams, match="this key signs; rotate to another key first"):
        await keys.withdraw(fresh.id)
    await keys.withdraw(first)
    assert await shown(keys) == [fresh.id]
    with pytest.raises(KeyNotFound):
        await keys.withdraw(first)


async def test_withdrawing_a_new_key_undoes_the_rotation() -> None:
    time = Time()
    keys = keys_of(time)
    (first,) = await shown(keys)
    fresh = await keys.rotate("EdDSA", lead=DEFAULT_KEY_LEAD_MS, retention=DEFAULT_KEY_RETENTION_MS)
    with pytest.raises(InvalidParams, match="a new key is already published and does not sign yet"):
        await keys.rotate("", lead=0, retention=0)
    await keys.withdraw(fresh.id)
    time.past(DEFAULT_KEY_LEAD_MS + DEFAULT_KEY_RETENTION_MS)
    assert await shown(keys) == [first]
    assert kid(await delivery(keys)) == first


async def test_arguments_of_a_rotation_are_validated() -> None:
    keys = keys_of()
    for wish, why in (
        (("HS256", 0, 0), "algorithm: must be one of ES256, EdDSA"),
        (("", -1, 0), "lead: must be 0 or more, and at most a year"),
        (("", 0, 367 * 86_400_000), "keep: must be 0 or more, and at most a year"),
    ):
        with pytest.raises(InvalidParams, match=why):
            await keys.rotate(wish[0], lead=wish[1], retention=wish[2])
    assert len(await shown(keys)) == 1


async def test_servers_of_one_store_have_the_same_keys() -> None:
    time, key_values = Time(), InMemoryKeyValues()
    one, two = keys_of(time, key_values), keys_of(time, key_values)
    texts: list[str] = []
    two.change_listeners.append(lambda: texts.append("changed"))
    assert await shown(one) == await shown(two)
    fresh = await one.rotate("", lead=0, retention=DEFAULT_KEY_RETENTION_MS)
    time.past(int(SIGNING_KEYS_CACHE_TTL * 1000))
    assert await shown(two) == await shown(one)
    assert kid(await delivery(two)) == fresh.id
    assert texts == ["changed"]
    assert [state for _, state in await two.list()] == ["signing", "former"]


async def test_of_two_concurrent_rotations_one_fails() -> None:
    class Late(InMemoryKeyValues):
        async def compare_and_set(self, name: str, value: str, *, expected: str) -> bool:
            if not self.texts:
                self.texts[name] = "[]"
            return await super().compare_and_set(name, value, expected=expected)

    keys = keys_of(key_values=Late())
    with pytest.raises(Unavailable, match="changed by another call"):
        await keys.rotate("", lead=0, retention=0)


async def test_random_keys_are_encrypted_in_the_store() -> None:
    time, key_values, secret_box = Time(), InMemoryKeyValues(), AesGcmSecretBox([b"k" * 32])
    keys = keys_of(time, key_values, secret_box=secret_box)
    fresh = await keys.rotate("EdDSA", lead=0, retention=0)
    assert SEALED_PREFIX in key_values.texts[SIGNING_KEYS_ENTRY]
    for number in (b"\x01", b"\x02"):
        assert (number * 32).hex() not in key_values.texts[SIGNING_KEYS_ENTRY]
    again = keys_of(time, key_values, secret_box=AesGcmSecretBox([b"n" * 32, b"k" * 32]))
    assert kid(await delivery(again)) == fresh.id


async def test_with_keys_of_a_secret_box_no_signing_key_comes_from_the_store_s_secret() -> None:
    """The secret is in every backup of the store, in clear."""
    key_values, secret_box = InMemoryKeyValues(), AesGcmSecretBox([b"k" * 32])
    first = kid(await delivery(keys_of(key_values=key_values, secret_box=secret_box)))
    assert first != kid(await delivery(keys_of()))
    assert first == kid(await delivery(keys_of(key_values=key_values, secret=b"other" * 8, secret_box=secret_box)))
    assert first in (await keys_of(key_values=key_values, secret_box=secret_box).public()).decode()


async def test_servers_that_start_at_the_same_time_have_one_first_key() -> None:
    key_values, secret_box = InMemoryKeyValues(), AesGcmSecretBox([b"k" * 32])
    servers = [
        StoredSigningKeys(
            key_values, b"s" * 32, secret_box, clock=Time().milliseconds
        )  # each with random bytes of its own
        for _ in range(3)
    ]
    keys = await asyncio.gather(*(server.current() for server in servers))
    assert len({pair.id for pair in keys}) == 1
