"""What happens meanwhile, on stderr: on a terminal a line that moves and vanishes, elsewhere plain lines."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from typing import Final, Self

from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

REMIND: Final = 15.0
"""Seconds of silence after which a plain line says that the task is still there."""

LULL: Final = 0.1
"""Seconds of quiet before the moving line comes up: it must not slow a quick stream down, nor flash."""

WIDTH: Final = 100

_QUICKLY_OVER: Final = ("SENT", "SUBMITTED")
"""States that are no news unless they last."""


class Progress:
    """A task's state, for as long as the block runs.

    On a terminal the line is away while somebody writes to the same screen: `hide` before, `show` after, which
    waits until it `may_show` (there is no place for it behind half a line of text).
    """

    def __init__(self, *, may_show: Callable[[], bool] = lambda: True) -> None:
        self._terminal = sys.stderr.isatty()
        self._may_show = may_show
        self._console = Console(stderr=True, highlight=False)
        self._spinner = Spinner("dots")
        self._began = time.monotonic()
        self._state = ""
        self._text = ""
        self._live: Live | None = None
        self._appearing: asyncio.TimerHandle | None = None
        self._reminder: asyncio.TimerHandle | None = None

    def __enter__(self) -> Self:
        self.say("SENT")
        return self

    def __exit__(self, *_: object) -> None:
        self.hide()
        if self._reminder is not None:
            self._reminder.cancel()

    @property
    def elapsed(self) -> str:
        """The time since the block began, as people read it."""
        seconds = time.monotonic() - self._began
        if seconds < 1:
            return f"{seconds * 1000:.0f} ms"
        whole = int(seconds + 1e-6)  # the clock's own rounding is no second
        return f"{seconds:.1f} s" if seconds < 60 else f"{whole // 60} min {whole % 60} s"

    def say(self, state: str, text: str = "") -> None:
        """The task is in `state`, and its agent said `text`."""
        text = _printable(" ".join(text.split()))[:WIDTH]
        if (state, text) == (self._state, self._text):
            return
        self._state, self._text = state, text
        if self._terminal:
            self.show()
        elif state not in _QUICKLY_OVER:
            self._print(f"{state}  {text}")
        self._remind_later()

    def hide(self) -> None:
        """Takes the moving line off the screen."""
        if self._appearing is not None:
            self._appearing.cancel()
            self._appearing = None
        if self._live is not None:
            self._live.stop()
            self._live = None

    def show(self) -> None:
        """Puts the moving line on the screen, if that is a terminal and nothing else is written there for a moment."""
        if self._terminal and self._live is None and self._appearing is None:
            self._appearing = asyncio.get_running_loop().call_later(LULL, self._appear)

    def _appear(self) -> None:
        self._appearing = None
        if self._may_show():
            self._live = Live(
                console=self._console,
                get_renderable=self._line,
                transient=True,
                refresh_per_second=10,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._live.start()

    def note(self, text: str) -> None:
        """Prints a line that stays."""
        self.hide()
        self._print(text)

    def _line(self) -> Spinner:
        line = f"{self._state}  {self.elapsed}  {self._text}".rstrip()
        self._spinner.update(text=Text(line, overflow="ellipsis", no_wrap=True))
        return self._spinner

    def _print(self, text: str) -> None:
        # Not through rich: texts come from agents and hold no markup, and lines are for programs not to wrap.
        print(_printable(text.rstrip()), file=sys.stderr, flush=True)

    def _remind_later(self) -> None:
        if self._terminal:
            return
        if self._reminder is not None:
            self._reminder.cancel()
        self._reminder = asyncio.get_running_loop().call_later(REMIND, self._remind)

    def _remind(self) -> None:
        self._print(f"{self._state}  still, after {self.elapsed}")
        self._remind_later()


def _printable(text: str) -> str:
    """Without what would move the cursor: texts come from agents."""
    return "".join(character for character in text if character.isprintable())
