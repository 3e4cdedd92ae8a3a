"""Small texts, kept in memory, for tests of what is noted in them."""

from __future__ import annotations


class InMemoryKeyValues:
    """Implements `dragoman.ports.Papers`."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}

    async def get(self, name: str) -> str:
        return self.texts.get(name, "")

    async def compare_and_set(self, name: str, value: str, *, expected: str) -> bool:
        if self.texts.get(name, "") != expected:
            return False
        self.texts[name] = value
        return True
