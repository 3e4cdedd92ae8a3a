"""Usage of delegated tasks counts for the delegating task: in the store, in responses, lists and streams."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict
from tests.listing import list_tasks
from tests.telemetry.test_metrics import fetch, parsed, value
from tests.telemetry.test_usage import ended, explained

from dragoman import Turn, agent
from dragoman.client import connect
from dragoman.client.calls import Client, message
from dragoman.client.operations import Operator
from dragoman.client.options import CallOptions
from dragoman.core import trace
from dragoman.core.access.identity import Identity
from dragoman.core.limits.quotas import Usage, parse_budgets
from dragoman.runtime import Call
from dragoman.settings.settings import Settings
from dragoman.testing import AgentUnderTest
from dragoman.wiring.app import App, open_app
from dragoman.worker import Worker
from dragoman_pb.dragoman.ops.v1 import ops_pb2 as ops
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

HELPED = {"tokens": 31.0, "cost": 0.75, "delegated": {"tokens": 30.0, "cost": 0.75}}


@agent
async def helper(turn: Turn) -> str:
    """Reports usage, and delegates half of it on request."""
    if "://" in turn.text or turn.text.startswith("127."):
        turn.usage(tokens=10, cost=0.25)
        async with Client(turn.text, agent="helper") as client:
            await client.send(message("alone"))
    else:
        turn.usage(tokens=10, cost=0.25)
    return "helped"


def lead_at(address: list[str]) -> Any:
    """An agent that delegates to the addresses in the list: gRPC, then HTTP."""

    @agent(default=True)
    async def lead(turn: Turn) -> str:
        turn.usage(tokens=1)
        async with Client(address[0], agent="helper") as client, connect(address[1]) as other:
            await asyncio.gather(client.send(message("alone")), other.ask(address[0], agent="helper"))
        return "done"

    return lead


@agent
def threaded(turn: Turn) -> str:
    """Uses nothing itself, and delegates from a thread."""

    async def ask() -> None:
        async with Client(turn.text, agent="helper") as client:
            await client.send(message("alone"))

    asyncio.run(ask())
    return "done"


@asynccontextmanager
async def serving(folder: Path, **overrides: Any) -> AsyncIterator[App]:
    places = {"http": "127.0.0.1:0", "grpc": "127.0.0.1:0", "store": f"sqlite:///{folder}/tasks.db"}
    address: list[str] = []
    agents: list[Any] = [lead_at(address), helper, threaded]
    async with open_app(Settings.model_validate({**places, **overrides}), agents) as app:
        address += [str(app.grpc), app.public_url]
        yield app


async def test_a_task_shows_the_usage_of_its_delegated_tasks(tmp_path: Path) -> None:
    async with serving(tmp_path) as app:
        task, valueses = await ended(app)
        assert valueses[-1]["usage"] == HELPED
        assert MessageToDict(task.metadata) == {"usage": HELPED}
        async with Client(str(app.grpc)) as client:
            assert [MessageToDict(one.metadata) async for one in list_tasks(client)] == [{"usage": HELPED}]
            answered = (await client.send(message("once more"))).task
            assert MessageToDict(answered.metadata) == {"usage": HELPED}
        async with Client(str(app.grpc), agent="helper") as client:
            below = [MessageToDict(one.metadata)["usage"] async for one in list_tasks(client)]
        alone = {"tokens": 10.0, "cost": 0.25}
        assert sorted(below, key=lambda one: one["tokens"])[::2] == [alone, alone, {**HELPED, **HALF}]
        one = await explained(app, task.id)
        assert (one.tokens, one.cost, one.delegated_tokens, one.delegated_cost) == (31, 0.75, 30, 0.75)
        assert [(child.agent, child.scope, child.state) for child in one.delegated] == [
            ("helper", "default", "TASK_STATE_COMPLETED")
        ] * len(one.delegated)
        assert len(one.delegated) == 2
        for child in one.delegated:
            assert one.since - 60_000 < child.created <= child.since <= one.since
            assert (await explained(app, child.task_id)).agent == "helper"
        _, valueses = await ended(app, str(app.grpc), agent="threaded")
        assert valueses[-1]["usage"] == {**alone, "delegated": alone}
        _, _, text = await fetch(f"{app.public_url}/metrics")
        values = parsed(text)  # each report once, for the agent that made it
        assert value(values, "usage_tokens_total", agent="lead") == 2
        assert value(values, "usage_tokens_total", agent="helper") == 70
        assert value(values, "usage_cost_total", agent="helper") == pytest.approx(1.75)
        assert value(values, "usage_tokens_total", agent="threaded") == 0


HALF = {"tokens": 20.0, "cost": 0.5, "delegated": {"tokens": 10.0, "cost": 0.25}}


async def test_operators_of_an_agent_see_no_delegated_tasks_of_others(tmp_path: Path) -> None:
    address = [""]

    @agent(default=True)
    async def delegating(turn: Turn) -> str:
        async with Client(address[0], agent="helper", options=CallOptions(token="secret")) as client:
            await client.send(message("alone"))
        return "done"

    places = {"http": "127.0.0.1:0", "grpc": "127.0.0.1:0", "store": f"sqlite:///{tmp_path}/tasks.db"}
    settings = Settings.model_validate({**places, "token": "secret", "api_keys": True})
    async with open_app(settings, [delegating, helper]) as app:
        address[0] = str(app.grpc)
        async with (
            Client(address[0], options=CallOptions(token="secret")) as client,
            Operator(address[0], token="secret") as operator,
        ):
            task = (await client.send(message("go"))).task.id
            limits = {"all": ["operator"], "one": ["operator", "agent:delegating"]}
            seen = {}
            for name, grants in limits.items():
                key = await operator.create_key(ops.CreateKeyRequest(name=name, grants=grants))
                async with Operator(address[0], token=key.text) as limited:
                    (one,) = (await limited.explain(ops.ExplainRequest(task_id=task))).tasks
                seen[name] = [child.agent for child in one.delegated]
    assert seen == {"all": ["helper"], "one": []}


async def test_agents_of_workers_can_delegate(tmp_path: Path) -> None:
    async with serving(tmp_path) as app:

        @agent
        async def far(turn: Turn) -> str:
            async with Client(str(app.grpc), agent="helper") as client:
                await client.send(message("alone"))
            return "done"

        worker = Worker([far], str(app.grpc))
        working = asyncio.create_task(worker.run())
        await worker.ready.wait()
        _, valueses = await ended(app, agent="far")
        assert valueses[-1]["usage"] == {"tokens": 10.0, "cost": 0.25, "delegated": {"tokens": 10.0, "cost": 0.25}}
        await worker.drain(5)
        await working


async def test_usage_of_delegated_tasks_counts_against_the_budget(tmp_path: Path) -> None:
    async with serving(tmp_path, budgets="lead.tokens=25") as app:
        task, _ = await ended(app)
        # It had its result before the report; its next turn would not start.
        assert task.status.state == pb.TASK_STATE_COMPLETED
    async with AgentUnderTest(asks_again, helper, budgets=parse_budgets("asks-again.tokens=5")) as a:
        run = await a.send("go")
        await a.send("alone", agent="helper", metadata=dict(run_metadata(run.id)))
        await run.send("go on")
        assert run.status_text.startswith(
            "OVER_BUDGET: The task exceeded its budget. It used 10 tokens; its budget is 5."
        )


@agent
async def asks_again(turn: Turn) -> str:
    """Asks a question first."""
    if turn.question is None:
        turn.ask("more?")
    return "done"


def run_metadata(task: str, agent: str = "asks-again") -> dict[str, Any]:
    return {trace.DELEGATION_URI: {"agent": agent, "task": task}}


async def test_only_the_creator_of_a_running_task_can_delegate_for_it() -> None:
    async with AgentUnderTest(asks_again, helper, principal="alice") as a:
        run = await a.send("go")

        async def help_as(principal: str, metadata: dict[str, Any]) -> Usage:
            request = pb.SendMessageRequest(message=message("alone"))
            request.metadata.update(metadata)
            operations = a.runtime.operations
            sent = await operations.send.send_message(
                Call(operations.access.authorize("helper", Identity(principal))), request
            )
            assert pb.SendMessageResponse.FromString(sent).task.status.state == pb.TASK_STATE_COMPLETED
            await run.refresh()
            return run.usage

        for metadata in (
            run_metadata("00000000-0000-7000-8000-00000000ffff"),
            run_metadata("nobody's"),
            run_metadata(run.id, "helper"),
            {trace.DELEGATION_URI: run.id},
            {trace.DELEGATION_URI: {"task": run.id}},
            {trace.DELEGATION_URI: {"agent": 1, "task": [run.id]}},
        ):
            assert await help_as("alice", metadata) == Usage()
        assert await help_as("mallory", run_metadata(run.id)) == Usage()
        used = await help_as("alice", run_metadata(run.id))
        assert used == Usage(10, 250_000_000, 10, 250_000_000)
        await run.answer("enough")
        assert run.task.metadata.fields["usage"].struct_value.fields["tokens"].number_value == 10
        assert await help_as("alice", run_metadata(run.id)) == used, "it has ended"


async def test_a_turn_has_the_headers_for_other_clients() -> None:
    seen: list[dict[str, Any]] = []

    @agent
    async def says(turn: Turn) -> str:
        seen.append(turn.delegation())
        request = pb.SendMessageRequest()
        trace.add_delegation(request)
        assert trace.parent_task_of(request) == ("says", turn.task_id)
        return "done"

    async with AgentUnderTest(says) as a:
        run = await a.send("go")
        assert run.text == "done"
        assert seen == [run_metadata(run.id, "says")]
        assert run.usage == Usage()
        assert not run.task.HasField("metadata")
        assert not run.events[-1].metadata
    outside = pb.SendMessageRequest()
    trace.add_delegation(outside)
    assert outside == pb.SendMessageRequest()
