"""MkDocs hooks for the documentation site (`make docs`).

Pages outside docs/ (CHANGELOG.md, READMEs of examples, ...) and files that pages link to are added to the site in
place. So no file is copied, and every link works on GitHub and in the site.
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
    ("how-to/releasing.md", 0.5),
    ("explanation/performance.md", 0.001),  # its headings name everything that is measured, and headings count 1000
    ("examples/stubs/", 0.5),
    ("tutorials/", 4),
    ("how-to/", 3),
    ("explanation/concepts.md", 3),
    ("reference/protocol/shapes.md", 0.5),
    ("reference/testing.md", 0.5),
)
"""Search rank by path prefix, first match: guides before reference, history last. The default is 1."""

NOT_FOUND: Final = ("explanation/decisions.md", "CHANGELOG.md", "tests/")
"""Pages that the search leaves out: they mention everything, and answer no question of a reader."""

NOT_SHOWN: Final = ("reference/scorecard.md",)
"""Pages for the developers alone."""


def place(file: Path) -> str:
    """Returns the path of a project file in the site's sources. The README maps to the index page."""
    if file == pages.ROOT / "README.md":
        return "index.md"
    return (file.relative_to(DOCS) if file.is_relative_to(DOCS) else file.relative_to(pages.ROOT)).as_posix()


def files_outside_docs() -> set[Path]:
    """Returns the files outside docs/ that belong to the site: pages, and files that pages link to."""
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
    """Adds the files outside docs/, and removes the pages that are not shown."""
    from mkdocs.structure.files import File

    for uri in NOT_SHOWN:
        if (page := files.get_file_from_path(uri)) is not None:
            files.remove(page)

    for file in sorted(files_outside_docs()):
        files.append(File.generated(config, place(file), abs_src_path=str(file)))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rewrites links to paths of the site, and sets the page's search rank."""
    rank = next((boost for prefix, boost in BOOST if page.file.src_uri.startswith(prefix)), 1)
    page.meta["search"] = {"exclude": True} if page.file.src_uri.startswith(NOT_FOUND) else {"boost": rank}
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
    text = "".join(texts) + markdown[done:]
    return landing(text, page) if page.file.src_uri == "index.md" else text


def landing(markdown: str, page: Page) -> str:
    """Moves the headline and the first paragraph of the start page into its template, tools/site/home.html."""
    headline, summary, rest = markdown.split("\n\n", 2)
    page.meta |= {"template": "home.html", "hide": ["navigation", "toc"]}
    page.meta |= {"headline": headline.removeprefix("# "), "summary": summary}
    return rest


def on_page_content(html: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Makes copy buttons of console blocks copy only the commands."""
    return site_blocks.copies_commands(html)
