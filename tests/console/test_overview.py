"""The console's start page: what needs an operator now, and what the agents did."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import grpc
import pytest
from pydantic import SecretStr
from tests.console.served import Stage, staged
from tests.console.test_looks import OF_COLORS, issues
from tests.runtime.push.receivers import answered

from dragoman import Turn, agent
from dragoman.ports import Agent
from dragoman_pb.dragoman.ops.v1 import ops_pb2 as ops
from dragoman_pb.dragoman.ops.v1 import ops_pb2_grpc as rpc

pytestmark = [
    pytest.mark.browser,
    pytest.mark.timeout(180),  # axe checks every element, which is slow on a busy machine
]

CONCERNS = "[...document.querySelectorAll('.concerns li a')].map(one => [one.querySelector('b').innerText, one.hash])"
TILES = "Object.fromEntries([...document.querySelectorAll('.tile')].map(one => one.innerText.split('\\n').slice(0, 2)))"
LATER = "(() => { const then = Date.now; Date.now = () => then() + 11 * 60_000; return 0; })()"
"""Moves the page's clock eleven minutes ahead."""


def agents() -> Sequence[Agent]:
    @agent(id="broken", name="Broken", description="Fails")
    async def broken(turn: Turn) -> None:
        raise ValueError("broken")

    @agent(id="endless", name="Endless", description="Does not end")
    async def endless(turn: Turn) -> None:
        await asyncio.Event().wait()

    return [broken, endless]


async def begin(stage: Stage, text: str, agent_id: str) -> None:
    await stage.put(text, agent_id, configuration={"returnImmediately": True})


async def test_the_start_page_says_that_nothing_needs_the_operator(browser: str, tmp_path: Path) -> None:
    async with staged(browser, tmp_path, *agents()) as stage:
        page = stage.page
        await page.go("about:blank")
        await page.go(stage.url)
        await page.see("Nothing needs you now.", ".all-clear")
        await page.see("No tasks in the last day.", ".empty-state")
        await page.becomes("document.title", "Overview · Dragoman")
        await stage.put("paint")
        await stage.put("word", "plain")
        await page.reload()
        await page.see("Waiting for callers", ".tiles")
        await page.becomes(
            TILES,
            {
                "In the queue": "0",
                "Running": "0",
                "Waiting for callers": "1",
                "Completed in 24 h": "1",
                "Failed in 24 h": "0",
            },
        )
        await page.becomes("document.querySelectorAll('.bars g').length", 24)
        await page.becomes("document.querySelectorAll('.bars rect[data-tone=main]').length", 1)
        # The same as a table, for those who do not see the bars.
        hours = await page.run("[...document.querySelectorAll('.bars tbody tr')].map(row => row.cells[1].textContent)")
        assert sorted(hours) == ["0"] * 23 + ["1"]
        await page.becomes("document.querySelectorAll('.bars rect[data-tone=bad]').length", 0)
        # One failure is too few for a concern, and it is not hidden. A bar leads to what it counts.
        await stage.put("fail", "broken")
        await page.reload()
        await page.see("1 task failed in the last 3 hours.", ".all-clear")
        bar = "document.querySelector('.bars g:has([data-tone=bad]) .place')"
        await page.until(bar)
        await page.run(f"{bar}.dispatchEvent(new MouseEvent('click', {{bubbles: true}}))")
        await page.until("/^#\\/tasks\\?age=\\d{4}-\\d\\d-\\d\\dT\\d\\d$/.test(location.hash)")
        await page.until("document.querySelectorAll('.list tbody tr').length === 3")
        await page.see("in the hour from", ".chips")
        await stage.to("#/overview")
        await page.click(".figures tbody td a[href*=curious]")
        await page.until("location.hash === '#/tasks?agent=curious&state=INPUT_REQUIRED'")


