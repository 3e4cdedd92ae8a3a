"""Why tasks failed, at the console: on the task, in the list, and in groups that are rerun together."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import aiohttp
import pytest
from pydantic import SecretStr
from tests.console.served import Stage, staged
from tests.console.test_looks import TOO_WIDE, issues

from dragoman import Turn, agent

pytestmark = [pytest.mark.browser, pytest.mark.timeout(180)]

KEY: Final = "only-for-the-shop-tests"
ERROR: Final = "ValueError: order 1 has no price"
FIRST: Final = ".groups tbody tr:first-child"


async def price(order: str) -> int:
    raise ValueError(f"{order} has no price")


@agent(id="shop", name="Shop", description="Prices orders")
async def shop(turn: Turn) -> str:
    if turn.text.startswith("stock"):
        raise KeyError("warehouse 7")
    return f"{await turn.step('find the price', price, turn.text)}"


async def fail(stage: Stage) -> str:
    """Sends six tasks as another caller. Returns the id of the last."""
    task = ""
    async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {KEY}"}) as http:
        for text in ("order 4", "order 3", "order 2", "stock of 7", "stock of 8", "order 1"):
            message = {"messageId": f"m-{text}", "role": "ROLE_USER", "parts": [{"text": text}]}
            url = f"http://{stage.app.http}/shop/message:send"
            async with http.post(url, json={"message": message}) as answer:
                task = (await answer.json())["task"]["id"]
    return task


async def cells(stage: Stage) -> list[str]:
    """Tasks, reruns and agent of the first group."""
    found = await stage.page.run(f"[...document.querySelectorAll('{FIRST} td')].slice(0, 3).map(one => one.innerText)")
    return [str(text) for text in found]


async def test_four_clicks_lead_from_the_sign_in_to_the_rerun_of_a_cause(browser: str, tmp_path: Path) -> None:
    async with staged(browser, tmp_path, shop, token=SecretStr(KEY)) as stage:
        page = stage.page
        await fail(stage)
        await page.go("about:blank")
        await page.go(stage.url)
        await page.type(".sign-in input", KEY)
        await page.click(".sign-in button.primary")
        await page.see(f"the last one with {ERROR}", ".concerns")
        await page.click(".concerns a", "Shop is failing")
        await page.see(ERROR, f"{FIRST} th")
        assert await cells(stage) == ["4", "\u2013", "Shop"]
        await page.see("in price · step find the price", f"{FIRST} small")
        await page.click(f"{FIRST} button", "Rerun")
        await page.see(ERROR, "dialog")
        assert "more" not in await page.text("dialog")
        await page.click("dialog .primary", "Rerun 4 tasks")
        await page.see("4 tasks started again", "dialog")
        await page.see("See the new tasks", "dialog a")
        await page.click("dialog button", "Close")
        # These fail, too. A task is rerun once with its group, however often that is rerun.
        await page.click(".top nav a", "Overview")
        await page.see("Shop is failing", ".concerns")
        await page.click(".top nav a", "Failures")
        await page.see("4 of 8", FIRST)
        await page.see("failed since", FIRST)
        await page.click(f"{FIRST} button", "Rerun")
        await page.click("dialog .primary", "Rerun 8 tasks")
        await page.see("4 tasks started again, 4 skipped: they were rerun before", "dialog")
        await page.click("dialog a", "See the new tasks")
        await page.becomes("document.querySelectorAll('.list tbody tr').length", 14)


async def test_a_group_opens_to_its_frames_and_leads_to_its_tasks(browser: str, tmp_path: Path) -> None:
    async with staged(browser, tmp_path, shop, token=SecretStr(KEY)) as stage:
        page = stage.page
        task = await fail(stage)
        await page.type(".sign-in input", KEY)
        await page.click(".sign-in button.primary")
        await page.see(ERROR, ".list tbody")
        await page.press("f")
        await page.until("location.hash === '#/failures'")
        await page.see(ERROR, f"{FIRST} .opener")
        await page.run("document.querySelector('.opener').focus()")
        await page.press("Enter")
        await page.see('raise ValueError(f"{order} has no price")', ".contents .frames")
        assert await page.run("document.querySelector('.opener').ariaExpanded") == "true"
        await page.press("Enter")
        await page.becomes("document.querySelectorAll('.contents').length", 0)
        await page.press("Enter")
        for width in (320, 820, 2560):
            await page.view(width, 700)
            assert await page.run(TOO_WIDE) == [], width
            assert await issues(page, "target-size", "scrollable-region-focusable") == []
        await page.click(".contents a", "See the 4 tasks")
        await page.becomes("document.querySelectorAll('.list tbody tr').length", 4)
        await page.see(f"Cause: {ERROR}", ".chips")
        await page.run("history.back()")
        await page.click(f"{FIRST} td a", "…")
        await page.until(f"location.hash.startsWith('#/tasks/shop/{task}')")
        await page.see(ERROR, ".failure h3")
        await stage.to("#/failures?sort=last")
        await page.see(ERROR, FIRST)
        message = {"messageId": "m-last", "role": "ROLE_USER", "parts": [{"text": "stock of 9"}]}
        headers = {"Authorization": f"Bearer {KEY}"}
        async with stage.http.post("/shop/message:send", json={"message": message}, headers=headers) as answer:
            assert answer.status == 200
        await page.reload()
        await page.see("KeyError: 'warehouse 7'", FIRST)
        await page.see("3", f"{FIRST} td")


@pytest.mark.parametrize("colors", ["light", "dark"])
async def test_a_failed_task_shows_its_exception_first(browser: str, tmp_path: Path, colors: str) -> None:
    async with staged(browser, tmp_path, shop, token=SecretStr(KEY)) as stage:
        page = stage.page
        task = await fail(stage)
        await page.prefer(colors)
        await page.type(".sign-in input", KEY)
        await page.click(".sign-in button.primary")
        await stage.to("#/tasks?state=FAILED")
        await page.see(ERROR, ".list tbody tr:first-child .note")
        await stage.to(f"#/tasks/shop/{task}")
        await page.see(ERROR, ".failure h3")
        await page.see("in step find the price, attempt 1", ".failure")
        await page.see("What the caller is told:", ".failure + .told")
        await page.see("The agent failed.", ".told + .notice")
        assert await page.text(".failure .frames li:first-child pre") == 'raise ValueError(f"{order} has no price")'
        assert await issues(page) == []
        await page.click(".failure a", "Tasks that failed like this")
        await page.becomes("document.querySelectorAll('.opener').length", 1)
        await page.see("Where it was raised", ".contents")
        assert await issues(page) == []
        await page.click(".contents a", "See the 4 tasks")
        await page.becomes("document.querySelectorAll('.list tbody tr').length", 4)
        await page.click(".list a", "Group by cause")
        await page.becomes("document.querySelectorAll('.opener').length", 2)
