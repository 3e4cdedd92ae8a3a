"""Rules about authentication: which settings configure it, which need it, and which addresses may do without."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeVar

from pydantic import SecretStr, ValidationInfo

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
