"""Rejects retired words in identifiers and file names. The words are in retired_words.toml.

It reads Python, the SQL in its strings, TypeScript and SQL.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from tools.identifiers import (
    LANGUAGES,
    embedded_sql_identifiers,
    python_identifiers,
    sql_identifiers,
    typescript_identifiers,
)

ROOT = Path(__file__).resolve().parents[1]
TERMS = Path(__file__).with_suffix(".toml")
SOURCES = ("server/", "tests/", "tools/", "bench/", "examples/", "console/")
BUILT = "server/dragoman/console/"
SENTENCE_LENGTH = 4
WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")


class Terms(NamedTuple):
    """The retired words and whole names of one language with their replacements, and the identifiers that may stay.

    `exceptions` has pairs of a file (or "*") and an identifier. `sentence_words` are allowed in names of four words or
    more.
    """

    words: Mapping[str, str]
    names: Mapping[str, str]
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


def read_terms(path: Path = TERMS) -> dict[str, Terms]:
    """Returns the terms by language: those of all languages with its own."""
    data = tomllib.loads(path.read_text(encoding="utf-8"))
    terms = {}
    for language in sorted(set(LANGUAGES.values())):
        own = data.get(language, {})
        rows = [row for row in data.get("exceptions", []) if row.get("language", language) == language]
        terms[language] = Terms(
            data["words"] | own.get("words", {}),
            data["names"] | own.get("names", {}),
            frozenset((row["file"], name) for row in rows for name in row["names"]),
            frozenset(data["sentence_words"]),
        )
    return terms


def identifiers(place: str, source: str) -> Iterator[tuple[str, int, str]]:
    """Yields each identifier of a file with its language and line; nothing for files in other languages."""
    match LANGUAGES.get(Path(place).suffix):
        case "python":
            yield from (("python", *found) for found in python_identifiers(source))
            yield from (("sql", *found) for found in embedded_sql_identifiers(source))
        case "typescript":
            yield from (("typescript", *found) for found in typescript_identifiers(source))
        case "sql":
            yield from (("sql", *found) for found in sql_identifiers(source))


def findings(root: Path, places: Iterable[str], terms: Mapping[str, Terms]) -> Iterator[str]:
    """Yields one line per retired word: its place and its replacement."""
    for place in places:
        file = Path(place)
        own = terms[LANGUAGES.get(file.suffix, "python")]
        for part, name, spoken in (
            *((part, part, terms["python"]) for part in file.parts[:-1]),
            (file.name, file.stem, own),
        ):
            instead = spoken.replacement(name)
            if instead and not {(place, name), ("*", name)} & spoken.exceptions:
                yield f"{place}: {part} is a retired name; use {instead}"
        if file.suffix not in LANGUAGES:
            continue
        reported: set[str] = set()
        for language, line, name in identifiers(place, (root / place).read_text(encoding="utf-8")):
            instead = terms[language].replacement(name)
            if instead and name not in reported and not {(place, name), ("*", name)} & terms[language].exceptions:
                reported.add(name)
                yield f"{place}:{line}: {name} is a retired name; use {instead}"


def main(prefixes: list[str]) -> int:
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    wanted = tuple(prefixes) or SOURCES
    places = [p for p in tracked.splitlines() if p.startswith(wanted) and (ROOT / p).is_file()]
    found = list(findings(ROOT, [p for p in places if not p.startswith(BUILT)], read_terms()))
    for line in found:
        print(line)
    if found:
        print(
            f"{len(found)} retired names; docs/reference/glossary.md has the terms, tools/retired_words.toml the list"
        )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
