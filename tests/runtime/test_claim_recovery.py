"""G3: claims are recovered when the store fails in the middle of their commit."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import set_timings
from tests.eventually import eventually
from tests.runtime.harness import Harness, open_harness, state, texts
from tests.runtime.unavailable_store import UnavailableStore

from dragoman import Turn
from dragoman.core.errors import Unavailable
from dragoman.core.task.log import Append, ClaimHeld, Ready
from dragoman.runtime import sessions


class BreaksOff(UnavailableStore):
    """A store that breaks off in the next commit of a claim, which was done, was not done, or is done later."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.next: Callable[[Append], Awaitable[object]] | None = None

    def append(self, change: Append) -> asyncio.Future[Any]:
        if "append" in self.unavailable:
            return self._refuse("append")(change)
        if not change.claim_session or self.next is None:
            return asyncio.ensure_future(self._store.append(change))
        commit, self.next = self.next, None

        async def break_off() -> None:
            await commit(change)
            raise uncertain()

        return asyncio.ensure_future(break_off())

    async def does(self, change: Append) -> None:
        await self._store.append(change)

    async def does_not(self, change: Append) -> None:
        """The commit was not done."""


def uncertain() -> Unavailable:
    error = Unavailable("the store stopped answering in a commit")
    error.outcome_unknown = True
    return error


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    set_timings(monkeypatch, claim_poll_interval=0.001)


