"""Push configurations of the store in memory. `core.push.delivery` decides what reports mean."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any

from tests.simulation.memory.database import MemoryDatabase

from dragoman.core.push.configuration import MAX_PUSH_CONFIGS, PushConfig
from dragoman.core.push.delivery import (
    DEFAULT_LONGEST_DELAY_MS,
    MAX_KEPT_ATTEMPTS,
    DeliveryAttempt,
    DeliveryReport,
    PushRecord,
    PushState,
    apply_report,
    is_due,
    restart_record,
)
from dragoman.core.task.log import ABSENT, TOO_MANY_CONFIGS, AppendRejected, TaskRef
from dragoman.ports import PushConfigKey

Run = Callable[[Callable[[], Any]], asyncio.Future[Any]]
"""Runs a function of the database."""


class MemoryPushes:
    """Implements `dragoman.ports.PushStore`."""

    def __init__(self, database: MemoryDatabase, read: Run, write: Run) -> None:
        self._database = database
        self._read = read
        self._write = write

    async def put(self, task: TaskRef, config: PushConfig) -> PushRecord:
        stored: PushRecord = await self._write(lambda: self._put(task, config))
        return stored

    def _put(self, task: TaskRef, config: PushConfig) -> PushRecord:
        rows, now = self._database.tasks.get(task), self._database.clock()
        if rows is None:
            raise AppendRejected(ABSENT, None)
        if sum(id != config.id for id in rows.pushes) >= MAX_PUSH_CONFIGS:
            raise AppendRejected(TOO_MANY_CONFIGS, None)
        record = rows.record
        new = PushRecord(
            task=task, config=config, created=now, last_delivered=record.last_sequence, last_state_sent=record.state
        )
        stored = self._database.put_push(new, now)
        self._database.update_live(task)
        return stored

    async def list_configs(self, task: TaskRef) -> list[PushRecord]:
        found: list[PushRecord] = await self._read(lambda: self._of(task))
        return found

    def _of(self, task: TaskRef) -> list[PushRecord]:
        rows = self._database.tasks.get(task)
        found = map(self._database.with_task, rows.pushes.values()) if rows is not None else ()
        return sorted(found, key=lambda push: (push.created, push.config.id))

    async def remove(self, task: TaskRef, id: str) -> bool:
        def remove() -> bool:
            rows = self._database.tasks.get(task)
            removed = rows is not None and rows.pushes.pop(id, None) is not None
            if rows is not None:
                rows.attempts.pop(id, None)
                self._database.update_live(task)
            return removed

        return bool(await self._write(remove))

    async def due(
        self,
        *,
        per_share: int,
        max_hosts: int,
        after_host: str = "",
        expired: bool = True,
        longest_delay: int = DEFAULT_LONGEST_DELAY_MS,
    ) -> tuple[list[PushRecord], str]:
        found: tuple[list[PushRecord], str] = await self._read(
            lambda: self._due(per_share, max_hosts, after_host, expired, longest_delay)
        )
        return found

    def _due(
        self, per_share: int, max_hosts: int, after_host: str, expired: bool, longest_delay: int
    ) -> tuple[list[PushRecord], str]:
        database, now = self._database, self._database.clock()
        live = database.live_sessions(now if expired else 0)
        by_host: dict[str, list[PushRecord]] = {}
        for ref in database.live_pushes:
            rows = database.tasks[ref]
            for push in rows.pushes.values():
                if push.due_at > 0 and (host := push.config.host) > after_host:
                    waiting = by_host.setdefault(host, [])
                    if (
                        (push.due_at <= now or push.due_at > now + longest_delay)
                        and rows.record.visible
                        and push.session not in live
                    ):
                        waiting.append(database.with_task(push))
        found: list[PushRecord] = []
        hosts = sorted(by_host)
        for host in hosts[:max_hosts]:
            waiting = sorted(by_host[host], key=lambda push: push.due_at)
            for is_failing in (False, True):
                found += [push for push in waiting if bool(push.failures) is is_failing][:per_share]
        return found, hosts[max_hosts - 1] if len(hosts) >= max_hosts else ""

    async def claim(
        self,
        session: int,
        keys: Sequence[PushConfigKey],
        *,
        expired: bool = True,
        longest_delay: int = DEFAULT_LONGEST_DELAY_MS,
    ) -> list[PushRecord]:
        claimed: list[PushRecord] = await self._write(lambda: self._claim(session, keys, expired, longest_delay))
        return claimed

    def _claim(
        self, session: int, keys: Sequence[PushConfigKey], expired: bool, longest_delay: int
    ) -> list[PushRecord]:
        database, now, claimed = self._database, self._database.clock(), []
        others = set(database.live_sessions(now if expired else 0)) - {session}
        for ref, id in keys:
            rows = database.tasks.get(ref)
            push = rows.pushes.get(id) if rows is not None else None
            if rows is None or push is None or push.state is not PushState.LIVE or push.session in others:
                continue
            if not is_due(push, now, longest_delay) or not rows.record.visible:
                continue
            push = rows.pushes[id] = replace(push, session=session, token=push.token + 1)
            claimed.append(database.with_task(push))
        return claimed

    async def apply_reports(self, reports: Sequence[DeliveryReport]) -> list[PushRecord | None]:
        applied: list[PushRecord | None] = await self._write(lambda: [self._apply(report) for report in reports])
        return applied

    def _apply(self, report: DeliveryReport) -> PushRecord | None:
        database, now = self._database, self._database.clock()
        rows = database.tasks.get(report.task)
        push = rows.pushes.get(report.id) if rows is not None else None
        after = apply_report(database.with_task(push), report, now) if push is not None else None
        if rows is None or after is None:
            return None
        rows.pushes[report.id] = after
        if report.attempt is not None:
            attempts = rows.attempts.setdefault(report.id, [])
            attempts.insert(0, replace(report.attempt, at=now))
            del attempts[MAX_KEPT_ATTEMPTS:]
        if after.state is not PushState.LIVE:
            database.update_live(report.task)
        return after

    async def attempts(self, task: TaskRef, id: str) -> list[DeliveryAttempt]:
        def attempts() -> list[DeliveryAttempt]:
            rows = self._database.tasks.get(task)
            return list(rows.attempts.get(id, ())) if rows is not None else []

        found: list[DeliveryAttempt] = await self._read(attempts)
        return found

    async def restart(self, task: TaskRef, ids: Collection[str], after: int | None = None) -> list[PushRecord]:
        def restart() -> list[PushRecord]:
            rows, now = self._database.tasks.get(task), self._database.clock()
            restarted = [
                restart_record(push, now, after) for push in self._of(task) if not ids or push.config.id in ids
            ]
            for push in restarted:
                assert rows is not None
                rows.pushes[push.config.id] = push
            self._database.update_live(task)
            return restarted

        restarted: list[PushRecord] = await self._write(restart)
        return restarted

    async def unfinished(self, limit: int) -> list[PushRecord]:
        def unfinished() -> list[PushRecord]:
            every = [push for ref in self._database.live_pushes for push in self._of(ref)]
            found = [
                push
                for push in every
                if push.state is PushState.GIVEN_UP or push.first_given_up or (push.due_at and push.lag)
            ]
            return sorted(found, key=lambda push: push.failing_since or push.due_at)[:limit]

        found: list[PushRecord] = await self._read(unfinished)
        return found
