"""Sessions, the queue of waiting tasks, and the identity of processes."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Collection
from pathlib import Path
from typing import Final, NamedTuple

from asyncpg import Connection

from dragoman.core.names import Owner
from dragoman.core.task.log import TaskRecord, TaskRef
from dragoman.extensions.postgres.database import SQL_NOW
from dragoman.extensions.postgres.hot.quota_counters import JOIN_UNREAD_MESSAGES, UnreadMessages, unread_messages
from dragoman.extensions.postgres.rows import PostgresBulkStatement, text_array
from dragoman.stores.shared.rows import TABLE_RECORD_COLUMNS, record_from_row

_END_ALL_SESSIONS: Final = "UPDATE sessions SET expires = 0 WHERE expires > 0"
_INSERT_SESSION: Final = f"""
INSERT INTO sessions (started, expires, process)
VALUES ({SQL_NOW.format("$1")}, {SQL_NOW.format("$1")} + $2, $3) RETURNING session
"""
_RENEW_SESSION: Final = f"""
UPDATE sessions s SET expires = {SQL_NOW.format("$2")} + $3
FROM (SELECT expires FROM sessions WHERE session = $1) was WHERE s.session = $1
RETURNING was.expires, s.expires - $3, left(pg_walfile_name(pg_current_wal_lsn()), 8)
"""
_LIMIT_SESSIONS: Final = f"""
UPDATE sessions SET expires = {SQL_NOW.format("$1")} + $2
WHERE session IN (
    SELECT session FROM sessions WHERE expires > {SQL_NOW.format("$1")} + 2 * $2
    FOR UPDATE SKIP LOCKED)
"""
"""Such expiries are from before the clock was set back: their sessions get one lease to renew."""
_SELECT_LOCAL_SESSIONS: Final = "SELECT session, process FROM sessions WHERE expires > 0 AND process LIKE $1 || ' %'"
_END_SESSIONS: Final = "UPDATE sessions SET expires = 0 WHERE session = ANY ($1::bigint[])"
_SELECT_LIVE_SESSIONS: Final = f"SELECT session, expires FROM sessions WHERE expires > {SQL_NOW.format('$1')}"


class UnknownSession(Exception):
    """An open session is not in the store: the store lost its last commits, or is another one."""

    def __init__(self, session: int) -> None:
        super().__init__(
            f"the store no longer has session {session}: it was restored, or failed over to a standby that lagged "
            "behind; restart this server"
        )


async def begin_session(
    connection: Connection, fixed_now: int | None, lease: float, exclusive: bool, process: str
) -> int:
    """Opens a session. `exclusive` ends all others. Sessions expire by the server's clock."""
    if exclusive:
        await connection.execute(_END_ALL_SESSIONS)
    session: int = await connection.fetchval(_INSERT_SESSION, fixed_now, _lease_ms(lease), process)
    return session


async def renew_session(
    connection: Connection, session: int, fixed_now: int | None, lease: float
) -> tuple[int, int, str]:
    """Extends a session. An expired one becomes valid again, but not the claims that others took from it.

    Returns its former expiry and the store's time, in milliseconds, and the database's timeline, which changes with
    each failover. Raises UnknownSession for a session that does not exist.
    """
    row = await connection.fetchrow(_RENEW_SESSION, session, fixed_now, _lease_ms(lease))
    if row is None:
        raise UnknownSession(session)
    await connection.execute(_LIMIT_SESSIONS, fixed_now, _lease_ms(lease))
    return row[0], row[1], row[2]


async def local_sessions(connection: Connection, pid_namespace: str) -> dict[int, str]:
    """The open sessions of processes in a PID namespace, with these processes (see `current_process`)."""
    return {row[0]: row[1] for row in await connection.fetch(_SELECT_LOCAL_SESSIONS, pid_namespace)}


async def end_sessions(connection: Connection, sessions: Collection[int]) -> None:
    """Ends sessions."""
    await connection.execute(_END_SESSIONS, list(sessions))


async def live_sessions(connection: Connection, fixed_now: int | None) -> dict[int, int]:
    """The sessions that have not expired, with their expiry in milliseconds."""
    return {row[0]: row[1] for row in await connection.fetch(_SELECT_LIVE_SESSIONS, fixed_now)}


def _lease_ms(lease: float) -> int:
    return round(lease * 1000)


