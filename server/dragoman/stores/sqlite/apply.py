"""Applying appends inside one transaction: the only place that writes tasks.

`core.plan` decides what is written; here are the statements. A change costs rows for what it adds and one
update of the task's head, whatever the task already holds.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from dragoman.core.log import EXISTS, Append, Appended, Head, NewTask, Refused, TaskRef
from dragoman.core.names import Owner
from dragoman.core.plan import Plan, plan
from dragoman.stores.sqlite import contexts, keys
from dragoman.stores.sqlite.blobs import release_blobs, use_blobs
from dragoman.stores.sqlite.folding import Growth

HEAD_COLUMNS: Final = (
    "agent, id, context, state, updated, last, messages, status_message, asked, inbox, taken,"
    " session, token, ready, visible, attempt, answered, dialect, alias"
)

HEAD: Final = f"SELECT {HEAD_COLUMNS} FROM tasks WHERE owner = ? AND task = ?"
ALIAS: Final = "SELECT task FROM tasks WHERE owner = ? AND agent = ? AND id = ? AND alias"

INSERT_TASK: Final = f"""
INSERT INTO tasks (owner, task, created, metadata, memory, {HEAD_COLUMNS})
VALUES (?, ?, ?, ?, ?, {", ".join("?" * 19)})
"""

UPDATE_TASK: Final = """
UPDATE tasks SET state = ?, updated = ?, last = ?, messages = ?, status_message = ?, asked = ?, inbox = ?,
    taken = ?, session = ?, token = ?, ready = ?, visible = ?, attempt = ?, answered = ?
WHERE owner = ? AND task = ?
"""

UPDATE_MEMORY: Final = "UPDATE tasks SET memory = ? WHERE owner = ? AND task = ?"
INSERT_LOG: Final = "INSERT INTO log VALUES (?, ?, ?, ?, ?, ?)"
INSERT_MESSAGE: Final = "INSERT INTO messages VALUES (?, ?, ?, ?, ?, ?)"
DROP_CHUNKS: Final = "DELETE FROM chunks WHERE owner = ? AND task = ? AND artifact = ?"
PUT_ARTIFACT: Final = """
INSERT INTO artifacts (owner, task, artifact, position, head) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (owner, task, artifact) DO UPDATE SET head = excluded.head
"""
ADD_ARTIFACT: Final = "INSERT OR IGNORE INTO artifacts (owner, task, artifact, position, head) VALUES (?, ?, ?, ?, ?)"
INSERT_CHUNK: Final = "INSERT INTO chunks VALUES (?, ?, ?, ?, ?, ?)"
ADD_TOTAL: Final = """
INSERT INTO totals VALUES (?, ?, ?, ?)
ON CONFLICT (owner, agent, state) DO UPDATE SET tasks = tasks + excluded.tasks
"""
DISCARD: Final = tuple(
    f"DELETE FROM {table} WHERE owner = ? AND task = ?" for table in ("tasks", "log", "messages", "artifacts", "chunks")
)


def head_of(ref: TaskRef, row: tuple[Any, ...]) -> Head:
    """The head in a row of HEAD_COLUMNS."""
    head = Head(ref, *row[:19])
    head.ready, head.visible, head.alias = bool(head.ready), bool(head.visible), bool(head.alias)
    return head


def head_values(head: Head) -> tuple[Any, ...]:
    return (
        head.agent, head.id, head.context, head.state, head.updated, head.last, head.messages,
        head.status_message, head.asked, head.inbox, head.taken, head.session, head.token, head.ready, head.visible,
        head.attempt, head.answered, head.dialect, head.alias,
    )  # fmt: skip


@dataclass(slots=True)
class Transaction:
    """One batch on the writer's connection. Totals are added up and written once, by `finish`."""

    connection: sqlite3.Connection
    clock: Callable[[], int]
    owners: dict[Owner, int]
    growth: Growth
    totals: defaultdict[tuple[int, str, int], int] = field(default_factory=lambda: defaultdict(int))

    def apply(self, change: Append) -> Appended:
        """Writes one change. Raises Refused before anything of it is written."""
        ref = change.task
        owner = self._owner(ref.owner, change.create is not None)
        now = self.clock()
        if change.key is not None:
            keys.check(self.connection, owner, ref.owner, change.key, now)
        row = self.connection.execute(HEAD, (owner, ref.key)).fetchone()
        if change.create is not None and change.create.alias:
            self._check_alias(owner, change.create)
        made = plan(head_of(ref, row) if row else None, change, now)
        if change.context is not None:
            contexts.write(self.connection, owner, made.head, change.context)
        if change.key is not None:
            keys.use(self.connection, owner, change.key, ref.key, made.before.last if made.before else 0, now)
        if change.discard:
            keys.keep_reply(self.connection, owner, ref.key, change.reply)
            for statement in DISCARD:
                self.connection.execute(statement, (owner, ref.key))
            release_blobs(self.connection, owner, ref.key)
        else:
            self._write(owner, made)
        return made.outcome

    def finish(self) -> None:
        """Writes the totals of the batch."""
        rows = [(*key, count) for key, count in self.totals.items() if count]
        if rows:
            self.connection.executemany(ADD_TOTAL, rows)

    def _check_alias(self, owner: int, new: NewTask) -> None:
        if self.connection.execute(ALIAS, (owner, new.agent, new.id)).fetchone():
            raise Refused(EXISTS, None)

    def _owner(self, owner: Owner, create: bool) -> int:
        """The owner's number; -1, which nobody has, for one that is not there and is not to be."""
        number = self.owners.get(owner)
        if number is None:
            values = (owner.scope, owner.principal)
            if create:
                self.connection.execute("INSERT OR IGNORE INTO owners (scope, principal) VALUES (?, ?)", values)
            query = "SELECT owner FROM owners WHERE scope = ? AND principal = ?"
            row = self.connection.execute(query, values).fetchone()
            if row is None:
                return -1
            number = self.owners[owner] = row[0]
        return number

    def _write(self, owner: int, made: Plan) -> None:
        execute, change, head, before = self.connection.execute, made.change, made.head, made.before
        key = head.ref.key
        if before is None:
            assert change.create is not None
            values = (owner, key, head.updated, change.create.metadata, change.memory or b"")
            execute(INSERT_TASK, values + head_values(head))
        elif head != before:
            execute(UPDATE_TASK, (*head_values(head)[3:-2], owner, key))
        if change.memory is not None and before is not None:
            execute(UPDATE_MEMORY, (change.memory, owner, key))
        if made.events:
            first, last = made.events[0].sequence, made.events[-1]
            execute(INSERT_LOG, (owner, key, first, len(made.events), last.ends, made.log))
        for message in made.messages:
            execute(INSERT_MESSAGE, (owner, key, message.number, message.role, message.data, message.envelope))
        for row in made.artifacts:
            if row.fresh:
                execute(DROP_CHUNKS, (owner, key, row.artifact_id))
            put = PUT_ARTIFACT if row.fresh else ADD_ARTIFACT
            execute(put, (owner, key, row.artifact_id, row.sequence, row.head))
            execute(INSERT_CHUNK, (owner, key, row.artifact_id, row.sequence, row.text, row.data))
        use_blobs(self.connection, owner, key, change.blobs)
        self.growth.note(self.connection, owner, made)
        if before is not None and before.visible:
            self.totals[owner, head.agent, before.state] -= 1
        if head.visible:
            self.totals[owner, head.agent, head.state] += 1
