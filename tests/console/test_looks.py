"""The console in light and dark, in narrow windows, by keyboard, and its accessibility (axe)."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from importlib.metadata import distribution
from pathlib import Path
from typing import Final

import pytest
from tests.console.browser import Page
from tests.console.served import Stage, staged

pytestmark = [
    pytest.mark.browser,
    pytest.mark.timeout(180),  # axe checks every element, which is slow on a busy machine
]

GROUND: Final = "getComputedStyle(document.body).backgroundColor"
OF_COLORS: Final = ("color-contrast", "link-in-text-block")
"""The rules of axe whose result may differ between light and dark."""

LIGHT: Final = "rgb(255, 255, 255)"

TOO_WIDE: Final = """
[...document.querySelectorAll('body *')].filter(one => {
  const box = one.getBoundingClientRect();
  if (!box.width || box.right <= innerWidth + 0.5) return false;
  for (let around = one; around; around = around.parentElement) {
    const scrolls = ['auto', 'scroll'].includes(getComputedStyle(around).overflowX);
    if (scrolls && around.clientWidth <= innerWidth) return false;
  }
  return !one.closest('.hidden, .skip');
}).map(one => one.outerHTML.slice(0, 120))
"""
"""Finds elements wider than the window, except in scrolling containers."""


@cache
def axe() -> str:
    return Path(str(distribution("axe-playwright-python").locate_file("axe_playwright_python/axe.min.js"))).read_text()


async def issues(page: Page, *rules: str) -> list[str]:
    """Returns axe's findings of any impact in the current view, by these rules or by all."""
    await page.run("document.getAnimations().forEach(one => one.cancel())")
    if await page.run("typeof axe") == "undefined":
        await page.run(axe() + "; 0")
    only = f"runOnly: {json.dumps(rules)}" if rules else ""
    found = await page.run(
        f"axe.run(document, {{resultTypes: ['violations'], {only}}}).then(found => found.violations.flatMap("
        "one => one.nodes.map(node => `${one.impact} ${one.id}: ${node.html.slice(0, 160)} ${node.failureSummary}`)))"
    )
    assert isinstance(found, list)
    return found


@asynccontextmanager
async def furnished(browser: str, tmp_path: Path) -> AsyncIterator[tuple[Stage, dict[str, str]]]:
    """A console with content in every view; yields a text shown in each view by its URL."""
    async with staged(browser, tmp_path) as stage:
        pushing = {
            "taskPushNotificationConfig": {"url": "https://hooks.example/a-rather-long-path/for-a-narrow-window"}
        }
        waiting = await stage.put("paint", configuration=pushing)
        spoken = {"messageId": "m-red", "role": "ROLE_USER", "taskId": waiting["id"], "parts": [{"text": "red"}]}
        async with stage.http.post("/curious/message:send", json={"message": spoken}) as answer:
            assert answer.status == 200
        await stage.put("word", "plain")
        await stage.put("ask me", "curious")
        task = f"#/tasks/curious/{waiting['id']}"
        await stage.page.until("document.querySelectorAll('.list tbody tr').length === 3")
        yield (
            stage,
            {
                "#/tasks": "input required",
                f"{task}?tab=conversation": "You said red.",
                f"{task}?tab=artifacts": "colors.csv",
                f"{task}?tab=timeline": "in 2 turns",
                f"{task}?tab=execution": "Nothing: the task has ended.",
                f"{task}?tab=pushes": "HTTP 200",
                f"{task}?tab=wire": '"task"',
                "#/new": "Try an example",
                "#/overview": "Waiting for callers",
                "#/agents": "root",
                "#/agents/curious": "Interfaces",
                "#/agents/nobody": "There is no agent nobody.",
                "#/usage": "Total",
                "#/usage?by=agent&measure=cost": "Curious",
                "#/webhooks": "No event waits for a webhook.",
                "#/nowhere": "The console has no page",
            },
        )


async def test_axe_reports_no_issues(browser: str, tmp_path: Path) -> None:
    async with furnished(browser, tmp_path) as (stage, places):
        page = stage.page
        for place, text in places.items():
            await page.prefer("light")
            await stage.to(place)
            await page.see(text, "#main")
            assert await issues(page) == [], place
            await page.prefer("dark")
            assert await issues(page, *OF_COLORS) == [], place
        await page.click(".account > button")
        assert await issues(page) == []
        await page.click(".account [role=menuitem]", "Keyboard shortcuts")
        await page.see("Single-key shortcuts", "dialog[open]")
        assert await issues(page) == []


