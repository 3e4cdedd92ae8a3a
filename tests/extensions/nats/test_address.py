"""Addresses of NATS clusters: servers, credentials, TLS."""

from __future__ import annotations

from pathlib import Path

import pytest

from dragoman.extensions.nats.address import InvalidNatsAddress, NatsAddress

pytestmark = pytest.mark.long


def test_valid_addresses_are_parsed() -> None:
    one = NatsAddress.parse("nats://me:a%40b@one,nats://two:4333")
    assert (one.servers, one.user, one.password, one.token) == (
        ("nats://one:4222", "nats://two:4333"), "me", "a@b", None,
    )  # fmt: skip
    assert str(one) == "nats://one:4222,nats://two:4333"
    other = NatsAddress.parse("tls://a-token@[::1]")
    assert (str(other), other.user, other.token, other.uses_tls) == ("tls://[::1]:4222", None, "a-token", True)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("localhost:4222", "is not a NATS address"),
        ("http://me:secret-of-mine@one", "is not a NATS address"),
        ("nats://me:secret-of-mine@one/x", "is not a NATS address"),
        ("nats://me:secret-of-mine@one:port", "is not a NATS address"),
        ("nats://me:secret-of-mine@", "is not a NATS address"),
        ("nats://one,nats://me:secret-of-mine@two", "after the first"),
        ("nats://one,tls://two", "mixes"),
    ],
)
def test_invalid_addresses_are_rejected(text: str, rule: str) -> None:
    with pytest.raises(InvalidNatsAddress, match=rule) as caught:
        NatsAddress.parse(text)
    assert "secret-of-mine" not in str(caught.value)


def test_two_kinds_of_credentials_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(InvalidNatsAddress, match="one or the other"):
        NatsAddress.parse("nats://me:x@one", credentials=tmp_path / "user.creds")
