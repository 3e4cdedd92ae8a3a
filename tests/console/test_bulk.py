"""Actions on all tasks of a filter, in a browser."""

from __future__ import annotations

from pathlib import Path

import grpc
import pytest
from pydantic import SecretStr
from tests.console.browser import Page
from tests.console.served import staged
from tests.console.test_looks import issues
from tests.console.test_task_list import ROWS, TEXTS, failing, sign_in

from dragoman_pb.dragoman.ops.v1 import ops_pb2 as ops
from dragoman_pb.dragoman.ops.v1 import ops_pb2_grpc as rpc

pytestmark = pytest.mark.browser


async def choose(page: Page, action: str) -> None:
    """Opens the menu of actions that cannot be undone, and chooses one."""
    await page.click(".selection .menu > button")
    await page.click(".selection [role=menuitem]", action)


async def test_all_failed_tasks_of_a_filter_are_rerun_in_two_clicks(browser: str, tmp_path: Path) -> None:
    async with staged(browser, tmp_path, failing()) as stage:
        page = stage.page
        for number in range(3):
            await stage.put(f"contract {number}", "translate")
        await stage.put("word", "plain")
        await page.until(f"{ROWS} === 4")
        # Without a selection there is nothing to act on.
        assert await page.run("document.querySelector('.selection')") is None
        await stage.to("#/tasks?q=quota&state=FAILED")
        await page.until(f"{ROWS} === 3")
        assert await page.run("document.querySelector('.selection button')") is None
        await page.click(".selection label", "Select all 3")
        await page.click(".selection button", "Rerun 3 tasks")
        await page.see("Rerun 3 tasks?", "dialog[open] h2")
        for text in ("contract 2", "Text: quota", "State: failed"):
            await page.see(text, "dialog[open]")
        assert await issues(page) == []
        await page.click("dialog[open] .primary", "Rerun 3 tasks")
        await page.see("3 tasks started again", "dialog[open]")
        await page.click("dialog[open] button", "Close")
        await page.becomes(f"{TEXTS}.sort()", [f"contract {number}" for number in (0, 0, 1, 1, 2, 2)])


async def test_what_is_open_is_canceled_and_erased(browser: str, tmp_path: Path) -> None:
    async with staged(browser, tmp_path) as stage:
        page = stage.page
        for number in range(2):
            await stage.put(f"paint {number}")
        ended = await stage.put("word", "plain")
        await stage.to("#/tasks?state=OPEN")
        await page.until(f"{ROWS} === 2")
        await page.click(".selection label", "Select all 2")
        await choose(page, "Cancel 2 open tasks")
        await page.click("dialog[open] button", "Keep them")
        await page.until("!document.querySelector('.bulk-dialog')")  # it is closed a moment before the page knows
        await choose(page, "Cancel 2 open tasks")
        await page.click("dialog[open] .primary", "Cancel 2 open tasks")
        await page.see("2 tasks canceled", "dialog[open]")
        await page.click("dialog[open] button", "Close")
        await page.see("No matching tasks", ".list")
        await stage.to("#/tasks?state=CANCELED")
        await page.until(f"{ROWS} === 2")
        await page.click(".selection label", "Select all 2")
        await choose(page, "Erase 2 tasks")
        await page.click("dialog[open] .primary", "Erase 2 tasks")
        await page.see("2 tasks erased", "dialog[open]")
        await page.click("dialog[open] button", "Close")
        await stage.to("#/tasks")
        await page.until(f"{ROWS} === 1")
        async with stage.http.get(f"/plain/tasks/{ended['id']}") as answer:
            assert answer.status == 200


async def test_ticked_tasks_are_acted_on_and_no_others(browser: str, tmp_path: Path) -> None:
    async with staged(browser, tmp_path) as stage:
        page = stage.page
        for text in ("paint 0", "paint 1", "paint 2"):
            await stage.put(text)
        await page.until(f"{ROWS} === 3")
        await page.click(".list [aria-label='Select paint 0']")
        await page.see("1 selected", ".selection")
        # The key x selects the focused row.
        await page.run("document.querySelectorAll('.list a.row')[0].focus()")
        await page.press("x")
        await page.see("2 selected", ".selection")
        assert await page.run("document.querySelector('.selection > button:not(.plain)')") is None  # nothing to rerun
        await page.click(".selection .menu > button")
        await page.until("document.activeElement.innerText === 'Cancel 2 open tasks…'")
        assert await issues(page) == []
        await page.press("ArrowDown")
        await page.until("document.activeElement.innerText === 'Erase 2 tasks…'")
        await page.press("Escape")
        await page.until("document.activeElement.ariaLabel === 'More actions'")
        await choose(page, "Erase 2 tasks")
        await page.click("dialog[open] .primary", "Erase 2 tasks")
        await page.see("2 tasks erased", "dialog[open]")
        await page.click("dialog[open] button", "Close")
        await page.becomes(TEXTS, ["paint 1"])
        await page.until("!document.querySelector('.selection')")


async def test_a_link_with_an_unknown_filter_selects_nothing(browser: str, tmp_path: Path) -> None:
    async with staged(browser, tmp_path, failing()) as stage:
        page = stage.page
        await stage.put("contract", "translate")
        await stage.put("word", "plain")
        await page.until(f"{ROWS} === 2")
        # Another spelling is corrected, in the address too.
        await stage.to("#/tasks?state=failed")
        await page.becomes(TEXTS, ["contract"])
        await page.becomes("location.hash", "#/tasks?state=FAILED")
        await page.becomes("document.querySelector('.states [aria-current]').dataset.state", "FAILED")
        await stage.to("#/tasks?state=broken&age=hour")
        await page.see("“broken” is no value of state. Use one of OPEN, SUBMITTED", ".list [role=alert]")
        await page.becomes("document.querySelectorAll('.list tbody tr, .selection').length", 0)
        await page.click(".list button", "Clear filters")
        await page.until(f"{ROWS} === 2")


async def test_viewers_see_all_tasks_but_change_none(browser: str, tmp_path: Path) -> None:
    async with (
        staged(browser, tmp_path, token=SecretStr("boss"), api_keys=True) as stage,
        grpc.aio.insecure_channel(str(stage.app.grpc)) as channel,
    ):
        request = ops.CreateKeyRequest(name="vera", grants=["viewer"])
        vera = await rpc.OpsServiceStub(channel).CreateKey(request, metadata=(("authorization", "Bearer boss"),))
        message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "paint"}]}
        boss = {"Authorization": "Bearer boss"}
        async with stage.http.post("/curious/message:send", json={"message": message}, headers=boss) as answer:
            assert answer.status == 200
        await sign_in(stage.page, vera.text)
        await stage.to("#/tasks?state=OPEN")
        await stage.page.until(f"{ROWS} === 1")
        assert await stage.page.run("document.querySelector('.selection, .list [type=checkbox]')") is None
