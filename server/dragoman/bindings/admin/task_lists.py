"""Lists of tasks with all agents and in all scopes (`dragoman.ops.v1`): of one caller, or for operators and viewers.

A2A lists the tasks of one agent in one scope. A caller's list joins these lists, each read with the rights that the
caller has there, so nothing is shown that A2A would not show.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass, replace
from typing import Final

from google.protobuf.json_format import Parse
from google.protobuf.unknown_fields import UnknownFieldSet

from dragoman.bindings.admin.actions import OperatorCall
from dragoman.bindings.admin.fields import message_from, page_limit, within_grants
from dragoman.core.access.identity import SCOPE_GRANT_PREFIX, SHARED_PRINCIPAL, Caller, Identity
from dragoman.core.errors import AgentNotFound, InvalidParams, PermissionDenied, Unauthenticated
from dragoman.core.limits.quotas import BILLION
from dragoman.core.names import DEFAULT_SCOPE, tenant_of
from dragoman.core.task import cursors, states
from dragoman.core.task.failures import CAUSE_DIGITS
from dragoman.core.task.log import TaskRecord
from dragoman.ports import AgentTasks
from dragoman.runtime import Runtime
from dragoman_pb.dragoman.ops import v1 as ops
from dragoman_pb.dragoman.worker.v1 import worker_pb2 as wk
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

MAX_TASKS: Final = 1000
MAX_SCOPES: Final = 1000  # scopes that are listed
WATCH_INTERVAL: Final = 1.0  # seconds between two searches of one WatchTasks
WATCH_PAUSE: Final = 20
"""The pause after a search, in durations of that search: a watcher takes at most a twentieth of one reader's time."""
MAX_SEARCH_TEXT: Final = 200
MAX_SEARCH_ENTRIES: Final = 8
MAX_FAILURES_COUNTED: Final = 100_000  # tasks of a group of failures that are counted
RERUNS_NAME: Final = "reruns of {}"  # the name of the stored reruns of a cause
FAILED_ONLY: Final = frozenset((states.FAILED,))
_SEARCH_FIELDS: Final = (
    "principal", "states", "changed_since", "changed_before", "text", "metadata", "order", "page_token",
    "count_states", "cause",
)  # fmt: skip
"""Fields of a request that select among the tasks of all principals."""


