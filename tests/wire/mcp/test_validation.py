"""Validation of arguments and results against declared schemas."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.wire.mcp.validation import MAX_PROBLEM_CHARACTERS, compile_schema

SCHEMA = {"type": "object", "properties": {"items": {"type": "array", "items": {"type": "integer"}}}}


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ({"items": [1, 2]}, ""),
        ({"items": [1, "two"]}, "items.1: 'two' is not of type 'integer'"),
        ([], "[] is not of type 'object'"),
    ],
)
def test_the_path_and_the_rule_are_named(value: Any, problem: str) -> None:
    assert compile_schema(SCHEMA)(value) == problem


def test_the_dialect_of_a_schema_counts() -> None:
    schema = {"$schema": "http://json-schema.org/draft-07/schema#", "items": [{"type": "integer"}]}
    assert compile_schema(schema)(["x"]) == "0: 'x' is not of type 'integer'"


def test_other_documents_are_never_fetched() -> None:
    problem = compile_schema({"$ref": "http://127.0.0.1:9/schema.json"})({})
    assert problem.startswith("the agent's schema refers to another document")


def test_a_schema_that_is_none_is_a_problem_and_no_fault() -> None:
    assert compile_schema({"type": 7})({}).startswith("the agent's schema is invalid")


def test_a_long_problem_is_cut() -> None:
    assert len(compile_schema({"type": "integer"})("x" * 5000)) == MAX_PROBLEM_CHARACTERS


def test_without_a_schema_every_value_is_fine() -> None:
    assert compile_schema(None)(object()) == ""
