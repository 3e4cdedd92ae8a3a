"""What is neither an operation nor a card: health, OpenAPI, the page, and paths that nothing serves."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.bindings.fake_service import RESOURCE, TASK, FakeService, make_cards, over_http

from dragoman.core.errors import TaskNotFound


@pytest.mark.parametrize("path", ["/healthz", "/health", "/readyz", "/ready"])
async def test_a_server_that_listens_is_alive_and_ready(path: str) -> None:
    async with over_http(FakeService()) as client:
        async with client.get(path) as answer:
            assert (answer.status, await answer.json()) == (200, {"status": "ok"})
        async with client.head(path) as answer:
            assert answer.status == 200


async def test_a_draining_server_is_alive_but_not_ready() -> None:
    draining = asyncio.Event()
    async with over_http(FakeService(), draining=draining) as client:
        draining.set()
        for path, status in (("/readyz", 503), ("/ready", 503), ("/healthz", 200)):
            async with client.get(path) as answer:
                assert answer.status == status


async def test_a_server_may_have_other_reasons_not_to_be_ready() -> None:
    async with over_http(FakeService(), ready=lambda: False) as client, client.get("/readyz") as answer:
        assert answer.status == 503


async def test_a_server_whose_bus_is_away_is_ready_and_says_so() -> None:
    async with over_http(FakeService(), bus_problem=lambda: "it is away") as client, client.get("/readyz") as answer:
        assert answer.status == 200
        assert await answer.json() == {"status": "degraded", "reason": "bus: it is away"}


@pytest.mark.parametrize("path", ["/nope", "/v1/nope", f"/{RESOURCE}/nope", "/tasks/", "/openapi/nope"])
async def test_a_path_that_nothing_serves_is_not_found(path: str) -> None:
    async with over_http(FakeService()) as client, client.get(path) as answer:
        assert answer.status == 404
        body = await answer.json()
    assert body["error"]["details"][0]["reason"] == "METHOD_NOT_FOUND"
    assert ("type" in body) == path.startswith("/v1/")


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("GET", "/message:send", "POST"),
        ("DELETE", "/tasks/t1", "GET, HEAD"),
        ("DELETE", "/tasks/t1:subscribe", "GET, POST"),
        ("PUT", "/v1/tasks/t1:subscribe", "GET, POST"),
        ("POST", "/healthz", "GET, HEAD"),
        ("PUT", "/", "GET, HEAD, POST"),
    ],
)
async def test_a_wrong_method_names_the_right_ones(method: str, path: str, allow: str) -> None:
    async with over_http(FakeService()) as client, client.request(method, path) as answer:
        assert (answer.status, answer.headers["Allow"]) == (405, allow)
        error = (await answer.json())["error"]
    assert error["details"][0]["reason"] == "METHOD_NOT_ALLOWED"


@pytest.mark.parametrize("path", ["/tasks/t1", "/v1/tasks/t1", f"/{RESOURCE}/tasks/t1", "/tasks/none", "/healthz"])
async def test_a_head_is_that_of_get(path: str) -> None:
    answer: Any = TaskNotFound() if path.endswith("none") else TASK
    async with over_http(FakeService(answer)) as client:
        async with client.get(path) as got, client.head(path) as response:
            assert await response.read() == b""
        kept = ("Content-Type", "Content-Length")
        assert (response.status, [response.headers[name] for name in kept]) == (
            got.status,
            [got.headers[name] for name in kept],
        )
        async with client.head("/tasks/t1:subscribe") as refused:
            assert (refused.status, refused.headers["Allow"]) == (405, "GET, POST")


async def test_everyone_else_gets_the_addresses_of_the_cards() -> None:
    async with (
        over_http(FakeService(), make_cards(public_url="https://a.example")) as client,
        client.get("/") as answer,
    ):
        found = await answer.json()
    assert [(agent["id"], agent["root"], agent["card"]) for agent in found["agents"]] == [
        ("echo", True, "https://a.example/.well-known/agent-card.json"),
        ("other", False, "https://a.example/other/.well-known/agent-card.json"),
    ]


async def test_openapi_files_are_listed_and_served() -> None:
    async with over_http(FakeService(), openapi={"a2a/v1/a2a.json": b"{}"}) as client:
        async with client.get("/openapi/") as answer:
            assert await answer.json() == {"files": ["/openapi/a2a/v1/a2a.json"]}
        async with client.get("/openapi/a2a/v1/a2a.json") as answer:
            assert await answer.read() == b"{}"
        async with client.get("/openapi/../../secret") as answer:
            assert answer.status == 404


async def test_a_taken_address_is_an_os_error() -> None:
    async with over_http(FakeService()) as client:
        assert client._base_url is not None
        with pytest.raises(OSError, match="address already in use"):
            async with over_http(FakeService(), port=client._base_url.port):
                pass