@dataclass(frozen=True, slots=True)
class TaskLists:
    """Lists tasks: of all principals for operators and viewers, else the caller's."""

    runtime: Runtime

    async def list_tasks(self, operator: OperatorCall, request: ops.ListTasksRequest) -> ops.ListTasksResponse:
        """Lists tasks, most recently changed first unless the request says otherwise."""
        check_state_names(request)
        limit = page_limit(request.limit, default=50, maximum=MAX_TASKS)
        if operator.is_viewer and not request.own:
            return await self._search(operator, request, limit)
        for field, _ in request.ListFields():
            if field.name in _SEARCH_FIELDS:
                text = "is for operators and viewers, in lists of tasks of all principals"
                raise InvalidParams.field(field.camelcase_name, text)
        return await self._list_own(operator, request, limit)

    async def watch_tasks(
        self, operator: OperatorCall, request: ops.WatchTasksRequest
    ) -> AsyncGenerator[ops.WatchTasksResponse, None]:
        """Lists tasks as `list_tasks` does, and again whenever the list has changed. Does not end."""
        clock = asyncio.get_running_loop().time
        listed: ops.ListTasksResponse | None = None
        while True:
            began = clock()
            found = await self.list_tasks(operator, request.filter)
            pause = max(WATCH_INTERVAL, WATCH_PAUSE * (clock() - began))
            if found != listed:
                listed = found
                yield ops.WatchTasksResponse(list=found)
            await asyncio.sleep(pause)

    async def list_failures(self, operator: OperatorCall, request: ops.ListFailuresRequest) -> ops.ListFailuresResponse:
        """Groups the failed tasks of a search by cause, those with most tasks first."""
        limit = page_limit(request.limit, default=50, maximum=cursors.MAX_CAUSES)
        query = check_states(selection_search(request.filter, limit), FAILED_ONLY, FAILED_ONLY)
        query = replace(query, groups_failures=True, max_total=MAX_FAILURES_COUNTED)
        groups = (await self.runtime.store.search(within_grants(operator.identity, query))).groups
        groups.sort(key=lambda group: (group.count, group.last.record.updated), reverse=True)
        shown = (_group_message(group, group.last.record) for group in groups[:limit])
        response = ops.ListFailuresResponse(groups=shown, more=len(groups) > min(limit, cursors.MAX_CAUSES - 1))
        if not operator.identity.granted(SCOPE_GRANT_PREFIX):  # the reruns are those of all scopes
            for group in response.groups:
                stored = await self.runtime.store.key_values.get(RERUNS_NAME.format(group.cause))
                Parse(stored or "{}", group.reruns, ignore_unknown_fields=True)
        return response

    # ---- all principals

    async def _search(self, operator: OperatorCall, request: ops.ListTasksRequest, limit: int) -> ops.ListTasksResponse:
        identity = operator.identity
        if request.cause and not operator.is_operator:
            raise InvalidParams.field("cause", "is for operators")
        query = within_grants(identity, task_search(request, limit, finds_failures=operator.is_operator))
        after = cursors.parse_page_token(query, request.page_token) if request.page_token else None
        found = await self.runtime.store.search(replace(query, after=after))
        granted = identity.granted(SCOPE_GRANT_PREFIX)
        response = ops.ListTasksResponse(
            tasks=[_found_task(one, operator.is_operator) for one in found.tasks],
            total=found.total, total_is_minimum=not found.is_total_exact and not request.page_token,
            scopes=[scope for scope in await self.runtime.store.scopes(MAX_SCOPES) if not granted or scope in granted],
        )  # fmt: skip
        if found.next is not None:
            response.next_page_token = cursors.page_token(query, found.next)
        if request.count_states and not request.page_token:
            response.state_counts.extend(
                ops.StateCount(state=one.state, count=one.count, is_minimum=not one.is_exact)  # type: ignore[arg-type]
                for one in await self.runtime.store.count_states(query)
            )
        return response

    # ---- one caller

    async def _list_own(
        self, operator: OperatorCall, request: ops.ListTasksRequest, limit: int
    ) -> ops.ListTasksResponse:
        reachable = await self._reachable(operator.identity, operator.is_viewer)
        tasks: list[ops.ListedTask] = []
        total = 0
        for known, caller in reachable:
            if request.scope not in ("", known.scope) or request.agent not in ("", known.agent):
                continue
            every_task_matches = not (request.task_id or request.context_id or request.state)
            if every_task_matches and len(tasks) == limit and _sort_key(tasks[-1])[0] > known.changed:
                total += known.tasks
                continue
            page = await self._page(caller, request, limit)
            total += page.total
            tasks += [
                ops.ListedTask(scope=known.scope, agent=known.agent, task=pb.Task.FromString(task), summary=summary)
                for task, summary in zip(page.tasks, page.summaries, strict=True)
            ]
            tasks = sorted(tasks, key=_sort_key, reverse=True)[:limit]
        scopes = sorted({known.scope for known, _ in reachable})
        return ops.ListTasksResponse(tasks=tasks, total=total, scopes=scopes)

    async def _reachable(self, identity: Identity, is_viewer: bool) -> list[tuple[AgentTasks, Caller]]:
        """The agents with tasks that the identity sees, most recently changed first, with the caller of each."""
        own = {(known.scope, known.agent): known for known in await self.runtime.store.agents_of(identity.principal)}
        shared = {(known.scope, known.agent): known for known in await self.runtime.store.agents_of(SHARED_PRINCIPAL)}
        reachable = []
        # Others may not learn that a scope with shared tasks exists: its name may be that of a customer.
        known_scopes = {DEFAULT_SCOPE, *identity.granted(SCOPE_GRANT_PREFIX)}
        for scope, agent in own.keys() | {key for key in shared if is_viewer or key[0] in known_scopes}:
            try:
                caller = self.runtime.operations.access.authorize(tenant_of(scope, agent), identity)
            except (AgentNotFound, PermissionDenied, Unauthenticated):
                continue
            known = (shared if caller.owner.principal == SHARED_PRINCIPAL else own).get((scope, agent))
            if known is not None:
                reachable.append((known, caller))
        return sorted(reachable, key=lambda pair: (-pair[0].changed, pair[0].scope, pair[0].agent))

    async def _page(self, caller: Caller, request: ops.ListTasksRequest, limit: int) -> cursors.TaskPage:
        if not request.task_id:
            query = cursors.TaskQuery(
                caller.owner, caller.agent, context=request.context_id, state=request.state, page_size=limit,
                history=0, artifacts=request.include_artifacts,
            )  # fmt: skip
            return await self.runtime.store.page(query)
        record = await self.runtime.store.find(caller.owner, caller.agent, request.task_id)
        if record is None or request.context_id not in ("", record.context) or request.state not in (0, record.state):
            return cursors.TaskPage()
        snapshot = await self.runtime.store.read(record.ref, history=0, artifacts=request.include_artifacts)
        if snapshot is None:
            return cursors.TaskPage()
        return cursors.TaskPage([snapshot.task], 1, summaries=[record.summary])


