"""`dragoman.asgi`: agents inside FastAPI, Starlette and Litestar, and by themselves, under uvicorn and hypercorn."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, cast

import aiohttp
import hypercorn.asyncio
import hypercorn.config
import litestar
import pytest
import uvicorn
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.authentication import AuthCredentials, AuthenticationBackend, SimpleUser
from starlette.middleware import Middleware
from starlette.middleware.authentication import AuthenticationMiddleware
from starlette.responses import JSONResponse
from starlette.routing import Mount, Route

from dragoman import Turn, agent
from dragoman.asgi import AsgiApp, Identity
from dragoman.client import connect

Serve = Callable[[Any, socket.socket, asyncio.Event], Coroutine[Any, Any, None]]


@agent
async def echo(turn: Turn) -> str:
    return turn.text


@agent
async def gate(turn: Turn) -> str:
    turn.status("at the gate")
    await opened.wait()
    return "through"


opened = asyncio.Event()


@pytest.fixture(autouse=True)
def _alone(no_settings: None) -> None:
    """An empty folder and environment."""
    opened.clear()


def user(scope: Any) -> str | None:
    """The caller, by a header of its own."""
    return dict(scope["headers"]).get(b"x-user", b"").decode() or None


async def with_uvicorn(app: Any, port: socket.socket, stop: asyncio.Event) -> None:
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, lifespan="on"))
    serving = asyncio.create_task(server.serve(sockets=[port]))
    await stop.wait()
    server.should_exit = True
    await serving


async def with_hypercorn(app: Any, port: socket.socket, stop: asyncio.Event) -> None:
    config = hypercorn.config.Config()
    config.bind = [f"fd://{port.detach()}"]
    config.errorlog = None
    await hypercorn.asyncio.serve(app, config, shutdown_trigger=cast(Any, stop.wait))


SERVERS = {"uvicorn": with_uvicorn, "hypercorn": with_hypercorn}


@asynccontextmanager
async def served(app: Any, serve: Serve = with_uvicorn) -> AsyncIterator[str]:
    """Yields the URL of an application behind a server."""
    port = socket.create_server(("127.0.0.1", 0))
    url, stop = f"http://127.0.0.1:{port.getsockname()[1]}", asyncio.Event()
    task = asyncio.create_task(serve(app, port, stop))
    try:
        yield url
    finally:
        stop.set()
        await task


def fastapi_host(agents: AsgiApp) -> Any:
    host = FastAPI(lifespan=agents.lifespan)
    host.add_api_route("/prices", lambda: {"price": 7})
    host.mount("/agents", agents)
    return host


def starlette_host(agents: AsgiApp) -> Any:
    async def prices(request: Any) -> JSONResponse:
        return JSONResponse({"price": 7})

    return Starlette(routes=[Route("/prices", prices), Mount("/agents", agents)], lifespan=agents.lifespan)


def litestar_host(agents: AsgiApp) -> Any:
    @litestar.get("/prices")
    async def prices() -> dict[str, int]:
        return {"price": 7}

    mounted = litestar.asgi("/agents", is_mount=True, copy_scope=True)(agents)
    return litestar.Litestar([prices, mounted], lifespan=[agents.lifespan])


HOSTS = {"FastAPI": fastapi_host, "Starlette": starlette_host, "Litestar": litestar_host}


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("host", HOSTS)
async def test_a_host_serves_its_own_routes_and_the_agents_below_a_path(host: str, server: str) -> None:
    agents = AsgiApp(echo, gate, authenticate=user)
    async with served(HOSTS[host](agents), SERVERS[server]) as url, aiohttp.ClientSession(url) as http:
        async with http.get("/prices") as response:
            assert await response.json() == {"price": 7}
        async with http.get("/agents/.well-known/agent-card.json", headers={"A2A-Version": "1.0"}) as response:
            card = await response.json()
        assert {one["url"] for one in card["supportedInterfaces"]} == {f"{url}/agents/", f"{url}/agents"}
        async with connect(f"{url}/agents", headers={"X-User": "ann"}) as ann:
            assert (await ann.ask("hello")).text == "hello"
            events = []
            async for event in ann.run("go", agent="gate"):
                events.append(type(event).__name__)
                opened.set()  # by the first event, which the turn's end is not among
            assert (len(events) > 1, events[-1]) == (True, "Finished")
        parts = [{"kind": "text", "text": "by JSON-RPC"}]
        sent = {"kind": "message", "messageId": "m", "role": "user", "parts": parts}
        rpc = {"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": {"message": sent}}
        async with http.post("/agents/", json=rpc, headers={"X-User": "ann"}) as response:
            assert (await response.json())["result"]["artifacts"][0]["parts"][0]["text"] == "by JSON-RPC"


async def test_the_hosts_login_decides_who_calls_and_whose_tasks_they_see() -> None:
    class Login(AuthenticationBackend):
        async def authenticate(self, conn: Any) -> tuple[AuthCredentials, SimpleUser] | None:
            name = {"secret-of-ann": "ann", "secret-of-bob": "bob"}.get(conn.cookies.get("session", ""))
            return (AuthCredentials(), SimpleUser(name)) if name else None

    agents = AsgiApp(echo, authenticate=lambda scope: scope["user"].display_name or None)
    login = Middleware(AuthenticationMiddleware, backend=Login())
    host = Starlette(routes=[Mount("/agents", agents)], lifespan=agents.lifespan, middleware=[login])
    sending = {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hello"}]}}
    async with served(host) as url, aiohttp.ClientSession(url) as http:

        async def call(session: str, method: str, path: str, **body: Any) -> tuple[int, Any]:
            headers = {"Cookie": f"session={session}", "Authorization": "Bearer of-another-server"}
            async with http.request(method, path, headers=headers, **body) as response:
                return response.status, await response.json()

        status, sent = await call("secret-of-ann", "POST", "/agents/message:send", json=sending)
        assert status == 200
        task = sent["task"]["id"]
        assert (await call("secret-of-ann", "GET", f"/agents/tasks/{task}"))[0] == 200
        assert (await call("secret-of-bob", "GET", f"/agents/tasks/{task}"))[0] == 404
        assert (await call("stolen", "GET", f"/agents/tasks/{task}"))[0] == 401


async def test_grants_of_the_host_decide_which_agents_a_caller_may_call() -> None:
    agents = AsgiApp(echo, gate, authenticate=lambda scope: Identity("ann", grants=frozenset({"agent:echo"})))
    async with served(fastapi_host(agents)) as url, aiohttp.ClientSession(url) as http:
        found = {}
        for name in ("echo", "gate"):
            async with http.get(f"/agents/{name}/tasks") as response:
                found[name] = response.status
    assert found == {"echo": 200, "gate": 403}


async def test_a_hook_that_fails_is_a_fault_of_the_server_and_says_nothing_to_the_caller() -> None:
    def broken(scope: Any) -> str:
        raise RuntimeError("no database")

    async with (
        served(fastapi_host(AsgiApp(echo, authenticate=broken))) as url,
        aiohttp.ClientSession(url) as http,
        http.get("/agents/tasks") as response,
    ):
        assert (response.status, "no database" in await response.text()) == (500, False)


async def test_the_servers_own_authentication_works_inside_a_host() -> None:
    agents = AsgiApp(echo, token="a-token-that-is-long")
    async with served(fastapi_host(agents)) as url, aiohttp.ClientSession(url) as http:
        async with http.get("/agents/tasks") as response:
            assert response.status == 401
        async with connect(f"{url}/agents", token="a-token-that-is-long") as connection:
            assert (await connection.ask("hello")).text == "hello"


async def test_grpc_is_served_beside_the_host_if_an_address_is_set() -> None:
    agents = AsgiApp(echo, grpc="127.0.0.1:0", token="a-token-that-is-long")
    async with served(fastapi_host(agents)) as url:
        async with connect(f"{url}/agents", token="a-token-that-is-long") as connection:
            sent = await connection.ask("over HTTP")
        async with connect(f"grpc://{agents.server.grpc}", token="a-token-that-is-long") as connection:
            assert (await connection.get(sent.task_id)).text == "over HTTP"
            assert (await connection.ask("over gRPC")).text == "over gRPC"


async def test_without_an_address_there_is_no_grpc() -> None:
    agents = AsgiApp(echo, insecure=True, grpc=None)
    async with agents.lifespan():
        assert (agents.server.grpc, agents.server.agents) == ("", ["echo"])


async def test_an_application_without_a_host_is_served_too() -> None:
    async with served(AsgiApp(echo, insecure=True)) as url, connect(url) as connection:
        assert (await connection.ask("hello")).text == "hello"


async def test_the_hosts_own_lifespan_may_contain_that_of_the_agents() -> None:
    order = []
    agents = AsgiApp(echo, insecure=True)

    @asynccontextmanager
    async def lifespan(app: Any) -> AsyncIterator[None]:
        order.append("pool opened")
        async with agents.lifespan(app):
            yield
        order.append("pool closed")

    host = FastAPI(lifespan=lifespan)
    host.mount("/agents", agents)
    async with served(host) as url, connect(f"{url}/agents") as connection:
        assert (await connection.ask("hello")).text == "hello"
    assert order == ["pool opened", "pool closed"]


async def test_a_request_before_the_lifespan_is_an_error_that_says_what_is_missing() -> None:
    agents = AsgiApp(echo, insecure=True)
    with pytest.raises(RuntimeError, match=r"FastAPI\(lifespan=agents.lifespan\)"):
        await agents({"type": "http", "path": "/", "headers": []}, cast(Any, None), cast(Any, None))
    async with agents.lifespan():
        with pytest.raises(RuntimeError, match="runs already"):
            async with agents.lifespan():
                pass
    with pytest.raises(RuntimeError, match="have not started"):
        _ = agents.server


async def test_a_websocket_is_refused() -> None:
    sent = []

    async def receive() -> Any:
        return {"type": "websocket.connect"}

    async def send(message: Any) -> None:
        sent.append(message["type"])

    async with (agents := AsgiApp(echo, insecure=True)).lifespan():
        await agents({"type": "websocket", "path": "/ws"}, receive, send)
    assert sent == ["websocket.close"]


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ({}, "authenticate: is required, because everyone who reaches the host application could read all tasks"),
        ({"insecure": True, "http": "127.0.0.1:0"}, "http: is not an option of AsgiApp; the host"),
        ({"insecure": True, "processes": 2}, "processes: is not an option of AsgiApp; start several"),
        ({"insecure": True, "role": "worker", "store": "postgresql://x/y"}, 'role: "worker" serves no calls'),
        ({"token": "short"}, "token: must have at least 16 characters"),
        ({"authenticate": user, "public_agents": "nobody"}, "^public_agents: agent nobody is not served$"),
        ({"insecure": True, "bus": "nats://x"}, "^bus: an SQLite store has one server, .*; see store$"),
        ({"insecure": True, "role": "server"}, "^role server: an .*, use workers_only and `dragoman worker`$"),
    ],
)
async def test_options_that_fit_no_mounted_server_are_refused_at_the_start(options: Any, rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        async with AsgiApp(echo, **options).lifespan():
            pass


async def test_a_start_that_fails_is_told_to_the_server() -> None:
    sent = []

    async def receive() -> Any:
        return {"type": "lifespan.startup"}

    async def send(message: Any) -> None:
        sent.append(message)

    await AsgiApp(echo)({"type": "lifespan"}, receive, send)
    assert [one["type"] for one in sent] == ["lifespan.startup.failed"]
    assert "insecure=True" in sent[0]["message"]
