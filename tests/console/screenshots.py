"""Takes the console's pictures for docs/images and the README: python -m tests.console.screenshots"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

import aiohttp
from tests.console.browser import Page, find, launched, opened
from tests.console.past import Load, add_past

from dragoman import Retry, Skill, Turn, agent
from dragoman.ports import Agent
from dragoman.settings.settings import Address, Settings
from dragoman.wiring.app import open_app

DOCS: Final = Path(__file__).resolve().parents[2] / "docs" / "images"
MOST: Final = 150_000
"""Maximum bytes of a screenshot; they are part of every clone."""

REPORT: Final = (
    "Invoice 2026-1187 differs from its order in two lines.\n\n",
    "Line 4: 120 pieces were delivered, 144 are charged. ",
    "The delivery note of 12 November says 120, too.\n",
    "Line 7: the price is that of the former contract, 18.40 instead of 17.95.\n",
)


@agent(
    id="invoices",
    name="Invoices",
    description="Compares invoices with orders and delivery notes",
    default=True,
    input_modes=("text/plain", "application/pdf"),
    skills=[Skill(id="check", name="Check", description="Finds what differs", tags=("invoice",))],
)
async def invoices(turn: Turn) -> None:
    if turn.text == "wait":
        await asyncio.Event().wait()
    if turn.question is None:
        turn.status("Reading 3 pages")
        await turn.flush()
        turn.ask("Two orders fit this invoice: 4500018112 and 4500018140. Which one is it?")
    turn.status("Comparing 9 lines with order 4500018140")
    for text in REPORT:
        await turn.chunk(text)
        await turn.flush()
    await asyncio.Event().wait()


@agent(id="translate", name="Translate", description="Translates texts between 24 languages")
async def translate(turn: Turn) -> str:
    if turn.text.startswith("!"):
        raise ValueError("the glossary cannot be read")
    return turn.text


@agent(id="research", name="Research", description="Writes a report from several sources")
async def research(turn: Turn) -> None:
    failures = [ConnectionError("the archive is overloaded, try again later")]

    async def read(seconds: float, text: str) -> str:
        await asyncio.sleep(seconds)
        return text

    async def search_archive() -> str:
        if failures:
            raise failures.pop()
        return await read(0.5, "letters from 1871 to 1902 " * 90)

    topic = await turn.step("topic", lambda: turn.text)
    await turn.step("plan", read, 0.4, f"Read three sources about {topic}. " * 4)
    await asyncio.gather(*(turn.step("read", read, 0.3 * number, topic * 50 * number) for number in (1, 2, 3)))
    await turn.step("search the archive", search_archive, retry=Retry(attempts=3, backoff=0.01))
    await turn.sleep(0.2)
    await turn.step("write", asyncio.Event().wait)


class _Caller:
    """Calls the agents like a client."""

    def __init__(self, http: aiohttp.ClientSession) -> None:
        self._http = http
        self._number = 0

    async def send(self, agent: str, *parts: Any, task: str = "", wait: bool = True) -> str:
        """Sends a message and returns the task's id."""
        self._number += 1
        message = {"messageId": f"m-{self._number}", "role": "ROLE_USER", "parts": list(parts), "taskId": task}
        body = {"message": message, "configuration": {"returnImmediately": not wait}}
        async with self._http.post(f"/{agent}/message:send", json=body) as answer:
            return str((await answer.json())["task"]["id"])