def _sort_key(listed: ops.ListedTask) -> tuple[int, str]:
    return listed.task.status.timestamp.ToMilliseconds(), listed.task.id


def _found_task(found: cursors.FoundTask, is_operator: bool) -> ops.ListedTask:
    record, hidden = found.record, {} if is_operator else {"cause": "", "failure_text": ""}
    return message_from(
        ops.ListedTask, found, found.usage, record, scope=record.ref.owner.scope, task=pb.Task.FromString(found.task),
        status_text=record.status_text if record.state in states.EXPLAINED else "", cost=found.usage.cost / BILLION,
        **hidden,
    )  # fmt: skip


def _group_message(group: cursors.FailureGroup, record: TaskRecord) -> ops.FailureGroup:
    return message_from(
        ops.FailureGroup, group, group.last, record, task_id=record.id, last=record.updated,
        failure=wk.Failure.FromString(group.last.failure), first=group.first or record.updated,
        count=max(group.count, 1), count_is_minimum=not group.is_exact, reruns=None,
    )  # fmt: skip


def check_state_names(request: ops.ListTasksRequest) -> None:
    """Raises InvalidParams for a state that no stored task has."""
    for state in (request.state, *request.states):
        if state and state not in states.STORED_STATES:
            names = ", ".join(map(states.name, sorted(states.STORED_STATES)))
            raise InvalidParams.field("state", f"must be one of {names}")


def task_search(request: ops.ListTasksRequest, limit: int, *, finds_failures: bool = True) -> cursors.TaskSearch:
    """Returns the search that a request describes. Raises InvalidParams."""
    if len(request.text) > MAX_SEARCH_TEXT:
        raise InvalidParams.field("text", f"must have at most {MAX_SEARCH_TEXT} characters")
    if len(request.metadata) > MAX_SEARCH_ENTRIES:
        raise InvalidParams.field("metadata", f"must have at most {MAX_SEARCH_ENTRIES} entries")
    if len(request.cause) not in (0, CAUSE_DIGITS):
        raise InvalidParams.field("cause", f"must be the {CAUSE_DIGITS} digits that name a group of failures")
    entries = []
    for entry in request.metadata:
        key, separator, value = entry.partition("=")
        if not key or not separator:
            raise InvalidParams.field("metadata", "must have the form KEY=VALUE")
        entries.append((key, value))
    return cursors.TaskSearch(
        task_id=request.task_id, scopes=frozenset(filter(None, (request.scope,))),
        agents=frozenset(filter(None, (request.agent,))), principal=request.principal, context=request.context_id,
        states=frozenset(filter(None, (request.state, *request.states))),
        changed_since=max(request.changed_since.ToMilliseconds(), 0),
        changed_before=max(request.changed_before.ToMilliseconds(), 0), text=request.text, metadata=tuple(entries),
        order=_search_order(request), page_size=limit, artifacts=request.include_artifacts, cause=request.cause,
        finds_failures=finds_failures,
    )  # fmt: skip


def selection_search(request: ops.ListTasksRequest, limit: int) -> cursors.TaskSearch:
    """Returns the search for all tasks that a request selects. Raises InvalidParams."""
    for name in ("own", "page_token"):
        if getattr(request, name):
            camel_name = request.DESCRIPTOR.fields_by_name[name].camelcase_name
            raise InvalidParams.field(f"filter.{camel_name}", "is not possible for many tasks at once")
    if len(UnknownFieldSet(request)):  # of a newer client: without them, more tasks would be selected
        raise InvalidParams.field("filter", "has fields that this server does not know; update it, or leave them out")
    check_state_names(request)
    return replace(task_search(request, limit), artifacts=False)


def check_states(query: cursors.TaskSearch, allowed: frozenset[int], default: frozenset[int]) -> cursors.TaskSearch:
    """Returns the search with the states that a call concerns. Raises InvalidParams for others."""
    if other := sorted(query.states - allowed):
        names = ", ".join(map(states.name, sorted(allowed)))
        raise InvalidParams.field("filter.states", f"{states.name(other[0])} is not possible here; use {names}")
    return query if query.states else replace(query, states=default)


def _search_order(request: ops.ListTasksRequest) -> cursors.SearchOrder:
    if request.order == ops.TASK_ORDER_UNSPECIFIED and request.text:
        # Only the index by creation has the texts. With a principal or a state, few tasks are left, which are read.
        return "changed" if request.principal or request.state or request.states or request.cause else "created"
    return "created" if request.order == ops.TASK_ORDER_CREATED else "changed"
