"""What the bindings need to know callers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from dragoman.core.identity import Identity


class Authenticator(Protocol):
    """Knows callers by what their transport carries."""

    async def authenticate(self, headers: Mapping[str, str]) -> Identity | None:
        """Who is behind HTTP headers or gRPC metadata (keys in any case); None when they show no credentials.

        Raises core.errors.Unauthenticated for credentials that are not good.
        """
        ...
