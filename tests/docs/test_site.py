"""The site: copy buttons copy commands, and guides rank above history in search."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

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


def search_of(name: str) -> dict[str, Any]:
    file = SimpleNamespace(abs_src_path=str(ROOT / name), src_uri=site_hooks.place(ROOT / name))
    page = cast(Any, SimpleNamespace(file=file, meta={}))
    site_hooks.on_page_markdown("", page=page, config=cast(Any, None), files=cast(Any, None))
    return dict(page.meta["search"])


def test_guides_rank_above_reference_and_history_is_left_out() -> None:
    ranks = [
        search_of(name)["boost"]
        for name in ("docs/how-to/push.md", "docs/reference/settings.md", "docs/explanation/performance.md")
    ]
    assert ranks == sorted(set(ranks), reverse=True)
    # The search counts a word in a heading 1000 times: headings of benchmarks must not precede the texts of guides.
    assert ranks[-1] * 1000 < ranks[0]
    for name in ("docs/explanation/decisions.md", "CHANGELOG.md", "tests/docs/README.md"):
        assert search_of(name) == {"exclude": True}


def test_the_start_page_gives_its_headline_and_summary_to_the_template() -> None:
    page = cast(Any, SimpleNamespace(meta={}))
    assert (
        site_hooks.landing("# Durable tasks\n\nIt keeps tasks.\n\n## Why\n\nBecause.\n", page) == "## Why\n\nBecause.\n"
    )
    assert (page.meta["headline"], page.meta["summary"]) == ("Durable tasks", "It keeps tasks.")
