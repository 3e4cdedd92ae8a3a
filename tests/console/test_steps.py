"""The durable steps of a task in the console: while it runs, by turn, in narrow windows, with failed requests."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest
from tests.console.served import Stage, staged
from tests.console.test_looks import OF_COLORS, TOO_WIDE, issues

from dragoman import Retry, Turn, agent
from dragoman.ports import Agent

pytestmark = [
    pytest.mark.browser,
    pytest.mark.timeout(180),  # axe checks every element, which is slow on a busy machine
]

ROWS: Final = """
[...document.querySelectorAll('.steps tbody tr:has(th)')].map(row => [
  ...[...row.cells].map(cell => cell.innerText.trim()), row.matches('.followed') ? row.nextSibling.innerText.trim() : ''
])
"""
"""The rows of all turns: step, state, attempt, start, duration or end of a pause, size of the result; error."""

CLOCK: Final = re.compile(r"\d\d:\d\d:\d\d\.\d\d\d")


@dataclass
class Library:
    """What the steps of the agent `research` find, when the test says so."""

    found: asyncio.Queue[str] = field(default_factory=asyncio.Queue)
    tries: int = 0

    def agent(self) -> Agent:
        """The agent."""

        async def fetch() -> str:
            self.tries += 1
            if self.tries == 1:
                raise ConnectionError("the library is overloaded")
            return await self.found.get()

        async def cite() -> None:
            raise ValueError("no page 7")

        @agent(id="research", name="Research", description="Reads in steps")
        async def research(turn: Turn) -> str:
            if turn.text == "at once":
                return "no steps"
            topic = await turn.step("topic", lambda: "tides")
            if turn.text == "next":
                return await turn.step("read", self.found.get)
            for _ in range(2):
                await turn.step("read", self.found.get)
            await turn.step("fetch", fetch, retry=Retry(attempts=2, backoff=0.01))
            await turn.sleep(0.01)
            try:
                await turn.step("cite", cite)
            except ValueError:
                if turn.question is None:
                    turn.ask(f"{topic}: go on?")
            await turn.sleep(3600)
            return "never"

        return research


async def rows(stage: Stage) -> list[list[str]]:
    """The shown rows."""
    shown: list[list[str]] = await stage.page.run(ROWS)
    return shown


async def until_states(stage: Stage, **states: str) -> list[list[str]]:
    """Waits until the steps have these states, in this order, and returns the rows. `read_2`: the step `read#2`."""
    wanted = [[name.replace("_", "#"), state] for name, state in states.items()]
    await stage.page.until(f"JSON.stringify({ROWS}.map(row => row.slice(0, 2))) === JSON.stringify({wanted})")
    return await rows(stage)


async def say(stage: Stage, task: str, text: str) -> None:
    """Sends a message for the task, without waiting."""
    message = {"messageId": f"m-{text}", "role": "ROLE_USER", "taskId": task, "parts": [{"text": text}]}
    body: dict[str, Any] = {"message": message, "configuration": {"returnImmediately": True}}
    async with stage.http.post("/research/message:send", json=body) as answer:
        assert answer.status == 200


async def begun(stage: Stage, text: str) -> str:
    """Sends from the console, opens the view of the execution, and returns the id of the task."""
    task = await stage.send(text, "research")
    await stage.page.see("working", ".head")  # the tabs move when the task is loaded
    await stage.page.click("[data-tab=execution]")
    return task


async def test_steps_are_shown_while_the_task_runs(browser: str, tmp_path: Path) -> None:
    library = Library()
    async with staged(browser, tmp_path, library.agent()) as stage:
        page = stage.page
        task = await begun(stage, "tides")
        topic, read = await until_states(stage, topic="done", read="running")
        assert topic[2] == "1"
        assert CLOCK.fullmatch(topic[3])
        assert topic[4].endswith(" ms")
        assert topic[5] == "7 B"  # JSON, with its quotation marks
        assert read[5] == ""
        # The duration of a running step goes on without a request.
        await page.until(f"{ROWS}[1][4] !== {read[4]!r}")
        # No event is sent by a step, and the page shows it all the same.
        library.found.put_nowait("first book")
        await until_states(stage, topic="done", read="done", read_2="running")
        library.found.put_nowait("second book")
        fetch = (await until_states(stage, topic="done", read="done", read_2="done", fetch="running"))[3]
        assert fetch[2] == "2"
        assert fetch[6] == "Earlier error: ConnectionError: the library is overloaded"
        assert await issues(page) == []
        library.found.put_nowait("third book")
        read_all = {"topic": "done", "read": "done", "read_2": "done", "fetch": "done"}
        before = await until_states(stage, **read_all, sleep="slept", cite="failed")
        assert "until " in before[4][4]
        assert before[5][6] == "ValueError: no page 7"
        # The turn continues after the answer, with its steps, and sleeps.
        await say(stage, task, "yes")
        after = await until_states(stage, **read_all, sleep="slept", cite="failed", sleep_2="sleeping")
        assert [row[3] for row in after[:4]] == [row[3] for row in before[:4]], "finished steps did not run again"
        assert after[6][4].startswith("until ")
        await page.click(".actions > button", "Cancel task")
        await page.click("dialog[open] button", "Cancel task")
        await page.until(f"{ROWS}[6][1] === 'interrupted'")
        await page.becomes("document.querySelectorAll('.steps details').length", 0, "it had one turn")


async def test_a_step_opens_to_its_contents_here_too(browser: str, tmp_path: Path) -> None:
    library = Library()
    async with staged(browser, tmp_path, library.agent()) as stage:
        page = stage.page
        await begun(stage, "tides")
        for book in ("first book", "second book", "third book"):
            library.found.put_nowait(book)
        await until_states(stage, topic="done", read="done", read_2="done", fetch="done", sleep="slept", cite="failed")
        await page.becomes("document.querySelectorAll('.steps .opener').length", 5, "a pause has no contents")
        await page.click(".steps .opener", "read#2")
        await page.see("second book", ".steps .contents")
        await page.click(".steps .opener", "cite")
        await page.see('raise ValueError("no page 7")', ".steps .contents .frames")
        assert await issues(page) == []
        await page.view(320, 800)
        assert await page.run(TOO_WIDE) == []


async def test_steps_are_shown_by_turn(browser: str, tmp_path: Path) -> None:
    library = Library()
    async with staged(browser, tmp_path, library.agent()) as stage:
        page = stage.page
        task = await begun(stage, "next")
        await until_states(stage, topic="done", read="running")
        await say(stage, task, "at once")  # it waits for the turn, and is the next one
        await say(stage, task, "next")
        library.found.put_nowait("one book")
        await page.see("Turn that ended with message 1", ".steps")
        summaries = "[...document.querySelectorAll('.steps summary')].map(one => one.innerText)"
        await page.until(f"{summaries}.at(-1) === 'Current turn 2 steps'")
        await page.becomes(summaries, ["Turn that ended with message 1 2 steps", "Current turn 2 steps"])
        opened = "[...document.querySelectorAll('.steps details')].map(one => one.open)"
        await page.becomes(opened, [False, True])
        # An earlier turn is opened by keyboard, and stays open when the steps are read again.
        await page.run("document.querySelector('.steps summary').focus()")
        await page.press("Enter")
        await page.until(f"{opened}[0]")
        library.found.put_nowait("another book")
        await page.see("Last turn", ".steps")
        await page.becomes(opened, [True, True])
        assert [row[1] for row in await rows(stage)] == ["done"] * 4


async def test_tables_of_steps_are_accessible_and_fit_a_narrow_window(browser: str, tmp_path: Path) -> None:
    library = Library()
    for text in ("a book with a long title", "another book"):
        library.found.put_nowait(text)
    async with staged(browser, tmp_path, library.agent()) as stage:
        page = stage.page
        await begun(stage, "tides")
        await page.see("Earlier error", ".steps")
        headers = "[...document.querySelectorAll('.steps thead th')].map(one => one.textContent)"
        await page.becomes(headers, ["Step", "State", "Attempt", "Started", "Duration", "Result"])
        for width in (1280, 900, 380):
            await page.view(width, 700)
            await page.becomes("document.scrollingElement.scrollWidth", width)
            await page.becomes(TOO_WIDE, [], width)
            for colors in ("light", "dark"):
                await page.prefer(colors)
                assert await issues(page, *(OF_COLORS if colors == "dark" else ())) == [], (width, colors)
        # The narrow layout has the same table for screen readers.
        nodes = (await page.command("Accessibility.getFullAXTree"))["nodes"]
        roles = [node["role"]["value"] for node in nodes if not node["ignored"]]
        assert roles.count("columnheader") == 6
        assert roles.count("rowheader") == 4


async def test_failed_requests_for_steps_leave_the_rest_of_the_page(browser: str, tmp_path: Path) -> None:
    library = Library()
    async with staged(browser, tmp_path, library.agent()) as stage:
        page = stage.page
        await page.command("Network.setBlockedURLs", urls=["*/steps?*"])
        await begun(stage, "tides")
        await page.see("The server is unreachable.", ".steps")
        await page.see("Its agent has been working on it", ".next")
        await page.command("Network.setBlockedURLs", urls=[])
        await until_states(stage, topic="done", read="running")
        assert "unreachable" not in await page.text(".steps")
        # What is known stays, with the error.
        await page.command("Network.setBlockedURLs", urls=["*/steps?*"])
        await page.see("The server is unreachable.", ".steps")
        assert [row[0] for row in await rows(stage)] == ["topic", "read"]


async def test_steps_are_hidden_without_a_note_when_they_are_forbidden(browser: str, tmp_path: Path) -> None:
    async with staged(browser, tmp_path, Library().agent()) as stage:
        page = stage.page
        # The grant ends between the explanation and the steps.
        await page.run(
            "(real => { window.refused = 0; window.fetch = (url, ...more) => String(url).includes('/steps?')"
            " ? (window.refused++, Promise.resolve(new Response('{}', {status: 403}))) : real(url, ...more); })(fetch)"
        )
        await begun(stage, "tides")
        await page.see("Its agent has been working on it", ".next")
        await page.until("window.refused")
        await page.click(".next button", "update")
        await page.until("window.refused > 1")
        assert await page.run("document.querySelector('.execution .steps, .execution .problem')") is None


async def test_tasks_without_steps_have_no_section(browser: str, tmp_path: Path) -> None:
    async with staged(browser, tmp_path, Library().agent()) as stage:
        page = stage.page
        task = await stage.put("at once", "research")
        await stage.to(f"#/tasks/research/{task['id']}")
        await page.see("no steps", ".conversation")
        await page.click("[data-tab=execution]")
        requests = "performance.getEntriesByType('resource').filter(one => one.name.includes('/steps?')).length"
        await page.until(requests)
        await page.see("Nothing: the task has ended.", ".next")
        assert await page.run("document.querySelector('.steps')") is None
        await page.click(".next button", "update")
        await page.until(f"{requests} === 2")
