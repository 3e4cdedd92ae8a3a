"""A `$ref` to a listening port is never connected to, from no place that takes a schema of others."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import mcp_types as types
import pytest
from tests.agents.test_skill_schemas import serving
from tests.agents.workers.fake_worker import connected_worker
from tests.extensions.mcp.endpoint.mcp_client import McpCaller
from tests.extensions.mcp.servers import raw_server
from tests.extensions.mcp.servers.raw_server import http_raw_server

from dragoman import Extension, Turn, agent
from dragoman.agents.values import data_part
from dragoman.core.cards.agent_spec import AgentSpec
from dragoman.core.cards.skill_schemas import SCHEMAS_URI
from dragoman.extensions.mcp.servers.questions import read_answer
from dragoman.extensions.mcp.sources import McpSpec
from dragoman.wiring.app import App
from dragoman.worker.frames import encode_registration
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb


@pytest.fixture
def url() -> Iterator[str]:
    """The URL of a schema, at which nobody may ask."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/schema.json"
        with pytest.raises(BlockingIOError):
            listener.accept()


def fetching(url: str) -> dict[str, Any]:
    return {"type": "object", "properties": {"n": {"$ref": url}}}


def declaring(url: str) -> Extension:
    """The extension of a card whose schemas are elsewhere."""
    return Extension(uri=SCHEMAS_URI, params={"": {"input": fetching(url), "output": fetching(url)}})


async def call_tool(app: App, name: str, **arguments: Any) -> Any:
    async with aiohttp.ClientSession() as session:
        caller = McpCaller(session, f"{app.http.url}/mcp")
        tools = [tool["name"] for tool in (await caller.request("tools/list")).result["tools"]]
        (found,) = [tool for tool in tools if tool.startswith(name)]
        return (await caller.call(found, **arguments)).result


async def test_not_from_the_schemas_of_an_agent_in_this_process(url: str) -> None:
    for options in ({"input": fetching(url)}, {"output": fetching(url)}):
        with pytest.raises(ValueError, match="must not refer to another document"):

            @agent(**options)  # type: ignore[call-overload, untyped-decorator, unused-ignore]
            async def echo(turn: Turn) -> None:
                """Never called."""


async def test_not_from_the_registration_of_a_worker(tmp_path: Path, url: str) -> None:
    spec = AgentSpec(id="far", name="Far", description="Works elsewhere", extensions=(declaring(url),), direct=True)
    async with serving(tmp_path, mcp_wait=0.1) as app, connected_worker(str(app.grpc)) as worker:
        await worker.register(encode_registration(spec, 1))
        result = await call_tool(app, "far", n=1)
    assert "n: is no argument of far" in str(result), "its schemas are ignored"


async def test_not_from_the_card_of_an_upstream_agent(tmp_path: Path, url: str) -> None:
    @agent(default=True, extensions=[declaring(url)])
    async def behind(turn: Turn) -> str:
        """Answers."""
        return "done"

    async with serving(tmp_path, behind) as server, serving(tmp_path, upstream=[server.http.url]) as front:
        result = await call_tool(front, "behind", message="x")
    assert result["content"][0]["text"] == "done"


@pytest.mark.extra("mcp")
@pytest.mark.parametrize("name", ["inputSchema", "outputSchema"])
async def test_not_from_the_tools_of_a_called_server(
    tmp_path: Path, url: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(raw_server.TOOL, name, fetching(url))
    monkeypatch.setattr(raw_server, "OK", {"content": [{"type": "text", "text": "ok"}], "structuredContent": {"n": 1}})
    async with (
        http_raw_server("good") as server,
        serving(tmp_path, mcp=[McpSpec(url=server, id="tools")]) as app,
    ):
        result = await call_tool(app, "tools_good", message="{}")
    assert result["content"][0]["text"] == "ok"


async def test_not_from_an_elicitation_of_a_called_server(url: str) -> None:
    message = pb.Message(parts=[data_part({"n": 1})])
    for schema in (fetching(url), fetching("file:///etc/passwd")):
        question = types.ElicitRequestFormParams(message="?", requested_schema=schema)
        assert read_answer(message, question).content == {"n": 1}
