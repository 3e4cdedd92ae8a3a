"""Access of callers: the agent that a tenant names, who may call it, and the limits of a caller."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.runtime.harness import Harness, collect, open_harness, request
from tests.runtime.test_isolation import Person

from dragoman.agents.functions.turn import Turn
from dragoman.core.access.identity import ANONYMOUS, AccessPolicy, Caller, Identity, Isolation, IsolationPolicy
from dragoman.core.cards.agent_spec import AgentSpec
from dragoman.core.daily_usage import DailyUsageQuery
from dragoman.core.errors import AgentNotFound, PermissionDenied, RateLimited, Unauthenticated, Unavailable
from dragoman.core.limits.quotas import Quotas
from dragoman.core.names import Owner
from dragoman.core.task.maintenance import ErasureCounts, TaskSelection
from dragoman.runtime.access import BURST_SECONDS, Access, Admission, Call
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

SCOPE = "projects/p/locations/l/collections/c/engines/e/assistants/{}"

AGENTS = {name: AgentSpec(id=name, name=name, description="An agent") for name in ("one", "two")}
ALICE = Identity("alice")


def test_an_empty_tenant_is_the_root_agent_and_the_caller_s_own_tasks() -> None:
    assert Access(AGENTS, "two").authorize("", ALICE) == Caller(Owner("default", "alice"), "two", ALICE)


def test_the_isolation_of_the_agent_decides_whose_tasks_are_in_reach() -> None:
    access = Access(AGENTS, "one", Isolation("owner", {"two": "scope"}))
    assert access.authorize("one", ALICE).owner.principal == "alice"
    assert access.authorize("two", ALICE).owner.principal == "shared:scope"


def test_an_unknown_agent_is_named_in_the_error_and_so_are_the_known_ones() -> None:
    with pytest.raises(AgentNotFound, match=r'no agent "nobody" here; use one of one, two$'):
        Access(AGENTS, "one").authorize("nobody", ANONYMOUS)


def test_a_call_before_the_first_worker_may_be_repeated() -> None:
    for tenant in ("", "anyone"):
        with pytest.raises(Unavailable, match="no worker has connected"):
            Access({}, "").authorize(tenant, ANONYMOUS)


def test_grants_are_checked() -> None:
    for grant in ("agent:two", "scope:elsewhere"):
        with pytest.raises(PermissionDenied) as denied:
            Access(AGENTS, "one").authorize("one", Identity("alice", frozenset({grant}), "key-1"))
        assert denied.value.log_details == {"principal": "alice", "key": "key-1"}


def test_a_reserved_principal_owns_no_tasks() -> None:
    for name in ("shared:scope", "shared:", ""):
        with pytest.raises(Unauthenticated, match="shared:"):
            Access(AGENTS, "one").authorize("", Identity(name))


def test_without_credentials_only_public_agents_are_called() -> None:
    access = Access(AGENTS, "one", policy=AccessPolicy(credentials_required=True, public_agents=frozenset({"two"})))
    assert access.authorize("two", ANONYMOUS).identity == ANONYMOUS
    with pytest.raises(Unauthenticated, match='credentials are required for agent "one"'):
        access.authorize("one", ANONYMOUS)


def test_hidden_agents_look_as_if_they_did_not_exist() -> None:
    access = Access(AGENTS, "one", policy=AccessPolicy(credentials_required=True, hides_agents=True))
    with pytest.raises(AgentNotFound, match=r'no agent "two" here; use one of one$'):
        access.authorize("two", Identity("eve", frozenset({"agent:one"})))
    for tenant in ("two", "nobody"):
        with pytest.raises(Unauthenticated, match=f'credentials are required for agent "{tenant}"'):
            access.authorize(tenant, ANONYMOUS)


def test_the_first_agent_that_registers_becomes_the_root_agent_if_there_is_none() -> None:
    access = Access(AGENTS, "")
    access.on_agent_added(AGENTS["two"])
    access.on_agent_added(AGENTS["one"])
    assert access.root == "two"


ALICE, BOB = Identity("alice"), Identity("bob")


class Clock:
    """Seconds that only a test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


# Requests ------------------------------------------------------------------------------------------------------------


