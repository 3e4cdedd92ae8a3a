"""Push configurations, their cursors and their tries. What they mean is decided in `core.push`.

A task whose head says `pushed` has one that is live. An append to such a task marks those that have nothing to do as
due, so what is to be delivered is found by an index, whatever else is stored, and after a crash as before it. Whoever
changes a configuration has locked its task before, as an append has: no cursor is settled against a log that grows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

from asyncpg import Connection

from dragoman.core import states
from dragoman.core.log import ABSENT, CROWDED, Head, Refused, TaskRef
from dragoman.core.names import Owner
from dragoman.core.plan import Plan
from dragoman.core.push import KEPT, Attempt, Push, PushState, Settled, placed, revived, settle
from dragoman.core.webhook import MOST, PushConfig
from dragoman.ports import PushKey
from dragoman.stores.postgres.database import NOW
from dragoman.stores.postgres.owners import NOBODY
from dragoman.stores.postgres.rows import Statement, insert, texts
from dragoman.stores.postgres.standing import Place

_CONFIG: Final = "url, token, scheme, credentials, dialect"
_MOVING: Final = "delivered, shown, state, why, tries, failing, due, session, claims, attempts"
_COLUMNS: Final = ", ".join(f"p.{name.strip()}" for name in f"id, {_CONFIG}, created, {_MOVING}".split(","))
_OF_TASK: Final = "t.last, t.state, t.id, t.agent"

TELL: Final = Statement(
    "UPDATE pushes p SET due = $3 FROM {rows}"
    " WHERE p.owner = r.owner AND p.task = r.task AND p.due = 0 AND p.state = 0",
    "iy",
    "owner, task",
)
"""Marks those of tasks that got events as due at a time."""

_COUNT: Final = "SELECT count(*) FROM pushes WHERE owner = $1 AND task = $2 AND id <> $3"
_LOCK: Final = Statement(
    "SELECT r.scope, r.principal, r.task, t.owner, t.visible, t.last, t.state, t.id, t.agent FROM {rows}"
    " JOIN owners o ON o.scope = r.scope AND o.principal = r.principal"
    " JOIN tasks t ON t.owner = o.owner AND t.task = r.task ORDER BY o.scope, o.principal, t.task FOR UPDATE OF t",
    "tty",
    "scope, principal, task",
)
_OF: Final = Statement(
    f"SELECT p.owner, p.task, {_COLUMNS} FROM {{rows}} JOIN pushes p ON p.owner = r.owner AND p.task = r.task",
    "iy",
    "owner, task",
)
_LISTED: Final = f"""
SELECT o.scope, o.principal, p.task, {_COLUMNS}, {_OF_TASK}
FROM owners o JOIN tasks t ON t.owner = o.owner JOIN pushes p ON p.owner = t.owner AND p.task = t.task
WHERE o.scope = $1 AND o.principal = $2 AND t.task = $3 ORDER BY p.created, p.id
"""
_PUT: Final = f"""
INSERT INTO pushes (owner, task, host, id, {_CONFIG}, created, {_MOVING})
VALUES ({", ".join(f"${n}" for n in range(1, 21))})
ON CONFLICT (owner, task, id) DO UPDATE SET
    {", ".join(f"{name} = excluded.{name}" for name in f"host, {_CONFIG}, created, {_MOVING}".split(", "))}
