"""Push configurations, their cursors and their tries: the statements. What they mean is decided in `core.push`.

A task whose head says `pushed` has one that is live. An append to such a task marks those that have nothing to do as
due, so what is to be delivered is found by an index, whatever else is stored, and after a crash as before it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any, Final

from dragoman.core import states
from dragoman.core.log import ABSENT, CROWDED, Head, Refused, TaskRef
from dragoman.core.names import Owner
from dragoman.core.plan import Plan
from dragoman.core.push import KEPT, Attempt, Push, PushState, Settled, placed, revived, settle
from dragoman.core.webhook import MOST, PushConfig

Key = tuple[TaskRef, str]

_CONFIG: Final = "url, token, scheme, credentials, dialect"
_PLACE: Final = "created, delivered, shown, state, why, tries, failing, due, session, claims, attempts"
_COLUMNS: Final = ", ".join(f"p.{name.strip()}" for name in f"id, {_CONFIG}, {_PLACE}".split(","))
_OF_TASK: Final = "t.last, t.state, t.id, t.agent"
_OWNER: Final = "SELECT owner FROM owners WHERE scope = ? AND principal = ?"
_ONE: Final = f"""
SELECT {_COLUMNS}, {_OF_TASK} FROM tasks t JOIN pushes p USING (owner, task)
WHERE t.owner = ? AND t.task = ? AND p.id = ?
"""
_ALL: Final = f"""
SELECT {_COLUMNS}, {_OF_TASK} FROM tasks t JOIN pushes p USING (owner, task)
WHERE t.owner = ? AND t.task = ? ORDER BY p.created, p.id
"""
_HEAD: Final = "SELECT last, state, id, agent FROM tasks t WHERE owner = ? AND task = ?"
_PUT: Final = f"""
INSERT OR REPLACE INTO pushes (owner, task, id, host, {_CONFIG}, {_PLACE}) VALUES ({", ".join("?" * 20)})
"""
_MOVE: Final = """
UPDATE pushes SET delivered = ?, shown = ?, state = ?, why = ?, tries = ?, failing = ?, due = ?, session = ?,
    claims = ?, attempts = ?
WHERE owner = ? AND task = ? AND id = ?
"""
_TRIED: Final = """
INSERT OR REPLACE INTO deliveries (owner, task, id, slot, number, sequence, at, status, error, ms)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_TRIES: Final = """
SELECT sequence, at, status, error, ms FROM deliveries WHERE owner = ? AND task = ? AND id = ? ORDER BY number DESC
"""
_COUNT: Final = "SELECT count(*) FROM pushes WHERE owner = ? AND task = ? AND id != ?"
_DUE: Final = "UPDATE pushes SET due = ? WHERE owner = ? AND task = ? AND due = 0 AND state = 0"
_VISIBLE: Final = "SELECT 1 FROM tasks WHERE owner = ? AND task = ? AND visible"
_PUSHED: Final = """
UPDATE tasks SET pushed = EXISTS (SELECT 1 FROM pushes WHERE owner = ?1 AND task = ?2 AND state = 0)
WHERE owner = ?1 AND task = ?2
"""
_HOST: Final = "SELECT host FROM pushes WHERE due > 0 AND host > ? ORDER BY host LIMIT 1"
_ALIVE: Final = "SELECT session FROM sessions WHERE expires > ?"
_OF_HOST: Final = f"""
SELECT o.scope, o.principal, p.task, {_COLUMNS}, {_OF_TASK}
FROM pushes p INDEXED BY pushes_due CROSS JOIN tasks t USING (owner, task) CROSS JOIN owners o USING (owner)
WHERE p.due > 0 AND p.host = ? AND p.due <= ? AND t.visible AND p.session NOT IN ({_ALIVE}) ORDER BY p.due LIMIT ?
"""
_WAITING: Final = f"""
SELECT o.scope, o.principal, p.task, {_COLUMNS}, {_OF_TASK}
FROM pushes p INDEXED BY {{index}} CROSS JOIN tasks t USING (owner, task) CROSS JOIN owners o USING (owner)
WHERE {{where}} LIMIT ?
"""
_FORGET: Final = tuple(f"DELETE FROM {table} WHERE owner = ? AND task = ?" for table in ("pushes", "deliveries"))
_REMOVE: Final = tuple(
    f"DELETE FROM {table} WHERE owner = ? AND task = ? AND id = ?" for table in ("deliveries", "pushes")
)


