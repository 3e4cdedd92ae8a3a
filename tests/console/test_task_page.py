"""The page of a task: what was asked, its summary, the conversation, and what can be done with it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

import pytest
from tests.console.served import staged
from tests.console.test_looks import OF_COLORS, TOO_WIDE, issues

from dragoman import Turn, agent
from dragoman.ports import Agent

pytestmark = [
    pytest.mark.browser,
    pytest.mark.timeout(180),  # axe checks every element, which is slow on a busy machine
]

PANEL: Final = "document.querySelector('.panel')"
AT_END: Final = f"{PANEL}.scrollHeight - {PANEL}.scrollTop - {PANEL}.clientHeight < 48"


def steady(go: asyncio.Event | None = None) -> Agent:
    """An agent that reports progress, and fails, asks or answers at length as the message says."""

    @agent(id="steady", name="Steady", description="Reports")
    async def steady(turn: Turn) -> str:
        for page in (1, 1, 1, 2, 3):
            turn.status(f"Reading page {page}")
            await turn.flush()
        turn.usage(tokens=1200, cost=0.0312)
        if turn.text == "fail":
            raise ValueError("the glossary cannot be read")
        if turn.text == "ask" and turn.question is None:
            turn.ask("Sign in at https://bank.example/login, **please**.")
        for number in range(60):
            await turn.chunk(f"Paragraph {number}\n\n")
        if go is not None:
            await go.wait()
            await turn.chunk("The very end")
        return ""

    return steady


async def test_a_finished_task_opens_at_its_top(browser: str, tmp_path: Path) -> None:
    async with staged(browser, tmp_path, steady()) as stage:
        page = stage.page
        task = await stage.put("# Summarize 3 pages\n\nof the annual report", "steady")
        await page.view(1280, 500)
        await stage.to(f"#/tasks/steady/{task['id']}")
        await page.see("completed", ".head .state")
        await page.becomes("document.querySelector('.head h2').innerText", "Summarize 3 pages")
        for fact in ("Steady", "took "):
            await page.see(fact, ".summary")
        # The header is one line; the rest is in a panel, which stays as it was left.
        assert await page.run("document.querySelector('.head').offsetHeight") <= 50
        assert await page.run("document.querySelector('.details')") is None
        await page.click(".details-toggle")
        await page.reload()
        details = await page.text(".details")
        for fact in ("completed", "Steady", "1,200", "0.0312", "ago", task["id"], task["contextId"]):
            assert fact in details
        await page.becomes("document.querySelectorAll('.details button').length", 2)
        assert await issues(page) == []
        await page.click(".details-toggle")
        await page.until("!document.querySelector('.details')")
        await page.see("Jump to end", ".panel")
        await page.becomes(f"{PANEL}.scrollTop", 0)
        assert "Paragraph 59" in await page.text(".panel"), "the answer is not folded"
        await page.becomes("document.querySelector('[data-tab=conversation] .count').innerText.trim()", "4")
        # Five reports of progress are one line; equal ones are joined.
        await page.see("Reading page 3", ".conversation [data-kind=status]")
        assert "Reading page 2" not in await page.text(".conversation")
        await page.click(".earlier summary", "4 earlier reports")
        await page.see("Reading page 2", ".earlier")
        rows = await page.run("[...document.querySelectorAll('.earlier li > span')].map(one => one.innerText.trim())")
        assert rows == ["Reading page 1 (3 times)", "Reading page 2"]
        await page.click(".jump")
        await page.until(AT_END)
        await page.until("!document.querySelector('.jump')")


async def test_a_working_task_is_followed_until_the_user_scrolls_up(browser: str, tmp_path: Path) -> None:
    go = asyncio.Event()
    async with staged(browser, tmp_path, steady(go)) as stage:
        page = stage.page
        await page.view(1280, 500)
        await stage.send("write", "steady")
        await page.see("Paragraph 59", ".panel")
        await page.until(AT_END)
        await page.reload()
        await page.see("Paragraph 59", ".panel")
        await page.until(AT_END)
        await page.run(f"{PANEL}.scrollTop = 0")
        await page.see("Jump to end", ".panel")
        go.set()
        await page.see("The very end", ".panel")
        await page.see("completed", ".head .state")
        await page.becomes(f"{PANEL}.scrollTop", 0)


async def test_questions_and_errors_stand_in_front(browser: str, tmp_path: Path) -> None:
    async with staged(browser, tmp_path, steady()) as stage:
        page = stage.page
        await stage.send("ask", "steady")
        await page.see("Sign in at", ".conversation .notice[aria-label=Question]")
        count = "document.querySelector('.task').innerText.split('Sign in at').length - 1"
        await page.becomes(count, 1, "the question is shown once")
        await page.click("[data-tab=artifacts]")
        await page.see("Sign in at", ".task > .notice")
        await page.becomes(count, 1)
        await page.click("[data-tab=conversation]")
        await page.becomes("document.querySelector('.notice a').href", "https://bank.example/login")
        await page.becomes("document.querySelector('.notice strong').innerText", "please")
        await page.type("#message", "done")
        await page.click(".compose button", "Answer")
        await page.see("completed", ".head .state")
        assert await page.run("document.querySelector('.notice')") is None
        await stage.send("fail", "steady")
        await page.see("the glossary cannot be read", ".notice[aria-label=Error]")
        await page.see("failed", ".conversation")
        assert "glossary" not in await page.text(".conversation"), "the error is shown once"


async def test_the_page_is_accessible_and_fits_a_narrow_window(browser: str, tmp_path: Path) -> None:
    async with staged(browser, tmp_path, steady()) as stage:
        page = stage.page
        await page.view(380, 700)
        for text in ("fail", "ask"):
            await stage.send(text, "steady")
            await page.see("Reading page 3", ".panel")
            await page.until("document.querySelector('.notice')")
            assert await page.run("document.querySelector('.details')") is None, "ids are folded in a narrow window"
            await page.click(".details-toggle")
            await page.see("Context", ".details")
            assert await page.run(TOO_WIDE) == []
            for colors in ("light", "dark"):
                await page.prefer(colors)
                assert await issues(page, *(OF_COLORS if colors == "dark" else ())) == [], (text, colors)
            await page.click(".details-toggle")


async def test_the_page_has_a_title_and_sends_a_message_again(browser: str, tmp_path: Path) -> None:
    async with staged(browser, tmp_path, steady()) as stage:
        page = stage.page
        file = {"raw": "cmVk", "filename": "red.txt", "mediaType": "text/plain"}
        message = {"messageId": "m-1", "role": "ROLE_USER", "parts": [{"text": "fail\nfor me"}, file]}
        async with stage.http.post("/curious/message:send", json={"message": message}) as answer:
            task = (await answer.json())["task"]["id"]
        await stage.to(f"#/tasks/curious/{task}")
        await page.until("document.title === 'fail · input required · Dragoman'")
        await page.becomes(
            "[...document.querySelectorAll('.actions > button')].map(one => one.innerText)", ["Cancel task"]
        )
        await page.type("#message", "red")
        await page.click(".compose button", "Answer")
        await page.until("document.title === 'fail · completed · Dragoman'")
        await page.click(".head button", "Edit and send")
        await page.until("document.querySelector('.new #message')?.value === 'fail\\nfor me'")
        await page.until("document.title === 'New task · Dragoman'")
        await page.becomes("document.querySelector('.new :checked').value", "curious")
        await page.see("red.txt", ".files")
        await page.click(".compose button", "Send")
        await page.until(f"location.hash.startsWith('#/tasks/curious/') && !location.hash.includes({task!r})")
        await page.see("red.txt", "[data-kind=user] figure")
        # The message is used up.
        await stage.to("#/new")
        await page.until("document.querySelector('.new #message')?.value === ''")


async def test_an_unknown_tab_is_the_conversation(browser: str, tmp_path: Path) -> None:
    async with staged(browser, tmp_path, steady()) as stage:
        task = await stage.put("paint")
        for tab, shown in (("nonsense", "conversation"), ("artifacts", "artifacts")):
            await stage.to(f"#/tasks/curious/{task['id']}?tab={tab}")
            await stage.page.until(f"document.querySelector('[aria-selected=true]')?.dataset.tab === '{shown}'")


async def test_the_banner_of_an_unreachable_server_goes_when_it_is_back(browser: str, tmp_path: Path) -> None:
    async with staged(browser, tmp_path) as stage:
        page = stage.page
        await page.see("No tasks yet", ".list")
        stage.proxy.cut()
        await page.see("The server is unreachable.", "#console > .problem")
        stage.proxy.restore()
        await page.until("!document.querySelector('#console > .problem')")


async def test_the_id_of_a_hidden_error_can_be_copied(browser: str, tmp_path: Path) -> None:
    async with staged(browser, tmp_path, steady(), error_texts="agents") as stage:
        page = stage.page
        await stage.send("fail", "steady")
        await page.see("in the log under error id", ".notice")
        shown = await page.text(".notice .copy code")
        assert shown in await page.text(".notice .parts")
        assert await page.run("document.querySelector('.notice .copy button') !== null")


CONTROLS: Final = (
    "button, .button, input:not([type=checkbox], [type=radio]), label:has([type]), textarea, summary, .back"
)
SMALL: Final = f"""
[...document.querySelectorAll('.task :is({CONTROLS})')]
  .filter(one => one.checkVisibility() && !one.closest('.hidden, dialog'))
  .filter(one => one.getBoundingClientRect().height < 44
    || one.matches('input, textarea') && parseFloat(getComputedStyle(one).fontSize) < 16)
  .map(one => one.outerHTML.slice(0, 120))
