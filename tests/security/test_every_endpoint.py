"""Every method of every service and every route, called without credentials.

The doors are found in the descriptors and in the description, so that one that is added is asked as well.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import pytest

from dragoman import Turn, agent
from dragoman.bindings import method_table
from dragoman.bindings.admin.table import OPS_SERVICE
from dragoman.client.operations import Operator
from dragoman.settings.settings import Address, Settings
from dragoman.wiring.app import App, open_app
from dragoman_pb.dragoman.ops.v1 import ops_pb2 as ops

STATIC = "operators' own"
OPEN_RPCS = {"/a2a.v1.A2AService/GetAgentCard"}
OPEN_PATHS = re.compile(r"/card$|/\.well-known/|^/(healthz|readyz|health|ready)$")


@agent
async def echo(turn: Turn) -> str:
    return turn.text


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[App]:
    settings = Settings(
        http=Address("127.0.0.1", 0),
        grpc=Address("127.0.0.1", 0),
        store=f"sqlite:///{tmp_path}/tasks.db",
        token=STATIC,  # becomes a secret
        api_keys=True,
    )
    async with open_app(settings, [echo]) as app:
        yield app


async def ask(channel: grpc.aio.Channel, path: str, streams: bool, metadata: Any = ()) -> grpc.StatusCode:
    """The response of a method to an empty request."""
    try:
        if streams:
            call = channel.unary_stream(path, bytes, bytes)(b"", metadata=metadata)
            await call.read()
            call.cancel()
        else:
            await channel.unary_unary(path, bytes, bytes)(b"", metadata=metadata)
    except grpc.aio.AioRpcError as error:
        return error.code()
    return grpc.StatusCode.OK


async def test_every_rpc_requires_authentication(app: App) -> None:
    services = [*(descriptor for descriptor, _ in method_table.rpc_services()), OPS_SERVICE]
    found = {}
    async with grpc.aio.insecure_channel(str(app.grpc)) as channel:
        for service in services:
            for method in service.methods:
                path = f"/{service.full_name}/{method.name}"
                if path not in OPEN_RPCS:
                    found[path] = await ask(channel, path, method.server_streaming)
    assert len(found) > 30
    assert {path: code for path, code in found.items() if code is not grpc.StatusCode.UNAUTHENTICATED} == {}


async def test_every_operator_call_but_those_for_own_tasks_and_usage_requires_the_operator_grant(app: App) -> None:
    async with Operator(str(app.grpc), token=STATIC) as operator:
        key = (await operator.create_key(ops.CreateKeyRequest(name="k"))).text
    found = {}
    async with grpc.aio.insecure_channel(str(app.grpc)) as channel:
        for method in OPS_SERVICE.methods:
            metadata = (("x-api-key", key),)
            path = f"/{OPS_SERVICE.full_name}/{method.name}"
            found[method.name] = await ask(channel, path, method.server_streaming, metadata)
    allowed = {name: code for name, code in found.items() if code is not grpc.StatusCode.PERMISSION_DENIED}
    assert allowed == dict.fromkeys(("ListTasks", "WatchTasks", "ListUsage"), grpc.StatusCode.OK)


async def test_every_route_requires_authentication(app: App) -> None:
    found = {}
    async with aiohttp.ClientSession(f"http://{app.http}") as http:
        async with http.get("/openapi.json") as answer:
            paths = (await answer.json())["paths"]
        for path, verbs in paths.items():
            if OPEN_PATHS.search(path):
                continue
            for verb in verbs:
                async with http.request(verb, re.sub(r"\{\w+\}", "x", path)) as answer:
                    found[verb, path] = answer.status
    assert len(found) > 50
    assert {endpoint: status for endpoint, status in found.items() if status != 401} == {}


async def test_every_json_rpc_method_requires_authentication(app: App) -> None:
    found = {}
    async with aiohttp.ClientSession(f"http://{app.http}") as http:
        for name in (*method_table.jsonrpc_rows(), "no/such", ""):
            for path in ("/", "/echo", "/tenants/echo", "/nobody"):
                async with http.post(path, json={"jsonrpc": "2.0", "id": 1, "method": name, "params": {}}) as answer:
                    found[name, path] = (answer.status, "WWW-Authenticate" in answer.headers)
    assert len(found) > 100
    assert {endpoint: reported for endpoint, reported in found.items() if reported != (401, True)} == {}
