"""What the runtime and the bindings need to be traced."""

from __future__ import annotations

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
        """A span that begins now. `parent` and `link` are trace contexts; without a parent it begins a trace.
        Attributes have `_` where their names have a dot."""
        ...

    def enter(self, span: Span) -> None:
        """What the present asyncio task does from now on belongs to the span, also for libraries that know of traces by
        themselves."""
        ...
