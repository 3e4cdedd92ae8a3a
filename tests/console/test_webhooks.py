"""The console's page of webhooks: failing receivers, and redelivery of what was given up."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import SecretStr
from tests.console.served import Stage, staged
from tests.console.test_looks import OF_COLORS, TOO_WIDE, issues
from tests.runtime.push.receivers import answered

pytestmark = [
    pytest.mark.browser,
    pytest.mark.timeout(180),  # axe checks every element, which is slow on a busy machine
]

DOWN = "https://down.example/hook/"
BUSY = "https://busy.example/events"
CARDS = "[...document.querySelectorAll('.card')].map(card => [card.getAttribute('aria-label'), card.dataset.state])"


async def register(stage: Stage, text: str, url: str) -> str:
    """Begins a task that ends at once, with a webhook; returns its id."""
    configuration = {"taskPushNotificationConfig": {"url": url}}
    return str((await stage.put(text, "plain", configuration=configuration))["id"])


async def states(stage: Stage) -> list[str]:
    """The states of all configurations with undelivered events."""
    async with stage.http.get("/operations/pushes") as answer:
        return [one["state"] for one in (await answer.json()).get("configs", [])]


async def test_receivers_that_fail_come_first_and_get_their_events_again(browser: str, tmp_path: Path) -> None:
    async with staged(browser, tmp_path, push_first_wait=0.05, push_give_up="1s") as stage:
        page = stage.page
        await stage.to("#/webhooks")
        await page.see("No event waits for a webhook.", ".empty-state")
        dead = [DOWN + name for name in ("one", "two")]
        for url in dead:
            stage.receivers.answer(url, then=answered(503))
            await register(stage, url[-3:], url)
        while await states(stage) != ["PUSH_STATE_GIVEN_UP"] * 2:
            await page.click("button", "Refresh")
        # The other receiver fails, too. It asks for an hour, so it is not given up while the test runs.
        stage.receivers.answer(BUSY, then=answered(429, retry_after="3600"))
        task = await register(stage, "busy", BUSY)
        await stage.receivers.until(lambda: bool(stage.receivers.at(BUSY)))
        failing = [["https://down.example", "given up"], ["https://busy.example", "failing"]]
        while await page.run(CARDS) != failing:  # until the response has been stored
            await page.click("button", "Refresh")
        # Attempts are counted for each webhook, so the same reason has several numbers.
        await page.becomes("document.querySelector('.card .why').innerText", "answered 503")
        await page.see("2 receivers failing", ".page")
        names = "[...document.querySelectorAll('.card')].map(card => card.querySelectorAll('dt')[2].innerText)"
        assert await page.run(names) == ["tasks", "task"]
        # A task is a link to its own deliveries.
        await page.click(".card[data-state=failing] summary")
        link = await page.run("document.querySelector('.card[data-state=failing] a').hash")
        assert link == f"#/tasks/plain/{task}?tab=pushes"
        await page.prefer("light")
        assert await issues(page) == []
        await page.prefer("dark")
        assert await issues(page, *OF_COLORS) == []
        # A phone has its tasks one below the other.
        await page.view(320, 800)
        await page.becomes("document.scrollingElement.scrollWidth", 320)
        assert await page.run(TOO_WIDE) == []
        await page.view(1280, 800)
        # All dead letters of a receiver.
        for url in dead:
            stage.receivers.answer(url)
        await page.click(".card button", "Redeliver dead letters")
        await page.until(f"JSON.stringify({CARDS}) === JSON.stringify([['https://busy.example', 'failing']])")
        for url in dead:
            assert stage.receivers.taken(url)
        # One task's.
        stage.receivers.answer(BUSY)
        await page.click(".card td button", "Redeliver")
        await page.see("No event waits for a webhook.", ".empty-state")
        assert stage.receivers.taken(BUSY)


async def test_callers_without_the_grant_do_not_see_webhooks(browser: str, tmp_path: Path) -> None:
    async with staged(browser, tmp_path, token=SecretStr("boss"), public_agents="plain") as stage:
        page = stage.page
        await stage.to("#/webhooks")
        await page.see("Sign in to see webhooks.", ".empty-state")
        await page.click(".empty-state button", "Sign in")
        await page.type("#key", "boss")
        await page.press("Enter")
        await page.see("No event waits for a webhook.", ".empty-state")
