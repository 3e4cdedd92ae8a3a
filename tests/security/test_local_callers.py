"""Who may do what on a server without authentication: callers of this machine, and nobody behind a proxy."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import aiohttp
import grpc
import pytest
from tests.callers import ByHeader, named

from dragoman import Turn, agent
from dragoman.settings.settings import Settings, SettingsError, load_settings
from dragoman.wiring.app import App, open_app
from dragoman_pb.dragoman.ops.v1 import ops_pb2 as ops
from dragoman_pb.dragoman.ops.v1 import ops_pb2_grpc, tasks_pb2
from dragoman_pb.dragoman.worker.v1 import worker_pb2 as wk
from dragoman_pb.dragoman.worker.v1 import worker_pb2_grpc
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb
from dragoman_pb.lf.a2a.v1 import a2a_pb2_grpc

PROXIES: Final = (
    {"trusted_proxies": "127.0.0.1,::1"},
    {"public_url": "https://agents.example"},
    {"public_grpc": "agents.example:443"},
)
FORWARDED: Final = (("x-forwarded-for", "203.0.113.9"),)


@agent
async def echo(turn: Turn) -> str:
    return turn.text


@asynccontextmanager
async def opened(folder: Path, authenticator: ByHeader | None = None, **given: Any) -> AsyncIterator[App]:
    anywhere = {"http": "127.0.0.1:0", "grpc": "127.0.0.1:0", "store": f"sqlite:///{folder}/tasks.db"}
    async with open_app(Settings.model_validate({**anywhere, **given}), [echo], authenticator) as app:
        yield app


async def code_of(call: Any) -> str:
    try:
        await call
    except grpc.aio.AioRpcError as error:
        return error.code().name
    return "OK"


async def worker_code(channel: grpc.aio.Channel, metadata: Any = ()) -> str:
    """How the server answers to a worker's hello."""
    call: Any = worker_pb2_grpc.WorkerServiceStub(channel).Connect(metadata=metadata)
    try:
        await call.write(wk.ConnectRequest(hello=wk.Hello(name="w")))
        await call.read()
    except grpc.aio.AioRpcError as error:
        return error.code().name
    finally:
        call.cancel()
    return "OK"


@pytest.mark.parametrize("given", PROXIES, ids=lambda given: next(iter(given)))
def test_a_proxy_without_authentication_needs_insecure(given: dict[str, Any]) -> None:
    with pytest.raises(SettingsError, match=r"through a proxy, and authentication is off.*--api-keys.*--insecure"):
        load_settings(given)
    for allowed in ({"insecure": True}, {"api_keys": True}, {"role": "worker"}):
        assert load_settings({**given, **allowed}).behind_proxy


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1", "[::1]", "agents.localhost"])
def test_public_names_of_this_machine_are_no_proxy(name: str) -> None:
    settings = load_settings({"public_url": f"http://{name}:8080/a", "public_grpc": f"{name}:50051"})
    assert not settings.behind_proxy
    assert settings.is_private


@pytest.mark.parametrize("given", PROXIES, ids=lambda given: next(iter(given)))
async def test_behind_a_proxy_no_caller_is_operator_or_worker(given: dict[str, Any], tmp_path: Path) -> None:
    async with opened(tmp_path, insecure=True, **given) as app, grpc.aio.insecure_channel(str(app.grpc)) as channel:
        stub: Any = ops_pb2_grpc.OpsServiceStub(channel)
        assert await code_of(stub.CreateKey(ops.CreateKeyRequest(name="x", grants=["operator"]))) == "UNAUTHENTICATED"
        assert await code_of(stub.Explain(ops.ExplainRequest(task_id="t"))) == "UNAUTHENTICATED"
        assert await worker_code(channel) == "UNAUTHENTICATED"
        async with aiohttp.ClientSession() as http, http.get(f"http://{app.http}/operations/agents") as response:
            assert response.status == 401


async def test_a_forwarded_call_is_not_local(tmp_path: Path) -> None:
    create = ops.CreateKeyRequest(name="x", grants=["operator"])
    async with opened(tmp_path) as app, grpc.aio.insecure_channel(str(app.grpc)) as channel:
        stub: Any = ops_pb2_grpc.OpsServiceStub(channel)
        assert await code_of(stub.CreateKey(create, metadata=FORWARDED)) == "UNAUTHENTICATED"
        assert await worker_code(channel, FORWARDED) == "UNAUTHENTICATED"
        assert await code_of(stub.CreateKey(create)) == "OK"


async def send(channel: grpc.aio.Channel, caller: dict[str, str]) -> str:
    request = pb.SendMessageRequest(message=pb.Message(message_id="m", role=pb.ROLE_USER, parts=[pb.Part(text="hi")]))
    stub: Any = a2a_pb2_grpc.A2AServiceStub(channel)
    response = await stub.SendMessage(request, metadata=tuple(caller.items()))
    return str(response.task.id)


async def test_callers_of_other_machines_see_their_own_tasks_only(tmp_path: Path) -> None:
    """A store that once had keys has tasks of others."""
    async with opened(tmp_path, ByHeader()) as app, grpc.aio.insecure_channel(str(app.grpc)) as channel:
        of_alice = await send(channel, named("alice"))
    async with (
        opened(tmp_path, insecure=True, trusted_proxies="127.0.0.1") as app,
        grpc.aio.insecure_channel(str(app.grpc)) as channel,
    ):
        own = await send(channel, {})
        stub: Any = ops_pb2_grpc.OpsServiceStub(channel)
        listed = await stub.ListTasks(tasks_pb2.ListTasksRequest())
        assert [task.task.id for task in listed.tasks] == [own]
        watch: Any = stub.WatchTasks(tasks_pb2.WatchTasksRequest())
        assert of_alice not in str(await watch.read())
        watch.cancel()
    async with opened(tmp_path) as app, grpc.aio.insecure_channel(str(app.grpc)) as channel:
        stub = ops_pb2_grpc.OpsServiceStub(channel)
        listed = await stub.ListTasks(tasks_pb2.ListTasksRequest())
        assert {task.task.id for task in listed.tasks} == {own, of_alice}
