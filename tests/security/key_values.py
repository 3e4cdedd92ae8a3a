"""A key-value table in memory."""

from __future__ import annotations


class InMemoryKeyValues:
    """Implements `dragoman.ports.KeyValues`."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}

    async def get(self, name: str) -> str:
        return self.texts.get(name, "")

    async def compare_and_set(self, name: str, value: str, *, expected: str) -> bool:
        if self.texts.get(name, "") != expected:
            return False
        self.texts[name] = value
        return True
