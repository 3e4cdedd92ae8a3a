"""HTTP paths besides operations and cards: health, OpenAPI, the index, unknown paths and methods."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import pytest
from tests.bindings.fake_service import RESOURCE, TASK, FakeService, make_cards, over_http
from yarl import URL

from dragoman.bindings.pages import openapi_files
from dragoman.core.errors import TaskNotFound


@pytest.mark.parametrize("path", ["/healthz", "/health", "/readyz", "/ready"])
async def test_a_listening_server_is_alive_and_ready(path: str) -> None:
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


async def test_a_server_without_its_store_is_alive_but_not_ready() -> None:
    async with over_http(FakeService(), store_problem=lambda: "it does not respond") as client:
        async with client.get("/readyz") as answer:
            assert answer.status == 503
            assert await answer.json() == {"status": "not ready", "reason": "store: it does not respond"}
        async with client.get("/healthz") as answer:
            assert answer.status == 200


async def test_a_server_without_its_bus_is_ready_but_degraded() -> None:
    async with over_http(FakeService(), bus_problem=lambda: "not connected") as client, client.get("/readyz") as answer:
        assert answer.status == 200
        assert await answer.json() == {"status": "degraded", "reason": "bus: not connected"}


@pytest.mark.parametrize(
    ("method", "path"),
    [
        *(
            ("GET", "//tasks/t1"),
            ("GET", "/tasks//t1"),
            ("GET", "/tasks/t1/"),
            ("GET", "/healthz/"),
            ("GET", "/agents/"),
        ),
        *(("GET", "//.well-known/agent-card.json"), ("GET", "/.well-known/agent-card.json/")),
        *(("POST", "/tasks/t1:cancel/"), ("POST", "//tasks/t1:cancel"), ("POST", "/tasks/t1/cancel/")),
        *(("POST", f"/{RESOURCE}/tasks/t1:cancel/"), ("GET", f"//v1/{RESOURCE}/tasks/t1")),
    ],
)
@pytest.mark.parametrize("headers", [{}, {"Connection": "close"}], ids=["plain", "aiohttp"])
async def test_slashes_at_the_end_and_where_urls_are_joined_change_nothing(
    method: str, path: str, headers: dict[str, str]
) -> None:
    async with over_http(FakeService(TASK)) as client:
        url = URL(f"{client._base_url}".rstrip("/") + path, encoded=True)
        async with aiohttp.request(method, url, headers=headers) as answer:
            assert answer.status == 200, await answer.text()


@pytest.mark.parametrize("path", ["//", "///", "//?x=1"])
async def test_a_path_of_slashes_is_that_of_no_resource(path: str) -> None:
    async with over_http(FakeService(TASK)) as client:
        url = URL(f"{client._base_url}".rstrip("/") + path, encoded=True)
        async with aiohttp.request("PUT", url) as answer:
            assert 400 <= answer.status < 500, await answer.text()


@pytest.mark.parametrize(
    ("method", "path", "status", "use"),
    [
        ("POST", "/message%3Asend", 404, "/message:send"),
        ("POST", "/v1/message%3asend", 404, "/v1/message:send"),
        ("POST", "/tasks/a%3Ab%3Acancel", 405, "/tasks/a:b:cancel"),
    ],
)
async def test_an_encoded_colon_of_a_verb_is_named(method: str, path: str, status: int, use: str) -> None:
    async with over_http(FakeService(TASK)) as client:
        url = URL(f"{client._base_url}".rstrip("/") + path, encoded=True)
        async with aiohttp.request(method, url) as answer:
            text = (await answer.json())["error"]["message"]
    assert (answer.status, text.partition("; write ")[2]) == (status, f"the colon before the verb as it is: {use}")


@pytest.mark.parametrize("path", ["/nope", "/v1/nope", f"/{RESOURCE}/nope", "/nope/", "/a%3Anope", "/openapi/nope"])
async def test_an_unknown_path_is_not_found(path: str) -> None:
    async with over_http(FakeService()) as client, client.get(path) as answer:
        assert answer.status == 404
        body = await answer.json()
    assert body["error"]["details"][0]["reason"] == "METHOD_NOT_FOUND"
    assert ("type" in body) == path.startswith("/v1/")


@pytest.mark.parametrize(
    ("path", "allow"),
    [
        ("/.well-known/agent-card.json", "GET, HEAD, OPTIONS"),
        ("/.well-known/agent.json", "GET, HEAD, OPTIONS"),
        ("/echo/.well-known/agent.json", "GET, HEAD, OPTIONS"),
        ("/", "GET, HEAD, POST, OPTIONS"),
        ("/message:send", "POST, OPTIONS"),
    ],
)
async def test_options_names_the_methods_of_a_path(path: str, allow: str) -> None:
    async with over_http(FakeService()) as client, client.options(path) as response:
        assert (response.status, response.headers["Allow"], await response.text()) == (204, allow, "")


async def test_options_of_an_unknown_path_is_not_found() -> None:
    async with over_http(FakeService()) as client, client.options("/nothing") as response:
        assert response.status == 404


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
async def test_a_wrong_method_is_rejected_with_the_allowed_ones(method: str, path: str, allow: str) -> None:
    async with over_http(FakeService()) as client, client.request(method, path) as answer:
        assert (answer.status, answer.headers["Allow"]) == (405, allow)
        error = (await answer.json())["error"]
    assert error["details"][0]["reason"] == "METHOD_NOT_ALLOWED"


@pytest.mark.parametrize("path", ["/tasks/t1", "/v1/tasks/t1", f"/{RESOURCE}/tasks/t1", "/tasks/none", "/healthz"])
async def test_head_returns_the_headers_of_get(path: str) -> None:
    answer: Any = TaskNotFound() if path.endswith("none") else TASK
    async with over_http(FakeService(answer)) as client:
        async with client.get(path) as get, client.head(path) as head:
            assert await head.read() == b""
        for name in ("Content-Type", "Content-Length"):
            assert (head.status, head.headers[name]) == (get.status, get.headers[name])
        async with client.head("/tasks/t1:subscribe") as rejected:
            assert (rejected.status, rejected.headers["Allow"]) == (405, "GET, POST")


async def test_clients_other_than_browsers_get_the_list_of_agents() -> None:
    async with (
        over_http(FakeService(), make_cards(public_url="https://a.example")) as client,
        client.get("/") as answer,
    ):
        index = await answer.json()
    assert [(agent["id"], agent["root"], agent["card"]) for agent in index["agents"]] == [
        ("echo", True, "https://a.example/.well-known/agent-card.json"),
        ("other", False, "https://a.example/other/.well-known/agent-card.json"),
    ]


async def test_openapi_files_are_listed_and_served() -> None:
    async with over_http(FakeService()) as client:
        async with client.get("/openapi/") as answer:
            assert await answer.json() == {"files": [f"/openapi/{name}" for name in sorted(openapi_files())]}
        async with client.get("/openapi/a2a/v1/a2a.swagger.json") as answer:
            assert await answer.read() == openapi_files()["a2a/v1/a2a.swagger.json"]
        async with client.get("/openapi/../../secret") as answer:
            assert answer.status == 404


async def test_an_address_in_use_is_an_os_error() -> None:
    async with over_http(FakeService()) as client:
        assert client._base_url is not None
        with pytest.raises(OSError, match="address already in use"):
            async with over_http(FakeService(), port=client._base_url.port):
                pass
