"""The console with tasks of several scopes, in a browser against the real server."""

from __future__ import annotations

from pathlib import Path
from typing import Final
from urllib.parse import quote

import pytest
from tests.console.served import Stage, staged

pytestmark = pytest.mark.browser

SCOPE: Final = "projects/p/locations/l/collections/c/engines/e/assistants/a"
OTHER: Final = SCOPE.replace("projects/p", "projects/q")
ROWS: Final = (
    "[...document.querySelectorAll('.list tbody tr')]"
    ".map(row => [row.querySelector('a').title, row.querySelector('td.scope')?.title])"
)


async def put(stage: Stage, scope: str, text: str) -> str:
    """Asks `curious` something within a scope, over A2A 1.0, and returns the task's id."""
    message = {"messageId": text, "role": "ROLE_USER", "parts": [{"text": text}]}
    path, headers = f"/{scope}/agents/curious/message:send", {"A2A-Version": "1.0"}
    async with stage.http.post(path, json={"message": message}, headers=headers) as answer:
        return str((await answer.json())["task"]["id"])


async def test_tasks_of_every_scope_are_listed_and_filtered(browser: str, tmp_path: Path) -> None:
    async with staged(browser, tmp_path) as stage:
        page = stage.page
        here = (await stage.put("here"))["id"]
        await page.until(f"document.querySelector('.list tbody a')?.title === '{here}'")
        assert await page.run("document.querySelector('select[aria-label=Scope], th.scope')") is None
        there, elsewhere = await put(stage, SCOPE, "there"), await put(stage, OTHER, "elsewhere")
        await page.until("document.querySelectorAll('.list tbody tr').length === 3")
        rows = [[elsewhere, OTHER], [there, SCOPE], [here, "default"]]
        await page.becomes(ROWS, rows)
        await page.see("3 tasks", ".list footer")
        options = "[...document.querySelectorAll('select[aria-label=Scope] option')].map(option => option.value)"
        await page.becomes(options, ["", "default", SCOPE, OTHER])
        for row in rows:
            await page.choose("select[aria-label=Scope]", row[1])
            await page.until("document.querySelectorAll('.list tbody tr').length === 1")
            await page.until(f"document.querySelector('.list tbody a')?.title === '{row[0]}'")
            await page.becomes(ROWS, [row])
        await page.reload()
        await page.until(f"document.querySelector('.list tbody a')?.title === '{here}'")


async def test_a_task_of_a_scope_is_shown_answered_and_explained_there(browser: str, tmp_path: Path) -> None:
    async with staged(browser, tmp_path) as stage:
        page = stage.page
        task = await put(stage, SCOPE, "paint")
        await page.type("#find", task)
        await page.press("Enter")
        await page.until(f"location.hash.startsWith('#/tasks/{quote(f'{SCOPE}/agents/curious', safe='')}/{task}')")
        await page.see("Which color?", ".conversation")
        await page.click(".details-toggle")
        assert SCOPE in await page.text(".task .details")
        await page.click("[data-tab=execution]")
        await page.see("It waits for a message from its caller", ".execution")
        assert SCOPE in await page.text(".execution")
        await page.click("[data-tab=pushes]")
        await page.see("This task has no push configurations", ".pushes")
        await page.click("[data-tab=wire]")
        await page.see("TASK_STATE_SUBMITTED", ".wire")
        await page.click("[data-tab=conversation]")
        await page.type("#message", "red")
        await page.click(".compose button", "Answer")
        await page.see("You said red.", ".conversation")
        await page.see("completed", ".head")


async def test_a_task_of_a_scope_is_canceled_there(browser: str, tmp_path: Path) -> None:
    async with staged(browser, tmp_path) as stage:
        page = stage.page
        task = await put(stage, SCOPE, "paint")
        await page.until("document.querySelectorAll('.list tbody tr').length === 1")
        await page.click(".list tbody a")
        await page.see("Which color?", ".conversation")
        await page.click(".head button", "Cancel task")
        await page.click("dialog[open] button", "Cancel task")
        await page.see("canceled", ".head .state")
        path = f"/{SCOPE}/agents/curious/tasks/{task}"
        async with stage.http.get(path, headers={"A2A-Version": "1.0"}) as answer:
            assert (await answer.json())["status"]["state"] == "TASK_STATE_CANCELED"