"""


async def test_a_phone_has_large_targets_and_room_for_the_content(browser: str, tmp_path: Path) -> None:
    async with staged(browser, tmp_path, steady()) as stage:
        page = stage.page
        await page.view(390, 780)
        await page.command("Emulation.setTouchEmulationEnabled", enabled=True)
        task = await stage.put("ask", "steady")
        await page.reload()
        await stage.to(f"#/tasks/steady/{task['id']}")
        await page.see("Reading page 3", ".panel")
        await page.until("document.querySelector('.answer .button, .compose')")
        for tab in ("conversation", "timeline", "execution", "pushes", "wire"):
            await page.click(f"[data-tab={tab}]")
            await page.until("document.querySelector('.panel').innerText")
            await page.becomes(SMALL, [], tab)
        assert "Ctrl" not in await page.run("document.querySelector('#message').placeholder")
        height = "document.querySelector('{}').getBoundingClientRect().height"
        taken = " + ".join(height.format(name) for name in (".task > .head", ".task > .compose"))
        assert await page.run(taken) <= 780 / 3
        await page.run("document.querySelector('#message').focus()")
        await page.until("document.querySelector('.compose .primary').checkVisibility()")
        # A tab that a link opens is in sight.
        selected = "document.querySelector('.task [role=tab][aria-selected=true]').getBoundingClientRect().right"
        await page.go("about:blank")
        await page.go(f"{stage.url}#/tasks/steady/{task['id']}?tab=wire")
        await page.until(f"{selected} <= document.querySelector('.task .tabs').getBoundingClientRect().right + 1")
