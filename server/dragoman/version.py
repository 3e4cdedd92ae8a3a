"""The version of the installed distribution; `0+source` without one. Reading it takes milliseconds."""

from __future__ import annotations

from importlib import metadata

try:
    __version__ = metadata.version("dragoman")
except metadata.PackageNotFoundError:
    __version__ = "0+source"
