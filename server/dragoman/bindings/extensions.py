"""`A2A-Extensions`: what a caller activates, and what it is told of that (A2A 1.0 §3.2.6, §4.6).

In 0.3 the header has `X-` before it.

What is activated is what the caller names and the agent declares. A name that the agent does not know is ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from dragoman.bindings.cards import Cards
from dragoman.core.cards.agent_spec import RESUME_EXTENSION, SERVER_EXTENSIONS, with_cursor
from dragoman.core.task.log import Event
from dragoman.wire.dialects import Dialect

HEADER: Final = "A2A-Extensions"
OLD_HEADER: Final = "X-A2A-Extensions"


def shown(uris: Sequence[str]) -> Callable[[Event], Event]:
    """What makes an event what a caller who named these extensions is shown."""
    return with_cursor if RESUME_EXTENSION.uri in uris else as_it_is


def as_it_is(event: Event) -> Event:
    """What is shown to a caller who named none of them."""
    return event


def asked(headers: Any) -> tuple[str, ...]:
    """The URIs that a caller names, in a multidict of HTTP headers."""
    values = [*headers.getall(HEADER, ()), *headers.getall(OLD_HEADER, ())]
    return split(values)


def split(values: Sequence[str]) -> tuple[str, ...]:
    """The URIs in values that may each be a list."""
    return tuple(dict.fromkeys(uri for value in values for uri in map(str.strip, value.split(",")) if uri))


def activated(uris: Sequence[str], known: Cards, agent: str) -> str:
    """The header's value for what is activated; empty for nothing."""
    spec = known.agents.get(agent)
    if not uris or spec is None:
        return ""
    declared = {extension.uri for extension in (*spec.extensions, *SERVER_EXTENSIONS)}
    return ", ".join(uri for uri in uris if uri in declared)


def told(uris: Sequence[str], known: Cards, agent: str, dialect: Dialect) -> Mapping[str, str]:
    """The header that names what is activated; none when nothing is."""
    value = activated(uris, known, agent)
    if not value:
        return {}
    return {HEADER if dialect in (Dialect.V1, Dialect.RUST) else OLD_HEADER: value}
