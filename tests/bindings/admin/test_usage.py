"""ListUsage of `dragoman.ops.v1`: who sees which figures, groups, filters and pages."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import aiohttp
import grpc
import pytest
from tests.callers import ByHeader, named

from dragoman import Turn, agent
from dragoman.settings.settings import Address, Settings
from dragoman.wiring.app import open_app
from dragoman_pb.dragoman.ops.v1 import ops_pb2
from dragoman_pb.dragoman.ops.v1 import ops_pb2_grpc as ops_rpc
from dragoman_pb.dragoman.ops.v1 import usage_pb2 as ops
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb
from dragoman_pb.lf.a2a.v1 import a2a_pb2_grpc as rpc

SCOPE: Final = "projects/p/locations/l/collections/c/engines/e/assistants/a"
ALICE, BERT, OLGA = named("alice"), named("bert"), named("olga", "operator")
TENANT_OPERATOR = named("tina", "operator", f"scope:{SCOPE}")
DAY, AGENT, PRINCIPAL, IN_SCOPE = (
    ops.USAGE_GROUP_DAY,
    ops.USAGE_GROUP_AGENT,
    ops.USAGE_GROUP_PRINCIPAL,
    ops.USAGE_GROUP_SCOPE,
)


@agent(id="echo", default=True)
async def echo(turn: Turn) -> str:
    turn.usage(tokens=10, cost=0.25)
    return turn.text


@agent(id="fail")
async def fail(turn: Turn) -> None:
    raise ValueError("broken")


class Server:
    """A running server, its stubs, and its HTTP client."""

    def __init__(self, channel: grpc.aio.Channel, http: aiohttp.ClientSession) -> None:
        self._v1: Any = rpc.A2AServiceStub(channel)
        self._ops: Any = ops_rpc.OpsServiceStub(channel)
        self.http = http

    async def send(self, tenant: str, caller: Mapping[str, str]) -> None:
        """Runs a task."""
        message = pb.Message(message_id="m", role=pb.ROLE_USER, parts=[pb.Part(text="hi")])
        await self._v1.SendMessage(
            pb.SendMessageRequest(tenant=tenant, message=message), metadata=tuple(caller.items())
        )

    async def usage(self, caller: Mapping[str, str], **fields: Any) -> ops.ListUsageResponse:
        """The figures that a caller sees."""
        response: ops.ListUsageResponse = await self._ops.ListUsage(
            ops.ListUsageRequest(**fields), metadata=tuple(caller.items())
        )
        return response

    async def audited(self) -> list[tuple[str, dict[str, str]]]:
        """The principal and the arguments of each ListUsage in the audit log."""
        stream = self._ops.ExportAudit(ops_pb2.ExportAuditRequest(), metadata=tuple(OLGA.items()))
        entries = [json.loads(line) async for response in stream for line in response.lines]
        callers = [entry["who"] for entry in entries if entry["action"] == "operator.ListUsage"]
        return [(who["principal"], {k: v for k, v in who.items() if k.startswith("request.")}) for who in callers]

    async def begun(self, caller: Mapping[str, str], **fields: Any) -> list[tuple[str, ...]]:
        """Agent, principal, scope and begun tasks of each row that a caller sees."""
        rows = (await self.usage(caller, group_by=[AGENT, PRINCIPAL, IN_SCOPE], **fields)).rows
        return [(row.agent, row.principal, row.scope and row.scope[:9], str(row.begun)) for row in rows]


@asynccontextmanager
async def serving(folder: Path, **settings: Any) -> AsyncIterator[Server]:
    local = Address("127.0.0.1", 0)
    store = f"sqlite:///{folder}/tasks.db"
    async with (
        open_app(
            Settings(http=local, grpc=local, store=store, api_keys=True, **settings), [echo, fail], ByHeader()
        ) as app,
        aiohttp.ClientSession(f"http://{app.http}") as http,
        grpc.aio.insecure_channel(str(app.grpc)) as channel,
    ):
        yield Server(channel, http)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    async with serving(tmp_path) as server:
        for tenant, caller in (
            ("echo", ALICE),
            ("echo", ALICE),
            ("fail", ALICE),
            (f"{SCOPE}/agents/echo", ALICE),
            ("echo", BERT),
        ):
            await server.send(tenant, caller)
        yield server


async def test_operators_see_the_figures_of_everybody(server: Server) -> None:
    assert await server.begun(OLGA) == [
        ("echo", "alice", "default", "2"),
        ("echo", "alice", "projects/", "1"),
        ("echo", "bert", "default", "1"),
        ("fail", "alice", "default", "1"),
    ]
    (everything,) = (await server.usage(OLGA)).rows
    assert everything.turn_seconds > 0
    everything.ClearField("turn_seconds")
    assert everything == ops.UsageRow(begun=5, completed=4, failed=1, turns=5, tokens=40, cost=1.0)


async def test_operators_of_a_scope_see_only_that_scope(server: Server) -> None:
    assert await server.begun(TENANT_OPERATOR) == [("echo", "alice", "projects/", "1")]
    assert await server.begun(TENANT_OPERATOR, scope=SCOPE) == [("echo", "alice", "projects/", "1")]
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await server.begun(TENANT_OPERATOR, scope="default")
    assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED


async def test_operators_and_viewers_of_an_agent_see_only_that_agent(server: Server) -> None:
    for grant in ("operator", "viewer"):
        limited = named("tom", grant, "agent:fail")
        assert await server.begun(limited) == [("fail", "alice", "default", "1")]
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await server.begun(limited, agent="echo")
        assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED


async def test_the_audit_log_has_the_calls_that_name_principals(server: Server) -> None:
    await server.usage(OLGA, group_by=[DAY, AGENT, IN_SCOPE])  # as dashboards do: nothing about a person
    await server.usage(ALICE, group_by=[PRINCIPAL])  # her own
    assert await server.audited() == []
    await server.usage(OLGA, group_by=[PRINCIPAL], agent="echo")
    await server.usage(named("vera", "viewer"), principal="alice")
    assert await server.audited() == [
        ("olga", {"request.agent": "echo", "request.groupBy": "USAGE_GROUP_PRINCIPAL"}),
        ("vera", {"request.principal": "alice"}),
    ]


async def test_other_callers_see_only_their_own_figures(server: Server) -> None:
    assert await server.begun(BERT) == [("echo", "bert", "default", "1")]
    assert await server.begun(BERT, principal="alice") == []
    assert await server.begun(ALICE, principal="alice", agent="fail") == [("fail", "alice", "default", "1")]
    assert await server.begun(ALICE, scope=SCOPE) == [("echo", "alice", "projects/", "1")]
    assert await server.begun(named("mallory")) == []


async def test_callers_without_credentials_see_nothing(tmp_path: Path) -> None:
    """Anonymous callers share one name: none of them may learn what the others did."""
    async with serving(tmp_path, public_agents=frozenset({"echo"})) as server:
        await server.send("echo", {})
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await server.usage({})
        assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
        async with server.http.get("/operations/usage") as response:
            assert response.status == 401


async def test_pages_follow_each_other_and_end(server: Server) -> None:
    found: list[tuple[str, str]] = []
    token = ""
    while True:
        page = await server.usage(OLGA, group_by=[AGENT, PRINCIPAL], limit=2, page_token=token)
        found += [(row.agent, row.principal) for row in page.rows]
        if not (token := page.next_page_token):
            break
    assert found == [("echo", "alice"), ("echo", "bert"), ("fail", "alice")]


async def test_http_takes_filters_and_groups_as_query_parameters(server: Server) -> None:
    query = "/operations/usage?groupBy=USAGE_GROUP_DAY&groupBy=USAGE_GROUP_AGENT&agent=fail"
    async with server.http.get(query, headers=OLGA) as response:
        body = await response.json()
    (row,) = body["rows"]
    assert row.pop("turnSeconds") > 0
    assert len(row.pop("day")) == 10
    assert row == {"agent": "fail", "begun": "1", "failed": "1", "turns": "1"}


async def test_days_are_filters(server: Server) -> None:
    assert (await server.usage(OLGA, first_day="2020-01-01", last_day="2020-12-31")).rows[0].begun == 0
    (day,) = {row.day for row in (await server.usage(OLGA, group_by=[DAY])).rows}
    assert (await server.usage(OLGA, first_day=day, last_day=day)).rows[0].begun == 5


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"first_day": "yesterday"}, '"yesterday" is not a day'),
        ({"first_day": "2026-11-24", "last_day": "2026-11-23"}, "is after the last day"),
        ({"group_by": [DAY, DAY]}, "each once"),
        ({"group_by": [0]}, "USAGE_GROUP_DAY"),
        ({"limit": 1001}, "1 to 1000"),
        ({"page_token": "x"}, "is not a token of this server"),
        ({"page_token": base64.urlsafe_b64encode(b"[1, 2, 3, []]").decode()}, "other filters"),
    ],
)
async def test_invalid_requests_are_rejected(server: Server, fields: Mapping[str, Any], problem: str) -> None:
    with pytest.raises(grpc.aio.AioRpcError, match=problem) as caught:
        await server.usage(OLGA, **fields)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_token_of_another_query_is_rejected(server: Server) -> None:
    token = (await server.usage(OLGA, group_by=[AGENT], limit=1)).next_page_token
    fingerprint, *days, _ = json.loads(base64.urlsafe_b64decode(token))
    forged = base64.urlsafe_b64encode(json.dumps([fingerprint, *days, [1]]).encode()).decode()
    for fields in (
        {"group_by": [AGENT], "agent": "fail", "page_token": token},
        {"group_by": [AGENT, DAY], "page_token": token},
        {"group_by": [AGENT], "page_token": forged},
    ):
        with pytest.raises(grpc.aio.AioRpcError, match="other filters"):
            await server.usage(OLGA, **fields)
