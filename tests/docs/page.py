"""Runs a page in one folder, top to bottom: writes its files, runs its commands, compares their output."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from tests.docs.blocks import Place
from tests.docs.scripted_model import ScriptedModel
from tests.docs.session import STAYS, Differs, Session
from tests.frameworks import suite

from tools.environments import Environment
from tools.pages import ROOT, blocks, commands

FOREIGN: Final = ROOT / "tests" / "foreign"
PROGRAMS: Final = re.compile(r"\b(?:openssl|curl|node|jq|sqlite3)\b")


def places(page: Path) -> list[Place]:
    return [Place(page, block) for block in blocks(page.read_text("utf-8"))]


def is_session(page: Path) -> bool:
    """Whether a page has commands to run."""
    return any(place.kind in ("run", "compared") or place.is_test for place in places(page))


def missing(page: Path) -> set[str]:
    """Returns the programs that the page needs and this machine lacks."""
    every = {name for place in places(page) if place.kind == "run" for name in PROGRAMS.findall(place.block.text)}
    return {name for name in every if not shutil.which(name)}


def environment(name: str) -> Environment:
    """Returns an environment of tests/foreign by its folder name."""
    names = ("requirements.txt", "package.json", "package-lock.json")
    return Environment(name, tuple(path for one in names if (path := FOREIGN / name / one).exists()))


def run(page: Path, folder: Path, installed_in: Path | None = None) -> Iterator[str]:
    """Runs a page. Yields the first difference and stops there, because later results would depend on it.

    installed_in: an environment whose programs are used in place of the project's. Raises NotCreated if an environment
    cannot be created.
    """
    with ExitStack() as stack:
        session = stack.enter_context(Session(folder))
        if installed_in:
            session.enter(installed_in)
        agents = ""
        for place in places(page):
            block = place.block
            if block.marker("anew"):
                stack.close()
                session = stack.enter_context(Session(folder.with_name(f"{folder.name}-{block.line}")))
                if installed_in:
                    session.enter(installed_in)
                agents = ""
            for name in block.marker("with").split():
                stack.callback(session.start_service(name))
            for alias in (text for name, text in block.options if name == "as"):
                shown_address, _, address = alias.partition(" = ")
                session.addresses[shown_address] = address
            if place.file:
                session.write(place.file, block.text)
                if re.search(r"^@agent\b", block.text, re.MULTILINE):
                    agents = place.file
            if place.kind not in ("run", "compared") and not place.is_test:
                continue
            try:
                if framework := block.marker("installed"):
                    installed = suite.framework(framework).environment
                    installed.make()
                    session.link("venv", installed.folder)
                    session.export(stack.enter_context(ScriptedModel()).variables)
                    continue
                if environment_name := block.marker("in"):
                    environment(environment_name).make()
                    session.enter(environment(environment_name).folder)
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
                steps = (
                    list(commands(block.text)) if block.language == "console" else [(c, []) for c in place.commands()]
                )
                serves = any((found := STAYS.match(command)) and found["what"] == "serve" for command, _ in steps)
                if agents and not serves and not first:
                    session.run(f"dragoman serve {agents}")
                agents = ""
                for command, shown in steps:
                    session.run(command, shown, loosely=bool(block.marker("figures")))
                if environment_name:
                    session.leave()
            except (Differs, ValueError) as error:
                yield f"{place}: differs:\n{error}"
                return
