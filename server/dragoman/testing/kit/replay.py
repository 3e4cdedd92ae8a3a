"""Replay: sends the messages of a recorded task to new code, and compares the results."""

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

from dragoman.testing.kit.agent_under_test import AgentUnderTest, TaskRun, Testable
from dragoman.testing.kit.recording import Recording, make_cleaner, record, send_arguments
from dragoman.testing.kit.story import Story


def replay(
    case: Path | str | Recording,
    agent: Testable,
    *others: Testable,
    match: Mapping[str, Matcher] | None = None,
    **options: Any,
) -> Story:
    """Sends a recorded task's messages to `agent`, and returns the new task.

    match: permitted differences by path, as in messages: `{"2.artifacts.*.text": re.compile(r"\\d+ rows")}`.
    options: those of AgentUnderTest. With several agents, the agent with the recorded id receives the messages. Raises
    Different, an AssertionError that lists the differences, and ValueError for a file without a recording of them.
    """
    return asyncio.run(replayed(case, agent, *others, match=match, **options))


async def replayed(
    case: Path | str | Recording,
    agent: Testable,
    *others: Testable,
    match: Mapping[str, Matcher] | None = None,
    **options: Any,
) -> Story:
    """`replay` for async tests."""
    recording = case if isinstance(case, Recording) else Recording.read(case)
    name = "the recording" if isinstance(case, Recording) else str(case)
    async with AgentUnderTest(agent, *others, **options) as kit:
        run = await _send_messages(recording, kit)
    if found := differences(recording, record(run), match):
        raise Different(name, found, run.failure)
    return run


async def _send_messages(recording: Recording, kit: AgentUnderTest) -> TaskRun:
    first, *turns = recording.turns
    agent = recording.agent if len(kit.agents) > 1 else kit.agents[0].spec.id
    if agent not in (ids := [known.spec.id for known in kit.agents]):
        raise ValueError(
            f'the recording is of agent "{agent}", which is not under test; the agents are: {", ".join(ids)}'
        )
    run = await kit.send(agent=agent, wait=False, **send_arguments(first["send"]))
    await _play_turn(run, first)
    for turn in turns:
        if run.ended:
            break  # the comparison reports it
        await run.send(wait=False, **send_arguments(turn["send"]))
        await _play_turn(run, turn)
    return run


async def _play_turn(run: TaskRun, turn: dict[str, Any]) -> None:
    """Runs one turn to its end. Messages received during the turn are sent at the same position of the output."""
    for late in turn.get("meanwhile", ()):
        await run.wait_or_text(late["after"], make_cleaner(()))
        if run.ended:
            return
        await run.send(wait=False, **send_arguments(late))
    if turn.get("state") != "WORKING":
        await run.wait()


Matcher = Callable[[Any, Any], object] | re.Pattern[str] | EllipsisType
"""Decides whether a difference is permitted: a function of the recorded and the current value, a pattern that matches
the complete text, or `...` for any value."""

MISSING: Final = object()


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference. The path `2.artifacts.output.parts.1.text` is in the second turn."""

    path: str
    recorded: Any
    now: Any

    def __str__(self) -> str:
        if self.now is MISSING:
            return f"{self.path}\n    is missing; recorded: {_format_value(self.recorded)}"
        if self.recorded is MISSING:
            return f"{self.path}\n    is new: {_format_value(self.now)}"
        if _is_text(self.recorded) and _is_text(self.now) and list in (type(self.recorded), type(self.now)):
            diff = difflib.unified_diff(_lines(self.recorded), _lines(self.now), "recorded", "now", lineterm="", n=1)
            return self.path + "".join(f"\n    {line}" for line in diff)
        return f"{self.path}\n    recorded  {_format_value(self.recorded)}\n    now       {_format_value(self.now)}"


class Different(AssertionError):
    """The agent's results differ from the recording. `differences` lists them."""

    def __init__(self, name: str, differences: list[Difference], failure: str = "") -> None:
        places = "1 place" if len(differences) == 1 else f"{len(differences)} places"
        listing = "".join(f"\n  {line}" for difference in differences for line in str(difference).split("\n"))
        cause = f"\n  the agent failed: {failure}" if failure else ""
        super().__init__(f"{name}: the agent differs from the recording in {places}:{listing}{cause}")
        self.differences = differences


def differences(recorded: Recording, now: Recording, match: Mapping[str, Matcher] | None = None) -> list[Difference]:
    """Returns the differences that no matcher permits. `match` has path patterns as keys; `*` matches any text."""
    return [
        difference
        for turn in range(max(len(recorded.turns), len(now.turns)))
        for difference in _compare(str(turn + 1), _answers(recorded, turn), _answers(now, turn), match or {})
    ]


def _answers(recording: Recording, turn: int) -> Any:
    """The agent's side of a turn, without the caller's messages."""
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
            old, new = (side[number] if number < len(side) else MISSING for side in (recorded, now))
            yield from _compare(f"{path}.{number + 1}", old, new, match)
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
        isinstance(value, list) and bool(value) and all(isinstance(line, str) for line in value)
    )


def _lines(value: Any) -> list[str]:
    return value.split("\n") if isinstance(value, str) else list(value)


def _format_value(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 400 else f"{text[:400]}…"
