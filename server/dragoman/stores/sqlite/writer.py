"""The one thread that writes: group commit.

It takes whatever the loop has gathered for it, applies it in one transaction, commits once and wakes all callers
of the batch with one call into their loop. A change whose guard does not hold is refused alone. Should the database
itself refuse an item (which no guard foresaw), the batch is rolled back and each item tried on its own, so that its
neighbours never pay for it; nobody was told of the batch before.

Work that may wait (`low`) has a slot of its own: one piece at a time, each in its own transaction, while no change
waits; after `PATIENCE` commits it gets one turn all the same.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from queue import Empty, SimpleQueue
from typing import Any, Final

from dragoman.core.counting import Commits
from dragoman.core.log import Append, Refused
from dragoman.core.names import Owner
from dragoman.stores.sqlite.apply import Transaction
from dragoman.stores.sqlite.checkpoint import Checkpointer
from dragoman.stores.sqlite.folding import Growth
from dragoman.stores.sqlite.gathering import Gathering
from dragoman.stores.sqlite.standing import Counters
from dragoman.stores.sqlite.trouble import explain, outage

log = logging.getLogger("dragoman.store")

BATCH: Final = 512
"""Changes after which a commit takes no more: bounds how long the first of them waits for the last."""

PATIENCE: Final = 64
"""Commits that waiting low work lets pass, so that a store without a pause is kept in order too."""

Job = Append | Callable[[sqlite3.Connection], Any]


class Nudge(Enum):
    """Wakes the writer for something else than a change."""

    LOW = "low"
    CLOSE = "close"


@dataclass(slots=True)
class Waiting:
    """A change, and who waits for it. A callable is any other write, on the writer's connection."""

    job: Job
    future: asyncio.Future[Any]


@dataclass(slots=True)
class Urgent:
    """A write that goes before all others, and the thread that waits for it."""

    job: Callable[[sqlite3.Connection], Any]
    done: threading.Event = field(default_factory=threading.Event)
    error: Exception | None = None


@dataclass(slots=True)
class Done:
    future: asyncio.Future[Any]
    result: Any = None
    error: Exception | None = None

    def deliver(self) -> None:
        if self.future.done():  # whoever waited was cancelled; what is written stays written
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.result)