_PAIRS: Final = """
WITH RECURSIVE pairs (principal, agent) AS (
    (SELECT principal, agent FROM tasks WHERE ready AND principal {0} $1 ORDER BY principal, agent LIMIT 1)
    UNION ALL
    SELECT next.principal, next.agent FROM pairs CROSS JOIN LATERAL (
        SELECT t.principal, t.agent FROM tasks t
        WHERE t.ready AND (t.principal, t.agent) > (pairs.principal, pairs.agent)
        ORDER BY t.principal, t.agent LIMIT 1) next
    WHERE pairs.principal {0} $1)
SELECT principal, agent, {1} AS part FROM pairs WHERE principal {0} $1 AND agent = ANY ($2::text[]) LIMIT $3
"""
_OLDEST: Final = f"""
CROSS JOIN LATERAL (
    SELECT t.created, t.task, o.scope, o.principal AS whose, o.owner, m.*, {TABLE_RECORD_COLUMNS}
    FROM tasks t JOIN owners o ON o.owner = t.owner {JOIN_UNREAD_MESSAGES.format("t", "")}
    WHERE t.ready AND t.principal = r.principal AND t.agent = r.agent ORDER BY t.created, t.task LIMIT {{0}}) f
"""
_SELECT_OLDEST_TASKS: Final = f"""
WITH found AS MATERIALIZED (
    SELECT * FROM (({_PAIRS.format(">", 1)}) UNION ALL ({_PAIRS.format("<=", 2)})) pairs
    ORDER BY part, principal, agent LIMIT $3)
SELECT r.principal, f.* FROM found r
{_OLDEST.format("(SELECT ($4 - 1) / greatest(count(DISTINCT principal), 1) + 1 FROM found)")}
ORDER BY r.part, r.principal, r.agent
"""
_MORE_TASKS: Final = PostgresBulkStatement(
    f"SELECT r.principal, f.* FROM {{rows}} {_OLDEST.format('$3')}", "tt", "principal, agent"
)


class WaitingTask(NamedTuple):
    """A task that waits, with its owner's number and the messages that no turn has completed."""

    record: TaskRecord
    owner: int
    unread: UnreadMessages


async def ready_tasks(connection: Connection, agents: Collection[str], limit: int, after: str) -> list[WaitingTask]:
    """Up to `limit` waiting tasks of these agents, in the order in which they are to be claimed.

    The principal `after` comes last. Few tasks of each principal are read at first, then more where there are more.
    """
    if not agents or limit <= 0:
        return []
    queues: dict[str, list[WaitingTask]] = {}
    each = 0
    found = await connection.fetch(_SELECT_OLDEST_TASKS, after, text_array(agents), limit * len(agents), limit)
    while found:
        queue_parts: defaultdict[str, list[tuple[int, bytes, WaitingTask]]] = defaultdict(list)
        counts: defaultdict[tuple[str, str], int] = defaultdict(int)
        for principal, created, key, scope, name, number, numbers, sizes, senders, *columns in found:
            record = record_from_row(TaskRef(Owner(scope, name), key), columns)
            task = WaitingTask(record, number, unread_messages(numbers, sizes, senders))
            queue_parts[principal].append((created, key, task))
            counts[principal, record.agent] += 1
        each = min(each * 2, limit) or -(-limit // len(queue_parts))
        # Of the oldest `each` tasks of two agents, only `each` are known to be the oldest of both.
        queues |= {name: [task for *_, task in sorted(some)[:each]] for name, some in queue_parts.items()}
        if each >= limit or sum(map(len, queues.values())) >= limit:
            break
        more = {pair[0] for pair in counts if counts[pair] >= each}
        found = await _MORE_TASKS.fetch(connection, [pair for pair in counts if pair[0] in more], min(each * 2, limit))
    rounds = [
        (round_, number, task) for number, queue in enumerate(queues.values()) for round_, task in enumerate(queue)
    ]
    return [task for _, _, task in sorted(rounds, key=lambda item: item[:2])][:limit]


PROC_FOLDER: Final = Path("/proc")
_START_TICK_FIELD: Final = 19
"""Index of the start tick among the fields after the program name: field 22, and the name is field 2."""


def current_process() -> str:
    """This process: PID namespace, PID and start tick; empty where the system does not provide them."""
    pid = os.getpid()
    start_tick = _start_tick(pid)
    return f"{current_pid_namespace()} {pid} {start_tick}" if current_pid_namespace() and start_tick else ""


def current_pid_namespace() -> str:
    """Boot id and PID namespace of this process; empty where the system does not provide them."""
    try:
        boot = (PROC_FOLDER / "sys/kernel/random/boot_id").read_text("ascii").strip()
        return f"{boot} {os.readlink(PROC_FOLDER / 'self/ns/pid')}"
    except OSError:
        return ""


def has_process_ended(process: str) -> bool:
    """Whether a process, as `current_process` named it, has ended. False for one that cannot be seen from here."""
    namespace, _, rest = process.rpartition("] ")
    if not namespace or f"{namespace}]" != current_pid_namespace():
        return False
    pid, _, start_tick = rest.partition(" ")
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except OSError:  # it belongs to another user, and exists
        pass
    current_tick = _start_tick(int(pid))  # the PID may have been reused
    return bool(current_tick) and current_tick != start_tick


def _start_tick(pid: int) -> str:
    """The tick in which a process started; empty when unknown."""
    try:
        return (
            (PROC_FOLDER / str(pid) / "stat")
            .read_text("utf-8", errors="replace")
            .rpartition(")")[2]
            .split()[_START_TICK_FIELD]
        )
    except (OSError, IndexError):
        return ""
