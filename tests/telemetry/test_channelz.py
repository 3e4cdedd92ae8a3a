"""gRPC channelz: the connections of the port, for operators, if turned on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_channelz.v1 import channelz_pb2  # type: ignore[import-untyped]
from tests.telemetry.test_metrics import ROOT, serving

from dragoman.wiring.app import App

SERVICE = "/grpc.channelz.v1.Channelz"


async def ask(app: App, name: str, token: str = ROOT, **fields: Any) -> Any:
    request = getattr(channelz_pb2, f"{name}Request")(**fields)
    async with grpc.aio.insecure_channel(str(app.grpc)) as channel:
        call: Any = channel.unary_unary(f"{SERVICE}/{name}")
        answer = await call(
            request.SerializeToString(), metadata=(("authorization", f"Bearer {token}"),) if token else ()
        )
    return getattr(channelz_pb2, f"{name}Response").FromString(answer)


async def test_operators_see_the_connections_of_the_port(tmp_path: Path) -> None:
    async with serving(tmp_path, token=ROOT, channelz=True) as app:
        servers = (await ask(app, "GetServers")).server
        assert any(server.data.calls_started for server in servers)
        one = servers[-1].ref.server_id
        assert (await ask(app, "GetServer", server_id=one)).server.ref.server_id == one
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await ask(app, "GetServer", server_id=10**9)
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await ask(app, "GetServers", token="")
        assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED


async def test_channelz_is_off_by_default(tmp_path: Path) -> None:
    async with serving(tmp_path, token=ROOT) as app:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await ask(app, "GetServers")
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
