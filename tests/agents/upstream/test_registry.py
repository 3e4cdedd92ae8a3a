"""Upstream agents that are added and removed at run time."""

from __future__ import annotations

import asyncio
import base64
import os
from pathlib import Path
from typing import Any, Final

import pytest
from aiohttp import ClientSession
from tests.agents.upstream.agent_server import CARD, agent_server, card, rpc
from tests.agents.upstream.conftest import Open

from dragoman.client import ClientError
from dragoman.client.calls import Client, message
from dragoman.client.operations import Operator
from dragoman.core.agent_sources import UpstreamSpec
from dragoman.core.task import states
from dragoman.wiring.app import App
from dragoman_pb.dragoman.ops.v1 import upstreams_pb2 as ops
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

pytestmark = pytest.mark.long

DONE = {"id": "t", "contextId": "c", "status": {"state": "TASK_STATE_COMPLETED"}}
NOW = pb.SendMessageConfiguration(return_immediately=True)


async def add(app: App, url: str, **fields: object) -> ops.Upstream:
    async with Operator(str(app.grpc)) as operator:
        return (await operator.add_upstream(ops.AddUpstreamRequest(url=url, **fields))).upstream  # type: ignore[arg-type]


async def remove(app: App, agent: str) -> int:
    async with Operator(str(app.grpc)) as operator:
        return (await operator.remove_upstream(ops.RemoveUpstreamRequest(agent=agent))).ended_tasks


async def names(app: App) -> list[str]:
    async with Operator(str(app.grpc)) as operator:
        return [one.agent for one in (await operator.list_upstreams(ops.ListUpstreamsRequest())).upstreams]


async def ask(app: App, agent: str) -> pb.Task:
    async with asyncio.timeout(60):
        async with Client(str(app.grpc), agent=agent) as client:
            return (await client.send(message("hello"))).task


async def test_an_added_agent_survives_a_restart_until_it_is_removed(opened: Open) -> None:
    async with agent_server() as remote:
        remote.answers["/rpc"] = rpc({"task": DONE})
        url = remote.card("a", card(("JSONRPC", "1.0", f"{remote.url}/rpc"), capabilities={}))
        async with opened("front") as app:
            added = await add(app, url, prefix="far-", headers={"Authorization": "Bearer secret-1"}, turns=7)
            assert (added.agent, added.url, added.turns, added.settings) == ("far-words", url, 7, False)
            assert list(added.interfaces) == [f"JSONRPC 1.0 at {remote.url}/rpc"]
            assert added.credentials
            assert "secret-1" not in str(added)
            assert (await ask(app, "far-words")).status.state == states.COMPLETED
            assert remote.requests[-1].headers["Authorization"] == "Bearer secret-1"
            assert app.root == "playground"
        async with opened("front") as app:
            assert await names(app) == ["far-words"]
            assert (await ask(app, "far-words")).status.state == states.COMPLETED
            assert remote.requests[-1].headers["Authorization"] == "Bearer secret-1"
            assert await remove(app, "far-words") == 0
            with pytest.raises(ClientError, match="far-words"):
                await ask(app, "far-words")
        async with opened("front") as app:
            assert await names(app) == []


@pytest.mark.parametrize("configured", [True, False])
async def test_the_card_of_an_agent_that_is_away_survives_a_restart(opened: Open, configured: bool) -> None:
    async def described(app: App) -> list[Any]:
        async with ClientSession() as session, session.get(f"http://{app.http}/far{CARD}") as found:
            served = await found.json()
            return [served[field] for field in ("name", "description", "version", "provider", "skills")]

    skill = {"id": "count", "name": "Count", "description": "Counts words", "tags": ["words"]}
    provider = {"organization": "Words Ltd", "url": "https://words.example"}
    async with agent_server() as remote:
        url = remote.card("a", card(("JSONRPC", "1.0", f"{remote.url}/rpc"), skills=[skill], provider=provider))
        upstream = [UpstreamSpec(url=url, id="far")] if configured else []
        async with opened("front", *upstream) as app:
            if not configured:
                await add(app, url, id="far")
            known = await described(app)
            assert known[-1][0]["id"] == "count"
    async with opened("front", *upstream) as app:
        assert await described(app) == known


async def test_tasks_survive_a_restart_without_their_agent(opened: Open) -> None:
    async with agent_server() as remote, opened("front") as app:
        remote.answers["/rpc"] = rpc({"task": DONE})
        await add(app, remote.card("a", card(("JSONRPC", "1.0", f"{remote.url}/rpc"), capabilities={})))
        done = await ask(app, "words")
    async with opened("front") as app, Client(str(app.grpc), agent="words") as client:
        assert (await client.get(done.id)).status.state == states.COMPLETED
        async with Operator(str(app.grpc)) as operator:
            (one,) = (await operator.list_upstreams(ops.ListUpstreamsRequest())).upstreams
        assert "refused the connection" in one.last_error
        assert 0 < one.last_error_ms < 60_000


async def test_tasks_that_wait_for_a_removed_agent_end_as_failed(opened: Open) -> None:
    async with agent_server() as remote:
        url = remote.card("a", card(("JSONRPC", "1.0", f"{remote.url}/rpc")))
        async with opened("front") as app, Client(str(app.grpc), agent="words") as client:
            await add(app, url)
            (member,) = app.sources.upstreams.all_agents()
            member.breaker.open("for a test")
            waits = (await client.send(message("hello"), configuration=NOW)).task
            assert await remove(app, "words") == 1
            with pytest.raises(ClientError):
                await client.get(waits.id)
            await add(app, url)
            ended = await client.get(waits.id)
            assert ended.status.message.parts[0].text.startswith("UPSTREAM_AWAY: ")


