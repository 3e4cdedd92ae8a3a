"""Which settings need authentication, and which addresses may do without it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dragoman.settings.authentication import MIN_TOKEN_LENGTH, is_public
from dragoman.settings.settings import Settings, SettingsError, load_settings

EVERYWHERE = "0.0.0.0:8080"
ISSUER = "https://a.example audience=me"


@pytest.mark.parametrize(
    "values", [{"token": "x"}, {"api_keys": True}, {"issuers": ISSUER}, {"tls_client_ca": Path("ca.pem")}]
)
def test_each_kind_of_credentials_turns_authentication_on(values: dict[str, Any]) -> None:
    assert Settings(**values).requires_auth
    assert load_settings({**values, "public_agents": "alice"}).access.public_agents == ("alice",)


def test_a_value_that_needs_authentication_is_rejected_without() -> None:
    with pytest.raises(SettingsError, match=r"^--public-agents \(command line\): needs authentication; add --api-keys"):
        load_settings({"public_agents": "alice"})


@pytest.mark.parametrize(
    "values", [{"insecure": True}, {"role": "worker"}, {"api_keys": True}, {"token": "x" * MIN_TOKEN_LENGTH}]
)
@pytest.mark.parametrize("option", ["http", "grpc"])
def test_an_address_for_other_machines_needs_a_reason(option: str, values: dict[str, Any]) -> None:
    assert str(getattr(load_settings({option: EVERYWHERE, **values}).listen, option)) == EVERYWHERE
    with pytest.raises(SettingsError, match=rf"^--{option} \(command line\): .* authentication is off"):
        load_settings({option: EVERYWHERE})


def test_a_short_token_is_enough_on_this_machine_only() -> None:
    assert load_settings({"http": "127.0.0.1:8080", "token": "x"}).listen.http.port == 8080
    with pytest.raises(SettingsError, match=f"at least {MIN_TOKEN_LENGTH} characters"):
        load_settings({"http": EVERYWHERE, "token": "x"})


@pytest.mark.parametrize(
    ("option", "value"),
    [("public_url", "https://a.example"), ("public_grpc", "a.example:443"), ("trusted_proxies", "127.0.0.1")],
)
def test_a_proxy_needs_authentication(option: str, value: str) -> None:
    assert load_settings({option: value, "api_keys": True}).behind_proxy
    with pytest.raises(SettingsError, match=r"other machines call through a proxy, and authentication is off"):
        load_settings({option: value})


def test_all_rules_that_are_broken_are_reported_together() -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings({"http": EVERYWHERE, "grpc": EVERYWHERE, "private_pages": True, "public_grpc": "a.example:1"})
    names = [line.split()[0] for line in str(caught.value).splitlines()]
    assert names == ["--private-pages", "--http", "--grpc", "--public-grpc"]


@pytest.mark.parametrize(
    ("address", "public"), [("", False), ("http://localhost:1", False), ("grpcs://b.example", True)]
)
def test_a_name_of_another_machine_is_public(address: str, public: bool) -> None:
    assert is_public(address) is public
