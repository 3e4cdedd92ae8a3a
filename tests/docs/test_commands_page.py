"""docs/reference/cli.md has every command."""

from __future__ import annotations

from tests.docs import commands_page


def test_the_page_has_every_command() -> None:
    text = commands_page.PAGE.read_text("utf-8")
    assert text == commands_page.page(text), "docs/reference/cli.md is old: make settings"
    assert "| `keys`: `create`, `list`, `rotate`, `revoke` | Create, list, rotate and revoke API keys. |" in text
