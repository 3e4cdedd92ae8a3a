"""The list of tasks in a browser: what a row shows, search and filters on the server, pages, and what is empty."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import grpc
import pytest
from pydantic import SecretStr
from tests.console.browser import Page
from tests.console.served import Stage, staged
from tests.console.test_looks import OF_COLORS, issues

from dragoman import AgentError, Turn, agent
from dragoman.ports import Agent
from dragoman_pb.dragoman.ops.v1 import ops_pb2 as ops
from dragoman_pb.dragoman.ops.v1 import ops_pb2_grpc as rpc

pytestmark = pytest.mark.browser

ROWS: Final = "document.querySelectorAll('.list tbody tr').length"
TEXTS: Final = "[...document.querySelectorAll('.list a.row')].map(one => one.innerText)"
UNKNOWN: Final = "01a00000-0000-7000-8000-000000000000"
COUNTS: Final = (
    "Object.fromEntries([...document.querySelectorAll('.states a:not([data-none])')]"
    ".map(tab => [tab.firstChild.data, tab.querySelector('.count')?.innerText ?? '']))"
)
"""The numbers of the states that have tasks."""
CELLS: Final = (
    "Object.fromEntries([...document.querySelector('.list tbody tr').cells].map("
    "cell => [cell.className.split(' ').pop(), cell.innerText]))"
)


def failing() -> Agent:
    """An agent that fails, uses tokens, and has metadata."""

    @agent(id="translate", name="Translate", description="Fails")
    async def translate(turn: Turn) -> str:
        turn.usage(tokens=12_300, cost=0.5)
        turn.metadata["ticket"] = turn.text.split()[-1]
        raise AgentError(f"quota exceeded for {turn.text}")

    return translate


async def until_listed(page: Page, *texts: str) -> None:
    """Waits until these tasks are the rows, from the top, each by what was asked."""
    await page.becomes(TEXTS, texts)


async def test_a_row_shows_what_was_asked_and_why_it_failed(browser: str, tmp_path: Path) -> None:
    async with staged(browser, tmp_path, failing()) as stage:
        page = stage.page
        task = await stage.put("read contract 18", "translate")
        await until_listed(page, "read contract 18")
        await page.see("quota exceeded", ".list .what")  # the row shows its end a little after its creation
        cells = await page.run(CELLS)
        assert cells["of-state"] == "failed"
        assert cells["what"].split("\n")[1] == "AgentError: quota exceeded for read contract 18"
        assert (cells["agent"], cells["spent"]) == ("Translate", "0.5")
        assert cells["duration"].endswith("s")
        # Its id is shown while the pointer is over the row or the row has the focus.
        code = "document.querySelector('.list code.id')"
        assert not await page.run(f"{code}.checkVisibility({{visibilityProperty: true}})")
        await page.run("document.querySelector('.list a.row').focus()")
        await page.until(f"{code}.checkVisibility({{visibilityProperty: true}})")
        await page.becomes(f"{code}.innerText", f"…{task['id'][-12:]}")
        # All tasks are of one principal, so there is no column for it.
        assert "principal" not in cells
        # A working task shows what its agent reported, and the list follows its changes.
        await stage.put("paint")
        await until_listed(page, "paint", "read contract 18")
        await page.see("Which color?", ".list .note")


async def test_rows_beside_a_task_have_two_lines_at_every_width(browser: str, tmp_path: Path) -> None:
    async with staged(browser, tmp_path, failing()) as stage:
        page = stage.page
        await stage.put("I want a refund for order 4711, which arrived broken", "translate")
        waiting = await stage.put("paint")
        await stage.to(f"#/tasks/curious/{waiting['id']}")
        row = "document.querySelector('.list tbody tr:has(a[href*=translate])')"
        for width in (1000, 1440, 1920, 2560):
            await page.view(width, 900)
            await page.until(f"{row}.offsetHeight < 60 && getComputedStyle({row}).display === 'flex'")
            link = f"{row}.querySelector('a.row')"
            assert await page.run(f"{link}.getBoundingClientRect().width") >= 240, width
            await page.becomes("document.scrollingElement.scrollWidth", width)
        # The splitter works by keyboard and pointer, and is where it was after a reload.
        list_width = "document.querySelector('.list').offsetWidth"
        before = await page.run(list_width)
        await page.run("document.querySelector('[role=separator]').focus()")
        await page.press("ArrowRight")
        await page.becomes(list_width, before + 24)
        box = await page.run(
            "(box => ({x: box.x + box.width / 2, y: box.y + 300}))"
            "(document.querySelector('[role=separator]').getBoundingClientRect())"
        )
        for kind, x in (("mousePressed", box["x"]), ("mouseMoved", box["x"] - 100), ("mouseReleased", box["x"] - 100)):
            await page.command(
                "Input.dispatchMouseEvent", type=kind, button="left", buttons=1, clickCount=1, x=x, y=box["y"]
            )
        await page.becomes(list_width, before - 76)
        await page.reload()
        await page.becomes(list_width, before - 76)
        assert await issues(page) == []


async def test_states_are_tabs_with_their_numbers(browser: str, tmp_path: Path) -> None:
    async with staged(browser, tmp_path, failing()) as stage:
        page = stage.page
        for number in range(3):
            await stage.put(f"word {number}", "plain")
        await stage.put("paint")
        await stage.put("contract", "translate")
        await page.until(f"{ROWS} === 5")
        numbers = {"All": "5", "Open": "1", "Input required": "1", "Completed": "3", "Failed": "1"}
        await page.becomes(COUNTS, numbers)
        await page.click(".states a", "Failed")
        await until_listed(page, "contract")
        await page.becomes("document.querySelector('.finder h2').innerText", "Failed tasks")
        await page.until("document.title === 'Failed tasks · Dragoman'")
        await page.becomes(COUNTS, numbers)
        # The address is the filter, also of a page that is opened with it.
        await page.reload()
        await until_listed(page, "contract")
        await page.click(".states a", "Open")
        await until_listed(page, "paint")


async def test_the_list_shows_the_row_of_a_task_that_a_link_opens(browser: str, tmp_path: Path) -> None:
    async with staged(browser, tmp_path) as stage:
        page = stage.page
        first = await stage.put("the first", "plain")
        for number in range(12):
            await stage.put(f"word {number}", "plain")
        await page.view(1280, 500)
        await page.go("about:blank")
        await page.go(f"{stage.url}#/tasks/plain/{first['id']}")
        row = "document.querySelector('.list tr[aria-current]').getBoundingClientRect()"
        await page.until(f"{row}.top > 0 && {row}.bottom <= innerHeight")


async def test_the_server_searches_texts_and_filters(browser: str, tmp_path: Path) -> None:
    async with staged(browser, tmp_path, failing()) as stage:
        page = stage.page
        waiting = await stage.put("paint the fence")
        first = await stage.put("contract 4711", "translate")
        await stage.put("contract 4712", "translate")
        await page.until(f"{ROWS} === 3")
        await page.type("#find", "QUOTA")
        await until_listed(page, "contract 4712", "contract 4711")
        await page.type("#find", "fence")
        await until_listed(page, "paint the fence")
        await page.becomes("location.hash", "#/tasks?q=fence")
        await page.until("document.title === 'Tasks with “fence” · Dragoman'")
        await page.type("#find", first["id"][-9:])
        await until_listed(page, "contract 4711")
        await page.type("#find", "")
        await page.until(f"{ROWS} === 3")
        await page.choose("[aria-label=Agent]", "translate")
        await page.until(f"{ROWS} === 2")
        await page.click(".toggle", "Filters")
        await page.type("[aria-label=Metadata]", "ticket=4711")
        await page.press("Enter")
        await until_listed(page, "contract 4711")
        await page.becomes("document.querySelector('.toggle .badge').innerText", "2")
        await page.click(".chips button", "Clear all")
        await page.until(f"{ROWS} === 3")
        await page.type("[aria-label='Context id']", waiting["contextId"])
        await page.press("Enter")
        await until_listed(page, "paint the fence")
        await page.click("[aria-label^='Remove the filter Context']")
        await page.type("[aria-label=Principal]", "nobody")
        await page.press("Enter")
        await page.see("No matching tasks", ".list")
        await page.click(".empty-state button", "Clear filters")
        await page.choose("[aria-label=Changed]", "hour")
        await page.until(f"location.hash === '#/tasks?age=hour' && {ROWS} === 3")
        await page.choose("[aria-label=Changed]", "still-10m")
        await page.see("No matching tasks", ".list")


async def test_an_id_opens_its_task(browser: str, tmp_path: Path) -> None:
    async with staged(browser, tmp_path) as stage:
        page = stage.page
        waiting = await stage.put("paint")
        await stage.put("word", "plain")
        await stage.to("#/tasks?agent=plain")
        await page.until(f"{ROWS} === 1")
        await page.type("#find", waiting["id"])
        await page.press("Enter")
        await page.see("Which color?", ".conversation")
        await page.becomes("document.querySelector('#find').value", "")
        await page.type("#find", UNKNOWN)
        await page.press("Enter")
        await page.see(f"No visible task has the id {UNKNOWN}", ".list .problem")
        # It stays after the time in which a typed text becomes a search.
        await page.run("new Promise(done => setTimeout(done, 400))")
        await page.see(f"No visible task has the id {UNKNOWN}", ".list .problem")
        await page.becomes("[document.querySelector('#find').value, location.hash.includes('q=')]", [UNKNOWN, False])


async def test_an_address_with_the_id_alone_leads_to_the_task(browser: str, tmp_path: Path) -> None:
    async with staged(browser, tmp_path) as stage:
        page, waiting = stage.page, await stage.put("paint")
        await stage.to(f"#/tasks/{waiting['id']}?tab=wire")
        await page.see("TASK_STATE_SUBMITTED", ".panel")
        await page.becomes("location.hash", f"#/tasks/curious/{waiting['id']}?tab=wire")
        await stage.to(f"#/tasks/{UNKNOWN}")
        await page.see(f"You see no task with the id {UNKNOWN}.", "#main")
        await page.becomes("document.title", "Task not found · Dragoman")
        assert await issues(page) == []
        await page.click(".empty-state a", "See all tasks")
        await until_listed(page, "paint")


async def test_rows_and_titles_have_no_marks_of_markdown(browser: str, tmp_path: Path) -> None:
    async with staged(browser, tmp_path) as stage:
        task = await stage.put("Read **1871**, `page 3` of [the book](https://a.example/), 2 * 3 * 4", "plain")
        plain = "Read 1871, page 3 of the book, 2 * 3 * 4"
        await until_listed(stage.page, plain)
        await stage.to(f"#/tasks/plain/{task['id']}")
        await stage.page.see(plain, "#task-title")


async def test_further_tasks_are_read_page_by_page(browser: str, tmp_path: Path) -> None:
    async with staged(browser, tmp_path) as stage:
        page = stage.page
        for number in range(63):
            await stage.put(f"word {number:02}", "plain")
        await page.until(f"{ROWS} === 50")
        await page.see("50 of 63 tasks shown", ".list footer")
        await page.click(".further button", "Show 50 more")
        texts = [f"word {number:02}" for number in reversed(range(63))]
        await until_listed(page, *texts)
        # New tasks appear above them, and no task is lost or repeated.
        await stage.put("word 63", "plain")
        await until_listed(page, "word 63", *texts)
        await page.see("64 tasks", ".list footer")


@asynccontextmanager
async def signed_in(browser: str, tmp_path: Path, *names: str) -> AsyncIterator[tuple[Stage, dict[str, str]]]:
    """A console that asks for credentials, and the keys of these principals."""
    async with (
        staged(browser, tmp_path, token=SecretStr("boss"), api_keys=True) as stage,
        grpc.aio.insecure_channel(str(stage.app.grpc)) as channel,
    ):
        stub, boss = rpc.OpsServiceStub(channel), (("authorization", "Bearer boss"),)
        yield (
            stage,
            {name: (await stub.CreateKey(ops.CreateKeyRequest(name=name), metadata=boss)).text for name in names},
        )


async def put_as(stage: Stage, key: str, *texts: str) -> None:
    """Sends texts to the agent `plain` with this key."""
    for text in texts:
        body = {"message": {"messageId": text, "role": "ROLE_USER", "parts": [{"text": text}]}}
        async with stage.http.post(
            "/plain/message:send", json=body, headers={"Authorization": f"Bearer {key}"}
        ) as sent:
            assert sent.status == 200


async def sign_in(page: Page, key: str) -> None:
    """Enters a key on the sign-in page."""
    await page.type("#key", key)
    await page.press("Enter")
    await page.until("document.querySelector('.account')")


async def test_operators_see_the_tasks_of_all_principals(browser: str, tmp_path: Path) -> None:
    async with signed_in(browser, tmp_path, "ann", "bob") as (stage, keys):
        page = stage.page
        await put_as(stage, keys["ann"], "of ann")
        await put_as(stage, keys["bob"], "of bob")
        await sign_in(page, "boss")
        await until_listed(page, "of bob", "of ann")
        cells = "[...document.querySelectorAll('.list td.principal')].map(cell => cell.innerText)"
        await page.becomes(cells, ["bob", "ann"])
        await page.click(".toggle", "Filters")
        await page.type("[aria-label=Principal]", "ann")
        await page.press("Enter")
        await until_listed(page, "of ann")


async def test_callers_search_what_is_loaded_and_the_list_says_so(browser: str, tmp_path: Path) -> None:
    async with signed_in(browser, tmp_path, "ann", "bob") as (stage, keys):
        page = stage.page
        await put_as(stage, keys["bob"], "of bob")
        await put_as(stage, keys["ann"], *(f"of ann {number}" for number in range(52)))
        await sign_in(page, keys["ann"])
        await page.until(f"{ROWS} === 50")
        await page.see("50 of 52 tasks shown", ".list footer")
        assert await page.run("document.querySelector('.states .count, [aria-label=Changed]')") is None
        await page.type("#find", "no such text")
        await page.see("Searched 50 loaded tasks of 52.", ".list .empty-state")
        await page.see("0 of 50 loaded tasks match; 2 more are not loaded", ".list footer")
        await page.click(".empty-state button", "Load more tasks")
        await page.see("Searched 52 loaded tasks of 52.", ".list .empty-state")
        await page.click(".empty-state button", "Clear filters")
        await page.until(f"{ROWS} === 52")
        await page.click(".states a", "Failed")
        await page.see("No matching tasks", ".list")


async def test_axe_reports_no_issues_in_the_list(browser: str, tmp_path: Path) -> None:
    async with staged(browser, tmp_path, failing()) as stage:
        page = stage.page
        await stage.put("contract", "translate")
        await stage.put("paint")
        await stage.put("word", "plain")
        for width in (1440, 380):
            await page.view(width, 760)
            for place, text in (
                ("#/tasks", "Which color?"),
                ("#/tasks?state=FAILED&q=contract&agent=translate&principal=anonymous", "quota exceeded"),
                ("#/tasks?q=nothing", "No matching tasks"),
            ):
                await page.prefer("light")
                await stage.to(place)
                await page.see(text, ".list")
                if width == 1440:
                    await page.until("document.querySelector('.toggle').click() ?? true")
                assert await issues(page) == [], place
                await page.prefer("dark")
                assert await issues(page, *OF_COLORS) == [], place


async def test_the_list_works_by_keyboard(browser: str, tmp_path: Path) -> None:
    async with staged(browser, tmp_path) as stage:
        page = stage.page
        for text in ("one", "two"):
            await stage.put(text, "plain")
        await page.until(f"{ROWS} === 2")
        await page.press("/")
        await page.until("document.activeElement.id === 'find'")
        await page.press("ArrowDown")
        await page.press("ArrowDown")
        await page.until("document.activeElement.innerText === 'one'")
        await page.press("Enter")
        await page.see("plainly: one", ".conversation")


async def test_the_list_is_followed_again_after_the_server_was_away(browser: str, tmp_path: Path) -> None:
    async with staged(browser, tmp_path) as stage:
        page = stage.page
        await stage.put("before", "plain")
        await page.until(f"{ROWS} === 1")
        await page.see("live", ".finder-head")
        stage.proxy.cut()
        await page.see("connection lost", ".finder-head")
        await stage.put("meanwhile", "plain")
        stage.proxy.restore()
        await until_listed(page, "meanwhile", "before")
        await page.see("live", ".finder-head")
