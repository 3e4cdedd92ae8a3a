"""Small texts, kept in memory, for tests of what is noted in them."""

from __future__ import annotations


class Paper:
    """Implements `dragoman.ports.Papers`."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}

    async def read(self, name: str) -> str:
        return self.texts.get(name, "")

    async def write(self, name: str, text: str, *, former: str) -> bool:
        if self.texts.get(name, "") != former:
            return False
        self.texts[name] = text
        return True
