"""Card overrides: accepted fields, and errors for the others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dragoman.core.cards.agent_spec import AgentSpec, Provider, Skill, parse_card_overrides

ECHO = AgentSpec(id="echo", name="Echo", description="Says it back", icon_url="https://x.example/i.png")


def test_an_override_replaces_its_fields_and_keeps_the_rest() -> None:
    overrides = parse_card_overrides(
        {
            "echo": {
                "name": "Echo of Example",
                "icon_url": "",
                "provider": {"organization": "Example", "url": "https://example.com"},
                "skills": [{"id": "s", "name": "S", "description": "d", "tags": ["t"]}],
            }
        }
    )
    shown = replace(ECHO, **overrides["echo"])
    assert shown == AgentSpec(
        id="echo",
        name="Echo of Example",
        description="Says it back",
        provider=Provider(organization="Example", url="https://example.com"),
        skills=(Skill(id="s", name="S", description="d", tags=("t",)),),
    )


@pytest.mark.parametrize(
    ("tables", "why"),
    [
        ({"Echo": {}}, '"Echo" is not an agent id'),
        ({"echo": 1}, "echo: must be a table of name,"),
        ({"echo": {"streaming": False}}, "echo.streaming: is not one of name,"),
        ({"echo": {"name": ""}}, "echo.name: must be a string, and not empty"),
        ({"echo": {"version": 2}}, "echo.version: must be a string"),
        ({"echo": {"provider": {"url": "x"}}}, "echo.provider.organization: is required"),
        ({"echo": {"provider": "x"}}, "echo.provider: must be a table of organization, url"),
        ({"echo": {"skills": {}}}, "echo.skills: must be a list of tables"),
        ({"echo": {"skills": [{"id": "a"}]}}, r"echo.skills\[0\].name: is required"),
        ({"echo": {"skills": [{"id": "a", "nam": "x"}]}}, r"echo.skills\[0\].nam: is not one of id,"),
        ({"echo": {"skills": [{"id": "a", "name": "x", "description": "d", "tags": "t"}]}}, "tags: must be a list"),
        ({"echo": {"skills": [{"id": "a", "name": "x", "description": "d", "input": {}}]}}, "input: is not one of id,"),
        ({"echo": {"skills": [{"id": "a", "name": "x", "description": "d"}] * 2}}, "two skills have the same id"),
    ],
)
def test_an_invalid_override_is_rejected_by_name(tables: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_card_overrides(tables)
