"""A recorded task, held against new code: its caller's messages are sent again, and the answers compared."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dragoman.testing.differing import Different, Matcher, differences
from dragoman.testing.in_memory import AgentUnderTest, Testable
from dragoman.testing.plain_parts import cleaner
from dragoman.testing.recording import Recording, message_of, record
from dragoman.testing.story import Story
from dragoman.testing.task_run import TaskRun


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
        run = await _sent_again(known, kit)
    if found := differences(known, record(run), match):
        raise Different(name, found, run.failure)
    return run


async def _sent_again(known: Recording, kit: AgentUnderTest) -> TaskRun:
    first, *turns = known.turns
    agent = known.agent if len(kit.agents) > 1 else kit.agents[0].spec.id
    if agent not in (ids := [one.spec.id for one in kit.agents]):
        raise ValueError(f'the recording is of agent "{agent}"; there are: {", ".join(ids)}')
    run = await kit.send(agent=agent, wait=False, **message_of(first["send"]))
    await _through(run, first)
    for turn in turns:
        if run.ended:
            break  # the comparison says so
        await run.send(wait=False, **message_of(turn["send"]))
        await _through(run, turn)
    return run


async def _through(run: TaskRun, turn: dict[str, Any]) -> None:
    """One turn to its end, with the messages that came in the midst of it, each when the agent is as far as it was."""
    for late in turn.get("meanwhile", ()):
        await run.over_or(late["after"], cleaner(()))
        if run.ended:
            return
        await run.send(wait=False, **message_of(late))
    if turn.get("state") != "WORKING":
        await run.over()
