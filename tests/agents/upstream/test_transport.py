"""Transports to faulty upstream agents: refused connections, invalid and endless responses."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from aiohttp import web
from tests.agents.upstream.agent_server import FakeAgentServer, agent_server, json, rpc, stream
from tests.agents.upstream.scripted_transport import task
from tests.certificates import Authority
from tests.postgres import free_port
from tests.security.test_outbound import HERE

from dragoman.agents.upstream.transport import TransportFactory, UpstreamTransport
from dragoman.calling.errors import CallForbidden, CallRefused, ProtocolError, ServerUnavailable
from dragoman.calling.transport import TransportLimits
from dragoman.core.agent_sources import UpstreamSpec
from dragoman.core.net.addresses import AddressPolicy
from dragoman.core.net.targets import OutboundPolicy
from dragoman.security.outbound import OutboundClient
from dragoman.wire.cards.remote_card import Interface, grpc_url
from dragoman_pb.a2a.v1 import a2a_pb2 as v03
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

pytestmark = pytest.mark.long

LIMITS = TransportLimits(
    max_response_bytes=2048, max_stream_bytes=4096, response_timeout=20.0, blocking_timeout=20.0, idle_timeout=20.0
)
GET = pb.GetTaskRequest(id="t")
SUBSCRIBE = pb.SubscribeToTaskRequest(id="t")


@asynccontextmanager
async def transport_to(
    binding: str,
    url: str,
    dialect: str = "1.0",
    *,
    rules: OutboundPolicy = HERE,
    limits: TransportLimits = LIMITS,
    **options: Any,
) -> AsyncIterator[UpstreamTransport]:
    """A transport for the duration of the block."""
    guard = OutboundClient(rules, ca=options.get("ca"), per_host=0)
    interface = Interface(url, binding, dialect, options.pop("tenant", ""), options.pop("v03_files", "bytes"))
    encrypted = options.pop("safe", False)
    upstream = UpstreamSpec(url="https://card" if encrypted else "http://card", headers={"X-Key": "k"})
    transport = TransportFactory(guard, limits=limits, **options).create(upstream, interface)
    try:
        yield transport
    finally:
        await transport.close()
        await guard.close()


async def read(
    transport: UpstreamTransport, rpc: str = "SubscribeToTask", request: Any = SUBSCRIBE
) -> list[pb.StreamResponse]:
    async with asyncio.timeout(60), aclosing(transport.stream(rpc, request)) as events:
        return [event async for event in events]


# gRPC -------------------------------------------------------------------------------------------------------

Handler = Callable[[Any, Any], Any]


@asynccontextmanager
async def grpc_server(
    port: int = 0, credentials: grpc.ServerCredentials | None = None, *, service: str = "lf.a2a.v1", **methods: Handler
) -> AsyncIterator[int]:
    """A gRPC server whose methods return bytes; generators are streams."""
    server = grpc.aio.server()
    unary, streams = grpc.unary_unary_rpc_method_handler, grpc.unary_stream_rpc_method_handler
    handlers: dict[str, Any] = {
        name: (streams if inspect.isasyncgenfunction(method) else unary)(method) for name, method in methods.items()
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(f"{service}.A2AService", handlers),))
    at = f"127.0.0.1:{port}"
    bound = server.add_secure_port(at, credentials) if credentials else server.add_insecure_port(at)
    await server.start()
    try:
        yield bound
    finally:
        await server.stop(None)


async def working(_: bytes, context: Any) -> bytes:
    return task("WORKING").SerializeToString()


async def test_a_refused_connection_is_reported_and_a_later_server_is_found() -> None:
    port = free_port()
    async with transport_to("GRPC", f"127.0.0.1:{port}") as transport:
        with pytest.raises(ServerUnavailable) as away:
            await transport.call("GetTask", GET)
        assert not away.value.may_have_arrived
        async with grpc_server(port, GetTask=working):
            assert await transport.call("GetTask", GET) == task("WORKING")
        with pytest.raises(ServerUnavailable):
            await transport.call("GetTask", GET)


async def test_concurrent_first_calls_share_one_channel(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[grpc.aio.Channel] = []
    insecure_channel = grpc.aio.insecure_channel

    def open_channel(*args: Any, **options: Any) -> grpc.aio.Channel:
        opened.append(insecure_channel(*args, **options))
        return opened[-1]

    monkeypatch.setattr(grpc.aio, "insecure_channel", open_channel)
    async with grpc_server(GetTask=working) as port, transport_to("GRPC", f"localhost:{port}") as transport:
        await asyncio.gather(*(transport.call("GetTask", GET) for _ in range(3)))
    assert len(opened) == 1
    assert opened[0].get_state() is grpc.ChannelConnectivity.SHUTDOWN


async def test_the_metadata_has_credentials_version_key_and_extensions() -> None:
    received: dict[str, Any] = {}

    async def get(data: bytes, context: Any) -> bytes:
        received.update(dict(context.invocation_metadata()), request=pb.GetTaskRequest.FromString(data))
        return await working(data, context)

    async with (
        grpc_server(GetTask=get) as port,
        transport_to("GRPC", f"localhost:{port}", tenant="desk") as transport,
    ):
        await transport.call("GetTask", GET, key="k-1", extensions="urn:x")
    assert (received["x-key"], received["a2a-version"], received["idempotency-key"]) == ("k", "1.0", "k-1")
    assert (received["a2a-extensions"], received["request"].tenant) == ("urn:x", "desk")


async def test_a_refusal_of_0_3_is_decoded() -> None:
    async def get(_: bytes, context: Any) -> bytes:
        await context.abort(grpc.StatusCode.NOT_FOUND, "TaskNotFoundError: no such task")
        return b""

    async with (
        grpc_server(service="a2a.v1", GetTask=get) as port,
        transport_to("GRPC", f"127.0.0.1:{port}", "0.3") as transport,
    ):
        with pytest.raises(CallRefused) as refused:
            await transport.call("GetTask", GET)
        assert refused.value.remote_error.is_task_not_found
        with pytest.raises(CallRefused) as refused:
            await transport.call("CancelTask", pb.CancelTaskRequest(id="t"))
        assert refused.value.remote_error.is_unknown_method


async def test_a_stream_of_0_3_is_read_as_one_of_1_0() -> None:
    async def follow(_: bytes, context: Any) -> AsyncIterator[bytes]:
        yield v03.StreamResponse(task=v03.Task(id="t", context_id="c")).SerializeToString()

    async with (
        grpc_server(service="a2a.v1", TaskSubscription=follow) as port,
        transport_to("GRPC", f"127.0.0.1:{port}", "0.3") as transport,
    ):
        assert [event.task.id for event in await read(transport)] == ["t"]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [(task("WORKING", "x" * 4096).SerializeToString(), "longer than 2048"), (b"\xff", "is not 1.0")],
)
async def test_invalid_responses_over_grpc(answer: bytes, reason: str) -> None:
    async def get(_: bytes, context: Any) -> bytes:
        return answer

    async with grpc_server(GetTask=get) as port, transport_to("GRPC", f"127.0.0.1:{port}") as transport:
        with pytest.raises(ProtocolError, match=reason):
            await transport.call("GetTask", GET)


async def test_a_stream_over_grpc_has_a_limit() -> None:
    async def endless(_: bytes, context: Any) -> AsyncIterator[bytes]:
        while True:
            yield pb.StreamResponse(task=task("WORKING", "x" * 1000)).SerializeToString()

    async with grpc_server(SubscribeToTask=endless) as port, transport_to("GRPC", f"127.0.0.1:{port}") as transport:
        with pytest.raises(ProtocolError, match="longer than 4096 bytes"):
            await read(transport)


@pytest.mark.parametrize("url", ["10.0.0.1:50051", "169.254.169.254:80", "grpcs://10.0.0.1:443"])
async def test_grpc_connects_to_no_forbidden_address(url: str) -> None:
    async with transport_to("GRPC", url, rules=OutboundPolicy(AddressPolicy())) as transport:
        with pytest.raises(CallForbidden):
            await transport.call("GetTask", GET)


async def test_grpc_is_encrypted_if_the_address_or_the_card_requires_it(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    chain, key = authority.issue()
    credentials = grpc.ssl_server_credentials([(key, chain)])
    async with grpc_server(credentials=credentials, GetTask=working) as port:
        for url, safe in ((f"grpcs://localhost:{port}", False), (f"localhost:{port}", True)):
            async with transport_to("GRPC", url, ca=authority.ca, safe=safe) as transport:
                assert await transport.call("GetTask", GET) == task("WORKING")
        async with transport_to("GRPC", f"localhost:{port}", safe=True) as transport:
            with pytest.raises(ServerUnavailable):  # the authority is not trusted
                await transport.call("GetTask", GET)


@pytest.mark.parametrize(
    ("url", "safe", "expected"),
    [
        ("h:1", False, "http://h:1"),
        ("h:1", True, "https://h:1"),
        ("grpc://h:1/x", True, "http://h:1"),
        ("https://h:1", False, "https://h:1"),
    ],
)
def test_a_grpc_address_is_checked_as_a_url(url: str, safe: bool, expected: str) -> None:
    assert grpc_url(url, encrypted=safe) == expected


# HTTP -------------------------------------------------------------------------------------------------------


def serve_at(remote: FakeAgentServer, path: str, answer: Any) -> str:
    remote.answers[path] = answer
    return remote.url


@pytest.mark.parametrize(
    ("answer", "is_read_as"),
    [
        (json({}, 502), ServerUnavailable),
        (json({}, 503), ServerUnavailable),
        (json({}, 504), ServerUnavailable),
        (json({"error": {"status": "NOT_FOUND", "message": "m"}}, 404), CallRefused),
        (json(b"<html>", 500), CallRefused),
        (json(b"<html>"), ProtocolError),
        (json({}, 307, Location="http://127.0.0.1:1/x"), ProtocolError),
        (json({"status": 3}), ProtocolError),
    ],
)
async def test_invalid_responses_over_rest(answer: Any, is_read_as: type[Exception]) -> None:
    async with (
        agent_server() as remote,
        transport_to("HTTP+JSON", serve_at(remote, "/tasks/t", answer)) as transport,
    ):
        with pytest.raises(is_read_as):
            await transport.call("GetTask", GET)


@pytest.mark.parametrize(("known", "methods"), [("POST", ["POST", "POST"]), ("GET", ["POST", "GET", "GET"])])
async def test_a_subscription_uses_the_http_method_that_the_server_knows(known: str, methods: list[str]) -> None:
    async def one_method(request: web.Request) -> web.StreamResponse:
        if request.method != known:
            return web.json_response({"message": "no"}, status=405)
        assert not request.can_read_body
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(b'data: {"task": {"id": "t", "status": {"state": "TASK_STATE_WORKING"}}}\n\n')
        return response

    async with (
        agent_server() as remote,
        transport_to("HTTP+JSON", serve_at(remote, "/tasks/t:subscribe", one_method)) as transport,
    ):
        for _ in range(2):
            assert [event.task.id for event in await read(transport)] == ["t"]
        assert [request.method for request in remote.requests] == methods


async def test_an_error_inside_a_stream_is_a_refusal() -> None:
    async def failing(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        await response.prepare(request)
        await response.write(b'event: error\ndata: {"code": -32001, "message": "Task not found"}\n\n')
        return response

    async with (
        agent_server() as remote,
        transport_to("HTTP+JSON", serve_at(remote, "/v1/tasks/t:subscribe", failing), "0.3") as transport,
    ):
        with pytest.raises(CallRefused) as refused:
            await read(transport)
        assert refused.value.remote_error.is_task_not_found


async def test_a_stream_with_a_plain_json_response_is_one_event() -> None:
    done = {"id": "t", "contextId": "c", "status": {"state": "TASK_STATE_COMPLETED"}}
    async with (
        agent_server() as remote,
        transport_to("JSONRPC", serve_at(remote, "/", rpc({"task": done})) + "/") as transport,
    ):
        assert [event.task.id for event in await read(transport)] == ["t"]


async def test_a_stream_over_http_has_a_limit() -> None:
    event = {"task": {"id": "t", "status": {"state": "TASK_STATE_WORKING"}, "metadata": {"x": "x" * 1000}}}
    async with (
        agent_server() as remote,
        transport_to("JSONRPC", serve_at(remote, "/", stream(*[event] * 9)) + "/") as transport,
    ):
        with pytest.raises(ProtocolError, match="longer than 4096 bytes"):
            await read(transport)


async def test_a_call_that_a_dialect_lacks_is_unknown() -> None:
    async with transport_to("JSONRPC", "http://127.0.0.1/", "0.1") as transport:
        with pytest.raises(CallRefused) as refused:
            await transport.call("ListTasks", pb.ListTasksRequest())
        assert refused.value.remote_error.is_unknown_method
