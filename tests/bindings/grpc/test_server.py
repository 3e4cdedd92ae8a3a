"""gRPC, with a fake service."""

from __future__ import annotations

import asyncio
import gc
import logging
from contextlib import AsyncExitStack
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc  # type: ignore[import-untyped]
from grpc_reflection.v1alpha import reflection_pb2  # type: ignore[import-untyped]
from tests.bindings.fake_service import (
    RESOURCE,
    TASK,
    FakeService,
    chunk_event,
    details,
    make_cards,
    over_grpc,
    status_event,
    task_event,
)

from dragoman.bindings.grpc.server import serve_grpc
from dragoman.bindings.options import ServerOptions
from dragoman.core.errors import InvalidParams, TaskNotCancelable, TaskNotFound
from dragoman.core.task import states
from dragoman_pb.a2a.v1 import a2a_pb2 as v03_pb
from dragoman_pb.a2a.v1 import a2a_pb2_grpc as v03_rpc
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb
from dragoman_pb.lf.a2a.v1 import a2a_pb2_grpc as rpc

HELLO = pb.Message(message_id="m1", role=pb.ROLE_USER, parts=[pb.Part(text="hello")])


async def failing(call: Any) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value


async def test_a_1_0_response_is_returned_as_stored() -> None:
    service = FakeService(TASK)
    async with over_grpc(service) as (channel, _):
        get_task: Any = channel.unary_unary("/lf.a2a.v1.A2AService/GetTask")
        data = await get_task(pb.GetTaskRequest(id="t1", history_length=0).SerializeToString())
    assert data == TASK.SerializeToString()
    name, call, request = service.received[0]
    assert (name, request.id, request.HasField("history_length")) == ("get_task", "t1", True)
    owner = call.caller.owner
    assert (call.caller.agent, owner.scope, owner.principal) == ("echo", "default", "anonymous")


async def test_a_0_3_call_gets_a_0_3_response() -> None:
    service = FakeService(TASK)
    async with over_grpc(service) as (channel, _):
        task = await v03_rpc.A2AServiceStub(channel).GetTask(v03_pb.GetTaskRequest(name=f"{RESOURCE}/tasks/t1"))
    assert (task.id, task.status.state) == ("t1", v03_pb.TASK_STATE_COMPLETED)
    _, call, request = service.received[0]
    assert (request.id, call.caller.owner.scope) == ("t1", RESOURCE.removesuffix("/agents/echo"))


async def test_the_tenant_names_the_agent() -> None:
    service = FakeService(TASK)
    async with over_grpc(service) as (channel, _):
        stub = rpc.A2AServiceStub(channel)
        await stub.GetTask(pb.GetTaskRequest(tenant="other", id="t1"))
        error = await failing(stub.GetTask(pb.GetTaskRequest(tenant="unknown", id="t1")))
    assert service.received[0][1].caller.agent == "other"
    assert error.code() is grpc.StatusCode.NOT_FOUND
    assert "use one of echo, other" in str(error.details())


async def test_a_stream_contains_every_event() -> None:
    service = FakeService(events=[task_event(), chunk_event(2), status_event(3, states.COMPLETED, ends=True)])
    async with over_grpc(service) as (channel, _):
        stub = rpc.A2AServiceStub(channel)
        events = [event async for event in stub.SendStreamingMessage(pb.SendMessageRequest(message=HELLO))]
    assert [event.WhichOneof("payload") for event in events] == ["task", "artifact_update", "status_update"]


async def test_an_error_has_its_reason_and_the_invalid_fields() -> None:
    service = FakeService(InvalidParams.field("pageSize", "must be 1 to 100"))
    async with over_grpc(service) as (channel, _):
        error = await failing(rpc.A2AServiceStub(channel).ListTasks(pb.ListTasksRequest(page_size=1000)))
    info, bad = details(error)
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert (info.domain, info.reason) == ("a2a-protocol.org", "INVALID_PARAMS")
    assert [(v.field, v.description) for v in bad.field_violations] == [("pageSize", "must be 1 to 100")]


async def test_0_3_errors_have_their_class_name_and_codes() -> None:
    service = FakeService(TaskNotCancelable())
    async with over_grpc(service) as (channel, _):
        error = await failing(v03_rpc.A2AServiceStub(channel).CancelTask(v03_pb.CancelTaskRequest(name="tasks/t1")))
    assert error.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert error.details() == "TaskNotCancelableError: Task cannot be canceled"
    assert details(error)[0].reason == "TASK_NOT_CANCELABLE"


