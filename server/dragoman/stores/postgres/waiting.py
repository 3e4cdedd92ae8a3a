"""Who is next: tasks that wait for a worker, one of each principal in turn, each principal's own oldest first.

An index holds the waiting tasks by principal, agent and age. A look goes from one principal to the next by jumps, and
then asks for as many tasks of each as are still wanted, so it costs what it gives, however many tasks anybody has
waiting.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import Any, Final

from asyncpg import Connection

from dragoman.core.log import Head, TaskRef
from dragoman.core.names import Owner
from dragoman.stores.postgres.heads import COLUMNS, head_of
from dragoman.stores.postgres.rows import Statement, texts

_PAIRS: Final = """
WITH RECURSIVE pairs (principal, agent) AS (
    (SELECT principal, agent FROM tasks WHERE ready AND principal {0} $1 ORDER BY principal, agent LIMIT 1)
    UNION ALL
    SELECT next.principal, next.agent FROM pairs CROSS JOIN LATERAL (
        SELECT t.principal, t.agent FROM tasks t
        WHERE t.ready AND (t.principal, t.agent) > (pairs.principal, pairs.agent)
        ORDER BY t.principal, t.agent LIMIT 1) next
    WHERE pairs.principal {0} $1)
SELECT principal, agent FROM pairs WHERE principal {0} $1 AND agent = ANY ($2::text[]) LIMIT $3
"""
_BEHIND: Final = _PAIRS.format(">")
_FIRST: Final = _PAIRS.format("<=")
_OLDEST: Final = Statement(
    "SELECT r.principal, f.* FROM {rows}"
    f" CROSS JOIN LATERAL (SELECT t.created, t.task, o.scope, o.principal AS whose, {COLUMNS}"
    " FROM tasks t JOIN owners o ON o.owner = t.owner WHERE t.ready AND t.principal = r.principal"
    " AND t.agent = r.agent ORDER BY t.created, t.task LIMIT $3) f",
    "tt",
    "principal, agent",
)

Pair = tuple[str, str]


async def waiting(connection: Connection, agents: Collection[str], limit: int, after: str) -> list[Head]:
    """Up to `limit` tasks of these agents, in the order in which they are to be taken."""
    if not agents or limit <= 0:
        return []
    pairs = await _pairs(connection, agents, limit, after)
    lines = await _lines(connection, pairs, limit)
    turns = [(turn, number, head) for number, line in enumerate(lines.values()) for turn, head in enumerate(line)]
    return [head for _, _, head in sorted(turns, key=lambda one: one[:2])][:limit]


async def _pairs(connection: Connection, agents: Collection[str], limit: int, after: str) -> list[Pair]:
    """Principals and agents that have something waiting, beginning behind `after`, which comes last."""
    found: list[Pair] = []
    for sql in (_BEHIND, _FIRST):
        most = limit * len(agents) - len(found)
        found += [tuple(row) for row in await connection.fetch(sql, after, texts(agents), most)]
    return found


async def _lines(connection: Connection, pairs: Sequence[Pair], limit: int) -> dict[str, list[Head]]:
    """The oldest tasks of each principal, as many as may be taken: few at first, and more of those who have more."""
    lines: dict[str, list[Head]] = {principal: [] for principal, _ in pairs}
    each, open_pairs = -(-limit // max(len(lines), 1)), list(pairs)
    while open_pairs:
        rows: defaultdict[str, list[Any]] = defaultdict(list)
        counts: defaultdict[Pair, int] = defaultdict(int)
        for row in await _OLDEST.fetch(connection, open_pairs, each):
            rows[row[0]].append(row)
            counts[row[0], row[5]] += 1
        for principal, some in rows.items():
            some.sort(key=lambda row: (row[1], row[2]))
            # Of two agents' oldest so many, only so many are known to be the oldest of both.
            lines[principal] = [head_of(TaskRef(Owner(row[3], row[4]), row[2]), row[5:]) for row in some[:each]]
        more = {pair[0] for pair in open_pairs if counts[pair] >= each}
        open_pairs = [pair for pair in pairs if pair[0] in more]
        if each >= limit or sum(map(len, lines.values())) >= limit:
            break
        each = min(each * 2, limit)
    return lines
