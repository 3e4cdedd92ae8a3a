"""Agents with one behavior each, for runs in the server and at a worker."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from dragoman import Turn, agent, retry, types


@agent
async def returns(turn: Turn) -> str:
    """Returns the text."""
    return turn.text


@agent
async def chunks(turn: Turn) -> AsyncIterator[str]:
    """Yields the number of chunks in the text."""
    for number in range(int(turn.text)):
        yield f"{number} "


@agent
def plain(turn: Turn) -> Iterator[str]:
    """Does the same as a sync generator."""
    for number in range(int(turn.text)):
        turn.check()
        yield f"{number} "


@agent(output_modes=["text/plain", "application/json", "application/octet-stream"])
async def kinds(turn: Turn) -> dict[str, object]:
    """Sends values of every kind."""
    turn.status("working on it")
    turn.artifact(b"\x00\x01\x02", name="bytes", id="bytes")
    turn.artifact(types.artifact("one ", "two", name="two parts"), id="parts", metadata={"deep": {"er": [1, None]}})
    turn.chunk("added", artifact="parts")
    await turn.flush()
    return {"answer": 42, "list": [1.5, "x", None], "kept": turn.request_metadata}


@agent
async def labels(turn: Turn) -> None:
    """Sets metadata of its task and of events."""
    turn.metadata["turns"] = turn.metadata.get("turns", 0) + 1
    turn.chunk("a", metadata={"line": 1})
    turn.chunk("b", metadata={"line": 2})
    turn.status("reading", metadata={"percent": 50})
    turn.metadata["last"] = turn.text
    if turn.question is None:
        turn.ask("more?")


@agent
async def asks(turn: Turn) -> str:
    """Asks for a name once, and counts turns in its state."""
    turn.state["turns"] = turn.state.get("turns", 0) + 1
    turn.context.state["seen"] = turn.context.state.get("seen", 0) + 1
    if turn.question is None:
        turn.ask("what is your name?")
    earlier = [message.parts[0].text for message in turn.history]
    return f"{turn.text}, turn {turn.state['turns']}, seen {turn.context.state['seen']}, after {earlier}"


@agent(direct=True)
async def replies(turn: Turn) -> None:
    """Replies with a Message."""
    turn.reply(f"hello {turn.text}")


@agent
async def rejects(turn: Turn) -> None:
    """Rejects the task."""
    turn.reject("no")


@agent
async def needs(turn: Turn) -> None:
    """Requires authentication."""
    turn.need_auth("log in first")


@agent
async def fails(turn: Turn) -> None:
    """Raises an exception."""
    turn.chunk("before ")
    raise RuntimeError("the pump is broken")


@agent
async def wrong(turn: Turn) -> object:
    """Returns a value without a JSON form."""
    return object()


@agent
async def listens(turn: Turn) -> str:
    """Waits for two messages while it runs."""
    turn.status("listening")
    texts = []
    async for message in turn.messages():
        texts.append(message.text)
        turn.status(f"heard {message.text}")
        if len(texts) == 2:
            break
    return " and ".join(texts)


@agent
async def waits(turn: Turn) -> None:
    """Waits until canceled, and then writes the reason and the metadata to the file named in the text."""
    turn.status("waiting")
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        Path(turn.text).write_text(f"{turn.cancel_reason} {turn.cancel_metadata}", encoding="utf-8")
        raise


@agent
def waits_in_a_thread(turn: Turn) -> None:
    """Does the same in a thread, and checks for a cancel."""
    turn.status("waiting")
    while not turn.canceled:
        time.sleep(0.01)
    Path(turn.text).write_text(f"{turn.cancel_reason} {turn.cancel_metadata}", encoding="utf-8")
    turn.check()


@agent
async def refuses_cancel(turn: Turn) -> str:
    """Refuses cancels, and ends with the next message."""
    turn.refuse_cancel("the rocket has left")
    await turn.status("started")
    async for message in turn.messages():
        return message.text
    raise AssertionError


@agent(time_limit=0.3)
async def dawdles(turn: Turn) -> None:
    """Exceeds its time limit."""
    await asyncio.Event().wait()


@agent(on_crash=retry(1))
async def tries_again(turn: Turn) -> str:
    """Hangs in the first attempt and ends in the second."""
    await turn.chunk(f"attempt {turn.attempt}")
    if turn.attempt == 1:
        await turn.status(str(os.getpid()))
        await asyncio.Event().wait()
    return "done"


@agent(on_crash=retry(100))
async def steady(turn: Turn) -> AsyncIterator[str]:
    """Yields twenty chunks with 10 ms between them, in any number of attempts."""
    for number in range(20):
        yield f"{number} "
        await asyncio.sleep(0.01)


@agent
async def hangs(turn: Turn) -> None:
    """Sends its process id, and hangs."""
    await turn.status(str(os.getpid()))
    await asyncio.Event().wait()


@agent
async def blocks(turn: Turn) -> str:
    """Blocks the event loop for the seconds in the text, as agents should not."""
    threading.Event().wait(float(turn.text))
    return "blocked"


@agent
async def big(turn: Turn) -> bytes:
    """Returns the number of bytes in the text."""
    return b"x" * int(turn.text)


@agent
async def big_chunks(turn: Turn) -> AsyncIterator[str]:
    """Yields a small chunk, one with the length in the text, and a small one."""
    yield "before "
    yield "x" * int(turn.text)
    yield " after"


@agent
async def together(turn: Turn) -> str:
    """Sends its process id, and ends with the next message."""
    await turn.status(str(os.getpid()))
    async for message in turn.messages():
        return message.text
    raise AssertionError
