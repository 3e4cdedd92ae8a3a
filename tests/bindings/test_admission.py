"""Rate limits over every binding: the same limit, maximum and retry delay, in the binding's error format."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2
from tests.bindings.fake_service import RESOURCE, TASK, FakeService, over_grpc, over_http, task_event
from tests.callers import ByHeader, named

from dragoman.core.limits.quotas import Quotas
from dragoman.runtime.access import Admission
from dragoman_pb.a2a.v1 import a2a_pb2 as v03_pb
from dragoman_pb.a2a.v1 import a2a_pb2_grpc as v03_rpc
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb
from dragoman_pb.lf.a2a.v1 import a2a_pb2_grpc as rpc

INFO = {"limit": "requests_per_second", "maximum": "1"}


ALICE = tuple(named("alice").items())


def fixed_clock() -> float:
    return 0.0


def service(**limits: int) -> FakeService:
    """Returns a fake service with these limits."""
    fake_service = FakeService(TASK, [task_event()])
    fake_service.admission = Admission(Quotas(limits), fixed_clock)
    return fake_service


async def details_of(data: Any) -> tuple[dict[str, str], str]:
    """Returns the metadata of ErrorInfo and the delay of RetryInfo."""
    info, retry = data
    assert info["reason"] == "RATE_LIMITED"
    return info["metadata"], retry["retryDelay"]


async def jsonrpc(client: aiohttp.ClientSession, method: str, version: str, params: Any) -> tuple[Any, Any]:
    body = {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}
    headers = {"A2A-Version": version, **named("alice")}
    async with client.post("/", json=body, headers=headers) as answer:
        assert answer.status == 200
        return await answer.json(), answer.headers


@pytest.mark.parametrize(("method", "version"), [("GetTask", "1.0"), ("tasks/get", "0.3"), ("tasks/get", "0.1")])
async def test_json_rpc_rejects_with_an_error_and_retry_after(method: str, version: str) -> None:
    async with over_http(service(requests_per_second=1), authenticator=ByHeader()) as client:
        for _ in range(2):
            response, _ = await jsonrpc(client, method, version, {"id": "t1"})
            assert "result" in response
        response, headers = await jsonrpc(client, method, version, {"id": "t1"})
        assert (response["id"], response["error"]["code"]) == (None, -32603)
        assert response["error"]["message"].startswith("requests_per_second: at most 1 requests")
        assert await details_of(response["error"]["data"]) == (INFO, "1s")
        assert headers["Retry-After"] == "1"


@pytest.mark.parametrize("path", ["/tasks/t1", "/v1/tasks/t1", f"/v1/{RESOURCE}/a2a/v1/tasks/t1"])
async def test_rest_rejects_with_429(path: str) -> None:
    async with over_http(service(requests_per_second=1), authenticator=ByHeader()) as client:
        for status in (200, 200, 429):
            async with client.get(path, headers=named("alice")) as answer:
                assert answer.status == status
                body = await answer.json()
        assert answer.headers["Retry-After"] == "1"
        assert (body["error"]["code"], body["error"]["status"]) == (429, "RESOURCE_EXHAUSTED")
        assert await details_of(body["error"]["details"]) == (INFO, "1s")
        async with client.get(path, headers=named("bob")) as answer:
            assert answer.status == 200


async def test_the_body_of_a_rejected_request_is_not_parsed() -> None:
    async with over_http(service(requests_per_second=1), authenticator=ByHeader()) as client:
        for status in (400, 400, 429):
            async with client.post("/message:send", data=b"no JSON", headers=named("alice")) as answer:
                assert answer.status == status


RpcCall = Callable[[grpc.aio.Channel], Awaitable[Any]]


@pytest.mark.parametrize(
    "call",
    [
        lambda channel: rpc.A2AServiceStub(channel).GetTask(pb.GetTaskRequest(id="t1"), metadata=ALICE),
        lambda channel: v03_rpc.A2AServiceStub(channel).GetTask(v03_pb.GetTaskRequest(name="tasks/t1"), metadata=ALICE),
    ],
    ids=["1.0", "0.3"],
)
async def test_grpc_rejects_with_resource_exhausted(call: RpcCall) -> None:
    async with over_grpc(service(requests_per_second=1), authenticator=ByHeader()) as (channel, _):
        await call(channel)
        await call(channel)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call(channel)
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        trailing = dict([*(caught.value.trailing_metadata() or ())])
        first, second = status_pb2.Status.FromString(trailing["grpc-status-details-bin"]).details
        info, retry = error_details_pb2.ErrorInfo(), error_details_pb2.RetryInfo()
        assert first.Unpack(info)
        assert second.Unpack(retry)
        assert (info.reason, dict(info.metadata)) == ("RATE_LIMITED", INFO)
        assert retry.retry_delay.ToMilliseconds() == 1000


async def test_a_websocket_error_has_the_id_of_the_rejected_call() -> None:
    async with (
        over_http(service(requests_per_second=1), authenticator=ByHeader()) as client,
        client.ws_connect("/ws", headers=named("alice")) as socket,
    ):
        for number in range(3):
            body = {"jsonrpc": "2.0", "id": number, "method": "GetTask", "params": {"id": "t1"}}
            await socket.send_json(body)
            response = json.loads(await socket.receive_str())
            assert response["id"] == number
        assert await details_of(response["error"]["data"]) == (INFO, "1s")


async def test_a_websocket_over_the_limit_is_rejected_at_the_upgrade() -> None:
    async with (
        over_http(service(open_streams=1), authenticator=ByHeader()) as client,
        client.ws_connect("/ws", headers=named("alice")),
    ):
        with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
            await client.ws_connect("/ws", headers=named("alice"))
        assert caught.value.status == 429
        assert caught.value.headers is not None
        assert caught.value.headers["Retry-After"] == "1"
        async with client.ws_connect("/ws", headers=named("bob")):
            pass


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/.well-known/agent-card.json", "/agents", "/openapi.json"])
async def test_public_pages_are_not_rate_limited(path: str) -> None:
    async with over_http(service(requests_per_second=1), authenticator=ByHeader()) as client:
        for _ in range(10):
            async with client.get(path, headers=named("alice")) as answer:
                assert answer.status == 200
