"""Profiles a CSV file: `dragoman serve examples/csv_profile.py`, then

    dragoman send "profile this" --file data.csv --stream

A sync generator runs in a thread, so its work does not block the server. Each yielded column is streamed as a data part
of one artifact; the returned message completes the task.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections import Counter
from collections.abc import Generator, Sequence
from datetime import date
from typing import TypedDict

from dragoman import Turn, agent, types

PROGRESS_EVERY = 20_000
NULLS = {"", "na", "n/a", "nan", "null", "none", "-"}
# No leading zeros: 00501 is a postal code, not the number 501.
WHOLE = re.compile(r"[+-]?(0|[1-9][0-9]{0,14})")
# Longer numbers are text, since their sum may exceed the range of a float.
NUMBER = re.compile(r"[+-]?([0-9]{1,60}(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,2})?")
DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


class NotCSV(ValueError):
    """The file is not a CSV file with a header. The message has the reason."""


class Column(TypedDict):
    column: str
    type: str
    rows: int
    nulls: int
    distinct: int
    min: int | float | str | None
    max: int | float | str | None
    mean: float | None


@agent(
    name="CSV profile",
    version="1.0.0",
    input_modes=("text/csv", "text/plain", "application/csv", "application/vnd.ms-excel", "application/octet-stream"),
    output_modes=("application/json", "text/plain"),
    skills=[
        {
            "id": "profile",
            "name": "Profile a CSV file",
            "description": "Type, nulls, distinct values, minimum, maximum and mean of every column",
            "tags": ["csv", "statistics"],
            "examples": ["profile this file"],
            "input_modes": ["text/csv"],
            "output_modes": ["application/json"],
        }
    ],
)
def csv_profile(turn: Turn) -> Generator[Column | types.Message, None, types.Message]:
    """Profiles the columns of a CSV file, one after another."""
    if not turn.files:
        turn.ask("Send me a CSV file to profile.")
    if len(turn.files) > 1:
        turn.reject(f"One file at a time, please: this message has {len(turn.files)}.")
    file = turn.files[0]
    if file.url:
        turn.reject("I do not follow links; send the file itself.")

    header, rows = read(file.bytes, turn)
    yield types.message(f"read {len(rows):,} rows, {len(header)} columns; profiling")
    # A file with only a header has columns too, but zip(*rows) would be empty.
    columns: Sequence[Sequence[str]] = list(zip(*rows, strict=True)) if rows else [()] * len(header)
    for name, cells in zip(header, columns, strict=True):
        yield profile(name, cells)
    return types.message(f"{file.name or 'the file'}: {len(rows):,} rows, {len(header)} columns")


def read(content: bytes, turn: Turn) -> tuple[list[str], list[list[str]]]:
    """Returns header and rows, and reports progress. Raises NotCSV with the line of the error."""
    text = decode(content)
    lines = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter_of(text), strict=True)
    header: list[str] = []
    rows: list[list[str]] = []
    try:
        for row in lines:
            if not row:  # an empty line
                continue
            if not header:
                header = checked_header(row)
                continue
            if len(row) != len(header):
                raise NotCSV(f"line {lines.line_num} has {len(row)} fields, the header has {len(header)}")
            rows.append(row)
            if len(rows) % PROGRESS_EVERY == 0:
                turn.check()
                turn.status(f"read {len(rows):,} rows")
    except csv.Error as error:
        raise NotCSV(f"line {lines.line_num}: {error}") from error
    return header, rows


def decode(content: bytes) -> str:
    if b"\0" in content:
        raise NotCSV("the file is binary, not text")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise NotCSV(f"the file is not UTF-8 text (byte {error.start} of {len(content)})") from None
    if not text.strip():
        raise NotCSV("the file is empty")
    return text


def delimiter_of(text: str) -> str:
    """Guesses the delimiter from the header line."""
    header = text.lstrip("\r\n").split("\n", 1)[0]
    return max(",;\t|", key=header.count)


def checked_header(row: list[str]) -> list[str]:
    names = [name.strip() for name in row]
    for number, name in enumerate(names, 1):
        if not name:
            raise NotCSV(f"no header: column {number} of the first line has no name")
        if NUMBER.fullmatch(name):
            raise NotCSV(f'no header: column {number} of the first line is the number "{name}"')
        if name in names[: number - 1]:
            raise NotCSV(f'no header: the first line has "{name}" twice')
    return names


def profile(name: str, cells: Sequence[str]) -> Column:
    """Profiles one column. Evaluates each distinct value once."""
    counts = Counter(cells)
    blank = [value for value in counts if value.strip().lower() in NULLS]
    nulls = sum(counts.pop(value) for value in blank)
    column: Column = {
        "column": name, "type": "empty", "rows": len(cells), "nulls": nulls, "distinct": len(counts),
        "min": None, "max": None, "mean": None,
    }  # fmt: skip
    if not counts:
        return column
    column["type"], values = typed(list(counts))
    column["min"], column["max"] = shorten(min(values)), shorten(max(values))
    if column["type"] in ("integer", "number"):
        weighted = (float(value) * count for value, count in zip(values, counts.values(), strict=True))
        column["mean"] = math.fsum(weighted) / (len(cells) - nulls)
    return column


def typed(texts: list[str]) -> tuple[str, Sequence[int | float | str]]:
    """Returns the narrowest type of all texts, and the converted values."""
    stripped = [text.strip() for text in texts]
    if all(map(WHOLE.fullmatch, stripped)):
        return "integer", list(map(int, stripped))
    if all(map(NUMBER.fullmatch, stripped)) and not any(map(leading_zero, stripped)):
        return "number", list(map(float, stripped))
    if {text.lower() for text in stripped} <= {"true", "false"}:
        return "boolean", stripped
    if all(map(is_day, stripped)):
        return "date", stripped
    return "text", texts


def leading_zero(text: str) -> bool:
    digits = text.lstrip("+-")
    return len(digits) > 1 and digits[0] == "0" and digits[1].isdigit()


def is_day(text: str) -> bool:
    if not DAY.fullmatch(text):
        return False
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


def shorten(value: int | float | str) -> int | float | str:
    return f"{value[:79]}…" if isinstance(value, str) and len(value) > 80 else value
