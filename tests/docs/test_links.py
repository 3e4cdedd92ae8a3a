"""Links of the documentation work on GitHub, in the site and from the code."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tools import schema_page, settings_page, site_hooks
from tools.pages import ROOT, anchors, links, pages, slug, target_of

PAGES: Final = pages()


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@cache
def known() -> set[Path]:
    """The files of the project: what is committed, or is about to be."""
    texts = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    text = subprocess.run(texts, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return {ROOT / one for one in text.split("\0") if one}


@cache
def anchors_of(page: Path) -> set[str]:
    return anchors(page.read_text("utf-8"))


def dead(page: Path) -> Iterator[str]:
    for link in links(page.read_text("utf-8")):
        if link.outside:
            continue
        try:
            file, anchor = target_of(page, link)
        except ValueError as error:
            yield f"{name(page)}:{link.line}: {error}"
            continue
        if file not in known():
            yield f"{name(page)}:{link.line}: {link.target}: there is no file {name(file)}"
        elif anchor and file.suffix == ".md" and anchor not in anchors_of(file):
            yield f"{name(page)}:{link.line}: {link.target}: {name(file)} has no heading for #{anchor}"


def test_every_link_has_a_target() -> None:
    assert not [text for page in PAGES for text in dead(page)]


def test_all_pages_are_found() -> None:
    assert len(PAGES) > 30
    assert {ROOT / "README.md", ROOT / "docs" / "how-to" / "operations.md", ROOT / "deploy" / "README.md"} <= set(PAGES)
    assert sum(1 for page in PAGES for _ in links(page.read_text("utf-8"))) > 150


def test_documentation_named_in_the_code_exists() -> None:
    """`docs/how-to/push.md`, in messages, comments, scripts and manifests."""
    named = re.compile(r"(?<![\w/])docs/[\w./-]+\.md(?:#[\w-]+)?")
    for file in known():
        if file.suffix in (".py", ".sh", ".toml", ".yaml", ".yml", ".ts", ".proto", ".tpl") or file.name == "Makefile":
            if not file.is_file() or file == Path(__file__):
                continue
            for reference in named.findall(file.read_text("utf-8")):
                path, _, anchor = reference.partition("#")
                assert ROOT / path in known(), (name(file), reference)
                assert not anchor or anchor in anchors_of(ROOT / path), (name(file), reference)


OWN_FOLDERS: Final = ("", "server/dragoman/", "console/", "console/src/")
"""Folders from which a page names a file."""

SOURCE: Final = re.compile(r"`((?:[\w-]+/)+[\w-]+\.(?:py|ts|tsx|toml|sql|proto|sh))`")


def missing_sources(text: str, beside: Path = ROOT) -> list[str]:
    """The files that a text names with a folder of the project, and that are neither there nor below `beside`."""
    roots = {one.relative_to(ROOT / folder).parts[0] for folder in OWN_FOLDERS for one in (ROOT / folder).glob("*/")}
    places = (beside, *(ROOT / folder for folder in OWN_FOLDERS))
    named = [path for path in SOURCE.findall(text) if path.split("/")[0] in roots]
    return [path for path in named if not any(place / path in known() for place in places)]


def test_a_page_names_files_that_exist() -> None:
    missing = {name(page): missing_sources(page.read_text("utf-8"), page.parent) for page in PAGES}
    assert {page: files for page, files in missing.items() if files} == {}


def test_a_file_that_is_gone_is_found() -> None:
    text = "`core/task/plan.py`, `core/task/gone.py`, `tests/gone.py`, `console/src/gone.ts`, `other/gone.py`"
    assert missing_sources(text) == ["core/task/gone.py", "tests/gone.py", "console/src/gone.ts"]


def navigation(entry: Any) -> Iterator[str]:
    match entry:
        case str():
            yield entry
        case list():
            for one in entry:
                yield from navigation(one)
        case dict():
            for one in entry.values():
                yield from navigation(one)


class Loader(yaml.SafeLoader):
    """Reads mkdocs.yml without making what its tags name."""


Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda loader, suffix, node: None)


def test_every_page_is_in_the_navigation_once() -> None:
    texts = list(navigation(yaml.load((ROOT / "mkdocs.yml").read_text("utf-8"), Loader)["nav"]))
    there = {site_hooks.place(page) for page in PAGES if page != ROOT / "README.md"} - set(site_hooks.NOT_SHOWN)
    assert sorted(texts) == sorted(there)


def test_the_site_has_every_file_that_a_page_links_to() -> None:
    outside = site_hooks.files_outside_docs()
    assert ROOT / "SECURITY.md" in outside
    assert ROOT / "proto" / "dragoman" / "worker" / "v1" / "worker.proto" in outside
    assert not any(file.is_relative_to(ROOT / "docs") for file in outside)


def test_the_schema_page_is_up_to_date() -> None:
    assert schema_page.PAGE.read_text("utf-8") == schema_page.page(), "run `make settings`"


def test_the_settings_page_is_up_to_date() -> None:
    assert settings_page.PAGE.read_text("utf-8") == settings_page.page(), "run `make settings`"


@pytest.mark.parametrize(
    ("heading", "anchor"),
    [
        ("Who sees a task", "who-sees-a-task"),
        ("The protocol, in words", "the-protocol-in-words"),
        ("`make cluster`: a try", "make-cluster-a-try"),
        ("A [link](x.md) - and more", "a-link---and-more"),
        ("[0.1.0] - 2026-01-01", "010---2026-01-01"),
    ],
)
def test_anchors_follow_github(heading: str, anchor: str) -> None:
    assert slug(heading) == anchor


def test_links_in_blocks_and_code_are_ignored() -> None:
    text = 'a [b](c.md#d) `[no](no.md)`\n```\n[no](no.md)\n```\n![p](q.png "title")\n'
    assert [(link.target, link.line) for link in links(text)] == [("c.md#d", 1), ("q.png", 5)]
    assert [text[link.begin : link.end] for link in links(text)] == ["c.md#d", "q.png"]


def test_a_repeated_heading_gets_a_number() -> None:
    assert anchors("# A\n## B c\n## B c\n```\n# no\n```\n") == {"a", "b-c", "b-c-1"}
