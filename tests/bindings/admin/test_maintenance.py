"""Operator calls that erase, export and back up: authentication and validation."""

from __future__ import annotations

from pathlib import Path

import grpc
import pytest
from pydantic import SecretStr

from dragoman import Turn, agent
from dragoman.bindings.admin.actions import OperatorCall
from dragoman.bindings.admin.maintenance import MaintenanceOperations, parse_selection
from dragoman.client import ClientError
from dragoman.client.calls import Client, message
from dragoman.client.operations import Operator
from dragoman.core.access.identity import Identity
from dragoman.core.errors import InvalidParams
from dragoman.settings.settings import Address, Settings
from dragoman.wiring.app import open_app
from dragoman_pb.dragoman.ops.v1 import ops_pb2 as ops
from dragoman_pb.dragoman.ops.v1 import ops_pb2_grpc as rpc


@agent
async def echo(turn: Turn) -> str:
    return turn.text


def settings(tmp_path: Path, token: str = "") -> Settings:
    anywhere = Address("127.0.0.1", 0)
    return Settings(http=anywhere, grpc=anywhere, store=f"sqlite:///{tmp_path}/t.db", token=SecretStr(token))


async def test_operators_are_authenticated(tmp_path: Path) -> None:
    purge = ops.PurgeRequest(selection=ops.Selection(principal="anonymous"))
    public = settings(tmp_path, "secret").replaced(public_agents=("echo",))
    async with open_app(public, [echo]) as app, Client(str(app.grpc)) as client:
        task = (await client.send(message("hello"))).task.id
        for token in ("", "wrong"):
            async with Operator(str(app.grpc), token=token) as unauthorized:
                with pytest.raises(ClientError, match="UNAUTHENTICATED"):
                    await unauthorized.purge(purge)
                with pytest.raises(ClientError, match="UNAUTHENTICATED"):
                    [one async for one in unauthorized.export_task(ops.ExportTaskRequest(task_id=task))]
                with pytest.raises(ClientError, match="UNAUTHENTICATED"):
                    [one async for one in unauthorized.backup(ops.BackupRequest(destination=f"{tmp_path}/copy"))]
        assert not list(tmp_path.glob("copy*"))
        async with Operator(str(app.grpc), token="secret") as operator:
            assert (await operator.purge(purge)).receipt.tasks == 1


@pytest.mark.parametrize(
    ("selection", "field"),
    [
        (ops.Selection(), "selection"),
        (ops.Selection(agent="echo"), "selection"),
        (ops.Selection(task_id="1", state=99), "selection.state"),  # type: ignore[arg-type]
    ],
)
def test_incomplete_selections_are_rejected(selection: ops.Selection, field: str) -> None:
    with pytest.raises(InvalidParams) as caught:
        parse_selection(selection)
    assert caught.value.violations[0].field == field


def test_an_age_of_zero_is_rejected() -> None:
    selection = ops.Selection(principal="anonymous")
    selection.older_than.SetInParent()
    with pytest.raises(InvalidParams, match="must be more than 0"):
        parse_selection(selection)


async def test_unary_and_streaming_calls_share_one_service(tmp_path: Path) -> None:
    async with open_app(settings(tmp_path), [echo]) as app, grpc.aio.insecure_channel(str(app.grpc)) as channel:
        stub = rpc.OpsServiceStub(channel)
        assert len((await stub.ListAgents(ops.ListAgentsRequest())).agents) == 1
        dry = await stub.Purge(ops.PurgeRequest(selection=ops.Selection(principal="anonymous"), dry_run=True))
        assert dry.dry_run
        steps = [step async for step in stub.Backup(ops.BackupRequest(destination=f"{tmp_path}/copy"))]
        assert steps[-1].done
        assert steps[-1].bytes == steps[-1].total_bytes > 0


async def test_a_caller_of_another_machine_gives_a_backup_a_name_and_no_path(tmp_path: Path) -> None:
    """It would learn which paths of the host exist, and write where it likes."""
    async with open_app(settings(tmp_path), [echo]) as app:
        operations = MaintenanceOperations(app.runtime.maintenance)
        remote, local = OperatorCall(Identity("olga"), "192.0.2.1"), OperatorCall(Identity("olga"), is_local=True)

        async def backup(operator: OperatorCall, destination: str) -> bool:
            request = ops.BackupRequest(destination=destination)
            return [step async for step in operations.backup(operator, request)][-1].done

        for path in (f"{tmp_path}/copy", "/etc/passwd", "../copy", "a/b", ".", "..", ".hidden", "", "a\0b", "x" * 101):
            with pytest.raises(InvalidParams, match="destination: only callers on the server's machine"):
                await backup(remote, path)
        assert await backup(remote, "2026-11-28")
        assert (tmp_path / "t.db.backups" / "2026-11-28" / "tasks.db").is_file()
        assert await backup(local, f"{tmp_path}/copy")
