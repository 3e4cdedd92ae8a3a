"""A server whose event loop an agent blocks: it ends itself, or others take its tasks, and the tasks say why."""

from __future__ import annotations

import asyncio
import signal
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest
from tests.agents.workers.tasks import NOW, wait_for_state
from tests.agents.workers.worker_process import worker_process
from tests.cli.server import Server, serving

from dragoman.client.calls import Client, message
from dragoman.core.task import states
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

pytestmark = pytest.mark.long

AGENTS: Final = """
import asyncio, re, time
from pathlib import Path
from dragoman import Turn, agent, retry

@agent(default=True)
async def waits(turn: Turn) -> str:
    await turn.flush()
    await asyncio.sleep(3600)
    return "no"

async def sender_has_its_answer(agent):
    while not Path(f"answered {agent}").exists():
        await asyncio.sleep(0.01)

@agent
async def matches(turn: Turn) -> str:
    await sender_has_its_answer("matches")
    return str(search("a" * 60 + "b"))

def search(text: str) -> object:
    return re.match("(a+)+$", text)  # holds the interpreter's lock

@agent(on_crash=retry(1))
async def again(turn: Turn) -> str:
    await sender_has_its_answer("again")  # the second attempt begins during the start
    return str(search("a" * 60 + "b"))

@agent
async def spins(turn: Turn) -> str:
    await sender_has_its_answer("spins")
    while True:
        pass

@agent(on_crash=retry(1))
async def moves(turn: Turn):
    yield f"attempt {turn.attempt}"
    if turn.attempt == 1:
        await asyncio.sleep(3600)
"""

RECOVERY_TIMEOUT: Final = 120.0
"""Seconds in which others have taken over. It is 15 on a machine that is not busy; without it, it would be never."""

LINE: Final = AGENTS.splitlines().index('    return re.match("(a+)+$", text)  # holds the interpreter\'s lock') + 1


async def begun(server: Server, agent: str, folder: Path) -> str:
    """Sends a message to an agent and returns the id of its task; then the agent may block the server."""
    async with Client(server.grpc, agent=agent) as client:
        task = (await client.send(message("x"), configuration=NOW)).task.id
    (folder / f"answered {agent}").touch()
    return task


async def task_of(server: Server, agent: str, task: str) -> pb.Task:
    async with Client(server.grpc, agent=agent) as client:
        return await client.get(task)


async def ended(server: Server, agent: str, task: str, state: int) -> pb.Task:
    """Waits until a task has ended in a state, and returns it."""
    async with Client(server.grpc, agent=agent) as client:
        return await wait_for_state(client, task, state)


def text_of(task: pb.Task) -> str:
    return task.status.message.parts[0].text


def test_a_process_that_a_pattern_blocks_ends_and_its_tasks_say_why(tmp_path: Path) -> None:
    (tmp_path / "agents.py").write_text(AGENTS)
    arguments = "agents.py", "--loop-exit", "4"
    with serving(*arguments, cwd=tmp_path) as server:
        waiting = asyncio.run(begun(server, "waits", tmp_path))
        matching = asyncio.run(begun(server, "matches", tmp_path))
        assert server.ends() == 1
    with serving(*arguments, cwd=tmp_path) as server:
        logged = next(line for line in server.err.seen if "ended itself" in line)
        assert f"it was blocked by agent matches: agents.py, line {LINE}" in logged
        assert "re/__init__.py" in logged
        failed = asyncio.run(task_of(server, "matches", matching))
        assert failed.status.state == states.FAILED
        assert failed.status.message.metadata["reason"] == "INTERRUPTED"
        why = f'Its agent blocked the event loop of the server: "matches", agents.py, line {LINE}.'
        assert text_of(failed) == f"INTERRUPTED: The server stopped while this task was running. {why}"
        other = asyncio.run(task_of(server, "waits", waiting))
        assert text_of(other).endswith("Another agent blocked the event loop of the server.")
        server.signal(signal.SIGTERM)
        assert server.ends() == 0
    assert not list(tmp_path.glob("*-blocked"))
    with serving(*arguments, cwd=tmp_path) as server:
        assert not [line for line in server.err.seen if "ended itself" in line]


