"""The `A2A-Version` and `A2A-Extensions` headers (A2A 1.0 §3.6).

The dialect of a call follows from its service, path or shape. The specification's own examples send 1.0 calls under
`A2A-Version: 0.3`, and most clients send no version. So the version only serves to reject unknown versions, to choose
1.0 on Google's resource paths, and to choose among dialects whose calls look alike.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from multidict import MultiMapping

from dragoman.bindings.cards import Cards
from dragoman.core.cards.agent_spec import RESUME_EXTENSION, SERVER_EXTENSIONS, with_cursor
from dragoman.core.errors import VersionNotSupported
from dragoman.core.task.log import Event
from dragoman.wire.dialects import Dialect

VERSION_HEADER: Final = "A2A-Version"
SUPPORTED_VERSIONS: Final = ("1.0", "0.3", "0.2", "0.1")

# `Major.Minor`, and an ignored patch. Later minors of 1 are compatible by semantic versioning.
_VERSION_PATTERN: Final = re.compile(r"1(\.[0-9]{1,9}){0,2}|0\.[123](\.[0-9]{1,9})?")


def check_version(values: Iterable[str]) -> str:
    """Validates header values, each possibly a list, and returns the version named, as written; empty for none.

    There are several values when a client library adds its own to its caller's; 1.x wins over the others. Raises
    VersionNotSupported for the first unknown version.
    """
    named = ""
    for value in values:
        for version in map(str.strip, value.split(",")):
            if not version:
                continue
            if not _VERSION_PATTERN.fullmatch(version):
                raise VersionNotSupported(
                    f'{VERSION_HEADER}: "{version[:40]}" is not supported; use one of {", ".join(SUPPORTED_VERSIONS)}',
                    metadata={"supported": ", ".join(SUPPORTED_VERSIONS)},
                )
            if not named or not named.startswith("1"):
                named = version
    return named


def minor_version(version: str) -> str:
    """`Major.Minor` of a version that `check_version` returned."""
    return ".".join(version.split(".")[:2])


EXTENSIONS_HEADER: Final = "A2A-Extensions"
V03_EXTENSIONS_HEADER: Final = "X-A2A-Extensions"
_V03_HEADER_DIALECTS: Final = (Dialect.V03, Dialect.GOOGLE, Dialect.V01)


def event_adapter(uris: Sequence[str]) -> Callable[[Event], Event]:
    """Returns the function that adapts an event to the extensions a caller requested."""
    return with_cursor if RESUME_EXTENSION.uri in uris else unchanged


def unchanged(event: Event) -> Event:
    """The adapter for callers that requested no extension that changes events."""
    return event


def requested_extensions(headers: MultiMapping[str]) -> tuple[str, ...]:
    """The distinct URIs of the extensions that a caller requests; a value may be a comma-separated list."""
    if EXTENSIONS_HEADER not in headers and V03_EXTENSIONS_HEADER not in headers:
        return ()
    values = [*headers.getall(EXTENSIONS_HEADER, ()), *headers.getall(V03_EXTENSIONS_HEADER, ())]
    return tuple(dict.fromkeys(uri for value in values for uri in map(str.strip, value.split(",")) if uri))


def activated_extensions(uris: Sequence[str], cards: Cards, agent: str) -> str:
    """The requested extensions that the agent supports, as a header value; empty for none."""
    spec = cards.agents.get(agent)
    if not uris or spec is None:
        return ""
    declared = {extension.uri for extension in (*spec.extensions, *SERVER_EXTENSIONS)}
    return ", ".join(uri for uri in uris if uri in declared)


def activation_headers(uris: Sequence[str], cards: Cards, agent: str, dialect: Dialect) -> Mapping[str, str]:
    """The response header that names the activated extensions; empty for none."""
    activated = activated_extensions(uris, cards, agent)
    if not activated:
        return {}
    return {V03_EXTENSIONS_HEADER if dialect in _V03_HEADER_DIALECTS else EXTENSIONS_HEADER: activated}
