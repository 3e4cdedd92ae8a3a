"""`usage`: what agents and principals did and used, by day. `overview`: what agents do now, and did lately."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Annotated, Final

import typer

from dragoman.cli import format_count, print_note
from dragoman.cli.commands import Command, option
from dragoman.cli.options import AgentFilter, Json, ScopeFilter, ServerTarget, TaskOwner, age_option
from dragoman.cli.output import ConsoleOutput, format_elapsed, json_line
from dragoman.client.operations import Operator
from dragoman.core.daily_usage import DAY_MS, KEPT_DAYS, KEPT_HOURS
from dragoman.ids import now_ms
from dragoman_pb.dragoman.ops import v1 as ops

PAGE_ROWS: Final = 1000

COUNT_COLUMNS: Final = ("begun", "completed", "failed", "canceled", "rejected", "turns")
AMOUNT_COLUMNS: Final = ("turn_seconds", "tokens", "cost")

OTHER_NAME: Final = "(other)"  # stands for an empty name: erased principals, and those beyond the limit of a day


class GroupOption(StrEnum):
    """Groups as typed on the command line."""

    DAY = "day"
    AGENT = "agent"
    PRINCIPAL = "principal"
    SCOPE = "scope"


async def usage(
    since: Annotated[str, option("--since", "DAYS", "The last days, with today: 7, 7d, 4w; at most 400.")] = "30d",
    by: Annotated[
        list[GroupOption] | None,
        typer.Option("--by", help="One line for each; may be repeated. [day]", show_default=False),
    ] = None,
    *,
    owner: TaskOwner,
    json: Json = False,
    target: ServerTarget,
) -> None:
    """Show tasks, turns, tokens and costs by day, agent, principal or scope.

    Days are UTC. Figures are kept for 400 days, also of tasks that were erased. Operators see all figures, other
    callers their own.

    **Examples**

    `dragoman usage`

    `dragoman usage --since 7 --by agent --by principal`
    """
    request = build_request(parse_days(since), by or [GroupOption.DAY], owner)
    rows: list[ops.UsageRow] = []
    async with target.operator() as operator:
        while True:
            page = await operator.list_usage(request)
            rows += page.rows
            if not page.next_page_token:
                break
            request.page_token = page.next_page_token
    out = ConsoleOutput()
    if not rows and not json:
        print_note(f"no usage since {request.first_day}")
    groups = [ops.UsageGroup.Name(group).removeprefix("USAGE_GROUP_").lower() for group in request.group_by]
    for line in map(json_line, rows) if json else format_table(rows, groups):
        out.line(line)


async def overview(
    hours: Annotated[int, typer.Option("--hours", min=1, max=KEPT_HOURS, help="The last hours, with this one.")] = 24,
    agent: AgentFilter = "",
    scope: ScopeFilter = "",
    json: Json = False,
    *,
    target: ServerTarget,
) -> None:
    """Show what waits and runs now, and what was done in the last hours, by agent.

    Tasks that are queued wait for a slot or a worker, those that are waiting for their callers; each with the age of
    the oldest. The times of turns and in the queue are of the same hours. For operators and viewers.

    **Example**: `dragoman overview --hours 1`
    """
    request = ops.GetOverviewRequest(hours=hours, agent=agent, scope=scope)
    agents = (await target.call(Operator.get_overview, request)).agents
    out = ConsoleOutput()
    if not agents and not json:
        print_note(f"no unfinished tasks, and nothing in the last {format_count(hours, 'hour')}")
    for line in map(json_line, agents) if json else format_overview(agents, now_ms()):
        out.line(line)


def parse_days(text: str) -> int:
    """A number of days: `7`, `7d`, `4w`. Ends the process with a usage error."""
    days = age_option("--since", f"{text}d" if text.isdecimal() else text) // DAY_MS
    if not 1 <= days <= KEPT_DAYS:
        raise typer.BadParameter(f"--since: must be 1 to {KEPT_DAYS} days")
    return days


def build_request(days: int, groups: Sequence[GroupOption], owner: TaskOwner) -> ops.ListUsageRequest:
    first = datetime.now(UTC).date() - timedelta(days=days - 1)
    return ops.ListUsageRequest(
        first_day=first.isoformat(),
        group_by=[f"USAGE_GROUP_{group.name}" for group in dict.fromkeys(groups)],
        limit=PAGE_ROWS,
        **asdict(owner),
    )


def format_table(rows: Sequence[ops.UsageRow], groups: Sequence[str]) -> list[str]:
    """The lines of a table: names, then figures aligned to the right; of several rows also the sums.

    None without rows.
    """
    if not rows:
        return []
    cells = [
        [*groups, *COUNT_COLUMNS, "seconds", *AMOUNT_COLUMNS[1:]],
        *([*(getattr(row, group) or OTHER_NAME for group in groups), *_figures([row])] for row in rows),
    ]
    if len(rows) > 1:
        cells.append(["total", *[""] * (len(groups) - 1), *_figures(rows)])
    return _aligned(cells, len(groups))


def _aligned(cells: Sequence[Sequence[str]], names: int) -> list[str]:
    """Lines of columns: the first `names` of them aligned to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return [
        "  ".join(
            f"{cell:<{width}}" if at < names else f"{cell:>{width}}"
            for at, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        for line in cells
    ]


def _figures(rows: Sequence[ops.UsageRow]) -> list[str]:
    counts = [f"{sum(getattr(row, name) for row in rows):,}" for name in COUNT_COLUMNS]
    seconds, tokens, cost = (sum(getattr(row, name) for row in rows) for name in AMOUNT_COLUMNS)
    return [*counts, f"{seconds:,.1f}", f"{tokens:,}", f"{cost:,.2f}" if cost >= 1 or not cost else f"{cost:.2g}"]


def format_overview(agents: Sequence[ops.AgentOverview], now: float) -> list[str]:
    """The lines of a table; none without agents. now: milliseconds since the epoch."""
    if not agents:
        return []
    cells = [["agent", "queued", "running", "waiting", *COUNT_COLUMNS, "s/turn", "p50", "p95", "s in queue", "p95"]]
    for one in agents:
        counts = [sum(getattr(hour, name) for hour in one.hours) for name in COUNT_COLUMNS]
        open_tasks = [_format_open_tasks(tasks, now) for tasks in (one.queued, one.running, one.waiting)]
        turns, queue = one.turns, one.queue
        times = turns.mean_seconds, turns.p50_seconds, turns.p95_seconds, queue.mean_seconds, queue.p95_seconds
        shown = [f"{time:,.1f}" if time >= 1 else f"{time:.2g}" for time in times]
        shown = [*(shown[:3] if turns.count else [""] * 3), *(shown[3:] if queue.count else [""] * 2)]
        cells.append([one.agent, *open_tasks, *(f"{count:,}" for count in counts), *shown])
    return _aligned(cells, 1)


def _format_open_tasks(tasks: ops.OpenTasks, now: float) -> str:
    age = f" ({format_elapsed(now - tasks.oldest.ToMilliseconds())})" if tasks.HasField("oldest") else ""
    return f"{tasks.count:,}{'+' if tasks.is_minimum else ''}{age}"


COMMANDS: Final = {"usage": Command(usage), "overview": Command(overview)}
