"""Takes the console's pictures for docs/images and the README: python -m tests.console.screenshots"""

from __future__ import annotations

import asyncio
import linecache
import os
import sys
import tempfile
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any, Final, TypeVar

import aiohttp
from tests.console.browser import Page, find, launched, opened
from tests.console.past import Load, add_past
from tests.runtime.push.receivers import Receivers, answered

from dragoman import AgentError, Retry, Skill, Turn, agent, types
from dragoman.client.calls import Client, message
from dragoman.ports import Agent
from dragoman.settings.settings import Address, Settings
from dragoman.wiring.app import open_app

DOCS: Final = Path(__file__).resolve().parents[2] / "docs" / "images"
SCHEMES: Final = ("light", "dark")
SCALE: Final = 2
"""Pixels of a picture for one of the page, in each direction: for screens that people have."""

MOST: Final = 200_000
"""Maximum bytes of a screenshot; they are part of every clone."""

FONTS: Final = """<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig>
  <include>/etc/fonts/fonts.conf</include>
  <match target="pattern">
    <test qual="any" name="family"><string>DejaVu Sans</string></test>
    <edit name="family" mode="prepend" binding="strong"><string>Inter</string></edit>
  </match>
</fontconfig>
"""
"""Replaces the font that a machine without a desktop has by one like those that people have (Debian: fonts-inter)."""

LISTED: Final = (
    ("translate", "Put the contract for the hall in Graz into English, and keep the numbers of its clauses"),
    ("invoices", "Compare the invoices of last quarter with their orders"),
    ("translate", "Confirm the date of delivery to Lyon, politely, in French"),
    ("translate", "Our terms and conditions as a contract in Polish, sections 4 to 9"),
    ("translate", "Offer 2026-88 in Spanish; keep the table"),
)
"""Agents and texts of further tasks in the list."""

REPORT: Final = (
    "Two of nine lines differ from order **4500018140**:\n\n| line | article | ordered | charged | difference |\n",
    "|---:|---|---:|---:|---:|\n| 4 | Hex bolt M8 | 120 | 144 | +24 |\n| 7 | Washer 8.4 | 17.95 | 18.40 | +0.45 |\n\n",
    "1. Line 4: the [delivery note](https://erp.example/notes/1187) of 12 November says 120, too.\n",
    "2. Line 7: the price is that of the *former* contract.\n",
)

ORDERS: Final = ("4500018112", "4500018140", "none of them")
AUTHORS_FILE: Final = "/app/agents/research.py"
TRANSLATORS_FILE: Final = "/app/agents/translate.py"
HOOK: Final = "https://erp.example/hooks/invoices"
SHELVES: Final = {"Graz": "A 12"}
ADDRESS: Final[list[str]] = []
"""The gRPC address of the server, for agents that call others."""


Function = TypeVar("Function", bound=Callable[..., Any])


def written_in(file: str) -> Callable[[Function], Function]:
    """Gives a function a path like those of authors, which the pictures show."""

    def rename(function: Function) -> Function:
        linecache.cache[file] = (0, None, linecache.getlines(__file__), file)
        function.__code__ = function.__code__.replace(co_filename=file)
        return function

    return rename


@agent(
    id="invoices",
    name="Invoices",
    description="Compares invoices with orders and delivery notes",
    default=True,
    input_modes=("text/plain", "application/pdf"),
    skills=[Skill(id="check", name="Check", description="Finds what differs", tags=("invoice",))],
    retry=Retry(attempts=2, backoff=0.2),
)
async def invoices(turn: Turn) -> None:
    if turn.text.startswith("Read"):
        turn.status("Reading 3 pages")
        await asyncio.Event().wait()
    if turn.question is None:
        for number in (1, 2, 3):
            turn.status(f"Reading page {number} of 3")
            await turn.flush()
            await asyncio.sleep(0.2)
        turn.usage(tokens=1_280, cost=0.0126)
        turn.ask([types.text("Two orders fit this invoice. Which one is it?"), types.data({"choices": ORDERS})])
    await turn.step("load the order", asyncio.sleep, 0.4)
    if turn.attempt == 1:
        raise ConnectionError("the archive is overloaded")
    await asyncio.gather(*(turn.step("compare page", asyncio.sleep, 0.3 * number) for number in (1, 2, 3)))
    async with Client(ADDRESS[0], agent="translate") as client:
        await client.send(message("Schraube, 8,4 mm"))
    await turn.step("check the prices", asyncio.sleep, 0.5)
    turn.usage(tokens=2_410, cost=0.0241)
    for text in REPORT:
        await turn.chunk(text)
        await turn.flush()
    await asyncio.Event().wait()


