"""Recordings: readable, deterministic, and compared with new code."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.testing.agents import broken, counter, direct, filer, listener, office

from dragoman import Turn, agent
from dragoman.testing import AgentUnderTest, Different, Recording, Story, record, replayed


async def changed(case: Recording | Path, agent: Callable[..., object], **options: object) -> str:
    """Returns the message of the differences."""
    with pytest.raises(Different) as exception_info:
        await replayed(case, agent, **options)  # type: ignore[arg-type]
    return str(exception_info.value)


async def test_a_recorded_conversation_can_be_replayed(tmp_path: Path) -> None:
    path = tmp_path / "case.json"
    async with AgentUnderTest(office) as a:
        task_run = await a.send("a table", files={"a.txt": "a\nb"}, metadata={"m": 1}, accepts=["text/plain"])
        await task_run.answer("Friday", data={"n": 1})
        record(task_run, path)
    assert json.loads(path.read_text()) == {
        "recording": 1,
        "agent": "office",
        "turns": [
            {
                "send": {
                    "parts": [{"text": "a table"}, {"file": "a.txt", "mediaType": "text/plain", "text": ["a", "b"]}],
                    "requestMetadata": {"m": 1},
                    "acceptedOutputModes": ["text/plain"],
                },
                "state": "INPUT_REQUIRED",
                "reports": ["looking at the book"],
                "says": "On which day?",
            },
            {
                "send": {"parts": [{"text": "Friday"}, {"data": {"n": 1}}]},
                "state": "COMPLETED",
                "artifacts": {"#1": {"parts": [{"text": "Booked: a table, Friday."}]}},
            },
        ],
    }
    again = await replayed(path, office)
    assert record(again) == Recording.read(path)


async def test_differences_are_listed_with_their_paths() -> None:
    @agent(id="office")
    async def other(turn: Turn) -> dict[str, str]:
        if turn.question is None:
            turn.ask("When?")
        return {"booked": turn.text}

    async with AgentUnderTest(office) as a:
        case = record(await (await a.send("a table")).answer("Friday"))
    assert await changed(case, other) == "\n".join(
        [
            "the recording: the agent differs from the recording in 4 places:",
            "  1.reports",
            "      is missing; recorded: ['looking at the book']",
            "  1.says",
            "      recorded  'On which day?'",
            "      now       'When?'",
            "  2.artifacts.#1.parts.1.text",
            "      is missing; recorded: 'Booked: a table, Friday.'",
            "  2.artifacts.#1.parts.1.data",
            "      is new: {'booked': 'Friday'}",
        ]
    )
    allowed: dict[str, Any] = {"1.reports": ..., "1.says": re.compile(r"W.*\?"), "*.parts.*": ...}
    await replayed(case, other, match=allowed)
    await replayed(case, other, match={**allowed, "1.says": lambda recorded, now: now in recorded or now == "When?"})
    assert "in 1 place:\n  1.says\n" in await changed(case, other, match={**allowed, "1.says": re.compile("x")})


async def test_an_agent_that_stops_early_or_fails_is_different() -> None:
    @agent(id="office")
    async def hasty(turn: Turn) -> str:
        return "Booked."

    async with AgentUnderTest(office) as a:
        case = record(await (await a.send("a table")).answer("Friday"))
    text = await changed(case, hasty)
    assert "1.state\n      recorded  'INPUT_REQUIRED'\n      now       'COMPLETED'" in text
    assert "2\n      is missing" in text
    text = await changed(case, broken)
    assert re.search(r"the agent failed: .*agents.py, line \d+: ValueError: no such table$", text)


async def test_ids_times_and_chunk_boundaries_are_ignored() -> None:
    first, second = run_twice = [record(await one("3")) for one in (count, count)]
    assert first == second
    (turn,) = run_twice[0].turns
    (text,) = turn["artifacts"]["output"]["parts"]
    assert text["text"] == ["<task> of <context> at <time>, <id>", "chunk 0", "chunk 1", "chunk 2", ""]

    @agent(id="counter")
    async def at_once(turn: Turn) -> None:
        turn.chunk(f"{turn.task_id} of {turn.context_id} at 2026-01-01T00:00:00Z, {'0' * 32}\nchu")
        turn.chunk("nk 0\nchunk 1\nchunk two\n")

    assert await changed(first, at_once) == "\n".join(
        [
            "the recording: the agent differs from the recording in 1 place:",
            "  1.artifacts.output.parts.1.text",
            "      --- recorded",
            "      +++ now",
            "      @@ -3,3 +3,3 @@",
            "       chunk 1",
            "      -chunk 2",
            "      +chunk two",
            "       ",
        ]
    )


async def count(text: str) -> Story:
    async with AgentUnderTest(counter) as a:
        return await a.send(text)


async def test_messages_during_a_turn_are_replayed_at_the_same_position() -> None:
    async with AgentUnderTest(listener) as a:
        task_run = await a.send("begin", wait=False)
        await task_run.until("listening")
        await task_run.send("one", wait=False)
        await task_run.until("heard one")
        await task_run.send("enough")
        case = record(task_run)
    assert case.turns[0]["meanwhile"] == [
        {"after": "listening", "parts": [{"text": "one"}]},
        {"after": "heard one", "parts": [{"text": "enough"}]},
    ]
    assert record(await replayed(case, listener)) == case


async def test_files_are_compared_by_text_or_digest() -> None:
    async with AgentUnderTest(filer) as a:
        case = record(await a.send("x"))
    (artifact,) = case.turns[0]["artifacts"].values()
    assert artifact["parts"] == [
        {"text": ["two", "lines"]},
        {"data": {"id": "<task>", "rows": 3}},
        {"file": "table.csv", "mediaType": "text/csv", "text": ["a,b", "1,2", ""]},
        {
            "file": "dot.png",
            "mediaType": "image/png",
            "bytes": 4,
            "sha256": "0f4636c78f65d3639ece5a064b5ae753e3408614a14fb18ab4d7540d2c248543",
        },
        {"url": "https://example.com/x", "file": "x"},
    ]
    assert record(await replayed(case, filer)) == case


@pytest.mark.usefixtures("time_to_think")
async def test_a_reply_can_be_recorded(tmp_path: Path) -> None:
    async with AgentUnderTest(direct) as a:
        case = record(await a.send("hello"), tmp_path / "case.json")
    assert case.turns == [{"send": {"parts": [{"text": "hello"}]}, "reply": "you said hello"}]
    await replayed(tmp_path / "case.json", direct)
