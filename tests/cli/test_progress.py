"""The progress lines and the spinner on stderr."""

from __future__ import annotations

import io
import sys
import time

import pytest

from dragoman.cli.output import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


async def test_without_a_terminal_each_state_is_printed_once(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress() as progress:
        for state, text in (("SUBMITTED", ""), ("WORKING", ""), ("WORKING", ""), ("WORKING", "half\nway")):
            progress.update(state, text)
        progress.note("COMPLETED")
    assert capsys.readouterr().err == "WORKING\nWORKING  half way\nCOMPLETED\n"


async def test_a_reminder_is_printed_after_silence(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress() as progress:
        progress.update("WORKING")
        progress._remind()
    assert capsys.readouterr().err.splitlines()[1].startswith("WORKING  unchanged after ")


async def test_agents_cannot_write_control_characters_to_the_screen(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress() as progress:
        progress.update("WORKING", "a\x1b[2Jb")
    assert capsys.readouterr().err == "WORKING  a[2Jb\n"


async def test_on_a_terminal_the_spinner_is_erased_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    with Progress() as progress:
        progress.update("WORKING", "a\x1b[2Jb [red]c")
        assert screen.getvalue() == ""  # not yet: the task may end in a moment
        progress._appear()
        progress.hide()
    shown = screen.getvalue()
    assert "WORKING" in shown
    assert "\x1b[2J" not in shown
    assert shown.rstrip("\r").endswith("\x1b[2K")  # the last output erases the line


async def test_the_spinner_does_not_appear_after_half_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    with Progress(may_show=lambda: False) as progress:
        progress.update("WORKING")
        progress._appear()
    assert screen.getvalue() == ""


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.0123, "12 ms"), (2.34, "2.3 s"), (61, "1 min 1 s"), (3605, "60 min 5 s")]
)
def test_elapsed_time_is_formatted(seconds: float, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    progress = Progress()
    monkeypatch.setattr(time, "monotonic", lambda: progress._started_at + seconds)
    assert progress.elapsed == text