@written_in(TRANSLATORS_FILE)
def look_up_terms(text: str) -> None:
    if text.startswith("Memo"):
        raise TimeoutError(f"no answer from glossary.example within {len(text)} s")
    if "ontract" in text:
        raise AgentError("The glossary of legal terms cannot be read: quota exceeded, try again in 41 s")


@written_in(AUTHORS_FILE)
def open_archive() -> None:
    raise AgentError("The archive is closed until Monday")


@written_in(AUTHORS_FILE)
def find_shelf(place: str) -> str:
    return SHELVES[place]


@agent(id="translate", name="Translate", description="Translates texts between 24 languages")
@written_in(TRANSLATORS_FILE)
async def translate(turn: Turn) -> str:
    turn.usage(tokens=40 * len(turn.text), cost=0.0003 * len(turn.text))
    await asyncio.sleep(0.3)
    look_up_terms(turn.text)
    return turn.text


@agent(id="research", name="Research", description="Writes a report from several sources")
@written_in(AUTHORS_FILE)
async def research(turn: Turn) -> None:
    if turn.text == "letters":
        open_archive()
    if turn.text.startswith("map of"):
        await turn.step("find the shelf", find_shelf, turn.text.removeprefix("map of "))
    failures = [ConnectionError("the archive is overloaded, try again later")]

    async def read(seconds: float, text: str) -> str:
        await asyncio.sleep(seconds)
        return text

    @written_in(AUTHORS_FILE)
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

    async def send(self, agent: str, *parts: Any, task: str = "", wait: bool = True, hook: str = "") -> str:
        """Sends a message and returns the task's id. `hook`: the URL of its webhook."""
        self._number += 1
        message = {"messageId": f"m-{self._number}", "role": "ROLE_USER", "parts": list(parts), "taskId": task}
        configuration: dict[str, Any] = {"returnImmediately": not wait}
        if hook:
            configuration["taskPushNotificationConfig"] = {"url": hook}
        body = {"message": message, "configuration": configuration}
        async with self._http.post(f"/{agent}/message:send", json=body) as answer:
            return str((await answer.json())["task"]["id"])


