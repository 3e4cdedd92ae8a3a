"""The audit log of a server: changes of tasks, rejected callers, operator calls, erasures."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import pytest
from tests.callers import ByHeader, named

from dragoman import Turn, agent
from dragoman.core.audit import AuditChainVerifier, AuditRecord, parse_audit_line
from dragoman.settings.settings import Address, Settings
from dragoman.wiring.app import App, open_app
from dragoman.wiring.offline_admin import open_operations
from dragoman_pb.dragoman.ops.v1 import ops_pb2 as ops
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb
from dragoman_pb.lf.a2a.v1 import a2a_pb2_grpc as rpc

ALICE, OLGA = named("alice"), named("olga", "operator")


@agent
async def echo(turn: Turn) -> None:
    """Asks a question."""
    turn.ask("what?")


def settings(folder: Path, **more: Any) -> Settings:
    anywhere = Address("127.0.0.1", 0)
    return Settings(http=anywhere, grpc=anywhere, store=f"sqlite:///{folder}/tasks.db", api_keys=True, **more)


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[App]:
    async with open_app(settings(tmp_path), [echo], ByHeader()) as app:
        yield app


async def operate(app: App, verb: str, request: Any, who: dict[str, str] = OLGA) -> list[bytes]:
    """The responses to an operator call."""
    path = f"/dragoman.ops.v1.OpsService/{verb}"
    async with grpc.aio.insecure_channel(str(app.grpc)) as channel:
        if verb.startswith("Export"):
            stream: Any = channel.unary_stream(path)(request.SerializeToString(), metadata=tuple(who.items()))
            return [one async for one in stream]
        unary: Any = channel.unary_unary(path)
        return [await unary(request.SerializeToString(), metadata=tuple(who.items()))]


async def exported(app: App) -> list[AuditRecord]:
    """The complete audit log, after a check of its hash chain."""
    found, chain = [], AuditChainVerifier()
    for answer in await operate(app, "ExportAudit", ops.ExportAuditRequest()):
        found += [parse_audit_line(line) for line in ops.ExportAuditResponse.FromString(answer).lines]
    for kept in found:
        chain.verify(kept)
    return found


async def send(app: App, task: str = "", who: dict[str, str] = ALICE) -> str:
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}], **({"taskId": task} if task else {})}
    async with (
        aiohttp.ClientSession(f"http://{app.http}") as http,
        http.post("/message:send", json={"message": message}, headers=who) as answer,
    ):
        return str((await answer.json())["task"]["id"])


async def test_changes_are_logged_with_principal_and_task(app: App) -> None:
    task = await send(app)
    await send(app, task)
    async with aiohttp.ClientSession(f"http://{app.http}") as http:
        config = {"id": "c", "url": "https://receiver.example/x"}
        await http.post(f"/tasks/{task}/pushNotificationConfigs", json=config, headers=ALICE)
        await http.get(f"/tasks/{task}", headers=ALICE)
        await http.delete(f"/tasks/{task}/pushNotificationConfigs/c", headers=ALICE)
        await http.post(f"/tasks/{task}:cancel", json={}, headers=ALICE)
        await http.post(f"/tasks/{task}:cancel", json={}, headers=named("mallory"))
    found = await exported(app)
    texts = ["task.created", "task.continued", "push.created", "push.deleted", "task.canceled", "operator.ExportAudit"]
    assert [kept.entry.action for kept in found] == texts
    for kept in found[:-1]:
        assert kept.entry.who == {"principal": "alice", "task": task}
        assert kept.entry.about == {"agent": "echo", "scope": "default"}
    assert found[-1].entry.who["principal"] == "olga"


async def test_a_stream_and_a_repeated_send_are_logged_once(app: App) -> None:
    message = pb.Message(message_id="m", role=pb.ROLE_USER, parts=[pb.Part(text="hi")])
    async with grpc.aio.insecure_channel(str(app.grpc)) as channel:
        stub: Any = rpc.A2AServiceStub(channel)
        for _ in range(2):
            metadata = (*ALICE.items(), ("idempotency-key", "k"))
            async for _ in stub.SendStreamingMessage(pb.SendMessageRequest(message=message), metadata=metadata):
                pass
    assert [kept.entry.action for kept in await exported(app)][:-1] == ["task.created"]


async def test_rejected_callers_are_logged_at_the_rate_of_the_failure_log(app: App) -> None:
    async with aiohttp.ClientSession(f"http://{app.http}") as http:
        for _ in range(100):
            await http.get("/tasks", headers=named("mallory", "agent:another"))
        await http.get("/tasks", headers=named(""))
    found = [kept.entry for kept in await exported(app)][:-1]
    assert {entry.action for entry in found} == {"access.denied"}
    assert len(found) < 40
    assert found[0].outcome == "PermissionDenied"
    assert found[0].about["method"] == "GET /tasks"
    assert found[0].who == {"peer": "127.0.0.1", "principal": "mallory"}


async def test_attempts_of_a_principal_are_found_among_the_noise_of_others(tmp_path: Path) -> None:
    async with (
        open_app(settings(tmp_path), [echo], ByHeader()) as app,
        aiohttp.ClientSession(f"http://{app.http}") as http,
    ):
        for name in ["mallory"] * 100 + ["insider"]:
            await http.get("/operations/agents", headers=named(name, "agent:echo"))
    async with open_operations(settings(tmp_path)) as operations:
        lines = [line async for one in operations.export_audit(ops.ExportAuditRequest()) for line in one.lines]
    entries = [parse_audit_line(line).entry for line in lines]
    attempts = [entry for entry in entries if entry.action == "access.denied"]
    assert [entry.about for entry in attempts if entry.who["principal"] == "insider"] == [
        {"method": "GET /operations/agents", "reason": 'this operation needs the grant "operator" or "viewer"'}
    ]
    others = [entry for entry in attempts if entry.who["principal"] == "mallory"]
    assert sum(int(entry.about.get("others", "1")) for entry in others) == 100


async def test_operator_calls_are_logged_with_their_request_without_secrets(app: App) -> None:
    task = await send(app)
    (data,) = await operate(app, "CreateKey", ops.CreateKeyRequest(name="laptop", grants=["agent:echo"]))
    await operate(app, "Explain", ops.ExplainRequest(task_id=task))
    await operate(app, "ListAgents", ops.ListAgentsRequest())
    await operate(app, "Purge", ops.PurgeRequest(selection=ops.Selection(task_id=task)))
    found = [kept.entry for kept in await exported(app)]
    assert [(entry.action, entry.outcome) for entry in found] == [
        ("task.created", "ok"),
        ("operator.CreateKey", "begun"),
        ("operator.CreateKey", "done"),
        ("operator.Explain", "ok"),
        ("operator.Purge", "begun"),
        ("tasks.erased", "ok"),
        ("operator.Purge", "done"),
        ("operator.ExportAudit", "begun"),
    ]
    created = ops.CreateKeyResponse.FromString(data)
    _, creating, created_entry, explained, purging, erased, purged, _ = found
    assert creating.who["request.grants"] == "agent:echo"
    assert created_entry.who["created"] == created.key.id
    assert creating.about["call"] == created_entry.about["call"] != purging.about["call"] == purged.about["call"]
    assert explained.who["request.taskId"] == task
    assert erased.about["receipt"] == purged.about["receipt"] == "1"
    assert erased.about["digest"] == purged.about["digest"] != ""
    assert {entry.who["principal"] for entry in (creating, created_entry, purging, purged)} == {"olga"}
    assert created.text not in json.dumps([dict(entry.who) | dict(entry.about) for entry in found])


async def test_erasure_of_a_principal_keeps_only_the_actions(app: App) -> None:
    await send(app)
    await operate(app, "Purge", ops.PurgeRequest(selection=ops.Selection(principal="alice")))
    found = await exported(app)
    assert found[0].entry.action == "task.created"
    assert found[0].erased
    # The entry of the erasure belongs to the operator: it stays until its retention ends.
    named_in = [(kept.entry.action, kept.entry.outcome) for kept in found if "alice" in str(kept.entry)]
    assert named_in == [("operator.Purge", "begun")]


async def test_operators_remain_named_when_they_purge_themselves(app: App) -> None:
    await operate(app, "CreateKey", ops.CreateKeyRequest(name="back door", grants=["operator"]))
    await operate(app, "Purge", ops.PurgeRequest(selection=ops.Selection(principal="olga")))
    calls = [kept.entry for kept in await exported(app) if kept.entry.action == "operator.CreateKey"]
    assert [entry.who["principal"] for entry in calls] == ["olga", "olga"]
    assert calls[0].who["request.name"] == "back door"


async def test_the_audit_log_can_be_off(tmp_path: Path) -> None:
    async with open_app(settings(tmp_path, audit="off"), [echo], ByHeader()) as app:
        await send(app)
        assert await exported(app) == []


async def test_the_audit_log_is_written_at_shutdown_and_without_a_server(tmp_path: Path) -> None:
    async with open_app(settings(tmp_path), [echo], ByHeader()) as app:
        await send(app)
    async with open_operations(settings(tmp_path), create=True) as keeping:
        await keeping.create_key(ops.CreateKeyRequest(name="first", grants=["operator"]))
    lines: list[str] = []
    async with open_operations(settings(tmp_path)) as operations:
        async for answer in operations.export_audit(ops.ExportAuditRequest()):
            lines += answer.lines
    found = [parse_audit_line(line).entry for line in lines]
    assert [(entry.action, entry.outcome) for entry in found] == [
        ("task.created", "ok"),
        ("operator.CreateKey", "begun"),
        ("operator.CreateKey", "done"),
        ("operator.ExportAudit", "begun"),
    ]
    assert found[1].who["principal"].startswith("local:")


async def test_an_auditor_exports_the_log_and_does_nothing_else(app: App) -> None:
    auditor = named("aude", "auditor")
    await operate(app, "ExportAudit", ops.ExportAuditRequest(), auditor)
    for verb, request in (
        ("ListKeys", ops.ListKeysRequest()),
        ("ListAgents", ops.ListAgentsRequest()),
        ("Purge", ops.PurgeRequest(selection=ops.Selection(task_id="x"))),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await operate(app, verb, request, auditor)
        assert raised.value.code() is grpc.StatusCode.PERMISSION_DENIED
