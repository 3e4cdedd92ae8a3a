"""10,000 idle connections on one port of a server that may open 1024 files: both ports still serve."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import aiohttp
import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc  # type: ignore[import-untyped]
from tests.cli.server import Server, serving
from tests.overload.programs import program, read_line

from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb
from dragoman_pb.lf.a2a.v1 import a2a_pb2_grpc

if sys.platform != "win32":
    import resource

OPEN_FILES: Final = 1024
"""The descriptor limit of the server, soft and hard: a common default of systems."""

IDLE: Final = 10_000
"""Connections that the client tries to keep open."""

DEADLINE: Final = 2.0
"""Seconds for each call: the timeout of a common health check."""

AGENT: Final = """
from dragoman import Turn, agent

@agent(default=True)
async def echo(turn: Turn) -> str:
    return turn.text
"""


def may_open(files: int) -> bool:
    """Whether a process of this user may open so many files."""
    if sys.platform == "win32":
        return False
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return hard == resource.RLIM_INFINITY or hard >= files


pytestmark = [
    pytest.mark.longest,
    pytest.mark.skipif(sys.platform != "linux", reason="sets limits of another process"),
    pytest.mark.skipif(not may_open(IDLE + 100), reason="the client may not open enough files"),
]


async def is_ready(server: Server) -> int:
    """Returns the status of /readyz over a new connection."""
    timeout = aiohttp.ClientTimeout(total=DEADLINE)
    async with aiohttp.ClientSession(timeout=timeout) as session, session.get(f"{server.http}/readyz") as response:
        return response.status


async def health(server: Server) -> int:
    """Returns the status of gRPC health over a new connection."""
    async with grpc.aio.insecure_channel(server.grpc, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
        response = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=DEADLINE)
        return int(response.status)


async def send(server: Server) -> int:
    """Returns the state of a task sent over a new gRPC connection."""
    message = pb.Message(message_id="idle", role=pb.ROLE_USER, parts=[pb.Part(text="small")])
    async with grpc.aio.insecure_channel(server.grpc, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
        stub = a2a_pb2_grpc.A2AServiceStub(channel)
        response = await stub.SendMessage(pb.SendMessageRequest(message=message), timeout=DEADLINE)
        return int(response.task.status.state)


async def test_idle_http_connections_leave_descriptors_to_both_ports(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(AGENT)
    with serving("app.py", "--store", f"sqlite:///{tmp_path}/tasks.db", cwd=tmp_path, open_files=OPEN_FILES) as server:
        address = urlsplit(server.http).netloc
        async with program("tests.abuse.idle_connections", "http", address, str(IDLE)) as client:
            accepted = int(await read_line(client))
            assert await health(server) == health_pb2.HealthCheckResponse.SERVING
            assert await send(server) == pb.TASK_STATE_COMPLETED
            assert await is_ready(server) == 200
        server.process.terminate()
        assert server.ends() == 0
        log = server.err.rest()
    assert accepted == IDLE  # a new connection replaces the one that has been idle longest
    assert log.count(f"this process may open {OPEN_FILES} files") == 1
    assert "Too many open files" not in log


async def test_idle_grpc_connections_leave_descriptors_to_http(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(AGENT)
    with serving("app.py", "--store", f"sqlite:///{tmp_path}/tasks.db", cwd=tmp_path, open_files=OPEN_FILES) as server:
        async with program("tests.abuse.idle_connections", "grpc", server.grpc, str(IDLE)) as client:
            assert int(await read_line(client)) > 0
            assert await is_ready(server) == 200
        server.process.terminate()
        assert server.ends() == 0
        log = server.err.rest()
    assert "Too many open files" not in log
