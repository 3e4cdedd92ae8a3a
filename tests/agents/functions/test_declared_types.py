"""Declared inputs and outputs: schemas at the declaration, and the validation of messages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from typing import Any

import pytest
from pydantic import BaseModel, Field, RootModel, field_validator
from typing_extensions import TypedDict

from dragoman import Extension, Skill, Turn, agent
from dragoman.agents.functions.declared_types import InvalidInput, read_input
from dragoman.core.cards.agent_spec import AgentSpec
from dragoman.core.cards.skill_schemas import SCHEMAS_URI, SkillSchemas, schemas_of
from dragoman.testing import run


class Order(BaseModel):
    """What to buy."""

    item: str
    quantity: int = Field(ge=1)
    by: date | None = None

    @field_validator("item")
    @classmethod
    def _is_sold(cls, item: str) -> str:
        if item == "moon":
            raise ValueError("is not for sale")
        return item


@dataclass
class Refund:
    receipt: int


class Inquiry(TypedDict):
    question: str


class Category(BaseModel):
    name: str
    parts: list[Category] = []


class Total(BaseModel):
    amount: float = Field(alias="theAmount")


SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


def declare(**arguments: Any) -> AgentSpec:
    @agent(**arguments)
    async def shop(turn: Turn) -> None: ...

    return shop.spec


def declared_input(kind: object) -> Any:
    return schemas_of(declare(input=kind))[""].input


# Declaration -------------------------------------------------------------------------------------------------------


def test_a_pydantic_model_is_declared_with_its_rules_and_texts() -> None:
    schema = declared_input(Order)
    assert (schema["type"], schema["description"], schema["required"]) == (
        "object",
        "What to buy.",
        ["item", "quantity"],
    )
    assert schema["properties"]["quantity"] == {"minimum": 1, "title": "Quantity", "type": "integer"}


def test_a_dataclass_a_typed_dict_and_a_json_schema_are_declared() -> None:
    assert declared_input(Refund)["properties"] == {"receipt": {"title": "Receipt", "type": "integer"}}
    assert declared_input(Inquiry)["required"] == ["question"]
    assert declared_input(SCHEMA) == SCHEMA


def test_a_type_that_contains_itself_is_an_object_too() -> None:
    schema = declared_input(Category)
    assert schema["type"] == "object"
    assert schema["properties"]["parts"]["items"] == {"$ref": "#/$defs/Category"}
    assert "Category" in schema["$defs"]


def test_an_output_has_the_names_that_answers_have() -> None:
    def names(kind: object) -> list[str]:
        output = schemas_of(declare(output=kind))[""].output
        assert output is not None
        return list(output["properties"])

    class ByAlias(Total, serialize_by_alias=True):
        pass

    assert (names(Total), names(ByAlias)) == (["amount"], ["theAmount"])
    assert list(declared_input(Total)["properties"]) == ["theAmount"]


def test_skills_have_schemas_of_their_own() -> None:
    spec = declare(
        input=Order,
        annotations={"title": "Shop"},
        skills=[
            Skill(id="buy", name="Buy", description="Buys", output=Total, annotations={"readOnlyHint": False}),
            {"id": "weather", "input": SCHEMA},
            "just a name",
        ],
        extended_skills=[{"id": "refund", "input": Refund}],
    )
    schemas = schemas_of(spec)
    assert {id: (one.input is not None, one.output is not None, one.annotations) for id, one in schemas.items()} == {
        "": (True, False, {"title": "Shop"}),
        "buy": (False, True, {"readOnlyHint": False}),
        "weather": (True, False, None),
        "refund": (True, False, None),
    }
    assert [(skill.input, skill.output, skill.annotations) for skill in spec.skills] == [(None, None, None)] * 3
    assert not spec.extensions[0].required


def test_an_agent_without_types_has_no_extension() -> None:
    assert declare(skills=["buy"]).extensions == ()


class Numbers(RootModel[list[int]]):
    pass


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"input": int}, "input=<class 'int'> must be a pydantic model, a dataclass, a TypedDict or a JSON Schema"),
    ({"input": Refund(3)}, "input=Refund(receipt=3) must be a pydantic model"),
    ({"output": "Order"}, "output='Order' must be a pydantic model"),
    ({"input": Numbers}, 'input must describe an object: its "type" must be "object"'),
    ({"input": {"type": "array"}}, 'input must describe an object: its "type" must be "object"'),
    ({"output": {"x": object()}}, "output is not JSON"),
    ({"output": {"x": float("nan")}}, "output is not JSON"),
    ({"input": {"type": "object", "title": "x" * 70_000}}, "input must have at most 65,536 characters"),
    ({"skills": [{"id": "a"}, {"id": "b", "input": 3}]}, "skills[1].input=3 must be a pydantic model"),
    ({"extended_skills": [{"id": "a", "output": 3}]}, "extended_skills[0].output=3 must be a pydantic model"),
    ({"annotations": True}, "annotations=True must be a dict"),
    ({"annotations": {"readOnly": True}}, "annotations has no field readOnly; known fields: title, readOnlyHint"),
    ({"annotations": {"title": 1}}, "annotations.title=1 must be a string"),
    (
        {"skills": [{"id": "a", "annotations": {"readOnlyHint": 1}}]},
        "skills[0].annotations.readOnlyHint=1 must be True",
    ),
    ({"input": SCHEMA, "extensions": [SCHEMAS_URI]}, f"extensions has {SCHEMAS_URI}, which input=, output= and"),
    (
        {"skills": [{"id": f"s{number}", "output": {"title": "x" * 60_000}} for number in range(20)]},
        "the schemas have more than 1,048,576 characters or 256 skills in all",
    ),
]


@pytest.mark.parametrize(("arguments", "reason"), WRONG, ids=[reason[:60] for _, reason in WRONG])
def test_an_invalid_type_fails_at_the_declaration(arguments: dict[str, Any], reason: str) -> None:
    with pytest.raises((TypeError, ValueError)) as caught:
        declare(**arguments)
    assert str(caught.value).startswith(f"@agent: {reason}")


class Unreadable:
    pass


@dataclass
class Holder:
    thing: Unreadable


@dataclass
class Callback:
    call: Callable[[], None]


def test_a_type_without_a_json_schema_fails_at_the_declaration() -> None:
    @dataclass
    class Unknown:
        thing: Nowhere  # type: ignore[name-defined]  # noqa: F821

    for kind in (Holder, Callback, Unknown):
        with pytest.raises(
            TypeError, match=r"^@agent: input(=.*)? has no JSON Schema: .*(Unreadable|Callable|Unknown)"
        ):
            declare(input=kind)


def test_the_extension_may_be_written_by_hand() -> None:
    extension = Extension(uri=SCHEMAS_URI, params={"": {"input": SCHEMA}})
    assert schemas_of(declare(extensions=[extension])) == {"": SkillSchemas(input=SCHEMA)}


# Messages ----------------------------------------------------------------------------------------------------------


def test_an_input_without_a_type_is_read_as_json() -> None:
    assert read_input([{"a": 1}], "", None) == {"a": 1}
    assert read_input([], '{"a":\n1}', None) == {"a": 1}


def test_no_integer_of_an_input_in_a_text_is_rounded() -> None:
    assert read_input([], f"[{2**60}]", None) == [2**60]
    with pytest.raises(InvalidInput, match=r"^The input cannot be read: the integer 1[0-9]+ has more than 64 bits"):
        read_input([], f"[{2**70}]", None)


def test_a_message_has_one_input() -> None:
    with pytest.raises(InvalidInput, match=r"The message has 2 data parts. Send one"):
        read_input([1, 2], "", None)
    for text in ("", "two teas"):
        with pytest.raises(InvalidInput, match=r"has no input. Send it as a data part, or as a text that is JSON"):
            read_input([], text, None)


# Turns -------------------------------------------------------------------------------------------------------------


@agent(
    input=Order,
    skills=[
        Skill(id="refund", name="Refund", description="Refunds", input=Refund),
        Skill(id="ask", name="Ask", description="Answers", input=Inquiry),
        Skill(id="weather", name="Weather", description="Tells", input=SCHEMA),
        Skill(id="buy", name="Buy", description="Buys"),
    ],
)
async def shop(turn: Turn) -> str:
    return f"{turn.skill or 'no skill'}: {turn.input!r}"


ORDER = "Order(item='tea', quantity=2, by=None)"


@pytest.mark.parametrize(
    ("skill", "data", "answer"),
    [
        ("", {"item": "tea", "quantity": 2}, f"no skill: {ORDER}"),
        ("buy", {"item": "tea", "quantity": 2.0}, f"buy: {ORDER}"),
        ("unknown", {"item": "tea", "quantity": 2}, f"unknown: {ORDER}"),
        ("refund", {"receipt": 7}, "refund: Refund(receipt=7)"),
        ("ask", {"question": "why"}, "ask: {'question': 'why'}"),
        ("weather", {"city": 3}, "weather: {'city': 3}"),
    ],
)
def test_the_input_of_a_turn_has_the_type_of_the_named_skill(skill: str, data: object, answer: str) -> None:
    result = run(shop, data=data, skill=skill)
    assert result.text.replace("test_declared_types.", "") == answer


def test_dates_are_read_from_their_json_form() -> None:
    assert "by=datetime.date(2026, 3, 1)" in run(shop, data={"item": "tea", "quantity": 2, "by": "2026-03-01"}).text


def test_a_model_can_be_sent_as_data_and_json_as_text() -> None:
    assert run(shop, data=Order(item="tea", quantity=2)).text == f"no skill: {ORDER}"
    assert run(shop, '{"item": "tea", "quantity": 2}').text == f"no skill: {ORDER}"


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (
            {"quantity": 0},
            "The input is not valid. item: Field required; quantity: Input should be greater than or equal to 1.",
        ),
        (
            {"item": "moon", "quantity": 1},
            "The input is not valid. item: Value error, is not for sale.",
        ),
        ([1], "The input is not valid. input: Input should be an object."),
    ],
)
def test_an_invalid_input_rejects_the_task_and_names_field_and_rule(data: object, text: str) -> None:
    result = run(shop, data=data)
    assert (result.state, result.status_text, result.failure) == ("REJECTED", text, "")


def test_paths_of_problems_name_items_and_many_are_counted() -> None:
    @agent(input=Category)
    async def tree(turn: Turn) -> str:
        return str(turn.input)

    result = run(tree, data={"name": "a", "parts": [{"name": "b"}, *[{"name": 1}] * 7]})
    assert result.status_text.startswith("The input is not valid. parts[1].name: Input should be a valid string; ")
    assert result.status_text.endswith("; and 2 more.")


def test_a_message_without_input_rejects_the_task() -> None:
    result = run(shop, "two teas")
    assert (result.state, result.status_text) == (
        "REJECTED",
        "The message has no input. Send it as a data part, or as a text that is JSON.",
    )


def test_a_sync_agent_reads_its_input_too() -> None:
    @agent(input=Order)
    def sync_shop(turn: Turn) -> str:
        try:
            return str(turn.input.quantity)
        except Exception:
            return "caught"

    assert run(sync_shop, data={"item": "tea", "quantity": 2}).text == "2"
    assert run(sync_shop, data={}).state == "REJECTED"


def test_only_a_turn_that_reads_its_input_needs_one() -> None:
    @agent(input=Order)
    async def waiter(turn: Turn) -> str:
        if turn.question is None:
            turn.ask(f"{turn.input.item}: with milk?")
        return turn.text

    assert run(waiter, '{"item": "tea", "quantity": 1}', "yes, please").text == "yes, please"


def test_an_input_that_is_not_declared_is_an_error_of_the_agent() -> None:
    @agent
    async def plain(turn: Turn) -> str:
        return str(turn.input)

    assert "TypeError: turn.input: the agent declares no input; pass input= to @agent" in run(plain, "x").status_text
