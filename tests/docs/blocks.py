"""Classifies the fenced blocks of the documentation, and checks them as far as possible without a server."""

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
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import typer.main
import yaml
from tests.docs import test_doctests
from tests.frameworks import suite

from dragoman.cli import cli
from dragoman.core.cards import agent_spec
from dragoman.settings.settings import load_settings
from tools.pages import ROOT, Block, blocks, commands, pages

SHELLS: Final = {"console", "sh"}
"""`console` shows commands after `$ ` and their output, `sh` only commands."""
PICTURES: Final = {"mermaid"}
FILES: Final = {"python", "javascript", "js", "sql", "text"}
"""A block in one of these languages is a file if it has a name."""
NAME: Final = re.compile(r"^(?:#|//) (?P<name>[\w./-]+\.\w+)$")
"""A first line that names the file."""
MAKE_TARGET: Final = re.compile(r"^([a-z-]+):", re.MULTILINE)


class InvalidBlock(Exception):
    """A block is invalid. The text gives the reason."""


@dataclass(frozen=True)
class Place:
    """A block and its page."""

    page: Path
    block: Block

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.block.line}"

    @property
    def file(self) -> str:
        """The block's file name; empty if it is an excerpt, or no file."""
        lines = self.block.text.splitlines()
        found = NAME.match(lines[0]) if lines else None
        return self.block.title or (found["name"] if found else "")

    @property
    def is_test(self) -> bool:
        """Whether pytest runs it."""
        return self.file.startswith("test_") and self.file.endswith(".py") and not self.block.marker("not run")

    @property
    def kind(self) -> str:
        """How the block is tested: `run` in a session, `compared` with its output, `file` for its commands,
        `executed`, `parsed`, `picture`, `not run`.

        Raises InvalidBlock for a block that cannot be run and has no reason for it.
        """
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
        raise InvalidBlock(
            f"a block of {language or 'no language'} cannot be run; give the reason: <!-- not run: ... --> before it"
        )

    def check(self, folder: Path) -> None:
        """Checks the block as far as possible without a server, in an empty folder. Raises InvalidBlock."""
        language = self.block.language
        try:
            if language in SHELLS:
                for command in self.commands():
                    check_command(command)
                if framework := self.block.marker("installed"):
                    check_installation(list(self.commands()), framework)
            elif language in PARSERS:
                PARSERS[language](self, folder)
            elif language == "python":
                code = compile(self.block.text, str(self), "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
                if self.kind == "executed":
                    if code.co_flags & inspect.CO_COROUTINE:
                        raise InvalidBlock("await outside a function")
                    with contextlib.redirect_stdout(io.StringIO()):
                        exec(code, {"__name__": "shown"})
        except InvalidBlock:
            raise
        except Exception as error:
            raise InvalidBlock(f"{type(error).__name__}: {error}") from error

    def commands(self) -> Iterator[str]:
        """Yields the commands of a shell block as written."""
        if self.block.language == "sh":
            session = "".join(
                f"$ {line}\n" if line[:1] not in (" ", "#") else f"{line}\n" for line in _joined(self.block)
            )
            yield from (command for command, _ in commands(session))
        else:
            yield from (command for command, _ in commands(self.block.text))


def _joined(block: Block) -> list[str]:
    """The command lines of an `sh` block; lines that end with a backslash are joined with the next."""
    return [line for line in re.sub(r"\\\n\s*", "", block.text).splitlines() if line.strip() and line[0] != "#"]


def every() -> Iterator[Place]:
    """Yields every block of every page."""
    for page in pages():
        for block in blocks(page.read_text("utf-8")):
            yield Place(page, block)


# ---------------------------------------------------------------- commands


@cache
def targets() -> set[str]:
    """Returns the targets of the Makefile."""
    return set(MAKE_TARGET.findall((ROOT / "Makefile").read_text("utf-8")))


def check_command(command: str) -> None:
    """Checks that the `dragoman` options and `make` targets of a command exist. Raises InvalidBlock."""
    for words in calls(command):
        while words and re.match(r"\w+=", words[0]):
            words.pop(0)
        if words[:1] == ["dragoman"]:
            _parse(words[1:])
        elif words[:1] == ["make"]:
            wanted = [word for word in words[1:] if re.fullmatch(r"[a-z][a-z-]*", word)]
            if "-C" not in words and (unknown := set(wanted) - targets()):
                raise InvalidBlock(f"make has no target {sorted(unknown)}")


def check_installation(given: Sequence[str], framework: str) -> None:
    """Checks that commands create venv and install only packages that are tested. Raises InvalidBlock."""
    words = [words for command in given for words in calls(command)]
    installed = {name for one in words if one[:2] == ["venv/bin/pip", "install"] for name in one[2:]}
    tested = suite.framework(framework).packages
    if ["python3", "-m", "venv", "venv"] not in words or not installed or installed - tested:
        raise InvalidBlock(f"it does not install only {', '.join(sorted(tested))} in venv")


def calls(command: str) -> Iterator[list[str]]:
    """Yields the programs that a command calls, with their arguments."""
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
    """Parses arguments of `dragoman`. Raises InvalidBlock for usage errors.

    Typer bundles its own Click, so errors are recognized by class name.
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
        if kind not in ("BadParameter", "Exit"):  # a missing file; --help
            response = error.format_message() if hasattr(error, "format_message") else str(error)
            raise InvalidBlock(f"dragoman {context.info_name}: {response}") from error
    finally:
        for one in reversed(opened):  # undoes the effects of options such as `--ca`
            one.close()


# ---------------------------------------------------------------- data


def _json(place: Place, folder: Path) -> None:
    try:
        json.loads(place.block.text)
    except json.JSONDecodeError:
        for line in place.block.text.splitlines():
            json.loads(line)


def _toml(place: Place, folder: Path) -> None:
    """Parses dragoman.toml and cards.toml as the server does. A block without a name is an excerpt of dragoman.toml."""
    table: Mapping[str, Any] = tomllib.loads(place.block.text)
    if place.file == "cards.toml":
        agent_spec.parse_card_overrides(table)
    elif place.file in ("", "dragoman.toml"):
        file = folder / "dragoman.toml"
        file.write_text(place.block.text, "utf-8")
        load_settings({"config": file})


def _yaml(place: Place, folder: Path) -> None:
    list(yaml.safe_load_all(place.block.text))


def _ini(place: Place, folder: Path) -> None:
    configparser.ConfigParser(strict=False).read_string(place.block.text)


def _diff(place: Place, folder: Path) -> None:
    """Checks that removed and context lines exist in the sources."""
    sources = {path: path.read_text("utf-8") for path in (ROOT / "server" / "dragoman").rglob("*.py")}
    for line in place.block.text.splitlines():
        stays = line[:1] in (" ", "-") and line.strip() not in ("", "...")
        if stays and not any(line[1:] in source.splitlines() for source in sources.values()):
            raise InvalidBlock(f"no source has this line: {line[1:]}")


PARSERS: Final[Mapping[str, Callable[[Place, Path], None]]] = {
    "json": _json,
    "toml": _toml,
    "yaml": _yaml,
    "ini": _ini,
    "diff": _diff,
}
