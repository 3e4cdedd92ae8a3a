"""Rejects retired words in identifiers and file names. The words are in retired_words.toml."""

from __future__ import annotations

import io
import keyword
import re
import subprocess
import sys
import tokenize
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
TERMS = Path(__file__).with_suffix(".toml")
SOURCES = ("server/", "tests/", "tools/", "bench/", "examples/")
SENTENCE_LENGTH = 4
WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")


class Terms(NamedTuple):
    """The retired words and whole names with their replacements, and the identifiers that may stay.

    `exceptions` has pairs of a file (or "*") and an identifier. `sentence_words` are allowed in names of four words or
    more.
    """

    words: dict[str, str]
    names: dict[str, str]
    exceptions: frozenset[tuple[str, str]] = frozenset()
    sentence_words: frozenset[str] = frozenset()

    def replacement(self, identifier: str) -> str | None:
        """Returns the replacement; None for an allowed name."""
        if identifier in self.names:
            return self.names[identifier]
        words = [word.lower() for word in WORD.findall(identifier)]
        is_sentence = len(words) >= SENTENCE_LENGTH and identifier.islower()
        for word in words:
            if word in self.words and not (is_sentence and word in self.sentence_words):
                return f"{self.words[word]} (for {word!r})"
        return None


def read_terms(path: Path = TERMS) -> Terms:
    data = tomllib.loads(path.read_text(encoding="utf-8"))
    exceptions = frozenset((row["file"], name) for row in data.get("exceptions", []) for name in row["names"])
    return Terms(data["words"], data["names"], exceptions, frozenset(data["sentence_words"]))


def identifiers(source: str) -> Iterator[tuple[int, str]]:
    """Yields each identifier of a Python file with its line."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.NAME and not keyword.iskeyword(token.string):
            yield token.start[0], token.string


def findings(root: Path, places: Iterable[str], terms: Terms) -> Iterator[str]:
    """Yields one line per retired word: its place and its replacement."""
    for place in places:
        for part in Path(place).parts:
            name = part.removesuffix(".py")
            instead = terms.replacement(name)
            if instead and not {(place, name), ("*", name)} & terms.exceptions:
                yield f"{place}: {part} is a retired name; use {instead}"
        if not place.endswith(".py"):
            continue
        reported: set[str] = set()
        for line, name in identifiers((root / place).read_text(encoding="utf-8")):
            instead = terms.replacement(name)
            if instead and name not in reported and not {(place, name), ("*", name)} & terms.exceptions:
                reported.add(name)
                yield f"{place}:{line}: {name} is a retired name; use {instead}"


def main(prefixes: list[str]) -> int:
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    wanted = tuple(prefixes) or SOURCES
    places = [p for p in tracked.splitlines() if p.startswith(wanted) and (ROOT / p).is_file()]
    found = list(findings(ROOT, places, read_terms()))
    for line in found:
        print(line)
    if found:
        print(
            f"{len(found)} retired names; docs/reference/glossary.md has the terms, tools/retired_words.toml the list"
        )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
