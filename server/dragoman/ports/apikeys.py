"""What keeping API keys needs of a store. It never sees a secret."""

from __future__ import annotations

from typing import Protocol

from dragoman.core.apikeys import ApiKey


class ApiKeys(Protocol):
    """API keys on disk. Times are milliseconds since the epoch, and the caller's."""

    async def add(self, key: ApiKey) -> None:
        """Keeps a new key. Raises ValueError when its id is taken."""
        ...

    async def find(self, id: str) -> ApiKey | None:
        """The key of an id, good or not."""
        ...

    async def list(self) -> list[ApiKey]:
        """Every key, the newest first."""
        ...

    async def rotate(
        self, id: str, digest: bytes, *, now: int, until: int, expires: int | None = None
    ) -> ApiKey | None:
        """Puts another digest in the place of the present one, which stays good until `until`; that of an earlier
        rotation stops. `expires` sets the key's end anew. Gives the key as it is then; None when there is none, or
        it is revoked."""
        ...

    async def revoke(self, id: str, *, now: int) -> ApiKey | None:
        """Ends a key for good. Gives the key as it is then, revoked before or now; None when there is none."""
        ...

    async def touch(self, id: str, *, now: int) -> None:
        """Notes that a key is in use. Waits for whatever else has to be written."""
        ...