def test_requests_are_limited_to_a_burst_and_then_a_rate() -> None:
    clock = Clock()
    admission = Admission(Quotas({"requests_per_second": 10}), clock)
    for _ in range(10 * BURST_SECONDS):
        admission.check_rate(ALICE)
    with pytest.raises(RateLimited, match="requests_per_second: at most 10 requests") as caught:
        admission.check_rate(ALICE)
    assert caught.value.retry_after == pytest.approx(0.1, abs=0.002)
    assert caught.value.metadata == {"limit": "requests_per_second", "maximum": "10"}
    admission.check_rate(BOB)
    clock.now += 0.1
    admission.check_rate(ALICE)
    with pytest.raises(RateLimited):
        admission.check_rate(ALICE)


def test_local_callers_have_no_request_limit() -> None:
    admission = Admission(Quotas(), Clock())
    for _ in range(10_000):
        admission.check_rate(ANONYMOUS)
    assert len(admission.buckets) == 0


# Open streams --------------------------------------------------------------------------------------------------------


def test_open_streams_are_limited_and_closing_one_makes_room() -> None:
    admission = Admission(Quotas({"open_streams": 1}))
    admission.open_stream(ALICE)
    admission.open_stream(BOB)
    with pytest.raises(RateLimited, match="open_streams: 1 of your"):
        admission.open_stream(ALICE)
    admission.close_stream(ALICE)
    admission.open_stream(ALICE)
    assert admission.open_streams == {ALICE.principal: 1, BOB.principal: 1}
    admission.close_stream(ALICE)
    admission.close_stream(BOB)
    assert admission.open_streams == {}


async def slow(turn: Turn) -> str:
    await asyncio.Event().wait()
    return "never"


async def echo(turn: Turn) -> str:
    return turn.text


@asynccontextmanager
async def limited(tmp_path: Path, *agents: Any, **limits: int) -> AsyncIterator[Harness]:
    async with open_harness(tmp_path, *(agents or (slow, echo)), quotas=Quotas(limits)) as here:
        yield here


async def test_streams_subscriptions_and_blocking_sends_share_one_limit(tmp_path: Path) -> None:
    async with limited(tmp_path, open_streams=2) as here:
        task = await here.start()  # it does not wait, so it is not open
        stream = here.stream()
        await anext(stream)
        following = here.follow(task.id)
        await anext(following)
        for refused in (here.send(), collect(here.stream()), collect(here.follow(task.id))):
            with pytest.raises(RateLimited, match="open_streams"):
                await refused
        assert (await here.list()).total_size == 2  # a rejected send left no task
        await following.aclose()
        async with asyncio.timeout(60):
            await anext(here.follow(task.id))
        await stream.aclose()


async def test_an_ended_stream_does_not_count(tmp_path: Path) -> None:
    async with limited(tmp_path, echo, open_streams=1) as here:
        for _ in range(3):
            await collect(here.stream())
            await here.send()
        assert here.runtime.operations.admission.open_streams == {}


# Messages ------------------------------------------------------------------------------------------------------------


async def test_a_message_over_a_limit_is_rejected_with_the_limit_and_not_stored(tmp_path: Path) -> None:
    async with limited(tmp_path, live_tasks=2) as here:
        tasks = [await here.start() for _ in range(2)]
        with pytest.raises(RateLimited, match="live_tasks: 2 of your tasks are unfinished; at most 2") as caught:
            await here.start()
        assert caught.value.retry_after > 0
        assert (await here.list()).total_size == 2
        await here.cancel(tasks[0].id)
        await here.start()


async def test_a_principal_that_stores_too_much_sends_nothing_until_some_is_erased(tmp_path: Path) -> None:
    async with limited(tmp_path, echo, stored_bytes=5_000) as here:
        counted, measure = here.runtime.operations.admission.stored_bytes, here.store.erasures.measure
        assert counted is not None
        await here.send("x" * 100)
        await counted.count(measure)
        tasks = [await here.send(str(number) * 500) for number in range(10)]
        await counted.count(measure)
        with pytest.raises(RateLimited, match=r"stored_bytes: \d+ bytes of .* at most 5000 may be") as caught:
            await here.send("x")
        assert caught.value.metadata == {"limit": "stored_bytes", "maximum": "5000"}
        for task in tasks:
            await here.store.erasures.erase(TaskSelection(task=task.id))
        await counted.count(measure)  # of a principal that sent nothing that was accepted
        await here.send("x")


