"""Blocks of the site that need more than Markdown: diagrams as SVG, and copy buttons that copy only commands."""

from __future__ import annotations

import html
import re
from functools import cache
from typing import Any, Final

from tools.pages import commands

SESSION: Final = re.compile(r'<div class="language-console highlight">(?P<body>.*?</pre>)', re.DOTALL)
TAG: Final = re.compile(r"<[^>]+>")


def copies_commands(page: str) -> str:
    """The HTML of a page with `data-copy` on every `console` block: its commands, without prompts and output."""

    def marked(block: re.Match[str]) -> str:
        session = html.unescape(TAG.sub("", block["body"].partition("<code>")[2]))
        text = html.escape("\n".join(command for command, _ in commands(session)))
        return f'<div class="language-console highlight" data-copy="{text}">{block["body"]}'

    return SESSION.sub(marked, page)


@cache
def svg(diagram: str) -> str:
    """A Mermaid diagram as SVG, drawn in this process: no browser, no network."""
    from mermaid_render import convert

    drawn: str = convert(diagram, format="svg", theme="neutral").decode()
    return drawn.replace("font-family:Noto Sans", "font-family:'Noto Sans',sans-serif")


def mermaid(source: str, language: str, css_class: str, options: Any, md: Any, **rest: Any) -> str:
    """The custom fence that mkdocs.yml names for `mermaid`."""
    return f'<figure class="diagram">{svg(source)}</figure>'