BAD: Final[tuple[tuple[dict[str, object], str], ...]] = (
    ({"url": ""}, "url: must be http"),
    ({"url": "ftp://x"}, "url: must be http"),
    ({"url": "http://u:p@x"}, "without user name and password"),
    ({"url": "http://10.0.0.1:8080"}, "private"),
    ({"url": "CARD", "id": "A b"}, 'id: agent id "A b": must be a lower-case letter'),
    ({"url": "CARD", "prefix": "-"}, "prefix: must be"),
    ({"url": "CARD", "headers": {"bad name": "x"}}, 'headers: "bad name" is not a header name'),
    ({"url": "CARD", "headers": {"X": "a\nb"}}, "headers.X: must be printable"),
    ({"url": "CARD", "turns": 10_001}, "turns: must be 1 to 10000"),
    ({"url": "CARD", "id": "playground"}, "belongs to another agent of this server"),
    ({"url": "NOWHERE"}, "there is no card"),
)


async def test_an_agent_that_cannot_be_added_changes_nothing(opened: Open) -> None:
    async with agent_server() as remote, opened("front") as app:
        remote.card("a", card(("JSONRPC", "1.0", f"{remote.url}/rpc")))
        places = {"CARD": f"{remote.url}/a", "NOWHERE": f"{remote.url}/b"}
        for fields, reason in BAD:
            fields_left = dict(fields)
            url = str(fields_left.pop("url"))
            with pytest.raises(ClientError) as error:
                await add(app, places.get(url, url), **fields_left)
            assert reason in error.value.message
            assert (error.value.code, error.value.reason) in (("INVALID_ARGUMENT", "INVALID_PARAMS"), TAKEN)
        assert await names(app) == []


TAKEN: Final = ("ALREADY_EXISTS", "AGENT_TAKEN")


async def test_configured_and_unknown_agents_cannot_be_removed(opened: Open) -> None:
    async with agent_server() as remote:
        url = remote.card("a", card(("JSONRPC", "1.0", f"{remote.url}/rpc")))
        async with opened("front", url) as app:
            with pytest.raises(ClientError, match="in the settings of the server; remove it there"):
                await remove(app, "words")
            with pytest.raises(ClientError, match="is not an upstream agent"):
                await remove(app, "desk")
            with pytest.raises(ClientError, match="is required"):
                await remove(app, "")


async def test_stored_credentials_are_encrypted_if_there_are_keys(opened: Open, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_bytes(base64.b64encode(os.urandom(32)))
    keys.chmod(0o600)
    async with agent_server() as remote:
        url = remote.card("a", card(("JSONRPC", "1.0", f"{remote.url}/rpc")))
        async with opened("front", secrets_keys=keys) as app:
            await add(app, url, headers={"X-Key": "secret-2"})
        assert all(b"secret-2" not in file.read_bytes() for file in tmp_path.glob("front.db*"))
        async with opened("front", secrets_keys=keys) as app:
            assert await names(app) == ["words"]
            assert remote.requests[-1].headers["X-Key"] == "secret-2"
        async with opened("front") as app:  # without the key it cannot be decrypted; other agents are served
            assert await names(app) == []


async def test_a_worker_cannot_take_the_id_of_an_upstream_agent(opened: Open) -> None:
    from tests.agents.workers.fake_worker import connected_worker, registration

    async with agent_server() as remote:
        url = remote.card("a", card(("JSONRPC", "1.0", f"{remote.url}/rpc")))
        async with opened("front", url) as app, connected_worker(str(app.grpc)) as line:
            from dragoman_pb.dragoman.worker.v1 import worker_pb2 as wk

            await line.send(hello=wk.Hello(name="w", agents=[registration("words")]))
            assert (await line.status())[0] == "ALREADY_EXISTS"


async def test_changes_of_another_server_on_the_store_are_applied(opened: Open) -> None:
    async with agent_server() as remote, opened("front") as app:
        url = remote.card("a", card(("JSONRPC", "1.0", f"{remote.url}/rpc")))
        added = await add(app, url)
        (entry,) = await app.sources.upstreams._store.list()
        await app.sources.upstreams._store.remove(added.agent)
        await app.sources.upstreams.sync_once()
        assert (await names(app), "words" in app.agents) == ([], False)
        await app.sources.upstreams._store.add(entry)
        await app.sources.upstreams.sync_once()
        assert (await names(app), "words" in app.agents) == (["words"], True)


async def test_a_changed_card_is_served(opened: Open) -> None:
    async with agent_server() as remote, opened("front") as app:
        remote.answers["/rpc"] = rpc({"task": DONE})
        await add(app, remote.card("a", card(("JSONRPC", "1.0", f"{remote.url}/old"), capabilities={})))
        remote.card("a", card(("JSONRPC", "1.0", f"{remote.url}/rpc"), capabilities={}, description="New"))
        (remote_agent,) = app.sources.upstreams.all_agents()
        await app.sources.upstreams.refresh(remote_agent)
        assert app.agents["words"].description == "New"
        assert (await ask(app, "words")).status.state == states.COMPLETED
