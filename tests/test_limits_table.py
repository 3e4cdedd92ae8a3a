"""docs/reference/limits.md lists every limit with its value in the code."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from types import UnionType
from typing import Any, Final, NamedTuple, Union, get_args, get_origin

import pytest
from pydantic import ByteSize

from dragoman.core.limits import message_limits
from dragoman.core.limits.quotas import AGENT_LIMITS, DEFAULT_LIMITS
from dragoman.settings.settings import setting_fields

PAGE: Final = Path(__file__).parents[1] / "docs" / "reference" / "limits.md"
UNITS: Final = {"": 1, "KiB": 1024, "MiB": 1024**2}


class Row(NamedTuple):
    """One line of a table: the limit, its value, and the constant or option."""

    what: str
    value: int
    where: str


def rows() -> Iterator[Row]:
    for line in PAGE.read_text("utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if line.startswith("|") and (found := re.fullmatch(r"([\d,]+) ?(KiB|MiB)?", cells[1])):
            number = int(found[1].replace(",", "")) * UNITS[found[2] or ""]
            where = re.search(r"`([^`]+)`", cells[2])
            assert where is not None, line
            yield Row(cells[0], number, where[1].split()[0])


TABLE: Final = list(rows())


def value_of(where: str) -> Any:
    """The value in the code: the default of an option, or a constant."""
    if where.startswith("--"):
        name = where.removeprefix("--").replace("-", "_")
        return DEFAULT_LIMITS[name] if name in DEFAULT_LIMITS else setting_fields()[name].default
    module, _, name = where.rpartition(".")
    parent, _, owner = module.rpartition(".")
    holder = importlib.import_module(f"dragoman.{parent if owner[0].isupper() else module}")
    value = getattr(getattr(holder, owner)() if owner[0].isupper() else holder, name)  # a class: of its defaults
    return int(re.findall(r"\d+", value.pattern)[-1]) if isinstance(value, re.Pattern) else value


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.where)
def test_every_value_on_the_page_is_the_value_in_the_code(row: Row) -> None:
    assert value_of(row.where) == row.value


def test_no_limit_is_listed_twice() -> None:
    assert len({row.where for row in TABLE}) == len(TABLE)


def is_numeric(annotation: Any) -> bool:
    """Whether the type of a setting is a number."""
    if get_origin(annotation) in (Union, UnionType):
        return any(is_numeric(one) for one in get_args(annotation))
    return isinstance(annotation, type) and issubclass(annotation, int | float | ByteSize) and annotation is not bool


def test_every_numeric_setting_is_on_the_page() -> None:
    kept = {name for name in setting_fields() if name == "retain_audit"}  # audit.md has it
    named = {name for name, field in setting_fields().items() if is_numeric(field.annotation)} - kept
    assert {row.where.removeprefix("--").replace("-", "_") for row in TABLE if row.where.startswith("--")} == named
    assert set(DEFAULT_LIMITS) <= named


def test_every_limit_of_requests_is_on_the_page() -> None:
    values = {name for name, value in vars(message_limits).items() if name.isupper() and isinstance(value, int)}
    listed = {row.where.rpartition(".")[2] for row in TABLE if row.where.startswith("core.limits.message_limits.")}
    assert values == listed | {"MAX_MESSAGE_BYTES"}  # which is the default of a setting
    assert setting_fields()["message_bytes"].default == message_limits.MAX_MESSAGE_BYTES


def test_limits_of_single_agents_are_on_the_page() -> None:
    text = PAGE.read_text("utf-8")
    for name in AGENT_LIMITS:
        assert f"`--agent-limits ID.{name.replace('_', '-')}=N`" in text
