"""The order in which waiting tasks get slots."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.runtime.harness import Harness, open_harness, state, status_text
from tests.runtime.test_isolation import Person

from dragoman.agents.functions.turn import Turn
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb


class Gate:
    """An agent that records its principals, and continues on a signal."""

    def __init__(self) -> None:
        self.served: list[str] = []
        self.began = asyncio.Event()
        self.may: asyncio.Semaphore = asyncio.Semaphore(0)

    def agent(self) -> Any:
        async def work(turn: Turn) -> str:
            self.served.append(f"{turn.principal} {turn.text}".strip())
            self.began.set()
            await self.may.acquire()
            return "done"

        return work

    def open(self) -> None:
        """Lets all turns end."""
        for _ in range(1000):
            self.may.release()

    async def count(self, turns: int) -> None:
        """Waits until this many turns have begun."""
        while len(self.served) < turns:
            self.began.clear()
            await self.began.wait()

    async def next(self) -> str:
        """Lets one turn end, and waits for the next to begin."""
        self.began.clear()
        self.may.release()
        await self.began.wait()
        return self.served[-1]


async def start(here: Harness, principal: str, text: str = "go") -> pb.Task:
    """A send that returns immediately."""
    person = Person(here, principal)
    request = pb.SendMessageRequest(
        message=pb.Message(message_id="m", role=pb.ROLE_USER, parts=[pb.Part(text=text)]),
        configuration=pb.SendMessageConfiguration(return_immediately=True),
    )
    answer = await here.runtime.operations.send.send_message(person.call, request)
    return pb.SendMessageResponse.FromString(answer).task


async def test_a_principal_with_many_waiting_tasks_does_not_block_others(tmp_path: Path) -> None:
    gate = Gate()
    async with asyncio.timeout(60), open_harness(tmp_path, gate.agent(), slots=1) as here:
        for number in range(50):
            await start(here, "alice", str(number))
        await gate.began.wait()
        await start(here, "bob", "0")
        await start(here, "carol", "0")
        await start(here, "bob", "1")
        served = [await gate.next() for _ in range(6)]
        assert served == ["bob 0", "carol 0", "alice 1", "bob 1", "alice 2", "alice 3"]
        gate.open()
        await gate.count(53)
        assert gate.served[7:] == [f"alice {number}" for number in range(4, 50)]


async def test_later_tasks_do_not_overtake_waiting_ones(tmp_path: Path) -> None:
    gate = Gate()
    async with asyncio.timeout(60), open_harness(tmp_path, gate.agent(), slots=1) as here:
        for number in range(3):
            await start(here, "alice", str(number))
        await gate.began.wait()
        looking, look, queried = asyncio.Event(), here.store.ready_tasks, asyncio.Event()

        async def waiting(*given: Any) -> Any:
            looking.set()
            await queried.wait()
            return await look(*given)

        here.store.ready_tasks = waiting  # type: ignore[assignment]  # the slot is free
        gate.may.release()
        await looking.wait()
        await start(here, "alice", "late")
        queried.set()
        gate.open()
        await gate.count(4)
        assert gate.served == ["alice 0", "alice 1", "alice 2", "alice late"]


@pytest.mark.usefixtures("time_to_think")
async def test_a_task_of_a_direct_agent_that_waits_for_a_slot_is_visible(tmp_path: Path) -> None:
    gate, began = asyncio.Event(), asyncio.Event()

    async def replies(turn: Turn) -> None:
        if turn.text == "wait":
            began.set()
            await gate.wait()
        turn.reply(f"yes, {turn.text}")

    async with asyncio.timeout(60), open_harness(tmp_path, replies, slots=1, direct=True) as here:
        first = asyncio.create_task(here.answer("wait"))
        await began.wait()
        waiting = await here.start("second")
        assert state(waiting) == "SUBMITTED"
        gate.set()
        assert (await first).message.parts[0].text == "yes, wait"
        done = await here.ended(waiting.id)
        assert (state(done), status_text(done)) == ("COMPLETED", "yes, second")


async def test_waiting_tasks_of_a_stopped_server_run_at_its_start(tmp_path: Path) -> None:
    gate = Gate()
    async with open_harness(tmp_path, gate.agent(), slots=1) as here:
        tasks = [await start(here, name) for name in ("alice", "alice", "bob")]
        await gate.began.wait()
    gate = Gate()
    gate.open()
    async with asyncio.timeout(60), open_harness(tmp_path, gate.agent(), slots=1) as here:
        await gate.count(2)
        assert gate.served == ["alice go", "bob go"]
        await here.idle()
        assert state(await Person(here, "bob").get(tasks[2].id)) == "COMPLETED"
