"""JSON Schemas of others: accepted within bounds, evaluated in bounded time, never fetched."""

from __future__ import annotations

import socket
import time
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.core.schemas import MAX_PROBLEM_CHARACTERS, MAX_SUBSCHEMAS, compile_schema, schema_problem

pytestmark = pytest.mark.long

ITEMS: Final = {"type": "object", "properties": {"items": {"type": "array", "items": {"type": "integer"}}}}

CHECK_SECONDS: Final = 1.0
"""CPU time on any machine; a check has 5 ms. Unbounded, the checks below take minutes and more."""


def find_problem(schema: dict[str, Any], value: object) -> str:
    return compile_schema(schema).find_problem(value)


def nested(key: str, levels: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(levels):
        value = {key: value}
    return value


def bomb(levels: int, **rules: Any) -> dict[str, Any]:
    """References that double with each level."""
    definitions: dict[str, Any] = {
        f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}, {"$ref": f"#/$defs/d{n + 1}"}], **rules}
        for n in range(levels)
    }
    return {"$defs": {**definitions, f"d{levels}": {"type": "string"}}, "$ref": "#/$defs/d0"}


# Texts ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "value", "problem"),
    [
        (ITEMS, {"items": [1, 2]}, ""),
        (ITEMS, {"items": [1, "two"]}, "items.1: must be of type integer"),
        (ITEMS, [], "must be of type object"),
        ({"type": ["string", "null"]}, 5, "must be of type null or string"),
        ({"required": ["a"]}, {}, 'must have the property "a"'),
        ({"enum": ["s", 1]}, 3, 'must be one of "s",1'),
        ({"const": {"a": 1}}, 3, 'must be {"a":1}'),
        ({"properties": {"a": {}}, "additionalProperties": False}, {"b": 1, "c": 2}, 'must not have "b"'),
        ({"additionalProperties": False}, {"b": 1}, "must have no properties"),
        ({"properties": {"a": False}}, {"a": 1}, "a: must be absent"),
        ({"minLength": 2}, "x", "must have at least 2 characters"),
        ({"maximum": 2.5}, 3, "must be at most 2.5"),
        ({"exclusiveMinimum": 3}, 3, "must be more than 3"),
        ({"multipleOf": 2}, 3, "must be a multiple of 2"),
        ({"minItems": 2}, [1], "must have at least 2 items"),
        ({"uniqueItems": True}, [1, 1], "must have no item twice"),
        ({"contains": {"type": "string"}}, [1], "must contain an item that the schema asks for"),
        ({"pattern": "^a{2}$"}, "b", "must match the pattern ^a{2}$"),
        ({"propertyNames": {"maxLength": 1}}, {"bb": 1}, "must have other names of properties: must have at most 1"),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, 1, "must match one of the alternatives of the schema"),
        ({"oneOf": [{}, {}]}, 1, "must match exactly one of the alternatives of the schema"),
        ({"not": {}}, 1, "must not match the schema that `not` has"),
        ({"type": "string"}, "\ud800", "has a text that is not Unicode"),
    ],
)
def test_the_path_and_the_rule_and_the_allowed_value_are_named(
    schema: dict[str, Any], value: Any, problem: str
) -> None:
    found = find_problem(schema, value)
    assert found.startswith(problem)
    assert bool(found) == bool(problem)


def test_the_dialect_of_a_schema_counts() -> None:
    schema = {"$schema": "http://json-schema.org/draft-07/schema#", "items": [{"type": "integer"}]}
    assert find_problem(schema, ["x"]) == "0: must be of type integer"
    assert find_problem({"$schema": "https://example.com/own", "prefixItems": [{"type": "integer"}]}, ["x"])


def test_the_id_of_a_schema_is_only_a_name() -> None:
    schema = {"$id": "https://example.com/a.json", "type": "object", "$defs": {"n": {"type": "null"}}}
    assert find_problem({**schema, "properties": {"n": {"$ref": "#/$defs/n"}}}, {"n": 1}) == "n: must be of type null"


def test_references_within_a_schema_are_followed() -> None:
    tree = {
        "type": "object",
        "properties": {"value": {"type": "integer"}, "children": {"type": "array", "items": {"$ref": "#"}}},
    }
    assert find_problem(tree, {"children": [{"children": [{"value": "x"}]}]}) == (
        "children.0.children.0.value: must be of type integer"
    )
    named = {"$defs": {"a/b": {"$anchor": "text", "type": "string"}}}
    assert find_problem({**named, "$ref": "#text"}, 1) == "must be of type string"
    assert find_problem({**named, "$ref": "#/$defs/a~1b"}, 1) == "must be of type string"


def test_a_schema_that_is_none_is_a_problem_and_no_fault() -> None:
    check = compile_schema({"type": 7})
    assert check.invalid == "breaks a rule of JSON Schema: type: must match one of the alternatives of the schema"
    assert check.find_problem({}).startswith("the agent's schema is invalid: it breaks a rule of JSON Schema: type:")


