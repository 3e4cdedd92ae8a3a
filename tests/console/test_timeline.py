"""The timeline of a task: phases, attempts, steps, delegated tasks and deliveries, with durations and bars."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

import pytest
from tests.console.served import Stage, staged
from tests.console.test_foreign_tasks import opens, posted, two_callers
from tests.console.test_looks import OF_COLORS, TOO_WIDE, issues
from tests.runtime.push.receivers import answered

from dragoman import Retry, Turn, agent
from dragoman.client.calls import Client, message
from dragoman.ports import Agent

pytestmark = [
    pytest.mark.browser,
    pytest.mark.timeout(180),  # axe checks every element, which is slow on a busy machine
]

HOOK: Final = "https://hooks.example/orders"
ROWS: Final = (
    "[...document.querySelectorAll('.timeline tbody tr')]"
    ".map(row => [row.dataset.kind, row.cells[0].innerText.replace(/\\s+/g, ' ').trim()])"
)
BARS: Final = (
    "Object.fromEntries([...document.querySelectorAll('.timeline tbody tr')].map(row => [row.dataset.kind + "
    "(row.cells[0].querySelector('a, button')?.innerText ?? ''), [...row.querySelectorAll('rect')].map(bar => "
    "['x', 'width'].map(name => parseFloat(bar.getAttribute(name))))]))"
)


def planner(address: list[str]) -> list[Agent]:
    """An agent that asks, fails once, and then works in steps and with the help of another agent."""
    failures = [ConnectionError("the archive is overloaded")]

    @agent(id="planner", name="Planner", description="Plans", retry=Retry(attempts=2, backoff=0.01))
    async def planner(turn: Turn) -> str:
        if turn.question is None:
            turn.status("Reading")
            await turn.flush()
            turn.ask("Which color?")
        await turn.step("load", lambda: "loaded")
        if failures:
            raise failures.pop()
        async with Client(address[0], agent="helper") as client:
            await client.send(message("help"))
        await turn.step("write", lambda: "written")
        return "done"

    @agent(id="helper", name="Helper", description="Helps")
    async def helper(turn: Turn) -> str:
        return "helped"

    return [planner, helper]


async def answer(stage: Stage, task: str, text: str) -> None:
    spoken = {"messageId": f"m-{text}", "role": "ROLE_USER", "taskId": task, "parts": [{"text": text}]}
    async with stage.http.post("/planner/message:send", json={"message": spoken}) as response:
        assert response.status == 200


async def worked(stage: Stage, address: list[str]) -> str:
    """A task that went through everything."""
    address.append(str(stage.app.grpc))
    stage.receivers.answer(HOOK, answered(503))
    pushing = {"taskPushNotificationConfig": {"url": HOOK}}
    task = str((await stage.put("plan", "planner", configuration=pushing))["id"])
    await answer(stage, task, "red")
    return task


async def test_the_parts_of_a_task_are_rows_in_the_order_of_time(browser: str, tmp_path: Path) -> None:
    address: list[str] = []
    async with staged(
        browser, tmp_path, *planner(address), trace_url="https://jaeger.example/?task={task_id}"
    ) as stage:
        page = stage.page
        task = await worked(stage, address)
        await stage.to(f"#/tasks/planner/{task}?tab=timeline")
        # Events, steps and deliveries are read by calls of their own, in any order.
        parts = [
            ["turn", "Turn 1"],
            ["waiting", "Waiting for an answer"],
            ["turn", "Turn 2"],
            ["attempt", "Attempt 1 failed ConnectionError: the archive is overloaded"],
            ["attempt", "Attempt 2"],
            ["step", "step load"],
            ["delegated", "task of helper"],
            ["step", "step write"],
        ]
        await page.becomes(f"{ROWS}.filter(([kind]) => kind !== 'queued' && kind !== 'delivery')", parts)
        # The first delivery fails, so the receiver has several attempts.
        await page.until("document.querySelectorAll('[data-kind=delivery] rect').length > 1")
        rows: list[list[str]] = await page.run(ROWS)
        assert rows[-1][1].startswith("webhook hooks.example")
        # The bars lie on one axis: each phase begins where the one before ends, and steps lie within their turn.
        bars: dict[str, list[list[float]]] = await page.run(BARS)
        (first,), (waiting,), (second,) = bars["turnTurn 1"], bars["waitingWaiting for an answer"], bars["turnTurn 2"]
        assert waiting[0] == pytest.approx(first[0] + first[1], abs=1)
        assert second[0] == pytest.approx(waiting[0] + waiting[1], abs=1)
        for name in ("stepstep load", "delegatedhelper", "stepstep write"):
            ((begins, width),) = bars[name]
            assert second[0] - 1 <= begins <= begins + width <= second[0] + second[1] + 1
        await page.see("in 2 turns", ".totals")
        await page.becomes("document.querySelector('.totals a').href", f"https://jaeger.example/?task={task}")
        # Rows lead to what they show.
        for kind, place in (("delivery", "tab=pushes"), ("turn", "tab=wire&event=")):
            assert place in await page.run(f"document.querySelector('.timeline [data-kind={kind}] a').hash")
        await page.click(".timeline [data-kind=delegated] a")
        await page.see("help", "[data-kind=user]")


def reader() -> Agent:
    """An agent with steps whose contents differ."""

    @agent(id="reader", name="Reader", description="Reads")
    async def reader(turn: Turn) -> str:
        def fetch(page: int, api_key: str) -> str:
            if turn.text == "fail":
                raise ConnectionError(f"page {page} is closed")
            return "# Found\n\nOn **page** 7."

        await turn.step("list", lambda: {"pages": [7], "cover": "blue"})
        await turn.step("fetch", fetch, 7, api_key="s3cret", retry=Retry(attempts=2, backoff=0.001))
        await turn.step("scan", lambda: bytes(2_000))
        return "read"

    return reader


CALLS: Final = "performance.getEntriesByType('resource').filter(one => one.name.includes('/steps/contents')).length"


async def test_a_row_of_a_step_opens_to_what_it_got_and_returned(browser: str, tmp_path: Path) -> None:
    async with staged(browser, tmp_path, reader()) as stage:
        page = stage.page
        task = str((await stage.put("go", "reader"))["id"])
        await stage.to(f"#/tasks/reader/{task}?tab=timeline")
        await page.see("scan", ".timeline")
        assert await page.run(CALLS) == 0  # contents are not loaded with the list
        await page.run("document.querySelectorAll('.opener')[1].focus()")
        await page.press("Enter")
        await page.see("Found", ".contents .markdown h1, .contents .markdown .h1")
        assert "page" in (shown := await page.text(".contents .json"))
        assert "(not stored)" in shown
        assert await page.run(CALLS) == 1
        await page.press("Enter")
        await page.until("!document.querySelector('.contents')")
        await page.click(".opener", "list")
        await page.see("cover", ".contents")
        await page.see("None", ".contents")  # it has no arguments
        await page.click(".opener", "scan")
        await page.see("2.0 KiB of application/octet-stream, which is not text", ".timeline")
        for colors in ("light", "dark"):
            await page.prefer(colors)
            assert await issues(page, *(OF_COLORS if colors == "dark" else ())) == [], colors
        await page.view(380, 800)
        assert await page.run(TOO_WIDE) == []


async def test_a_row_of_a_failed_step_opens_to_its_attempts_and_frames(browser: str, tmp_path: Path) -> None:
    async with staged(browser, tmp_path, reader()) as stage:
        page = stage.page
        task = str((await stage.put("fail", "reader"))["id"])
        await stage.to(f"#/tasks/reader/{task}?tab=timeline")
        await page.click(".opener", "fetch")
        await page.see("Failed attempts", ".contents")
        await page.see("ConnectionError: page 7 is closed", ".contents li:first-child")
        await page.see('raise ConnectionError(f"page {page} is closed")', ".contents .frames")
        await page.view(320, 800)
        assert await page.run(TOO_WIDE) == []


async def test_viewers_are_told_that_contents_are_for_operators(browser: str, tmp_path: Path) -> None:
    async with two_callers(browser, tmp_path, reader()) as (stage, keys):
        task = (await posted(stage, keys["ann"], "go", "reader"))["id"]
        await opens(stage, keys["watcher"], f"#/tasks/reader/{task}?tab=timeline")
        await stage.page.click(".opener", "fetch")
        await stage.page.see("Operators see arguments, result and failures here.", ".contents")


async def test_time_in_the_queue_is_shown_and_a_running_bar_grows(browser: str, tmp_path: Path) -> None:
    async with staged(browser, tmp_path, slots=1) as stage:
        page = stage.page
        await stage.send("first")
        await stage.send("second")
        await page.click("[data-tab=timeline]")
        await page.see("In the queue", ".timeline [data-kind=queued]")
        assert [row[0] for row in await page.run(ROWS)] == ["queued"]
        await page.see("so far", ".totals")
        duration = "document.querySelector('[data-kind=queued] td:nth-child(3)').innerText"
        before = await page.run(duration)
        await page.until(f"{duration} !== {before!r}")
        stage.conductor.say("done", None)
        await page.see("Turn 1", ".timeline [data-kind=turn]")
        stage.conductor.say("done", None)
        await page.see("in all", ".totals")


async def test_a_turn_begins_with_its_claim_and_not_with_the_event_that_shows_it(browser: str, tmp_path: Path) -> None:
    gate = asyncio.Event()

    @agent(id="gated", name="Gated", description="Waits")
    async def gated(turn: Turn) -> str:
        await turn.step("load", lambda: "loaded")
        await gate.wait()
        return "done"

    async with staged(browser, tmp_path, gated) as stage:
        page = stage.page
        task = (await stage.put("go", "gated", configuration={"returnImmediately": True}))["id"]
        await stage.to(f"#/tasks/gated/{task}?tab=timeline")
        for state in ("so far", "in all"):
            await page.see(state, ".totals")
            await page.becomes(ROWS, [["turn", "Turn 1"], ["step", "step load"]])
            bars = await page.run(BARS)
            assert bars["turnTurn 1"][0][0] <= bars["stepstep load"][0][0]
            gate.set()


async def test_waiting_for_the_caller_can_be_left_out(browser: str, tmp_path: Path) -> None:
    async with staged(browser, tmp_path, *planner([])) as stage:
        page = stage.page
        task = (await stage.put("plan", "planner"))["id"]
        await stage.to(f"#/tasks/planner/{task}?tab=timeline")
        # The wait is most of the time, so it is left out at first.
        await page.until("document.querySelector('.totals input')?.checked")
        turn = "document.querySelector('[data-kind=turn] rect').getAttribute('width')"
        wide = float((await page.run(turn)).rstrip("%"))
        await page.click(".totals label")
        await page.until(f"parseFloat({turn}) < {wide}")


async def test_callers_without_a_grant_see_the_phases_alone(browser: str, tmp_path: Path) -> None:
    async with two_callers(browser, tmp_path) as (stage, keys):
        task = (await posted(stage, keys["ann"], "paint"))["id"]
        await opens(stage, keys["ann"], f"#/tasks/curious/{task}?tab=timeline")
        await stage.page.see("Steps, deliveries and delegated tasks are shown to operators.", ".panel")
        await stage.page.see("Waiting for an answer", ".timeline")
        assert {row[0] for row in await stage.page.run(ROWS)} <= {"queued", "turn", "waiting"}


async def test_the_timeline_is_accessible_and_fits_a_narrow_window(browser: str, tmp_path: Path) -> None:
    address: list[str] = []
    async with staged(browser, tmp_path, *planner(address)) as stage:
        page = stage.page
        task = await worked(stage, address)
        for width in (1280, 380):
            await page.view(width, 800)
            await stage.to(f"#/tasks/planner/{task}?tab=timeline")
            await page.see("webhook", ".timeline")
            assert await page.run(TOO_WIDE) == []
            for colors in ("light", "dark"):
                await page.prefer(colors)
                assert await issues(page, *(OF_COLORS if colors == "dark" else ())) == [], (width, colors)
            await stage.to("#/tasks")
