"""Agents as tools: names, schemas, and arguments as messages."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.core.cards.agent_spec import AgentSpec, Skill
from dragoman.extensions.mcp.wire.tools import (
    MAX_TOOL_NAME_LENGTH,
    TASK_TOOLS,
    AgentTool,
    InvalidArguments,
    agent_tools,
    call_request,
    handle_of,
    split_handle,
    tool_name,
)
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

FILES = ("text/plain", "application/json", "text/csv")


def agent(*skills: str, modes: tuple[str, ...] = FILES) -> AgentSpec:
    created = tuple(Skill(id=skill, name=skill, description=skill) for skill in skills)
    return AgentSpec(id="shop", name="Shop", description="Sells", skills=created, input_modes=modes)


def only(spec: AgentSpec) -> AgentTool:
    [tool] = agent_tools(spec)
    return tool


def message_of(spec: AgentSpec, **arguments: Any) -> pb.Message:
    return call_request(only(spec), arguments, "m1", "").message


@pytest.mark.parametrize(
    ("skill", "name"),
    [("", "shop"), ("buy", "shop_buy"), ("Buy now!", "shop_Buy_now_"), ("größe", "shop_gr__e")],
)
def test_names_are_those_of_agent_and_skill(skill: str, name: str) -> None:
    assert tool_name("shop", skill) == name


@given(st.from_regex(r"[a-z][a-z0-9-]{0,62}", fullmatch=True), st.text(min_size=1, max_size=200))
def test_every_name_is_accepted_by_all_model_apis(agent_id: str, skill: str) -> None:
    name = tool_name(agent_id, skill)
    assert 1 <= len(name) <= MAX_TOOL_NAME_LENGTH
    assert all(char.isascii() and (char.isalnum() or char in "_-") for char in name)
    assert len(name) < MAX_TOOL_NAME_LENGTH or name.startswith(agent_id[:50])


def test_skills_whose_names_collide_are_told_apart() -> None:
    names = [tool.name for tool in agent_tools(agent("a b", "a_b", "a?b"))]
    assert len(set(names)) == 3


def test_no_skill_takes_the_name_of_a_task_tool() -> None:
    spec = AgentSpec(id="get", name="Get", description="Gets", skills=(Skill(id="task", name="t", description="t"),))
    assert only(spec).name not in TASK_TOOLS


@pytest.mark.parametrize(
    ("modes", "properties", "required"),
    [
        (("text/plain",), ["message", "contextId"], ["message"]),
        (("application/json",), ["data", "contextId"], None),
        (FILES, ["message", "data", "files", "contextId"], None),
        (("*/*",), ["message", "data", "files", "contextId"], None),
        (("image/png",), ["files", "contextId"], None),
    ],
)
def test_arguments_follow_the_media_types_of_the_agent(
    modes: tuple[str, ...], properties: list[str], required: list[str] | None
) -> None:
    schema = only(agent(modes=modes)).input_schema
    assert list(schema["properties"]) == properties
    assert schema.get("required") == required
    assert schema["additionalProperties"] is False


def test_text_data_and_files_become_parts() -> None:
    content = base64.b64encode(b"a,b").decode()
    files = [{"name": "a.csv", "mimeType": "text/csv", "data": content}, {"uri": "https://example.com/b"}]
    message = message_of(agent(), message="hi", data={"n": 1}, files=files, contextId="c1")
    assert [part.WhichOneof("content") for part in message.parts] == ["text", "data", "raw", "url"]
    assert (message.parts[2].raw, message.parts[2].filename, message.parts[2].media_type) == (
        b"a,b",
        "a.csv",
        "text/csv",
    )
    assert (message.role, message.context_id, message.message_id) == (pb.ROLE_USER, "c1", "m1")


def test_the_called_skill_is_in_the_metadata_of_the_message() -> None:
    message = message_of(agent("buy"), message="hi")
    assert dict(message.metadata) == {"skill": "buy"}


def test_an_empty_message_is_a_message() -> None:
    assert [part.text for part in message_of(agent(), message="").parts] == [""]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({}, "message: is required; pass message or data or files"),
        ({"text": "x"}, "text: is no argument of shop; use message, data, files, contextId"),
        ({"message": 1}, "message: must be a string"),
        ({"files": {}}, "files: must be a list of files"),
        ({"files": ["x"]}, "files.0.: must be an object"),
        ({"files": [{}]}, "files.0.: must have exactly one of data"),
        ({"files": [{"data": "", "uri": ""}]}, "files.0.: must have exactly one of data"),
        ({"files": [{"uri": 7}]}, "files.0..uri: must be a string"),
        ({"files": [{"url": "x"}]}, "files.0..url: is not one of name, mimeType, data, uri"),
        ({"files": [{"data": "%%%"}]}, "data .base64."),
        ({"message": "x", "contextId": 7}, "contextId: must be a string"),
    ],
)
def test_wrong_arguments_are_named(arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidArguments, match=text):
        message_of(agent(), **arguments)


@pytest.mark.parametrize("tenant", ["echo", "projects/p/locations/l/collections/c/engines/e/assistants/a/agents/echo"])
def test_a_handle_names_agent_and_task(tenant: str) -> None:
    assert split_handle(handle_of(tenant, "t-1")) == (tenant, "t-1")
    assert split_handle("t-1") == ("", "")
