"""The report on sizing, and the page that it writes."""

from __future__ import annotations

import json

import pytest
from bench.report.tables import replace_generated
from bench.rows import Key, Rows
from bench.sections import SIZING
from bench.servers.contestants import DRAGOMAN
from bench.sizing.cases import ALL, Case, Kind
from tests.bench.sizing.synthetic import measured

from bench.report import sizing


def rows() -> Rows:
    found = []
    for number, factor in enumerate((1.0, 5.0, 1.2)):
        for name, figures in measured().items():
            fields = {"value": 1.0, **{field: value * factor for field, value in figures.items()}}
            found.append({**Key(SIZING, name, DRAGOMAN)._asdict(), "round": number, "unit": "", **fields})
    return Rows([found])


def test_the_page_is_what_the_model_computes_from_the_stored_medians() -> None:
    page = sizing.DOCUMENT.read_text("utf-8")
    assert replace_generated(page, sizing.render_stored(), (sizing.BEGIN, sizing.END)) == page


def test_the_stored_medians_have_every_case() -> None:
    stored = json.loads(sizing.MEDIANS.read_text("utf-8"))["medians"]
    assert [case.name for case in ALL if case.name not in stored] == []


def test_medians_are_of_each_field() -> None:
    found = sizing.medians(rows())
    name = Case(Kind.SEND, 16).name
    assert found[name]["commits"] == pytest.approx(measured()[name]["commits"] * 1.2)


def test_every_prediction_is_a_line_with_a_verdict() -> None:
    text = sizing.render(measured())
    for title in ("Constants", "Predicted and measured", "What a load needs", "Limits"):
        assert f"### {title}" in text
    assert "figures are within 25%." in text
    assert "MISSED" in text


def test_a_partial_run_is_reported_with_what_is_missing() -> None:
    figures = measured()
    del figures[Case(Kind.SEND, 1).name], figures[Case(Kind.SEND, 32, 2).name]
    text = sizing.render(figures)
    assert "No result: not measured: 1 server on PostgreSQL, 1 caller: send." in text
    assert "- 2 servers on PostgreSQL, 32 callers: send: not measured" in text
    assert "1 server on SQLite, 16 callers: send" in text


def test_no_rows_have_no_report() -> None:
    assert sizing.report(Rows([])) == ""
    assert list(sizing.write(Rows([]))) == []
