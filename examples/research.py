"""A research agent in eight steps. Each step is paid for once, however often its server is killed.

    dragoman serve examples/research.py &

It reads three sources at once, asks a question, and writes a report, word by word. In another terminal:

    dragoman send "tides" --stream
    dragoman send --task TASK "letters" --stream

Kill the server meanwhile, as often as you like, and start it again:

    kill -9 $!; dragoman serve examples/research.py &

`dragoman send` waits for it, and goes on where the stream broke off. Then look at what the report has cost:

    cat bill.txt          # a line for each answer of the model: eight, whatever you did
    dragoman steps TASK   # the same eight steps, with their times and sizes

No network and no model key are needed: `model` stands in for a model. Only a kill in the millisecond between a line of
the bill and the commit of that result would pay twice; services that take an idempotency key (`step.key`) prevent that.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

from dragoman import Turn, agent, retry, types

BILL = Path("bill.txt")
SECONDS_PER_WORD = 0.1

ANSWERS = {
    "plan": "books, papers, letters",
    "read books": "The books about {} copy from each other.",
    "read papers": "The papers about {} doubt what the books say.",
    "read letters": "The letters tell who knew about {} first.",
    "look closer": "A second look, at {}, finds the same in more words.",
    "outline": "What is written about {}, what is wrong with it, what is left.",
    "write": "Report on {} Nothing of this was paid for twice.",
    "title": "All that is known about {}",
}


async def model(job: str, about: str) -> AsyncIterator[str]:
    """Yields an answer word by word. A complete answer is on the bill."""
    for word in ANSWERS[job].format(about).split(" "):
        await asyncio.sleep(SECONDS_PER_WORD)
        yield f"{word} "
    pay(job)


def pay(job: str) -> None:
    with BILL.open("a") as bill:
        bill.write(f"{job}\n")


async def think(job: str, about: str) -> str:
    """The whole answer."""
    return "".join([word async for word in model(job, about)]).strip()


async def write(turn: Turn, about: str) -> str:
    """The whole answer, which the caller sees while it is written.

    All chunks of a step are stored before its result. So a complete report is never sent again, and one that was cut
    off is sent from its beginning: the first chunk of a new attempt replaces the artifact.
    """
    words = []
    async for word in model("write", about):
        await turn.chunk(word, artifact="report")
        words.append(word)
    return "".join(words).strip()


@agent(name="Research", description="Researches a topic, and asks once", on_crash=retry(100))
async def research(turn: Turn) -> types.Message:
    """Runs from its first line after each crash and after the answer, but finished steps return at once."""
    topic = turn.state.setdefault("topic", turn.text)  # turn.text is the answer, later on

    plan = await turn.step("plan", think, "plan", topic)
    turn.status(f"reading {plan}")
    sources = plan.split(", ")
    notes = await asyncio.gather(*(turn.step(f"read {name}", think, f"read {name}", topic) for name in sources))

    if turn.question is None:
        turn.ask(f"I have read {plan}. Which of them shall I look at again?")
    notes.append(await turn.step("look closer", think, "look closer", turn.text))

    turn.status("writing")
    outline = await turn.step("outline", think, "outline", topic)
    report = await turn.step("write", write, turn, " ".join([f"{topic}. {outline}", *notes]))
    title = await turn.step("title", think, "title", topic)
    return types.message(f"{title}, in {len(report.split())} words")
