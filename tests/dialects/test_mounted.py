"""The suite of the dialects again, on a server that is mounted in a FastAPI application, beside gRPC on its own port.

The tests of other files run here with connections of their own. Each dialect meets the next one, not every other one.
WebSocket is left out, because it is not served inside another application.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest
import uvicorn
from fastapi import FastAPI
from tests.dialects import test_jsonrpc, test_pairs
from tests.dialects.dialect_clients import DIALECT_CLIENTS, ServerConnections, open_connections

from dragoman.asgi import AsgiApp
from dragoman.playground import playground

pytestmark = pytest.mark.long

LEFT_OUT: Final = {
    "test_ambiguous_json_is_rejected_in_the_format_of_its_dialect",  # also over WebSocket
    # Tables for the parser of JSON-RPC, which sees a body, not how it came:
    "test_invalid_params_are_rejected_in_the_dialect_of_the_method",
    "test_an_invalid_envelope_is_rejected_with_its_code",
    "test_the_text_of_an_invalid_envelope_is_literal_unless_the_caller_names_1_0",
}

names = [name for name in vars(test_jsonrpc) if name.startswith("test_") and name not in LEFT_OUT]
globals().update({name: vars(test_jsonrpc)[name] for name in names})

DIALECTS: Final = [name for name in DIALECT_CLIENTS if "WebSocket" not in name]
PAIRS: Final = pytest.mark.parametrize(
    ("maker", "other"), list(zip(DIALECTS, DIALECTS[1:] + DIALECTS[:1], strict=True))
)


@PAIRS
async def test_a_task_of_one_dialect_is_continued_in_the_next(
    connections: ServerConnections, maker: str, other: str
) -> None:
    await test_pairs.test_a_task_of_one_dialect_is_read_and_continued_in_another(connections, maker, other)


@PAIRS
async def test_a_task_of_one_dialect_is_canceled_in_the_next(
    connections: ServerConnections, maker: str, other: str
) -> None:
    await test_pairs.test_a_task_of_one_dialect_is_followed_and_canceled_in_another(connections, maker, other)


@pytest.fixture
async def connections(
    tmp_path: Path, no_settings: None, time_to_stop: None, time_to_think: None
) -> AsyncIterator[ServerConnections]:
    agents = AsgiApp(playground, store=f"sqlite:///{tmp_path}/tasks.db", grpc="127.0.0.1:0", insecure=True)
    started = asyncio.Event()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with agents.lifespan(app):
            started.set()
            yield

    host = FastAPI(lifespan=lifespan)
    host.mount("/", agents)
    port = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(host, log_config=None, lifespan="on", timeout_graceful_shutdown=1))
    serving = asyncio.create_task(server.serve(sockets=[port]))
    await started.wait()
    address = f"127.0.0.1:{port.getsockname()[1]}"
    async with open_connections(address, agents.server.grpc) as opened:
        yield opened
    server.should_exit = True
    await serving
