"""Applying appends inside one transaction: the only place that writes tasks.

`core.plan` decides what is written; here are the statements. A change costs rows for what it adds and one
update of the task's head, whatever the task already holds.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

from dragoman.core.log import EXISTS, Append, Appended, Head, NewTask, Refused, TaskRef
from dragoman.core.names import Owner
from dragoman.core.plan import ArtifactRow, Plan, plan
from dragoman.stores.sqlite import contexts, joining, keys, pushes, usage
from dragoman.stores.sqlite.blobs import release_blobs, use_blobs
from dragoman.stores.sqlite.folding import Growth
from dragoman.stores.sqlite.rows import Pending, Statement
from dragoman.stores.sqlite.standing import Counters

OWNERS: Final = 16_384
"""Owners whose number is remembered."""

HEAD_COLUMNS: Final = (
    "agent, id, context, state, updated, last, messages, status_message, asked, inbox, taken,"
    " session, token, ready, visible, attempt, answered, pushed, dialect, alias, principal"
)

HEAD: Final = f"SELECT {HEAD_COLUMNS} FROM tasks WHERE owner = ? AND task = ?"
HEADS: Final = Statement(
    "WITH wanted (owner, task) AS (",
    2,
    f") SELECT t.owner, t.task, {', '.join(f't.{name.strip()}' for name in HEAD_COLUMNS.split(','))}"
    " FROM wanted w CROSS JOIN tasks t ON t.owner = w.owner AND t.task = w.task",
)
ALIAS: Final = "SELECT task FROM tasks WHERE owner = ? AND agent = ? AND id = ? AND alias"

INSERT_TASK: Final = Statement(f"INSERT INTO tasks (owner, task, created, metadata, memory, {HEAD_COLUMNS})", 26)

CHANGING: Final = (
    "state, updated, last, messages, status_message, asked, inbox, taken, session, token, ready, visible, attempt,"
    " answered, pushed"
)
UPDATE_TASK: Final = Statement(
    f"WITH made (owner, task, {CHANGING}) AS (",
    17,
    f") UPDATE tasks SET ({CHANGING}) = ({', '.join(f'made.{name.strip()}' for name in CHANGING.split(','))})"
    " FROM made WHERE tasks.owner = made.owner AND tasks.task = made.task",
)

UPDATE_MEMORY: Final = Statement(
    "WITH made (owner, task, memory) AS (",
    3,
    ") UPDATE tasks SET memory = made.memory FROM made WHERE tasks.owner = made.owner AND tasks.task = made.task",
)
INSERT_LOG: Final = Statement("INSERT INTO log (owner, task, first, count, ends, data)", 6)
INSERT_MESSAGE: Final = Statement("INSERT INTO messages (owner, task, number, role, data, envelope, sender, size)", 8)
REPLACED: Final = Statement(
    "WITH fresh (owner, task, artifact) AS (",
    3,
    ") SELECT a.owner, a.task, a.artifact FROM fresh f CROSS JOIN artifacts a"
    " ON a.owner = f.owner AND a.task = f.task AND a.artifact = f.artifact",
)
DROP_CHUNKS: Final = "DELETE FROM chunks WHERE owner = ? AND task = ? AND artifact = ?"
PUT_ARTIFACT: Final = Statement(
    "INSERT INTO artifacts (owner, task, artifact, position, head)",
    5,
    "ON CONFLICT (owner, task, artifact) DO UPDATE SET head = excluded.head",
)
ADD_ARTIFACT: Final = Statement("INSERT OR IGNORE INTO artifacts (owner, task, artifact, position, head)", 5)
INSERT_CHUNK: Final = Statement("INSERT INTO chunks (owner, task, artifact, sequence, text, data)", 6)
ADD_TOTAL: Final = """
INSERT INTO totals (owner, agent, state, tasks) VALUES (?, ?, ?, ?)
ON CONFLICT (owner, agent, state) DO UPDATE SET tasks = tasks + excluded.tasks
"""
DISCARD: Final = tuple(
    f"DELETE FROM {table} WHERE owner = ? AND task = ?" for table in ("tasks", "log", "messages", "artifacts", "chunks")
)


def head_of(ref: TaskRef, row: Sequence[Any]) -> Head:
    """The head in a row of HEAD_COLUMNS."""
    head = Head(ref, *row[:21])
    head.principal = head.principal or ref.owner.principal
    head.ready, head.visible, head.pushed = bool(head.ready), bool(head.visible), bool(head.pushed)
    head.alias = bool(head.alias)
    return head


def head_values(head: Head) -> tuple[Any, ...]:
    return (
        head.agent, head.id, head.context, head.state, head.updated, head.last, head.messages,
        head.status_message, head.asked, head.inbox, head.taken, head.session, head.token, head.ready, head.visible,
        head.attempt, head.answered, head.pushed, head.dialect, head.alias, head.principal,
    )  # fmt: skip


class Transaction:
    """One batch on the writer's connection.

    What the changes write is gathered and written by `finish`, each table at once. What an item reads of its own
    table, or takes away, has what was gathered written first.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        clock: Callable[[], int],
        owners: dict[Owner, int],
        growth: Growth,
        counters: Counters,
    ) -> None:
        self._connection = connection
        self._clock = clock
        self._owners = owners
        self._growth = growth
        self._counters = counters
        self._heads: dict[tuple[int, bytes], Head | None] = {}
        self._totals: defaultdict[tuple[int, str, int], int] = defaultdict(int)
        self._tasks, self._log, self._messages = Pending(INSERT_TASK), Pending(INSERT_LOG), Pending(INSERT_MESSAGE)
        self._put, self._added = Pending(PUT_ARTIFACT), Pending(ADD_ARTIFACT)
        self._chunks = Pending(INSERT_CHUNK)
        self._changed: dict[tuple[int, bytes], Head] = {}
        self._memories: dict[tuple[int, bytes], bytes] = {}
        self._touched: set[tuple[int, bytes, str]] = set()

    def look(self, changes: Iterable[Append]) -> None:
        """Reads the heads of the tasks that these changes are about, all at once."""
        wanted = {}
        for change in changes:
            owner = self._owner(change.task.owner, change.create is not None)
            wanted[owner, change.task.key] = change.task
        self._heads.update(dict.fromkeys(wanted))
        for owner, key, *row in HEADS.fetch(self._connection, list(wanted)):
            self._heads[owner, key] = head_of(wanted[owner, key], row)

    def other(self, job: Callable[[sqlite3.Connection], Any]) -> Any:
        """Does another write, which finds everything written that came before it, and may change what was looked at."""
        tables = self._tables()
        self._heads.clear()
        return job(tables)

    def apply(self, change: Append) -> Appended:
        """Writes one change. Raises Refused before anything of it is written."""
        ref = change.task
        owner = self._owner(ref.owner, change.create is not None)
        if (owner, ref.key) not in self._heads:
            self.look((change,))
        now = self._clock()
        if change.key is not None:
            holder = change.key.owner or ref.owner
            keys.check(self._connection, self._owner(holder, False), holder, change.key, now)
        if change.create is not None and change.create.alias:
            self._check_alias(owner, change.create)
        made = plan(self._heads[owner, ref.key], change, now)
        if change.quota is not None:
            self._counters.admit(self._tables, change.quota, made, now)
        if change.push is not None:
            pushes.check_room(self._connection, owner, made.head, change.push.id)
        if change.context is not None:
            contexts.write(self._connection, owner, made.head, change.context)
        if change.key is not None:
            first = made.before.last if made.before else 0
            keys.use(self._connection, self._owner(holder, True), owner, change.key, ref.key, first, now)
        if change.joins is not None:
            joining.join(self._connection, self._owner(change.joins, True), owner, made.head.context)
        if change.discard:
            self._counters.note(self._tables, owner, made)
            self._write_pending()
            keys.keep_reply(self._connection, owner, ref.key, change.reply)
            for statement in DISCARD:
                self._connection.execute(statement, (owner, ref.key))
            joining.forget_task(self._connection, owner, ref.key)
            release_blobs(self._connection, owner, ref.key)
            pushes.forget(self._connection, owner, ref.key)
            usage.forget(self._connection, owner, ref.key)
            self._heads[owner, ref.key] = None
        else:
            self._write(owner, made)
            if made.head.pushed:
                pushes.follow(self._connection, owner, made, now)
            self._heads[owner, ref.key] = made.head
        if change.used is not None:
            return replace(made.outcome, usage=usage.add(self._tables(), owner, ref.key, change.used))
        return made.outcome

    def finish(self) -> None:
        """Writes what was gathered, and the totals of the batch."""
        self._tables()

    def _tables(self) -> sqlite3.Connection:
        """The connection, once everything is written that there is so far."""
        self._write_pending()
        rows = [(*key, count) for key, count in self._totals.items() if count]
        if rows:
            self._connection.executemany(ADD_TOTAL, rows)
        self._totals.clear()
        return self._connection

    def _check_alias(self, owner: int, new: NewTask) -> None:
        self._write_pending()
        if self._connection.execute(ALIAS, (owner, new.agent, new.id)).fetchone():
            raise Refused(EXISTS, None)

    def _owner(self, owner: Owner, create: bool) -> int:
        """The owner's number; -1, which nobody has, for one that is not there and is not to be."""
        number = self._owners.get(owner)
        if number is None:
            values = (owner.scope, owner.principal)
            if create:
                self._connection.execute("INSERT OR IGNORE INTO owners (scope, principal) VALUES (?, ?)", values)
            query = "SELECT owner FROM owners WHERE scope = ? AND principal = ?"
            row = self._connection.execute(query, values).fetchone()
            if row is None:
                return -1
            if len(self._owners) >= OWNERS:  # callers make scopes up
                self._owners.clear()
            number = self._owners[owner] = row[0]
        return number

    def _write(self, owner: int, made: Plan) -> None:
        change, head, before = made.change, made.head, made.before
        key = head.ref.key
        if before is None:
            assert change.create is not None
            values = (owner, key, head.updated, change.create.metadata, change.memory or b"")
            self._tasks.add(values + head_values(head))
            if change.create.open:
                joining.open_task(self._connection, owner, head.context, key)
            if change.create.parent:
                usage.attach(self._connection, owner, key, change.create.parent)
        elif head != before:
            self._changed[owner, key] = head
        if change.memory is not None and before is not None:
            self._memories[owner, key] = change.memory
        if made.events:
            first, last = made.events[0].sequence, made.events[-1]
            self._log.add((owner, key, first, len(made.events), last.ends, made.log))
        for message in made.messages:
            sender = "" if message.sender == head.ref.owner.principal else message.sender
            said = message.data, message.envelope, sender, message.size
            self._messages.add((owner, key, message.number, message.role, *said))
        for row in made.artifacts:
            self._write_artifact(owner, key, row)
        use_blobs(self._connection, owner, key, change.blobs)
        self._growth.note(self._connection, owner, made)
        self._counters.note(self._tables, owner, made)
        if before is not None and before.visible:
            self._totals[owner, head.agent, before.state] -= 1
        if head.visible:
            self._totals[owner, head.agent, head.state] += 1

    def _write_artifact(self, owner: int, key: bytes, row: ArtifactRow) -> None:
        where = (owner, key, row.artifact_id)
        if row.fresh and where in self._touched:  # what it replaces is not in the table yet
            self._write_pending()
        self._touched.add(where)
        (self._put if row.fresh else self._added).add((*where, row.sequence, row.head))
        self._chunks.add((*where, row.sequence, row.text, row.data))

    def _write_pending(self) -> None:
        connection = self._connection
        self._tasks.write(connection)
        if self._changed:
            UPDATE_TASK.run(connection, [(*key, *head_values(head)[3:-3]) for key, head in self._changed.items()])
            self._changed = {}
        if self._memories:
            UPDATE_MEMORY.run(connection, [(*key, memory) for key, memory in self._memories.items()])
            self._memories = {}
        for replaced in REPLACED.fetch(connection, [row[:3] for row in self._put.rows]):
            connection.execute(DROP_CHUNKS, replaced)
        for pending in (self._log, self._messages, self._put, self._added, self._chunks):
            pending.write(connection)
        self._touched.clear()
