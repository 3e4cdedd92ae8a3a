"""What the pages of the documentation hold: links, anchors and fenced blocks, as GitHub reads them.

The site (`tools/site_hooks.py`) and the tests of `tests/docs` read pages by this, so that both mean the same.
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
"""Where pages are; what npm or pip left under them is not ours."""

FOREIGN: Final = {"node_modules", ".venv"}

FENCE: Final = re.compile(r'^(?P<indent> *)(?P<ticks>```+)(?P<language>[\w-]*)(?P<options>(?: \w+="[^"]*")*)$')
LINK: Final = re.compile(r"(?<!\\)\]\((?P<target>[^()\s]+)(?: \"[^\"]*\")?\)")
HEADING: Final = re.compile(r"^#{1,6} +(?P<text>.*?) *#*$")
MARKER: Final = re.compile(r"^<!-- (?P<name>not run|before|by|in|with|as|anew|figures): (?P<options>.*?) -->$")
"""What a page says to the test that runs its blocks, right before a block; tests/docs/README.md has what each means."""


@dataclass(frozen=True, slots=True)
class Link:
    """A target as it is written, and where: `line` counts from 1, `begin` and `end` from the start of
    the page.
    """

    target: str
    line: int
    begin: int
    end: int

    @property
    def outside(self) -> bool:
        """Whether it leads out of the project."""
        return bool(re.match(r"[a-z][a-z+.-]*:", self.target))


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: the line of its fence, its language, and what is in it."""

    line: int
    language: str
    text: str
    heading: str
    title: str
    """The name of the file that it shows, from `title="agents.py"` after the language; else empty."""
    options: tuple[tuple[str, str], ...] = ()
    """The markers right before it, such as ("not run", "needs a cluster")."""

    def marker(self, name: str) -> str:
        """What a marker says; empty where there is none of the name."""
        return dict(self.options).get(name, "")


def pages(root: Path = ROOT) -> list[Path]:
    """Every page of the project, sorted."""
    found = {path for place in PLACES for path in root.glob(place)}
    return sorted(path for path in found if not FOREIGN & set(path.relative_to(root).parts))


def _lines(text: str) -> Iterator[tuple[int, int, str, bool]]:
    """Number, offset and text of each line, and whether it is in a fenced block (the fences count as in it)."""
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
    """The links and pictures of a page, but for those in blocks and in `code`."""
    for number, offset, line, inside in _lines(text):
        if not inside:
            bare = re.sub(r"(`+).*?\1", lambda code: " " * len(code[0]), line)
            for found in LINK.finditer(bare):
                begin, end = found.span("target")
                yield Link(line[begin:end], number, offset + begin, offset + end)


def slug(heading: str) -> str:
    """The anchor of a heading: lower case, blanks as `-`, without punctuation and marks of emphasis, code and links."""
    bare = re.sub(r"!?\[([^]]*)\]\([^)]*\)", r"\1", heading)
    bare = re.sub(r"[^\w\- ]", "", bare.replace("*", "").lower()).strip()
    return bare.replace(" ", "-")


def anchors(text: str) -> set[str]:
    """The anchors of a page. A heading that is there twice has `-1` at the second time."""
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
    """The fenced blocks of a page, from top to bottom."""
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
        raise ValueError(f"line {began[0]}: this block has no end")


def target_of(page: Path, link: Link, root: Path = ROOT) -> tuple[Path, str]:
    """The file that a link on a page leads to, and the anchor in it. A folder is its README.md. Raises ValueError
    for a target outside of the project."""
    where, _, anchor = link.target.partition("#")
    path = (page.parent / where).resolve() if where else page.resolve()
    if not path.is_relative_to(root.resolve()):
        raise ValueError(f"{link.target} leads out of the project")
    return path / "README.md" if path.is_dir() else path, anchor


def commands(block: str) -> Iterator[tuple[str, list[str]]]:
    """Yields the commands of a `console` block, each with its output lines. A command begins with `$ ` and goes on as
    long as a shell would ask for more lines."""
    lines = block.splitlines()
    while lines:
        first = lines.pop(0)
        if not first.startswith("$ "):
            if first.strip():
                raise ValueError(f"this is no command, and what no command says: {first}")
            continue
        texts = [first[2:]]
        while lines and _goes_on("\n".join(texts)):
            texts.append(lines.pop(0).removeprefix("> "))
        shown: list[str] = []
        while lines and not lines[0].startswith("$ "):
            shown.append(lines.pop(0))
        yield "\n".join(texts), shown


def _goes_on(command: str) -> bool:
    """Whether a shell would ask for another line."""
    bare = re.sub(r"\\[^\n]|'[^']*'|\"(?:\\.|[^\"\\])*\"|(?<!\S)#.*", "", command)
    here = re.search(r"<<\s*'?(\w+)", command)
    if here and not re.search(rf"^{here[1]}$", command, re.MULTILINE):
        return True
    words = re.findall(r"[\w-]+", bare)
    return bare.endswith(("\\", "|")) or "'" in bare or '"' in bare or words.count("do") > words.count("done")
