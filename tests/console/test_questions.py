"""Questions of agents are answered by buttons and forms, where the agent says what can be answered."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest
from tests.console.served import Stage, staged
from tests.console.test_looks import OF_COLORS, TOO_WIDE, issues

from dragoman import Turn, agent, types

pytestmark = [
    pytest.mark.browser,
    pytest.mark.timeout(180),  # axe checks every element, which is slow on a busy machine
]

ROOM: Final = {
    "type": "object",
    "required": ["date", "guests"],
    "properties": {
        "date": {"type": "string", "format": "date", "title": "Arrival"},
        "guests": {"type": "integer", "minimum": 1, "maximum": 8, "title": "Guests"},
        "floor": {"enum": [1, 2], "title": "Floor"},
        "breakfast": {"type": "boolean", "title": "Breakfast", "description": "Served from 7 to 10"},
    },
}
QUESTIONS: Final[dict[str, list[object]]] = {
    "choices": ["Which order is it?", {"choices": ["4500018112", {"value": "none", "label": "None of them"}]}],
    "room": ["Which room?", {"schema": ROOM}],
    "approval": ["Approve deploy(version=2)?", {"approvals": [{"id": "c1", "name": "deploy", "arguments": {}}]}],
    "interrupt": ["Refund?", {"interrupts": [{"id": "i1", "value": {"options": ["all", "half"]}}]}],
    "missing": ["Send product and reader, as the fields of a data part.", {"missing": ["product", "reader"]}],
    "sure": ["Are you sure? Answer yes or no."],
    "nested": ["What now?", {"schema": {"type": "object", "properties": {"list": {"type": "array"}}}}],
}  # fmt: skip
"""The parts of each question, by what the user said."""


@agent(id="asking", name="Asking", description="Asks")
async def asking(turn: Turn) -> str:
    if turn.question is None:
        if turn.text == "sign in":
            turn.need_auth("Sign in at https://bank.example/login?state=8812.")
        parts = QUESTIONS[turn.text]
        turn.ask([types.data(part) if isinstance(part, dict) else types.text(str(part)) for part in parts])
    return f"text={turn.text!r} data={json.dumps(turn.data, sort_keys=True)}"


async def opened(stage: Stage, text: str) -> None:
    """Opens a task that asks the question of this text."""
    task = await stage.put(text, "asking")
    await stage.to(f"#/tasks/asking/{task['id']}")
    await stage.page.until(f"location.hash.includes({task['id']!r}) && document.querySelector('.notice')")


async def buttons(stage: Stage) -> Any:
    await stage.page.until("document.querySelector('.answer button')")
    return await stage.page.run("[...document.querySelectorAll('.answer button')].map(one => one.innerText)")


@pytest.mark.parametrize(
    ("text", "offered", "chosen", "received"),
    [
        ("choices", ["4500018112", "None of them"], "None of them", "text='none' data=[]"),
        ("approval", ["Approve", "Deny"], "Deny", "text='no' data=[]"),
        ("interrupt", ["all", "half"], "half", "text='half' data=[]"),
        ("sure", ["Yes", "No"], "Yes", "text='yes' data=[]"),
    ],
)
async def test_choices_are_buttons(
    browser: str, tmp_path: Path, text: str, offered: list[str], chosen: str, received: str
) -> None:
    async with staged(browser, tmp_path, asking) as stage:
        await opened(stage, text)
        assert await buttons(stage) == offered
        await stage.page.click(".answer button", chosen)
        await stage.page.see(received, ".conversation")
        await stage.page.until("!document.querySelector('.notice')")


async def test_a_schema_is_a_form_whose_values_are_the_answer(browser: str, tmp_path: Path) -> None:
    async with staged(browser, tmp_path, asking) as stage:
        page = stage.page
        await opened(stage, "room")
        labels = "[...document.querySelectorAll('.fields label')].map(one => one.innerText.trim().split('\\n')[0])"
        await page.becomes(labels, ["Arrival *", "Guests *", "Breakfast", "Floor"])
        # The form is the only way to answer, until the user wants another.
        await page.becomes("document.querySelector('#message')", None)
        # The browser checks the fields: without a date, and with nine guests, nothing is sent.
        await page.type(".fields [name=guests]", "9")
        await page.click(".fields button", "Send answer")
        invalid = "[...document.querySelectorAll('.fields :invalid')].map(one => one.name)"
        await page.becomes(invalid, ["date", "guests"])
        await page.run("document.querySelector('.fields [name=date]').value = '2026-12-24'")
        await page.type(".fields [name=guests]", "2")
        await page.choose(".fields [name=floor]", "2")
        await page.click(".fields [name=breakfast]")
        await page.click(".fields button", "Send answer")
        values = {"breakfast": True, "date": "2026-12-24", "floor": 2, "guests": 2}
        await page.see(f"text='' data=[{json.dumps(values, sort_keys=True)}]", ".conversation")
        await page.see("Fields: Arrival, Guests, Breakfast, Floor", ".conversation")


async def test_a_question_with_a_form_can_be_answered_in_own_words(browser: str, tmp_path: Path) -> None:
    async with staged(browser, tmp_path, asking) as stage:
        page = stage.page
        await opened(stage, "choices")
        await page.see("Answer in your own words", ".task")
        await page.press("n")
        await page.until("document.activeElement.id === 'message'")
        await page.command("Input.insertText", text="neither")
        await page.press("Enter", ctrl=True)
        await page.see("text='neither'", ".conversation")


async def test_missing_inputs_are_fields(browser: str, tmp_path: Path) -> None:
    async with staged(browser, tmp_path, asking) as stage:
        await opened(stage, "missing")
        await stage.page.type(".fields [name=product]", "chair")
        await stage.page.type(".fields [name=reader]", "designers")
        await stage.page.click(".fields button", "Send answer")
        await stage.page.see('data=[{"product": "chair", "reader": "designers"}]', ".conversation")


async def test_other_questions_are_answered_by_text_with_the_field_in_focus(browser: str, tmp_path: Path) -> None:
    async with staged(browser, tmp_path, asking) as stage:
        page = stage.page
        await opened(stage, "nested")
        await page.until("document.activeElement.id === 'message'")
        assert await page.run("document.querySelector('.answer button, .fields')") is None
        await page.see("schema", ".notice .json")
        await page.command("Input.insertText", text="go on")
        await page.press("Enter", ctrl=True)
        await page.see("text='go on' data=[]", ".conversation")


async def test_a_link_to_sign_in_is_a_button(browser: str, tmp_path: Path) -> None:
    async with staged(browser, tmp_path, asking) as stage:
        page = stage.page
        await opened(stage, "sign in")
        link = "document.querySelector('.answer a.button')"
        await page.until(link)
        await page.becomes(
            f"[{link}.href, {link}.target, {link}.rel]",
            [
                "https://bank.example/login?state=8812",
                "_blank",
                "noopener noreferrer",
            ],
        )
        await page.see("Open bank.example", ".answer")
        await page.click(".answer button", "Continue")
        await page.see("text='Continue'", ".conversation")


async def test_the_tabs_stay_where_they_are_when_a_question_is_answered(browser: str, tmp_path: Path) -> None:
    async with staged(browser, tmp_path, asking) as stage:
        page = stage.page
        await opened(stage, "choices")
        top = "document.querySelector('[role=tablist]').getBoundingClientRect().top"
        before = await page.run(top)
        await page.click(".answer button", "4500018112")
        await page.see("completed", ".head .state")
        await page.until("!document.querySelector('.notice')")
        await page.becomes(top, before)


async def test_forms_are_accessible_and_fit_a_narrow_window(browser: str, tmp_path: Path) -> None:
    async with staged(browser, tmp_path, asking) as stage:
        page = stage.page
        await page.view(380, 780)
        for text in ("choices", "room", "sign in"):
            await opened(stage, text)
            await page.until("document.querySelector('.answer').childElementCount")
            await page.becomes(TOO_WIDE, [], text)
            for colors in ("light", "dark"):
                await page.prefer(colors)
                assert await issues(page, *(OF_COLORS if colors == "dark" else ())) == [], (text, colors)
