"""The functions that executor processes share with the server."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

from dragoman.core import exceptions as core
from dragoman.extensions.frameworks import child
from dragoman.extensions.frameworks.child import exceptions

FOLDER: Final = Path(child.__file__).parent

PROGRAM: Final = """
import sys
sys.path.insert(0, sys.argv[1])
import start
start.load()
functions = sys.modules["_dragoman_executor.exceptions"]
error = ValueError("x")
error.__cause__ = error
print(functions.describe(error), functions.is_a(error, ValueError), any("site-packages" in path for path in sys.path))
"""


def test_they_are_loaded_without_any_package() -> None:
    run = [sys.executable, "-I", "-S", "-c", PROGRAM, str(FOLDER)]
    assert subprocess.run(run, capture_output=True, text=True, check=True).stdout.split() == [
        *("ValueError:", "x", "True", "False")
    ]


def test_they_are_those_of_the_core() -> None:
    for name in ("is_a", "name_of", "text_of", "describe", "stack_of", "format_traceback"):
        assert getattr(exceptions, name).__code__ == getattr(core, name).__code__
