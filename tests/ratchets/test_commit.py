"""The commits of a lone send on SQLite do not grow: pages written, and statements."""

from __future__ import annotations

import tomllib
from collections.abc import AsyncIterator, Awaitable
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from statistics import mode
from typing import Any, Final

import pytest

from dragoman.core.task import states
from dragoman.stores.sqlite import SqliteStore, open_store
from dragoman.stores.sqlite.hot import DEFAULT_TIMINGS
from dragoman.stores.sqlite.hot.figures import MAX_NEW_TASKS
from dragoman.testing.fixtures import artifact, by_runner, created, new_ref, status

pytestmark = pytest.mark.long

LIMITS: Final[dict[str, int]] = tomllib.loads((Path(__file__).parent / "limits.toml").read_text("utf-8"))["commit"]

SENDS: Final = 2 * MAX_NEW_TASKS
WARM_UP: Final = 512  # sends after which the trees have their depth

FRAME_BYTES: Final = 4096 + 24  # of the write-ahead log: a page and its header


@dataclass
class Commits:
    """Pages and statements of every first and last commit of the sends."""

    pages: tuple[list[int], list[int]] = field(default_factory=lambda: ([], []))
    statements: tuple[list[int], list[int]] = field(default_factory=lambda: ([], []))


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    """A store without checkpoints, so that its log grows with every page."""
    timings = replace(DEFAULT_TIMINGS, checkpoint_interval=10**6, target_wal_pages=10**6, max_wal_bytes=10**10)
    store = open_store(tmp_path / "tasks.db", timings=timings)
    yield store
    await store.close()


async def measured(store: SqliteStore) -> Commits:
    """Sends one message after the other."""
    log, found = store.path.with_name(store.path.name + "-wal"), Commits()
    sent: list[str] = []

    async def commit(at: int, append: Awaitable[Any]) -> Any:
        size = log.stat().st_size
        sent.clear()
        result = await append
        found.pages[at].append((log.stat().st_size - size) // FRAME_BYTES)
        found.statements[at].append(len(sent))
        return result

    for number in range(WARM_UP + SENDS):
        if number == WARM_UP:
            found = Commits()
            store.writer.connection.set_trace_callback(sent.append)
        context = sha256(bytes(number)).hexdigest()
        claimed = await commit(0, store.append(created(new_ref(), claim=1, context=context)))
        end = by_runner(claimed, artifact("output", "hello"), status(states.COMPLETED), end=True)
        await commit(1, store.append(end))
    store.writer.connection.set_trace_callback(None)
    return found


async def test_the_commits_of_a_lone_send_stay_within_their_limits(store: SqliteStore) -> None:
    found = await measured(store)
    seen = {
        "first_pages": mode(found.pages[0]),
        "last_pages": mode(found.pages[1]),
        "pages_of_a_hundred": sum(map(sum, found.pages)) * 100 // (2 * SENDS),
        "first_statements": mode(found.statements[0]),
        "last_statements": mode(found.statements[1]),
    }
    assert {name: count for name, count in seen.items() if count > LIMITS[name]} == {}
    slack = {name: count for name, count in seen.items() if count < LIMITS[name] * 0.97}
    assert slack == {}, "lower the limits to these"


async def test_a_further_index_of_new_tasks_is_found(store: SqliteStore) -> None:
    await store.writer.submit(lambda connection: connection.execute("CREATE INDEX planted ON tasks (updated)"))
    found = await measured(store)
    assert mode(found.pages[0]) > LIMITS["first_pages"]
    assert mode(found.pages[1]) > LIMITS["last_pages"]
