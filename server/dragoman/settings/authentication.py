"""Rules about authentication: which settings need it, and which addresses may do without."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from dragoman.core.net.targets import names_this_machine
from dragoman.settings.options import broken_rule

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

    from dragoman.settings.settings import Settings

MIN_TOKEN_LENGTH: Final = 16
"""Minimum length of the token of a server that other machines can reach."""

_AUTH_OPTIONS: Final = "--api-keys, --issuers, --tls-client-ca, --token"
_ALLOW: Final = f"turn on authentication ({_AUTH_OPTIONS}), or allow it with --insecure (DRAGOMAN_INSECURE=true)"


def is_public(address: str) -> bool:
    """Whether the URL or address, which may be empty, is of another machine than this."""
    return bool(address) and not names_this_machine(address.rpartition("://")[2].partition("/")[0])


def check_authentication(settings: Settings) -> Iterator[ErrorDetails]:
    """The settings that mean nothing without authentication, and those that would leave the server open."""
    access, public, listen = settings.access, settings.public, settings.listen
    with_auth = settings.requires_auth
    for option, value in (("public_agents", access.public_agents), ("private_pages", access.private_pages)):
        if value and not with_auth:
            yield broken_rule(option, "needs authentication; add --api-keys, --issuers, --tls-client-ca or --token")
    if listen.insecure or settings.cluster.role == "worker":
        return  # a worker's ports only serve health
    token = access.token.get_secret_value()
    for option, address in (("http", listen.http), ("grpc", listen.grpc)):
        if address.is_loopback:
            continue
        if not with_auth:
            yield broken_rule(
                option,
                f'"{address}" can be reached from other machines, and authentication is off; use 127.0.0.1, [::1] or '
                f"localhost, or {_ALLOW}",
            )
        elif 0 < len(token) < MIN_TOKEN_LENGTH:
            yield broken_rule(
                option,
                f'"{address}" can be reached from other machines, which could guess the token; it must have at least '
                f"{MIN_TOKEN_LENGTH} characters",
            )
    signs = {
        "public_url": is_public(public.url),
        "public_grpc": is_public(public.grpc),
        "trusted_proxies": bool(public.trusted_proxies),
    }
    for option in (option for option, is_sign in signs.items() if is_sign and not with_auth):
        yield broken_rule(
            option,
            "other machines call through a proxy, and authentication is off, so that everyone who reaches the proxy "
            f"could call; {_ALLOW}",
        )
