"""API keys as operators handle them: made, listed, rotated, revoked. The text of a key leaves here once."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Iterable
from typing import Final

from dragoman.core.access import caller_credentials
from dragoman.core.access.caller_credentials import ApiKey
from dragoman.core.access.identity import check_grants, check_principal
from dragoman.core.errors import InvalidParams, KeyNotFound
from dragoman.ports import ApiKeys

MAX_KEY_NAME_LENGTH: Final = 100
"""Characters of a key's name."""

MAX_KEY_LIFETIME_MS: Final = 100 * 366 * 86_400_000
"""Milliseconds that a key may live or a former secret be good: past that, somebody slipped."""

_log: Final = logging.getLogger("dragoman.security")


def _ignore_change(_: str) -> None:
    """Has no use for a key that changed."""


class ApiKeyService:
    """The keys of one store. All verbs raise children of core.errors.A2AError, and change nothing then."""

    def __init__(
        self,
        keys: ApiKeys,
        *,
        clock: Callable[[], int],
        random_bytes: Callable[[int], bytes] = secrets.token_bytes,
        on_change: Callable[[str], None] = _ignore_change,
    ) -> None:
        """`changed` is told the id of a key that was rotated or revoked. `clock` gives milliseconds since the epoch."""
        self._keys = keys
        self._clock = clock
        self._random_bytes = random_bytes
        self._on_change = on_change

    async def create(
        self, name: str, *, principal: str = "", grants: Iterable[str] = (), lifetime: int = 0
    ) -> tuple[ApiKey, str]:
        """A new key and its text, which is kept nowhere. principal: by default the name. lifetime: in milliseconds,
        0 for ever."""
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
        now = self._clock()
        id = caller_credentials.new_api_key_id(self._random_bytes(caller_credentials.API_KEY_ID_BYTES))
        text = caller_credentials.format_api_key(id, self._random_bytes(caller_credentials.API_KEY_SECRET_BYTES))
        key = ApiKey(
            id=id,
            name=name,
            principal=principal or name,
            grants=allowed,
            digest=caller_credentials.api_key_digest(text),
            created=now,
            expires=now + lifetime if lifetime else 0,
        )
        await self._keys.add(key)
        _log_change("an API key was made", key)
        return key, text

    async def list(self, *, all: bool = False) -> list[ApiKey]:
        """Keys, the newest first: those that are good, or `all`."""
        now = self._clock()
        return [key for key in await self._keys.list() if all or not key.problem(now)]

    async def rotate(self, id: str, *, grace: int = 0, lifetime: int | None = None) -> tuple[ApiKey, str]:
        """Another secret for a key, and its text. The one before is good for `grace` milliseconds more; one from before
        that stops now. lifetime: from now on, 0 for ever; None leaves the key's end as it is."""
        _check_time("grace", grace)
        _check_time("lifetime", lifetime or 0)
        now = self._clock()
        key = await self._keys.find(id)
        if key is None:
            raise _key_not_found(id)
        trouble = key.problem(now)
        if key.revoked or (trouble and lifetime is None):
            cure = "make another" if key.revoked else "give it a lifetime"
            raise InvalidParams.field("id", f'the key "{id}" {trouble}; {cure}')
        text = caller_credentials.format_api_key(id, self._random_bytes(caller_credentials.API_KEY_SECRET_BYTES))
        expires = None if lifetime is None else now + lifetime if lifetime else 0
        rotated = await self._keys.rotate(
            id, caller_credentials.api_key_digest(text), now=now, until=now + grace, expires=expires
        )
        if rotated is None:  # somebody revoked it in this moment
            raise InvalidParams.field("id", f'the key "{id}" was revoked; make another')
        self._on_change(id)
        _log_change("an API key was rotated", rotated)
        return rotated, text

    async def revoke(self, id: str) -> ApiKey:
        """Ends a key for good. One that was revoked stays as it is."""
        key = await self._keys.revoke(id, now=self._clock())
        if key is None:
            raise _key_not_found(id)
        self._on_change(id)
        _log_change("an API key was revoked", key)
        return key


def _check_time(field: str, milliseconds: int) -> None:
    if not 0 <= milliseconds <= MAX_KEY_LIFETIME_MS:
        raise InvalidParams.field(field, "must be 0 or more, and at most a hundred years")


def _key_not_found(id: str) -> KeyNotFound:
    shown = id if caller_credentials.API_KEY_ID.fullmatch(id) else "…"  # it may be a whole key, pasted
    return KeyNotFound(f'id: there is no key "{shown}"; ListKeys shows those there are')


def _log_change(text: str, key: ApiKey) -> None:
    _log.info(text, extra={"key": key.id, "principal": key.principal, "grants": sorted(key.grants)})
