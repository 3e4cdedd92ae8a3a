"""An extension that brings a store: `dragoman serve --store feed:///feed.jsonl`, once it is installed.

A store is whatever implements `dragoman.ports.Store` and passes its contract suite (`dragoman.testing.contracts`;
tests/examples/test_feed_store.py runs it here). It need not be written from nothing: this one is composed. Tasks are in
a temporary SQLite file, which is deleted at the end. What it adds is a feed: each committed event becomes a line in a
file, for a data warehouse or a search index:

    {"agent": "echo", "task": "0199...", "principal": "alice", "sequence": 3, "event": {"statusUpdate": {...}}}

The entry point in pyproject.toml names EXTENSION. Without an installation, a function opens a store, too: `dragoman
serve --store examples/feed_store/dragoman_feed.py:open_feed_store`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, Annotated, Any, Final

import orjson
from google.protobuf import json_format
from pydantic import BaseModel, ConfigDict

from dragoman.core.task.log import Append, Appended
from dragoman.ports import Store
from dragoman.ports.extension import Option, ServerExtension, StoreRequest, StoreScheme
from dragoman.stores.sqlite import open_store
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

log = logging.getLogger("dragoman_feed")


class FeedStore:
    """A store whose committed events are also lines of a file.

    Only `append` and `close` differ: all other calls go to the store inside.
    """

    def __init__(
        self, store: Store, feed: IO[bytes], on_close: Callable[[], None] = lambda: None, *, sync: bool = False
    ) -> None:
        """on_close: called once, after the store was closed. sync: wait for the disk after each line."""
        self._store = store
        self._feed = feed
        self._on_close = on_close
        self._sync = sync

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
                if self._sync:
                    os.fsync(self._feed.fileno())
            except OSError:
                log.exception("the feed lacks event %d of task %s", event.sequence, record.id)


def open_feed_store(feed: Path | None = None, *, sync: bool = False, **options: Any) -> FeedStore:
    """Opens a new store. `--store MODULE:FUNCTION` calls it without arguments; it may also be `async def`.

    feed: by default FEED, or ./feed.jsonl. options: those of `dragoman.stores.sqlite.open_store`.
    """
    feed = feed or Path(os.environ.get("FEED", "feed.jsonl"))
    folder = tempfile.TemporaryDirectory(prefix="feed-store-", ignore_cleanup_errors=True)
    store = open_store(Path(folder.name, "tasks.db"), synchronous="normal", **options)
    return FeedStore(store, feed.open("ab", buffering=0), folder.cleanup, sync=sync)


class FeedSettings(BaseModel):
    """`--feed-sync`, DRAGOMAN_FEED_SYNC, or `sync` in the table `[extensions.feed]` of a settings file."""

    model_config = ConfigDict(frozen=True)

    sync: Annotated[bool, Option("feed_sync", "", "Wait for the disk after each line of the feed.", bool)] = False


async def open_from_url(settings: FeedSettings, request: StoreRequest) -> Store:
    """Opens the store of a URL; what it raises stops the start."""
    return open_feed_store(Path(request.url.removeprefix(PREFIX)), sync=settings.sync, sizes=request.storage)


PREFIX: Final = "feed:///"

EXTENSION: Final = ServerExtension(
    name="feed",
    title="Feed of events",
    settings=FeedSettings,
    stores={
        "feed": StoreScheme(
            url_format="feed:///PATH",
            is_valid=lambda url: url.startswith(PREFIX) and url != PREFIX,
            open=open_from_url,
        )
    },
)
"""`dragoman doctor` shows it."""
