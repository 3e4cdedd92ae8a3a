"""The site: copy buttons copy commands, and guides rank above history in search."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from tools import site_hooks
from tools.pages import ROOT
from tools.site_blocks import copies_commands

SESSION = (
    '<div class="language-console highlight"><pre><span></span><code>'
    '<span class="gp">$ </span>dragoman<span class="w"> </span>send<span class="w"> </span>&quot;a &amp; b&quot;\n'
    '<span class="go">a &amp; b</span>\n'
    '<span class="gp">$ </span>kill<span class="w"> </span>%1\n'
    "</code></pre></div>"
)


def test_a_copy_button_copies_the_commands_of_a_session() -> None:
    assert 'data-copy="dragoman send &quot;a &amp; b&quot;\nkill %1"' in copies_commands(SESSION)


def test_other_blocks_are_copied_completely() -> None:
    block = SESSION.replace("language-console", "language-sh")
    assert copies_commands(block) == block


@pytest.mark.parametrize(
    ("higher", "lower"),
    [
        ("docs/how-to/push.md", "docs/reference/settings.md"),
        ("docs/reference/settings.md", "docs/explanation/decisions.md"),
        ("docs/tutorials/quickstart.md", "CHANGELOG.md"),
    ],
)
def test_guides_rank_above_history(higher: str, lower: str) -> None:
    def boost(name: str) -> float:
        file = SimpleNamespace(abs_src_path=str(ROOT / name), src_uri=site_hooks.place(ROOT / name))
        page = cast(Any, SimpleNamespace(file=file, meta={}))
        site_hooks.on_page_markdown("", page=page, config=cast(Any, None), files=cast(Any, None))
        return float(page.meta["search"]["boost"])

    assert boost(higher) > boost(lower)
