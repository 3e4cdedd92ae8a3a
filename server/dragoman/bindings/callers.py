"""Who calls: the one place that decides it.

A caller is known by what the transport carries (A2A 1.0 §7), never by the message. Without an authenticator
everyone is the same caller; with one, who shows no credentials still is, and who shows wrong ones is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from dragoman.core.identity import NOBODY, Identity
from dragoman.ports import Authenticator

CHALLENGE: Final = {"WWW-Authenticate": 'Bearer realm="dragoman"'}
"""What a refusal tells an HTTP client (RFC 9110 §11.6.1)."""


async def identify(headers: Mapping[str, str], authenticator: Authenticator | None = None) -> Identity:
    """Who is behind these HTTP headers or gRPC metadata. Raises Unauthenticated for wrong credentials."""
    if authenticator is None:
        return NOBODY
    return await authenticator.authenticate(headers) or NOBODY
