"""`A2A-Version`: what a caller may name (A2A 1.0 §3.6).

A call is served by its shape: the service or the path says which generation it is. The specification's own
examples send 1.0 calls under `A2A-Version: 0.3`, and most clients send none, so a version is only looked at to
refuse one that we do not know, to choose 1.0 on Google's resource paths, and to choose among dialects whose calls
look alike.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from dragoman.core.errors import VersionNotSupported

HEADER: Final = "A2A-Version"
SUPPORTED: Final = ("1.0", "0.3", "0.2", "0.1")

# `Major.Minor`, and a patch that means nothing. Later minors of 1 are compatible by the promise of the number.
_KNOWN: Final = re.compile(r"1(\.[0-9]{1,9}){0,2}|0\.[123](\.[0-9]{1,9})?")


def check(values: Iterable[str]) -> str:
    """Looks at every value given, each possibly a list, and gives the version named, as it was written.

    Several are there when a client library adds its own to its caller's; 1.x goes before the others. Empty when
    none is named. Raises VersionNotSupported for the first that is named and unknown.
    """
    named = ""
    for value in values:
        for version in map(str.strip, value.split(",")):
            if not version:
                continue
            if not _KNOWN.fullmatch(version):
                raise VersionNotSupported(
                    f'{HEADER}: "{version[:40]}" is not supported; use one of {", ".join(SUPPORTED)}',
                    metadata={"supported": ", ".join(SUPPORTED)},
                )
            if not named or not named.startswith("1"):
                named = version
    return named


def minor(version: str) -> str:
    """`Major.Minor` of a version that `check` gave: patches mean nothing."""
    return ".".join(version.split(".")[:2])
