"""Credentials in headers, and headers that are rejected or ignored."""

from __future__ import annotations

import pytest

from dragoman.core.errors import Unauthenticated
from dragoman.security.authenticators.composite import MAX_CREDENTIAL_HEADER_BYTES, Credentials, read_credentials

Headers = list[tuple[str, str]]


@pytest.mark.parametrize(
    ("headers", "found"),
    [
        ([], None),
        ([("accept", "x")], None),
        ([("Authorization", "Bearer abc")], Credentials(bearer="abc")),
        ([("authorization", "bearer   abc ")], Credentials(bearer="abc")),
        ([("AUTHORIZATION", "BEARER abc")], Credentials(bearer="abc")),
        ([("X-API-Key", "abc")], Credentials(key="abc")),
        ([("authorization", "Basic b3Blbjpz")], None),
        ([("authorization", "")], None),
        ([("authorization", "Basic b3Blbjpz"), ("x-api-key", "abc")], Credentials(key="abc")),
    ],
)
def test_credentials_are_read_from_both_headers(headers: Headers, found: Credentials | None) -> None:
    assert read_credentials(headers, keys=True) == found


def test_x_api_key_is_ignored_without_api_keys() -> None:
    assert read_credentials([("x-api-key", "abc"), ("x-api-key", "def")], keys=False) is None
    assert read_credentials([("x-api-key", "abc"), ("authorization", "Bearer t")], keys=False) == Credentials(
        bearer="t"
    )


@pytest.mark.parametrize(
    ("headers", "why"),
    [
        ([("authorization", "Bearer a"), ("Authorization", "Bearer a")], "Authorization: must be given once"),
        ([("authorization", "Bearer a"), ("authorization", "Basic b")], "Authorization: must be given once"),
        ([("x-api-key", "a"), ("x-api-key", "b")], "X-API-Key: must be given once, but is given 2 times"),
        ([("x-api-key", "a"), ("authorization", "Bearer b")], "give credentials once"),
        ([("authorization", "Bearer " + "a" * MAX_CREDENTIAL_HEADER_BYTES)], "Authorization: must have at most 8192"),
        ([("authorization", "Basic " + "a" * MAX_CREDENTIAL_HEADER_BYTES)], "Authorization: must have at most 8192"),
        ([("x-api-key", "é" * (MAX_CREDENTIAL_HEADER_BYTES // 2 + 1))], "X-API-Key: must have at most 8192"),
        ([("authorization", "Bearer")], "Authorization: must contain a credential"),
        ([("authorization", "Bearer ")], "Authorization: must contain a credential"),
        ([("authorization", "Bearer é")], "Authorization: must contain a credential"),
        ([("authorization", "Bearer a\x00b")], "Authorization: must contain a credential"),
        ([("authorization", "Bearer \udcff")], "Authorization: must contain a credential"),
        ([("x-api-key", "")], "X-API-Key: must contain a credential"),
    ],
)
def test_ambiguous_credentials_are_rejected(headers: Headers, why: str) -> None:
    with pytest.raises(Unauthenticated, match=why) as caught:
        read_credentials(headers, keys=True)
    assert caught.value.error == "invalid_request"


def test_credentials_of_maximum_size_are_accepted() -> None:
    value = "Bearer " + "a" * (MAX_CREDENTIAL_HEADER_BYTES - len("Bearer "))
    assert read_credentials([("authorization", value)], keys=True) == Credentials(bearer=value.removeprefix("Bearer "))
