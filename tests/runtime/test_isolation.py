"""Isolation policies: visibility of tasks, and the recorded principal."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.runtime.harness import Harness, open_harness, request, status_text, texts

from dragoman.agents.functions.turn import Turn
from dragoman.core.access.identity import Identity, Isolation, parse_isolation
from dragoman.core.errors import IdempotencyKeyReused, TaskNotFound
from dragoman.runtime import Call
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb


async def support(turn: Turn) -> Any:
    """Returns its sender and what it can read; `ask` waits for more."""
    notes = turn.context.state
    notes["heard"] = notes.get("heard", 0) + 1
    if turn.text.startswith("ask"):
        turn.ask(f"what else, {turn.principal}?")
    referred = ",".join(task.id for task in turn.references)
    return f"{turn.principal} {notes['heard']} {referred}".strip()


async def other(turn: Turn) -> str:
    return turn.text


class Person:
    """A principal, with calls to the runtime."""

    def __init__(self, here: Harness, principal: str, tenant: str = "", **details: Any) -> None:
        self.here = here
        self.call = Call(here.runtime.operations.access.authorize(tenant, Identity(principal)), **details)

    def using(self, **details: Any) -> Person:
        changed = object.__new__(Person)
        changed.here, changed.call = self.here, replace(self.call, **details)
        return changed

    async def send(self, text: str = "hello", **message: Any) -> pb.Task:
        answer = await self.here.runtime.operations.send.send_message(self.call, request(text, **message))
        return pb.SendMessageResponse.FromString(answer).task

    async def get(self, task_id: str) -> pb.Task:
        answer = await self.here.runtime.operations.read.get_task(self.call, pb.GetTaskRequest(id=task_id))
        return pb.Task.FromString(answer)

    async def cancel(self, task_id: str) -> pb.Task:
        answer = await self.here.runtime.operations.cancel.cancel_task(self.call, pb.CancelTaskRequest(id=task_id))
        return pb.Task.FromString(answer)

    async def lists(self, **filters: Any) -> set[str]:
        answer = await self.here.runtime.operations.read.list_tasks(self.call, pb.ListTasksRequest(**filters))
        listed = pb.ListTasksResponse.FromString(answer)
        assert listed.total_size == len(listed.tasks)
        return {task.id for task in listed.tasks}


@asynccontextmanager
async def people(tmp_path: Path, policy: str, *names: str) -> AsyncIterator[list[Person]]:
    async with open_harness(tmp_path, support, other, isolation=parse_isolation(policy)) as here:
        yield [Person(here, name) for name in names or ("alice", "bob")]


# Owner -------------------------------------------------------------------------------------------------------------


async def test_a_task_is_its_principal_s_alone(tmp_path: Path) -> None:
    async with people(tmp_path, "owner") as (alice, bob):
        task = await alice.send()
        for attempt in (bob.get(task.id), bob.cancel(task.id), bob.send(task_id=task.id)):
            with pytest.raises(TaskNotFound):
                await attempt
        assert await bob.lists() == set()
        assert await alice.lists() == {task.id}


async def test_naming_another_principal_s_conversation_begins_an_own_one_of_that_name(tmp_path: Path) -> None:
    async with people(tmp_path, "owner") as (alice, bob):
        hers = await alice.send()
        his = await bob.send(context_id=hers.context_id)
        assert his.context_id == hers.context_id
        assert texts(his) == ["bob 1"]  # without the state of the other conversation
        assert await bob.lists(context_id=hers.context_id) == {his.id}
        assert await alice.lists(context_id=hers.context_id) == {hers.id}


# Scope -------------------------------------------------------------------------------------------------------------


async def test_all_of_a_scope_share_its_tasks_and_are_distinguished(tmp_path: Path) -> None:
    async with people(tmp_path, "scope") as (alice, bob):
        task = await alice.send("ask")
        assert status_text(task) == "what else, alice?"
        assert await bob.lists() == {task.id}
        done = await bob.send("this", task_id=task.id)
        assert texts(done) == ["bob 2"]
        (head,) = await alice.here.store.locate(task.id)
        assert head.principal == "alice"
        elsewhere = Person(alice.here, "alice", tenant=f"{SCOPE}/agents/support")
        assert await elsewhere.lists() == set()
        with pytest.raises(TaskNotFound):
            await elsewhere.get(task.id)


SCOPE = "projects/p/locations/l/collections/c/engines/e/assistants/a"


async def test_idempotency_keys_are_per_principal_even_where_tasks_are_shared(tmp_path: Path) -> None:
    async with people(tmp_path, "scope") as (alice, bob):
        one, two = alice.using(idempotency_key="1"), bob.using(idempotency_key="1")
        hers, his = await one.send("hers"), await two.send("his")
        assert hers.id != his.id
        assert (await one.send("hers")).id == hers.id
        assert (await two.send("his")).id == his.id
        with pytest.raises(IdempotencyKeyReused):
            await two.send("hers")


async def test_agents_may_have_their_own_policies(tmp_path: Path) -> None:
    async with people(tmp_path, "owner,other=scope") as (alice, bob):
        private = await alice.send()
        shared = await Person(alice.here, "alice", "other").send()
        assert (await Person(bob.here, "bob", "other").get(shared.id)).id == shared.id
        with pytest.raises(TaskNotFound):
            await bob.get(private.id)


# Tasks that a message names ------------------------------------------------------------------------------------------


async def test_a_caller_cannot_refer_to_tasks_of_others(tmp_path: Path) -> None:
    async with people(tmp_path, "owner") as (alice, bob):
        hers, his = await alice.send(), await bob.send()
        both = [hers.id, his.id]
        assert texts(await bob.send(reference_task_ids=both)) == [f"bob 1 {his.id}"]
        assert texts(await alice.send(reference_task_ids=both)) == [f"alice 1 {hers.id}"]


@pytest.mark.parametrize("policy", ["owner", "scope"])
async def test_ids_chosen_by_clients_belong_to_the_owner_of_their_tasks(tmp_path: Path, policy: str) -> None:
    async with people(tmp_path, policy) as (alice, bob):
        hers = await alice.using(names_tasks=True).send("ask", task_id="1")
        his = await bob.using(names_tasks=True).send("ask", task_id="1")
        assert (his.context_id == hers.context_id) is (policy == "scope")
        assert len((await alice.get("1")).history) == (3 if policy == "scope" else 1)


# The policies --------------------------------------------------------------------------------------------------------


def test_policies_are_read_from_text_and_tables() -> None:
    assert parse_isolation("scope") == Isolation("scope")
    assert parse_isolation("scope, support=owner") == Isolation("scope", {"support": "owner"})
    assert parse_isolation({"default": "scope", "support": "owner"}) == Isolation("scope", {"support": "owner"})
    assert parse_isolation("") == Isolation()


@pytest.mark.parametrize("wrong", ["everyone", "owner,support=none", {"support": 1}])
def test_an_invalid_policy_is_rejected(wrong: Any) -> None:
    with pytest.raises(ValueError, match=r"is not an isolation policy; use owner, scope$"):
        parse_isolation(wrong)
