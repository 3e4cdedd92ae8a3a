"""The operator calls for daily usage, with filters, groups and pages, and for the overview (`dragoman.ops.v1`)."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Final

from dragoman.bindings.admin.actions import OperatorCall
from dragoman.bindings.admin.fields import message_from, page_limit, within_grants
from dragoman.core.daily_usage import (
    HOUR_MS,
    KEPT_HOURS,
    DailyUsageQuery,
    DailyUsageRow,
    HourlyUsageQuery,
    UsageGroup,
    day_of,
    day_text,
    hour_of,
    parse_day,
    summarize,
)
from dragoman.core.errors import InvalidParams, Unauthenticated
from dragoman.core.limits.quotas import BILLION
from dragoman.core.task import states
from dragoman.core.task.cursors import OpenTasks, TaskSearch, open_task_counts
from dragoman.runtime import Runtime
from dragoman_pb.dragoman.ops import v1 as ops

DEFAULT_DAYS: Final = 30  # the length of a period whose first day is not given
DEFAULT_HOURS: Final = 24  # the hours of an overview

_OPEN_FIELDS: Final[Mapping[int, str]] = {
    states.SUBMITTED: "queued",
    states.WORKING: "running",
    states.INPUT_REQUIRED: "waiting",
}
_GROUPS: Final[Mapping[int, UsageGroup]] = {
    ops.USAGE_GROUP_DAY: "day",
    ops.USAGE_GROUP_AGENT: "agent",
    ops.USAGE_GROUP_PRINCIPAL: "principal",
    ops.USAGE_GROUP_SCOPE: "scope",
}


@dataclass(frozen=True, slots=True)
class UsageOperations:
    """Lists daily usage, and the overview of what agents do."""

    runtime: Runtime
    clock: Callable[[], int]  # milliseconds since the epoch

    async def list_usage(self, operator: OperatorCall, request: ops.ListUsageRequest) -> ops.ListUsageResponse:
        """Lists sums of figures: for an operator or viewer those of all principals within its grants, else its own.

        Raises Unauthenticated for callers without credentials, who share one name, PermissionDenied for a scope or
        agent outside of the grants, RateLimited, and InvalidParams.
        """
        query, identity = self._query(request), operator.identity
        limit = page_limit(request.limit, default=100, maximum=1000)
        if operator.is_viewer:
            query = within_grants(identity, query)
        elif not identity.is_authenticated:
            raise Unauthenticated("usage is listed for callers with credentials only")
        elif query.principal not in ("", identity.principal):
            return ops.ListUsageResponse()
        else:
            query = replace(query, principal=identity.principal)
        rows = await self.runtime.store.daily_usage(replace(query, limit=limit + 1))
        has_more = len(rows) > limit
        return ops.ListUsageResponse(
            rows=[_row_message(query.group_by, row) for row in rows[:limit]],
            next_page_token=_page_token(request, query, rows[limit - 1]) if has_more else "",
        )

    async def get_overview(self, operator: OperatorCall, request: ops.GetOverviewRequest) -> ops.GetOverviewResponse:
        """Shows the agents that have unfinished tasks or did something in the last hours, by id."""
        if not 0 <= request.hours <= KEPT_HOURS:
            raise InvalidParams.field("hours", f"must be 1 to {KEPT_HOURS}, or 0 for {DEFAULT_HOURS}")
        scopes, agents = (frozenset(filter(None, (name,))) for name in (request.scope, request.agent))
        query = within_grants(operator.identity, TaskSearch(scopes=scopes, agents=agents))
        first_hour = hour_of(self.clock()) - (request.hours or DEFAULT_HOURS) + 1
        found: dict[str, ops.AgentOverview] = {}
        for tasks in open_task_counts(map(_with_waiting, await self.runtime.store.open_tasks(query))):
            overview = found.setdefault(tasks.agent, ops.AgentOverview(agent=tasks.agent))
            message = message_from(ops.OpenTasks, tasks, is_minimum=not tasks.is_exact)
            getattr(overview, _OPEN_FIELDS[tasks.state]).CopyFrom(message)
        usage = await self.runtime.store.hourly_usage(HourlyUsageQuery(first_hour, query.scopes, query.agents))
        for row in usage.hours:
            overview = found.setdefault(row.agent, ops.AgentOverview(agent=row.agent))
            seconds, hour = row.figures.turn_us / 1e6, row.hour * HOUR_MS
            overview.hours.append(message_from(ops.HourlyFigures, row.figures, hour=hour, turn_seconds=seconds))
        for (agent, is_turn), rows in groupby(usage.times, lambda row: (row.agent, row.bucket > 0)):
            overview = found.setdefault(agent, ops.AgentOverview(agent=agent))
            times = summarize(rows)
            mean, p50, p95 = (us / 1e6 for us in (times.mean, times.p50, times.p95))
            (overview.turns if is_turn else overview.queue).MergeFrom(
                ops.TurnTimes(count=times.count, mean_seconds=mean, p50_seconds=p50, p95_seconds=p95)
            )
        for overview in found.values():
            for name in _OPEN_FIELDS.values():
                getattr(overview, name).SetInParent()
        overviews = [overview for _, overview in sorted(found.items())]
        return message_from(ops.GetOverviewResponse, agents=overviews, first_hour=first_hour * HOUR_MS)

    def _query(self, request: ops.ListUsageRequest) -> DailyUsageQuery:
        groups = tuple(_GROUPS.get(group) for group in request.group_by)
        group_by = tuple(group for group in groups if group is not None)
        if len(set(group_by)) < len(groups):
            names = ", ".join(map(ops.UsageGroup.Name, _GROUPS))
            raise InvalidParams.field("groupBy", f"must be some of {names}, each once")
        today = day_of(self.clock())
        last = _day("lastDay", request.last_day) if request.last_day else today
        first = _day("firstDay", request.first_day) if request.first_day else last - DEFAULT_DAYS + 1
        if first > last:
            raise InvalidParams.field("firstDay", f"{day_text(first)} is after the last day, {day_text(last)}")
        scopes, agents = (frozenset(filter(None, (name,))) for name in (request.scope, request.agent))
        query = DailyUsageQuery(first, last, group_by, scopes, agents, request.principal)
        return _after_page(request, query) if request.page_token else query


def _day(field: str, text: str) -> int:
    try:
        return parse_day(text)
    except ValueError as error:
        raise InvalidParams.field(field, f'"{text}" is not a day, such as 2026-11-24') from error


def _row_message(group_by: tuple[UsageGroup, ...], row: DailyUsageRow) -> ops.UsageRow:
    figures = row.figures
    group = {name: day_text(at) if isinstance(at, int) else at for name, at in zip(group_by, row.group, strict=True)}
    ungrouped = dict.fromkeys(_GROUPS.values(), "")
    return message_from(
        ops.UsageRow, figures, **ungrouped | group, turn_seconds=figures.turn_us / 1e6, cost=figures.cost / BILLION
    )


def _fingerprint(request: ops.ListUsageRequest) -> int:
    filters = request.first_day, request.last_day, request.scope, request.agent, request.principal
    return zlib.crc32(repr((filters, list(request.group_by))).encode())


def _page_token(request: ops.ListUsageRequest, query: DailyUsageQuery, last: DailyUsageRow) -> str:
    """The token of the next page: with the days, so that a page after midnight belongs to the same period."""
    text = json.dumps([_fingerprint(request), query.first_day, query.last_day, last.group])
    return base64.urlsafe_b64encode(text.encode()).decode()


def _after_page(request: ops.ListUsageRequest, query: DailyUsageQuery) -> DailyUsageQuery:
    """The query for the page after a token. Raises InvalidParams for a token of another query."""
    try:
        fingerprint, first, last, group = json.loads(base64.urlsafe_b64decode(request.page_token))
        kinds = [type(value) for value in (first, last, *group)]
    except (ValueError, TypeError) as error:
        raise InvalidParams.field("pageToken", "is not a token of this server; use nextPageToken unchanged") from error
    expected = [int, int, *(int if name == "day" else str for name in query.group_by)]
    if fingerprint != _fingerprint(request) or kinds != expected:
        raise InvalidParams.field("pageToken", "belongs to a query with other filters; repeat that query")
    return replace(query, first_day=first, last_day=last, after=tuple(group))


def _with_waiting(tasks: OpenTasks) -> OpenTasks:
    """Counts tasks that wait for credentials with those that wait for an answer: both wait for the caller."""
    return replace(tasks, state=states.INPUT_REQUIRED) if tasks.state == states.AUTH_REQUIRED else tasks
