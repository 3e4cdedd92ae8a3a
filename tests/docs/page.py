"""A page from top to bottom, in one folder: its files are written, its commands run, what they say is compared."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from tests.docs.blocks import Place
from tests.docs.session import STAYS, Differs, Session

from tools.environments import Environment
from tools.pages import ROOT, blocks, commands

FOREIGN: Final = ROOT / "tests" / "foreign"
PROGRAMS: Final = re.compile(r"\b(?:openssl|curl|node|jq|sqlite3)\b")


def places(page: Path) -> list[Place]:
    return [Place(page, block) for block in blocks(page.read_text("utf-8"))]


def is_session(page: Path) -> bool:
    """Whether there is anything to run on a page."""
    return any(place.kind in ("run", "compared") or place.is_test for place in places(page))


def missing(page: Path) -> set[str]:
    """The programs that its commands need, and that are not on this machine."""
    every = {name for place in places(page) if place.kind == "run" for name in PROGRAMS.findall(place.block.text)}
    return {name for name in every if not shutil.which(name)}


def environment(name: str) -> Environment:
    """One of tests/foreign, by the name of its folder."""
    names = ("requirements.txt", "package.json", "package-lock.json")
    return Environment(name, tuple(path for one in names if (path := FOREIGN / name / one).exists()))


def run(page: Path, folder: Path) -> Iterator[str]:
    """Runs a page; gives a line for the first command that did not do as the page shows: after that the session
    cannot be trusted, so it ends. Raises NotMade for an environment that cannot be had."""
    with ExitStack() as stack:
        session = stack.enter_context(Session(folder))
        agents = ""
        for place in places(page):
            block = place.block
            if block.marker("anew"):
                stack.close()
                session = stack.enter_context(Session(folder.with_name(f"{folder.name}-{block.line}")))
                agents = ""
            for name in block.marker("with").split():
                stack.callback(session.have(name))
            for alias in (text for name, text in block.options if name == "as"):
                there, _, address = alias.partition(" = ")
                session.addresses[there] = address
            if place.file:
                session.write(place.file, block.text)
                if re.search(r"^@agent\b", block.text, re.MULTILINE):
                    agents = place.file
            if place.kind not in ("run", "compared") and not place.is_test:
                continue
            try:
                if wanted := block.marker("in"):
                    environment(wanted).make()
                    session.enter(environment(wanted).folder)
                first = [text for name, text in block.options if name == "before"]
                for one in first:
                    command, _, id_ = one.partition(" => ")
                    session.run(command, [id_, "..."] if id_ else ())
                if place.is_test:
                    session.run(f"python -m pytest -q -o asyncio_mode=auto -p no:cacheprovider {place.file}")
                    continue
                if by := block.marker("by"):
                    session.shows(by, block.text.splitlines(), loosely=bool(block.marker("figures")))
                    continue
                reported = (
                    list(commands(block.text)) if block.language == "console" else [(c, []) for c in place.commands()]
                )
                serves = any((found := STAYS.match(command)) and found["what"] == "serve" for command, _ in reported)
                if agents and not serves and not first:
                    session.run(f"dragoman serve {agents}")
                agents = ""
                for command, shown in reported:
                    session.run(command, shown, loosely=bool(block.marker("figures")))
                if wanted:
                    session.leave()
            except (Differs, ValueError) as error:
                yield f"{place}: differs:\n{error}"
                return
