"""The console's frame: titles, navigation, unknown pages, and what fingers need."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Final

import pytest
from tests.console.browser import Page
from tests.console.served import staged

import dragoman

pytestmark = [pytest.mark.browser, pytest.mark.timeout(180)]

PLACES: Final = ("overview", "tasks", "agents", "agents/curious", "usage", "usage?agent=curious", "webhooks", "new")

TOO_SMALL: Final = """
[...document.querySelectorAll('button, select, input, .button, summary, nav a, [role=tab]')].filter(one => {
  const box = one.getBoundingClientRect();
  if (!one.checkVisibility() || !box.height || one.closest('.hidden, .skip') || one.type === 'checkbox') return false;
  return box.height < 44;
}).map(one => `${one.outerHTML.slice(0, 120)} ${one.getBoundingClientRect().height}`)
"""
"""Controls that a finger misses: less than 44 px high."""

ZOOMS: Final = """
[...document.querySelectorAll('input:not([type=checkbox]), select, textarea')]
  .filter(one => parseFloat(getComputedStyle(one).fontSize) < 16).map(one => one.outerHTML.slice(0, 120))
"""
"""Fields into which a phone zooms when they get the focus: less than 16 px."""


MOST_BYTES: Final = 200_000
"""The console's files, compressed: a first visit on a slow line takes seconds."""


def test_the_console_is_small() -> None:
    files = Path(dragoman.__file__).with_name("console").iterdir()
    assert sum(len(gzip.compress(file.read_bytes())) for file in files) <= MOST_BYTES


async def touch(page: Page) -> None:
    """Makes the page that of a phone."""
    await page.command("Emulation.setDeviceMetricsOverride", width=380, height=760, deviceScaleFactor=2, mobile=True)
    await page.command("Emulation.setTouchEmulationEnabled", enabled=True)
    await page.until("matchMedia('(pointer: coarse)').matches")


async def test_each_page_has_a_title_and_a_place_in_the_navigation(browser: str, tmp_path: Path) -> None:
    async with staged(browser, tmp_path) as stage:
        page = stage.page
        task = await stage.put("paint the door")
        titles = {
            "#/overview": "Overview",
            "#/tasks": "Tasks",
            f"#/tasks/curious/{task['id']}": "paint the door",
            "#/failures": "Failures",
            "#/agents": "Agents",
            "#/agents/curious": "Curious",
            "#/usage": "Usage",
            "#/webhooks": "Webhooks",
            "#/new": "New task",
        }
        for place, title in titles.items():
            await stage.to(place)
            await page.until(f"document.title.startsWith({title!r}) && document.title.endsWith(' · Dragoman')")
            marked = "document.querySelector('.top [aria-current]').hash"
            assert place.startswith(await page.run(marked))


async def test_an_answer_that_is_not_json_is_an_error_and_no_blank_page(browser: str, tmp_path: Path) -> None:
    async with staged(browser, tmp_path) as stage:
        page = stage.page
        answer = "new Response('<html>Maintenance</html>', {headers: {'Content-Type': 'text/html'}})"
        for path in ("console/caller", "agents"):
            script = f"""{{
                const before = window.fetch;
                window.fetch = (url, how) =>
                    String(url).endsWith({path!r}) ? Promise.resolve({answer}) : before(url, how);
            }}"""
            await page.command("Page.addScriptToEvaluateOnNewDocument", source=script)
            await stage.to("#/tasks")
            await page.reload()
            await page.see("Tasks", ".top nav")
        await page.see("The answer is not JSON. A proxy in front of the server may have sent it.", ".problem")


async def test_figures_of_agents_are_not_cut_on_a_phone(browser: str, tmp_path: Path) -> None:
    async with staged(browser, tmp_path) as stage:
        page = stage.page
        await stage.put("hello", "plain")
        for width in (390, 320):
            await page.view(width, 760)
            await stage.to("#/agents")
            await page.until("document.querySelector('.agents [data-label=p95]')")
            cut = (
                "[...document.querySelectorAll('.agents tbody :is(td, th)')].filter(one => one.checkVisibility() && "
                "one.getBoundingClientRect().right > innerWidth).map(one => one.innerText)"
            )
            await page.becomes(cut, [])
            assert "In the queue" in await page.run(
                "getComputedStyle(document.querySelector('.agents [data-label]'), '::before').content"
            )


async def test_an_unknown_page_says_so_and_links_to_others(browser: str, tmp_path: Path) -> None:
    async with staged(browser, tmp_path) as stage:
        page = stage.page
        await stage.to("#/nowhere/at-all?x=1")
        await page.see("The console has no page nowhere/at-all.", "#main")
        await page.becomes("document.title", "Page not found · Dragoman")
        await page.click(".empty-state a", "look for a task")
        await page.see("No tasks yet", ".list")


async def test_fingers_reach_the_navigation_and_hit_all_controls(browser: str, tmp_path: Path) -> None:
    async with staged(browser, tmp_path) as stage:
        page = stage.page
        task = await stage.put("paint")
        await touch(page)
        low = (
            "[...document.querySelectorAll('.top nav a')]"
            ".every(one => one.getBoundingClientRect().top > innerHeight * 0.8)"
        )
        for place in (*PLACES, f"tasks/curious/{task['id']}"):
            await stage.to(f"#/{place}")
            await page.until(f"document.querySelector('#main .page, #main .split') && {low}")
            await page.becomes("document.scrollingElement.scrollWidth", 380, place)
            await page.becomes(ZOOMS, [], place)
            await page.becomes(TOO_SMALL, [], place)
            # Nothing of the page is behind the navigation.
            main, nav = "document.querySelector('#main')", "document.querySelector('nav')"
            assert await page.run(f"{main}.getBoundingClientRect().bottom <= {nav}.getBoundingClientRect().top + 1"), (
                place
            )
