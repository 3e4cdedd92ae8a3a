"""Schemas of skills: read from an extension that anybody may have written, and shown on cards."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.core.cards import skill_schemas
from dragoman.core.cards.agent_spec import AgentSpec, Extension, Skill
from dragoman.core.cards.skill_schemas import (
    SCHEMAS_URI,
    SkillSchemas,
    schemas_of,
    schemas_of_skill,
    shown_extensions,
    with_schemas,
)
from dragoman.core.schemas import schema_problem

ORDER = {"type": "object", "properties": {"item": {"type": "string"}}, "required": ["item"]}
RECEIPT = {"type": "object", "properties": {"total": {"type": "number"}}}
OTHER = Extension(uri="https://example.com/ext", params={"a": 1})
SHOP = AgentSpec(
    id="shop",
    name="Shop",
    description="Sells",
    skills=(Skill(id="buy", name="Buy", description="Buys"),),
    extended_skills=(Skill(id="refund", name="Refund", description="Refunds"),),
    extensions=(OTHER,),
)


def remote(params: Any) -> AgentSpec:
    return AgentSpec(id="a", name="A", description="a", extensions=(Extension(uri=SCHEMAS_URI, params=params),))


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object"}
    for _ in range(levels - 1):
        schema = {"type": "object", "not": schema}
    return schema


def test_schemas_are_read_as_they_were_declared() -> None:
    schemas = {
        "": SkillSchemas(input=ORDER),
        "buy": SkillSchemas(ORDER, RECEIPT, {"title": "Buy", "readOnlyHint": False}),
        "refund": SkillSchemas(output=RECEIPT),
    }
    assert schemas_of(with_schemas(SHOP, schemas)) == schemas


def test_an_agent_without_the_extension_has_no_schemas() -> None:
    assert schemas_of(SHOP) == {}
    assert schemas_of_skill(schemas_of(SHOP), "buy") == SkillSchemas()


def test_declaring_schemas_keeps_other_extensions_and_is_never_required() -> None:
    spec = with_schemas(with_schemas(SHOP, {"buy": SkillSchemas(ORDER)}), {"": SkillSchemas(output=RECEIPT)})
    assert [extension.uri for extension in spec.extensions] == [OTHER.uri, SCHEMAS_URI]
    assert spec.extensions[1].params == {"": {"output": RECEIPT}}
    assert not spec.extensions[1].required
    assert with_schemas(spec, {"": SkillSchemas()}) == SHOP


def test_a_skill_without_its_own_input_and_output_has_those_of_the_agent() -> None:
    spec = with_schemas(
        SHOP,
        {
            "": SkillSchemas(ORDER, RECEIPT, {"title": "Shop"}),
            "buy": SkillSchemas(output={}, annotations={"title": "Buy"}),
        },
    )
    assert schemas_of_skill(schemas_of(spec), "buy") == SkillSchemas(ORDER, {}, {"title": "Buy"})
    assert schemas_of_skill(schemas_of(spec), "refund") == SkillSchemas(ORDER, RECEIPT)
    assert schemas_of_skill(schemas_of(spec), "") == SkillSchemas(ORDER, RECEIPT, {"title": "Shop"})


# Remote parameters -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"buy": None},
        {"buy": [ORDER]},
        {"buy": {}},
        {"buy": {"input": "object", "output": ["object"], "annotations": "title"}},
        {"buy": {"input": {"type": "array"}}},
        {"buy": {"input": {"type": ["object", "null"]}}},
        {"buy": {"annotations": {"title": 3, "readOnlyHint": "yes", "unknown": True}}},
    ],
)
def test_what_has_another_form_is_ignored(params: Any) -> None:
    assert schemas_of(remote(params)) == {}


def test_valid_members_beside_invalid_ones_are_read() -> None:
    schemas = schemas_of(
        remote({"buy": {"input": ORDER, "output": 7, "annotations": {"title": "T", "x": 1}}, "other": 3})
    )
    assert schemas == {"buy": SkillSchemas(ORDER, None, {"title": "T"})}


def test_an_input_without_a_type_is_an_object() -> None:
    schemas = schemas_of(remote({"": {"input": {"properties": {"a": {}}}}}))
    assert schemas[""].input == {"type": "object", "properties": {"a": {}}}


def test_a_schema_may_have_24_levels_and_64_thousand_characters() -> None:
    fits = {"type": "object", "description": "x" * (65_536 - len("typeobjectdescription"))}
    too_long = {**fits, "title": ""}
    schemas = schemas_of(
        remote(
            {
                "deep": {"output": nested(24)},
                "deeper": {"output": nested(25)},
                "endless": {"output": nested(100_000)},
                "long": {"output": fits},
                "longer": {"output": too_long},
            }
        )
    )
    assert list(schemas) == ["deep", "long"]


def test_the_schemas_of_an_agent_have_at_most_256_entries_and_a_million_characters() -> None:
    assert len(schemas_of(remote({f"s{number}": {"input": ORDER} for number in range(300)}))) == 256
    long = {"description": "x" * 60_000}
    assert len(schemas_of(remote({f"s{number}": {"output": long} for number in range(30)}))) == 17


def test_problems_of_a_declared_schema_name_the_rule() -> None:
    assert schema_problem(nested(25)) == "must nest at most 24 levels of objects and arrays"
    assert schema_problem({"a": "x" * 70_000}) == "must have at most 65,536 characters"
    assert schema_problem([]) == "must be a JSON object"
    assert skill_schemas.input_schema_problem({}) == 'must describe an object: its "type" must be "object"'
    assert skill_schemas.input_schema_problem(nested(25)) == "must nest at most 24 levels of objects and arrays"
    assert skill_schemas.input_schema_problem(ORDER) == ""


# Cards -------------------------------------------------------------------------------------------------------------


def test_a_card_shows_schemas_of_its_own_skills_only() -> None:
    schemas = {"": SkillSchemas(ORDER), "buy": SkillSchemas(ORDER), "refund": SkillSchemas(ORDER)}
    spec = with_schemas(SHOP, {**schemas, "gone": SkillSchemas(ORDER)})
    public, extended = shown_extensions(spec, extended=False), shown_extensions(spec, extended=True)
    assert public[0] is OTHER
    assert list(public[1].params) == ["", "buy"]
    assert list(extended[1].params) == ["", "buy", "refund"]


def test_an_extension_without_anything_to_show_is_not_on_the_card() -> None:
    assert shown_extensions(with_schemas(SHOP, {"refund": SkillSchemas(ORDER)}), extended=False) == (OTHER,)
    assert shown_extensions(SHOP, extended=False) == (OTHER,)