"""
_MOVE: Final = Statement(
    f"UPDATE pushes p SET ({_MOVING}) = ({', '.join(f'r.{name.strip()}' for name in _MOVING.split(','))})"
    " FROM {rows} WHERE p.owner = r.owner AND p.task = r.task AND p.id = r.id",
    "iyt" + "iiitiiiiii",
    f"owner, task, id, {_MOVING}",
)
_TRIED: Final = insert(
    "deliveries",
    "iytiiiiiti",
    "owner, task, id, slot, number, sequence, at, status, error, ms",
    "ON CONFLICT (owner, task, id, slot) DO UPDATE SET number = excluded.number, sequence = excluded.sequence,"
    " at = excluded.at, status = excluded.status, error = excluded.error, ms = excluded.ms",
)
_TRIES: Final = """
SELECT d.sequence, d.at, d.status, d.error, d.ms FROM owners o JOIN deliveries d ON d.owner = o.owner
WHERE o.scope = $1 AND o.principal = $2 AND d.task = $3 AND d.id = $4 ORDER BY d.number DESC
"""
_PUSHED: Final = Statement(
    "UPDATE tasks t SET pushed = EXISTS (SELECT 1 FROM pushes p WHERE p.owner = t.owner AND p.task = t.task"
    " AND p.state = 0) FROM {rows} WHERE t.owner = r.owner AND t.task = r.task",
    "iy",
    "owner, task",
)
_ALIVE: Final = "SELECT session FROM sessions WHERE expires > {}"
_HOSTS: Final = """
WITH RECURSIVE hosts (host, number) AS (
    (SELECT host, 1 FROM pushes WHERE due > 0 AND host > $1 ORDER BY host LIMIT 1)
    UNION ALL
    SELECT next.host, hosts.number + 1 FROM hosts CROSS JOIN LATERAL
        (SELECT host FROM pushes WHERE due > 0 AND host > hosts.host ORDER BY host LIMIT 1) next
    WHERE hosts.number < $2)
SELECT host FROM hosts ORDER BY host
"""
_OF_HOSTS: Final = f"""
SELECT found.* FROM unnest($1::text[]) WITH ORDINALITY AS h (host, number) CROSS JOIN LATERAL (
    SELECT o.scope, o.principal, p.task, {_COLUMNS}, {_OF_TASK}
    FROM pushes p JOIN tasks t ON t.owner = p.owner AND t.task = p.task JOIN owners o ON o.owner = p.owner
    WHERE p.due > 0 AND p.host = h.host AND p.due <= $2 AND t.visible AND p.session NOT IN ({_ALIVE.format("$2")})
    ORDER BY p.due LIMIT $3) found
