"""`serve --reload`: restarts the server when the app's files change.

Polls modification times, which needs no library and works on every file system.
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
"""Seconds between two polls."""

RELOAD_STOP_TIMEOUT: Final = 2.0
"""Seconds for running turns to finish on a change: short, because a developer is waiting."""

_SKIPPED_FOLDERS: Final = frozenset({"__pycache__", "node_modules", "site-packages"})
_MAX_WATCHED_FILES: Final = 5000


def app_argument(arguments: Mapping[str, Any]) -> str:
    """APP from any source of settings; empty if the settings are invalid, which the server itself reports."""
    try:
        settings = load_settings(arguments)
    except SettingsError:
        return ""
    return settings.own_app or (settings.executors[0].module if settings.executors else "")


def run_with_reload(arguments: Sequence[str], app: str) -> int:
    """Runs `dragoman ARGUMENTS` without `--reload`, and restarts it on changes. Returns the last exit code.

    A server that ends by itself (a broken module, a port in use) is restarted at the next change.
    """
    command = [sys.executable, "-m", "dragoman", *(word for word in arguments if word != "--reload")]
    watched = source_directory(app) if app else None
    ended = threading.Event()

    def end(number: int, _: FrameType | None) -> None:
        # A terminal sends Ctrl-C to the child as well; other signals reach only this process.
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
        print(f"reload: {', '.join(changed[:3])} changed; restarting", file=sys.stderr, flush=True)
        seen = now
        _stop(child)
        child = subprocess.Popen(command)
        if ended.is_set():  # the signal went to the old process
            child.terminate()
    while child.poll() is None:
        ended.clear()
        try:
            child.wait(RELOAD_POLL_INTERVAL)
        except subprocess.TimeoutExpired:
            continue
    return child.returncode if child.returncode >= 0 else 128 - child.returncode


def modification_times(directory: Path | None) -> dict[Path, int]:
    """The modification times of all Python files below a directory, and of `dragoman.toml`, in nanoseconds."""
    found = {}
    for path in (*_sources(directory), Path("dragoman.toml")):
        try:
            found[path] = path.stat().st_mtime_ns
        except OSError:  # deleted since it was listed
            continue
    return found


def _sources(directory: Path | None) -> Iterator[Path]:
    if directory is None:
        return
    number = 0
    for folder, folders, files in os.walk(directory):
        folders[:] = [name for name in folders if name not in _SKIPPED_FOLDERS and not name.startswith(".")]
        for name in files:
            if name.endswith(".py"):
                number += 1
                yield Path(folder, name)
        if number > _MAX_WATCHED_FILES:  # an app in a home directory, for example
            return


def _stop(child: subprocess.Popen[bytes]) -> None:
    """Stops the child: drain, then stop at once, then kill."""
    for end in (child.terminate, child.terminate, child.kill):
        if child.poll() is not None:
            return
        end()
        try:
            child.wait(RELOAD_STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            continue
