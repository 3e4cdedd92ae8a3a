"""Agents for tests of the test kit and of recordings."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import AsyncIterator
from datetime import UTC, datetime

from dragoman import Turn, agent, retry, types


@agent(input_modes=["*/*"])
async def office(turn: Turn) -> str:
    """Books a table, and asks when."""
    if turn.question is None:
        turn.state["what"] = turn.text
        turn.status("looking at the book")
        turn.ask("On which day?")
    return f"Booked: {turn.state['what']}, {turn.text}."


@agent
async def counter(turn: Turn) -> AsyncIterator[str]:
    """Counts in chunks that contain a new id and the current time."""
    yield f"{turn.task_id} of {turn.context_id} at {datetime.now(UTC).isoformat()}, {uuid.uuid4()}\n"
    for n in range(int(turn.text)):
        yield f"chunk {n}\n"


@agent
async def listener(turn: Turn) -> str:
    """Receives messages while it works, until one is `enough`."""
    turn.status("listening")
    texts = []
    async for message in turn.messages():
        turn.chunk(f"heard {message.text}\n")
        texts.append(message.text)
        if message.text == "enough":
            break
    return " ".join(texts)


@agent(on_crash=retry(1))
async def stubborn(turn: Turn) -> AsyncIterator[str]:
    """Hangs in its first attempt."""
    yield f"attempt {turn.attempt}"
    if turn.attempt == 1:
        await asyncio.Event().wait()


@agent
async def fragile(turn: Turn) -> None:
    """Hangs, and is not restarted after a crash."""
    turn.status("hanging")
    await asyncio.Event().wait()


@agent
async def broken(turn: Turn) -> None:
    """Fails."""
    raise ValueError("no such table")


@agent(input_modes=["*/*"])
def threaded(turn: Turn) -> dict[str, object]:
    """Works in a thread; with the matching text, until it is canceled."""
    turn.status("in a thread")
    while turn.text == "wait":
        turn.check()
        threading.Event().wait(0.005)
    return {
        "files": [file.name for file in turn.files],
        "data": turn.data,
        "accepts": turn.accepts,
        **turn.request_metadata,
    }


@agent
async def filer(turn: Turn) -> list[types.Part]:
    """Returns parts of every kind."""
    return [
        types.text("two\nlines"),
        types.data({"id": turn.task_id, "rows": 3}),
        types.file("a,b\n1,2\n", name="table.csv", media_type="text/csv"),
        types.file(b"\x89PNG", name="dot.png", media_type="image/png"),
        types.link("https://example.com/x", name="x"),
    ]


@agent(direct=True)
async def direct(turn: Turn) -> None:
    """Responds with a Message instead of a task."""
    turn.reply(f"you said {turn.text}")