class Writer:
    """Owns the writing connection and its thread."""

    def __init__(self, connection: sqlite3.Connection, clock: Callable[[], int], checkpointer: Checkpointer) -> None:
        self._connection = connection
        self._clock = clock
        self._checkpointer = checkpointer
        self._owners: dict[Owner, int] = {}
        self._growth = Growth()
        self.counters = Counters()
        """For jobs on this thread alone."""
        self.commits = Commits()
        self._queue: SimpleQueue[list[Waiting] | Urgent | Nudge] = SimpleQueue()
        self._gathering = Gathering(self._hand_over, BATCH)
        self._urgent: deque[Urgent] = deque()
        self._low: deque[Waiting] = deque()
        self._passed = 0
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="dragoman-writer", daemon=True)
        self._thread.start()

    def submit(self, job: Job, *, low: bool = False) -> asyncio.Future[Any]:
        """Queues a write for the next commit, or one of its own when nothing else waits (`low`).

        The future belongs to the running loop.
        """
        future = asyncio.get_running_loop().create_future()
        if self._closed:
            future.set_exception(RuntimeError("the store is closed"))
        elif low:
            self._low.append(Waiting(job, future))
            self._queue.put(Nudge.LOW)
        else:
            self._gathering.add(Waiting(job, future))
        return future

    def flush(self) -> None:
        """Has the thread take what was submitted so far. To be called on the loop, before `close` elsewhere."""
        self._gathering.flush()

    def _hand_over(self, work: list[Waiting]) -> None:
        if self._closed:
            for item in work:
                Done(item.future, error=RuntimeError("the store is closed")).deliver()
        else:
            self._queue.put(work)

    def first(self, job: Callable[[sqlite3.Connection], Any]) -> None:
        """Runs a write in the next commit, before whatever waits. Blocks. Raises what the write raised."""
        if self._closed:
            raise RuntimeError("the store is closed")
        urgent = Urgent(job)
        self._urgent.append(urgent)
        self._queue.put(urgent)  # only to wake the thread
        urgent.done.wait()
        if urgent.error is not None:
            raise urgent.error

    def forget_owners(self) -> None:
        """For a job that took owners away: their numbers are looked up again."""
        self._owners.clear()

    def close(self) -> None:
        """Commits what waits and ends the thread. Blocks; may be called twice."""
        if not self._closed:
            self._closed = True
            self._queue.put(Nudge.CLOSE)
        self._thread.join()

    def _run(self) -> None:
        open_for_more = True
        while open_for_more:
            work, open_for_more = self._take()
            self._serve_urgent()
            self._write(work)
            self._passed += 1
            while open_for_more and self._low and (self._idle or self._passed > PATIENCE):
                self._passed = 0
                self._write([self._low.popleft()])
        while self._low:
            self._write([self._low.popleft()])
        self._serve_urgent()
        self._checkpointer.empty(self._connection)
        self._connection.close()

    @property
    def _idle(self) -> bool:
        """Whether no change waits, nor is about to be handed over."""
        return self._queue.empty() and not self._gathering

    def _serve_urgent(self) -> None:
        while self._urgent:
            urgent = self._urgent.popleft()
            try:
                self._begin()
                urgent.job(self._connection)
                self._connection.execute("COMMIT")
            except Exception as error:
                urgent.error = error
                self._roll_back()
            finally:
                urgent.done.set()

    def _write(self, work: list[Waiting]) -> None:
        if work:
            self._deliver(self._commit(work))
            self._checkpointer.committed(self._connection)

    def _take(self) -> tuple[list[Waiting], bool]:
        """What waits, and whether there may be more."""
        work: list[Waiting] = []
        came = self._queue.get()
        try:
            while True:
                if came is Nudge.CLOSE:
                    return work, False
                if isinstance(came, list):
                    work += came
                if len(work) >= BATCH:
                    return work, True
                came = self._queue.get_nowait()
        except Empty:
            return work, True

    def _commit(self, batch: list[Waiting]) -> list[Done]:
        try:
            return self._together(batch)
        except Exception:
            if len(batch) > 1:
                log.warning("a batch of %d writes was rolled back; trying each alone", len(batch))
        done = []
        for item in batch:
            try:
                done += self._together([item])
            except Exception as error:
                trouble = outage(error)
                if trouble is error:
                    log.exception("a write failed")
                else:
                    log.error("a write failed: %s", explain(error))
                done.append(Done(item.future, error=trouble))
        return done

    def _together(self, batch: list[Waiting]) -> list[Done]:
        connection, began = self._connection, time.perf_counter()
        self._begin()
        try:
            transaction = Transaction(connection, self._clock, self._owners, self._growth, self.counters)
            transaction.look(item.job for item in batch if isinstance(item.job, Append))
            done = [self._one(transaction, item) for item in batch]
            transaction.finish()
            connection.execute("COMMIT")
        except BaseException:
            self.commits.failed += 1
            self._owners.clear()  # numbers given inside the transaction went with it
            self.counters.forget()
            self._roll_back()
            raise
        self.commits.changes.add(len(batch))
        self.commits.seconds.add(time.perf_counter() - began)
        return done

    def _begin(self) -> None:
        if self._connection.in_transaction:  # the rollback of an earlier one failed, as its commit had
            self._connection.execute("ROLLBACK")
        self._connection.execute("BEGIN IMMEDIATE")

    def _roll_back(self) -> None:
        """Undoes what was begun. When that fails too, the next to begin tries again: what failed first is told."""
        if self._connection.in_transaction:
            with suppress(sqlite3.Error):
                self._connection.execute("ROLLBACK")

    def _one(self, transaction: Transaction, item: Waiting) -> Done:
        try:
            if isinstance(item.job, Append):
                return Done(item.future, transaction.apply(item.job))
            return Done(item.future, transaction.other(item.job))
        except Refused as refused:  # before anything of it was written
            return Done(item.future, error=refused)

    def _deliver(self, done: list[Done]) -> None:
        by_loop: dict[asyncio.AbstractEventLoop, list[Done]] = {}
        for item in done:
            by_loop.setdefault(item.future.get_loop(), []).append(item)
        for loop, items in by_loop.items():
            try:
                loop.call_soon_threadsafe(_deliver_all, items)
            except RuntimeError:  # that loop is closed: nobody is left to be told
                log.debug("%d writers went away before their commit", len(items))


def _deliver_all(items: list[Done]) -> None:
    for item in items:
        item.deliver()