async def test_an_error_during_a_stream_is_the_status_of_the_call() -> None:
    service = FakeService(events=[task_event(), TaskNotFound()])
    async with over_grpc(service) as (channel, _):
        stream: Any = rpc.A2AServiceStub(channel).SubscribeToTask(pb.SubscribeToTaskRequest(id="t1"))
        assert (await stream.read()).task.id == "t1"
        error = await failing(stream.read())
    assert details(error)[0].reason == "TASK_NOT_FOUND"


async def test_an_event_that_grpc_no_longer_takes_is_no_fault_of_the_server(caplog: pytest.LogCaptureFixture) -> None:
    """Its connection has ended; if not, the client learns of it."""
    service = FakeService(events=[task_event(), grpc.aio.InternalError('Failed "execute_batch"')])
    async with over_grpc(service) as (channel, _):
        stream: Any = rpc.A2AServiceStub(channel).SubscribeToTask(pb.SubscribeToTaskRequest(id="t1"))
        assert (await stream.read()).task.id == "t1"
        error = await failing(stream.read())
    assert error.code() is grpc.StatusCode.UNAVAILABLE
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


async def test_0_3_returns_the_card_and_1_0_rejects_the_extended_card() -> None:
    async with over_grpc(FakeService(), make_cards(public_url="https://agents.example.com")) as (channel, bound):
        card = await v03_rpc.A2AServiceStub(channel).GetAgentCard(v03_pb.GetAgentCardRequest())
        error = await failing(rpc.A2AServiceStub(channel).GetExtendedAgentCard(pb.GetExtendedAgentCardRequest()))
    assert (card.name, card.url) == ("Echo", "https://agents.example.com")
    assert details(error)[0].reason == "UNSUPPORTED_OPERATION"
    assert bound.port


async def test_a_blocking_send_has_a_timeout_below_the_deadline() -> None:
    service = FakeService(pb.SendMessageResponse(task=TASK))
    async with over_grpc(service) as (channel, _):
        stub = rpc.A2AServiceStub(channel)
        await stub.SendMessage(pb.SendMessageRequest(message=HELLO), timeout=20)
        await stub.SendMessage(pb.SendMessageRequest(message=HELLO))
        await stub.GetTask(pb.GetTaskRequest(id="t1"), timeout=20)
    bounded, unbounded, other = (call.timeout for _, call, _ in service.received)
    assert bounded is not None
    assert 15 < bounded < 20  # gRPC rounds the deadline that it sends
    assert unbounded is other is None


async def test_grpc_rejects_only_messages_far_over_the_limit_itself() -> None:
    service = FakeService(pb.SendMessageResponse(task=TASK))
    async with over_grpc(service, message_bytes=1000) as (channel, _):
        stub = rpc.A2AServiceStub(channel)
        parts = [pb.Part(raw=b"x" * 2000)]
        await stub.SendMessage(pb.SendMessageRequest(message=pb.Message(parts=parts)))
        parts = [pb.Part(raw=b"x" * 3_000_000)]
        error = await failing(stub.SendMessage(pb.SendMessageRequest(message=pb.Message(parts=parts))))
    assert len(service.received) == 1
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_responses_have_no_size_limit() -> None:
    artifact = pb.Artifact(artifact_id="a", parts=[pb.Part(raw=b"x" * 6_000_000)])
    async with over_grpc(FakeService(pb.Task(id="t1", artifacts=[artifact]))) as (channel, _):
        task = await rpc.A2AServiceStub(channel).GetTask(pb.GetTaskRequest(id="t1"))
    assert len(task.artifacts[0].parts[0].raw) == 6_000_000


async def test_a_client_may_make_more_calls_than_a_connection_carries() -> None:
    service = FakeService(TASK)
    async with over_grpc(service, connection_calls=10) as (channel, _):
        stub = rpc.A2AServiceStub(channel)

        async def repeat() -> None:
            for _ in range(20):
                await stub.GetTask(pb.GetTaskRequest(id="t1"))

        await asyncio.gather(*(repeat() for _ in range(50)))  # UNAVAILABLE would end them
    assert len(service.received) == 1000


