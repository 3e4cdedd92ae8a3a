"""Every endpoint called by every caller: the results are those of docs/reference/access.md.

`make access` regenerates the page.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import aiohttp
import grpc
import pytest
from grpc_health.v1 import health_pb2  # type: ignore[import-untyped]
from tests.access.caller import EndpointCaller
from tests.access.endpoints import Endpoint, recorded
from tests.access.table import PAGE, PAGES, expected, page
from tests.callers import ByHeader, named

from dragoman import Turn, agent
from dragoman.bindings import method_table
from dragoman.core.access.jwt_claims import Issuer
from dragoman.settings.settings import Address, Settings
from dragoman.wiring.app import open_app

pytestmark = pytest.mark.long


@agent(default=True, extended_skills=[{"id": "more", "name": "More", "description": "For authenticated callers"}])
async def playground(turn: Turn) -> None:
    """Asks a question."""
    turn.ask("what?")


CALLERS: Final = {
    "anonymous": named(""),
    "stranger": named("mallory"),
    "owner": named("alice"),
    "viewer": named("vera", "viewer"),
    "operator": named("olga", "operator"),
}


@asynccontextmanager
async def running_server(folder: Path, **more: object) -> AsyncIterator[tuple[EndpointCaller, list[Endpoint]]]:
    """Runs a server with authentication; yields the caller of its endpoints, and the endpoints."""
    anywhere = Address("127.0.0.1", 0)
    (folder / "keys.json").write_text('{"keys": []}')
    settings = Settings(
        http=anywhere,
        grpc=anywhere,
        store=f"sqlite:///{folder}/tasks.db",
        api_keys=True,
        issuers=(Issuer(url="https://login.example.com", audience=("dragoman",), jwks=str(folder / "keys.json")),),
        requests_per_second=0,
        **more,  # settings
    )
    with recorded() as recording:
        async with (
            open_app(settings, [playground], ByHeader()) as app,
            aiohttp.ClientSession(f"http://{app.http}") as http,
            grpc.aio.insecure_channel(str(app.grpc)) as channel,
        ):
            yield EndpointCaller(app, CALLERS["owner"], http, channel), recording.endpoints()


@pytest.mark.skipif(
    not hasattr(health_pb2, "HealthListRequest"), reason="grpcio-health-checking before 1.82 has no List"
)
async def test_every_endpoint_gives_every_caller_the_result_of_the_page(tmp_path: Path) -> None:
    mismatches = []
    async with running_server(tmp_path) as (server, endpoints):
        for endpoint in endpoints:
            results = tuple([await server.call(endpoint, headers) for headers in CALLERS.values()])
            if results != expected(endpoint):
                mismatches.append(
                    f"{endpoint.kind} {endpoint.name}:\n  is       {results}\n  expected {expected(endpoint)}"
                )
        assert not mismatches, "\n".join(mismatches)
        assert PAGE.read_text("utf-8") == page(endpoints), "docs/reference/access.md is out of date: run make access"


async def test_private_pages_need_credentials(tmp_path: Path) -> None:
    async with running_server(tmp_path, private_pages=True) as (server, endpoints):
        http_endpoints = [endpoint for endpoint in endpoints if endpoint.op is None and endpoint.kind == "HTTP"]
        assert {endpoint.name for endpoint in http_endpoints} >= set(PAGES)
        for endpoint in http_endpoints:
            results = tuple([await server.call(endpoint, headers) for headers in CALLERS.values()])
            assert results == expected(endpoint, private=True), endpoint.name


def test_an_unlisted_endpoint_has_no_expected_result() -> None:
    with pytest.raises(KeyError):
        expected(Endpoint("HTTP", "GET /secrets"))
    with pytest.raises(KeyError):
        expected(Endpoint("gRPC", "/dragoman.secret.v1.Secret/Tell"))
    with pytest.raises(StopIteration):
        expected(
            Endpoint(
                "JSON-RPC",
                "tasks/steal",
                op=method_table.A2AOperation(
                    request=method_table.GET_TASK.request, response=method_table.GET_TASK.response
                ),
            )
        )


async def test_every_registered_route_is_recorded(tmp_path: Path) -> None:
    async with running_server(tmp_path) as (_, endpoints):
        names = {endpoint.name for endpoint in endpoints}
        assert {f"/{row.service}/{row.name}" for row in method_table.RPC_ROWS} <= names
        assert {"GET /healthz", "GET /", "/grpc.health.v1.Health/Check", "/dragoman.ops.v1.OpsService/Purge"} <= names
        assert "/dragoman.worker.v1.WorkerService/Connect" in names
        assert len([endpoint for endpoint in endpoints if endpoint.kind == "HTTP"]) > 60
