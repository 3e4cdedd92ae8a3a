"""The table of the ladder: what each rung adds to the one below, within a round."""

from __future__ import annotations

from bench.rows import Row, Rows
from bench.servers.ladder import LADDER

from bench.measurements import ladder


def row(rung: int, number: int, value: float) -> Row:
    key = ladder.row_key(ladder.case("grpc", 64), LADDER[rung])
    return {**key._asdict(), "round": number, "value": value, "unit": "us"}


def test_a_rung_costs_the_median_difference_to_the_rung_below_it() -> None:
    rows = Rows([[row(0, 0, 100), row(1, 0, 130), row(0, 1, 200), row(1, 1, 240), row(0, 2, 90), row(1, 2, 140)]])
    lines = ladder.render(rows).splitlines()
    assert lines[4].startswith("| transport |  |  |  | 100 [90.0..200] |")
    assert lines[5].startswith("| receive |  |  |  | 40.0 [30.0..50.0] |")
    assert lines[6].startswith("| parse |  |  |  |  |")


def test_the_last_line_is_the_whole_path() -> None:
    last = len(LADDER) - 1
    lines = ladder.render(Rows([[row(last, 0, 700), row(last, 1, 710), row(last, 2, 900)]])).splitlines()
    assert lines[-1] == "| **all** |  |  |  | 710 |  |"


def test_a_run_without_a_ladder_has_no_table() -> None:
    assert ladder.render(Rows([[]])) == ""