async def test_every_view_fits_narrow_and_wide_windows(browser: str, tmp_path: Path) -> None:
    async with furnished(browser, tmp_path) as (stage, places):
        page = stage.page
        for width in (2560, 320):
            await page.view(width, 700)
            for place, text in places.items():
                await stage.to(place)
                await page.see(text, "#main")
                await page.becomes("document.scrollingElement.scrollWidth", width, place)
                await page.becomes(TOO_WIDE, [], place)
                if "conversation" in place and width == 320:
                    assert await issues(page) == [], place
        # One pane at a time, with a link back.
        await stage.to("#/tasks")
        await page.until("!document.querySelector('.detail')")
        await page.click(".list a.row")
        await page.until("!document.querySelector('.list').checkVisibility()")
        await page.click(".back", "Tasks")
        await page.until("document.querySelector('.list').checkVisibility()")


async def choose_colors(page: Page, name: str) -> None:
    """Chooses the colors in the account menu."""
    await page.click(".account > button")
    await page.click(".account [role=menuitemradio]", name)


async def test_light_and_dark_follow_the_system_until_the_user_chooses(browser: str, tmp_path: Path) -> None:
    async with staged(browser, tmp_path) as stage:
        page = stage.page
        await page.prefer("light")
        await page.becomes(GROUND, LIGHT)
        await page.prefer("dark")
        dark = await page.run(GROUND)
        assert dark != LIGHT
        await choose_colors(page, "Light")
        await page.until(f"{GROUND} === '{LIGHT}'")
        await page.reload()
        await page.until(f"{GROUND} === '{LIGHT}'")
        await page.click(".account > button")
        await page.becomes("document.querySelector('.account [aria-checked=true]').innerText", "Light")
        await page.press("Escape")
        await page.prefer("light")
        await choose_colors(page, "Dark")
        await page.until(f"{GROUND} === '{dark}'")


async def test_all_actions_work_by_keyboard(browser: str, tmp_path: Path) -> None:
    async with staged(browser, tmp_path) as stage:
        page = stage.page
        focus = "document.activeElement.id"
        await page.see("No tasks yet", ".list")
        await page.press("n")
        await page.until(f"{focus} === 'message'")
        await page.command("Input.insertText", text="first")
        await page.press("Enter", ctrl=True)
        await page.see("first", ".conversation")
        stage.conductor.say("said", None)
        await page.see("completed", ".head")
        second = await stage.put("second")
        await page.until("document.querySelectorAll('.list tbody tr').length === 2")
        await page.press("Escape")
        await page.press("Escape")
        await page.until("location.hash === '#/tasks' && document.querySelector('.alone')")
        await page.press("j")
        await page.until(f"location.hash.includes('{second['id']}')")
        await page.see("Which color?", ".conversation")
        await page.press("j")
        await page.see("said", ".conversation")
        await page.press("k")
        await page.see("Which color?", ".conversation")
        for key, text in (("3", "in 1 turn"), ("4", "It waits for a message"), ("6", "Event"), ("1", "Which color?")):
            await page.press(key)
            await page.see(text, ".panel")
        await page.run("document.querySelector('[role=tab][aria-selected=true]').focus()")
        await page.press("ArrowRight")
        await page.until("document.activeElement.innerText.startsWith('Artifacts')")
        await page.see("No artifacts", ".panel")
        await page.press("n")
        await page.until(f"{focus} === 'message'")
        await page.command("Input.insertText", text="blue")
        await page.press("Enter", ctrl=True)
        await page.see("completed", ".head")
        await page.press("Escape")
        await page.press("/")
        await page.until(f"{focus} === 'find'")
        await page.command("Input.insertText", text=second["id"])
        await page.press("Enter")
        await page.see("You said blue.", ".detail")


async def test_single_key_shortcuts_can_be_turned_off(browser: str, tmp_path: Path) -> None:
    async with staged(browser, tmp_path) as stage:
        page = stage.page
        await page.see("No tasks yet", ".list")
        await page.press("?")
        await page.click("dialog[open] label", "Single-key shortcuts")
        await page.press("Escape")
        await page.until("!document.querySelector('dialog[open]')")
        await page.press("a")
        await page.press("?")
        await page.becomes("[location.hash, document.querySelector('dialog[open]')]", ["#/tasks", None])
        await page.reload()
        await page.press("a")
        await page.see("No tasks yet", ".list")
        await page.becomes("location.hash", "#/tasks")