@pytest.fixture
def polls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of claims left to check after each poll of the store."""
    left: list[int] = []
    ask = sessions.ClaimRecovery.poll

    async def noted(self: sessions.ClaimRecovery) -> bool:
        answered = await ask(self)
        left.append(len(self.claims.deadlines))
        return answered

    monkeypatch.setattr(sessions.ClaimRecovery, "poll", noted)
    return left


async def asks(turn: Turn) -> str:
    if turn.text == "ask" and turn.question is None:
        turn.ask("and?")
    return turn.text


async def only(here: Harness) -> str:
    """The id of the only task, once it exists."""
    while True:
        if tasks := (await here.list()).tasks:
            return tasks[0].id


async def test_a_task_that_was_committed_despite_the_error_runs(tmp_path: Path) -> None:
    store: Any = BreaksOff(tmp_path / "tasks.db")
    async with open_harness(tmp_path, asks, store=store) as here:
        store.next = store.does
        with pytest.raises(Unavailable):
            await here.send("hello")
        ended = await here.ended(await only(here))
        assert (state(ended), texts(ended)) == ("COMPLETED", ["hello"])
        await here.idle()


async def test_a_claimed_turn_of_an_existing_task_is_recovered(tmp_path: Path) -> None:
    store: Any = BreaksOff(tmp_path / "tasks.db")
    async with open_harness(tmp_path, asks, store=store) as here:
        task = await here.send("ask")
        store.next = store.does
        with pytest.raises(Unavailable):
            await here.send("more", task_id=task.id)
        ended = await here.ended(task.id)
        assert (state(ended), texts(ended)) == ("COMPLETED", ["more"])


async def test_a_claimed_turn_that_had_waited_for_a_slot_is_recovered(tmp_path: Path) -> None:
    async def works(turn: Turn) -> str:
        await here.at(turn.text).wait()
        return turn.text

    store: Any = BreaksOff(tmp_path / "tasks.db")
    async with open_harness(tmp_path, works, store=store, slots=1) as here:
        await here.start("first")
        second = await here.start("second")
        store.next = store.does
        here.at("second").set()
        here.at("first").set()
        assert texts(await here.ended(second.id)) == ["second"]
        await here.idle()


async def test_a_server_that_ends_gives_back_what_it_has_not_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_timings(monkeypatch, claim_poll_interval=600.0)
    store: Any = BreaksOff(tmp_path / "tasks.db")
    async with open_harness(tmp_path, asks, store=store) as here:
        store.next = store.does
        with pytest.raises(Unavailable):
            await here.send("hello")
        task = await only(here)
    async with open_harness(tmp_path, asks) as here:
        assert texts(await here.ended(task)) == ["hello"]


async def test_a_draining_server_gives_back_what_it_has_not_begun(tmp_path: Path, polls: list[int]) -> None:
    begun: list[str] = []

    async def works(turn: Turn) -> str:
        begun.append(turn.text)
        await here.at("over").wait()
        return turn.text

    store: Any = BreaksOff(tmp_path / "tasks.db")

    async def does_and_is_away(change: Append) -> None:
        await store.does(change)
        store.unavailable.add("append")

    async with open_harness(tmp_path, works, store=store) as here:
        first = await here.start("first")
        await eventually(lambda: begun == ["first"])
        store.next = does_and_is_away
        with pytest.raises(Unavailable):
            await here.start("second")
        second = next(task.id for task in (await here.list()).tasks if task.id != first.id)
        draining = asyncio.create_task(here.runtime.scheduler.drain(30))
        await eventually(lambda: here.runtime.scheduler.draining)
        store.unavailable.clear()
        await eventually(lambda: polls[-1:] == [0])
        here.at("over").set()
        await draining
    assert begun == ["first"]
    async with open_harness(tmp_path, works) as here:
        here.at("over").set()
        assert texts(await here.ended(second)) == ["second"]


async def test_a_server_that_ends_asks_again_while_the_store_does_not_respond(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_timings(monkeypatch, claim_poll_interval=600.0)
    store: Any = BreaksOff(tmp_path / "tasks.db")
    async with open_harness(tmp_path, asks, store=store) as here:
        store.next = store.does
        with pytest.raises(Unavailable):
            await here.send("hello")
        task = await only(here)

        def refuse_once() -> Exception:
            store.unavailable.clear()
            return Unavailable("the store does not answer")

        store.error = refuse_once
        store.unavailable.add("append")
    assert store.refused["append"] == 1
    async with open_harness(tmp_path, asks) as here:
        assert texts(await here.ended(task)) == ["hello"]


async def test_a_server_ends_in_time_while_the_store_is_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    set_timings(monkeypatch, claim_poll_interval=600.0, stop_timeout=0.1)
    store: Any = BreaksOff(tmp_path / "tasks.db")
    async with asyncio.timeout(60), open_harness(tmp_path, asks, store=store) as here:
        store.next = store.does_not
        with pytest.raises(Unavailable):
            await here.send("hello")
        store.unavailable.add("append")


async def test_the_store_is_polled_until_it_responds(tmp_path: Path) -> None:
    store: Any = BreaksOff(tmp_path / "tasks.db")
    async with open_harness(tmp_path, asks, store=store) as here:
        store.next = store.does
        with pytest.raises(Unavailable):
            await here.send("hello")
        store.unavailable.add("append")
        await store.tried("append", 3)
        store.unavailable.clear()
        assert texts(await here.ended(await only(here))) == ["hello"]


async def test_a_late_commit_is_found(tmp_path: Path, polls: list[int]) -> None:
    late: list[Append] = []

    async def comes_late(change: Append) -> None:
        late.append(change)

    store: Any = BreaksOff(tmp_path / "tasks.db")
    async with open_harness(tmp_path, asks, store=store) as here:
        store.next = comes_late
        with pytest.raises(Unavailable):
            await here.send("hello")
        await eventually(lambda: len(polls) > 2)
        await store.does(late[0])
        assert texts(await here.ended(await only(here))) == ["hello"]


async def test_a_claim_that_never_appears_is_not_polled_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, polls: list[int]
) -> None:
    set_timings(monkeypatch, claim_wait=0.0)
    store: Any = BreaksOff(tmp_path / "tasks.db")
    async with open_harness(tmp_path, asks, store=store) as here:
        store.next = store.does_not
        with pytest.raises(Unavailable):
            await here.send("hello")
        await eventually(lambda: bool(polls))
        assert not (await here.list()).tasks
        assert state(await here.send("hello")) == "COMPLETED"
    assert polls == [0]


async def test_a_running_turn_does_not_begin_twice(tmp_path: Path, polls: list[int]) -> None:
    begun: list[str] = []

    async def works(turn: Turn) -> str:
        begun.append(turn.text)
        await here.at("over").wait()
        return turn.text

    store: Any = BreaksOff(tmp_path / "tasks.db")
    async with open_harness(tmp_path, works, store=store) as here:
        task = await here.start("hello")
        store.next = store.does  # the message of a caller that arrives while it runs
        with pytest.raises(Unavailable):
            await here.start("more", task_id=task.id)
        await eventually(lambda: bool(polls))
        assert (begun, here.runtime.scheduler.running) == (["hello"], 1)
        here.at("over").set()
        assert state(await here.ended(task.id)) == "COMPLETED"
    assert polls == [0]


async def test_a_task_taken_over_by_another_process_is_left_to_it(tmp_path: Path, polls: list[int]) -> None:
    begun: list[str] = []

    async def works(turn: Turn) -> str:
        begun.append(turn.text)
        return turn.text

    store: Any = BreaksOff(tmp_path / "tasks.db")
    async with open_harness(tmp_path, works, store=store) as here:

        async def is_taken_over(change: Append) -> None:
            head = (await store._store.append(change)).record
            guard = ClaimHeld(head.session, head.token)
            await store._store.append(Append(task=head.ref, guard=guard, retry=True))
            await store._store.append(Append(task=head.ref, guard=Ready(), claim_session=head.session + 1))

        store.next = is_taken_over
        with pytest.raises(Unavailable):
            await here.send("hello")
        await eventually(lambda: bool(polls))
    assert (begun, polls) == ([], [0])


async def test_claims_with_a_known_outcome_are_not_polled(tmp_path: Path, polls: list[int]) -> None:
    store: Any = BreaksOff(tmp_path / "tasks.db")
    async with open_harness(tmp_path, asks, store=store) as here:
        store.unavailable.add("append")
        with pytest.raises(Unavailable):
            await here.send("hello")
        store.unavailable.clear()
        store.next = store.does
        with pytest.raises(Unavailable):
            await here.send("hello")
        await eventually(lambda: bool(polls))
        assert [texts(await here.ended(task.id)) for task in (await here.list()).tasks] == [["hello"]]
    assert polls == [0]


async def test_a_claim_answered_after_its_recovery_begins_no_second_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The claim is answered late, as one with a large part is."""
    begun: list[str] = []
    may, ask = asyncio.Event(), sessions.ClaimRecovery.poll

    async def when_it_may(self: sessions.ClaimRecovery) -> bool:
        await may.wait()
        return await ask(self)

    monkeypatch.setattr(sessions.ClaimRecovery, "poll", when_it_may)

    async def works(turn: Turn) -> str:
        begun.append(turn.text)
        if turn.text == "ask":
            turn.ask("and?")
        await here.at("over").wait()
        return turn.text

    store: Any = BreaksOff(tmp_path / "tasks.db")
    here: Harness
    async with open_harness(tmp_path, works, store=store) as here:
        here.at("over").set()
        task = await here.send("ask")
        here.at("over").clear()
        store.next = store.does_not
        with pytest.raises(Unavailable):
            await here.send("more", task_id=task.id)

        async def answers_late(change: Append) -> Any:
            answer = await store._store.append(change)
            may.set()
            await eventually(lambda: here.runtime.scheduler.running > 0)  # the check was answered first
            return answer

        answered = store._store.append
        store.append = lambda change: asyncio.ensure_future(
            (answers_late if change.claim_session else answered)(change)
        )
        sending = asyncio.ensure_future(here.start("more", task_id=task.id))
        await eventually(lambda: sending.done() and len(begun) > 1)
        here.at("over").set()
        assert state(await here.ended(task.id)) == "COMPLETED"
        await here.idle()
    assert begun == ["ask", "more"]
