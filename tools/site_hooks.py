"""The site of the documentation (`make docs`): hooks for MkDocs.

Pages that are not under docs/ (CHANGELOG.md, the READMEs of the examples, ...) become pages of the site where they
are, and files that a page links to go with it: so nothing is copied, and every link works on GitHub and in the site.
"""

from __future__ import annotations

import posixpath
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tools import pages, site_blocks

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

DOCS: Final = pages.ROOT / "docs"

BOOST: Final = (
    ("explanation/decisions.md", 0.2),
    ("CHANGELOG.md", 0.2),
    ("reference/scorecard.md", 0.2),
    ("tests/", 0.2),
    ("how-to/releasing.md", 0.5),
    ("explanation/performance.md", 0.5),
    ("examples/stubs/", 0.5),
    ("tutorials/", 4),
    ("how-to/", 3),
    ("explanation/concepts.md", 3),
    ("reference/protocol/shapes.md", 0.5),
    ("reference/testing.md", 0.5),
)
"""Rank in search by place, first match: guides before reference, history last. Everything else has 1."""


def place(file: Path) -> str:
    """Where a file of the project is in the site, before it is rendered. The README is not there: its reader has it."""
    if file == pages.ROOT / "README.md":
        return "index.md"
    return (file.relative_to(DOCS) if file.is_relative_to(DOCS) else file.relative_to(pages.ROOT)).as_posix()


def elsewhere() -> set[Path]:
    """The files outside of docs/ that the site has: the pages among ours, and what pages of the site link to."""
    found: set[Path] = set()
    todo = [page for page in pages.pages() if place(page) != "index.md" or page.is_relative_to(DOCS)]
    while todo:
        page = todo.pop()
        if page in found:
            continue
        if not page.is_relative_to(DOCS):
            found.add(page)
        if page.suffix == ".md":
            for link in pages.links(page.read_text("utf-8")):
                if not link.outside:
                    file, _ = pages.target_of(page, link)
                    if file.is_file() and not file.is_relative_to(DOCS) and place(file) != "index.md":
                        todo.append(file)
    return found


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Adds what is outside of docs/."""
    from mkdocs.structure.files import File

    for file in sorted(elsewhere()):
        files.append(File.generated(config, place(file), abs_src_path=str(file)))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rewrites links to their place in the site, and sets the page's rank in search."""
    rank = next((boost for prefix, boost in BOOST if page.file.src_uri.startswith(prefix)), 1)
    page.meta.setdefault("search", {"boost": rank})
    source = Path(page.file.abs_src_path or "")
    here = posixpath.dirname(page.file.src_uri)
    texts = []
    done = 0
    for link in pages.links(markdown):
        if link.outside or link.target.startswith("#"):
            continue
        file, anchor = pages.target_of(source, link)
        texts += [
            markdown[done : link.begin],
            posixpath.relpath(place(file), here or "."),
            f"#{anchor}" if anchor else "",
        ]
        done = link.end
    return "".join(texts) + markdown[done:]


def on_page_content(html: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lets copy buttons of sessions copy the commands only."""
    return site_blocks.copies_commands(html)
