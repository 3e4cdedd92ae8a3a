"""What the runtime and the bindings need to be traced."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Literal, Protocol

Kind = Literal["server", "client", "consumer", "internal"]


class Span(Protocol):
    """Something that takes a while, in a trace."""

    name: str

    @property
    def recorded(self) -> bool:
        """Whether anybody will see it. What one that is not is told is lost, so need not be made."""
        ...

    @property
    def context(self) -> str:
        """What is handed on, so that what follows from it belongs to it: a `traceparent`."""
        ...

    def end(self, error: str = "", **attributes: str | int) -> None:
        """It is over. `error`: why it failed, in a few words without content of the caller's; empty when it did not.
        May be called from any thread."""
        ...


class Tracer(Protocol):
    """Records spans, as far as their traces are recorded. Costs the recording only; sends are elsewhere."""

    def begin(self, name: str, kind: Kind, parent: str, *, link: str = "", **attributes: str | int) -> Span:
        """A span that begins now. `parent` and `link` are trace contexts; without a parent, or with one that cannot be
        read, it begins a trace. Attributes have `_` where their names have a dot."""
        ...

    def within(self, span: Span) -> AbstractContextManager[None]:
        """What runs inside belongs to the span, also for libraries that know of traces by themselves."""
        ...