# In an append ------------------------------------------------------------------------------------------------------


def check_room(connection: sqlite3.Connection, owner: int, head: Head, id: str) -> None:
    """Raises Refused (CROWDED) when a task cannot take one more configuration of this id."""
    (others,) = connection.execute(_COUNT, (owner, head.ref.key, id)).fetchone()
    if others >= MOST:
        raise Refused(CROWDED, head)


def follow(connection: sqlite3.Connection, owner: int, made: Plan, now: int) -> None:
    """What an append to a task with configurations means for them: a new one, and that there is something to tell."""
    head, before = made.head, made.before
    if (config := made.change.push) is not None:
        after, state = (before.last, before.state) if before else (0, 0)
        _place(connection, owner, _fresh(head.ref, config, now, after, state, _about(head)), now)
    if made.events:
        connection.execute(_DUE, (now, owner, head.ref.key))


def forget(connection: sqlite3.Connection, owner: int, task: bytes) -> None:
    """Everything of a task."""
    for statement in _FORGET:
        connection.execute(statement, (owner, task))


# By itself ---------------------------------------------------------------------------------------------------------


def put(connection: sqlite3.Connection, ref: TaskRef, config: PushConfig, now: int) -> Push:
    """See dragoman.ports.push.Pushes."""
    owner = _number(connection, ref.owner)
    row = connection.execute(_HEAD, (owner, ref.key)).fetchone()
    if row is None:
        raise Refused(ABSENT, None)
    (others,) = connection.execute(_COUNT, (owner, ref.key, config.id)).fetchone()
    if others >= MOST:
        raise Refused(CROWDED, None)
    kept = _place(connection, owner, _fresh(ref, config, now, row[0], row[1], row), now)
    connection.execute(_PUSHED, (owner, ref.key))
    return kept


def remove(connection: sqlite3.Connection, ref: TaskRef, id: str) -> bool:
    """See dragoman.ports.push.Pushes."""
    owner = _number(connection, ref.owner)
    for statement in _REMOVE:
        gone = connection.execute(statement, (owner, ref.key, id)).rowcount > 0
    connection.execute(_PUSHED, (owner, ref.key))
    return gone


def of(connection: sqlite3.Connection, ref: TaskRef) -> list[Push]:
    """See dragoman.ports.push.Pushes."""
    return [_push(ref, row) for row in connection.execute(_ALL, (_number(connection, ref.owner), ref.key))]


def attempts(connection: sqlite3.Connection, ref: TaskRef, id: str) -> list[Attempt]:
    """See dragoman.ports.push.Pushes."""
    rows = connection.execute(_TRIES, (_number(connection, ref.owner), ref.key, id))
    return [Attempt(sequence=row[0], at=row[1], status=row[2], error=row[3], ms=row[4]) for row in rows]


def due(connection: sqlite3.Connection, each: int, hosts: int, after: str, now: int) -> tuple[list[Push], str]:
    """See dragoman.ports.push.Pushes."""
    found: list[Push] = []
    for _ in range(hosts):
        row = connection.execute(_HOST, (after,)).fetchone()
        if row is None:
            return found, ""
        (after,) = row
        found += _with_owners(connection.execute(_OF_HOST, (after, now, now, each)))
    return found, after


def claim(connection: sqlite3.Connection, session: int, keys: Sequence[Key], now: int) -> list[Push]:
    """See dragoman.ports.push.Pushes."""
    others = {row[0] for row in connection.execute(_ALIVE, (now,))} - {session}
    taken = []
    for ref, id in keys:
        push = _find(connection, ref, id)
        if push is None or push.state is not PushState.LIVE or not 0 < push.due <= now or push.session in others:
            continue
        if not connection.execute(_VISIBLE, (_number(connection, ref.owner), ref.key)).fetchone():
            continue
        push = replace(push, session=session, token=push.token + 1)
        _move(connection, push)
        taken.append(push)
    return taken


def write(connection: sqlite3.Connection, said: Sequence[Settled], now: int) -> list[Push | None]:
    """See dragoman.ports.push.Pushes.settle."""
    return [_settle(connection, one, now) for one in said]


