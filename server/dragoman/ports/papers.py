"""What keeping small texts needs of a store: those in which a server notes what it has to know of itself."""

from __future__ import annotations

from typing import Protocol


class Papers(Protocol):
    """Texts by name, for as long as the store lasts. All servers of the store have the same."""

    async def read(self, name: str) -> str:
        """The text of this name; empty when there is none."""
        ...

    async def write(self, name: str, text: str, *, former: str) -> bool:
        """Puts a text in the place of `former`; empty means that there is none. False when another one is there, and
        nothing was changed."""
        ...
