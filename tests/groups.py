"""Groups of test files: `pytest --groups short,long` runs those of two groups, and imports no others.

The group of a file is the first marker in its `pytestmark`; a file without one is `short`.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

GROUPS: Final = ("short", "long", "longest", "browser", "sessions")

_MARK: Final = re.compile(rf"^pytestmark = \[?\s*pytest\.mark\.({'|'.join(GROUPS[1:])})\b", re.MULTILINE)


def group_of(source: str) -> str:
    """The group of a test file with this text."""
    found = _MARK.search(source)
    return found[1] if found else "short"


def add_option(parser: pytest.Parser) -> None:
    parser.addoption("--groups", default="", help=f"run only test files of these groups, of {', '.join(GROUPS)}")


def selected(config: pytest.Config) -> frozenset[str]:
    """The groups to run. Raises UsageError for a name that is none."""
    given = config.getoption("groups")
    groups = frozenset(given.split(",")) if given else frozenset(GROUPS)
    if unknown := sorted(groups - set(GROUPS)):
        raise pytest.UsageError(f"--groups: {', '.join(unknown)}: allowed are {', '.join(GROUPS)}")
    return groups


def is_left_out(path: Path, groups: frozenset[str]) -> bool:
    """Whether this path is a test file of another group."""
    return path.name.startswith("test_") and path.suffix == ".py" and group_of(path.read_text("utf-8")) not in groups
