"""Rejected workers and protocol violations: each with the field, the rule and the code."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.agents.workers.conftest import Open
from tests.agents.workers.fake_worker import connected_worker, registration
from tests.agents.workers.tasks import NOW, status_text, wait_for_state
from tests.callers import WRONG, ByHeader, named

from dragoman.bindings.grpc import worker_service
from dragoman.client.calls import Client, message
from dragoman.core.errors import Unauthenticated
from dragoman.core.task import states
from dragoman.wiring.app import AppTimings
from dragoman_pb.dragoman.worker.v1 import worker_pb2 as wk
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

pytestmark = pytest.mark.long


def hello(*agents: wk.AgentRegistration, name: str = "test") -> dict[str, Any]:
    return {"hello": wk.Hello(name=name, agents=agents)}


CARD = pb.AgentCard(name="Desk", default_input_modes=["text"])
SAME = pb.AgentCard(skills=[pb.AgentSkill(id="s", name="S"), pb.AgentSkill(id="s", name="T")])


@pytest.mark.parametrize(
    ("frame", "text"),
    [
        ({"heartbeat": wk.Heartbeat()}, "hello: must be the first frame, not heartbeat"),
        ({}, "hello: must be the first frame, not an empty one"),
        (hello(), "hello.agents: has 0 agents; send 1 to 100"),
        (hello(*(registration(f"a{number}") for number in range(101))), "hello.agents: has 101 agents"),
        (hello(registration("Desk")), 'hello.agents[0].id: agent id "Desk": must be a lower-case letter'),
        (hello(registration("a"), registration("tasks")), "hello.agents[1].id"),
        (hello(registration("a"), registration("a")), 'hello.agents[1].id: "a" is the id of an earlier agent'),
        (hello(registration(), name="x" * 201), "hello.name: must be printable text of at most 200 characters"),
        (hello(registration(card=CARD)), 'hello.agents[0].card.default_input_modes: "text" is not a media type'),
        (hello(registration(card=SAME)), "hello.agents[0].card.skills"),
        (hello(registration(crash_retries=101)), "hello.agents[0].crash_retries: 101 is more than 100"),
        (hello(registration(turns=10_001)), "hello.agents[0].turns: 10001 is more than 10000"),
        (hello(registration(retention={"asleep": {}})), "hello.agents[0].retention"),
    ],
)
async def test_an_invalid_hello_is_rejected_with_the_field(opened: Open, frame: dict[str, Any], text: str) -> None:
    async with opened() as app, connected_worker(str(app.grpc)) as fake_worker:
        await fake_worker.send(**frame)
        code, details = await fake_worker.status()
        assert code == "INVALID_ARGUMENT"
        assert text in details
        assert list(app.agents) == ["echo"]


@pytest.mark.parametrize(
    ("frame", "code", "text"),
    [
        (hello(registration()), "INVALID_ARGUMENT", "hello: was sent before"),
        ({}, "INVALID_ARGUMENT", "frame: is not a frame that this server knows"),
        ({"credit": wk.Credit(agent_id="desk")}, "INVALID_ARGUMENT", "credit.turns: 0 must be at least 1"),
        ({"credit": wk.Credit(agent_id="desk", turns=10_000)}, "INVALID_ARGUMENT", "the 1 unused ones, at most 10000"),
        (
            {"credit": wk.Credit(agent_id="echo", turns=1)},
            "INVALID_ARGUMENT",
            'credit.agent_id: "echo" is not an agent',
        ),
        ({"events": wk.Events(turn_id="7", number=1)}, "INVALID_ARGUMENT", 'events.turn_id: "7" is not a turn'),
        ({"turn_end": wk.TurnEnd(turn_id="x")}, "INVALID_ARGUMENT", 'turn_end.turn_id: "x" is not a turn'),
        (
            {"events": wk.Events(turn_id="1" * 3000, number=1)},
            "RESOURCE_EXHAUSTED",
            "bytes; the maximum is 2048 (Welcome.max_frame_bytes)",
        ),
    ],
)
async def test_an_invalid_frame_ends_the_stream(opened: Open, frame: dict[str, Any], code: str, text: str) -> None:
    async with opened(message_bytes=2048) as app, connected_worker(str(app.grpc)) as fake_worker:
        await fake_worker.register(registration())
        await fake_worker.send(**frame)
        found, details = await fake_worker.status()
        assert found == code
        assert text in details


def status(state: int, **fields: Any) -> wk.Event:
    return wk.Event(status=wk.StatusChange(state=state, **fields))  # type: ignore[arg-type]  # any number


def artifact(**fields: Any) -> wk.Event:
    return wk.Event(artifact=wk.ArtifactChange(artifact=pb.Artifact(**fields)))


DEEP: dict[str, Any] = {}
for _ in range(30):
    DEEP = {"x": DEEP}


@pytest.mark.parametrize(
    ("events", "text"),
    [
        ([], "events.events is empty"),
        ([wk.Event()], "an event is empty; set one of status, artifact, text"),
        (
            [status(pb.TASK_STATE_COMPLETED)],
            "status.state: TASK_STATE_COMPLETED is not one of TASK_STATE_AUTH_REQUIRED,",
        ),
        ([status(pb.TASK_STATE_WORKING, message=pb.Message())], "a Message has no parts"),
        ([artifact(parts=[pb.Part(text="x")])], "artifact.artifact.artifact_id is required"),
        ([artifact(artifact_id="a")], "an Artifact has no parts"),
        ([artifact(artifact_id="a", parts=[pb.Part()])], "a Part has no content"),
        ([artifact(artifact_id="a", parts=[pb.Part(text="x", metadata=DEEP)])], "nests more than 24 levels"),
        ([wk.Event(text=wk.TextChunk(text="x"))], "text.artifact_id is required"),
    ],
)
async def test_an_invalid_event_fails_only_its_task(opened: Open, events: list[wk.Event], text: str) -> None:
    async with (
        opened() as app,
        connected_worker(str(app.grpc)) as fake_worker,
        Client(str(app.grpc), agent="desk") as client,
    ):
        await fake_worker.register(registration(), credit=2)
        for _ in range(2):
            await client.send(message("x"), configuration=NOW)
        first, second = await fake_worker.receive("turn_start"), await fake_worker.receive("turn_start")  # in any order
        await fake_worker.send(events=wk.Events(turn_id=first.turn_id, number=1, events=events))
        over = await fake_worker.receive("turn_revoked")
        assert (over.turn_id, text in over.reason) == (first.turn_id, True)
        assert status_text(await wait_for_state(client, first.task_id, states.FAILED)).startswith(
            "InvalidAgentResponse: agent desk: "
        )
        await fake_worker.end(first.turn_id)  # too late, but the worker stays connected
        await fake_worker.end(second.turn_id)
        await wait_for_state(client, second.task_id, states.COMPLETED)


@pytest.mark.parametrize(
    ("end", "text"),
    [
        ({}, "turn_end has no outcome"),
        ({"canceled": wk.Canceled()}, "turn_end.canceled is set, but the turn was not canceled"),
        ({"status": wk.StatusChange(state=pb.TASK_STATE_WORKING)}, "status.state: TASK_STATE_WORKING is not one of"),
        (
            {"status": wk.StatusChange(state=pb.TASK_STATE_COMPLETED), "state_update": wk.StateUpdate(task_state="[]")},
            "state_update.task_state must be a JSON object",
        ),
        (
            {
                "status": wk.StatusChange(state=pb.TASK_STATE_COMPLETED),
                "state_update": wk.StateUpdate(context_state="{"),
            },
            "state_update.context_state is not JSON",
        ),
    ],
)
async def test_an_invalid_turn_end_fails_the_task(opened: Open, end: dict[str, Any], text: str) -> None:
    async with (
        opened() as app,
        connected_worker(str(app.grpc)) as fake_worker,
        Client(str(app.grpc), agent="desk") as client,
    ):
        await fake_worker.register(registration())
        sending = asyncio.create_task(client.send(message("x")))
        turn = await fake_worker.receive("turn_start")
        await fake_worker.send(turn_end=wk.TurnEnd(turn_id=turn.turn_id, **end))
        task = (await sending).task
        assert task.status.state == states.FAILED
        assert text in status_text(task)


async def test_too_many_uncommitted_events_fail_the_task(opened: Open) -> None:
    async with (
        opened() as app,
        connected_worker(str(app.grpc)) as fake_worker,
        Client(str(app.grpc), agent="desk") as client,
    ):
        await fake_worker.register(registration())
        sending = asyncio.create_task(client.send(message("x")))
        turn = await fake_worker.receive("turn_start")
        await fake_worker.put_text(turn.turn_id, 1, *["x"] * 5000)
        task = (await sending).task
        assert task.status.state == states.FAILED
        assert "BufferFull" in status_text(task)


# Names and credentials ---------------------------------------------------------------------------------------------


async def test_the_id_of_a_local_agent_is_rejected(opened: Open, caplog: pytest.LogCaptureFixture) -> None:
    async with opened() as app, connected_worker(str(app.grpc)) as fake_worker:
        await fake_worker.send(**hello(registration("echo")))
        assert await fake_worker.status() == (
            "ALREADY_EXISTS",
            'hello.agents: "echo" is an agent of the server itself; use another id',
        )
    assert 'worker rejected: hello.agents: "echo" is an agent of the server itself' in caplog.text


async def test_an_agent_belongs_to_the_principal_that_registered_it(opened: Open) -> None:
    async with opened(ByHeader()) as app, connected_worker(str(app.grpc), named("alice", "worker")) as fake_worker:
        assert (await fake_worker.register(registration())).principal == "alice"
    async with opened(ByHeader()) as app:  # also without a connected worker, after a restart
        async with connected_worker(str(app.grpc), named("mallory", "worker")) as fake_worker:
            await fake_worker.send(**hello(registration("free"), registration("desk")))
            code, text = await fake_worker.status()
            assert code == "ALREADY_EXISTS"
            assert '"desk" is an agent of another principal\'s workers' in text
            assert "free" not in app.agents
        async with connected_worker(str(app.grpc), named("alice", "worker:desk")) as fake_worker:
            await fake_worker.register(registration())


@pytest.mark.parametrize(
    ("caller", "code", "text"),
    [
        (named(""), "UNAUTHENTICATED", 'workers need credentials with the grant "worker"'),
        (named(WRONG), "UNAUTHENTICATED", ""),
        (named("eve"), "PERMISSION_DENIED", 'may not serve agent "desk"; they need the grant worker or worker:desk'),
        (named("eve", "operator", "agent:desk"), "PERMISSION_DENIED", 'may not serve agent "desk"'),
        (named("eve", "worker:other"), "PERMISSION_DENIED", 'may not serve agent "desk"'),
    ],
)
async def test_credentials_without_the_worker_grant_are_rejected(
    opened: Open, caller: dict[str, str], code: str, text: str
) -> None:
    async with opened(ByHeader()) as app, connected_worker(str(app.grpc), caller) as fake_worker:
        await fake_worker.send(**hello(registration()))
        found, details = await fake_worker.status()
        assert found == code
        assert text in details
        assert list(app.agents) == ["echo"]


async def test_without_authentication_only_local_workers_are_accepted(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_service, "is_local", lambda *_: False)
    async with opened() as app, connected_worker(str(app.grpc)) as fake_worker:
        await fake_worker.send(**hello(registration()))
        code, text = await fake_worker.status()
        assert code == "UNAUTHENTICATED"
        assert "workers may connect on this machine only" in text


async def test_a_revoked_key_disconnects_the_worker(opened: Open) -> None:
    class Withdrawn(ByHeader):
        async def authenticate(self, headers: Any) -> Any:
            identity = await super().authenticate(headers)
            return type(identity)(identity.principal, identity.grants, "key-1") if identity else None

        async def recheck(self, identity: Any) -> None:
            raise Unauthenticated("the key was revoked")

    timings = AppTimings(credential_check_interval=0.01)
    async with (
        opened(Withdrawn(), timings=timings) as app,
        connected_worker(str(app.grpc), named("alice", "worker")) as fake_worker,
    ):
        await fake_worker.send(**hello(registration()))
        assert await fake_worker.status() == ("UNAUTHENTICATED", "the key was revoked")
