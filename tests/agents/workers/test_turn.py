"""Frames between a worker and its server during turns."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from tests.agents.workers.conftest import Open
from tests.agents.workers.fake_worker import FakeWorker, connected_worker, registration
from tests.agents.workers.tasks import NOW, status_text, text_of, wait_for_state
from tests.conftest import set_timings
from tests.eventually import eventually

from dragoman.client.calls import Client, message
from dragoman.client.operations import Operator
from dragoman.client.options import CallOptions
from dragoman.core import trace
from dragoman.core.task import states
from dragoman.runtime.scheduler import Backlog
from dragoman.runtime.timings import Timings
from dragoman.wiring.app import App
from dragoman_pb.dragoman.ops import v1 as ops
from dragoman_pb.dragoman.worker.v1 import worker_pb2 as wk
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

pytestmark = pytest.mark.long


@asynccontextmanager
async def connected(app: App, **fields: Any) -> AsyncIterator[tuple[FakeWorker, Client]]:
    """A worker with one credit for the agent `desk`, and a client of that agent."""
    async with connected_worker(str(app.grpc)) as fake_worker, Client(str(app.grpc), agent="desk") as client:
        await fake_worker.register(registration(**fields))
        await eventually(lambda: app.runtime.scheduler.queues.of("desk").backlog is not Backlog.EXCEEDING)
        yield fake_worker, client


async def test_turn_start_has_the_message_and_the_state_of_the_task(opened: Open) -> None:
    async with opened() as app, connected(app) as (fake_worker, client):
        sending = asyncio.create_task(client.send(message("first"), metadata={"urgent": True}))
        turn = await fake_worker.receive("turn_start")
        assert (turn.agent_id, turn.principal, turn.attempt, turn.turns_before) == ("desk", "anonymous", 1, 0)
        assert turn.message.parts[0].text == "first"
        assert turn.envelope.metadata["urgent"] is True
        update = wk.StateUpdate(task_state='{"seen": 1}', context_state='{"name": "x"}')
        status = wk.StatusChange(state=pb.TASK_STATE_INPUT_REQUIRED, message=pb.Message(parts=[pb.Part(text="and?")]))
        await fake_worker.send(turn_end=wk.TurnEnd(turn_id=turn.turn_id, status=status, state_update=update))
        paused = (await sending).task
        assert paused.status.state == states.INPUT_REQUIRED
        await fake_worker.send(credit=wk.Credit(agent_id="desk", turns=1))
        sending = asyncio.create_task(client.send(message("second", task=paused.id)))
        turn = await fake_worker.receive("turn_start")
        assert (turn.task_id, turn.context_id) == (paused.id, paused.context_id)
        assert [one.parts[0].text for one in turn.history] == ["first", "and?"]
        assert turn.question.parts[0].text == "and?"
        assert turn.turns_before == 1
        assert (json.loads(turn.task_state), json.loads(turn.context_state)) == ({"seen": 1}, {"name": "x"})
        await fake_worker.end(turn.turn_id)
        assert (await sending).task.status.state == states.COMPLETED


def finished(name: str, number: int = 1, **given: Any) -> wk.Step:
    """A step whose result is stored."""
    result = pb.Part(raw=b'"found"', media_type="application/json")
    details = wk.StepDetails(input='{"query":"tides"}', failures=[wk.Failure(attempt=1, text="away")])
    fields: dict[str, Any] = {"state": wk.STEP_STATE_DONE, "attempt": 1, "result": result, "details": details}
    return wk.Step(name=name, number=number, **(fields | given))


async def test_steps_are_confirmed_and_come_back_with_the_next_run_of_the_turn(opened: Open) -> None:
    async with opened() as app, connected(app) as (fake_worker, client):
        sending = asyncio.create_task(client.send(message("first")))
        turn = await fake_worker.receive("turn_start")
        assert (list(turn.steps), turn.turn_number) == ([], 0)
        step = finished("search")
        step.details.input = '{"query":"tides","token":"secret"}'
        update = wk.StateUpdate(steps=[step])
        await fake_worker.send(events=wk.Events(turn_id=turn.turn_id, number=1, state_update=update))
        assert (await fake_worker.receive("committed")).number == 1
        await fake_worker.end(turn.turn_id, pb.TASK_STATE_INPUT_REQUIRED, "and?")
        step.details.input = '{"query":"tides","token":"(not stored)"}'
        paused = (await sending).task
        await fake_worker.send(credit=wk.Credit(agent_id="desk", turns=1))
        sending = asyncio.create_task(client.send(message("second", task=paused.id)))
        turn = await fake_worker.receive("turn_start")
        assert list(turn.steps) == [step]
        await fake_worker.end(turn.turn_id)
        assert (await sending).task.status.state == states.COMPLETED


@pytest.mark.parametrize(("error", "attempt"), [("", 1), ("ConnectionError: away", 2)])
async def test_a_paused_turn_starts_again(opened: Open, error: str, attempt: int) -> None:
    async with opened() as app, connected(app) as (fake_worker, client):
        sending = asyncio.create_task(client.send(message("first")))
        turn = await fake_worker.receive("turn_start")
        pause = wk.Pause(error=error)
        pause.until.GetCurrentTime()
        await fake_worker.send(turn_end=wk.TurnEnd(turn_id=turn.turn_id, pause=pause))
        await fake_worker.send(credit=wk.Credit(agent_id="desk", turns=1))
        turn = await fake_worker.receive("turn_start")
        assert (turn.message.parts[0].text, turn.attempt) == ("first", attempt)
        await fake_worker.end(turn.turn_id)
        assert (await sending).task.status.state == states.COMPLETED


@pytest.mark.parametrize(
    ("step", "rule"),
    [
        (finished(""), "state_update.steps.name: '' must be 1 to 200 printable characters"),
        (finished("a", 0), 'state_update.steps: step "a": number must be 1 or more'),
        (finished("a", position=-2), 'state_update.steps: step "a": position must be -1 or more'),
        (wk.Step(name="a", number=1), 'state_update.steps: step "a": state 0 is not known'),
        (
            finished("a", details=wk.StepDetails(input="x" * 196_608)),
            'state_update.steps: step "a": the details have more than 196608 bytes',
        ),
    ],
)
async def test_an_invalid_step_fails_the_turn(opened: Open, step: wk.Step, rule: str) -> None:
    async with opened() as app, connected(app) as (fake_worker, client):
        sending = asyncio.create_task(client.send(message("first")))
        turn = await fake_worker.receive("turn_start")
        update = wk.StateUpdate(steps=[step])
        await fake_worker.send(events=wk.Events(turn_id=turn.turn_id, number=1, state_update=update))
        task = (await sending).task
        assert task.status.state == states.FAILED
        assert rule in status_text(task)


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [(0, []), (1, ["and?"]), (2, ["first", "and?"]), (3, ["first", "and?"]), (4, ["first", "and?"])],
)
async def test_turn_start_has_the_requested_length_of_history(opened: Open, wanted: int, expected: list[str]) -> None:
    async with opened() as app, connected(app, history_length=wanted) as (fake_worker, client):
        sending = asyncio.create_task(client.send(message("first")))
        turn = await fake_worker.receive("turn_start")
        await fake_worker.end(turn.turn_id, pb.TASK_STATE_INPUT_REQUIRED, "and?")
        paused = (await sending).task
        await fake_worker.send(credit=wk.Credit(agent_id="desk", turns=1))
        sending = asyncio.create_task(client.send(message("second", task=paused.id)))
        turn = await fake_worker.receive("turn_start")
        assert [one.parts[0].text for one in turn.history] == expected
        assert turn.turns_before == 1
        await fake_worker.end(turn.turn_id)
        await sending


async def test_events_reach_the_caller_in_order_and_are_confirmed_after_the_commit(opened: Open) -> None:
    async with opened() as app, connected(app) as (fake_worker, client):
        stream = client.stream(message("go"))
        first = await anext(stream)
        turn = await fake_worker.receive("turn_start")
        await fake_worker.put_text(turn.turn_id, 1, "a", append=False)
        await fake_worker.put_text(turn.turn_id, 2, "b", "c")
        committed = 0
        while committed < 2:
            committed = (await fake_worker.receive("committed")).number
        shown = await client.get(first.task.id)
        assert [text_of(artifact) for artifact in shown.artifacts] == ["abc"]
        data = pb.Artifact(artifact_id="file", parts=[pb.Part(raw=b"\x00\x01", filename="x.bin")])
        last = wk.ArtifactChange(artifact=data, last_chunk=True)
        status = wk.StatusChange(state=pb.TASK_STATE_COMPLETED)
        await fake_worker.send(turn_end=wk.TurnEnd(turn_id=turn.turn_id, status=status, artifacts=[last]))
        events = [event async for event in stream]
        chunks = [event.artifact_update for event in events if event.HasField("artifact_update")]
        assert [(text_of(chunk.artifact), chunk.append) for chunk in chunks[:3]] == [
            ("a", False),
            ("b", True),
            ("c", True),
        ]
        assert (chunks[3].artifact.parts[0].raw, chunks[3].last_chunk) == (b"\x00\x01", True)
        assert events[-1].status_update.status.state == states.COMPLETED


@pytest.mark.usefixtures("time_to_think")
async def test_a_direct_agent_can_respond_with_a_message(opened: Open) -> None:
    async with opened() as app, connected(app, direct=True) as (fake_worker, client):
        sending = asyncio.create_task(client.send(message("hello")))
        turn = await fake_worker.receive("turn_start")
        reply = pb.Message(parts=[pb.Part(text="hi")])
        await fake_worker.send(turn_end=wk.TurnEnd(turn_id=turn.turn_id, reply=reply))
        assert (await sending).message.parts[0].text == "hi"


async def test_messages_for_a_running_turn_are_sent_one_per_request(opened: Open) -> None:
    async with opened() as app, connected(app) as (fake_worker, client):
        task = (await client.send(message("go"), configuration=NOW)).task
        turn = await fake_worker.receive("turn_start")
        await client.send(message("one", task=task.id), configuration=NOW)
        await client.send(message("two", task=task.id), configuration=NOW)
        for expected in ("one", "two"):
            await fake_worker.send(message_request=wk.MessageRequest(turn_id=turn.turn_id))
            assert (await fake_worker.receive("message_arrived")).message.parts[0].text == expected
        await fake_worker.end(turn.turn_id)
        assert (await wait_for_state(client, task.id, states.COMPLETED)).status.state == states.COMPLETED


async def test_an_unread_message_starts_another_turn(opened: Open) -> None:
    async with opened() as app, connected(app) as (fake_worker, client):
        task = (await client.send(message("go"), configuration=NOW)).task
        turn = await fake_worker.receive("turn_start")
        await client.send(message("more", task=task.id), configuration=NOW)
        await fake_worker.send(credit=wk.Credit(agent_id="desk", turns=1))
        await fake_worker.end(turn.turn_id)
        again = await fake_worker.receive("turn_start")
        assert (again.task_id, again.message.parts[0].text) == (task.id, "more")
        await fake_worker.end(again.turn_id)
        await wait_for_state(client, task.id, states.COMPLETED)


async def test_a_task_is_canceled_only_after_the_worker_confirmed_the_stop(opened: Open) -> None:
    async with opened() as app, connected(app) as (fake_worker, client):
        task = (await client.send(message("go"), configuration=NOW)).task
        turn = await fake_worker.receive("turn_start")
        canceling = asyncio.create_task(client.cancel(task.id, metadata={"why": "too late"}))
        cancel = await fake_worker.receive("cancel")
        assert (cancel.turn_id, cancel.reason) == (turn.turn_id, "client")
        assert dict(cancel.metadata) == {"why": "too late"}
        assert (await client.get(task.id)).status.state != states.CANCELED
        await fake_worker.send(turn_end=wk.TurnEnd(turn_id=turn.turn_id, canceled=wk.Canceled()))
        assert (await canceling).status.state == states.CANCELED


async def test_a_result_before_the_confirmed_cancel_wins(opened: Open) -> None:
    async with opened() as app, connected(app) as (fake_worker, client):
        task = (await client.send(message("go"), configuration=NOW)).task
        turn = await fake_worker.receive("turn_start")
        canceling = asyncio.create_task(client.cancel(task.id))
        await fake_worker.receive("cancel")
        await fake_worker.end(turn.turn_id)
        await asyncio.wait([canceling])
        assert (await client.get(task.id)).status.state == states.COMPLETED


async def test_a_cancel_does_not_apply_to_the_following_turn(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    set_timings(monkeypatch, cancel_timeout=0.0)
    async with opened() as app, connected(app) as (fake_worker, client):
        task = (await client.send(message("go"), configuration=NOW)).task
        turn = await fake_worker.receive("turn_start")
        assert (await client.cancel(task.id)).status.state in (states.SUBMITTED, states.WORKING)
        assert (await fake_worker.receive("cancel")).turn_id == turn.turn_id
        await client.send(message("more", task=task.id), configuration=NOW)
        await fake_worker.send(credit=wk.Credit(agent_id="desk", turns=1))
        await fake_worker.end(turn.turn_id)
        again = await fake_worker.receive("turn_start")
        await fake_worker.send(
            turn_end=wk.TurnEnd(turn_id=turn.turn_id, canceled=wk.Canceled())
        )  # late, for the earlier turn
        await fake_worker.put_text(again.turn_id, 1, "x", append=False)
        await fake_worker.receive("committed")
        await client.cancel(task.id)
        assert (await fake_worker.receive("cancel")).turn_id == again.turn_id
        await fake_worker.send(turn_end=wk.TurnEnd(turn_id=again.turn_id, canceled=wk.Canceled()))
        await wait_for_state(client, task.id, states.CANCELED)


async def test_a_worker_cannot_report_a_turn_canceled_that_was_not(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_timings(monkeypatch, cancel_timeout=0.0)
    async with opened() as app, connected(app) as (fake_worker, client):
        task = (await client.send(message("go"), configuration=NOW)).task
        turn = await fake_worker.receive("turn_start")
        await client.cancel(task.id)
        await fake_worker.receive("cancel")
        await client.send(message("more", task=task.id), configuration=NOW)
        await fake_worker.send(credit=wk.Credit(agent_id="desk", turns=1))
        await fake_worker.end(turn.turn_id)
        again = await fake_worker.receive("turn_start")
        await fake_worker.send(turn_end=wk.TurnEnd(turn_id=again.turn_id, canceled=wk.Canceled()))
        assert "the turn was not canceled" in (await fake_worker.receive("turn_revoked")).reason
        assert "the turn was not canceled" in status_text(await wait_for_state(client, task.id, states.FAILED))


async def test_an_agent_can_refuse_a_cancel(opened: Open) -> None:
    async with opened() as app, connected(app) as (fake_worker, client):
        task = (await client.send(message("go"), configuration=NOW)).task
        turn = await fake_worker.receive("turn_start")
        await fake_worker.send(cancel_refused=wk.CancelRefused(turn_id=turn.turn_id, reason="the rocket has left"))
        await fake_worker.put_text(turn.turn_id, 1, "x", append=False)
        await fake_worker.receive("committed")
        answers = await asyncio.gather(client.cancel(task.id), return_exceptions=True)
        assert "the rocket has left" in str(answers[0])
        await fake_worker.end(turn.turn_id)
        await wait_for_state(client, task.id, states.COMPLETED)


async def test_a_second_attempt_gets_the_artifacts_of_the_first(opened: Open) -> None:
    async with opened() as app, Client(str(app.grpc), agent="desk") as client:
        async with connected_worker(str(app.grpc)) as fake_worker:
            await fake_worker.register(registration(crash_retries=1))
            task = (await client.send(message("go"), configuration=NOW)).task
            turn = await fake_worker.receive("turn_start")
            await fake_worker.put_text(turn.turn_id, 1, "half", append=False)
            await fake_worker.receive("committed")
            await fake_worker.send(turn_end=wk.TurnEnd(turn_id=turn.turn_id, released=wk.Released()))
        async with connected_worker(str(app.grpc)) as fake_worker:
            await fake_worker.register(registration(crash_retries=1))
            turn = await fake_worker.receive("turn_start")
            assert (turn.task_id, turn.attempt) == (task.id, 2)
            assert [text_of(artifact) for artifact in turn.previous_artifacts] == ["half"]
            await fake_worker.put_text(turn.turn_id, 1, "complete", append=True)
            await fake_worker.end(turn.turn_id)
            done = await wait_for_state(client, task.id, states.COMPLETED)
        assert [text_of(artifact) for artifact in done.artifacts] == ["complete"]


async def test_the_card_of_the_latest_registration_is_served(opened: Open) -> None:
    async def card(app: App) -> dict[str, object]:
        at = f"{app.public_url}/desk/.well-known/agent-card.json"
        async with aiohttp.ClientSession() as session, session.get(at) as got:
            found: dict[str, object] = await got.json()
            return found

    async with opened() as app:
        async with connected_worker(str(app.grpc)) as fake_worker:
            skill = pb.AgentSkill(id="s", name="Skill", description="does it", tags=["t"])
            await fake_worker.register(registration(card=pb.AgentCard(name="Desk", version="2.0.0", skills=[skill])))
            shown = await card(app)
            assert (shown["name"], shown["version"]) == ("Desk", "2.0.0")
            assert "desk" in app.agents
        async with connected_worker(str(app.grpc)) as fake_worker:
            await fake_worker.register(registration(card=pb.AgentCard(name="Front desk")))
            assert (await card(app))["name"] == "Front desk"
    async with opened() as app:
        assert (await card(app))["name"] == "Front desk"


async def test_a_worker_that_ignores_a_cancel_keeps_its_task_active_until_it_has_stopped(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dragoman.runtime.turn.context.DEFAULT_TIMINGS", Timings(mute_timeout=0.0))
    set_timings(monkeypatch, cancel_timeout=0.0)
    async with opened() as app, connected(app) as (fake_worker, client):
        task = (await client.send(message("go"), configuration=NOW)).task
        turn = await fake_worker.receive("turn_start")
        await client.cancel(task.id)
        await fake_worker.receive("cancel")
        await fake_worker.put_text(turn.turn_id, 1, "not yet", append=False)
        await fake_worker.receive("committed")
        assert (await client.get(task.id)).status.state == states.WORKING
        await fake_worker.send(turn_end=wk.TurnEnd(turn_id=turn.turn_id, canceled=wk.Canceled()))
        ended = await wait_for_state(client, task.id, states.CANCELED)
        assert [text_of(artifact) for artifact in ended.artifacts] == ["not yet"]


async def test_of_two_turns_that_write_the_context_state_the_second_fails(opened: Open) -> None:
    """`context_state` has one writer at a time: the second turn gets an error, and its task fails."""
    async with opened() as app, connected(app) as (fake_worker, client):
        await fake_worker.send(credit=wk.Credit(agent_id="desk", turns=1))
        first = (await client.send(message("a"), configuration=NOW)).task
        second = (await client.send(message("b", context=first.context_id), configuration=NOW)).task
        turns = {turn.task_id: turn.turn_id for turn in [await fake_worker.receive("turn_start") for _ in range(2)]}
        status = wk.StatusChange(state=pb.TASK_STATE_COMPLETED)
        for task in (first, second):
            update = wk.StateUpdate(context_state=json.dumps({"by": task.id}))
            await fake_worker.send(turn_end=wk.TurnEnd(turn_id=turns[task.id], status=status, state_update=update))
            await wait_for_state(client, task.id, states.COMPLETED if task is first else states.FAILED)
        assert status_text(await client.get(second.id)).startswith("CONTEXT_CHANGED: ")


def reads(turn: str, number: int, task: str) -> wk.TaskCall:
    return wk.TaskCall(turn_id=turn, number=number, get=pb.GetTaskRequest(id=task))


async def test_a_task_that_a_turn_creates_counts_for_the_task_of_the_turn(opened: Open) -> None:
    async with opened() as app, connected(app) as (fake_worker, client):
        sending = asyncio.create_task(client.send(message("first")))
        start = await fake_worker.receive("turn_start")
        forged = trace.delegation("desk", "other")
        request = pb.SendMessageRequest(message=message("second", task="chosen"), metadata=forged)
        await fake_worker.send(task_call=wk.TaskCall(turn_id=start.turn_id, number=1, send=request))
        await fake_worker.receive("task_call_result")
        await fake_worker.send(credit=wk.Credit(agent_id="desk", turns=1))
        inner = await fake_worker.receive("turn_start")
        await fake_worker.send(usage=wk.Usage(turn_id=inner.turn_id, tokens=7))
        await fake_worker.end(inner.turn_id)
        await wait_for_state(client, "chosen", states.COMPLETED)
        await fake_worker.end(start.turn_id)
        await sending
        async with Operator(str(app.grpc)) as operator:
            (explained,) = (await operator.explain(ops.ExplainRequest(task_id=start.task_id))).tasks
        assert (explained.tokens, explained.delegated_tokens) == (7, 7)


async def test_a_turn_creates_reads_and_cancels_tasks_of_its_caller(opened: Open) -> None:
    async with opened() as app, connected(app) as (fake_worker, client):
        sending = asyncio.create_task(client.send(message("first")))
        turn = (await fake_worker.receive("turn_start")).turn_id
        request = pb.SendMessageRequest(message=message("second", task="chosen"), metadata={"n": 1})
        await fake_worker.send(task_call=wk.TaskCall(turn_id=turn, number=1, send=request))
        created = await fake_worker.receive("task_call_result")
        assert (created.number, created.task.id, created.task.status.state) == (1, "chosen", states.SUBMITTED)
        await fake_worker.send(task_call=reads(turn, 2, "chosen"))
        read = await fake_worker.receive("task_call_result")
        assert (read.number, read.task) == (2, created.task)
        assert (await client.get("chosen")).history[0].parts[0].text == "second"
        await fake_worker.send(task_call=wk.TaskCall(turn_id=turn, number=3, cancel=pb.CancelTaskRequest(id="chosen")))
        assert (await fake_worker.receive("task_call_result")).task.status.state == states.CANCELED
        await fake_worker.end(turn)
        assert (await sending).task.status.state == states.COMPLETED


RULE = "task_call: set one of get, cancel, and send with a message.task_id"


@pytest.mark.parametrize(
    ("call", "error", "reason"),
    [
        ({"get": pb.GetTaskRequest(id="nope")}, "Task not found", "TASK_NOT_FOUND"),
        ({"send": pb.SendMessageRequest(message=message("x"))}, RULE, "INVALID_PARAMS"),
        ({}, RULE, "INVALID_PARAMS"),
    ],
)
async def test_a_call_that_is_rejected_says_why_and_the_turn_goes_on(
    opened: Open, call: dict[str, Any], error: str, reason: str
) -> None:
    async with opened() as app, connected(app) as (fake_worker, client):
        sending = asyncio.create_task(client.send(message("first")))
        turn = (await fake_worker.receive("turn_start")).turn_id
        await fake_worker.send(task_call=wk.TaskCall(turn_id=turn, number=7, **call))
        rejected = await fake_worker.receive("task_call_result")
        assert (rejected.number, rejected.error, rejected.reason) == (7, error, reason)
        assert not rejected.HasField("task")
        await fake_worker.end(turn)
        assert (await sending).task.status.state == states.COMPLETED


async def test_tasks_of_other_principals_are_not_found_by_a_turn(opened: Open) -> None:
    async with opened(token="secret", public_agents=["*"]) as app:
        credentials = {"authorization": "Bearer secret"}
        async with (
            connected_worker(str(app.grpc), credentials) as fake_worker,
            Client(str(app.grpc), agent="desk", options=CallOptions(token="secret")) as known,
            Client(str(app.grpc), agent="desk") as stranger,
        ):
            await fake_worker.register(registration(), credit=2)
            of_known = (await known.send(message("mine"), configuration=NOW)).task.id
            await fake_worker.receive("turn_start")
            sending = asyncio.create_task(stranger.send(message("theirs")))
            turn = (await fake_worker.receive("turn_start")).turn_id
            await fake_worker.send(task_call=reads(turn, 1, of_known))
            assert (await fake_worker.receive("task_call_result")).reason == "TASK_NOT_FOUND"
            await fake_worker.end(turn)
            await sending


async def test_more_calls_without_an_answer_than_allowed_fail_their_turn(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dragoman.agents.workers.turn.MAX_TASK_CALLS", 0)
    async with opened() as app, connected(app) as (fake_worker, client):
        sending = asyncio.create_task(client.send(message("first")))
        turn = (await fake_worker.receive("turn_start")).turn_id
        await fake_worker.send(task_call=reads(turn, 1, "x"))
        assert "task_call: 0 calls have no answer yet; wait for one" in status_text((await sending).task)
