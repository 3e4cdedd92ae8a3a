"""Docstrings begin with a noun or a verb, never with a free relative clause ("What ...")."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

SERVER: Final = Path(__file__).parents[1] / "server" / "dragoman"

RELATIVE_CLAUSE: Final = re.compile(r'^[ \t]*"""What\b.*', re.MULTILINE)


def test_no_docstring_begins_with_what() -> None:
    found = {
        f"{path.relative_to(SERVER)}: {line.strip()}"
        for path in sorted(SERVER.rglob("*.py"))
        for line in RELATIVE_CLAUSE.findall(path.read_text("utf-8"))
    }
    assert found == set(), "say the responsibility: Returns ..., The ... of ..."


def test_such_a_docstring_is_found_in_any_place() -> None:
    planted = 'LIMIT = 1\n"""What is held."""\n\ndef whats() -> None:\n    """What happens."""\n    """Whatever."""\n'
    assert len(RELATIVE_CLAUSE.findall(planted)) == 2
