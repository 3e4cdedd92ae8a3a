"""Agents of a simulation: like those of the chaos run, on simulated time.

The first words of a message are the command; the text after `#` makes it unique. Each action is noted.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

from tests.chaos.actions import BEGIN, END, RETURNED, STEP, Action
from tests.chaos_checker.turn_checker import RECEIVED
from tests.simulation.loop import HostLoop

from dragoman import Turn, agent, retry
from dragoman.agents.functions.runner import DeclaredAgent
from dragoman.agents.functions.turn import Incoming
from dragoman.core.cards.agent_spec import AgentSpec
from dragoman.ports import Agent

RETRIES: Final = 3
TICK: Final = 0.25
"""Seconds between two actions of a sleeping agent."""
CALLED_AGAIN: Final = ("steps", "count", "listen")
"""Commands whose turns are called again after pauses, questions and messages."""


@agent(id="once", default=True, description="A crash ends the task")
async def once(turn: Turn) -> None:
    """Its specification is used, with another function."""


@agent(id="again", description="A crash restarts the turn", on_crash=retry(RETRIES))
async def again(turn: Turn) -> None:
    """Its specification is used, with another function."""


@agent(id="direct", direct=True, description="Answers with a Message, if it does so in time")
async def direct(turn: Turn) -> None:
    """Its specification is used, with another function."""


@agent(id="rated", description="Of which few turns may begin in a minute")
async def rated(turn: Turn) -> None:
    """Its specification is used, with another function."""


@agent(id="far", description="Run by workers; a crash ends the task")
async def far(turn: Turn) -> None:
    """Its specification is used, with another function."""


@agent(id="far-again", description="Run by workers; a crash restarts the turn", on_crash=retry(RETRIES))
async def far_again(turn: Turn) -> None:
    """Its specification is used, with another function."""


SPECS: Final = (once.spec, again.spec, direct.spec)
OPERATED_SPECS: Final = (*SPECS, rated.spec)
WORKER_SPECS: Final = (far.spec, far_again.spec)


class Journal:
    """What the agents of all servers did, by their own account."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self.actions: list[Action] = []
        self.observers: dict[Callable[[str], None], None] = {}
        """Called with the process of each action."""
        self.begun: Counter[str] = Counter()
        """Calls of agents that are called once per message, by task."""

    def act(self, turn: Turn, process: str, text: str) -> None:
        """Notes an action."""
        self.actions.append(Action(round(self._now(), 6), turn.task_id, turn.attempt, text, process))
        for observer in self.observers:
            observer(process)


def agents_of(
    host: HostLoop, journal: Journal, new_id: Callable[[], str], specs: Sequence[AgentSpec] = SPECS
) -> Sequence[Agent]:
    """The agents of one server, or of one worker."""
    obey = partial(_work, journal, host.name)

    async def work(turn: Turn) -> str | None:
        return await obey(turn)

    return [DeclaredAgent(work, spec, new_id=new_id) for spec in specs]


async def _work(journal: Journal, process: str, turn: Turn) -> str | None:
    command = _command(turn)
    act = partial(journal.act, turn, process)
    if not command.startswith(CALLED_AGAIN):
        journal.begun[turn.task_id] += 1
    act(BEGIN)
    try:
        return await _obey(turn, command, act)
    finally:
        act(END)


def _command(turn: Turn) -> str:
    """The text of the task's first message."""
    first = turn.history[0] if turn.history else turn.message
    return "".join(part.text for part in first.parts)


async def _obey(turn: Turn, command: str, act: Callable[[str], None]) -> str | None:
    match command.partition("#")[0].split():
        case ["steps", count, *rest]:
            return await _steps(turn, int(count), act, naps="nap" in rest)
        case ["count", count]:
            return await _count(turn, int(count), act)
        case ["listen", count]:
            return await _listen(turn, int(count), act)
    if turn.question is not None:
        return f"you said: {turn.text}"
    match turn.text.partition("#")[0].split():
        case ["stream", count, pause]:
            for number in range(int(count)):
                act(f"chunk {number}")
                await turn.chunk(f"{number} ")
                await asyncio.sleep(int(pause) / 1000)
            return None
        case ["bulk", count, size, pause]:
            for number in range(int(count)):
                act(f"chunk {number}")
                await turn.chunk(f"{number} ".ljust(int(size)))
                await asyncio.sleep(int(pause) / 1000)
            return None
        case ["append", count, pause]:
            for number in range(int(count)):
                act(f"addition {number}")
                await turn.artifact(f"{number} ", id="output", append=True)
                await asyncio.sleep(int(pause) / 1000)
            return None
        case ["sleep", pause]:
            turn.status("sleeping")
            await _sleep(int(pause) / 1000, act)
        case ["stubborn", pause]:
            await _ignore_cancels(int(pause) / 1000, act)
        case ["reply", pause]:
            await asyncio.sleep(int(pause) / 1000)
            turn.reply(f"a reply to {turn.text}")
        case ["ask"]:
            turn.ask("and then?")
        case ["fail"]:
            raise RuntimeError("failing, as asked")
    return turn.text


async def _sleep(seconds: float, act: Callable[[str], None]) -> None:
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    while (left := until - loop.time()) > 0:
        act("tick")
        await asyncio.sleep(min(left, TICK))


async def _ignore_cancels(seconds: float, act: Callable[[str], None]) -> None:
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    while loop.time() < until:
        with suppress(asyncio.CancelledError):
            await _sleep(until - loop.time(), act)


async def _steps(turn: Turn, count: int, act: Callable[[str], None], *, naps: bool) -> str:
    """Steps, with a pause after the second."""
    found = []
    for number in range(count):
        found.append(await turn.step("square", _square, number, act))
        act(f"{RETURNED} {number}")
        if number == 1:
            await turn.sleep(1.5 if naps else 0.2)
    if found != [number * number for number in range(count)]:
        raise AssertionError(f"the steps have returned {found}")
    return _command(turn)


async def _square(number: int, act: Callable[[str], None]) -> int:
    act(f"{STEP} {number}")
    await asyncio.sleep(number * 0.05)
    return number * number


async def _count(turn: Turn, count: int, act: Callable[[str], None]) -> str:
    """Counts its turns in the state of the task, and asks until there were enough."""
    turn.state["turns"] = turns = turn.state.get("turns", 0) + 1
    act(f"turn {turns}")
    if turns <= count:
        turn.ask(f"answer {turns}?")
    return f"{turns} turns"


async def _listen(turn: Turn, count: int, act: Callable[[str], None]) -> str:
    """Takes so many messages in its first turn, for three seconds at most."""
    act(f"{RECEIVED} {turn.message.message_id}")
    count_received = 0
    with suppress(TimeoutError):
        async with asyncio.timeout(3.0):
            async for message in turn.messages() if len(turn.history) == 0 else _nothing():
                act(f"{RECEIVED} {message.message.message_id}")
                count_received += 1
                if count_received == count:
                    break
    return f"received {count_received}"


async def _nothing() -> AsyncIterator[Incoming]:
    """No messages."""
    for message in tuple[Incoming, ...]():
        yield message
