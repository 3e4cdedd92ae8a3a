"""Usage of tasks: sums in the store, in events, and budgets that stop tasks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict
from tests.telemetry.test_metrics import fetch, parsed, value

from dragoman import Turn, agent
from dragoman.client.calls import Client, message
from dragoman.client.operations import Operator
from dragoman.core.limits.quotas import TaskBudget, TaskBudgets, Usage, UsageReport, checked_usage_report, parse_budgets
from dragoman.settings.settings import Settings
from dragoman.wiring.app import App, open_app
from dragoman.worker import Worker
from dragoman_pb.dragoman.ops.v1 import ops_pb2 as ops
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb


@agent(default=True)
async def spends(turn: Turn) -> str:
    """Reports the usage in the text, and asks a question in between."""
    if turn.text == "ask":
        turn.usage(tokens=10, cost=0.000001)
        turn.usage(tokens=5, key="the first call")
        turn.ask("more?")
    turn.usage(tokens=5, key="the first call")
    for _ in range(3):
        turn.usage(tokens=1, cost=0.1)
    return "done"


@agent
def threaded(turn: Turn) -> str:
    """Reports usage from a thread."""
    turn.usage(tokens=7)
    return "done"


@agent
async def endless(turn: Turn) -> None:
    """Reports usage until it is stopped."""
    try:
        while True:
            turn.usage(tokens=100)
            await asyncio.sleep(0)
    finally:
        turn.state["reason"] = turn.cancel_reason


@agent
async def silent(turn: Turn) -> str:
    """Uses nothing."""
    return "done"


@asynccontextmanager
async def serving(folder: Path, **overrides: Any) -> AsyncIterator[App]:
    places = {"http": "127.0.0.1:0", "grpc": "127.0.0.1:0", "store": f"sqlite:///{folder}/tasks.db"}
    agents: list[Any] = [spends, threaded, endless, silent]
    async with open_app(Settings.model_validate({**places, **overrides}), agents) as app:
        yield app


async def ended(app: App, text: str = "go", agent: str = "", task: str = "") -> tuple[pb.Task, list[dict[str, Any]]]:
    """The task after a turn, and the metadata of each event of its stream."""
    metadata_of_events: list[dict[str, Any]] = []
    async with Client(str(app.grpc), agent=agent) as client:
        async for event in client.stream(message(text, task=task)):
            metadata_of_events.append(MessageToDict(event.status_update.metadata))
            seen = event.task.id or event.status_update.task_id or event.artifact_update.task_id
        return await client.get(seen), metadata_of_events


async def explained(app: App, task: str) -> ops.Explanation:
    async with Operator(str(app.grpc)) as operator:
        (one,) = (await operator.explain(ops.ExplainRequest(task_id=task))).tasks
    return one


async def test_usage_is_summed_over_turns_and_shown_at_the_end_of_each(tmp_path: Path) -> None:
    async with serving(tmp_path) as app:
        task, metadata_of_events = await ended(app, "ask")
        assert metadata_of_events[-1]["usage"] == {"tokens": 15.0, "cost": 0.000001}
        one = await explained(app, task.id)
        assert (one.tokens, one.cost) == (15, 0.000001)
    async with serving(tmp_path) as app:  # read from the store
        _, metadata_of_events = await ended(app, "go on", task=task.id)
        assert metadata_of_events[-1]["usage"] == {"tokens": 18.0, "cost": pytest.approx(0.300001)}
        one = await explained(app, task.id)
        assert one.tokens == 18
        assert one.cost == pytest.approx(0.300001)
        _, metadata_of_events = await ended(app, agent="threaded")
        assert metadata_of_events[-1]["usage"] == {"tokens": 7.0}
        _, metadata_of_events = await ended(app, agent="silent")
        assert not any("usage" in metadata for metadata in metadata_of_events)
        _, _, text = await fetch(f"{app.public_url}/metrics")
        values = parsed(text)
        assert value(values, "usage_tokens_total", agent="spends") == 3
        assert value(values, "usage_cost_total", agent="spends") == pytest.approx(0.3)
        assert value(values, "usage_tokens_total", agent="threaded") == 7


@pytest.mark.parametrize("budget", ["tokens=1000", "tokens=1,endless.tokens=1000"])
async def test_a_task_over_budget_fails_with_the_reason(tmp_path: Path, budget: str) -> None:
    async with serving(tmp_path, budgets=budget) as app:
        task, metadata_of_events = await ended(app, agent="endless")
        assert task.status.state == pb.TASK_STATE_FAILED
        text = task.status.message.parts[0].text
        assert text.startswith("OVER_BUDGET: The task exceeded its budget. It used ")
        assert text.endswith("tokens; its budget is 1,000.")
        assert task.status.message.metadata["reason"] == "OVER_BUDGET"
        assert metadata_of_events[-1]["usage"] == {"tokens": 1100.0}  # at once, before it is stored


async def test_a_result_precedes_the_budget_and_the_next_turn_does_not_start(tmp_path: Path) -> None:
    async with serving(tmp_path, budgets="tokens=6") as app:
        task, _ = await ended(app, agent="threaded")
        assert task.status.state == pb.TASK_STATE_COMPLETED
        requested_task, _ = await ended(app, "ask")
        if requested_task.status.state == pb.TASK_STATE_INPUT_REQUIRED:
            requested_task, _ = await ended(app, "go on", task=requested_task.id)
        assert requested_task.status.message.metadata["reason"] == "OVER_BUDGET"


async def test_workers_report_usage(tmp_path: Path) -> None:
    @agent
    async def far(turn: Turn) -> str:
        turn.usage(tokens=3, cost=0.5, key="once")
        turn.usage(tokens=3, cost=0.5, key="once")
        return "done"

    async with serving(tmp_path) as app:
        worker = Worker([far], str(app.grpc))
        working = asyncio.create_task(worker.run())
        await worker.ready.wait()
        _, metadata_of_events = await ended(app, agent="far")
        assert metadata_of_events[-1]["usage"] == {"tokens": 3.0, "cost": 0.5}
        await worker.drain(5)
        await working


def test_invalid_usage_is_rejected() -> None:
    assert checked_usage_report(3, 0.1, "k") == UsageReport(3, 100_000_000, "k")
    for tokens, cost, error in (
        (-1, 0, ValueError), (0, -0.1, ValueError), (0, float("nan"), ValueError), (True, 0, TypeError),
        (1.5, 0, TypeError), (0, "1", TypeError), (2**63, 0, ValueError), (0, 1e30, ValueError),
    ):  # fmt: skip
        with pytest.raises(error, match="usage: "):
            checked_usage_report(tokens, cost)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="at most 255 are accepted"):
        checked_usage_report(key="k" * 256)


def test_budgets_are_set_globally_and_per_agent() -> None:
    budgets = parse_budgets("tokens=100,cost=2.5,desk.cost=0.1,desk.tokens=0")
    assert budgets.budget_of("echo") == TaskBudget(100, 2_500_000_000)
    assert budgets.budget_of("desk") == TaskBudget(0, 100_000_000)
    assert parse_budgets({"cost": 1, "desk": {"tokens": 5}}).budget_of("desk") == TaskBudget(5, 1_000_000_000)
    assert not parse_budgets("")
    assert TaskBudgets().budget_of("echo").exceeded(Usage(10**9, 10**18)) == ""
    for wrong in ("tokens", "bytes=1", "tokens=-1", "tokens=1.5", "cost=nan", "desk.bytes=1"):
        with pytest.raises(ValueError, match=r"tokens|cost"):
            parse_budgets(wrong)
