"""`dragoman usage` and `dragoman overview` against a real server."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from tests.cli.conftest import Run

from dragoman.cli.admin.usage import (
    COUNT_COLUMNS,
    GroupOption,
    build_request,
    format_overview,
    format_table,
    parse_days,
)
from dragoman.cli.options import TaskOwner
from dragoman_pb.dragoman.ops.v1 import overview_pb2 as overview_pb
from dragoman_pb.dragoman.ops.v1 import usage_pb2 as ops


def test_usage_is_shown_by_day_and_by_agent(dragoman: Run) -> None:
    assert (
        dragoman("usage", "--principal", "nobody").err
        == f"no usage since {build_request(30, [], TaskOwner()).first_day}\n"
    )
    for _ in range(2):
        assert dragoman("send", "echo hello").code == 0
    assert dragoman("send", "fail").code == 1
    header, line = dragoman("usage").out.splitlines()
    assert header.split() == ["day", *COUNT_COLUMNS, "seconds", "tokens", "cost"]
    day, *counts = line.split()
    assert day == datetime.now(UTC).date().isoformat()
    assert counts[:6] == ["3", "2", "1", "0", "0", "3"]
    by_two = dragoman("usage", "--by", "principal", "--by", "agent", "--since", "1").out.splitlines()
    assert by_two[1].split()[:3] == ["anonymous", "playground", "3"]
    assert dragoman("usage", "--agent", "other").out == ""


def test_json_lines_have_one_row_each(dragoman: Run) -> None:
    assert dragoman("send", "echo hello").code == 0
    (line,) = dragoman("usage", "--by", "agent", "--json").out.splitlines()
    row = json.loads(line)
    assert row["agent"] == "playground"
    assert int(row["begun"]) >= 1


def test_a_table_has_names_sums_and_aligned_figures() -> None:
    rows = [
        ops.UsageRow(principal="anna", begun=1200, completed=1199, failed=1, turns=1201, turn_seconds=61.25, cost=1.5),
        ops.UsageRow(principal="", begun=1, canceled=1, turns=1, tokens=7),
    ]
    assert format_table(rows, ["principal"]) == [
        "principal  begun  completed  failed  canceled  rejected  turns  seconds  tokens  cost",
        "anna       1,200      1,199       1         0         0  1,201     61.2       0  1.50",
        "(other)        1          0       0         1         0      1      0.0       7  0.00",
        "total      1,201      1,199       1         1         0  1,202     61.2       7  1.50",
    ]
    assert len(format_table(rows[:1], ["principal"])) == 2


def test_a_group_that_is_repeated_counts_once() -> None:
    request = build_request(1, [GroupOption.AGENT, GroupOption.DAY, GroupOption.AGENT], TaskOwner())
    assert list(request.group_by) == [ops.USAGE_GROUP_AGENT, ops.USAGE_GROUP_DAY]
    assert request.first_day == datetime.now(UTC).date().isoformat()


@pytest.mark.parametrize(("text", "days"), [("7", 7), ("7d", 7), ("2w", 14), ("36h", 1), ("400", 400)])
def test_a_period_is_a_number_of_days(text: str, days: int) -> None:
    assert parse_days(text) == days


@pytest.mark.parametrize("text", ["0", "12h", "401d", "week", ""])
def test_other_periods_are_usage_errors(dragoman: Run, text: str) -> None:
    assert dragoman("usage", "--since", text).code == 2


def test_a_group_that_does_not_exist_is_a_usage_error(dragoman: Run) -> None:
    assert dragoman("usage", "--by", "week").code == 2


def test_the_overview_has_a_line_for_each_agent(dragoman: Run) -> None:
    assert dragoman("overview", "--agent", "nobody").err == "no unfinished tasks, and nothing in the last 24 hours\n"

    def line() -> list[str]:
        """The cells of the line of the playground, on a server that other tests use too."""
        header, *lines = dragoman("overview", "--hours", "48").out.splitlines()
        times = ["s/turn", "p50", "p95", "s", "in", "queue", "p95"]
        assert header.split() == ["agent", "queued", "running", "waiting", *COUNT_COLUMNS, *times]
        return lines[0].split()

    assert dragoman("send", "echo hello").code == 0
    before = line()
    assert before[:4] == ["playground", "0", "0", "0"]
    assert dragoman("send", "echo hello").code == 0
    assert dragoman("send", "fail").code == 1
    counts = zip(line()[4:10], before[4:10], strict=True)
    assert [int(after) - int(earlier) for after, earlier in counts] == [2, 1, 1, 0, 0, 2]
    (text,) = dragoman("overview", "--json").out.splitlines()
    assert json.loads(text)["agent"] == "playground"
    assert dragoman("overview", "--hours", "49").code == 2


def test_open_tasks_have_the_age_of_the_oldest() -> None:
    agent = overview_pb.AgentOverview(agent="desk", queued=overview_pb.OpenTasks(count=1000, is_minimum=True))
    agent.queued.oldest.FromMilliseconds(1_000)
    agent.hours.add(begun=3, completed=2, turns=4, turn_seconds=5)
    agent.hours.add(begun=1, failed=1, turns=1, turn_seconds=6)
    agent.turns.MergeFrom(overview_pb.TurnTimes(count=1, mean_seconds=11, p50_seconds=11, p95_seconds=11))
    assert format_overview([agent], 301_000) == [
        "agent       queued  running  waiting  begun  completed  failed  canceled  rejected  turns  s/turn"
        "   p50   p95  s in queue  p95",
        "desk   1,000+ (5m)        0        0      4          2       1         0         0      5    11.0"
        "  11.0  11.0                 ",
    ]
    assert format_overview([], 0) == []
