"""Reads the store of a chaos run: all tasks at the end, and samples while a server runs."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import closing
from pathlib import Path

from tests.chaos.history import EventKeys, Sampled, digest, shape
from tests.chaos.targets.agents import RETRIES
from tests.chaos_checker.checker import StoredEvent, StoredTask

from dragoman.core.names import Owner, task_id_of
from dragoman.core.task import states
from dragoman.core.task.cursors import TaskQuery
from dragoman.core.task.projection import fold
from dragoman.ports import Store
from dragoman.stores.sqlite import open_store
from dragoman.stores.sqlite.schema import connect
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

OWNER = Owner("default", "anonymous")
AGENTS = ("once", "again")
ALL = 1_000_000
CLAIMED_ELSEWHERE = "SELECT task FROM tasks WHERE session > 0 AND session != (SELECT max(session) FROM sessions)"
STUCK = "SELECT task FROM tasks WHERE state = ? AND session = 0 AND NOT ready"
UNPUSHED = (
    "SELECT count(*) FROM pushes p JOIN tasks t USING (owner, task)"
    " WHERE p.state = 0 AND p.last_delivered < t.last_sequence"
)
EXAMPLES = "SELECT task FROM tasks WHERE session > 0 OR ready LIMIT 3"
COUNTS = "SELECT coalesce(sum(ready), 0), coalesce(sum(session > 0), 0) FROM tasks"


async def read_all(
    path: Path, turns: Path, began: float = 0.0, shown: EventKeys | None = None, agents: Sequence[str] = AGENTS
) -> dict[str, StoredTask]:
    """Reads every visible task with its log.

    turns: the file with the calls of agents. began: the start of the run, in seconds of the epoch. shown: the events
    whose shape is needed, None for all: the shapes of a long log take longer than the rest.
    """
    store = open_store(path)
    try:
        return await read_store(store, agents, turns, began, shown)
    finally:
        await store.close()


async def read_store(
    store: Store, agents: Sequence[str], turns: Path, began: float, shown: EventKeys | None = None
) -> dict[str, StoredTask]:
    """`read_all` for an open store."""
    begun = Counter(turns.read_text().split()) if turns.exists() else Counter[str]()
    found = {}
    for agent in agents:
        async for task in _tasks(store, agent):
            attempts = 1 + RETRIES if "again" in agent else 1
            found[task.id] = await _kept(store, agent, task, attempts, begun[task.id], began, shown)
    return found


async def _tasks(store: Store, agent: str) -> AsyncIterator[pb.Task]:
    query = TaskQuery(OWNER, agent, page_size=100)
    while True:
        page = await store.page(query)
        for data in page.tasks:
            yield pb.Task.FromString(data)
        if page.last_key is None:
            return
        query = TaskQuery(OWNER, agent, page_size=100, after=page.last_key)


async def _kept(
    store: Store, agent: str, task: pb.Task, attempts: int, begun: int, began: float, shown: EventKeys | None
) -> StoredTask:
    head = await store.find(OWNER, agent, task.id)
    assert head is not None
    folded, events, times = pb.Task(), [], []
    for event in await store.events(head.ref, 0, ALL):
        response = pb.StreamResponse.FromString(event.data)
        fold(folded, response)
        form = shape(folded) if shown is None or (task.id, event.sequence) in shown else ""
        events.append(StoredEvent(event.sequence, digest(response), event.state, form, _text_of(response)))
        times.append(folded.status.timestamp.ToNanoseconds() / 1e9 - began)
    messages = [message for message in task.history if message.role == pb.ROLE_USER]
    return StoredTask(
        task.id,
        task.status.state,
        head.last_sequence,
        events,
        [message.message_id for message in messages],
        messages[0].parts[0].text if messages else "",
        attempts,
        begun,
        agent,
        _reason(task),
        (times[0], times[-1]),
        output=output_of(folded),
        texts=[message.parts[0].text for message in messages],
        result_text=_result_text(folded),
    )


def output_of(task: pb.Task) -> str:
    """Returns the text of the artifact to which agents stream."""
    texts = ["".join(part.text for part in one.parts) for one in task.artifacts if one.artifact_id == "output"]
    return "".join(texts)


def _text_of(event: pb.StreamResponse) -> str:
    """The text that an event brings."""
    parts = event.artifact_update.artifact.parts or event.status_update.status.message.parts
    return "".join(part.text for part in parts)


def _result_text(task: pb.Task) -> str:
    """The text of a task's result."""
    parts = [part for artifact in task.artifacts for part in artifact.parts]
    if task.status.state != states.COMPLETED or not parts:
        parts = list(task.status.message.parts)
    return "".join(part.text for part in parts)


def _reason(task: pb.Task) -> str:
    """Returns the reason if the server ended the task; otherwise empty."""
    struct = task.status.message.metadata
    return str(struct["reason"]) if "reason" in struct else ""


def sample(path: Path, *, at: float, up: float, slots: int) -> Sampled:
    """Samples the SQLite file of a running server."""
    with closing(connect(path, readonly=True)) as connection:
        connection.execute("BEGIN")
        waiting, running = connection.execute(COUNTS).fetchone()
        return Sampled(
            at=at,
            up=up,
            orphans=_ids(connection.execute(CLAIMED_ELSEWHERE)),
            stuck=_ids(connection.execute(STUCK, (states.SUBMITTED,))),
            waiting=waiting,
            running=running,
            slots=slots,
            such=_ids(connection.execute(EXAMPLES)),
        )


def unpushed(path: Path) -> int:
    """Counts the webhooks with undelivered events."""
    with closing(connect(path, readonly=True)) as connection:
        count: int = connection.execute(UNPUSHED).fetchone()[0]
        return count


def _ids(rows: sqlite3.Cursor) -> list[str]:
    return [task_id_of(key) for (key,) in rows]
