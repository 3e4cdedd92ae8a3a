"""A store of your own: `dragoman serve --store examples/own_store.py:open_feed_store`.

`--store MODULE:FUNCTION` takes whatever implements `dragoman.ports.Store` and passes its contract suite
(`dragoman.testing.contracts`; tests/examples/test_own_store.py runs it here). A store need not be written from nothing:
this one is composed. Tasks are in a temporary SQLite file, which is deleted at the end, as with `--store memory:`. What
it adds is a feed: each committed event becomes a line in a file, for a data warehouse or a search index:

    {"agent": "echo", "task": "0199...", "principal": "alice", "sequence": 3, "event": {"statusUpdate": {...}}}
"""

from __future__ import annotations

import asyncio
import logging
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import orjson
from google.protobuf import json_format

from dragoman.core.task.log import Append, Appended
from dragoman.ports import Store
from dragoman.stores.sqlite import open_store
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

log = logging.getLogger("own_store")


class FeedStore:
    """A store whose committed events are also lines of a file.

    Only `append` and `close` differ: all other calls go to the store inside.
    """

    def __init__(self, store: Store, feed: IO[bytes], on_close: Callable[[], None] = lambda: None) -> None:
        """on_close: called once, after the store was closed."""
        self._store = store
        self._feed = feed
        self._on_close = on_close

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def append(self, change: Append) -> asyncio.Future[Appended]:
        """Writes a change, and after its commit the events.

        The callback was added first, so a line is written before any caller sees the event. Results of one task come
        in the order of its commits. A crash between commit and line loses the line: readers notice the gap in
        `sequence`, and `Store.events` returns what is missing.
        """
        future = self._store.append(change)
        future.add_done_callback(self._write_lines)
        return future

    async def close(self) -> None:
        """Closes both. May be called twice, as every store allows."""
        await self._store.close()
        if not self._feed.closed:
            await asyncio.sleep(0)  # callbacks of the last commits
            self._feed.close()
            self._on_close()

    def _write_lines(self, future: asyncio.Future[Appended]) -> None:
        if future.cancelled() or future.exception() is not None:  # rejected: nothing was committed
            return
        record = future.result().record
        for event in future.result().events:
            line = {
                "agent": record.agent,
                "task": record.id,
                "principal": record.principal,
                "sequence": event.sequence,
                "event": json_format.MessageToDict(pb.StreamResponse.FromString(event.data)),
            }
            try:
                self._feed.write(orjson.dumps(line) + b"\n")
            except OSError:
                log.exception("the feed lacks event %d of task %s", event.sequence, record.id)


def open_feed_store(feed: Path | None = None, **options: Any) -> FeedStore:
    """Opens a new store. `dragoman serve` calls it without arguments; it may also be `async def`.

    feed: by default OWN_STORE_FEED, or ./feed.jsonl. options: those of `dragoman.stores.sqlite.open_store`.
    """
    feed = feed or Path(os.environ.get("OWN_STORE_FEED", "feed.jsonl"))
    folder = tempfile.TemporaryDirectory(prefix="own-store-", ignore_cleanup_errors=True)
    store = open_store(Path(folder.name, "tasks.db"), synchronous="normal", **options)
    return FeedStore(store, feed.open("ab", buffering=0), folder.cleanup)
