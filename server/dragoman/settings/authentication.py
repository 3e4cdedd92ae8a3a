"""Rules about authentication: which settings configure it, which need it, and which addresses may do without."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeVar

from pydantic import SecretStr, ValidationInfo

from dragoman.core.net.targets import names_this_machine
from dragoman.settings.types import Address

T = TypeVar("T")

MIN_TOKEN_LENGTH: Final = 16
"""Minimum length of the token of a server that other machines can reach."""

_AUTH_OPTIONS: Final = "--api-keys, --issuers, --tls-client-ca, --token"


def requires_auth(values: Mapping[str, Any]) -> bool:
    """Whether a setting configures authentication."""
    token = values.get("token", SecretStr(""))
    return bool(token.get_secret_value() or any(map(values.get, ("api_keys", "issuers", "tls_client_ca"))))


def needs_authentication(value: T, info: ValidationInfo) -> T:
    """Rejects a value that means something only with authentication. Raises ValueError."""
    if value and not requires_auth(info.data):
        raise ValueError("needs authentication; add --api-keys, --issuers, --tls-client-ca or --token")
    return value


def is_behind_proxy(values: Mapping[str, Any]) -> bool:
    """Whether the settings say that other machines call through a proxy."""
    addresses = (values.get("public_url", ""), values.get("public_grpc", ""))
    return bool(values.get("trusted_proxies")) or any(
        address and not _names_this_machine(address) for address in addresses
    )


def _names_this_machine(address: str) -> bool:
    return names_this_machine(address.rpartition("://")[2].partition("/")[0])


def check_proxy(value: T, info: ValidationInfo) -> T:
    """Rejects a sign of a proxy on a server without authentication. Raises ValueError."""
    is_allowed = requires_auth(info.data) or info.data.get("insecure") or info.data.get("role") == "worker"
    if not is_allowed and is_behind_proxy({info.field_name or "": value}):
        raise ValueError(
            "other machines call through a proxy, and authentication is off, so that everyone who reaches the proxy "
            f"could call; turn on authentication ({_AUTH_OPTIONS}), or allow it with --insecure "
            "(DRAGOMAN_INSECURE=true)"
        )
    return value


def check_listen_address(value: Address, info: ValidationInfo) -> Address:
    """Rejects an address that other machines can reach without authentication. Raises ValueError."""
    if value.is_loopback or info.data.get("insecure") or info.data.get("role") == "worker":
        return value  # a worker's ports only serve health
    token = info.data.get("token", SecretStr("")).get_secret_value()
    if not requires_auth(info.data):
        raise ValueError(
            f'"{value}" can be reached from other machines, and authentication is off; use 127.0.0.1, [::1] or '
            f"localhost, or turn on authentication ({_AUTH_OPTIONS}), or allow it with --insecure "
            "(DRAGOMAN_INSECURE=true)"
        )
    if 0 < len(token) < MIN_TOKEN_LENGTH:
        raise ValueError(
            f'"{value}" can be reached from other machines, which could guess the token; it must have at least '
            f"{MIN_TOKEN_LENGTH} characters"
        )
    return value