async def test_invalid_bytes_are_an_invalid_argument() -> None:
    async with over_grpc(FakeService()) as (channel, _):
        call: Any = channel.unary_unary("/a2a.v1.A2AService/GetTask")
        error = await failing(call(b"\xff"))
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "a2a.v1.GetTaskRequest" in str(error.details())


async def test_server_shutdown_ends_streams_as_unavailable() -> None:
    service = FakeService(events=[task_event(), asyncio.Event()])
    server = AsyncExitStack()
    bound = await server.enter_async_context(serve_grpc(service.operations, make_cards(), ServerOptions()))
    async with server, grpc.aio.insecure_channel(str(bound)) as channel:
        stream: Any = rpc.A2AServiceStub(channel).SubscribeToTask(pb.SubscribeToTaskRequest(id="t1"))
        await stream.read()
        await service.waiting.wait()
        read_task = asyncio.create_task(failing(stream.read()))
        await server.aclose()
        error = await read_task
    assert error.code() is grpc.StatusCode.UNAVAILABLE
    assert details(error)[0].reason == "UNAVAILABLE"


async def test_health_reports_both_services_and_draining() -> None:
    draining = asyncio.Event()
    async with over_grpc(FakeService(), draining=draining) as (channel, _):
        stub = health_pb2_grpc.HealthStub(channel)
        for name in ("", "a2a.v1.A2AService", "lf.a2a.v1.A2AService"):
            answer = await stub.Check(health_pb2.HealthCheckRequest(service=name))
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
        watch = stub.Watch(health_pb2.HealthCheckRequest(service="a2a.v1.A2AService"))
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
        draining.set()
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
        watch.cancel()


async def test_health_reports_a_store_that_is_not_usable() -> None:
    problem = ""
    async with over_grpc(FakeService(), store_problem=lambda: problem) as (channel, _):
        watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
        problem = "it does not respond"
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
        problem = ""
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
        watch.cancel()


@pytest.mark.parametrize("version", ["v1", "v1alpha"])
async def test_reflection_lists_every_service_with_its_files(version: str) -> None:
    request = reflection_pb2.ServerReflectionRequest
    async with over_grpc(FakeService()) as (channel, _):
        reflect = channel.stream_stream(
            f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
            request_serializer=request.SerializeToString,
            response_deserializer=reflection_pb2.ServerReflectionResponse.FromString,
        )
        requests = [
            request(list_services=""),
            request(file_containing_symbol="lf.a2a.v1.A2AService"),
            request(file_containing_symbol="a2a.v1.A2AService"),
            request(file_containing_symbol="grpc.health.v1.Health"),
            request(file_containing_symbol="grpc.reflection.v1.ServerReflection"),
            request(file_containing_symbol="grpc.reflection.v1alpha.ServerReflection"),
        ]
        listed, *files = [response async for response in reflect(iter(requests))]
    assert {service.name for service in listed.list_services_response.service} == {
        "a2a.v1.A2AService",
        "lf.a2a.v1.A2AService",
        "dragoman.ops.v1.OpsService",
        "grpc.health.v1.Health",
        "grpc.reflection.v1.ServerReflection",
        "grpc.reflection.v1alpha.ServerReflection",
    }
    assert all(response.file_descriptor_response.file_descriptor_proto for response in files)


async def test_an_address_in_use_is_an_os_error() -> None:
    async with over_grpc(FakeService()) as (_, bound):
        with pytest.raises(OSError, match="cannot listen on"):
            async with over_grpc(FakeService(), port=bound.port):
                pass


async def test_a_rejected_call_leaves_no_garbage() -> None:
    """Otherwise messages of 16 MiB stay in memory until garbage is collected."""
    async with over_grpc(FakeService(TASK)) as (channel, _):
        get_task: Any = channel.unary_unary("/lf.a2a.v1.A2AService/GetTask")
        await failing(get_task(b"\xff"))  # fills caches
        gc.collect()
        gc.disable()
        try:
            await failing(get_task(b"\xff" * 9000))
            await get_task(pb.GetTaskRequest(id="t1").SerializeToString())  # by now the server is done with the other
            gc.set_debug(gc.DEBUG_SAVEALL)
            gc.collect()
            assert [one for one in gc.garbage if isinstance(one, grpc.aio.AbortError)] == []
        finally:
            gc.set_debug(0)
            gc.garbage.clear()
            gc.enable()
