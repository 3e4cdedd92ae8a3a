"""API keys: create, list, rotate, revoke. The text of a key is returned once and never stored."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from dragoman.core.access import caller_credentials
from dragoman.core.access.caller_credentials import ApiKey
from dragoman.core.access.identity import check_grants, check_principal
from dragoman.core.errors import InvalidParams, KeyNotFound
from dragoman.ports import ApiKeys

MAX_KEY_NAME_LENGTH: Final = 100  # characters of a key's name

MAX_KEY_LIFETIME_MS: Final = 100 * 366 * 86_400_000
"""Milliseconds of a key's lifetime or grace period; a longer one is taken for a mistake."""

_log: Final = logging.getLogger("dragoman.security")


@dataclass(eq=False, repr=False)
class ApiKeyService:
    """The API keys of one store. Methods raise subclasses of core.errors.A2AError and then change nothing."""

    keys: ApiKeys
    clock: Callable[[], int]  # milliseconds since the epoch
    random_bytes: Callable[[int], bytes] = secrets.token_bytes
    on_change: Callable[[str], None] = lambda id: None  # called with the id of a rotated or revoked key

    async def create(
        self, name: str, *, principal: str = "", grants: Iterable[str] = (), lifetime: int = 0
    ) -> tuple[ApiKey, str]:
        """Creates a key. Returns it with its text, which is not stored.

        `principal`: by default the name. `lifetime`: milliseconds, 0 for ever.
        """
        if not name or not name.isprintable() or name != name.strip():
            raise InvalidParams.field("name", "is required: printable text, without blanks around it")
        if len(name) > MAX_KEY_NAME_LENGTH:
            raise InvalidParams.field("name", f"must have at most {MAX_KEY_NAME_LENGTH} characters")
        try:
            check_principal(principal or name)
        except ValueError as error:
            raise InvalidParams.field("principal" if principal else "name", str(error)) from error
        try:
            allowed = check_grants(grants)
        except ValueError as error:
            raise InvalidParams.field("grants", str(error)) from error
        _check_time("lifetime", lifetime)
        now = self.clock()
        id = caller_credentials.new_api_key_id(self.random_bytes(caller_credentials.API_KEY_ID_BYTES))
        text = caller_credentials.format_api_key(id, self.random_bytes(caller_credentials.API_KEY_SECRET_BYTES))
        key = ApiKey(
            id=id,
            name=name,
            principal=principal or name,
            grants=allowed,
            digest=caller_credentials.api_key_digest(text),
            created=now,
            expires=now + lifetime if lifetime else 0,
        )
        await self.keys.add(key)
        _log_change("an API key was created", key)
        return key, text

    async def list(self, *, all: bool = False) -> list[ApiKey]:
        """Valid keys, or `all`; newest first."""
        now = self.clock()
        return [key for key in await self.keys.list() if all or not key.problem(now)]

    async def rotate(self, id: str, *, grace: int = 0, lifetime: int | None = None) -> tuple[ApiKey, str]:
        """Replaces the secret of a key. Returns the key with its new text.

        The previous secret is valid for `grace` more milliseconds, an older one no longer. `lifetime`: milliseconds
        from now, 0 for ever; None keeps the key's expiry.
        """
        _check_time("grace", grace)
        _check_time("lifetime", lifetime or 0)
        now = self.clock()
        key = await self.keys.find(id)
        if key is None:
            raise _key_not_found(id)
        problem = key.problem(now)
        if key.revoked or (problem and lifetime is None):
            cure = "create another one" if key.revoked else "give it a lifetime"
            raise InvalidParams.field("id", f'the key "{id}" {problem}; {cure}')
        text = caller_credentials.format_api_key(id, self.random_bytes(caller_credentials.API_KEY_SECRET_BYTES))
        expires = None if lifetime is None else now + lifetime if lifetime else 0
        rotated = await self.keys.rotate(
            id, caller_credentials.api_key_digest(text), now=now, until=now + grace, expires=expires
        )
        if rotated is None:  # revoked at the same time
            raise InvalidParams.field("id", f'the key "{id}" was revoked; create another one')
        self.on_change(id)
        _log_change("an API key was rotated", rotated)
        return rotated, text

    async def revoke(self, id: str) -> ApiKey:
        """Revokes a key for good. Idempotent."""
        key = await self.keys.revoke(id, now=self.clock())
        if key is None:
            raise _key_not_found(id)
        self.on_change(id)
        _log_change("an API key was revoked", key)
        return key


def _check_time(field: str, milliseconds: int) -> None:
    if not 0 <= milliseconds <= MAX_KEY_LIFETIME_MS:
        raise InvalidParams.field(field, "must be 0 or more, and at most a hundred years")


def _key_not_found(id: str) -> KeyNotFound:
    shown = id if caller_credentials.API_KEY_ID.fullmatch(id) else "…"  # the user may have pasted the whole key
    return KeyNotFound(f'id: there is no key "{shown}"; ListKeys shows all keys')


def _log_change(text: str, key: ApiKey) -> None:
    _log.info(text, extra={"key": key.id, "principal": key.principal, "grants": sorted(key.grants)})
