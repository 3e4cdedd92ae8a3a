"""Rules of called agents with one home, checked in the sources, with tests of the check itself.

A called agent is one whose folder uses `agents/called`: retries, recovery and failures are there, and what others send
is read in the listed readers.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

PACKAGE: Final = Path(__file__).parents[3] / "server" / "dragoman"
HOME: Final = "agents/called"

READERS: Final = {
    "agents/called/agent.py": "our own state, stored with the task",
    "agents/called/registry.py": "our own specs of agents, stored in the database",
    "agents/upstream/registry.py": "our own settings, stored in the database",
    "agents/upstream/agent.py": "the metadata of our own caller's cancel",
    "extensions/mcp/servers/readers.py": "the readers of answers in the types of the SDK",
}
"""The files that parse, and what they read. Cards, events and errors of A2A are read in `wire/` and `calling/`."""

PARSERS: Final = {
    *("loads", "model_validate", "model_validate_json", "validate_json", "validate_python"),
    *("ParseDict", "Parse", "FromString", "ParseFromString", "MergeFromString"),
    *("b64decode", "urlsafe_b64decode", "fromisoformat"),
}
"""Functions that turn what others have sent into values, and raise errors of their own."""

CREATED_AT_HOME: Final = {"WorkerLost": "the end of retries", "CallForbidden": "a failure of the turn"}
"""Errors that only the home raises or handles, and the rule that they stand for."""

RECORDED_AT_HOME: Final = {"record_failure": "the retry of a call"}
"""Methods that only the home calls, and the rule that they stand for."""


def called_folders(package: Path) -> list[str]:
    """The folders of called agents: the home, and every folder that imports it."""
    using = {
        str(path.parent.relative_to(package))
        for path in package.rglob("*.py")
        if "from dragoman.agents.called" in path.read_text("utf-8")
    }
    return sorted({HOME, *using})


def second_places(package: Path) -> Iterator[str]:
    """One line for each place outside of its home where a rule of called agents is decided."""
    for folder in called_folders(package):
        for path in sorted((package / folder).glob("*.py")):
            file = str(path.relative_to(package))
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                if rule := _broken_rule(node, file):
                    yield f"{file}:{getattr(node, 'lineno', 0)} {rule}"


def _broken_rule(node: ast.AST, file: str) -> str:
    at_home = file.startswith(f"{HOME}/")
    if isinstance(node, ast.Call):
        name = _name(node.func)
        if name in PARSERS and file not in READERS:
            return f"calls {name}: what others send is read in a reader"
        if name in CREATED_AT_HOME and not at_home and name == "WorkerLost":
            return f"raises {name}: {CREATED_AT_HOME[name]} is decided in {HOME}"
        if name in RECORDED_AT_HOME and not at_home and not _is_own(node.func):
            return f"calls {name}: {RECORDED_AT_HOME[name]} is decided in {HOME}"
    if isinstance(node, ast.ExceptHandler) and not at_home:
        caught = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
        if any(one is not None and _name(one) == "CallForbidden" for one in caught):
            return f"handles CallForbidden: {CREATED_AT_HOME['CallForbidden']} is decided in {HOME}"
        if any(one is not None and _name(one) == "ValidationError" for one in caught) and file not in READERS:
            return "handles ValidationError: what others send is read in a reader"
    if isinstance(node, ast.Compare) and not at_home and isinstance(node.left, ast.Attribute):
        recovers = node.left.attr == "attempt" and file != "agents/upstream/follow_ups.py"
        return f"compares an attempt: recovery is decided in {HOME}" if recovers else ""
    return ""


def _name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _is_own(node: ast.expr) -> bool:
    """Whether an agent records a failure of a call that belongs to no turn, such as a cancel."""
    return isinstance(node, ast.Attribute) and _name(node.value) == "self"


def test_every_rule_of_called_agents_has_one_home() -> None:
    assert list(second_places(PACKAGE)) == []


def test_upstream_agents_and_an_extension_are_called_agents() -> None:
    folders = called_folders(PACKAGE)
    assert "agents/upstream" in folders
    assert any(folder.startswith("extensions/") for folder in folders)


def test_every_listed_reader_exists_and_reads() -> None:
    unused = [
        file
        for file in READERS
        if not any(
            isinstance(node, ast.Call) and _name(node.func) in PARSERS
            for node in ast.walk(ast.parse((PACKAGE / file).read_text("utf-8")))
        )
    ]
    assert unused == []


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("import json\nx = json.loads('1')", "calls loads"),
        ("def f(value):\n    return types.Tool.model_validate(value)", "calls model_validate"),
        ("try:\n    f()\nexcept ValidationError:\n    pass", "handles ValidationError"),
        ("try:\n    f()\nexcept (OSError, CallForbidden):\n    pass", "handles CallForbidden"),
        ("raise WorkerLost('away')", "raises WorkerLost"),
        ("server.record_failure('away')", "calls record_failure"),
        ("may_be_sent = context.attempt > 1", "compares an attempt"),
    ],
)
def test_a_second_place_is_found(tmp_path: Path, text: str, rule: str) -> None:
    (tmp_path / HOME).mkdir(parents=True)
    (tmp_path / "extensions" / "other").mkdir(parents=True)
    (tmp_path / "extensions" / "other" / "agent.py").write_text(
        f"from dragoman.agents.called.agent import CalledAgent\n{text}\n"
    )
    (found,) = second_places(tmp_path)
    assert found.startswith("extensions/other/agent.py:")
    assert rule in found
