"""Where the endpoint is, and what its other HTTP methods do."""

from __future__ import annotations

from typing import Any

import pytest
from tests.bindings.fake_service import FakeService, over_http
from tests.callers import ByHeader
from tests.extensions.mcp.endpoint.mcp_client import PATHS, McpCaller, calling

from dragoman.core.access.identity import AccessPolicy
from dragoman.core.access.jwt_claims import Issuer


@pytest.mark.parametrize(
    "path",
    [
        "/mcp",
        "/echo/mcp",
        "/projects/p/locations/l/collections/c/engines/e/assistants/a/agents/echo/mcp",
        "/v1/projects/p/locations/l/collections/c/engines/e/assistants/a/agents/echo/mcp",
    ],
)
async def test_every_address_of_an_agent_has_an_endpoint(path: str) -> None:
    async with calling(path=path) as caller:
        assert (await caller.call("echo", message="hi")).text_content == "hi"


async def test_a_browser_may_read_the_session_where_its_origin_is_allowed() -> None:
    page = "https://app.example"
    async with calling(cors=(page,), version="2025-11-25") as caller:
        caller.headers["Origin"] = page
        answer = await caller.initialize()
        preflight = {"Origin": page, "Access-Control-Request-Method": "POST"}
        async with caller.session.options(caller.url, headers=preflight) as response:
            allowed = response.headers["Access-Control-Allow-Headers"]
    assert "Mcp-Session-Id" in answer.headers["Access-Control-Expose-Headers"]
    assert {"MCP-Protocol-Version", "Mcp-Method", "Mcp-Name", "Mcp-Session-Id"} <= set(allowed.split(", "))


async def test_requests_are_counted_by_method() -> None:
    async with calling() as caller:
        await caller.call("echo", message="hi")
        base = caller.url.removesuffix("/mcp")
        async with caller.session.get(f"{base}/metrics") as response:
            text = await response.text()
    assert 'binding="mcp"' in text
    assert 'method="tools/call"' in text


async def test_the_address_may_end_with_a_slash() -> None:
    async with calling() as caller:
        caller.url += "/"
        assert (await caller.call("echo", message="hi")).result["content"][0]["text"] == "hi"


async def test_a_task_of_a_call_is_a_task_of_a2a() -> None:
    async with calling() as caller:
        handle = (await caller.call("echo", message="hi")).result["_meta"]["dragoman/task"]
        url = f"{caller.url.removesuffix('/mcp')}/echo/tasks/{handle.partition('/')[2]}"
        async with caller.session.get(url, headers={"A2A-Version": "1.0"}) as response:
            task = await response.json()
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    assert isinstance(caller, McpCaller)


async def test_a_rejected_caller_is_told_where_to_sign_in() -> None:
    issuer = Issuer(url="https://login.example", audience=("dragoman",))
    policy = AccessPolicy(credentials_required=True)
    options: dict[str, Any] = {"issuers": (issuer,), "authenticator": ByHeader(), "access_policy": policy}
    options["extension_paths"] = PATHS
    async with over_http(FakeService(), **options) as client, client.post("/echo/mcp", json={}) as response:
        challenge = response.headers["WWW-Authenticate"]
        metadata = challenge.partition('resource_metadata="')[2].partition('"')[0]
        async with client.get(metadata) as found:
            resource = await found.json()
    assert response.status == 401
    assert resource["authorization_servers"] == ["https://login.example"]
    assert resource["resource"].endswith("/echo/mcp")
