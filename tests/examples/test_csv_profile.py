"""The CSV profiler on valid, large and invalid files."""

from __future__ import annotations

import csv
import io
import statistics
from typing import Any

import pytest
from examples.csv_profile import PROGRESS_EVERY, csv_profile
from tests.agents.turn_context import RecordingTurnContext, run_turn, state_of, status_text

from dragoman import types
from dragoman.agents.values import value_to_json
from dragoman.core.task import states
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb


def columns_of(task: pb.Task) -> dict[str, Any]:
    [artifact] = task.artifacts
    return {column["column"]: column for column in (value_to_json(part.data) for part in artifact.parts)}


async def profile(text: str | bytes) -> pb.Task:
    content = text.encode() if isinstance(text, str) else text
    return (await run_turn(csv_profile, "profile this", types.file(content, name="t.csv")))[0]


async def test_every_column_gets_its_type_and_numbers() -> None:
    task = await profile(
        "id,price,name,day,open,zip,nothing\n"
        "1,1.5,ann,2026-01-02,true,00501,\n"
        '2,,"b, c",2026-01-01,FALSE,10001,NA\n'
        "2,2.5,ann,2026-03-01,true,10001,null\n"
    )
    assert (state_of(task), status_text(task)) == ("COMPLETED", "t.csv: 3 rows, 7 columns")
    columns = columns_of(task)
    assert columns["id"] == {
        "column": "id", "type": "integer", "rows": 3, "nulls": 0, "distinct": 2, "min": 1, "max": 2,
        "mean": pytest.approx(5 / 3),
    }  # fmt: skip
    assert columns["price"] == {
        "column": "price", "type": "number", "rows": 3, "nulls": 1, "distinct": 2, "min": 1.5, "max": 2.5, "mean": 2,
    }  # fmt: skip
    assert (columns["name"]["type"], columns["name"]["min"], columns["name"]["mean"]) == ("text", "ann", None)
    assert (columns["day"]["type"], columns["day"]["max"]) == ("date", "2026-03-01")
    assert columns["open"]["type"] == "boolean"
    assert (columns["zip"]["type"], columns["zip"]["min"]) == ("text", "00501")
    assert (columns["nothing"]["type"], columns["nothing"]["nulls"], columns["nothing"]["distinct"]) == ("empty", 3, 0)


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
async def test_the_usual_delimiters_are_understood(delimiter: str) -> None:
    task = await profile(f"a{delimiter}b\r\n1{delimiter}x\r\n")
    assert list(columns_of(task)) == ["a", "b"]


async def test_a_byte_order_mark_quoted_line_ends_and_empty_lines_are_understood() -> None:
    task = await profile(b'\xef\xbb\xbfa,b\n\n"one\ntwo",2\n\n')
    assert columns_of(task)["a"]["min"] == "one\ntwo"


async def test_a_file_of_only_a_header_has_columns_without_values() -> None:
    task = await profile("a,b\n")
    assert {name: (c["type"], c["rows"]) for name, c in columns_of(task).items()} == {
        "a": ("empty", 0),
        "b": ("empty", 0),
    }


async def test_numbers_too_large_to_add_up_are_text() -> None:
    columns = columns_of(await profile(f"a,b,c\n{'9' * 400},1e999,nan\n{2**60},1,1\n"))
    assert [columns[name]["type"] for name in "abc"] == ["text", "text", "integer"]


async def test_a_hundred_thousand_rows_stream_with_progress() -> None:
    rows = 100_000
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(["id", "amount", "city", "day", "note"])
    for n in range(rows):
        writer.writerow(
            [n, n / 4, ("Rome", "Oslo", "Lima")[n % 3], f"2026-01-{n % 28 + 1:02}", "" if n % 2 else f"n{n}"]
        )
    context = RecordingTurnContext("go", types.file(text.getvalue(), name="big.csv", media_type="text/csv"))
    ending = await csv_profile.take_turn(context)
    task = context.task(ending)

    assert (state_of(task), status_text(task)) == ("COMPLETED", "big.csv: 100,000 rows, 5 columns")
    columns = columns_of(task)
    assert columns["id"] == {
        "column": "id", "type": "integer", "rows": rows, "nulls": 0, "distinct": rows, "min": 0, "max": rows - 1,
        "mean": statistics.fmean(range(rows)),
    }  # fmt: skip
    assert columns["amount"]["mean"] == statistics.fmean(n / 4 for n in range(rows))
    assert (columns["city"]["distinct"], columns["day"]["type"], columns["note"]["nulls"]) == (3, "date", rows // 2)

    events = context.events(ending)
    progress = [
        event.status_update.status.message.parts[0].text
        for event in events
        if event.status_update.status.state == states.WORKING
    ]
    assert progress == [
        *(f"read {n:,} rows" for n in range(PROGRESS_EVERY, rows + 1, PROGRESS_EVERY)),
        "read 100,000 rows, 5 columns; profiling",
    ]
    streamed = [event.artifact_update for event in events if event.HasField("artifact_update")]
    assert [update.append for update in streamed] == [False, True, True, True, True]


BAD: list[tuple[str | bytes, str]] = [
    (b"", "the file is empty"),
    (b" \n\n", "the file is empty"),
    (b"\xef\xbb\xbf", "the file is empty"),
    (b"PK\x03\x04\0\0", "the file is binary"),
    (b"a,b\n\xff\xfe,1\n", "not UTF-8 text"),
    ("a,b\n1,2\n3\n", "line 3 has 1 fields, the header has 2"),
    ("a,b\n1,2,3\n", "line 2 has 3 fields"),
    ('a,b\n"1,2\n', "line 2: unexpected end of data"),
    ("1,2\n3,4\n", 'no header: column 1 of the first line is the number "1"'),
    ("a,,c\n1,2,3\n", "no header: column 2 of the first line has no name"),
    ("a,b,a\n1,2,3\n", 'no header: the first line has "a" twice'),
]


@pytest.mark.parametrize(("content", "why"), BAD, ids=[why for _, why in BAD])
async def test_invalid_csv_fails_with_a_reason(content: str | bytes, why: str) -> None:
    task = await profile(content)
    assert state_of(task) == "FAILED"
    assert status_text(task).startswith("NotCSV: ")
    assert why in status_text(task)
    assert not task.artifacts


async def test_without_a_file_it_asks_for_one() -> None:
    task, _ = await run_turn(csv_profile, "profile this")
    assert (state_of(task), status_text(task)) == ("INPUT_REQUIRED", "Send me a CSV file to profile.")


@pytest.mark.parametrize(
    "parts", [[types.file(b"a\n"), types.file(b"b\n")], [types.link("https://example.org/a.csv")]], ids=["two", "link"]
)
async def test_two_files_and_links_are_rejected(parts: list[types.Part]) -> None:
    task, _ = await run_turn(csv_profile, *parts)
    assert state_of(task) == "REJECTED"
