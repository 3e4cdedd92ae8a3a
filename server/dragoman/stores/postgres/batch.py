"""Applying a batch of appends inside one transaction: the only place that writes tasks.

`core.plan` decides what is written; here is in which order it is read, locked and sent. Everybody locks in the same
order, so batches of several processes wait for each other and never in a circle:

1. names that have to be unique or are counted (`names_of`): keys, aliases, conversations with state, principals with a
   quota;
2. the heads of the tasks, by scope, principal and key;
3. owners that are new.

Then all is decided in memory, and written with one statement. What few batches need costs them one more.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import Any, Final

from asyncpg import Connection

from dragoman.core.log import EXISTS, Append, Appended, Head, NewTask, Refused
from dragoman.core.names import Owner
from dragoman.core.pace import Pace
from dragoman.core.plan import Plan, plan
from dragoman.stores.postgres import contexts, joining, keys, owners, pushes, usage
from dragoman.stores.postgres.folding import Growth
from dragoman.stores.postgres.standing import Place, Tally, weighs
from dragoman.stores.postgres.writing import Pending, discard

ALIAS: Final = "SELECT 1 FROM tasks WHERE owner = $1 AND agent = $2 AND id = $3 AND alias"

Result = Appended | Refused


class Batch:
    """One batch, on a connection that has begun its transaction."""

    def __init__(self, connection: Connection, slot: int, growth: Growth, pace: Pace) -> None:
        self._connection = connection
        self._slot = slot
        self._growth = growth
        self._tally = Tally(pace)
        self._now = 0
        self._numbers: dict[Owner, int] = {}
        self._heads: dict[Place, Head | None] = {}
        self._keys: keys.Known = {}
        self._aliases: set[tuple[int, str, str]] = set()
        self._totals: defaultdict[tuple[int, str, int], int] = defaultdict(int)
        self._pending = Pending()
        self._passed: usage.Passed = {}

    async def run(self, changes: Sequence[Append], at: int | None) -> list[Result]:
        """What became of each, once all is written. `at` is the time, unless it is the server's."""
        await self._look(changes, at)
        results: list[Result] = []
        for change in changes:
            try:
                results.append(await self._apply(change))
            except Refused as refused:  # before anything of it was written
                results.append(refused)
        await self._write()
        if self._passed:
            await usage.pass_on(self._connection, self._passed)
        return results

    # Reading and locking ----------------------------------------------------------------------------------------

    async def _look(self, changes: Sequence[Append], at: int | None) -> None:
        new: set[Owner] = set()
        for change in changes:
            if change.create is not None:
                new.add(change.task.owner)
            if change.key is not None:
                new.add(change.key.owner or change.task.owner)
            if change.joins is not None:
                new.add(change.joins)
        refs = {change.task for change in changes}
        found = await owners.look(self._connection, refs, new, at)
        self._now, self._numbers = found.now, found.numbers
        self._heads = {self._place(change): found.heads.get(change.task) for change in changes}
        await self._weigh(changes)
        self._keys = await keys.find(
            self._connection, [self._key(change) for change in changes if change.key is not None]
        )

    async def _weigh(self, changes: Sequence[Append]) -> None:
        principals = {_sender(change) for change in changes if change.quota is not None and change.message is not None}
        tasks: dict[Place, int] = {}
        for change in changes:
            place = self._place(change)
            if (after := weighs(change, self._heads[place])) is not None:
                tasks[place] = min(after, tasks.get(place, after))
        await self._tally.know(self._connection, principals, tasks)

    def _place(self, change: Append) -> Place:
        return self._numbers[change.task.owner], change.task.key

    def _key(self, change: Append) -> keys.Name:
        assert change.key is not None
        return self._numbers[change.key.owner or change.task.owner], change.key.agent, change.key.text

    # Deciding ---------------------------------------------------------------------------------------------------

    async def _apply(self, change: Append) -> Appended:
        place, connection, pending = self._place(change), self._connection, self._pending
        owner, now = place[0], self._now
        if change.key is not None:
            keys.check(self._keys, self._key(change), change.key.owner or change.task.owner, now)
        if change.create is not None and change.create.alias:
            await self._check_alias(owner, change.create)
        made = plan(self._heads[place], change, now)
        if change.quota is not None:
            self._tally.admit(change.quota, made, now)
        if change.push is not None:
            await pushes.check_room(connection, place, made.head, change.push.id)
        if change.context is not None:
            await contexts.write(connection, owner, made.head, change.context)
        if change.key is not None:
            host = change.task.owner if change.key.owner not in (None, change.task.owner) else None
            first = made.before.last if made.before else 0
            used = keys.Used(change.key.digest, change.task.key, None, first, now, host, owner if host else None)
            self._keys[self._key(change)] = pending.keys[self._key(change)] = used
        if change.joins is not None:
            pending.joined.add((self._numbers[change.joins], owner, made.head.context))
        self._tally.note(place, made)
        if made.before is not None and made.before.visible:
            self._totals[owner, made.head.agent, made.before.state] -= 1
        if change.discard:
            await self._discard(place, change)
            return made.outcome
        if made.head.visible:
            self._totals[owner, made.head.agent, made.head.state] += 1
        if change.create is not None and change.create.alias:
            self._aliases.add((owner, change.create.agent, change.create.id))
        if change.create is not None and change.create.parent:
            await usage.attach(connection, place, change.create.parent)
        self._note(place, made)
        if change.push is not None:
            await pushes.begin(connection, place, made, change.push, now)
        self._heads[place] = made.head
        if change.used is not None:
            await self._write()
            return replace(made.outcome, usage=await usage.add(connection, place, change.used, self._passed))
        return made.outcome

    async def _check_alias(self, owner: int, new: NewTask) -> None:
        name = owner, new.agent, new.id
        if name in self._aliases or await self._connection.fetchval(ALIAS, *name):
            raise Refused(EXISTS, None)

    def _note(self, place: Place, made: Plan) -> None:
        """What a change writes, where it does not write it at once."""
        change, head, pending = made.change, made.head, self._pending
        if change.create is not None and change.create.open:
            pending.opened.append((head.context, *place))
        if head.pushed and made.events:
            pending.told.add(place)
        pending.used.update((*place, blob.digest) for blob in change.blobs)
        grew, is_long = self._growth.note(place, made)
        if grew:
            pending.grown.append((*place, grew))
        if is_long:
            pending.long.append((head.updated, *place))
        pending.add(place, made)

    async def _discard(self, place: Place, change: Append) -> None:
        await self._write()
        await keys.keep_reply(self._connection, place, change.reply)
        await discard(self._connection, place)
        await joining.forget_task(self._connection, place)
        await pushes.forget(self._connection, place)
        await usage.forget(self._connection, place)
        for name, used in self._keys.items():
            if used.task == change.task.key:
                self._keys[name] = keys.replied(used, change.reply)
        self._heads[place] = None

    async def _write(self) -> None:
        totals = sorted((*key[:3], self._slot, count) for key, count in self._totals.items() if count)
        self._totals.clear()
        pending, self._pending = self._pending, Pending()
        await pending.write(self._connection, totals, self._tally.rows(self._slot), self._now)


def names_of(changes: Sequence[Append]) -> list[int]:
    """The numbers of the locks that a batch needs before it looks, in the order in which everybody takes them."""
    found: set[int] = set()
    for change in changes:
        owner = change.task.owner
        if change.key is not None:
            holder = change.key.owner or owner
            found.add(_name("key", holder.scope, holder.principal, change.key.agent, change.key.text))
        if change.create is not None and change.create.alias:
            found.add(_name("alias", owner.scope, owner.principal, change.create.agent, change.create.id))
        if change.context is not None:  # of which task it is the conversation is known only by its head
            found.add(_name("state", owner.scope, owner.principal))
        if change.quota is not None and change.message is not None:
            found.add(_name("quota", _sender(change)))
    return sorted(found)


def _sender(change: Append) -> str:
    assert change.message is not None
    return change.message.sender or change.task.owner.principal


def _name(kind: str, *parts: Any) -> int:
    """The number of an advisory lock. Two names of one number only wait for each other."""
    digest = blake2b(repr((kind, *parts)).encode("utf-8", "surrogatepass"), digest_size=8)
    return int.from_bytes(digest.digest(), "big", signed=True)
