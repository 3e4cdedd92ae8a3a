"""The console's page of usage: figures by day, agent and principal, over a period, and as CSV."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import grpc
import pytest
from pydantic import SecretStr
from tests.console.served import Stage, staged

from dragoman import Turn, agent
from dragoman.ports import Agent
from dragoman_pb.dragoman.ops.v1 import ops_pb2 as ops
from dragoman_pb.dragoman.ops.v1 import ops_pb2_grpc as rpc

pytestmark = pytest.mark.browser

TABLE = "[...document.querySelectorAll('.figures {} tr')].map(row => [...row.cells].map(cell => cell.innerText.trim()))"
SAVED = """
(URL.createObjectURL = blob => (window.saved = blob.text(), 'blob:none'),
 HTMLAnchorElement.prototype.click = function () { window.named = this.download; }, 0)
"""
"""Keeps what the page saves, in place of the browser's folder of downloads."""


def agents() -> Sequence[Agent]:
    @agent(id="metered", name="Metered", description="Reports what it used")
    async def metered(turn: Turn) -> str:
        turn.usage(tokens=1200, cost=0.25)
        return turn.text

    @agent(id="broken", name="Broken", description="Fails")
    async def broken(turn: Turn) -> None:
        raise ValueError("broken")

    return [metered, broken]


def metering(browser: str, tmp_path: Path) -> AbstractAsyncContextManager[Stage]:
    return staged(browser, tmp_path, *agents())


async def busy(stage: Stage) -> None:
    """Three tasks, of which one fails."""
    for text, agent_id in (("one", "metered"), ("two", "metered"), ("three", "broken")):
        await stage.put(text, agent_id)


async def rows(stage: Stage, part: str = "tbody") -> list[list[str]]:
    found = await stage.page.run(TABLE.format(part))
    return [[cell for index, cell in enumerate(row) if index != 1] for row in found]  # the bar has no text


async def test_usage_is_shown_by_day_and_by_agent_with_a_total(browser: str, tmp_path: Path) -> None:
    async with metering(browser, tmp_path) as stage:
        page = stage.page
        await busy(stage)
        await stage.to("#/usage")
        await page.see("2.4K", ".tiles")
        await page.becomes("document.title", "Usage · Dragoman")
        by_day = await rows(stage)
        # Days without tasks would be noise; zeros of the others are dimmed.
        assert len(by_day) == 1
        await page.see("29 days without tasks are not listed.", "#panel")
        await page.becomes("document.querySelectorAll('.figures tbody .zero').length", 2)
        assert by_day[0][1:6] == ["3", "2", "1 33 %", "0", "0"]
        await page.becomes("document.querySelectorAll('.bars g').length", 30)
        await page.becomes("document.querySelectorAll('.bars rect[data-tone=main]').length", 1)
        await page.click("[role=tab]", "By agent")
        await page.see("Metered", ".figures")
        by_agent = await rows(stage)
        assert [(row[0], row[1], row[-2], row[-1]) for row in by_agent] == [
            ("Metered", "2", "2.4K", "0.5"),
            ("Broken", "1", "0", "0"),
        ]
        assert (await rows(stage, "tfoot"))[0][:4] == ["Total", "3", "2", "1 33 %"]
        # The chart's figure orders the rows, and is a part of the address.
        await page.click(".tile", "Failed")
        await page.until("document.querySelector('.figures tbody th').innerText === 'Broken'")
        await page.becomes("location.hash", "#/usage?by=agent&measure=failed")
        await page.becomes("document.querySelectorAll('.bars rect[data-tone=bad]').length", 1)
        # A name filters by itself.
        await page.click(".figures a", "Metered")
        await page.until("document.querySelectorAll('.figures tbody tr').length === 1")
        assert (await rows(stage, "tfoot"))[0][:4] == ["Total", "2", "2", "0"]
        await page.click("[aria-label='Remove the filter agent']")
        await page.until("document.querySelector('.figures tfoot td:nth-child(3)').innerText === '3'")