def test_a_long_problem_is_cut() -> None:
    assert len(find_problem({"enum": ["x" * 5000]}, 1)) == MAX_PROBLEM_CHARACTERS


def test_without_a_schema_every_value_is_fine() -> None:
    assert compile_schema(None).find_problem(object()) == ""


# Bounds at registration -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        (5, "must be a JSON object"),
        ({"$ref": "http://127.0.0.1:9/schema.json"}, "must not refer to another document"),
        ({"properties": {"a": {"items": {"$ref": "file:///etc/passwd"}}}}, "must not refer to another document"),
        ({"$ref": "other.json#/a"}, "must not refer to another document"),
        ({"$ref": 5}, "must have a string as $ref"),
        ({"$ref": "#/$defs/a"}, 'must have what it refers to: "#/$defs/a"'),
        ({"$ref": "#a"}, 'must have what it refers to: "#a"'),
        ({"title": "x", "$ref": "#/title"}, 'must refer to schemas, which "#/title" is not'),
        ({"$dynamicRef": "#a"}, "must not use $dynamicRef"),
        ({"properties": {"a": {"$id": "http://127.0.0.1:9/", "$ref": "x"}}}, "must not have a subschema with $id"),
        ({"type": "object", "$ref": "#"}, "must not refer to itself for the same value"),
        (
            {"$defs": {"a": {"not": {"$ref": "#/$defs/b"}}, "b": {"if": {"$ref": "#/$defs/a"}}}, "$ref": "#/$defs/b"},
            "must not refer to itself for the same value",
        ),
        (bomb(40), "must apply at most 4,000 rules to one value, counted along its references"),
        (bomb(7, unevaluatedProperties=False), "must apply at most"),
        ({"properties": {str(n): {} for n in range(MAX_SUBSCHEMAS + 1)}}, "must have at most 2,000 subschemas"),
        (nested("not", 24), "must nest at most 24 levels"),
        ({"title": "x" * 65_536}, "must have at most 65,536 characters"),
    ],
)  # fmt: skip
def test_what_cannot_be_bounded_is_not_accepted(schema: Any, problem: str) -> None:
    started = time.thread_time()
    assert schema_problem(schema).startswith(problem)
    if isinstance(schema, dict):
        assert problem in compile_schema(schema).find_problem({})
    assert time.thread_time() - started < CHECK_SECONDS


@pytest.mark.parametrize("place", ["$ref", "$schema", "$id", "$dynamicRef", "id"])
@pytest.mark.parametrize("scheme", ["http", "https", "file"])
def test_nothing_is_ever_fetched(place: str, scheme: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        url = f"{scheme}://127.0.0.1:{listener.getsockname()[1]}/schema.json"
        for schema in ({place: url}, {"properties": {"a": {place: url}}}, {"$id": url, "$ref": "other.json"}):
            compile_schema(schema).find_problem({"a": 1})
        with pytest.raises(BlockingIOError):
            listener.accept()


# Bounds of a check ----------------------------------------------------------------------------------------------------


def rows(count: int) -> list[dict[str, int]]:
    return [{"a": number} for number in range(count)]


COSTLY: Final[dict[str, tuple[dict[str, Any], Any]]] = {
    "unique objects": ({"properties": {"tags": {"uniqueItems": True, "items": {}}}}, {"tags": rows(4000)}),
    "many unique objects": ({"properties": {"tags": {"uniqueItems": True}}}, {"tags": rows(50_000)}),
    "nested quantifiers": ({"properties": {"a": {"pattern": r"^([a-z0-9]+[._-]?)+@x$"}}}, {"a": "a" * 100_000 + "!"}),
    "ambiguous pattern": ({"pattern": "^(a|a)+$"}, "a" * 1_000_000 + "!"),
    "patterns without end": (
        {"allOf": [{"pattern": f"(1[01]{{40}}2|1[01]{{41}}2){n}"} for n in range(60)]}, "1" * 100_000
    ),
    "patterns of names": ({"patternProperties": {f"^a{n}$": {} for n in range(900)}}, {f"q{n}": 1 for n in range(999)}),
    "references": (bomb(8), 5),
    "references by level": (
        {"$defs": {"n": {"properties": {"c": {"allOf": [{"$ref": "#/$defs/n"}] * 2}}}}, "$ref": "#/$defs/n"},
        nested("c", 60),
    ),
    "wide": ({"items": {"allOf": [{"minLength": 0}] * 900}}, ["x"] * 20_000),
    "contains": ({"allOf": [{"contains": {"const": n}} for n in range(600)]}, list(range(5000))),
    "fractions": ({"items": {"multipleOf": 0.0001}}, [1e300] * 20_000),
    "missing names": ({"items": {"required": [f"p{n}" for n in range(5000)]}}, [{"q": 1}] * 2000),
    "constants": ({"items": {"enum": [{"k": n} for n in range(3000)]}}, [{"k": -1}] * 5000),
    "alternatives": ({"items": {"anyOf": [{"type": "string"}, {"required": ["b"]}]}}, rows(10_000)),
    "a text in many errors": ({"anyOf": [{"maxLength": n} for n in range(500)]}, "x" * 2_000_000),
    "a large text": ({"properties": {"t": {"maxLength": 5}}}, {"t": "x" * 8_000_000}),
    "deep": ({"type": "object"}, nested("a", 200)),
}  # fmt: skip


@pytest.mark.parametrize("name", COSTLY)
def test_a_check_is_cheap_or_is_not_made(name: str) -> None:
    schema, value = COSTLY[name]
    check = compile_schema(schema)
    started = time.thread_time()
    assert not check.invalid
    assert time.thread_time() - started < 2 * CHECK_SECONDS  # with the import of the library
    started = time.thread_time()
    check.find_problem(value)
    assert time.thread_time() - started < CHECK_SECONDS


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"properties": {"a": {"type": "string", "pattern": "(?=.*[A-Z]).+"}}}, {"a": "x"}),
        ({"properties": {"a": {"type": "string", "pattern": r"(a)\1"}}}, {"a": "x"}),
        ({"properties": {"a": {"type": "string", "pattern": r"^.{1,100000}$"}}}, {"a": ""}),
        ({"patternProperties": {"(?!x)": {}}, "additionalProperties": False}, {"a": 1}),
        ({"properties": {"a": {"pattern": "(x|y)+"}}}, {"a": "z" * 10_000}),
    ],
)
def test_patterns_beyond_the_linear_engine_are_left_to_the_agent(schema: dict[str, Any], value: Any) -> None:
    check = compile_schema(schema)
    assert (check.invalid, check.find_problem(value)) == ("", "")