def test_each_attempt_that_blocks_the_server_counts(tmp_path: Path) -> None:
    (tmp_path / "agents.py").write_text(AGENTS)
    arguments = "agents.py", "--loop-exit", "4"
    with serving(*arguments, cwd=tmp_path) as server:
        task = asyncio.run(begun(server, "again", tmp_path))
        assert server.ends() == 1
    with serving(*arguments, cwd=tmp_path, ready=False) as server:
        assert server.ends() == 1  # the second attempt
    with serving(*arguments, cwd=tmp_path) as server:
        failed = asyncio.run(task_of(server, "again", task))
    assert failed.status.state == states.FAILED
    assert f'"again", agents.py, line {LINE}.' in text_of(failed)


def test_a_process_that_is_not_to_end_itself_stays(tmp_path: Path) -> None:
    (tmp_path / "agents.py").write_text(AGENTS)
    with serving("agents.py", "--loop-exit", "0", "--loop-timeout", "0.5", cwd=tmp_path) as server:
        asyncio.run(begun(server, "spins", tmp_path))
        line = server.err.until("the session is not renewed")
        assert "so other processes take over its tasks: the event loop is blocked" in line
        assert server.process.poll() is None


async def test_another_server_takes_the_tasks_of_one_whose_loop_is_blocked(
    tmp_path: Path, postgres_database: str
) -> None:
    (tmp_path / "agents.py").write_text(AGENTS)
    arguments = "agents.py", "--store", postgres_database, "--loop-timeout", "1", "--loop-exit", "0"
    with ExitStack() as stack:
        one = stack.enter_context(serving(*arguments, cwd=tmp_path))
        moving, waiting = await begun(one, "moves", tmp_path), await begun(one, "waits", tmp_path)
        other = await asyncio.to_thread(stack.enter_context, serving(*arguments, cwd=tmp_path))
        blocked_at = time.monotonic()
        blocking = await begun(one, "spins", tmp_path)

        async with asyncio.timeout(RECOVERY_TIMEOUT):
            moved = await ended(other, "moves", moving, states.COMPLETED)
            tasks = ("waits", waiting), ("spins", blocking)
            failed = [await ended(other, agent, task, states.FAILED) for agent, task in tasks]
        assert time.monotonic() - blocked_at > 5  # not because its process was found dead
        assert one.process.poll() is None
        assert "attempt 2" in str(moved.artifacts)
        assert [text_of(task) for task in failed] == [
            "INTERRUPTED: The server stopped while this task was running."
        ] * 2


def test_a_worker_whose_loop_is_blocked_loses_its_turns_and_ends_itself(tmp_path: Path) -> None:
    (tmp_path / "agents.py").write_text(AGENTS)
    with (
        serving("--workers-only", cwd=tmp_path) as server,
        worker_process(
            "--loop-timeout", "1", "--loop-exit", "8", server=server.grpc, cwd=tmp_path, app=tmp_path / "agents.py"
        ) as worker,
    ):

        async def lost() -> list[pb.Task]:
            tasks = [(agent, await begun(server, agent, tmp_path)) for agent in ("waits", "spins")]
            async with asyncio.timeout(RECOVERY_TIMEOUT):
                return [await ended(server, agent, task, states.FAILED) for agent, task in tasks]

        failed = asyncio.run(lost())
        assert worker.process.poll() is None  # it still runs the agents
        assert ["INTERRUPTED: The worker running this task was lost." in text_of(task) for task in failed] == [True] * 2
        assert worker.ends() == 1
        assert f'File "{tmp_path}/agents.py", line ' in worker.err.rest()
