"""The tasks and the usage of one caller with all agents and in all scopes, for the command line and the console.

A2A lists the tasks of one agent in one scope. Here each of these lists is read with the rights that the caller has
there, so nothing is shown that A2A would not show to it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from dragoman.core.access.identity import SCOPE_GRANT_PREFIX, SHARED_PRINCIPAL, Caller, Identity
from dragoman.core.daily_usage import DailyUsageQuery, DailyUsageRow
from dragoman.core.errors import AgentNotFound, PermissionDenied, Unauthenticated
from dragoman.core.names import DEFAULT_SCOPE, tenant_of
from dragoman.core.task.cursors import TaskPage, TaskQuery
from dragoman.ports import AgentTasks, Store
from dragoman.runtime.access import Access, Admission
from dragoman.runtime.operations.operator_tasks import within_grants
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

DEFAULT_TASKS: Final = 50
MAX_TASKS: Final = 1000


@dataclass(frozen=True, slots=True)
class TaskFilter:
    """Which tasks to list; empty fields match every task.

    `limit`: the maximum number of tasks. `artifacts`: whether tasks include theirs.
    """

    task_id: str = ""
    scope: str = ""
    agent: str = ""
    context: str = ""
    state: int = 0
    limit: int = DEFAULT_TASKS
    artifacts: bool = False

    @property
    def is_unconditional(self) -> bool:
        """Whether every task of an agent matches."""
        return not (self.task_id or self.context or self.state)


@dataclass(frozen=True, slots=True)
class ScopedTask:
    """A task without history, and the names to address it by."""

    scope: str
    agent: str
    task: pb.Task
    summary: str
    """The beginning of its first message."""


@dataclass(frozen=True, slots=True)
class CallerTaskList:
    """Tasks, most recently changed first; the number of all that match; the scopes in which the caller has any."""

    tasks: list[ScopedTask]
    total: int
    scopes: list[str]


class CallerTasks:
    """Lists the tasks of callers."""

    def __init__(self, store: Store, access: Access, admission: Admission) -> None:
        self._store = store
        self._access = access
        self._admission = admission

    async def list_tasks(
        self, identity: Identity, task_filter: TaskFilter, *, is_operator: bool = False
    ) -> CallerTaskList:
        """Lists tasks of a caller. `is_operator`: shared tasks are listed in every scope.

        Raises RateLimited.
        """
        self._admission.check_rate(identity)
        reachable = await self._reachable(identity, is_operator)
        tasks: list[ScopedTask] = []
        total = 0
        for known, caller in reachable:
            if task_filter.scope not in ("", known.scope) or task_filter.agent not in ("", known.agent):
                continue
            if task_filter.is_unconditional and _all_newer(tasks, task_filter.limit, known):
                total += known.tasks
                continue
            page = await self._page(caller, task_filter)
            total += page.total
            tasks += [
                ScopedTask(known.scope, known.agent, pb.Task.FromString(task), summary)
                for task, summary in zip(page.tasks, page.summaries, strict=True)
            ]
            tasks = sorted(tasks, key=_sort_key, reverse=True)[: task_filter.limit]
        return CallerTaskList(tasks, total, sorted({known.scope for known, _ in reachable}))

    async def _reachable(self, identity: Identity, is_operator: bool) -> list[tuple[AgentTasks, Caller]]:
        """The agents with tasks that the identity sees, most recently changed first, with the caller of each."""
        own = {(known.scope, known.agent): known for known in await self._store.agents_of(identity.principal)}
        shared = {(known.scope, known.agent): known for known in await self._store.agents_of(SHARED_PRINCIPAL)}
        reachable = []
        for scope, agent in own.keys() | {key for key in shared if is_operator or _may_know(identity, key[0])}:
            try:
                caller = self._access.authorize(tenant_of(scope, agent), identity)
            except (AgentNotFound, PermissionDenied, Unauthenticated):
                continue
            known = (shared if caller.owner.principal == SHARED_PRINCIPAL else own).get((scope, agent))
            if known is not None:
                reachable.append((known, caller))
        return sorted(reachable, key=lambda pair: (-pair[0].changed, pair[0].scope, pair[0].agent))

    async def _page(self, caller: Caller, task_filter: TaskFilter) -> TaskPage:
        if not task_filter.task_id:
            query = TaskQuery(
                caller.owner,
                caller.agent,
                context=task_filter.context,
                state=task_filter.state,
                page_size=task_filter.limit,
                history=0,
                artifacts=task_filter.artifacts,
            )
            return await self._store.page(query)
        record = await self._store.find(caller.owner, caller.agent, task_filter.task_id)
        if (
            record is None
            or task_filter.context not in ("", record.context)
            or task_filter.state not in (0, record.state)
        ):
            return TaskPage()
        snapshot = await self._store.read(record.ref, history=0, artifacts=task_filter.artifacts)
        return TaskPage([snapshot.task], 1, summaries=[record.summary]) if snapshot else TaskPage()


class CallerUsage:
    """Lists the daily usage that callers may see."""

    def __init__(self, store: Store, admission: Admission) -> None:
        self._store = store
        self._admission = admission

    async def list_usage(
        self, identity: Identity, query: DailyUsageQuery, *, is_viewer: bool = False
    ) -> list[DailyUsageRow]:
        """Sums of figures: an operator or viewer gets those of all principals within its grants, other callers those of
        their own tasks.

        Raises Unauthenticated for callers without credentials, who share one name, PermissionDenied for a scope or
        agent outside of the grants, and RateLimited.
        """
        self._admission.check_rate(identity)
        if is_viewer:
            return await self._store.daily_usage(within_grants(identity, query))
        if not identity.is_authenticated:
            raise Unauthenticated("usage is listed for callers with credentials only")
        if query.principal not in ("", identity.principal):
            return []
        return await self._store.daily_usage(replace(query, principal=identity.principal))


def _sort_key(listed: ScopedTask) -> tuple[int, str]:
    return listed.task.status.timestamp.ToMilliseconds(), listed.task.id


def _all_newer(tasks: list[ScopedTask], limit: int, known: AgentTasks) -> bool:
    """Whether the list is full with tasks that changed after every task of this agent."""
    return len(tasks) == limit and _sort_key(tasks[-1])[0] > known.changed


def _may_know(identity: Identity, scope: str) -> bool:
    """Whether a caller may learn that a scope with shared tasks exists: its name may be that of a customer."""
    return scope == DEFAULT_SCOPE or SCOPE_GRANT_PREFIX + scope in identity.grants
