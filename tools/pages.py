"""Parses documentation pages as GitHub does: links, anchors and fenced blocks.

The site (`tools/site_hooks.py`) and the tests in `tests/docs` share this parser.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]

PLACES: Final = (
    "*.md",
    "docs/**/*.md",
    "examples/**/*.md",
    "deploy/**/*.md",
    "proto/*.md",
    "tests/foreign/README.md",
    "tests/docs/README.md",
)
"""Glob patterns of all pages."""

FOREIGN: Final = {"node_modules", ".venv"}
"""Folders of installed packages, which are skipped."""

FENCE: Final = re.compile(r'^(?P<indent> *)(?P<ticks>```+)(?P<language>[\w-]*)(?P<options>(?: \w+="[^"]*")*)$')
LINK: Final = re.compile(r"(?<!\\)\]\((?P<target>[^()\s]+)(?: \"[^\"]*\")?\)")
HEADING: Final = re.compile(r"^#{1,6} +(?P<text>.*?) *#*$")
MARKER: Final = re.compile(
    r"^<!-- (?P<name>not run|before|by|in|installed|with|as|anew|figures): (?P<options>.*?) -->$"
)
"""A marker before a block, for the test that runs it; tests/docs/README.md explains each."""


@dataclass(frozen=True, slots=True)
class Link:
    """A link target as written. `line` counts from 1; `begin` and `end` are offsets in the page."""

    target: str
    line: int
    begin: int
    end: int

    @property
    def outside(self) -> bool:
        """Whether it points outside the project."""
        return bool(re.match(r"[a-z][a-z+.-]*:", self.target))


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block. `line` is the line of its opening fence."""

    line: int
    language: str
    text: str
    heading: str
    title: str
    """The name of the shown file, from `title="agents.py"` after the language; else empty."""
    options: tuple[tuple[str, str], ...] = ()
    """The markers before the block, such as ("not run", "needs a cluster")."""

    def marker(self, name: str) -> str:
        """Returns the text of a marker; empty if the block does not have it."""
        return dict(self.options).get(name, "")


def pages(root: Path = ROOT) -> list[Path]:
    """Returns every page of the project, sorted."""
    found = {path for place in PLACES for path in root.glob(place)}
    return sorted(path for path in found if not FOREIGN & set(path.relative_to(root).parts))


def _lines(text: str) -> Iterator[tuple[int, int, str, bool]]:
    """Yields number, offset and text of each line, and whether it is in a fenced block, including its fences."""
    ticks, offset = "", 0
    for number, line in enumerate(text.splitlines(keepends=True), 1):
        found = FENCE.match(line.rstrip("\n"))
        inside = bool(ticks or found)
        if ticks:
            ticks = "" if line.strip() == ticks else ticks
        elif found:
            ticks = found["ticks"]
        yield number, offset, line.rstrip("\n"), inside
        offset += len(line)


def links(text: str) -> Iterator[Link]:
    """Yields the links and images of a page, except those in blocks and in `code`."""
    for number, offset, line, inside in _lines(text):
        if not inside:
            bare = re.sub(r"(`+).*?\1", lambda code: " " * len(code[0]), line)
            for found in LINK.finditer(bare):
                begin, end = found.span("target")
                yield Link(line[begin:end], number, offset + begin, offset + end)


def slug(heading: str) -> str:
    """Returns the anchor of a heading: lower case, spaces as `-`, without punctuation and Markdown syntax."""
    bare = re.sub(r"!?\[([^]]*)\]\([^)]*\)", r"\1", heading)
    bare = re.sub(r"[^\w\- ]", "", bare.replace("*", "").lower()).strip()
    return bare.replace(" ", "-")


def anchors(text: str) -> set[str]:
    """Returns the anchors of a page. The second heading with the same text gets `-1`."""
    found: dict[str, int] = {}
    every = set()
    for _, _, line, inside in _lines(text):
        if not inside and (heading := HEADING.match(line)):
            name = slug(heading["text"])
            times = found.get(name, 0)
            found[name] = times + 1
            every.add(f"{name}-{times}" if times else name)
    return every


def blocks(text: str) -> Iterator[Block]:
    """Yields the fenced blocks of a page, top to bottom. Raises ValueError for a block without an end."""
    heading = ""
    markers: list[tuple[str, str]] = []
    began: tuple[int, re.Match[str]] | None = None
    held: list[str] = []
    for number, _, line, inside in _lines(text):
        if not inside:
            if match := HEADING.match(line):
                heading = match["text"]
            if line.strip():
                found = MARKER.match(line.strip())
                markers = [*markers, (found["name"], found["options"])] if found else []
        elif began is None:
            fence = FENCE.match(line)
            assert fence is not None
            began, held = (number, fence), []
        elif line.strip() == began[1]["ticks"]:
            title = re.search(r'title="([^"]*)"', began[1]["options"])
            content = "".join(f"{one}\n" for one in held)
            yield Block(began[0], began[1]["language"], content, heading, title[1] if title else "", tuple(markers))
            began, markers = None, []
        else:
            held.append(line.removeprefix(began[1]["indent"]))
    if began is not None:
        raise ValueError(f"line {began[0]}: this block is not closed")


def target_of(page: Path, link: Link, root: Path = ROOT) -> tuple[Path, str]:
    """Returns the file that a link on a page points to, and the anchor in it. A folder means its README.md.

    Raises ValueError for a target outside the project.
    """
    where, _, anchor = link.target.partition("#")
    path = (page.parent / where).resolve() if where else page.resolve()
    if not path.is_relative_to(root.resolve()):
        raise ValueError(f"{link.target} points outside the project")
    return path / "README.md" if path.is_dir() else path, anchor


def commands(block: str) -> Iterator[tuple[str, list[str]]]:
    """Yields the commands of a `console` block, each with its output lines.

    A command begins with `$ ` and continues as long as a shell would prompt for more. Raises ValueError for output
    without a command.
    """
    lines = block.splitlines()
    while lines:
        first = lines.pop(0)
        if not first.startswith("$ "):
            if first.strip():
                raise ValueError(f"output without a command: {first}")
            continue
        texts = [first[2:]]
        while lines and _is_incomplete("\n".join(texts)):
            texts.append(lines.pop(0).removeprefix("> "))
        shown: list[str] = []
        while lines and not lines[0].startswith("$ "):
            shown.append(lines.pop(0))
        yield "\n".join(texts), shown


def _is_incomplete(command: str) -> bool:
    """Whether a shell would prompt for another line."""
    bare = re.sub(r"\\[^\n]|'[^']*'|\"(?:\\.|[^\"\\])*\"|(?<!\S)#.*", "", command)
    here = re.search(r"<<\s*'?(\w+)", command)
    if here and not re.search(rf"^{here[1]}$", command, re.MULTILINE):
        return True
    words = re.findall(r"[\w-]+", bare)
    return bare.endswith(("\\", "|")) or "'" in bare or '"' in bare or words.count("do") > words.count("done")
