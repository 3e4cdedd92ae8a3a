"""Fixtures for all tests, and the profiles of property tests.

The profile `quick` runs half of hypothesis's default examples. HYPOTHESIS_PROFILE=fuzz runs more per property, in
random order, and skips the rest when FUZZ_FOR seconds are over.
"""

from __future__ import annotations

import gc
import logging
import os
import random
import signal
import time
from collections.abc import Generator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
from _pytest.logging import LogCaptureHandler
from hypothesis import HealthCheck, settings
from tests import groups
from tests.nats import nats, nats_with_streams, own_nats, patient_bus
from tests.postgres import own_postgres, postgres, postgres_database, postgres_url
from tests.without_extras.needs import MODULES, WITHOUT_EXTRAS, needs_extra

from dragoman.cli.logs import release_own_loggers
from dragoman.runtime.timings import Timings
from dragoman.runtime.turn import context

__all__ = [
    "nats",
    "nats_with_streams",
    "own_nats",
    "own_postgres",
    "patient_bus",
    "postgres",
    "postgres_database",
    "postgres_url",
]
"""Fixtures for tests that need PostgreSQL or NATS."""

PROFILE: Final = os.environ.get("HYPOTHESIS_PROFILE", "")
FUZZ_FOR: Final = float(os.environ.get("FUZZ_FOR", "inf"))
"""Seconds after collection at which no further property starts; collection may itself take long."""

_UNTIL: Final = pytest.StashKey[float]()

# Read by gRPC on import. Its fork handlers sometimes break the child process before it becomes PostgreSQL.
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "false"

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell ignores SIGINT in background jobs, and the commands that tests interrupt would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("fuzz", max_examples=1000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("quick", max_examples=50, deadline=None)
settings.load_profile(PROFILE or "quick")


collect_ignore = ["extensions", *MODULES] if WITHOUT_EXTRAS else []


def pytest_addoption(parser: pytest.Parser) -> None:
    groups.add_option(parser)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    return groups.is_left_out(collection_path, groups.selected(config)) or None


def pytest_report_header() -> str:
    if not WITHOUT_EXTRAS:
        return "extras: installed"
    return f"extras: hidden; left to `make coverage`: tests/extensions, {len(MODULES)} modules, tests with an extra"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if WITHOUT_EXTRAS and (left_out := [item for item in items if needs_extra(item)]):
        config.hook.pytest_deselected(items=left_out)  # pytest counts them in its last line
        items[:] = [item for item in items if not needs_extra(item)]
    if PROFILE == "fuzz":
        random.shuffle(items)  # so that the time limit skips different tests each time


def pytest_collection_finish(session: pytest.Session) -> None:
    session.config.stash[_UNTIL] = time.monotonic() + FUZZ_FOR
    # Thousands of tests and all modules live to the end. Frozen, they are skipped by full garbage collections, which
    # would take a quarter of a second each. A server does the same (`cli/serve/command.py`).
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000)


def pytest_runtest_setup(item: pytest.Item) -> None:
    if time.monotonic() > item.config.stash[_UNTIL]:
        pytest.skip("the time limit for fuzzing is reached")


_CONFIGURED: Final = ("dragoman", "aiohttp", "asyncio", "grpc")
"""The loggers, with all below them, of which `configure_logging` sets levels."""


@pytest.fixture(autouse=True)
def restored_logging() -> Iterator[None]:
    """Restores logging as it was before a command ran in this process.

    A handler that such a command adds writes to a closed stream: each later line would be an error, whose traceback
    also formats the exception being handled, and that of a hostile one may never end. And the server's loggers keep
    their levels, so that a later test would wait in vain for lines.
    """
    root, own = logging.getLogger(), logging.getLogger("dragoman")
    handlers, own_handlers, last_resort = root.handlers[:], own.handlers[:], logging.lastResort
    yield
    own.handlers[:] = own_handlers
    logging.lastResort = last_resort
    release_own_loggers()
    if root.level != logging.WARNING:
        root.setLevel(logging.WARNING)
    for name, logger in root.manager.loggerDict.items():
        if isinstance(logger, logging.Logger) and logger.level and name.partition(".")[0] in _CONFIGURED:
            logger.setLevel(logging.NOTSET)
    for handler in root.handlers[:]:
        if handler not in handlers and not isinstance(handler, LogCaptureHandler):
            root.removeHandler(handler)


def timings(**changes: Any) -> Timings:
    """The default timings of runtimes, with these changed."""
    defaults: Timings = vars(context)["DEFAULT_TIMINGS"]
    return replace(defaults, **changes)


def set_timings(monkeypatch: pytest.MonkeyPatch, **changes: Any) -> None:
    """Changes the default timings of runtimes."""
    monkeypatch.setattr(context, "DEFAULT_TIMINGS", timings(**changes))


@pytest.fixture
def no_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No settings of the machine: an empty current folder, and no variables of Dragoman."""
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.startswith("DRAGOMAN_"):
            monkeypatch.delenv(name)


@pytest.fixture
def time_to_think(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gives direct agents 60 seconds for their Message, so slow machines do not turn it into a task."""
    set_timings(monkeypatch, direct_reply_timeout=60.0)


@pytest.fixture
def time_to_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits 60 seconds for a canceled agent, so slow machines still answer with CANCELED."""
    set_timings(monkeypatch, cancel_timeout=60.0)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Makes captured logs safe to send between processes: some tests log lone surrogates on purpose."""
    report = yield
    report.sections = [(name, text.encode(errors="backslashreplace").decode()) for name, text in report.sections]
    return report