def test_other_rules_beside_an_unchecked_pattern_count() -> None:
    schema = {"properties": {"a": {"type": "string", "pattern": "(?=a)b"}, "b": {"pattern": "^x$"}}}
    assert find_problem(schema, {"a": 5}) == "a: must be of type string"
    assert find_problem(schema, {"a": "b", "b": "y"}) == "b: must match the pattern ^x$"


def test_a_long_text_beside_a_pattern_does_not_disable_it() -> None:
    schema = {"properties": {"id": {"pattern": "^[a-z]+$"}, "text": {"type": "string"}}}
    assert find_problem(schema, {"id": "5", "text": "x" * 1_000_000}) == (
        "does not match the schema; it is too large to say where"
    )


def test_many_values_beside_each_other_are_not_taken_for_deep_ones() -> None:
    schema = {
        "$defs": {"n": {"properties": {"n": {"allOf": [{"$ref": "#/$defs/n"}, {"$ref": "#/$defs/n"}]}}}},
        "properties": {"n": {"$ref": "#/$defs/n"}, "tags": {"items": {"type": "string"}}},
    }
    assert find_problem(schema, {"tags": [*rows(300)]}) == "tags.0: must be of type string"
    assert find_problem(schema, {"n": nested("n", 60), "tags": [5]}) == "", "it might cost 2 to the power of 60"


def test_ten_thousand_ordinary_rows_are_checked() -> None:
    row = {"type": "object", "properties": {"id": {"type": "integer"}, "name": {"type": "string"}}, "required": ["id"]}
    values = [{"id": number, "name": "n"} for number in range(10_000)]
    schema = {"properties": {"rows": {"items": row}}}
    assert find_problem(schema, {"rows": values}) == ""
    assert find_problem(schema, {"rows": [*values, {}]}).startswith("does not match")
    assert find_problem(schema, {"rows": [*values[:300], {}]}) == 'rows.300: must have the property "id"'


# Anything -------------------------------------------------------------------------------------------------------------

_WORDS: Final = st.sampled_from(
    [
        "$ref", "#", "#/$defs/a", "#/properties/a", "#a", "$defs", "$anchor", "$id", "$schema", "a", "b", "allOf",
        "anyOf", "oneOf", "not", "if", "then", "else", "properties", "patternProperties", "additionalProperties",
        "items", "prefixItems", "contains", "unevaluatedProperties", "unevaluatedItems", "propertyNames",
        "dependentSchemas", "dependencies", "required", "type", "object", "array", "enum", "const", "pattern", "^a*$",
        "(", "uniqueItems", "multipleOf", "minimum", "minLength", "http://127.0.0.1:9/x", "$dynamicRef",
        "$recursiveRef", "definitions",
    ]
)  # fmt: skip
_VALUES: Final = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | _WORDS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_WORDS, inner, max_size=5),
    max_leaves=40,
)


@settings(max_examples=500, deadline=None)
@given(schema=st.dictionaries(_WORDS, _VALUES, max_size=8), value=_VALUES)
def test_any_schema_and_value_give_a_text(schema: dict[str, Any], value: Any) -> None:
    assert isinstance(schema_problem(schema), str)
    check = compile_schema(schema)
    assert isinstance(check.find_problem(value), str)
    assert check.invalid or not schema_problem(schema)
