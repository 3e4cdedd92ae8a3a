"""Changes of many tasks at once, for operators: a call cancels, reruns or erases one page of a search.

Pages go by creation, newest first, so that no page meets a task again, or a new one. Every changed task has an entry of
its own in the audit log, and a task that cannot be changed does not stop its page.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from dragoman.core.access.identity import Identity
from dragoman.core.errors import A2AError, InvalidParams, TaskNotCancelable, TaskNotFound
from dragoman.core.task import states
from dragoman.core.task.cursors import TaskSearch
from dragoman.core.task.log import TaskRecord
from dragoman.core.task.maintenance import TaskSelection
from dragoman.runtime.maintenance.admin import Maintenance
from dragoman.runtime.observe.audit import Auditor
from dragoman.runtime.operations.operator_tasks import OperatorTasks

MAX_BULK_PAGE: Final = 100
"""Tasks of one page."""

MAX_BULK_COUNT: Final = 100_000
"""Tasks that a dry run counts."""

COUNTED_ROWS: Final = 4_000_000
"""About how many rows a dry run reads, where no index has the tasks that match."""

PAGE_ROWS: Final = 100_000
"""The same for a page: with fewer, most pages of a search for rare tasks would be empty."""

CONCURRENT_RERUNS: Final = 16
CONCURRENT_ERASURES: Final = 4
"""Tasks of a page that are changed at the same time. Each has its messages in memory, or a transaction for itself."""

OPEN_STATES: Final = states.STORED_STATES - states.TERMINAL
UNSUCCESSFUL_STATES: Final = states.TERMINAL - {states.COMPLETED}


@dataclass(frozen=True, slots=True)
class BulkFailure:
    """A task that was not changed, and the text of its error."""

    record: TaskRecord
    reason: str


@dataclass(slots=True)
class BulkPage:
    """What a call has done with one page."""

    matched: int = 0
    changed: int = 0
    skipped: int = 0
    failures: list[BulkFailure] = field(default_factory=list)
    next_token: str = ""
    """Empty on the last page."""


@dataclass(frozen=True, slots=True)
class BulkCount:
    """The number of tasks that a search finds, at most MAX_BULK_COUNT; not exact: at least so many."""

    tasks: int
    is_exact: bool


@dataclass(frozen=True, slots=True)
class BulkCall:
    """One call of an operator: the tasks (order and position of the search do not count), and the page."""

    identity: Identity
    query: TaskSearch
    page_token: str = ""
    request_id: str = ""


ChangeTask = Callable[[TaskRecord], Awaitable[str | None]]
"""Changes a task. Returns the id of a task that it has created, else an empty text; None if there was nothing to do."""


class BulkTasks:
    """Changes the tasks of searches, page by page."""

    def __init__(self, operator_tasks: OperatorTasks, maintenance: Maintenance, auditor: Auditor | None = None) -> None:
        self._operator_tasks = operator_tasks
        self._maintenance = maintenance
        self._auditor = auditor

    async def count(self, call: BulkCall) -> BulkCount:
        """Counts all tasks of a search. Raises PermissionDenied for a scope or agent outside of the grants."""
        query = replace(call.query, page_size=1, searched_rows=COUNTED_ROWS, max_total=MAX_BULK_COUNT)
        found = await self._operator_tasks.search(call.identity, query, "")
        return BulkCount(found.total, found.is_total_exact)

    async def cancel(self, call: BulkCall) -> BulkPage:
        """Cancels a page of tasks, all at once. Raises InvalidParams for another search's token, PermissionDenied."""
        return await self._change_page(call, "CancelTask", partial(self._cancel, call), MAX_BULK_PAGE)

    async def rerun(self, call: BulkCall, *, repeat_steps: bool = False) -> BulkPage:
        """Reruns a page of tasks. `repeat_steps` as for one task. Raises as `cancel`."""
        rerun = partial(self._rerun, call, repeat_steps)
        return await self._change_page(call, "RerunTask", rerun, CONCURRENT_RERUNS)

    async def erase(self, call: BulkCall) -> BulkPage:
        """Erases a page of tasks. Raises as `cancel`."""
        return await self._change_page(call, "EraseTask", self._erase, CONCURRENT_ERASURES)

    async def _change_page(self, call: BulkCall, verb: str, change: ChangeTask, concurrency: int) -> BulkPage:
        query = replace(call.query, order="created", searched_rows=PAGE_ROWS)
        found = await self._operator_tasks.search(call.identity, query, call.page_token)
        page = BulkPage(len(found.tasks))
        if found.next is not None:
            page.next_token = self._operator_tasks.token(call.identity, query, found.next)
        slots = asyncio.Semaphore(concurrency)

        async def change_one(record: TaskRecord) -> None:
            async with slots:
                try:
                    created = await change(record)
                except TaskNotFound:  # erased meanwhile
                    created = None
                except A2AError as error:
                    page.failures.append(BulkFailure(record, error.message))
                    return
            if created is None:
                page.skipped += 1
                return
            page.changed += 1
            self._note(call, verb, record, created)

        await asyncio.gather(*(change_one(one.record) for one in found.tasks))
        return page

    async def _cancel(self, call: BulkCall, record: TaskRecord) -> str | None:
        try:
            await self._operator_tasks.cancel_found(call.identity, record)
        except TaskNotCancelable:
            if states.is_terminal((await self._operator_tasks.find(_selection_of(record))).state):
                return None
            raise
        return ""

    async def _rerun(self, call: BulkCall, repeat_steps: bool, record: TaskRecord) -> str | None:
        result = await self._operator_tasks.rerun_found(
            call.identity, record, call.request_id, repeat_steps=repeat_steps
        )
        return None if result.repeated else result.record.id

    async def _erase(self, record: TaskRecord) -> str | None:
        receipt = await self._maintenance.purge(_selection_of(record))
        return "" if receipt.number else None

    def _note(self, call: BulkCall, verb: str, record: TaskRecord, created: str) -> None:
        if self._auditor is None:
            return
        arguments = {
            "request.taskId": record.id,
            "request.agent": record.agent,
            "request.scope": record.ref.owner.scope,
        }
        # The names of an erased task's principal must not stay.
        arguments |= {} if verb == "EraseTask" else {"request.principal": record.principal}
        arguments |= {"request.requestId": call.request_id} if call.request_id else {}
        arguments |= {"task": created} if created else {}
        self._auditor.note_operator_action(verb, call.identity, arguments)


def check_states(query: TaskSearch, allowed: frozenset[int], default: frozenset[int]) -> TaskSearch:
    """The search with the states that an action concerns. Raises InvalidParams for others."""
    if other := sorted(query.states - allowed):
        names = ", ".join(map(states.name, sorted(allowed)))
        raise InvalidParams.field("filter.states", f"{states.name(other[0])} is not possible here; use {names}")
    return query if query.states else replace(query, states=default)


def _selection_of(record: TaskRecord) -> TaskSelection:
    scope = record.ref.owner.scope
    return TaskSelection(task=record.id, agent=record.agent, principal=record.principal, scope=scope)
