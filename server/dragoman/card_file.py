"""The file in which an operator says what cards say (`--card-file`, TOML), read again when it changes.

A file that cannot be used leaves what was read before where it is; the next look tries again. Cards are made anew from
what is new, and signed anew where they are signed.
"""

from __future__ import annotations

import asyncio
import logging
import tomllib
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final, Never

from dragoman.core.cards import agent_spec
from dragoman.core.cards.agent_spec import CardOverride
from dragoman.settings import SettingsError

LOOKS: Final = 5.0
"""Seconds between two looks at the file."""

log = logging.getLogger("dragoman.cards")


class Unreadable(Exception):
    """A file that cannot be used. The text names the file, the agent and the field."""


class CardFile:
    """What one file says of agents."""

    def __init__(self, path: Path, show: Callable[[Mapping[str, CardOverride]], None]) -> None:
        """`show` is told what the file says, at once and whenever that changes. Raises Unreadable."""
        self._path = path
        self._show = show
        self._seen = self._signature()
        self._said = self._read()
        show(self._said)

    def refresh(self, *, asked: bool = False) -> bool:
        """Looks at the file, and shows what is new in it. Gives whether there was anything. A bad file is logged once,
        until it changes again; with `asked` each time."""
        signature = self._signature()
        if signature == self._seen and not asked:
            return False
        self._seen = signature
        try:
            said = self._read()
        except Unreadable as error:
            log.error("cards stay as they are: %s", error)
            return False
        if said == self._said:
            return False
        self._said = said
        self._show(said)
        log.info("cards say now what is in %s", self._path)
        return True

    async def watch(self, pause: float = LOOKS) -> Never:
        """Looks at the file every `pause` seconds, until it is cancelled."""
        while True:
            await asyncio.sleep(pause)
            self.refresh()

    def _signature(self) -> tuple[int, int, int]:
        try:
            status = self._path.stat()
        except OSError:
            return 0, 0, 0
        return status.st_mtime_ns, status.st_ino, status.st_size

    def _read(self) -> dict[str, CardOverride]:
        try:
            return agent_spec.parse_card_overrides(tomllib.loads(self._path.read_text("utf-8")))
        except OSError as error:
            raise Unreadable(f"{self._path}: {error.strerror}") from error
        except ValueError as error:  # tomllib's and UnicodeDecodeError, too
            raise Unreadable(f"{self._path}: {error}") from error


def open_card_file(
    stack: AsyncExitStack, path: Path | None, show: Callable[[Mapping[str, CardOverride]], None]
) -> CardFile | None:
    """The card file, if there is one, watched until the stack is left. Raises SettingsError."""
    if path is None:
        return None
    try:
        file = CardFile(path, show)
    except Unreadable as error:
        raise SettingsError(f"--card-file: {error}") from error
    watching = asyncio.create_task(file.watch(), name="card file")
    stack.callback(watching.cancel)
    return file
