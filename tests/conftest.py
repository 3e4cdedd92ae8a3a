"""How thorough property tests are: half of what hypothesis has by itself, or as HYPOTHESIS_PROFILE says.

The profile `fuzz` tries more for each property, begins anywhere, and skips what is left when its time is over.
"""

from __future__ import annotations

import gc
import os
import random
import signal
import time
from collections.abc import Generator, Iterator
from typing import Final

import pytest
from hypothesis import HealthCheck, settings
from tests import new_store
from tests.nats import nats, nats_with_streams, own_nats, patient_bus
from tests.postgres import own_postgres, postgres, postgres_database, postgres_url

from dragoman.stores.sqlite import store

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
"""Fixtures for every test that wants a PostgreSQL or a NATS."""

PROFILE: Final = os.environ.get("HYPOTHESIS_PROFILE", "")
FUZZ_FOR: Final = float(os.environ.get("FUZZ_FOR", "inf"))
"""Seconds after which no more property begins, from when all were found: that alone may take as long as there is."""

_UNTIL: Final = pytest.StashKey[float]()

# Read by gRPC when it is imported. Its handlers at a fork break the child, now and then, before it is PostgreSQL.
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "false"

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell that starts us in the background has Ctrl-C ignored, and so would the commands that tests interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("fuzz", max_examples=1000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("quick", max_examples=50, deadline=None)
settings.load_profile(PROFILE or "quick")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if PROFILE == "fuzz":
        random.shuffle(items)  # so that what the time cuts off is another each time


def pytest_collection_finish(session: pytest.Session) -> None:
    session.config.stash[_UNTIL] = time.monotonic() + FUZZ_FOR
    # Thousands of tests and all modules stay to the end. Were they looked through each time that the collector looks
    # at everything, every such look would take a quarter of a second. A server does the same
    # (`cli/serve/command.py`).
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000)


def pytest_runtest_setup(item: pytest.Item) -> None:
    if time.monotonic() > item.config.stash[_UNTIL]:
        pytest.skip("the time for fuzzing is over")


@pytest.fixture(scope="session", autouse=True)
def quick_stores() -> Iterator[None]:
    """Stores that are opened in this process are made in a moment. Migrations have tests of their own, which call them,
    as commands do."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "migrate", new_store.migrate)
        patch.setattr(store, "connect", new_store.connect)
        yield


@pytest.fixture
def time_to_think(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a direct agent answers stays a Message, also on a machine that stands still for longer than it may think."""
    monkeypatch.setattr("dragoman.runtime.turn.runner.DIRECT_REPLY_TIMEOUT", 60.0)


@pytest.fixture
def time_to_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who cancels is told that the task was canceled, also where its agent takes longer to stop than is waited for."""
    monkeypatch.setattr("dragoman.runtime.operations.cancel.CANCEL_TIMEOUT", 60.0)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Makes what tests logged fit to travel between processes: some log halves of surrogate pairs on purpose."""
    report = yield
    report.sections = [(name, text.encode(errors="backslashreplace").decode()) for name, text in report.sections]
    return report
