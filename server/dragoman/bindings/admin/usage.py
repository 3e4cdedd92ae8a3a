"""The operator calls for daily usage, with filters, groups and pages, and for the overview (`dragoman.ops.v1`)."""

from __future__ import annotations

import base64
import json
import time
import zlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from dragoman.bindings.admin.fields import page_limit, set_timestamps
from dragoman.core.access.identity import Identity
from dragoman.core.daily_usage import (
    HOUR_MS,
    KEPT_HOURS,
    DailyUsageQuery,
    DailyUsageRow,
    HourlyUsageRow,
    UsageGroup,
    day_of,
    day_text,
    parse_day,
)
from dragoman.core.errors import InvalidParams
from dragoman.core.limits.quotas import BILLION
from dragoman.core.task import states
from dragoman.core.task.cursors import OpenTasks
from dragoman.runtime.operations.caller_tasks import CallerUsage
from dragoman.runtime.operations.overview import AgentOverview, Overviews
from dragoman_pb.dragoman.ops.v1 import overview_pb2 as overview_pb
from dragoman_pb.dragoman.ops.v1 import usage_pb2 as pb

DEFAULT_ROWS: Final = 100
MAX_ROWS: Final = 1000

DEFAULT_DAYS: Final = 30
"""The length of a period whose first day is not given."""

_GROUPS: Final[Mapping[int, UsageGroup]] = {
    pb.USAGE_GROUP_DAY: "day",
    pb.USAGE_GROUP_AGENT: "agent",
    pb.USAGE_GROUP_PRINCIPAL: "principal",
    pb.USAGE_GROUP_SCOPE: "scope",
}


class UsageOperations:
    """Operations from request message to response message. They raise A2AError."""

    def __init__(self, caller_usage: CallerUsage, clock: Callable[[], float] = time.time) -> None:
        """clock: seconds since the epoch."""
        self._caller_usage = caller_usage
        self._clock = clock

    async def list_usage(
        self, identity: Identity, is_viewer: bool, request: pb.ListUsageRequest
    ) -> pb.ListUsageResponse:
        """Lists sums of the figures that the caller may see."""
        query = self._query(request)
        limit = page_limit(request.limit, default=DEFAULT_ROWS, maximum=MAX_ROWS)
        rows = await self._caller_usage.list_usage(identity, replace(query, limit=limit + 1), is_viewer=is_viewer)
        has_more = len(rows) > limit
        return pb.ListUsageResponse(
            rows=[_row_message(query.group_by, row) for row in rows[:limit]],
            next_page_token=_page_token(request, query, rows[limit - 1]) if has_more else "",
        )

    def _query(self, request: pb.ListUsageRequest) -> DailyUsageQuery:
        groups = tuple(_GROUPS.get(group) for group in request.group_by)
        group_by = tuple(group for group in groups if group is not None)
        if len(set(group_by)) < len(groups):
            names = ", ".join(map(pb.UsageGroup.Name, _GROUPS))
            raise InvalidParams.field("groupBy", f"must be some of {names}, each once")
        today = day_of(int(self._clock() * 1000))
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


def _row_message(group_by: tuple[UsageGroup, ...], row: DailyUsageRow) -> pb.UsageRow:
    figures = row.figures
    message = pb.UsageRow(
        begun=figures.begun,
        completed=figures.completed,
        failed=figures.failed,
        canceled=figures.canceled,
        rejected=figures.rejected,
        turns=figures.turns,
        turn_seconds=figures.turn_us / 1e6,
        tokens=figures.tokens,
        cost=figures.cost / BILLION,
    )
    for name, value in zip(group_by, row.group, strict=True):
        setattr(message, name, day_text(value) if isinstance(value, int) else value)
    return message


def _fingerprint(request: pb.ListUsageRequest) -> int:
    filters = request.first_day, request.last_day, request.scope, request.agent, request.principal
    return zlib.crc32(repr((filters, list(request.group_by))).encode())


def _page_token(request: pb.ListUsageRequest, query: DailyUsageQuery, last: DailyUsageRow) -> str:
    """The token of the next page: with the days, so that a page after midnight belongs to the same period."""
    text = json.dumps([_fingerprint(request), query.first_day, query.last_day, last.group])
    return base64.urlsafe_b64encode(text.encode()).decode()


def _after_page(request: pb.ListUsageRequest, query: DailyUsageQuery) -> DailyUsageQuery:
    """The query for the page after a token. Raises InvalidParams for a token of another query."""
    try:
        fingerprint, first, last, group = json.loads(base64.urlsafe_b64decode(request.page_token))
        kinds = [type(value) for value in (first, last, *group)]
    except (ValueError, TypeError) as error:
        raise InvalidParams.field("pageToken", "is not a token of this server; use nextPageToken unchanged") from error
    if fingerprint != _fingerprint(request) or kinds != [
        int,
        int,
        *(int if g == "day" else str for g in query.group_by),
    ]:
        raise InvalidParams.field("pageToken", "belongs to a query with other filters; repeat that query")
    return replace(query, first_day=first, last_day=last, after=tuple(group))


DEFAULT_HOURS: Final = 24
"""The hours of an overview."""


class OverviewOperations:
    """Operations from request message to response message. They raise A2AError."""

    def __init__(self, overviews: Overviews) -> None:
        self._overviews = overviews

    async def get_overview(
        self, identity: Identity, request: overview_pb.GetOverviewRequest
    ) -> overview_pb.GetOverviewResponse:
        """Shows what agents do now, and did in the last hours."""
        if not 0 <= request.hours <= KEPT_HOURS:
            raise InvalidParams.field("hours", f"must be 1 to {KEPT_HOURS}, or 0 for {DEFAULT_HOURS}")
        scopes, agents = (frozenset(filter(None, (name,))) for name in (request.scope, request.agent))
        first_hour, found = await self._overviews.read(identity, request.hours or DEFAULT_HOURS, scopes, agents)
        response = overview_pb.GetOverviewResponse(agents=map(_overview_message, found))
        set_timestamps(response, first_hour=first_hour * HOUR_MS)
        return response


def _overview_message(overview: AgentOverview) -> overview_pb.AgentOverview:
    return overview_pb.AgentOverview(
        agent=overview.agent,
        queued=_open_tasks_message(overview.open_tasks.get(states.SUBMITTED)),
        running=_open_tasks_message(overview.open_tasks.get(states.WORKING)),
        waiting=_open_tasks_message(overview.open_tasks.get(states.INPUT_REQUIRED)),
        hours=map(_hour_message, overview.hours),
    )


def _open_tasks_message(tasks: OpenTasks | None) -> overview_pb.OpenTasks:
    if tasks is None:
        return overview_pb.OpenTasks()
    message = overview_pb.OpenTasks(count=tasks.count, is_minimum=not tasks.is_exact)
    set_timestamps(message, oldest=tasks.oldest)
    return message


def _hour_message(row: HourlyUsageRow) -> overview_pb.HourlyFigures:
    figures = row.figures
    message = overview_pb.HourlyFigures(
        begun=figures.begun,
        completed=figures.completed,
        failed=figures.failed,
        canceled=figures.canceled,
        rejected=figures.rejected,
        turns=figures.turns,
        turn_seconds=figures.turn_us / 1e6,
    )
    set_timestamps(message, hour=row.hour * HOUR_MS)
    return message
