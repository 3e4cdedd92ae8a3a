"""What a batch writes: gathered while its changes are decided, and sent with one statement for each table.

What most batches write goes together in one statement, with what their artifacts are made of if there are any.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from asyncpg import Connection

from dragoman.core.log import Head
from dragoman.core.plan import ArtifactRow, Plan
from dragoman.stores.postgres import blobs, folding, joining, keys, pushes, standing
from dragoman.stores.postgres.heads import CHANGING, CHANGING_KINDS, KINDS, NAMES, changing, values
from dragoman.stores.postgres.rows import Statement, insert, together
from dragoman.stores.postgres.standing import Place

ADD_TOTALS: Final = insert(
    "totals",
    "itiii",
    "owner, agent, state, slot, tasks",
    "ON CONFLICT (owner, agent, state, slot) DO UPDATE SET tasks = totals.tasks + excluded.tasks",
)
_TASKS: Final = insert("tasks", "iyiyy" + KINDS, f"owner, task, created, metadata, memory, {NAMES}")
_CHANGED: Final = Statement(
    f"UPDATE tasks SET ({CHANGING}) = ({', '.join(f'r.{name.strip()}' for name in CHANGING.split(','))})"
    " FROM {rows} WHERE tasks.owner = r.owner AND tasks.task = r.task",
    "iy" + CHANGING_KINDS,
    f"owner, task, {CHANGING}",
)
_LOG: Final = insert("log", "iyiiby", "owner, task, first, count, ends, data")
_MESSAGES: Final = insert("messages", "iyiiyyti", "owner, task, number, role, data, envelope, sender, size")

_MEMORY: Final = Statement(
    "UPDATE tasks SET memory = r.memory FROM {rows} WHERE tasks.owner = r.owner AND tasks.task = r.task",
    "iyy",
    "owner, task, memory",
)
_DROP_CHUNKS: Final = Statement(
    "DELETE FROM chunks c USING {rows}"
    " WHERE c.owner = r.owner AND c.task = r.task AND c.artifact = r.artifact AND c.sequence < r.sequence",
    "iyti",
    "owner, task, artifact, sequence",
)
_PUT: Final = insert(
    "artifacts",
    "iytiy",
    "owner, task, artifact, position, head",
    "ON CONFLICT (owner, task, artifact) DO UPDATE SET head = excluded.head",
)
_ADD: Final = insert("artifacts", "iytiy", "owner, task, artifact, position, head", "ON CONFLICT DO NOTHING")
_CHUNKS: Final = insert("chunks", "iytiby", "owner, task, artifact, sequence, text, data")
_TOGETHER: Final = (_TASKS, _CHANGED, _LOG, _MESSAGES, ADD_TOTALS, standing.ADD, _DROP_CHUNKS, _PUT, _ADD, _CHUNKS)
_DISCARD: Final = tuple(
    f"DELETE FROM {table} WHERE owner = $1 AND task = $2"
    for table in ("tasks", "log", "messages", "artifacts", "chunks", "blob_uses")
)

Artifact = tuple[int, bytes, str]


@dataclass(slots=True)
class Pending:
    """Rows that wait to be sent."""

    new: dict[Place, tuple[Any, ...]] = field(default_factory=dict)
    """Created, metadata and memory of tasks that are not in the table yet; their heads are in `heads`."""
    heads: dict[Place, Head] = field(default_factory=dict)
    memories: dict[Place, bytes] = field(default_factory=dict)
    log: list[tuple[Any, ...]] = field(default_factory=list)
    messages: list[tuple[Any, ...]] = field(default_factory=list)
    put: dict[Artifact, tuple[int, bytes]] = field(default_factory=dict)
    """Artifacts that are replaced: position and head."""
    added: dict[Artifact, tuple[int, bytes]] = field(default_factory=dict)
    """Artifacts that are there from now on, if they were not before."""
    dropped: dict[Artifact, int] = field(default_factory=dict)
    """Chunks before this sequence go."""
    chunks: dict[Artifact, list[tuple[int, bool, bytes]]] = field(default_factory=dict)
    keys: dict[keys.Name, keys.Used] = field(default_factory=dict)
    joined: set[tuple[int, int, str]] = field(default_factory=set)
    opened: list[tuple[str, int, bytes]] = field(default_factory=list)
    told: set[Place] = field(default_factory=set)
    """Tasks of whose events receivers are to be told."""
    used: set[tuple[int, bytes, bytes]] = field(default_factory=set)
    """Tasks, and blobs they refer to from now on."""
    grown: list[tuple[int, bytes, int]] = field(default_factory=list)
    long: list[tuple[int, int, bytes]] = field(default_factory=list)

    def add(self, place: Place, made: Plan) -> None:
        """What a change writes of its task."""
        change, head, before = made.change, made.head, made.before
        if before is None:
            assert change.create is not None
            self.new[place] = head.updated, change.create.metadata, change.memory or b""
            self.heads[place] = head
        else:
            if head != before:
                self.heads[place] = head
            if change.memory is not None:
                self.memories[place] = change.memory
        if made.events:
            first, last = made.events[0].sequence, made.events[-1]
            self.log.append((*place, first, len(made.events), last.ends, made.log))
        for message in made.messages:
            sender = "" if message.sender == head.ref.owner.principal else message.sender
            said = message.data, message.envelope, sender, message.size
            self.messages.append((*place, message.number, message.role, *said))
        for row in made.artifacts:
            self._artifact((*place, row.artifact_id), row)

    def _artifact(self, where: Artifact, row: ArtifactRow) -> None:
        known = self.put.get(where) or self.added.get(where)
        position = known[0] if known else row.sequence
        if row.fresh:
            self.added.pop(where, None)
            self.put[where] = position, row.head
            self.dropped[where] = row.sequence
            self.chunks[where] = []
        elif known is None:
            self.added[where] = position, row.head
        self.chunks.setdefault(where, []).append((row.sequence, row.text, row.data))

    async def write(self, connection: Connection, totals: Sequence[Any], standings: Sequence[Any], now: int) -> None:
        """Sends what waits, and these counts."""
        await self._mostly(connection, totals, standings)
        await _MEMORY.run(connection, [(*place, memory) for place, memory in self.memories.items()])
        await keys.use(connection, self.keys)
        await joining.join(connection, self.joined)
        await joining.open_tasks(connection, self.opened)
        await pushes.TELL.run(connection, sorted(self.told), now)
        await blobs.USE.run(connection, sorted(self.used))
        await folding.GREW.run(connection, sorted(self.grown))
        await folding.ENDED.run(connection, self.long)

    async def _mostly(self, connection: Connection, totals: Sequence[Any], standings: Sequence[Any]) -> None:
        new = [(*place, *row, *values(self.heads[place])) for place, row in self.new.items()]
        changed = [(*place, *changing(head)) for place, head in self.heads.items() if place not in self.new]
        rows: list[Sequence[Any]] = [new, changed, self.log, self.messages, totals, standings]
        if self.chunks:
            rows += self._parts()
        kinds = tuple(one for one, some in zip(_TOGETHER, rows, strict=False) if some)
        if kinds:
            lots = zip(kinds, filter(None, rows), strict=True)
            await connection.execute(together(kinds), *(column for one, some in lots for column in one.columns(some)))

    def _parts(self) -> list[Sequence[Any]]:
        return [
            [(*where, sequence) for where, sequence in self.dropped.items()],
            [(*where, *row) for where, row in self.put.items()],
            [(*where, *row) for where, row in self.added.items()],
            [(*where, *row) for where, rows in self.chunks.items() for row in rows],
        ]


async def discard(connection: Connection, place: Place) -> None:
    """Takes away a task that nobody saw. What waits has to be sent before."""
    await blobs.loosen(connection, [place])
    for statement in _DISCARD:
        await connection.execute(statement, *place)
