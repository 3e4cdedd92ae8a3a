"""What each fenced block of the documentation is, and what of it can be looked at without a server."""

from __future__ import annotations

import ast
import configparser
import contextlib
import inspect
import io
import json
import re
import shlex
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import typer.main
import yaml
from tests.docs import test_doctests

from dragoman.cli import cli
from dragoman.core.cards import agent_spec
from dragoman.settings.settings import load_settings
from tools.pages import ROOT, Block, blocks, commands, pages

SHELLS: Final = {"console", "sh"}
"""`console` shows a session, commands after `$ ` and what they say; `sh` commands alone."""
PICTURES: Final = {"mermaid"}
FILES: Final = {"python", "javascript", "js", "sql", "text"}
"""What a name makes a file that commands use."""
NAME: Final = re.compile(r"^(?:#|//) (?P<name>[\w./-]+\.\w+)$")
"""A first line that names the file."""
MAKE_TARGET: Final = re.compile(r"^([a-z-]+):", re.MULTILINE)


class Wrong(Exception):
    """A block is not what it should be."""


@dataclass(frozen=True)
class Place:
    """A block, and the page that has it."""

    page: Path
    block: Block

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.block.line}"

    @property
    def file(self) -> str:
        """The name of the file that the block is; empty if it is a part of one, or none."""
        lines = self.block.text.splitlines()
        found = NAME.match(lines[0]) if lines else None
        return self.block.title or (found["name"] if found else "")

    @property
    def is_test(self) -> bool:
        """Whether pytest runs it."""
        return self.file.startswith("test_") and self.file.endswith(".py") and not self.block.marker("not run")

    @property
    def kind(self) -> str:
        """What is done with it: `run` in a session, `compared` with what was said there, `file` that one uses,
        `executed`, `parsed`, `picture`, `not run`.
        Raises Wrong for a block that nobody knows how to run, and that does not say why it is not."""
        if self.block.marker("not run"):
            return "not run"
        if self.block.marker("by"):
            return "compared"
        language = self.block.language
        if language in SHELLS:
            return "run"
        if language in PICTURES:
            return "picture"
        if language in FILES and self.file:
            return "file"
        if language == "python" or (language == "pycon" and self.page.name in test_doctests.PAGES):
            return "executed"
        if language in PARSERS:
            return "parsed"
        raise Wrong(
            f"nobody knows how to run a block of {language or 'no language'}; say why it is not run: "
            "<!-- not run: ... --> before it"
        )

    def look(self, folder: Path) -> None:
        """Everything that can be told without a server; `folder` is an empty one. Raises Wrong."""
        language = self.block.language
        try:
            if language in SHELLS:
                for command in self.commands():
                    check_command(command)
            elif language in PARSERS:
                PARSERS[language](self, folder)
            elif language == "python":
                code = compile(self.block.text, str(self), "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
                if self.kind == "executed":
                    if code.co_flags & inspect.CO_COROUTINE:
                        raise Wrong("it awaits outside of a function")
                    with contextlib.redirect_stdout(io.StringIO()):
                        exec(code, {"__name__": "shown"})
        except Wrong:
            raise
        except Exception as error:
            raise Wrong(f"{type(error).__name__}: {error}") from error

    def commands(self) -> Iterator[str]:
        """The commands of a shell's block, as they are written."""
        if self.block.language == "sh":
            session = "".join(
                f"$ {line}\n" if line[:1] not in (" ", "#") else f"{line}\n" for line in _joined(self.block)
            )
            yield from (command for command, _ in commands(session))
        else:
            yield from (command for command, _ in commands(self.block.text))


def _joined(block: Block) -> list[str]:
    """The lines of commands without output; what goes on after a backslash is one line."""
    return [line for line in re.sub(r"\\\n\s*", "", block.text).splitlines() if line.strip() and line[0] != "#"]


def every() -> Iterator[Place]:
    """Every block of every page."""
    for page in pages():
        for block in blocks(page.read_text("utf-8")):
            yield Place(page, block)


# ---------------------------------------------------------------- commands


@cache
def targets() -> set[str]:
    """What `make` can be told."""
    return set(MAKE_TARGET.findall((ROOT / "Makefile").read_text("utf-8")))


def check_command(command: str) -> None:
    """Does `dragoman` have these commands and options, and `make` these targets? Raises Wrong."""
    for words in calls(command):
        while words and re.match(r"\w+=", words[0]):
            words.pop(0)
        if words[:1] == ["dragoman"]:
            _parse(words[1:])
        elif words[:1] == ["make"]:
            wanted = [word for word in words[1:] if re.fullmatch(r"[a-z][a-z-]*", word)]
            if "-C" not in words and (unknown := set(wanted) - targets()):
                raise Wrong(f"make has no target {sorted(unknown)}")


def calls(command: str) -> Iterator[list[str]]:
    """The programs that a command calls, with their words."""
    plain = re.sub(r"\$\([^()]*\)|\$\w+|<\([^()]*\)", "X", command.replace("\\\n", " "))
    lexer = shlex.shlex(plain, posix=True, punctuation_chars="();<>|&")
    lexer.whitespace_split = True
    words: list[str] = []
    redirected = False
    for word in lexer:
        if word and set(word) <= set("();|&"):
            yield words
            words = []
        elif word and set(word) <= set("<>"):
            redirected = True
        elif redirected:
            redirected = False
        else:
            words.append(word)
    yield words


@cache
def _dragoman() -> Any:
    return typer.main.get_command(cli)


def _parse(words: list[str]) -> None:
    """Raises Wrong where the command line would refuse words without looking at anything else.

    Typer has a Click of its own, so its errors are known by their names.
    """
    command = _dragoman()
    context = command.context_class(command, info_name="dragoman")
    opened = [context]
    try:
        while hasattr(command, "resolve_command"):
            if not words or words[0].startswith("-"):
                return
            _, command, words = command.resolve_command(context, words)
            context = command.context_class(command, parent=context, info_name=command.name)
            opened.append(context)
        command.parse_args(context, list(words))
    except Exception as error:
        kind = type(error).__name__
        if kind not in ("BadParameter", "Exit"):  # a file that is not here; --help
            response = error.format_message() if hasattr(error, "format_message") else str(error)
            raise Wrong(f"dragoman {context.info_name}: {response}") from error
    finally:
        for one in reversed(opened):  # what an option holds for its command, `--ca` for one, holds no longer
            one.close()


# ---------------------------------------------------------------- data


def _json(place: Place, folder: Path) -> None:
    try:
        json.loads(place.block.text)
    except json.JSONDecodeError:
        for line in place.block.text.splitlines():
            json.loads(line)


def _toml(place: Place, folder: Path) -> None:
    """dragoman.toml is read as the server reads it, and so is a file of cards; a block without a name is a part of the
    first."""
    values: Mapping[str, Any] = tomllib.loads(place.block.text)
    if place.file == "cards.toml":
        agent_spec.parse_card_overrides(values)
    elif place.file in ("", "dragoman.toml"):
        file = folder / "dragoman.toml"
        file.write_text(place.block.text, "utf-8")
        load_settings({"config": file})


def _yaml(place: Place, folder: Path) -> None:
    list(yaml.safe_load_all(place.block.text))


def _ini(place: Place, folder: Path) -> None:
    configparser.ConfigParser(strict=False).read_string(place.block.text)


def _diff(place: Place, folder: Path) -> None:
    """What a change takes away or leaves has to be there."""
    sources = {path: path.read_text("utf-8") for path in (ROOT / "server" / "dragoman").rglob("*.py")}
    for line in place.block.text.splitlines():
        stays = line[:1] in (" ", "-") and line.strip() not in ("", "...")
        if stays and not any(line[1:] in source.splitlines() for source in sources.values()):
            raise Wrong(f"no source has this line: {line[1:]}")


PARSERS: Final[Mapping[str, Callable[[Place, Path], None]]] = {
    "json": _json,
    "toml": _toml,
    "yaml": _yaml,
    "ini": _ini,
    "diff": _diff,
}
