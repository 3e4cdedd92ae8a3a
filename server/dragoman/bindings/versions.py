"""`A2A-Version`: what a caller may name (A2A 1.0 §3.6).

A call is served by its shape: the service or the path says which generation it is. The specification's own
examples send 1.0 calls under `A2A-Version: 0.3`, and most clients send none, so a version is only looked at to
refuse one that we do not know, and, on Google's resource paths, to choose 1.0.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from dragoman.core.errors import VersionNotSupported

HEADER: Final = "A2A-Version"
SUPPORTED: Final = ("1.0", "0.3")

# `Major.Minor`, and a patch that means nothing. Later minors of 1 are compatible by the promise of the number.
_KNOWN: Final = re.compile(r"1(\.[0-9]{1,9}){0,2}|0\.3(\.[0-9]{1,9})?")


def check(values: Iterable[str]) -> bool:
    """Looks at every value given, each possibly a list, and says whether one of them is 1.x.

    Several are there when a client library adds its own to its caller's. Raises VersionNotSupported for the
    first that is named and unknown.
    """
    named = False
    for value in values:
        for version in map(str.strip, value.split(",")):
            if not version:
                continue
            if not _KNOWN.fullmatch(version):
                raise VersionNotSupported(
                    f'{HEADER}: "{version[:40]}" is not supported; use one of {", ".join(SUPPORTED)}',
                    metadata={"supported": ", ".join(SUPPORTED)},
                )
            named = named or version.startswith("1")
    return named