def revive(
    connection: sqlite3.Connection, ref: TaskRef, ids: Collection[str], after: int | None, now: int
) -> list[Push]:
    """See dragoman.ports.push.Pushes."""
    begun = [revived(push, now, after) for push in of(connection, ref) if not ids or push.config.id in ids]
    for push in begun:
        _move(connection, push)
    connection.execute(_PUSHED, (_number(connection, ref.owner), ref.key))
    return begun


def waiting(connection: sqlite3.Connection, limit: int) -> list[Push]:
    """See dragoman.ports.push.Pushes."""
    found: list[Push] = []
    for index, where in (("pushes_dead", "p.state = 2 ORDER BY p.failing"), ("pushes_due", "p.due > 0")):
        found += _with_owners(connection.execute(_WAITING.format(index=index, where=where), (limit,)))
    # What is held and has nothing to tell is not waiting for anything.
    found = [push for push in found if push.lag or push.state is PushState.DEAD]
    return sorted(found, key=lambda push: push.failing or push.due)[:limit]


# -------------------------------------------------------------------------------------------------------------------


def _settle(connection: sqlite3.Connection, said: Settled, now: int) -> Push | None:
    push = _find(connection, said.task, said.id)
    after = settle(push, said, now) if push else None
    if after is None:
        return None
    _move(connection, after)
    owner = _number(connection, said.task.owner)
    if (tried := said.attempt) is not None:
        slot = after.attempts % KEPT
        where = (owner, said.task.key, said.id, slot, after.attempts)
        connection.execute(_TRIED, (*where, tried.sequence, now, tried.status, tried.error, tried.ms))
    if after.state is not PushState.LIVE:
        connection.execute(_PUSHED, (owner, said.task.key))
    return after


def _fresh(ref: TaskRef, config: PushConfig, now: int, after: int, shown: int, about: Sequence[Any]) -> Push:
    last, state, task_id, agent = about
    over = state in states.TERMINAL
    return Push(
        task=ref, config=config, created=now, delivered=after, shown=shown,
        last=last, over=over, task_id=task_id, agent=agent,
    )  # fmt: skip


def _about(head: Head) -> tuple[Any, ...]:
    return head.last, head.state, head.id, head.agent


def _place(connection: sqlite3.Connection, owner: int, fresh: Push, now: int) -> Push:
    row = connection.execute(_ONE, (owner, fresh.task.key, fresh.config.id)).fetchone()
    push = placed(fresh, _push(fresh.task, row) if row else None, now)
    config = push.config
    values = (
        owner, push.task.key, config.id, config.host,
        config.url, config.token, config.scheme, config.credentials, config.dialect, push.created,
    )  # fmt: skip
    connection.execute(_PUT, (*values, *_moving(push)))
    return push


def _move(connection: sqlite3.Connection, push: Push) -> None:
    where = (_number(connection, push.task.owner), push.task.key, push.config.id)
    connection.execute(_MOVE, (*_moving(push), *where))


def _moving(push: Push) -> tuple[Any, ...]:
    return (
        push.delivered, push.shown, int(push.state), push.why, push.tries, push.failing, push.due, push.session,
        push.token, push.attempts,
    )  # fmt: skip


def _find(connection: sqlite3.Connection, ref: TaskRef, id: str) -> Push | None:
    row = connection.execute(_ONE, (_number(connection, ref.owner), ref.key, id)).fetchone()
    return _push(ref, row) if row else None


def _push(ref: TaskRef, row: Sequence[Any]) -> Push:
    id, url, token, scheme, credentials, dialect, *place, last, state, task_id, agent = row
    created, delivered, shown, own, why, tries, failing, due_at, session, claims, tried = place
    config = PushConfig(id=id, url=url, token=token, scheme=scheme, credentials=credentials, dialect=dialect)
    return Push(
        task=ref, config=config, created=created, delivered=delivered, shown=shown, state=PushState(own), why=why,
        tries=tries, failing=failing, due=due_at, session=session, token=claims, attempts=tried,
        last=last, over=state in states.TERMINAL, task_id=task_id, agent=agent,
    )  # fmt: skip


def _with_owners(rows: sqlite3.Cursor) -> list[Push]:
    return [_push(TaskRef(Owner(row[0], row[1]), row[2]), row[3:]) for row in rows]


def _number(connection: sqlite3.Connection, owner: Owner) -> int:
    row = connection.execute(_OWNER, (owner.scope, owner.principal)).fetchone()
    return row[0] if row else -1
