"""The playground: an agent for trying out clients; the first word of a message is a command.

`dragoman serve` without APP serves it. Messages without a command are echoed.
"""

from __future__ import annotations

import asyncio
from typing import Final

from dragoman import Skill, Turn, agent, types

MAX_CHUNKS: Final = 100_000
MAX_CHUNK_PAUSE_MS: Final = 60_000
MAX_SLEEP_SECONDS: Final = 3_600

HELP: Final = """\
The first word of a message is a command. Text without a command is echoed.

echo TEXT      returns TEXT as an artifact
stream N [MS]  N chunks of one artifact, MS milliseconds apart
sleep S        works for S seconds; cancel it
ask            asks a question; answer it in the same task
auth           asks for authentication; send anything to go on
fail           ends as FAILED
reject         ends as REJECTED
reply TEXT     answers with a Message, without a task
file           returns a small text file
data           returns a JSON object
help           lists the commands; so do ? and an empty message
"""

_SKILLS: Final = (
    (
        "echo", "Echo", "Returns TEXT as an artifact; messages without a command are echoed, too", "artifact",
        ("echo hello", "hello"),
    ),
    ("stream", "Stream", "stream N [MS]: N chunks of one artifact, MS milliseconds apart", "streaming",
        ("stream 5 200",)),
    ("sleep", "Sleep", "sleep S: works for S seconds, without a result; can be canceled", "cancel", ("sleep 10",)),
    (
        "ends", "Ways to end", "ask and auth wait for a follow-up; fail, reject and reply TEXT end the turn that way",
        "states", ("ask", "auth", "fail", "reject", "reply hello"),
    ),
    ("parts", "Kinds of parts", "file returns a small text file, data an object", "parts", ("file", "data")),
    ("help", "Help", "Lists the commands; so do ? and an empty message", "help", ("help",)),
)  # fmt: skip
"""Id, name, description, tag and examples of each skill."""

_COMMANDS: Final = ("echo", "stream", "sleep", "help")  # skills that are a command
PlaygroundResult = str | dict[str, object] | types.Artifact | list[types.Part] | None


@agent(
    id="playground",
    name="Playground",
    description="Runs the command in the first word of a message; for trying out clients",
    default=True,
    direct=True,
    input_modes=("text/plain", "application/json", "application/octet-stream", "text/csv"),
    output_modes=("text/plain", "application/json"),
    skills=[
        Skill(id=id, name=name, description=description, tags=(tag,), examples=examples)
        for id, name, description, tag, examples in _SKILLS
    ],
)
async def playground(turn: Turn) -> PlaygroundResult:
    """Runs the command in the first word of the message."""
    if turn.question is not None:
        return f"you said: {turn.text}"
    command, _, rest = turn.text.partition(" ")
    if turn.skill in _COMMANDS and command != turn.skill:  # a tool's call: its argument is what follows the command
        command, rest = turn.skill, turn.text
    match command:
        case "echo" if rest:
            return rest
        case "stream":
            await _stream(turn, rest)
            return None
        case "sleep":
            await _sleep(turn, rest)
            return None
        case "ask":
            turn.ask("what would you like to say?")
        case "auth":
            turn.need_auth("authenticate, then send anything")
        case "fail":
            raise RuntimeError("failing, as asked")
        case "reject":
            turn.reject("rejecting, as asked")
        case "reply" if rest:
            turn.reply(rest)
        case "file":
            return types.artifact(types.file("hello from the playground\n", name="hello.txt"), name="hello.txt")
        case "help" | "?" if not rest.strip():
            return HELP
        case "data":
            return {"hello": "world", "numbers": [1, 2, 3], "nested": {"true": True, "nothing": None}}
    if not turn.text.strip() and not turn.data and not turn.files:
        return HELP
    return turn.text if turn.text else list(turn.message.parts)


async def _stream(turn: Turn, rest: str) -> None:
    match rest.split():
        case [count]:
            pause = 0
        case [count, ms]:
            pause = _parse_integer(turn, "MS", ms, 0, MAX_CHUNK_PAUSE_MS)
        case _:
            turn.reject("stream N [MS]: give the number of chunks, and perhaps the milliseconds between them")
    for number in range(1, _parse_integer(turn, "N", count, 1, MAX_CHUNKS) + 1):
        if number > 1 and pause:
            await asyncio.sleep(pause / 1000)
        await turn.chunk(f"chunk-{number} ")


async def _sleep(turn: Turn, rest: str) -> None:
    try:
        seconds = float(rest)
    except ValueError:
        seconds = -1
    if not 0 <= seconds <= MAX_SLEEP_SECONDS:  # NaN fails the comparison, too
        turn.reject(f"sleep S: S is a number of seconds from 0 to {MAX_SLEEP_SECONDS}, not {_quoted(rest)}")
    turn.status(f"sleeping for {seconds:g} s")
    await asyncio.sleep(seconds)


def _parse_integer(turn: Turn, name: str, text: str, minimum: int, maximum: int) -> int:
    # The length is checked first: int() rejects texts of thousands of digits with another error.
    if not (text.isascii() and text.isdecimal() and len(text) <= 9 and minimum <= int(text) <= maximum):
        turn.reject(f"stream N [MS]: {name} is a whole number from {minimum} to {maximum}, not {_quoted(text)}")
    return int(text)


def _quoted(text: str) -> str:
    return f'"{text[:40]}"' if text else "empty"
