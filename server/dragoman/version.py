"""The version of the installed distribution; `0+source` without one. Reading it takes milliseconds."""

from __future__ import annotations

from contextlib import suppress
from importlib import metadata

__version__ = "0+source"
for _name in ("dragoman-client", "dragoman"):
    with suppress(metadata.PackageNotFoundError):
        __version__ = metadata.version(_name)
