"""Which Dragoman this is."""

from __future__ import annotations

import importlib.metadata
from functools import cache


@cache
def version() -> str:
    """Of the distribution that is installed; `0+source` where the sources were put on the path without one."""
    try:
        return importlib.metadata.version("dragoman")
    except importlib.metadata.PackageNotFoundError:
        return "0+source"
