"""Rows are written as they come, and ratios are those of one round."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from bench.rows import Key, Row, Rows, Writer
from bench.spread import Spread

OURS = Key("grpc-send", "64 callers", "dragoman")
BARE = Key("grpc-send", "64 callers", "bare gRPC")


def row(key: Key, number: int, value: float, **more: float) -> Row:
    return {**key._asdict(), "round": number, "value": value, "unit": "req/s", **more}


def test_a_ratio_is_taken_inside_its_round_and_not_of_two_medians() -> None:
    rows = Rows(
        [[row(OURS, 0, 10), row(BARE, 0, 100), row(OURS, 1, 90), row(BARE, 1, 100), row(OURS, 2, 20), row(BARE, 2, 40)]]
    )
    assert rows.ratio(OURS, BARE) == Spread(0.5, 0.1, 0.9, 3)
    medians = rows.spread(OURS), rows.spread(BARE)
    assert medians[0] is not None
    assert medians[1] is not None
    assert medians[0].median / medians[1].median == 0.2


def test_a_round_without_one_of_both_has_no_ratio() -> None:
    rows = Rows([[row(OURS, 0, 10), row(OURS, 1, 50), row(BARE, 1, 100)]])
    assert rows.ratio(OURS, BARE) == Spread(0.5, 0.5, 0.5, 1)
    assert rows.ratio(OURS, Key("grpc-send", "64 callers", "nobody")) is None


def test_rounds_of_several_runs_are_not_mixed() -> None:
    rows = Rows([[row(OURS, 0, 10), row(BARE, 0, 100)], [row(OURS, 0, 30), row(BARE, 0, 100)]])
    assert rows.ratio(OURS, BARE) == Spread(0.2, 0.1, 0.3, 2)


def test_a_figure_that_was_not_taken_in_every_row_is_that_of_those_that_have_it() -> None:
    rows = Rows([[row(OURS, 0, 10, p50=1.0), row(OURS, 1, 10)]])
    assert rows.spread(OURS, "p50") == Spread(1.0, 1.0, 1.0, 1)


def test_what_was_written_is_read_again(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "folder" / "rows", {"section": "run", "date": "today"})
    writer.add(OURS, 0, 10.0, "req/s", p50=1.5)
    writer.failed(BARE, 0, "it broke off")
    writer.close()
    rows = Rows.read([writer.path])
    assert rows.about == [{"section": "run", "date": "today"}]
    assert rows.spread(OURS, "p50") == Spread(1.5, 1.5, 1.5, 1)
    assert [error["error"] for error in rows.errors] == ["it broke off"]
    assert BARE not in rows


def test_a_row_is_on_disk_as_soon_as_it_was_measured(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "rows", {"section": "run"})
    writer.add(OURS, 0, 10.0, "req/s")
    assert [json.loads(line)["section"] for line in writer.path.read_text().splitlines()] == ["run", "grpc-send"]
    writer.close()


def test_a_run_that_was_cut_off_keeps_its_whole_rows(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    whole = json.dumps(row(OURS, 0, 10)) + "\n"
    path.write_text(whole + whole.replace('"round": 0', '"round": 1')[:-9])
    assert Rows.read([path]).spread(OURS) == Spread(10, 10, 10, 1)


def test_a_file_of_rows_is_never_overwritten(tmp_path: Path) -> None:
    Writer(tmp_path / "rows", {"section": "run"}).close()
    with pytest.raises(FileExistsError):
        Writer(tmp_path / "rows", {"section": "run"})
