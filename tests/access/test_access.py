"""Every door, asked by everybody: docs/reference/access.md is what the server does.

`make access` writes the page anew.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import aiohttp
import grpc
import pytest
from tests.access.caller import EndpointCaller
from tests.access.endpoints import Endpoint, recorded
from tests.access.table import PAGE, PAGES, expected, page
from tests.callers import ByHeader, named

from dragoman import Turn, agent
from dragoman.bindings import method_table
from dragoman.settings.settings import Address, Settings
from dragoman.wiring.app import open_app


@agent(default=True, extended_skills=[{"id": "more", "name": "More", "description": "For who shows who it is"}])
async def playground(turn: Turn) -> None:
    """Asks back."""
    turn.ask("what?")


CALLERS: Final = {
    "anonymous": named(""),
    "stranger": named("mallory"),
    "owner": named("alice"),
    "operator": named("olga", "operator"),
}


@asynccontextmanager
async def running_server(folder: Path, **more: object) -> AsyncIterator[tuple[EndpointCaller, list[Endpoint]]]:
    """A server that asks everybody who they are, and its doors."""
    anywhere = Address("127.0.0.1", 0)
    settings = Settings(
        http=anywhere,
        grpc=anywhere,
        store=f"sqlite:///{folder}/tasks.db",
        api_keys=True,
        requests_per_second=0,
        **more,  # type: ignore[arg-type]  # settings
    )
    with recorded() as found:
        async with (
            open_app(settings, [playground], ByHeader()) as app,
            aiohttp.ClientSession(f"http://{app.http}") as http,
            grpc.aio.insecure_channel(str(app.grpc)) as channel,
        ):
            yield EndpointCaller(app, CALLERS["owner"], http, channel), found.endpoints()


@pytest.mark.slow
async def test_every_endpoint_answers_every_caller_as_the_page_says(tmp_path: Path) -> None:
    wrong = []
    async with running_server(tmp_path) as (server, endpoints):
        for endpoint in endpoints:
            answers = tuple([await server.call(endpoint, who) for who in CALLERS.values()])
            if answers != expected(endpoint):
                wrong.append(f"{endpoint.kind} {endpoint.name}:\n  is   {answers}\n  says {expected(endpoint)}")
        assert not wrong, "\n".join(wrong)
        assert PAGE.read_text("utf-8") == page(endpoints), "docs/reference/access.md is old: make access"


async def test_private_pages_are_for_who_shows_who_it_is(tmp_path: Path) -> None:
    async with running_server(tmp_path, private_pages=True) as (server, endpoints):
        closed = [endpoint for endpoint in endpoints if endpoint.op is None and endpoint.kind == "HTTP"]
        assert {endpoint.name for endpoint in closed} >= set(PAGES)
        for endpoint_value in closed:
            answers = tuple([await server.call(endpoint_value, who) for who in CALLERS.values()])
            assert answers == expected(endpoint_value, private=True), endpoint_value.name


def test_an_endpoint_that_the_table_lacks_has_no_answer() -> None:
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


async def test_every_added_route_is_an_endpoint_of_the_table(tmp_path: Path) -> None:
    async with running_server(tmp_path) as (_, endpoints):
        names = {endpoint.name for endpoint in endpoints}
        assert {f"/{row.service}/{row.name}" for row in method_table.RPC_ROWS} <= names
        assert {"GET /healthz", "GET /", "/grpc.health.v1.Health/Check", "/dragoman.ops.v1.OpsService/Purge"} <= names
        assert "/dragoman.worker.v1.WorkerService/Connect" in names
        assert len([endpoint for endpoint in endpoints if endpoint.kind == "HTTP"]) > 60
