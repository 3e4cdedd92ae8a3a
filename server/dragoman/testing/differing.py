"""Two recordings, compared: what differs, where, and what of that is allowed."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from types import EllipsisType
from typing import Any, Final

from dragoman.testing.recording import Recording

Matcher = Callable[[Any, Any], object] | re.Pattern[str] | EllipsisType
"""Says whether what is there now will do: a function of what was recorded and what is there now, a pattern that all of
the text matches, or `...` for anything."""

GONE: Final = object()


@dataclass(frozen=True, slots=True)
class Difference:
    """One place: `2.artifacts.output.parts.1.text` is in the second turn."""

    path: str
    recorded: Any
    now: Any

    def __str__(self) -> str:
        if self.now is GONE:
            return f"{self.path}\n    is not there any more; recorded: {_shown(self.recorded)}"
        if self.recorded is GONE:
            return f"{self.path}\n    is new: {_shown(self.now)}"
        if _is_text(self.recorded) and _is_text(self.now) and (_long(self.recorded) or _long(self.now)):
            found = difflib.unified_diff(_lines(self.recorded), _lines(self.now), "recorded", "now", lineterm="", n=1)
            return self.path + "".join(f"\n    {line}" for line in found)
        return f"{self.path}\n    recorded  {_shown(self.recorded)}\n    now       {_shown(self.now)}"


class Different(AssertionError):
    """The agent answers otherwise than it was recorded. `differences` are the places."""

    def __init__(self, name: str, differences: list[Difference], failure: str = "") -> None:
        places = "1 place" if len(differences) == 1 else f"{len(differences)} places"
        told = "".join(f"\n  {line}" for one in differences for line in str(one).split("\n"))
        why = f"\n  the agent failed: {failure}" if failure else ""
        super().__init__(f"{name}: the agent answers otherwise in {places}:{told}{why}")
        self.differences = differences


def differences(recorded: Recording, now: Recording, match: Mapping[str, Matcher] | None = None) -> list[Difference]:
    """Where `now` differs, but for places that a matcher allows: by their paths, in which `*` stands for anything."""
    return [
        one
        for turn in range(max(len(recorded.turns), len(now.turns)))
        for one in _compare(str(turn + 1), _answers(recorded, turn), _answers(now, turn), match or {})
    ]


def _answers(recording: Recording, turn: int) -> Any:
    """What the agent said in a turn: not what its caller sent."""
    if turn >= len(recording.turns):
        return GONE
    return {name: value for name, value in recording.turns[turn].items() if name not in ("send", "meanwhile")}


def _compare(path: str, recorded: Any, now: Any, match: Mapping[str, Matcher]) -> Iterator[Difference]:
    allowed = [matcher for pattern, matcher in match.items() if fnmatchcase(path, pattern)]
    if any(_allows(matcher, recorded, now) for matcher in allowed):
        return
    if isinstance(recorded, dict) and isinstance(now, dict):
        for name in [*recorded, *(name for name in now if name not in recorded)]:
            yield from _compare(f"{path}.{name}", recorded.get(name, GONE), now.get(name, GONE), match)
    elif isinstance(recorded, list) and isinstance(now, list) and not (_is_text(recorded) and _is_text(now)):
        for number in range(max(len(recorded), len(now))):
            one, other = (side[number] if number < len(side) else GONE for side in (recorded, now))
            yield from _compare(f"{path}.{number + 1}", one, other, match)
    elif recorded != now or allowed:
        yield Difference(path, recorded, now)


def _allows(matcher: Matcher, recorded: Any, now: Any) -> bool:
    if isinstance(matcher, EllipsisType):
        return True
    if isinstance(matcher, re.Pattern):
        return _is_text(now) and matcher.fullmatch("\n".join(_lines(now))) is not None
    return now is not GONE and recorded is not GONE and bool(matcher(recorded, now))


def _is_text(value: Any) -> bool:
    return isinstance(value, str) or (
        isinstance(value, list) and bool(value) and all(isinstance(one, str) for one in value)
    )


def _lines(value: Any) -> list[str]:
    return value.split("\n") if isinstance(value, str) else list(value)


def _long(value: Any) -> bool:
    return isinstance(value, list)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 400 else f"{text[:400]}…"
