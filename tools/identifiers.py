"""Yields the identifiers of Python, TypeScript and SQL sources, each with its line.

Comments, strings and the text of JSX elements are skipped. SQL is also read in the strings of Python sources.
"""

from __future__ import annotations

import ast
import io
import keyword
import re
import tokenize
from collections.abc import Iterator
from typing import Final

LANGUAGES: Final = {
    ".py": "python",
    ".ts": "typescript",
    ".tsx": "typescript",
    ".mjs": "typescript",
    ".sql": "sql",
}

Identifiers = Iterator[tuple[int, str]]


def python_identifiers(source: str) -> Identifiers:
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.NAME and not keyword.iskeyword(token.string):
            yield token.start[0], token.string


SQL_TOKEN: Final = re.compile(r"--[^\n]*|/\*.*?\*/|'(?:[^']|'')*'|(?P<name>[A-Za-z_]\w*)|\n|.", re.DOTALL)


def sql_identifiers(source: str, first_line: int = 1) -> Identifiers:
    """Yields keywords as well: no retired word is one."""
    line = first_line
    for token in SQL_TOKEN.finditer(source):
        if token["name"]:
            yield line, token["name"]
        line += token[0].count("\n")


SQL_CLAUSE: Final = re.compile(
    r"\b(SELECT|INSERT INTO|UPDATE|DELETE FROM|FROM|WHERE|JOIN|ON CONFLICT|(CREATE|ALTER) (UNIQUE )?(INDEX|TABLE))\s"
)


def embedded_sql_identifiers(source: str) -> Identifiers:
    """Yields the identifiers of statements, and of their fragments, in the strings of a Python source."""
    if not SQL_CLAUSE.search(source):
        return
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.JoinedStr):
            parts = [part.value for part in node.values if isinstance(part, ast.Constant)]
            text = " ".join(str(part) for part in parts)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
        else:
            continue
        if SQL_CLAUSE.search(text):
            yield from ((node.lineno, name) for _, name in sql_identifiers(text))


def typescript_identifiers(source: str) -> Identifiers:
    """Reads JSX as well. Type assertions in angle brackets are not supported; neither does TSX support them."""
    return TypeScript(source).code()


SPACE: Final = re.compile(r"(?:\s+|//[^\n]*|/\*.*?\*/)+", re.DOTALL)
NAME: Final = re.compile(r"#?[A-Za-z_$][\w$]*")
NUMBER: Final = re.compile(r"\d[\w.]*")
STRING: Final = re.compile(r"\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*'", re.DOTALL)
REGEX: Final = re.compile(r"/(?:[^/\\\[\n]|\\.|\[(?:[^\]\\\n]|\\.)*\])+/\w*")
ELEMENT: Final = re.compile(r"<(?:>|[A-Za-z](?![\w$]*\s*(?:,|\bextends\b)))")
"""The start of a JSX element, not of type parameters."""

BEFORE_OPERAND: Final = frozenset(
    {"await", "case", "default", "delete", "do", "else", "export", "extends", "in", "instanceof", "new", "of"}
    | {"return", "throw", "typeof", "void", "yield"}
)
"""Keywords after which a slash begins a regular expression, and an angle bracket an element."""


class TypeScript:
    """A scanner of TypeScript with JSX. It recurses into templates, blocks and elements."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._at = 0

    def code(self, end: str = "") -> Identifiers:
        """Reads to the bracket that ends this code, or to the end of the source."""
        source = self._source
        after_operand = False
        while self._at < len(source):
            if self._skip(SPACE):
                continue
            if name := NAME.match(source, self._at):
                yield from self._name(name)
                after_operand = name[0] not in BEFORE_OPERAND
            elif self._skip(NUMBER) or self._skip(STRING):
                after_operand = True
            elif source[self._at] == "`":
                yield from self._template()
                after_operand = True
            elif not after_operand and ELEMENT.match(source, self._at):
                yield from self._element()
                after_operand = True
            elif not after_operand and self._skip(REGEX):
                after_operand = True
            else:
                character = source[self._at]
                self._at += 1
                if character == end:
                    return
                if character == "{":
                    yield from self.code("}")
                after_operand = character in ")]{"

    def _template(self) -> Identifiers:
        self._at += 1
        while self._at < len(self._source):
            if self._take("${"):
                yield from self.code("}")
            elif self._take("`"):
                return
            else:
                self._at += 2 if self._source[self._at] == "\\" else 1

    def _element(self) -> Identifiers:
        self._at += 1
        while self._at < len(self._source):
            if self._skip(SPACE) or self._skip(STRING):
                continue
            if name := NAME.match(self._source, self._at):
                yield from self._name(name)
            elif self._take("{"):
                yield from self.code("}")
            elif self._take("/>"):
                return
            elif self._take(">"):
                yield from self._children()
                return
            else:  # = and the hyphens of attributes
                self._at += 1

    def _children(self) -> Identifiers:
        while self._at < len(self._source):
            if self._take("{"):
                yield from self.code("}")
            elif self._take("</"):
                self._at = self._source.find(">", self._at) + 1 or len(self._source)
                return
            elif self._source[self._at] == "<":
                yield from self._element()
            else:
                self._at += 1

    def _name(self, name: re.Match[str]) -> Identifiers:
        self._at = name.end()
        yield self._source.count("\n", 0, name.start()) + 1, name[0]

    def _skip(self, pattern: re.Pattern[str]) -> bool:
        found = pattern.match(self._source, self._at)
        if found:
            self._at = found.end()
        return found is not None

    def _take(self, text: str) -> bool:
        found = self._source.startswith(text, self._at)
        if found:
            self._at += len(text)
        return found