async def test_what_is_stuck_or_fails_comes_first_and_links_to_its_tasks(browser: str, tmp_path: Path) -> None:
    url = "https://down.example/hook"
    async with staged(browser, tmp_path, *agents(), slots=1, push_first_wait=0.05, push_give_up="1s") as stage:
        page = stage.page
        for number in range(3):
            await stage.put(f"fail {number}", "broken")
        await stage.to("#/overview")
        await page.see("Broken is failing", ".concerns")
        share = "100 % of 3 tasks that ended in the last 3 hours failed"
        await page.see(f"{share}, the last one with ValueError: broken", ".concerns")
        await page.becomes(CONCERNS, [["Broken is failing", "#/failures?agent=broken&age=day"]])
        # A receiver that was given up.
        stage.receivers.answer(url, then=answered(503))
        await stage.put("word", "plain", configuration={"taskPushNotificationConfig": {"url": url}})
        await page.until(f"{CONCERNS}.some(one => one.join() === 'Webhooks fail,#/webhooks')")
        await page.see("1 receiver given up", ".concerns")
        # A task that has waited for longer than ten minutes, because another has the only slot.
        for number in range(2):
            await begin(stage, f"wait {number}", "endless")
        await page.run(LATER)
        await stage.to("#/tasks")
        await stage.to("#/overview")
        await page.see("Tasks of Endless are stuck", ".concerns")
        await page.see("The oldest has waited for 11 min. 1 task in the queue.", ".concerns")
        await page.becomes(
            CONCERNS,
            [
                ["Tasks of Endless are stuck", "#/tasks?agent=endless&state=SUBMITTED&age=still-10m"],
                ["Broken is failing", "#/failures?agent=broken&age=day"],
                ["Webhooks fail", "#/webhooks"],
            ],
        )
        await page.prefer("light")
        assert await issues(page) == []
        await page.prefer("dark")
        assert await issues(page, *OF_COLORS) == []


async def test_failed_tasks_that_were_erased_need_nobody(browser: str, tmp_path: Path) -> None:
    async with staged(browser, tmp_path, *agents()) as stage:
        page = stage.page
        for number in range(3):
            await stage.put(f"fail {number}", "broken")
        await stage.to("#/overview")
        await page.see("Broken is failing", ".concerns")
        async with stage.http.post("/operations/tasks:erase", json={"filter": {"agent": "broken"}}) as answer:
            assert answer.status == 200, await answer.text()
        await page.reload()
        await page.see("Nothing needs you now.", ".all-clear")
        await page.see("3 tasks failed in the last 3 hours.", ".all-clear")


async def test_the_time_of_a_single_turn_is_its_mean_and_its_quantiles(browser: str, tmp_path: Path) -> None:
    async with staged(browser, tmp_path, *agents()) as stage:
        page = stage.page
        await stage.put("word", "plain")
        async with stage.http.get("/operations/overview?agent=plain") as answer:
            (found,) = (await answer.json())["agents"]
        (hour,) = found["hours"]
        seconds = hour["turnSeconds"]
        assert found["turns"] == {
            "count": "1", "meanSeconds": seconds, "p50Seconds": seconds, "p95Seconds": seconds,
        }  # fmt: skip
        ms = f"{seconds * 1000:.0f} ms"
        for view, first, last in (("agents", 6, 8), ("overview", 7, 10)):
            await stage.to(f"#/{view}")
            await page.see("Plain", ".figures")
            row = "[...document.querySelectorAll('.figures tbody tr')].find(one => /Plain/.test(one.innerText)).cells"
            cells = f"[...{row}].slice({first}, {last}).map(one => one.innerText)"
            await page.becomes(cells, [ms] * (last - first))
            await page.see("Failures and times of turns are of the last 24 hours", ".page")


async def test_an_agent_is_paused_with_a_reason_and_resumed(browser: str, tmp_path: Path) -> None:
    async with staged(browser, tmp_path) as stage:
        page = stage.page
        await stage.to("#/agents/plain")
        await page.click(".page-head button", "Pause")
        await page.until("document.querySelector('dialog[open]')")
        assert await issues(page) == []
        await page.type("dialog[open] input", "the model is down")
        await page.click("dialog[open] button", "Pause")
        await page.see("the model is down", ".notice")
        await begin(stage, "word", "plain")
        await stage.to("#/overview")
        await page.see("Plain is paused", ".concerns")
        await page.see("the model is down. 1 task in the queue.", ".concerns")
        await page.click(".concerns button", "Resume")
        await page.see("Nothing needs you now.", ".all-clear")
        await page.until(f"({TILES})['Completed in 24 h'] === '1'")