async def take(browser: str, folder: Path) -> None:
    """Takes all screenshots."""
    anywhere = Address("127.0.0.1", 0)
    settings = Settings(http=anywhere, grpc=anywhere, store=f"sqlite:///{folder}/pictures.db")
    async with (
        open_app(settings, [invoices, translate, research]) as app,
        aiohttp.ClientSession(f"http://{app.http}") as http,
        opened(browser) as page,
    ):
        caller = _Caller(http)
        document = {"raw": "JVBERi0xLjQK", "mediaType": "application/pdf", "filename": "invoice-2026-1187.pdf"}
        for text in ("Guten Morgen", "! Lieferschein", "Mit freundlichen Grüßen"):
            await caller.send("translate", {"text": text})
        await caller.send("invoices", {"text": "Check this"}, document)
        canceled = await caller.send("invoices", {"text": "wait"}, wait=False)
        async with http.post(f"/invoices/tasks/{canceled}:cancel") as answer:
            assert answer.status == 200
        await caller.send("translate", {"text": "Vielen Dank"})
        await caller.send("invoices", {"text": "wait"}, wait=False)
        shown = await caller.send("invoices", {"text": "Check this invoice against its order."}, document)
        await caller.send("invoices", {"text": "4500018140"}, task=shown, wait=False)
        address = f"http://{app.http}/console#/tasks/invoices/{shown}"
        await page.view(1280, 760)
        for name, colors, width, height in (
            ("console-light", "light", 1280, 760),
            ("console-dark", "dark", 1280, 760),
            ("console-phone", "light", 380, 760),
        ):
            await page.prefer(colors)
            await page.view(width, height)
            await page.go("about:blank")
            await page.go(address)
            await page.see("17.95", ".conversation")
            await page.until("document.querySelectorAll('.conversation > [data-kind=user]').length === 2")
            await page.until("document.querySelectorAll('.list tbody tr').length === 8")
            await _save(page, name)
        steps = await caller.send("research", {"text": "tides"}, wait=False)
        await page.view(1280, 600)
        await page.go("about:blank")
        await page.go(f"http://{app.http}/console#/tasks/research/{steps}?tab=execution")
        await page.see("write", ".steps")
        await page.run("document.querySelector('.steps').scrollIntoView()")
        await _save(page, "console-steps")


LOADS: Final = {
    "invoices": Load(hourly=50, seconds=2.1, tokens=1_800),
    "translate": Load(hourly=120, seconds=0.4, tokens=700, failing=0.01),
    "research": Load(hourly=16, seconds=38, tokens=9_000, failing=0.06, failing_now=0.5),
}


async def take_figures(browser: str, folder: Path) -> None:
    """Takes the screenshots of the pages with figures."""
    anywhere = Address("127.0.0.1", 0)
    database = folder / "figures.db"
    settings = Settings(http=anywhere, grpc=anywhere, store=f"sqlite:///{database}")
    agents: list[Agent] = [invoices, translate, research]
    async with open_app(settings, agents):
        pass  # creates the tables
    add_past(database, LOADS)
    async with (
        open_app(settings, agents) as app,
        aiohttp.ClientSession(f"http://{app.http}") as http,
        opened(browser) as page,
    ):
        caller = _Caller(http)
        for text in ("Guten Morgen", "! Lieferschein", "Vielen Dank"):
            await caller.send("translate", {"text": text})
        for _ in range(4):
            await caller.send("invoices", {"text": "Check this invoice against its order."})
        for topic in ("tides", "lighthouses"):
            await caller.send("research", {"text": topic}, wait=False)
        pause = {"reason": "the glossary is being replaced"}
        async with http.post("/operations/agents/translate:pause", json=pause) as answer:
            assert answer.status == 200
        for name, place, text, height in (
            ("console-overview", "overview", "2 oldest", 760),
            ("console-agents", "agents", "p95 of turns", 480),
            ("console-usage", "usage?by=agent&measure=cost", "Invoices", 680),
        ):
            await page.view(1280, height)
            await page.go("about:blank")
            await page.go(f"http://{app.http}/console#/{place}")
            await page.until(f"document.querySelector('.page').innerText.replace(/\\s+/g, ' ').includes({text!r})")
            await _save(page, name)


async def _save(page: Page, name: str) -> None:
    """Writes a screenshot without animations into the folder of the documentation."""
    await page.run("document.getAnimations().forEach(one => one.cancel())")
    picture = await page.picture()
    assert len(picture) <= MOST, f"{name} has {len(picture)} bytes"
    (DOCS / f"{name}.png").write_bytes(picture)
    print(f"docs/images/{name}.png, {len(picture)} bytes")


def main() -> int:
    """Takes all screenshots in a new browser."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        profile = Path(folder, "profile")
        profile.mkdir()
        with launched(find(), profile) as browser:
            asyncio.run(take(browser, Path(folder)))
            asyncio.run(take_figures(browser, Path(folder)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
