"""Post-processing for the site: Mermaid diagrams as SVG, and copy buttons that copy only commands."""

from __future__ import annotations

import html
import re
from functools import cache
from typing import Any, Final

from tools.pages import commands

SESSION: Final = re.compile(r'<div class="language-console highlight">(?P<body>.*?</pre>)', re.DOTALL)
TAG: Final = re.compile(r"<[^>]+>")


def copies_commands(page: str) -> str:
    """Adds `data-copy` to every `console` block of a page: its commands, without prompts and output."""

    def marked(block: re.Match[str]) -> str:
        session = html.unescape(TAG.sub("", block["body"].partition("<code>")[2]))
        text = html.escape("\n".join(command for command, _ in commands(session)))
        return f'<div class="language-console highlight" data-copy="{text}">{block["body"]}'

    return SESSION.sub(marked, page)


@cache
def svg(diagram: str) -> str:
    """Renders a Mermaid diagram as SVG in this process, without browser or network."""
    from mermaid_render import convert

    drawn: str = convert(diagram, format="svg", theme="neutral").decode()
    return drawn.replace("font-family:Noto Sans", "font-family:'Noto Sans',sans-serif")


def mermaid(source: str, language: str, css_class: str, options: Any, md: Any, **rest: Any) -> str:
    """The custom fence for `mermaid` in mkdocs.yml."""
    return f'<figure class="diagram">{svg(source)}</figure>'
