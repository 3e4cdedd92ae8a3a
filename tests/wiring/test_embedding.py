"""`open_app`: a server in the caller's process."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tests.certificates import Authority, write

from dragoman import RunningServer, Turn, agent, on_startup, open_app
from dragoman.bus.local import LocalBus
from dragoman.client import connect
from dragoman.client.calls import Client, message
from dragoman.core.task import states
from dragoman.ports import Store
from dragoman.stores.sqlite import open_store

FREE = {"http": "127.0.0.1:0", "grpc": "127.0.0.1:0"}

calls: list[str] = []


@on_startup
async def prepare() -> AsyncIterator[None]:
    calls.append("prepared")
    yield
    calls.append("cleaned up")


@agent
async def echo(turn: Turn) -> str:
    calls.append("turn")
    return turn.text


@agent
async def gate(turn: Turn) -> str:
    turn.status("at the gate")
    await opened.wait()
    return "through"


opened = asyncio.Event()


@pytest.fixture(autouse=True)
def _alone(no_settings: None) -> None:
    """An empty folder and environment; nothing called yet."""
    calls.clear()
    opened.clear()


async def test_agents_are_served_while_the_block_runs() -> None:
    async with open_app(echo, gate, **FREE) as server:
        assert (server.agents, server.root) == (["echo", "gate"], "echo")
        async with connect(server.url) as connection, Client(server.grpc) as client:
            assert (await connection.ask("over HTTP")).text == "over HTTP"
            assert (await client.send(message("over gRPC"))).task.status.state == states.COMPLETED
        async with aiohttp.ClientSession() as web, web.get(server.card_url) as card:
            assert (await card.json())["name"] == "Echo"
    async with aiohttp.ClientSession() as web:
        with pytest.raises(aiohttp.ClientConnectorError):
            await web.get(server.card_url)
    assert calls == ["prepared", "turn", "turn", "cleaned up"]


async def test_options_are_those_of_serve_and_win_over_environment_and_file(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("dragoman.toml").write_text('root = "gate"\nstore = "sqlite:///from-file.db"\n')
    monkeypatch.setenv("DRAGOMAN_TOKEN", "of-the-environment")
    async with open_app(echo, gate, store="sqlite:///passed.db", push=False, **FREE) as server:
        assert server.root == "gate"
        async with aiohttp.ClientSession() as web, web.get(f"{server.url}/tasks") as answer:
            assert answer.status == 401
        async with aiohttp.ClientSession() as web, web.get(server.card_url) as card:
            assert (await card.json())["capabilities"]["pushNotifications"] is False
    assert sorted(path.name for path in Path().glob("*.db")) == ["passed.db"]


async def test_app_can_be_a_file_a_module_and_a_function() -> None:
    Path("agents.py").write_text(
        "from dragoman import agent\n\n@agent\nasync def filed(turn):\n    return 'from the file'\n"
    )
    async with open_app("agents.py", sys.modules[__name__], echo, prepare, **FREE) as server:
        assert server.agents == ["echo", "filed", "gate"]
    assert calls == ["prepared", "cleaned up"]


async def test_without_agents_it_serves_what_serve_would() -> None:
    async with open_app(**FREE) as server:
        assert server.agents == ["playground"]
    async with open_app(workers_only=True, **FREE) as server:
        assert (server.agents, server.root) == ([], "")


async def test_running_turns_finish_at_the_end_of_the_block() -> None:
    async with open_app(gate, **FREE) as server, Client(server.grpc) as client:
        task = await started_task(client)
        asyncio.get_running_loop().call_soon(opened.set)
    async with open_app(gate, **FREE) as server, Client(server.grpc) as client:
        assert (await client.get(task)).status.state == states.COMPLETED


async def test_an_error_in_the_block_passes_through_and_ends_running_turns() -> None:
    tasks: list[str] = []

    async def fail_during_a_turn() -> None:
        async with open_app(gate, **FREE) as server, Client(server.grpc) as client:
            tasks.append(await started_task(client))
            raise KeyError("of the block")

    with pytest.raises(KeyError, match="of the block"):
        await fail_during_a_turn()
    async with open_app(gate, **FREE) as server, Client(server.grpc) as client:
        assert (await client.get(tasks[0])).status.state == states.FAILED


async def started_task(client: Client) -> str:
    """The id of a task whose turn is at the gate."""
    async for event in client.stream(message("go")):
        if event.HasField("status_update") and event.status_update.status.HasField("message"):
            return event.status_update.task_id
    raise AssertionError("the turn has ended")


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ({"htp": "x"}, r"^htp \(argument\): is not a setting; did you mean http\?$"),
        ({"http": "8080"}, r'^http \(argument\): "8080" is not HOST:PORT; for example '),
        ({"http": "0.0.0.0:0"}, r'^http \(argument\): "0.0.0.0:0" can be reached from other machines'),
        ({"processes": 2}, r"^processes: must be 1, not 2: open_app serves in this process only"),
        ({"app": "agents.py"}, r"^app: is not an option of open_app; pass APP as a positional argument$"),
        ({"log_format": "json"}, r"^log_format: is not an option of open_app; open_app leaves logging as it is"),
        ({"workers_only": True}, r"^workers_only: the agents that were passed would not be served; pass either$"),
    ],
)
async def test_invalid_options_are_named_with_their_rule(options: dict[str, Any], rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        await opens_and_closes(echo, **{**FREE, **options})
    assert list(Path().iterdir()) == []
    assert calls == []


async def opens_and_closes(*agents: Any, **options: Any) -> RunningServer:
    async with open_app(*agents, **options) as server:
        return server


async def test_what_is_not_an_agent_is_rejected() -> None:
    with pytest.raises(TypeError, match=r"^open_app: <function .* is not an agent; pass functions with @agent"):
        await opens_and_closes(echo.__wrapped__, **FREE)
    other = agent(id="echo")(gate.__wrapped__)
    with pytest.raises(ValueError, match=r'^two agents have the id "echo"; set id= on one of them$'):
        await opens_and_closes(echo, other, **FREE)
    with pytest.raises(ValueError, match=r"^absent\.py: this file does not exist"):
        await opens_and_closes("absent.py", **FREE)


async def test_a_server_that_cannot_start_says_why() -> None:
    @on_startup
    def load_model() -> None:
        raise FileNotFoundError("model.bin")

    with pytest.raises(RuntimeError, match=r"line \d+: @on_startup load_model failed: FileNotFoundError: model.bin$"):
        await opens_and_closes(echo, load_model, **FREE)
    assert calls == ["prepared", "cleaned up"]
    async with open_app(echo, **FREE) as server:
        address = server.url.removeprefix("http://")
        with pytest.raises(RuntimeError, match=r"dragoman\.db is in use"):
            await opens_and_closes(gate, **FREE)
        with pytest.raises(RuntimeError, match=r" is already in use; .* http=\"HOST:PORT\"$"):
            await opens_and_closes(gate, **{**FREE, "store": "sqlite:///other.db", "http": address})


async def test_addresses_of_an_encrypted_server_say_so(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = write(tmp_path, authority.issue())
    async with open_app(echo, tls_cert=certificate, tls_key=key, **FREE) as server:
        assert (server.url[:8], server.grpc[:8]) == ("https://", "grpcs://")
        for address in (server.url, server.grpc):
            async with connect(address, ca=authority.ca) as client:
                assert (await client.ask("hello")).text == "hello"


async def test_a_settings_file_can_be_named() -> None:
    Path("other.toml").write_text('root = "gate"\nhtp = "x"\n')
    with pytest.raises(ValueError, match=r"^htp \(other\.toml\): is not a setting; did you mean http\?$"):
        await opens_and_closes(echo, gate, config="other.toml", **FREE)
    Path("other.toml").write_text('root = "gate"\n')
    async with open_app(echo, gate, config="other.toml", **FREE) as server:
        assert server.root == "gate"


async def test_store_and_bus_may_be_functions(tmp_path: Path) -> None:
    buses: list[LocalBus] = []

    def own_bus() -> LocalBus:
        buses.append(LocalBus())
        return buses[-1]

    async def own_store() -> Store:
        return open_store(tmp_path / "own.db")

    async with (
        open_app(echo, **FREE, store=own_store, bus=own_bus) as server,
        open_app(echo, **FREE, store=lambda: open_store(tmp_path / "other.db"), bus=own_bus) as other,
    ):
        for one in (server, other):
            async with Client(one.grpc) as client:
                assert (await client.send(message("hello"))).task.status.state == states.COMPLETED
    assert len(buses) == 2
    assert {path.name for path in tmp_path.glob("*.db")} == {"own.db", "other.db"}
    with pytest.raises(RuntimeError, match=r"^store tests\.wiring\.test_embedding:dict: .* is not a store: it lacks"):
        async with open_app(echo, **FREE, store=type("dict", (dict,), {"__module__": __name__})):
            pass
