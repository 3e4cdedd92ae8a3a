"""`dragoman audit`."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import grpc
import pytest
from tests.cli.server import serving
from typer.testing import CliRunner

from dragoman.cli import cli
from dragoman.core.audit import GENESIS_HASH, AuditEntry, chain_entries, format_audit_line, parse_audit_line
from dragoman.settings.settings import Settings
from dragoman.wiring.offline_admin import open_operations
from dragoman_pb.dragoman.ops.v1 import ops_pb2 as ops
from dragoman_pb.dragoman.ops.v1 import ops_pb2_grpc as ops_rpc
from dragoman_pb.dragoman.ops.v1 import tasks_pb2 as tasks
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb
from dragoman_pb.lf.a2a.v1 import a2a_pb2_grpc as a2a_rpc

pytestmark = pytest.mark.long

LOG = chain_entries(
    GENESIS_HASH,
    0,
    [AuditEntry(at, "task.created", "ok", {}, {"principal": "alice"}) for at in (1, 2, 3)],
    [bytes(16)] * 3,
)


def verify(tmp_path: Path, text: str) -> tuple[int, str]:
    file = tmp_path / "audit.jsonl"
    file.write_text(text)
    result = CliRunner().invoke(cli, ["audit", "verify", str(file)])
    return result.exit_code, result.output


def test_an_intact_log_is_verified(tmp_path: Path) -> None:
    code, text = verify(tmp_path, "".join(f"{format_audit_line(kept)}\n" for kept in LOG))
    assert code == 0
    assert "entries 1 to 3 are intact" in text
    assert LOG[-1].hash.hex() in text


def test_an_export_that_continues_another_is_verified_alone(tmp_path: Path) -> None:
    assert (
        "entries 2 to 3 are intact" in verify(tmp_path, "".join(f"{format_audit_line(kept)}\n" for kept in LOG[1:]))[1]
    )


@pytest.mark.parametrize(
    ("text", "code", "rule"),
    [
        (f"{format_audit_line(LOG[0])}\n{format_audit_line(LOG[2])}\n", 1, "line 2: entry 3 follows entry 1"),
        (
            format_audit_line(LOG[0]).replace("alice", "bob"),
            1,
            "line 1: entry 1: its personal data does not match its seal",
        ),
        ("hello\n", 2, "line 1: "),
        ("", 2, "the log has no entries"),
    ],
)
def test_invalid_logs_are_reported_with_their_line(tmp_path: Path, text: str, code: int, rule: str) -> None:
    found, response_text = verify(tmp_path, text)
    assert (found, rule in response_text) == (code, True), response_text


def test_a_log_is_read_from_stdin() -> None:
    result = CliRunner().invoke(cli, ["audit", "verify", "-"], input=f"{format_audit_line(LOG[0])}\n")
    assert result.exit_code == 0


def test_the_log_of_a_store_is_exported_without_a_server(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/tasks.db"
    assert CliRunner().invoke(cli, ["keys", "create", "first", "--store", store]).exit_code == 0
    result = CliRunner().invoke(cli, ["audit", "export", "--store", store])
    assert result.exit_code == 0
    entries = [parse_audit_line(line).entry for line in result.stdout.splitlines()]
    assert [(entry.action, entry.outcome) for entry in entries] == [
        ("operator.CreateKey", "begun"),
        ("operator.CreateKey", "done"),
        ("operator.ExportAudit", "begun"),
    ]
    again = CliRunner().invoke(cli, ["audit", "export", "--store", store, "--after", "3"])
    entries = [parse_audit_line(line).entry for line in again.stdout.splitlines()]
    assert [(entry.action, entry.outcome) for entry in entries] == [
        ("operator.ExportAudit", "done"),
        ("operator.ExportAudit", "begun"),
    ]


KILLED_BY_CANCEL = """
import asyncio, os, signal
from dragoman import Turn, agent

@agent
async def mortal(turn: Turn) -> None:
    print("working", flush=True)
    try:
        await asyncio.Event().wait()
    finally:
        os.kill(os.getpid(), signal.SIGKILL)
"""


async def test_an_intent_without_an_outcome_says_that_the_server_was_killed(tmp_path: Path) -> None:
    (tmp_path / "agents.py").write_text(KILLED_BY_CANCEL)
    store = f"sqlite:///{tmp_path}/tasks.db"
    with serving("agents.py", "--store", store, cwd=tmp_path) as server:
        async with grpc.aio.insecure_channel(server.grpc) as channel:
            hello = pb.Message(message_id="m", role=pb.ROLE_USER, parts=[pb.Part(text="hello")])
            now = pb.SendMessageConfiguration(return_immediately=True)
            a2a: Any = a2a_rpc.A2AServiceStub(channel)
            operators: Any = ops_rpc.OpsServiceStub(channel)
            task = (await a2a.SendMessage(pb.SendMessageRequest(message=hello, configuration=now))).task
            server.out.until("working")
            with pytest.raises(grpc.aio.AioRpcError):
                await operators.CancelTask(tasks.CancelTaskRequest(task_id=task.id))
        assert server.ends() == -signal.SIGKILL
    async with open_operations(Settings(store=store)) as operations:
        lines = [line async for one in operations.export_audit(ops.ExportAuditRequest()) for line in one.lines]
    entries = [parse_audit_line(line).entry for line in lines]
    assert [(entry.action, entry.outcome) for entry in entries if entry.action == "operator.CancelTask"] == [
        ("operator.CancelTask", "begun")
    ]