async def take(browser: str, folder: Path) -> None:
    """Takes all screenshots."""
    anywhere = Address("127.0.0.1", 0)
    store, trace_url = f"sqlite:///{folder}/pictures.db", "https://traces.example/{task_id}"
    settings = Settings(http=anywhere, grpc=anywhere, store=store, trace_url=trace_url)
    receivers = Receivers()
    receivers.answer(HOOK, answered(503))
    async with (
        open_app(settings, [invoices, translate, research], outbound=receivers) as app,
        aiohttp.ClientSession(f"http://{app.http}") as http,
        opened(browser) as page,
    ):
        ADDRESS.append(str(app.grpc))
        caller = _Caller(http)
        for agent_id, text in LISTED:
            await caller.send(agent_id, {"text": text})
        document = {"raw": "JVBERi0xLjQK", "mediaType": "application/pdf", "filename": "invoice-2026-1187.pdf"}
        for text in (
            "The letter to the tax office in German",
            "Contract 18 with the carrier in Italian",
            "Press release of 20 November in Dutch and Danish",
        ):
            await caller.send("translate", {"text": text})
        await caller.send("invoices", {"text": "Check invoice 2026-1186 of Brandl & Sons"}, document)
        canceled = await caller.send("invoices", {"text": "Read the scans of 1,204 invoices"}, wait=False)
        async with http.post(f"/invoices/tasks/{canceled}:cancel") as answer:
            assert answer.status == 200
        await caller.send("translate", {"text": "The thank-you card in Welsh"})
        await caller.send("invoices", {"text": "Read the scan of invoice 2026-1190"}, wait=False)
        shown = await caller.send("invoices", {"text": "Check this invoice against its order."}, document, hook=HOOK)
        await asyncio.sleep(1)  # people take their time to answer
        await caller.send("invoices", {"text": "4500018140"}, task=shown, wait=False)
        address = f"http://{app.http}/console#/tasks/invoices/{shown}"
        await page.view(1280, 760)

        async def show(place: str, text: str, within: str) -> None:
            await page.go("about:blank")
            await page.go(place)
            await page.see(text, within)
            await page.until(f"document.querySelectorAll('.list tbody tr').length === {len(LISTED) + 9}")

        for colors in SCHEMES:
            await page.prefer(colors)
            for width, name in ((1280, "console"), (380, "console-phone")):
                await page.view(width, 760, scale=SCALE)
                await show(f"{address}?tab=conversation", "former contract", ".conversation")
                await page.until("document.querySelectorAll('.conversation > [data-kind=user]').length === 2")
                await _save(page, name, colors)
            for width, name in ((1280, "console-list"), (380, "console-list-phone")):
                await page.view(width, 760, scale=SCALE)
                await show(f"http://{app.http}/console#/tasks", "live", ".finder-head")
                await _save(page, name, colors)
            await page.view(1280, 760, scale=SCALE)
            await show(f"{address}?tab=timeline", "check the prices", ".timeline")
            await page.until("document.querySelectorAll('.timeline [data-kind=delivery] rect').length > 2")
            await _save(page, "console-timeline", colors)
        steps = await caller.send("research", {"text": "tides"}, wait=False)
        for colors in SCHEMES:
            await page.prefer(colors)
            await page.view(1280, 760, scale=SCALE)
            await page.go("about:blank")
            await page.go(f"http://{app.http}/console#/tasks/research/{steps}?tab=timeline")
            await page.see("search the archive", ".timeline")
            await page.run("document.querySelectorAll('.opener')[5].click()")
            await page.see("overloaded", ".contents .failure")
            await _save(page, "console-steps", colors)


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
        for _ in range(5):
            await caller.send("research", {"text": "letters"})
        for topic in ("tides", "lighthouses"):
            await caller.send("research", {"text": topic}, wait=False)
        await _fail(caller, http)
        pause = {"reason": "the glossary is being replaced"}
        async with http.post("/operations/agents/translate:pause", json=pause) as answer:
            assert answer.status == 200
        for colors, (name, place, text, height) in product(
            SCHEMES,
            (
                ("console-overview", "overview", "2 oldest", 760),
                ("console-agents", "agents", "p95", 480),
                ("console-failures", "failures", "no answer from", 520),
                ("console-usage", "usage?by=agent&measure=cost", "Invoices", 680),
            ),
        ):
            await page.prefer(colors)
            await page.view(1280, height, scale=SCALE)
            await page.go("about:blank")
            await page.go(f"http://{app.http}/console#/{place}")
            await page.until(f"document.querySelector('.page').innerText.replace(/\\s+/g, ' ').includes({text!r})")
            await page.run("document.querySelectorAll('.groups .opener')[2]?.click()")
            await _save(page, name, colors)


async def _fail(caller: _Caller, http: aiohttp.ClientSession) -> None:
    """Fails tasks of several causes, and reruns those of one."""
    for text in ("The contract of the hall", "Contract 18", "Contract 19", "Memo 4", "Memo of 20 November", "Memo 5"):
        await caller.send("translate", {"text": text})
    for place in ("Lyon", "Graz-West", "Trieste"):
        await caller.send("research", {"text": f"map of {place}"})
    async with http.get("/operations/failures") as answer:
        group = next(one for one in (await answer.json())["groups"] if one["agent"] == "translate")
    request = {"filter": {"cause": group["cause"]}, "requestId": f"cause-{group['cause']}"}
    async with http.post("/operations/tasks:rerun", json=request) as answer:
        assert (await answer.json())["changed"] == group["count"]


async def _save(page: Page, name: str, colors: str) -> None:
    """Writes a screenshot without animations into the folder of the documentation."""
    await page.run("document.getAnimations().forEach(one => one.cancel())")
    picture, file = await page.picture(), f"{name}-{colors}.webp"
    assert len(picture) <= MOST, f"{file} has {len(picture)} bytes"
    (DOCS / file).write_bytes(picture)
    print(f"docs/images/{file}, {len(picture)} bytes")


def main() -> int:
    """Takes all screenshots in a new browser."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        profile = Path(folder, "profile")
        profile.mkdir()
        fonts = Path(folder, "fonts.conf")
        fonts.write_text(FONTS)
        os.environ["FONTCONFIG_FILE"] = str(fonts)  # of the browser
        with launched(find(), profile) as browser:
            asyncio.run(take(browser, Path(folder)))
            asyncio.run(take_figures(browser, Path(folder)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
