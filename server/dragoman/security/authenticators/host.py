"""Callers of a server that is mounted in another application, which knows who they are."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from contextvars import ContextVar
from dataclasses import dataclass, replace
from inspect import isawaitable
from typing import Any, Final

from dragoman.core.access.identity import Identity, check_grants, check_principal
from dragoman.core.errors import Unauthenticated
from dragoman.ports import Authenticator
from dragoman.ports.security import IdentifyCaller

Scope = MutableMapping[str, Any]
ServeExchange = Callable[[Scope, Any, Any], Awaitable[None]]

_CURRENT_SCOPE: Final[ContextVar[Scope | None]] = ContextVar("dragoman-asgi-scope", default=None)


def with_scope(serve: ServeExchange) -> ServeExchange:
    """Serves ASGI exchanges so that `HostAuthenticator` knows the scope of each."""

    async def serve_in_scope(scope: Scope, receive: Any, send: Any) -> None:
        token = _CURRENT_SCOPE.set(scope)
        try:
            await serve(scope, receive, send)
        finally:
            _CURRENT_SCOPE.reset(token)

    return serve_in_scope


@dataclass(frozen=True, eq=False)
class HostAuthenticator:
    """Asks the host who calls. Implements `dragoman.ports.Authenticator`."""

    identify: IdentifyCaller
    own: Authenticator | None  # of calls that do not come through the host: those of the gRPC port
    clock: Callable[[], int]  # milliseconds since the epoch

    async def authenticate(self, headers: Iterable[tuple[str, str]]) -> Identity | None:
        """The host's answer. Raises TypeError, ValueError for one that names no caller: the host's fault."""
        scope = _CURRENT_SCOPE.get()
        if scope is None:
            return await self.own.authenticate(headers) if self.own is not None else None
        found = self.identify(scope)
        caller = await found if isawaitable(found) else found
        if caller is None:
            return None
        if isinstance(caller, str):
            caller = Identity(caller)
        if not isinstance(caller, Identity):
            raise TypeError(f"authenticate: must return a principal, an Identity or None, not {type(caller).__name__}")
        try:
            return replace(caller, principal=check_principal(caller.principal), grants=check_grants(caller.grants))
        except ValueError as error:
            raise ValueError(f"authenticate: the principal or a grant that it returned: {error}") from error

    async def recheck(self, identity: Identity) -> None:
        """Checks the end of an identity again; one without an end is as good as its stream."""
        if identity.expires and self.clock() >= identity.expires:
            raise Unauthenticated("the credentials have expired", error="invalid_token")
        if identity.credential_id and self.own is not None:
            await self.own.recheck(identity)