@pytest.mark.parametrize("isolation", ["owner", "scope"])
async def test_a_caller_without_a_grant_of_scopes_creates_tasks_in_so_many(
    tmp_path: Path, isolation: IsolationPolicy
) -> None:
    quotas = Quotas({"scopes": 2})
    async with open_harness(tmp_path, echo, quotas=quotas, isolation=Isolation(isolation)) as here:

        async def send(number: int, *grants: str) -> pb.Task:
            identity = Identity("alice", frozenset(grants))
            caller = here.runtime.operations.access.authorize(f"{SCOPE.format(number)}/agents/echo", identity)
            answer = await here.runtime.operations.send.send_message(Call(caller), request("hello"))
            return pb.SendMessageResponse.FromString(answer).task

        first = [await send(number) for number in (1, 2, 1)]
        with pytest.raises(RateLimited, match=r"^scopes: tenant: this scope would be one more than the 2") as caught:
            await send(3, "operator")
        assert caught.value.metadata == {"limit": "scopes", "maximum": "2"}
        assert len(await here.store.daily_usage(DailyUsageQuery(0, 10**6, ("scope",)))) == 2
        assert await send(3, f"scope:{SCOPE.format(3)}") not in first
        await Person(here, "alice").send()  # the default scope is everybody's


async def test_only_principals_that_send_are_counted_and_one_whose_count_failed_again() -> None:
    measured: list[str] = []

    async def measure(selection: TaskSelection) -> ErasureCounts:
        measured.append(selection.principal)
        if len(measured) == 2:
            raise ConnectionError
        return ErasureCounts(bytes=9)

    admission = Admission(Quotas({"stored_bytes": 10}), Clock())
    counted = admission.stored_bytes
    assert counted is not None
    for identity in (ALICE, BOB, BOB):
        assert admission.quota(identity, "agent") == Quotas().quota("agent", authenticated=True)
    with pytest.raises(ConnectionError):
        await counted.count(measure)
    for _ in range(2):
        await counted.count(measure)
    assert measured == ["alice", "bob", "bob"]


async def test_the_slot_reserved_for_a_rejected_message_is_released(tmp_path: Path) -> None:
    async with limited(tmp_path, live_tasks=1, live_tasks_per_agent=1) as here:
        await here.start()
        free = here.runtime.scheduler.runs.free_slots
        with pytest.raises(RateLimited):
            await here.start()
        assert here.runtime.scheduler.runs.free_slots == free


async def test_the_limit_of_one_principal_does_not_affect_others(tmp_path: Path) -> None:
    async with limited(tmp_path, echo, starts_per_minute=1) as here:
        alice, bob = Person(here, "alice"), Person(here, "bob")
        await alice.send()
        with pytest.raises(RateLimited, match="starts_per_minute: at most 1 of your turns"):
            await alice.send()
        await bob.send()


async def test_a_repeated_send_is_answered_although_the_quota_is_used_up(tmp_path: Path) -> None:
    async with limited(tmp_path, echo, starts_per_minute=1) as here:
        alice = Person(here, "alice", idempotency_key="k")
        first = await alice.send()
        assert (await alice.send()).id == first.id
        with pytest.raises(RateLimited):
            await alice.using(idempotency_key="other").send()


async def test_agents_may_have_their_own_limits(tmp_path: Path) -> None:
    quotas = Quotas(agents={"slow": {"live_tasks": 1}})
    async with open_harness(tmp_path, slow, echo, quotas=quotas) as here:
        await here.start()
        with pytest.raises(RateLimited, match="live_tasks_per_agent: 1 of your tasks with this agent"):
            await here.start()
        await Person(here, "alice", "echo").send()


async def test_queued_messages_count_against_their_sender(tmp_path: Path) -> None:
    async def reads(turn: Turn) -> str:
        turn.status("at it")
        async for message in turn.messages():
            if message.text == "end":
                break
        return "done"

    async with limited(tmp_path, reads, queued_bytes=10_000) as here:
        task = await here.start()
        await here.send("end", task_id=task.id)
        assert pb.TaskState.Name((await here.get(task.id)).status.state) == "TASK_STATE_COMPLETED"

    async with limited(tmp_path, slow, queued_bytes=3_000) as here:
        task = await here.start()
        sends = [here.start("x" * 300, task_id=task.id) for _ in range(10)]
        results = await asyncio.gather(*sends, return_exceptions=True)
        refused = [str(result) for result in results if isinstance(result, RateLimited)]
        assert 7 <= len(refused) <= 9
        assert all("bytes of your messages are queued; at most 3000 may be" in text for text in refused)
        assert len((await here.get(task.id)).history) == 1 + len(results) - len(refused)
