"""Operators and viewers see the tasks of other principals with their content, and operators cancel them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from pydantic import SecretStr
from tests.console.served import Stage, staged
from tests.console.test_looks import issues

from dragoman import Turn, agent
from dragoman.ports import Agent
from dragoman_pb.dragoman.ops.v1 import ops_pb2 as ops
from dragoman_pb.dragoman.ops.v1 import ops_pb2_grpc as rpc

pytestmark = [
    pytest.mark.browser,
    pytest.mark.timeout(180),  # axe checks every element, which is slow on a busy machine
]


@agent(id="long", name="Long", description="Says many things")
async def long(turn: Turn) -> AsyncIterator[str]:
    for number in range(1_200):
        yield f"{number} "
        await turn.flush()


@asynccontextmanager
async def two_callers(browser: str, folder: Path, *agents: Agent) -> AsyncIterator[tuple[Stage, dict[str, str]]]:
    """A console whose user is not signed in yet; yields the keys of a caller, a viewer, and an operator too."""
    async with (
        staged(browser, folder, long, *agents, token=SecretStr("boss"), api_keys=True) as stage,
        grpc.aio.insecure_channel(str(stage.app.grpc)) as channel,
    ):
        keys = {"boss": "boss"}
        for name, grants in (("ann", ()), ("watcher", ("viewer",))):
            request = ops.CreateKeyRequest(name=name, grants=grants)
            metadata = (("authorization", "Bearer boss"),)
            keys[name] = (await rpc.OpsServiceStub(channel).CreateKey(request, metadata=metadata)).text
        yield stage, keys


async def posted(stage: Stage, key: str, text: str, agent: str = "curious", task: str = "") -> dict[str, Any]:
    """Sends with this key, and returns the task."""
    message = {"messageId": f"m-{text}", "role": "ROLE_USER", "parts": [{"text": text}], "taskId": task}
    headers = {"Authorization": f"Bearer {key}"}
    async with stage.http.post(f"/{agent}/message:send", json={"message": message}, headers=headers) as answer:
        result: dict[str, Any] = (await answer.json())["task"]
        return result


async def opens(stage: Stage, key: str, place: str) -> None:
    """Opens a view as the principal with this key."""
    await stage.page.run(f"sessionStorage.setItem('dragoman.key', {key!r})")
    await stage.to(place)
    await stage.page.reload()


async def test_an_operator_reads_and_cancels_the_task_of_another(browser: str, tmp_path: Path) -> None:
    async with two_callers(browser, tmp_path) as (stage, keys):
        page = stage.page
        task = (await posted(stage, keys["ann"], "paint"))["id"]
        await opens(stage, "boss", f"#/tasks/curious/{task}")
        # Operators see first where the time went, and the question above it.
        await page.see("Waiting for an answer", ".timeline")
        await page.see("Which color?", ".task > .notice")
        await page.see("ann", ".summary")
        await page.click("[data-tab=conversation]")
        await page.see("paint", "[data-kind=user]")
        await page.becomes("document.title", "paint · input required · Dragoman")
        # The operator does not speak for the caller.
        await page.see("This task belongs to ann.", ".task")
        assert await page.run("document.querySelector('.compose, .answer')") is None
        for tab, text in (
            ("execution", "It waits for a message from its caller"),
            ("pushes", "This task has no push configurations"),
            ("wire", "TASK_STATE_SUBMITTED"),
        ):
            await page.click(f"[data-tab={tab}]")
            await page.see(text, ".panel")
        await page.click("[data-tab=conversation]")
        assert await issues(page) == []
        await page.click(".head button", "Cancel task")
        await page.see("It belongs to ann.", "dialog[open]")
        await page.click("dialog[open] button", "Cancel task")
        await page.see("canceled", ".head .state")
        async with stage.http.get(f"/curious/tasks/{task}", headers={"Authorization": f"Bearer {keys['ann']}"}) as one:
            assert (await one.json())["status"]["state"] == "TASK_STATE_CANCELED"


async def test_later_messages_and_events_of_the_task_appear(browser: str, tmp_path: Path) -> None:
    async with two_callers(browser, tmp_path) as (stage, keys):
        page = stage.page
        task = (await posted(stage, keys["ann"], "paint"))["id"]
        await opens(stage, keys["watcher"], f"#/tasks/curious/{task}?tab=conversation")
        await page.see("Which color?", ".conversation")
        await posted(stage, keys["ann"], "red", task=task)
        await page.see("You said red.", ".conversation")
        kinds = "[...document.querySelectorAll('.conversation > li')].map(one => one.dataset.kind)"
        assert (await page.run(kinds))[:4] == ["created", "user", "status", "user"]
        await page.until("document.querySelector('[data-kind=artifact] img')?.naturalWidth === 10")
        # A viewer can only look.
        other = (await posted(stage, keys["ann"], "again"))["id"]
        await stage.to(f"#/tasks/curious/{other}?tab=conversation")
        await page.see("Which color?", ".conversation")
        assert await page.run("document.querySelector('.actions > button')") is None


async def test_an_operator_runs_the_task_of_another_again(browser: str, tmp_path: Path) -> None:
    async with two_callers(browser, tmp_path) as (stage, keys):
        page = stage.page
        task = (await posted(stage, keys["ann"], "paint"))["id"]
        await posted(stage, keys["ann"], "red", task=task)
        await opens(stage, "boss", f"#/tasks/curious/{task}")
        await page.see("completed", ".head .state")
        await page.click(".actions > button", "Rerun")
        await page.see("starts a new task of ann", "dialog[open]")
        assert await issues(page) == []
        await page.click("dialog[open] button", "Rerun")
        await page.until(f"location.hash.startsWith('#/tasks/curious/') && !location.hash.includes({task!r})")
        await page.see("input required", ".head .state")
        await page.see("ann", ".summary")
        await page.becomes("document.querySelector('#task-title').innerText", "paint")


async def test_a_long_task_is_shown_as_it_is(browser: str, tmp_path: Path) -> None:
    async with two_callers(browser, tmp_path) as (stage, keys):
        page = stage.page
        task = (await posted(stage, keys["ann"], "count", agent="long"))["id"]
        await opens(stage, "boss", f"#/tasks/long/{task}?tab=conversation")
        await page.see("Earlier events are not shown", ".conversation")
        await page.see("count", "[data-kind=user]")
        await page.see("completed", ".head .state")
        await page.click("[data-tab=artifacts]")
        assert (await page.text(".results .text")).split()[-1] == "1199"


async def test_others_are_told_that_they_cannot_see_it(browser: str, tmp_path: Path) -> None:
    async with two_callers(browser, tmp_path) as (stage, keys):
        page = stage.page
        await asyncio.gather(*(posted(stage, "boss", text) for text in ("one", "two")))
        task = (await posted(stage, "boss", "secret"))["id"]
        await opens(stage, keys["ann"], f"#/tasks/curious/{task}")
        await page.see("You cannot see this task", ".detail [role=alert]")
        await page.see("Only operators can see how a task is executed", ".execution")
        assert "secret" not in await page.text("body")
