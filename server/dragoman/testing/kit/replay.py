"""A recorded task, held against new code: its caller's messages are sent again, and the answers compared."""

from __future__ import annotations

import asyncio
import difflib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from types import EllipsisType
from typing import Any, Final

from dragoman.testing.kit.agent_under_test import AgentUnderTest, Testable
from dragoman.testing.kit.recording import Recording, make_cleaner, record, send_arguments
from dragoman.testing.kit.story import Story
from dragoman.testing.kit.task_run import TaskRun


def replay(
    case: Path | str | Recording,
    agent: Testable,
    *others: Testable,
    match: Mapping[str, Matcher] | None = None,
    **options: Any,
) -> Story:
    """Sends a recorded task's messages to `agent`, and gives what came of it.

    match: what may differ, by place, as the differences name them: `{"2.artifacts.*.text": re.compile(r"\\d+ rows")}`.
    options: as of AgentUnderTest. Of several agents the one of the recorded id is meant. Raises Different, an
    AssertionError that lists what differs, and ValueError for a file that is no recording of one of them.
    """
    return asyncio.run(replayed(case, agent, *others, match=match, **options))


async def replayed(
    case: Path | str | Recording,
    agent: Testable,
    *others: Testable,
    match: Mapping[str, Matcher] | None = None,
    **options: Any,
) -> Story:
    """The same for async tests."""
    known = case if isinstance(case, Recording) else Recording.read(case)
    name = "the recording" if isinstance(case, Recording) else str(case)
    async with AgentUnderTest(agent, *others, **options) as kit:
        run = await _send_again(known, kit)
    if found := differences(known, record(run), match):
        raise Different(name, found, run.failure)
    return run


async def _send_again(recording: Recording, kit: AgentUnderTest) -> TaskRun:
    first, *turns = recording.turns
    agent = recording.agent if len(kit.agents) > 1 else kit.agents[0].spec.id
    if agent not in (ids := [one.spec.id for one in kit.agents]):
        raise ValueError(f'the recording is of agent "{agent}"; there are: {", ".join(ids)}')
    run = await kit.send(agent=agent, wait=False, **send_arguments(first["send"]))
    await _play_turn(run, first)
    for turn in turns:
        if run.ended:
            break  # the comparison says so
        await run.send(wait=False, **send_arguments(turn["send"]))
        await _play_turn(run, turn)
    return run


async def _play_turn(run: TaskRun, turn: dict[str, Any]) -> None:
    """One turn to its end, with the messages that came in the midst of it, each when the agent is as far as it was."""
    for late in turn.get("meanwhile", ()):
        await run.wait_or_text(late["after"], make_cleaner(()))
        if run.ended:
            return
        await run.send(wait=False, **send_arguments(late))
    if turn.get("state") != "WORKING":
        await run.wait()


Matcher = Callable[[Any, Any], object] | re.Pattern[str] | EllipsisType
"""Says whether what is there now will do: a function of what was recorded and what is there now, a pattern that all of
the text matches, or `...` for anything."""

MISSING: Final = object()


@dataclass(frozen=True, slots=True)
class Difference:
    """One place: `2.artifacts.output.parts.1.text` is in the second turn."""

    path: str
    recorded: Any
    now: Any

    def __str__(self) -> str:
        if self.now is MISSING:
            return f"{self.path}\n    is not there any more; recorded: {_format_value(self.recorded)}"
        if self.recorded is MISSING:
            return f"{self.path}\n    is new: {_format_value(self.now)}"
        if _is_text(self.recorded) and _is_text(self.now) and (_long(self.recorded) or _long(self.now)):
            found = difflib.unified_diff(_lines(self.recorded), _lines(self.now), "recorded", "now", lineterm="", n=1)
            return self.path + "".join(f"\n    {line}" for line in found)
        return f"{self.path}\n    recorded  {_format_value(self.recorded)}\n    now       {_format_value(self.now)}"


class Different(AssertionError):
    """The agent answers otherwise than it was recorded. `differences` are the places."""

    def __init__(self, name: str, differences: list[Difference], failure: str = "") -> None:
        places = "1 place" if len(differences) == 1 else f"{len(differences)} places"
        text = "".join(f"\n  {line}" for one in differences for line in str(one).split("\n"))
        why = f"\n  the agent failed: {failure}" if failure else ""
        super().__init__(f"{name}: the agent answers otherwise in {places}:{text}{why}")
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
        return MISSING
    return {name: value for name, value in recording.turns[turn].items() if name not in ("send", "meanwhile")}


def _compare(path: str, recorded: Any, now: Any, match: Mapping[str, Matcher]) -> Iterator[Difference]:
    allowed = [matcher for pattern, matcher in match.items() if fnmatchcase(path, pattern)]
    if any(_allows(matcher, recorded, now) for matcher in allowed):
        return
    if isinstance(recorded, dict) and isinstance(now, dict):
        for name in [*recorded, *(name for name in now if name not in recorded)]:
            yield from _compare(f"{path}.{name}", recorded.get(name, MISSING), now.get(name, MISSING), match)
    elif isinstance(recorded, list) and isinstance(now, list) and not (_is_text(recorded) and _is_text(now)):
        for number in range(max(len(recorded), len(now))):
            one, other = (side[number] if number < len(side) else MISSING for side in (recorded, now))
            yield from _compare(f"{path}.{number + 1}", one, other, match)
    elif recorded != now or allowed:
        yield Difference(path, recorded, now)


def _allows(matcher: Matcher, recorded: Any, now: Any) -> bool:
    if isinstance(matcher, EllipsisType):
        return True
    if isinstance(matcher, re.Pattern):
        return _is_text(now) and matcher.fullmatch("\n".join(_lines(now))) is not None
    return now is not MISSING and recorded is not MISSING and bool(matcher(recorded, now))


def _is_text(value: Any) -> bool:
    return isinstance(value, str) or (
        isinstance(value, list) and bool(value) and all(isinstance(one, str) for one in value)
    )


def _lines(value: Any) -> list[str]:
    return value.split("\n") if isinstance(value, str) else list(value)


def _long(value: Any) -> bool:
    return isinstance(value, list)


def _format_value(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 400 else f"{text[:400]}…"
