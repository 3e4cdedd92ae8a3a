"""Tasks that wait for five different reasons are explained in the console and by `explain`."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.agents.workers.worker_process import worker_process
from tests.cli.server import clean_environment
from tests.console.served import Stage, staged
from tests.docs.shown import differs
from tests.runtime.push.receivers import answered

from dragoman.agents.workers.connection import HeartbeatTimings
from tools.pages import ROOT, blocks

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]

PAGE = ROOT / "docs" / "how-to" / "operations.md"
DOWN = "https://down.example/hook"
WORKER = """
import asyncio
from dragoman import Turn, agent

@agent
async def far(turn: Turn):
    yield "begun"
    await asyncio.Event().wait()
"""


async def state_of(stage: Stage, task: str) -> dict[str, str]:
    """Returns the output of `dragoman explain` by the first word of each line."""
    words = (sys.executable, "-m", "dragoman", "explain", task, "--server", str(stage.app.grpc))
    process = await asyncio.create_subprocess_exec(*words, env=clean_environment(), stdout=asyncio.subprocess.PIPE)
    out, _ = await process.communicate()
    assert process.returncode == 0
    return {line[:12].rstrip(): line[13:] for line in out.decode().splitlines()}


async def begun(stage: Stage, agent: str, text: str = "go") -> str:
    """Starts a task without waiting, and returns its id."""
    task = await stage.put(text, agent, configuration={"returnImmediately": True})
    return str(task["id"])


async def seen(stage: Stage, agent: str, task: str, *texts: str) -> dict[str, str]:
    """Waits until the console shows these texts as the next step, updating like a user.

    Returns the output of `explain`, which must contain them too.
    """
    page = stage.page
    await stage.to(f"#/tasks/{agent}/{task}?tab=execution")
    for text in texts:
        deadline = time.monotonic() + 60
        while text not in (shown := await page.text(".next")):
            assert time.monotonic() < deadline, f"{text!r} was not shown, but {shown!r}"
            await page.click(".next button", "update")
            await asyncio.sleep(0.1)  # the console does not update by itself
    lines = await state_of(stage, task)
    for text in texts:
        assert text in lines["next"]
    return lines


@dataclass
class Mute:
    """An upstream agent that serves its card, accepts all other requests, and never responds."""

    url: str
    held: list[asyncio.StreamWriter]

    def hang_up(self) -> None:
        for writer in self.held:
            writer.transport.abort()


@asynccontextmanager
async def mute() -> AsyncIterator[Mute]:
    """Runs such an agent."""
    held: list[asyncio.StreamWriter] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        data = await reader.readuntil(b"\r\n\r\n")
        if b"agent-card.json" not in data:
            held.append(writer)
            return
        body = json.dumps(card).encode()
        head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        writer.write(f"{head}Connection: close\r\n\r\n".encode() + body)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        modes = {"defaultInputModes": ["text/plain"], "defaultOutputModes": ["text/plain"]}
        interface = {"url": f"{url}/", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
        card = {
            **{"name": "Mute", "description": "Says nothing", "version": "1", "skills": [], **modes},
            **{"supportedInterfaces": [interface], "capabilities": {"streaming": True}},
        }
        yield (created_mute := Mute(url, held))
        created_mute.hang_up()


async def test_a_dead_worker(browser: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # High enough that the silent worker is not declared dead before all have seen its silence.
    monkeypatch.setattr("dragoman.agents.workers.hub.HeartbeatTimings", lambda: HeartbeatTimings(lease=600.0))
    (tmp_path / "worker.py").write_text(WORKER)
    async with staged(browser, tmp_path) as stage:
        at = worker_process("--name", "box-7", server=str(stage.app.grpc), cwd=tmp_path, app=tmp_path / "worker.py")
        worker = await asyncio.to_thread(at.__enter__)
        try:
            task = await begun(stage, "far")
            lines = await seen(stage, "far", task, "Its agent has been working on it since", "its last output was")
            assert lines["worker"].startswith("box-7 (ipv4:127.0.0.1:")
            assert "If its worker dies, it ends as FAILED at once" in lines["next"]
            await stage.page.see("box-7 (ipv4:127.0.0.1:", ".execution .facts")
            # It is frozen, and still connected.
            worker.signal(signal.SIGSTOP)
            lines = await seen(stage, "far", task, "Its worker has sent nothing for", "after 600 s of silence")
            text = "Its worker has sent nothing"
            (shown,) = (block.text for block in blocks(PAGE.read_text("utf-8")) if text in block.text)
            printed = [f"{name}  {lines[name]}" for name in ("held by", "worker", "next")]
            assert not differs(shown.splitlines()[2:], [], printed, {}, loosely=True)
            worker.signal(signal.SIGKILL)
            await seen(
                stage, "far", task, 'Nothing: the task has ended: "INTERRUPTED: The worker running this task was lost."'
            )
            # New tasks wait for another worker.
            late = await begun(stage, "far", "later")
            waits = (
                'It waits for a worker of agent "far". None has been connected for',
                "the task ends as FAILED. Start one",
            )
            lines = await seen(stage, "far", late, *waits)
            assert lines["held by"].startswith("no process; waiting")
        finally:
            await asyncio.to_thread(at.__exit__, None, None, None)


async def test_a_silent_upstream_agent(browser: str, tmp_path: Path) -> None:
    async with mute() as upstream, staged(browser, tmp_path, upstream=[f"mute={upstream.url}"]) as stage:
        task = await begun(stage, "mute")
        lines = await seen(
            stage,
            "mute",
            task,
            "it has produced no output yet. It has the message and has not responded yet",
            "A call that receives nothing for 120 s is aborted and repeated",
            "It has no time_limit and no idle_limit, so it may run indefinitely; a cancel ends it",
        )
        assert lines["worker"] == f"upstream JSONRPC 1.0 at {upstream.url}/"
        # It disconnects after receiving the message, so its tasks are listed, to which it does not respond either.
        upstream.hang_up()
        await seen(
            stage,
            "mute",
            task,
            "The last call to it failed ",
            "After 5 consecutive failures the agent counts as unavailable, and the turn",
        )


async def test_a_full_queue_an_open_question_and_an_unavailable_receiver(browser: str, tmp_path: Path) -> None:
    async with staged(browser, tmp_path, slots=1, retention="input-required=1d") as stage:
        stage.receivers.answer(DOWN, then=answered(503))
        pushing = {"taskPushNotificationConfig": {"url": DOWN}}
        text = str((await stage.put("paint", configuration=pushing))["id"])
        lines = await seen(
            stage,
            "curious",
            text,
            'It waits for a message from its caller: "Which color?" Without an answer it ends as FAILED at about',
            f"Its webhook {DOWN} has accepted nothing since",
            "(answered 503)",
        )
        assert f"to {DOWN}: LIVE, " in lines["push"]
        await begun(stage, "dictation")
        waiting = await begun(stage, "dictation", "later")
        full = 'It waits for a free slot here: all 1 are taken, by agent "dictation". It starts when a slot is free'
        await seen(stage, "dictation", waiting, full)