ORDER BY h.number, found.due
"""
_WAITING: Final = f"""
SELECT o.scope, o.principal, p.task, {_COLUMNS}, {_OF_TASK}
FROM pushes p JOIN tasks t ON t.owner = p.owner AND t.task = p.task JOIN owners o ON o.owner = p.owner
WHERE {{}} LIMIT $1
"""
_FORGET: Final = tuple(f"DELETE FROM {table} WHERE owner = $1 AND task = $2" for table in ("pushes", "deliveries"))
_REMOVE: Final = tuple(f"{forget} AND id = $3" for forget in reversed(_FORGET))


# In an append ------------------------------------------------------------------------------------------------------


async def check_room(connection: Connection, place: Place, head: Head | None, id: str) -> None:
    """Raises Refused (CROWDED) when a task cannot take one more configuration of this id."""
    if await connection.fetchval(_COUNT, *place, id) >= MOST:
        raise Refused(CROWDED, head)


async def begin(connection: Connection, place: Place, made: Plan, config: PushConfig, now: int) -> None:
    """Keeps a configuration that an append brings: it begins with the first event of that."""
    head, before = made.head, made.before
    after, shown = (before.last, before.state) if before else (0, 0)
    fresh = _fresh(head.ref, config, now, after, shown, (head.last, head.state, head.id, head.agent))
    await _place(connection, place, fresh, now)


async def forget(connection: Connection, place: Place) -> None:
    """Everything of a task."""
    for statement in _FORGET:
        await connection.execute(statement, *place)


# By itself ---------------------------------------------------------------------------------------------------------


class Locked:
    """Tasks that are locked until the end of the transaction, with their configurations."""

    def __init__(self) -> None:
        self.places: dict[TaskRef, Place] = {}
        self.visible: set[TaskRef] = set()
        self.about: dict[TaskRef, Sequence[Any]] = {}
        self.pushes: dict[PushKey, Push] = {}


async def lock(connection: Connection, tasks: Iterable[TaskRef]) -> Locked:
    """Locks those of these tasks that are there, in the order in which appends do."""
    found = Locked()
    wanted = sorted({(ref.owner.scope, ref.owner.principal, ref.key) for ref in tasks})
    for scope, principal, key, owner, visible, *about in await _LOCK.fetch(connection, wanted):
        ref = TaskRef(Owner(scope, principal), key)
        found.places[ref], found.about[ref] = (owner, key), about
        if visible:
            found.visible.add(ref)
    refs = {place: ref for ref, place in found.places.items()}
    for row in await _OF.fetch(connection, sorted(refs)):
        ref = refs[row[0], row[1]]
        push = _push(ref, (*row[2:], *found.about[ref]))
        found.pushes[ref, push.config.id] = push
    return found


async def put(connection: Connection, ref: TaskRef, config: PushConfig, at: int | None) -> Push:
    """See dragoman.ports.push.Pushes."""
    locked, now = await lock(connection, [ref]), await _now(connection, at)
    if ref not in locked.places:
        raise Refused(ABSENT, None)
    place, about = locked.places[ref], locked.about[ref]
    await check_room(connection, place, None, config.id)
    kept = await _place(connection, place, _fresh(ref, config, now, about[0], about[1], about), now)
    await _PUSHED.run(connection, [place])
    return kept


async def remove(connection: Connection, ref: TaskRef, id: str) -> bool:
    """See dragoman.ports.push.Pushes."""
    locked = await lock(connection, [ref])
    if (ref, id) not in locked.pushes:
        return False
    place = locked.places[ref]
    for statement in _REMOVE:
        await connection.execute(statement, *place, id)
    await _PUSHED.run(connection, [place])
    return True


async def of(connection: Connection, ref: TaskRef) -> list[Push]:
    """See dragoman.ports.push.Pushes."""
    return _with_owners(await connection.fetch(_LISTED, ref.owner.scope, ref.owner.principal, ref.key))


async def attempts(connection: Connection, ref: TaskRef, id: str) -> list[Attempt]:
    """See dragoman.ports.push.Pushes."""
    rows = await connection.fetch(_TRIES, ref.owner.scope, ref.owner.principal, ref.key, id)
    return [Attempt(sequence=row[0], at=row[1], status=row[2], error=row[3], ms=row[4]) for row in rows]


async def due(connection: Connection, each: int, hosts: int, after: str, at: int | None) -> tuple[list[Push], str]:
    """See dragoman.ports.push.Pushes."""
    named = [row[0] for row in await connection.fetch(_HOSTS, after, hosts)]
    if not named:
        return [], ""
    rows = await connection.fetch(_OF_HOSTS, texts(named), await _now(connection, at), each)
    return _with_owners(rows), named[-1] if len(named) == hosts else ""


async def claim(connection: Connection, session: int, keys: Sequence[PushKey], at: int | None) -> list[Push]:
    """See dragoman.ports.push.Pushes."""
    locked, now = await lock(connection, [ref for ref, _ in keys]), await _now(connection, at)
    others = {row[0] for row in await connection.fetch(_ALIVE.format("$1"), now)} - {session}
    taken = []
    for key in dict.fromkeys(keys):
        push = locked.pushes.get(key)
        if push is None or push.state is not PushState.LIVE or not 0 < push.due <= now or push.session in others:
            continue
        if key[0] in locked.visible:
            taken.append(replace(push, session=session, token=push.token + 1))
    await _move(connection, locked, taken)
    return taken


async def write(connection: Connection, said: Sequence[Settled], at: int | None) -> list[Push | None]:
    """See dragoman.ports.push.Pushes.settle."""
    locked, now = await lock(connection, [one.task for one in said]), await _now(connection, at)
    results: list[Push | None] = []
    tries: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    for one in said:
        key = one.task, one.id
        push = locked.pushes.get(key)
        after = settle(push, one, now) if push else None
        results.append(after)
        if after is None:
            continue
        locked.pushes[key] = after
        if (tried := one.attempt) is not None:
            where = (*locked.places[one.task], one.id, after.attempts % KEPT)
            tries[where] = after.attempts, tried.sequence, now, tried.status, tried.error, tried.ms
    changed = {(push.task, push.config.id): push for push in results if push is not None}
    await _move(connection, locked, list(changed.values()))
    await _TRIED.run(connection, [(*where, *tried) for where, tried in tries.items()])
    over = {locked.places[push.task] for push in changed.values() if push.state is not PushState.LIVE}
    await _PUSHED.run(connection, sorted(over))
    return results


async def revive(
    connection: Connection, ref: TaskRef, ids: Collection[str], after: int | None, at: int | None
) -> list[Push]:
    """See dragoman.ports.push.Pushes."""
    locked, now = await lock(connection, [ref]), await _now(connection, at)
    inside = sorted(locked.pushes.values(), key=lambda push: (push.created, push.config.id))
    begun = [revived(push, now, after) for push in inside if not ids or push.config.id in ids]
    await _move(connection, locked, begun)
    await _PUSHED.run(connection, list(locked.places.values()))
    return begun


async def waiting(connection: Connection, limit: int) -> list[Push]:
    """See dragoman.ports.push.Pushes."""
    found: list[Push] = []
    for where in ("p.state = 2 ORDER BY p.failing", "p.due > 0"):
        found += _with_owners(await connection.fetch(_WAITING.replace("{}", where), limit))
    # What is held and has nothing to tell is not waiting for anything.
    found = [push for push in found if push.lag or push.state is PushState.DEAD]
    return sorted(found, key=lambda push: push.failing or push.due)[:limit]


# -------------------------------------------------------------------------------------------------------------------


async def _now(connection: Connection, at: int | None) -> int:
    found: int = await connection.fetchval(f"SELECT {NOW.format('$1')}", at)
    return found


def _fresh(ref: TaskRef, config: PushConfig, now: int, after: int, shown: int, about: Sequence[Any]) -> Push:
    last, state, task_id, agent = about
    over = state in states.TERMINAL
    return Push(
        task=ref, config=config, created=now, delivered=after, shown=shown,
        last=last, over=over, task_id=task_id, agent=agent,
    )  # fmt: skip


async def _place(connection: Connection, place: Place, fresh: Push, now: int) -> Push:
    config, former = fresh.config, None
    for row in await _OF.fetch(connection, [place] if place[0] != NOBODY else []):
        if row[2] == config.id:
            former = _push(fresh.task, (*row[2:], fresh.last, 0, fresh.task_id, fresh.agent))
    push = placed(fresh, former, now)
    said = config.host, config.id, config.url, config.token, config.scheme, config.credentials, config.dialect
    await connection.execute(_PUT, *place, *said, push.created, *_moving(push))
    return push


async def _move(connection: Connection, locked: Locked, pushes: Sequence[Push]) -> None:
    rows = [(*locked.places[push.task], push.config.id, *_moving(push)) for push in pushes]
    await _MOVE.run(connection, sorted(rows))


def _moving(push: Push) -> tuple[Any, ...]:
    return (
        push.delivered, push.shown, int(push.state), push.why, push.tries, push.failing, push.due, push.session,
        push.token, push.attempts,
    )  # fmt: skip


def _push(ref: TaskRef, row: Sequence[Any]) -> Push:
    id, url, token, scheme, credentials, dialect, *place, last, state, task_id, agent = row
    created, delivered, shown, own, why, tries, failing, due_at, session, claims, tried = place
    config = PushConfig(id=id, url=url, token=token, scheme=scheme, credentials=credentials, dialect=dialect)
    return Push(
        task=ref, config=config, created=created, delivered=delivered, shown=shown, state=PushState(own), why=why,
        tries=tries, failing=failing, due=due_at, session=session, token=claims, attempts=tried,
        last=last, over=state in states.TERMINAL, task_id=task_id, agent=agent,
    )  # fmt: skip


def _with_owners(rows: Iterable[Sequence[Any]]) -> list[Push]:
    return [_push(TaskRef(Owner(row[0], row[1]), row[2]), row[3:]) for row in rows]
