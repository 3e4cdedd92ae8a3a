"""Rows of a run, ratios within a round, and formatted spreads."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from bench.rows import Key, Row, Rows, Spread, Writer, format_number

DRAGOMAN = Key("grpc-send", "64 callers", "dragoman")
BARE = Key("grpc-send", "64 callers", "bare gRPC")


def row(key: Key, number: int, value: float, **more: float) -> Row:
    return {**key._asdict(), "round": number, "value": value, "unit": "req/s", **more}


def test_ratios_are_computed_within_a_round() -> None:
    rows = Rows(
        [
            [
                row(DRAGOMAN, 0, 10),
                row(BARE, 0, 100),
                row(DRAGOMAN, 1, 90),
                row(BARE, 1, 100),
                row(DRAGOMAN, 2, 20),
                row(BARE, 2, 40),
            ]
        ]
    )
    assert rows.ratio(DRAGOMAN, BARE) == Spread(0.5, 0.1, 0.9, 3)
    medians = rows.spread(DRAGOMAN), rows.spread(BARE)
    assert medians[0] is not None
    assert medians[1] is not None
    assert medians[0].median / medians[1].median == 0.2


def test_a_round_with_one_value_missing_has_no_ratio() -> None:
    rows = Rows([[row(DRAGOMAN, 0, 10), row(DRAGOMAN, 1, 50), row(BARE, 1, 100)]])
    assert rows.ratio(DRAGOMAN, BARE) == Spread(0.5, 0.5, 0.5, 1)
    assert rows.ratio(DRAGOMAN, Key("grpc-send", "64 callers", "nobody")) is None


def test_rounds_of_several_runs_are_not_mixed() -> None:
    rows = Rows([[row(DRAGOMAN, 0, 10), row(BARE, 0, 100)], [row(DRAGOMAN, 0, 30), row(BARE, 0, 100)]])
    assert rows.ratio(DRAGOMAN, BARE) == Spread(0.2, 0.1, 0.3, 2)


def test_a_spread_ignores_rows_without_the_field() -> None:
    rows = Rows([[row(DRAGOMAN, 0, 10, p50=1.0), row(DRAGOMAN, 1, 10)]])
    assert rows.spread(DRAGOMAN, "p50") == Spread(1.0, 1.0, 1.0, 1)


def test_written_rows_can_be_read(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "folder" / "rows", {"section": "run", "date": "today"})
    writer.add(DRAGOMAN, 0, 10.0, "req/s", p50=1.5)
    writer.add_failure(BARE, 0, "it broke off")
    writer.close()
    rows = Rows.read([writer.path])
    assert rows.run_rows == [{"section": "run", "date": "today"}]
    assert rows.spread(DRAGOMAN, "p50") == Spread(1.5, 1.5, 1.5, 1)
    assert [error["error"] for error in rows.errors] == ["it broke off"]
    assert BARE not in rows


def test_a_row_is_flushed_immediately(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "rows", {"section": "run"})
    writer.add(DRAGOMAN, 0, 10.0, "req/s")
    assert [json.loads(line)["section"] for line in writer.path.read_text().splitlines()] == ["run", "grpc-send"]
    writer.close()


def test_an_incomplete_last_row_is_ignored(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    whole = json.dumps(row(DRAGOMAN, 0, 10)) + "\n"
    path.write_text(whole + whole.replace('"round": 0', '"round": 1')[:-9])
    assert Rows.read([path]).spread(DRAGOMAN) == Spread(10, 10, 10, 1)


def test_a_file_of_rows_is_never_overwritten(tmp_path: Path) -> None:
    Writer(tmp_path / "rows", {"section": "run"}).close()
    with pytest.raises(FileExistsError):
        Writer(tmp_path / "rows", {"section": "run"})


# Spreads ----------------------------------------------------------------------------------------------------------


def test_a_spread_has_median_and_range() -> None:
    assert Spread.of([3.0, 1.0, 10.0]) == Spread(3.0, 1.0, 10.0, 3)
    assert Spread.of([1.0, 2.0]) == Spread(1.5, 1.0, 2.0, 2)


def test_no_values_have_no_spread() -> None:
    assert Spread.of([]) is None


def test_a_single_value_is_formatted_without_a_range() -> None:
    assert str(Spread.of([12.0])) == "12.0"
    assert str(Spread.of([1771.2, 1846.9, 1795.0])) == "1,795 [1,771..1,847]"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (12345.6, "12,346"),
        (123.4, "123"),
        (12.34, "12.3"),
        (1.234, "1.23"),
        (0.1234, "0.123"),
        (0, "0.00"),
        (-3.061, "-3.06"),
    ],
)
def test_numbers_have_three_significant_digits(value: float, text: str) -> None:
    assert format_number(value) == text
