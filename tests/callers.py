"""An authenticator for tests that trusts a header, and that header."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from dragoman.core.access.identity import Identity
from dragoman.core.errors import Unauthenticated

PRINCIPAL: Final = "x-principal"
GRANTS: Final = "x-grants"
WRONG: Final = "nobody-knows"


class ByHeader:
    """Takes principal and grants (separated by spaces) from headers. Implements `ports.Authenticator`."""

    async def authenticate(self, headers: Iterable[tuple[str, str]]) -> Identity | None:
        values = {name.lower(): value for name, value in headers}
        principal = values.get(PRINCIPAL, "")
        if principal == WRONG:
            raise Unauthenticated
        return Identity(principal, frozenset(values.get(GRANTS, "").split())) if principal else None

    async def recheck(self, identity: Identity) -> None:
        """Identities stay valid."""


def named(principal: str, *grants: str) -> dict[str, str]:
    """Headers, or metadata, of a principal; none for an empty one."""
    values = {PRINCIPAL: principal} if principal else {}
    return {**values, GRANTS: " ".join(grants)} if grants else values
