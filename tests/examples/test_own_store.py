"""The example of a store: the contract, its feed, and `--store MODULE:FUNCTION`."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from examples.own_store import FeedStore, open_feed_store
from tests.cli.server import serving

from dragoman.client import connect
from dragoman.testing.contracts import StoreContract

EXAMPLE = Path(__file__).parents[2] / "examples" / "own_store.py"


class TestOwnStore(StoreContract):
    """Also the proof for `--store memory:`, whose tasks are in the same kind of file."""

    @pytest.fixture
    async def store(self, tmp_path: Path, clock: Callable[[], int]) -> AsyncIterator[FeedStore]:
        store = open_feed_store(tmp_path / "feed.jsonl", clock=clock)
        yield store
        await store.close()


async def test_it_is_served_and_committed_events_are_in_its_feed(tmp_path: Path) -> None:
    with serving("--store", f"{EXAMPLE}:open_feed_store", cwd=tmp_path) as server:
        async with connect(server.http) as client:
            result = await client.ask("echo hello")
        lines = [json.loads(line) for line in (tmp_path / "feed.jsonl").read_text().splitlines()]
    assert {line["task"] for line in lines} == {result.task_id}
    assert [line["sequence"] for line in lines] == list(range(1, len(lines) + 1))
    assert lines[0]["event"]["task"]["status"]["state"] == "TASK_STATE_SUBMITTED"
    assert lines[-1]["event"]["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"
    assert [path.name for path in tmp_path.iterdir()] == ["feed.jsonl"]
