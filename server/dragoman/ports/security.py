"""What the bindings need to know callers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from dragoman.core.identity import Identity


class CertificateHolders(Protocol):
    """Knows callers by the certificates with which their connections were opened."""

    def identify(self, certificate: bytes) -> Identity:
        """Who holds this certificate (DER or PEM), which the handshake found to be of an authority that is trusted.

        Raises core.errors.Unauthenticated for one that counts no more, or that names nobody.
        """
        ...


class Authenticator(Protocol):
    """Knows callers by what their transport carries."""

    async def authenticate(self, headers: Iterable[tuple[str, str]]) -> Identity | None:
        """Who is behind HTTP headers or gRPC metadata (names in any case, each as often as it was sent); None when
        they show no credentials.

        Raises core.errors.Unauthenticated for credentials that are not good, PermissionDenied for those that are and
        are of no use here, Unavailable when it cannot be found out now.
        """
        ...

    async def check(self, identity: Identity) -> None:
        """Looks again at a caller who was known a while ago. Raises Unauthenticated when its credentials were
        withdrawn since."""
        ...
