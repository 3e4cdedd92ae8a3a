"""Exceptions and values that agents raise and return, and that harm who looks at them. Standard library only."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any, Final

HUGE_CHARS: Final = 20_000_000


class NoText(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


class WrongText(Exception):
    def __str__(self) -> Any:
        return self.args


class ExitingText(Exception):
    def __str__(self) -> str:
        raise SystemExit(7)


class EvilString(str):
    __slots__ = ()

    def encode(self, *_: Any, **__: Any) -> bytes:
        raise RuntimeError("no bytes")

    def __len__(self) -> int:
        raise RuntimeError("no length")

    def __getitem__(self, key: Any) -> str:
        raise RuntimeError("no items")


class EvilText(Exception):
    def __str__(self) -> str:
        return EvilString("text")


class NoAttributes(Exception):
    def __getattribute__(self, name: str) -> Any:
        raise KeyboardInterrupt(name)


class AnyAttribute(Exception):
    def __getattr__(self, name: str) -> Any:
        return self


class LyingClass(Exception):
    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return MemoryError


class NoClass(Exception):
    @property  # type: ignore[misc]
    def __class__(self) -> type:
        raise RuntimeError("no class")


class OwnCauses(Exception):
    @property
    def __cause__(self) -> BaseException:  # type: ignore[override]
        return OwnCauses()

    @property
    def __context__(self) -> BaseException:  # type: ignore[override]
        raise RuntimeError("no context")

    @property
    def __traceback__(self) -> Any:  # type: ignore[override]
        raise RuntimeError("no traceback")

    @property
    def __notes__(self) -> Any:  # type: ignore[override]
        raise SystemExit(8)


class OwnMembers(ExceptionGroup[Exception]):
    @property
    def exceptions(self) -> Any:
        return (self, self)


class NoName(type):
    @property
    def __name__(cls) -> str:  # type: ignore[override]
        raise RuntimeError("no name")

    @property
    def __module__(cls) -> str:  # type: ignore[override]
        raise RuntimeError("no module")


class Nameless(Exception, metaclass=NoName):
    pass


class NoComparison(Exception):
    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no comparison")

    def __bool__(self) -> bool:
        raise RuntimeError("no truth")

    def __len__(self) -> int:
        return 0


class OwnEnd(BaseException):
    pass


class OwnIteration(StopIteration):
    pass


def ring() -> BaseException:
    error = KeyError("ring")
    error.__cause__ = error
    return error


def ring_of_two() -> BaseException:
    one, other = ValueError("one"), ValueError("other")
    one.__cause__, other.__context__ = other, one
    return one


def long_chain() -> BaseException:
    error = last = ValueError("0")
    for number in range(20_000):
        last.__context__ = deeper = ValueError(str(number))
        last = deeper
    return error


def group_in_group() -> BaseException:
    error: Exception = ValueError("inner")
    for _ in range(3_000):
        error = ExceptionGroup("outer", [error])
    return error


def ring_in_group() -> BaseException:
    inner = ValueError("inner")
    inner.__context__ = group = ExceptionGroup("outer", [inner, *(ValueError(str(number)) for number in range(5_000))])
    return group


def own_notes() -> BaseException:
    error = ValueError("noted")
    error.__notes__ = ["x" * HUGE_CHARS, NoText(), 3]  # type: ignore[list-item]
    return error


EXCEPTIONS: Final[dict[str, Callable[[], BaseException]]] = {
    **{build.__name__: build for build in (ring, ring_of_two, long_chain, group_in_group, ring_in_group, own_notes)},
    **{
        kind.__name__: kind
        for kind in (
            *(WrongText, NoText, ExitingText, EvilText, NoAttributes, AnyAttribute, LyingClass, NoClass, OwnCauses),
            *(NoComparison, OwnEnd, OwnIteration, GeneratorExit, StopIteration, StopAsyncIteration),
            *(KeyboardInterrupt, MemoryError, RecursionError),
        )
    },
    "SystemExit": lambda: SystemExit(3),
    "CancelledError": asyncio.CancelledError,
    "Nameless": lambda: Nameless("x"),
    "OwnMembers": lambda: OwnMembers("group", [ValueError("x")]),
    "huge": lambda: ValueError("x" * HUGE_CHARS),
    "huge_key": lambda: KeyError("\N{BULLET}" * (HUGE_CHARS // 10)),
    "surrogate": lambda: ValueError("\ud800"),
}
"""By name: an exception, made anew."""


# Values -----------------------------------------------------------------------------------------------------------


class NoItems(dict[str, Any]):
    def items(self) -> Any:
        raise ValueError("no items")

    def __iter__(self) -> Iterator[str]:
        raise SystemExit(9)


class NoLength(list[Any]):
    def __len__(self) -> int:
        raise KeyboardInterrupt

    def __iter__(self) -> Iterator[Any]:
        raise StopIteration


class NoKind:
    @property  # type: ignore[misc]
    def __class__(self) -> type:
        raise GeneratorExit

    def __repr__(self) -> str:
        raise StopIteration

    def __await__(self) -> Any:
        raise StopIteration(1)


def in_itself() -> object:
    value: dict[str, object] = {}
    value["left"] = value["right"] = [value]
    return value


def deep() -> object:
    value: list[object] = []
    for _ in range(50_000):
        value = [value]
    return value


VALUES: Final[dict[str, Callable[[], object]]] = {
    "NoItems": lambda: NoItems(a=1),
    "NoLength": lambda: NoLength([1]),
    "NoKind": NoKind,
    "in_itself": in_itself,
    "deep": deep,
    "EvilString": lambda: [EvilString("a\udc00")],
    "class": lambda: Nameless,
    "integer": lambda: 10**5000,
    "exception": ring,
}
"""By name: a value, made anew, which no agent can answer with."""
