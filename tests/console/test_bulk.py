"""Actions on all tasks of a filter, in a browser."""

from __future__ import annotations

from pathlib import Path

import grpc
import pytest
from pydantic import SecretStr
from tests.console.served import staged
from tests.console.test_looks import issues
from tests.console.test_task_list import ROWS, TEXTS, failing, sign_in

from dragoman_pb.dragoman.ops.v1 import ops_pb2 as ops
from dragoman_pb.dragoman.ops.v1 import ops_pb2_grpc as rpc

pytestmark = pytest.mark.browser


async def test_all_failed_tasks_of_a_filter_are_rerun_in_two_clicks(browser: str, tmp_path: Path) -> None:
    async with staged(browser, tmp_path, failing()) as stage:
        page = stage.page
        for number in range(3):
            await stage.put(f"contract {number}", "translate")
        await stage.put("word", "plain")
        await page.until(f"{ROWS} === 4")
        assert await page.run("document.querySelector('.bulk')") is None
        await stage.to("#/tasks?q=quota&state=FAILED")
        await page.until(f"{ROWS} === 3")
        await page.click(".bulk button", "Rerun 3 tasks")
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
        await page.click(".bulk button", "Cancel 2 open tasks")
        await page.click("dialog[open] button", "Keep them")
        await page.until("!document.querySelector('.bulk dialog')")  # it is closed a moment before the page knows
        await page.click(".bulk button", "Cancel 2 open tasks")
        await page.click("dialog[open] .primary", "Cancel 2 open tasks")
        await page.see("2 tasks canceled", "dialog[open]")
        await page.click("dialog[open] button", "Close")
        await page.see("No matching tasks", ".list")
        await stage.to("#/tasks?state=CANCELED")
        await page.until(f"{ROWS} === 2")
        await page.click(".bulk button", "Erase 2 tasks")
        await page.click("dialog[open] .primary", "Erase 2 tasks")
        await page.see("2 tasks erased", "dialog[open]")
        await page.click("dialog[open] button", "Close")
        await stage.to("#/tasks")
        await page.until(f"{ROWS} === 1")
        async with stage.http.get(f"/plain/tasks/{ended['id']}") as answer:
            assert answer.status == 200


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
        assert await stage.page.run("document.querySelector('.bulk')") is None