async def test_the_period_is_a_part_of_the_address(browser: str, tmp_path: Path) -> None:
    async with metering(browser, tmp_path) as stage:
        page = stage.page
        await busy(stage)
        days = "document.querySelectorAll('.bars g').length"
        await stage.to("#/usage?range=7")
        await page.until(f"{days} === 7")
        # A day leads to its tasks. What has no meaning is removed from the address.
        day = str(await page.run("document.querySelector('.figures tbody a').hash"))
        assert re.fullmatch(r"#/tasks\?age=\d{4}-\d\d-\d\d", day)
        await stage.to(day)
        await page.until("document.querySelectorAll('.list tbody tr').length === 3")
        await stage.to("#/usage?by=colour&measure=Failed&range=8")
        await page.becomes("location.hash", "#/usage?measure=failed")
        await stage.to("#/usage")
        await page.choose("[aria-label=Period]", "365")
        await page.until("document.querySelectorAll('.bars g').length === 365")
        await page.becomes("location.hash", "#/usage?range=365")
        await stage.to("#/usage?from=2026-01-30&to=2026-02-02")
        await page.see("No tasks in this period", "#panel")
        fields = "[...document.querySelectorAll('input[type=date]')].map(one => one.value).join()"
        await page.becomes(fields, "2026-01-30,2026-02-02")
        # What is not a day is taken for none.
        await stage.to("#/usage?from=2026-02-32&to=never")
        await page.until(f"{days} === 30")


async def test_the_table_is_saved_as_csv(browser: str, tmp_path: Path) -> None:
    async with metering(browser, tmp_path) as stage:
        page = stage.page
        await busy(stage)
        await stage.to("#/usage?by=agent")
        await page.see("Metered", ".figures")
        await page.run(SAVED)
        await page.click("button", "Download CSV")
        saved = list(csv.DictReader(io.StringIO(await page.run("window.saved"))))
        assert [(row["agent"], row["tasks"], row["failed"], row["tokens"], row["cost"]) for row in saved] == [
            ("metered", "2", "0", "2400", "0.5"),
            ("broken", "1", "1", "0", "0"),
        ]
        assert str(await page.run("window.named")).startswith("usage-by-agent-")


async def test_callers_see_their_own_usage_and_operators_that_of_all(browser: str, tmp_path: Path) -> None:
    async with (
        staged(browser, tmp_path, *agents(), token=SecretStr("boss"), api_keys=True) as stage,
        grpc.aio.insecure_channel(str(stage.app.grpc)) as channel,
    ):
        page = stage.page
        create = rpc.OpsServiceStub(channel).CreateKey
        keys = {
            name: (await create(ops.CreateKeyRequest(name=name), metadata=(("authorization", "Bearer boss"),))).text
            for name in ("ann", "eve")
        }
        for number, key in enumerate(keys.values()):
            message = {"messageId": f"m-{number}", "role": "ROLE_USER", "parts": [{"text": "count this"}]}
            headers = {"Authorization": f"Bearer {key}"}
            async with stage.http.post("/metered/message:send", json={"message": message}, headers=headers) as answer:
                assert answer.status == 200
        await page.click(".sign-in button", "See the agents")
        await stage.to("#/usage?by=principal")
        await page.see("Sign in to see usage", ".empty-state")
        await page.click(".empty-state button", "Sign in")
        await page.type("#key", keys["ann"])
        await page.press("Enter")
        await page.see("The tasks of ann.", ".page")
        await page.until("document.querySelectorAll('.figures tbody tr').length === 1")
        assert (await rows(stage))[0][:2] == ["ann", "1"]
        await page.click(".account > button")
        await page.click(".account [role=menuitem]", "Sign out")
        await page.type("#key", "boss")
        await page.press("Enter")
        await page.until("document.querySelectorAll('.figures tbody tr').length === 2")
        assert "The tasks of" not in await page.text(".page")