async def test_an_agent_is_shown_with_its_figures_and_card(browser: str, tmp_path: Path) -> None:
    async with staged(browser, tmp_path, *agents()) as stage:
        page = stage.page
        await stage.put("fail", "broken")
        await stage.put("word", "plain")
        await stage.to("#/agents")
        await page.see("100 %", ".agents")
        names = "[...document.querySelectorAll('.agents tbody th a')].map(one => one.innerText)"
        await page.becomes(names, ["Dictation", "Broken", "Curious", "Endless", "Plain"])
        row = "document.querySelector('[aria-label=Broken]')"
        await page.until(rf"/\d+ ms/.test({row}.cells[6].innerText)")
        # Actions are there while the row has the pointer or the focus. Zeros are dimmed.
        await page.becomes(f"getComputedStyle({row}.querySelector('.row-actions span')).opacity", "0")
        await page.run(f"{row}.querySelector('th a').focus()")
        await page.becomes(f"getComputedStyle({row}.querySelector('.row-actions span')).opacity", "1")
        await page.becomes(f"{row}.querySelectorAll('.zero').length", 4)
        await page.click(".agents th a", "Dictation")
        await page.see("text/plain, application/json, text/csv", ".facts")
        await page.see("Interfaces", ".page")
        await page.click(".example", "say it")
        await page.until("document.querySelector('#message')?.value === 'say it'")
        await page.becomes("document.querySelector('.new :checked').value", "dictation")


async def test_callers_without_the_grant_start_at_their_tasks(browser: str, tmp_path: Path) -> None:
    async with (
        staged(browser, tmp_path, token=SecretStr("boss"), api_keys=True) as stage,
        grpc.aio.insecure_channel(str(stage.app.grpc)) as channel,
    ):
        page = stage.page
        request = ops.CreateKeyRequest(name="ann")
        ann = (await rpc.OpsServiceStub(channel).CreateKey(request, metadata=(("authorization", "Bearer boss"),))).text
        await page.go("about:blank")
        await page.go(stage.url)
        await page.type("#key", ann)
        await page.press("Enter")
        await page.until("document.querySelector('.account > button').innerText === 'ann'")
        await page.until("document.title === 'Tasks · Dragoman'")
        links = "[...document.querySelectorAll('.top nav a')].map(one => one.innerText)"
        await page.becomes(links, ["Tasks", "Agents", "Usage"])
        await stage.to("#/overview")
        await page.see("Only operators and viewers can see the overview.", ".empty-state")
        # The agents are there, without what they do.
        await stage.to("#/agents/plain")
        await page.see("Interfaces", ".page")
        assert await page.run("document.querySelector('.figures-line, .bars')") is None


async def test_viewers_see_the_overview_but_pause_nothing(browser: str, tmp_path: Path) -> None:
    async with (
        staged(browser, tmp_path, token=SecretStr("boss"), api_keys=True) as stage,
        grpc.aio.insecure_channel(str(stage.app.grpc)) as channel,
    ):
        page = stage.page
        request = ops.CreateKeyRequest(name="eve", grants=["viewer"])
        eve = (await rpc.OpsServiceStub(channel).CreateKey(request, metadata=(("authorization", "Bearer boss"),))).text
        async with stage.http.post(
            "/operations/agents/plain:pause", json={"reason": "maintenance"}, headers={"Authorization": "Bearer boss"}
        ) as answer:
            assert answer.status == 200
        await page.type("#key", eve)
        await page.press("Enter")
        await page.until("document.querySelector('.account > button').innerText === 'eve'")
        await stage.to("#/overview")
        await page.see("Plain is paused", ".concerns")
        await page.see("by token: maintenance", ".concerns")
        await stage.to("#/agents")
        await page.see("Waiting", ".agents")
        buttons = "[...document.querySelectorAll('#main button')].map(one => one.innerText)"
        assert await page.run(buttons) == []


async def test_without_metrics_the_overview_does_not_speak_of_webhooks(browser: str, tmp_path: Path) -> None:
    async with (
        staged(browser, tmp_path, token=SecretStr("boss"), api_keys=True) as stage,
        grpc.aio.insecure_channel(str(stage.app.grpc)) as channel,
    ):
        page = stage.page
        request = ops.CreateKeyRequest(name="sue", grants=["operator", "scope:east"])
        sue = (await rpc.OpsServiceStub(channel).CreateKey(request, metadata=(("authorization", "Bearer boss"),))).text
        await page.type("#key", sue)
        await page.press("Enter")
        await page.until("document.querySelector('.account > button').innerText === 'sue'")
        await stage.to("#/overview")
        await page.see("Nothing needs you now.", ".all-clear")
        await page.see("look at webhooks yourself", ".all-clear")
        await page.click(".all-clear a", "webhooks")
        await page.see("No event waits for a webhook.", ".empty-state")
