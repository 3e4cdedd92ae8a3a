"""The form for a new task: agents, examples of their skills, and fields for a declared input."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import BaseModel, Field
from tests.console.served import staged
from tests.console.test_looks import OF_COLORS, TOO_WIDE, issues

from dragoman import Turn, agent

pytestmark = [pytest.mark.browser, pytest.mark.timeout(180)]


class Booking(BaseModel):
    """What a booking needs."""

    city: str
    guests: int = Field(default=2, ge=1, le=8)
    breakfast: bool = False


@agent(id="booking", name="Booking", description="Books a room", input=Booking)
async def booking(turn: Turn) -> str:
    return f"{turn.input!r} {turn.text!r}"


async def test_agents_are_chosen_and_examples_fill_the_message(browser: str, tmp_path: Path) -> None:
    async with staged(browser, tmp_path, booking) as stage:
        page = stage.page
        await stage.to("#/new")
        names = "[...document.querySelectorAll('.agent-choice b')].map(one => one.innerText)"
        await page.becomes(names, ["Dictation", "Booking", "Curious", "Plain"])
        await page.becomes("document.querySelector('.new :checked').value", "dictation")
        await page.click(".examples a", "say it")
        await page.becomes("document.querySelector('#message')?.value", "say it")
        # The agents are one group of radio buttons: arrow keys choose.
        await page.run("document.querySelector('.agent-choice :checked').focus()")
        await page.press("ArrowDown")
        await page.until("location.hash === '#/new?agent=booking'")
        await page.becomes("document.querySelector('.new :checked').value", "booking")


async def test_a_declared_input_is_a_form_whose_values_are_the_message(browser: str, tmp_path: Path) -> None:
    async with staged(browser, tmp_path, booking) as stage:
        page = stage.page
        await stage.to("#/new?agent=booking")
        await page.becomes("document.querySelector('.input-form [name=guests]')?.value", "2")
        assert await page.run("document.querySelector('#message')") is None
        await page.click(".input-form button", "Send")
        await page.becomes("[...document.querySelectorAll('.new input:invalid')].map(one => one.name)", ["city"])
        await page.type(".input-form [name=city]", "Graz")
        await page.click(".input-form [name=breakfast]")
        await page.click(".input-form button", "Send")
        await page.see("Booking(city='Graz', guests=2, breakfast=True)", ".conversation")
        # A message is the other way.
        await stage.to("#/new?agent=booking")
        await page.click(".new .own-words", "Write a message instead")
        await page.type("#message", "a room, please")
        await page.click(".compose button", "Send")
        await page.until("location.hash.startsWith('#/tasks/booking/')")


async def test_escape_leaves_the_field_and_then_the_form(browser: str, tmp_path: Path) -> None:
    async with staged(browser, tmp_path) as stage:
        page = stage.page
        await page.see("No tasks yet", ".list")
        await page.press("n")
        await page.until("document.activeElement.id === 'message'")
        await page.press("Escape")
        await page.until("document.activeElement === document.body")
        assert await page.run("location.hash") == "#/new"
        await page.press("Escape")
        await page.until("location.hash === '#/tasks'")


async def test_the_form_is_accessible_and_fits_all_windows(browser: str, tmp_path: Path) -> None:
    async with staged(browser, tmp_path, booking) as stage:
        page = stage.page
        for width in (1280, 380):
            await page.view(width, 760)
            for agent_id in ("dictation", "booking"):
                await stage.to(f"#/new?agent={agent_id}")
                await page.until(f"document.querySelector('.new :checked')?.value === {agent_id!r}")
                await page.until("document.querySelector('.about')")
                await page.becomes(TOO_WIDE, [], agent_id)
                for colors in ("light", "dark"):
                    await page.prefer(colors)
                    assert await issues(page, *(OF_COLORS if colors == "dark" else ())) == [], (width, colors)
