"""docs/how-to/writing-agents.md names the complete agent API."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

import dragoman
from dragoman import Turn, types
from dragoman.agents.functions.spec import AgentOptions
from dragoman.agents.functions.turn import Context, Incoming, ReceivedFile

PAGE: Final = (Path(__file__).parents[2] / "docs" / "how-to" / "writing-agents.md").read_text()
IN_WORDS: Final = {"Incoming", "ReceivedFile", "InvalidAgentResponse", "WORKING", "Part", "Artifact", "Message"}
"""Types that the page describes without naming them; agents do not construct them."""


def public(kind: type) -> list[str]:
    own = {name for name in vars(kind) if not name.startswith("_")}
    return sorted(own | set(getattr(kind, "__annotations__", {})))


@pytest.mark.parametrize("argument", AgentOptions.__annotations__)
def test_each_argument_of_agent_is_on_the_page(argument: str) -> None:
    assert f"`{argument}`" in PAGE.split("## Arguments of")[1]


@pytest.mark.parametrize("name", public(Turn))
def test_each_attribute_and_method_of_a_turn_is_on_the_page(name: str) -> None:
    assert f"`turn.{name}" in PAGE or f"`await turn.{name}" in PAGE or f"turn.{name}(" in PAGE


@pytest.mark.parametrize("name", [*public(Incoming), "message"])
def test_attributes_of_a_message_are_on_the_page(name: str) -> None:
    assert f"`turn.{name}`" in PAGE


@pytest.mark.parametrize("name", [*public(ReceivedFile), *public(Context)])
def test_attributes_of_files_and_conversations_are_on_the_page(name: str) -> None:
    assert f"`{name}`" in PAGE or f"turn.context_{name}" in PAGE or f"turn.context.{name}" in PAGE


@pytest.mark.parametrize("name", [name for name in [*dragoman.__all__, *types.__all__] if name not in IN_WORDS])
def test_each_name_of_the_package_is_on_the_page(name: str) -> None:
    assert name in PAGE or name == "__version__"
