"""`serve --reload`: a parent that starts the server again when the app's files change.

It looks at the files' times, which needs no library and works on every file system.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, Final

from dragoman.settings.settings import SettingsError, load_settings
from dragoman.wiring.agent_loader import source_directory

RELOAD_POLL_INTERVAL: Final = 0.4
"""Seconds between two looks."""

RELOAD_STOP_TIMEOUT: Final = 2.0
"""Seconds that running turns get when a file has changed: who edits wants to see, not to wait."""

_SKIPPED_FOLDERS: Final = frozenset({"__pycache__", "node_modules", "site-packages"})
_MAX_WATCHED_FILES: Final = 5000


def app_argument(arguments: Mapping[str, Any]) -> str:
    """APP, wherever it was said; empty when the settings cannot be used, which the server itself will explain."""
    try:
        settings = load_settings(arguments)
    except SettingsError:
        return ""
    return settings.own_app or (settings.executor[0].module if settings.executor else "")


def run_with_reload(arguments: Sequence[str], app: str) -> int:
    """Runs `dragoman ARGUMENTS` without `--reload`, again and again. Gives the exit code of the last one.

    A server that ends by itself (a broken module, a taken port) is started again at the next change.
    """
    command = [sys.executable, "-m", "dragoman", *(word for word in arguments if word != "--reload")]
    watched = source_directory(app) if app else None
    ended = threading.Event()

    def end(number: int, _: FrameType | None) -> None:
        # A terminal sends Ctrl-C to the child as well; other signals come to the parent alone.
        if number != signal.SIGINT and child.poll() is None:
            child.send_signal(number)
        ended.set()

    seen = modification_times(watched)
    child = subprocess.Popen(command)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)
    while not ended.wait(RELOAD_POLL_INTERVAL):
        now = modification_times(watched)
        if now == seen:
            continue
        changed = sorted(path.name for path in now.keys() | seen.keys() if now.get(path) != seen.get(path))
        print(f"reload: {', '.join(changed[:3])} changed", file=sys.stderr, flush=True)
        seen = now
        _stop(child)
        child = subprocess.Popen(command)
        if ended.is_set():  # the signal went to the old one
            child.terminate()
    while child.poll() is None:
        ended.clear()
        try:
            child.wait(RELOAD_POLL_INTERVAL)
        except subprocess.TimeoutExpired:
            continue
    return child.returncode if child.returncode >= 0 else 128 - child.returncode


def modification_times(directory: Path | None) -> dict[Path, int]:
    """When each Python file below a directory, and `dragoman.toml` here, was last written."""
    found = {}
    for path in (*_sources(directory), Path("dragoman.toml")):
        try:
            found[path] = path.stat().st_mtime_ns
        except OSError:  # it was there a moment ago
            continue
    return found


def _sources(directory: Path | None) -> Iterator[Path]:
    if directory is None:
        return
    number = 0
    for place, folders, files in os.walk(directory):
        folders[:] = [name for name in folders if name not in _SKIPPED_FOLDERS and not name.startswith(".")]
        for name in files:
            if name.endswith(".py"):
                number += 1
                yield Path(place, name)
        if number > _MAX_WATCHED_FILES:  # somebody serves a file from the home directory
            return


def _stop(child: subprocess.Popen[bytes]) -> None:
    """Ends the child: asked first, then told, then made to."""
    for end in (child.terminate, child.terminate, child.kill):
        if child.poll() is not None:
            return
        end()
        try:
            child.wait(RELOAD_STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            continue
