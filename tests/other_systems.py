"""Helpers of tests that take something from the system that only Linux has."""

from __future__ import annotations

import importlib.util
from types import ModuleType
from typing import Any


def loaded_again(module: ModuleType) -> Any:
    """A second copy of a module, which looks at the system once more when it is imported."""
    spec = importlib.util.spec_from_file_location(f"{module.__name__}_again", str(module.__file__))
    assert spec is not None
    assert spec.loader is not None
    copy = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(copy)
    return copy
