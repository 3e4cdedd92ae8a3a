"""Which settings need authentication, and which addresses may do without it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import SecretStr

from dragoman.settings.authentication import (
    MIN_TOKEN_LENGTH,
    check_listen_address,
    needs_authentication,
    requires_auth,
)
from dragoman.settings.types import Address

EVERYWHERE = Address("0.0.0.0", 8080)


def given(**values: Any) -> Any:
    return SimpleNamespace(data=values)


@pytest.mark.parametrize(
    "values", [{"token": SecretStr("x")}, {"api_keys": True}, {"issuers": ("i",)}, {"tls_client_ca": "ca.pem"}]
)
def test_each_kind_of_credentials_turns_authentication_on(values: dict[str, Any]) -> None:
    assert requires_auth(values)
    assert needs_authentication("alice", given(**values)) == "alice"


def test_a_value_that_needs_authentication_is_rejected_without() -> None:
    assert needs_authentication("", given()) == ""
    with pytest.raises(ValueError, match="needs authentication; add --api-keys"):
        needs_authentication("alice", given())


@pytest.mark.parametrize(
    "values", [{"insecure": True}, {"role": "worker"}, {"api_keys": True}, {"token": SecretStr("x" * MIN_TOKEN_LENGTH)}]
)
def test_an_address_for_other_machines_needs_a_reason(values: dict[str, Any]) -> None:
    assert check_listen_address(EVERYWHERE, given(**values)) == EVERYWHERE
    with pytest.raises(ValueError, match="authentication is off"):
        check_listen_address(EVERYWHERE, given())


def test_a_short_token_is_enough_on_this_machine_only() -> None:
    short = given(token=SecretStr("x"))
    assert check_listen_address(Address("127.0.0.1", 8080), short).port == 8080
    with pytest.raises(ValueError, match=f"at least {MIN_TOKEN_LENGTH} characters"):
        check_listen_address(EVERYWHERE, short)
