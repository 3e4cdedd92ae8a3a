"""Single calls against a scripted server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2

from dragoman.client import ClientError, connect
from dragoman.client.calls import Client, message
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb
from dragoman_pb.lf.a2a.v1 import a2a_pb2_grpc as rpc

TASK = pb.Task(id="t1", context_id="c1", status=pb.TaskStatus(state=pb.TASK_STATE_COMPLETED))


class _Servicer(rpc.A2AServiceServicer):
    """Responds with `answers[method]`: a message, a list of messages for a stream, or a status that ends the call."""

    def __init__(self, **answers: Any) -> None:
        self.answers = answers
        self.requests: list[Any] = []
        self.metadata: dict[str, str | bytes] = {}
        self.missing_count = 0

    async def _answer(self, method: str, request: Any, context: Any) -> Any:
        self.requests.append(type(request).FromString(request.SerializeToString()))
        self.metadata = dict(context.invocation_metadata())
        answer = self.answers[method]
        if callable(answer):
            answer = answer(request)
        if isinstance(answer, status_pb2.Status):
            context.set_trailing_metadata((("grpc-status-details-bin", answer.SerializeToString()),))
            code = next(code for code in grpc.StatusCode if code.value[0] == answer.code)
            await context.abort(code, answer.message)
        return answer

    async def SendMessage(self, request: Any, context: Any) -> Any:
        return await self._answer("send", request, context)

    async def SendStreamingMessage(self, request: Any, context: Any) -> AsyncIterator[pb.StreamResponse]:
        try:
            for event in await self._answer("stream", request, context):
                yield event
        finally:
            self.missing_count += 1

    async def GetTask(self, request: Any, context: Any) -> Any:
        return await self._answer("get", request, context)

    async def ListTasks(self, request: Any, context: Any) -> Any:
        return await self._answer("list", request, context)

    async def CancelTask(self, request: Any, context: Any) -> Any:
        return await self._answer("cancel", request, context)

    async def SubscribeToTask(self, request: Any, context: Any) -> AsyncIterator[pb.StreamResponse]:
        for event in await self._answer("subscribe", request, context):
            yield event


ScriptedServer: Any = _Servicer  # abstract to mypy, as the push operations are missing


@asynccontextmanager
async def talking_to(servicer: Any, *, agent: str = "") -> AsyncIterator[Client]:
    server = grpc.aio.server()
    rpc.add_A2AServiceServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with Client(f"127.0.0.1:{port}", agent=agent) as client:
            yield client
    finally:
        await server.stop(None)


def status(code: grpc.StatusCode, text: str, reason: str, **fields: str) -> status_pb2.Status:
    result = status_pb2.Status(code=code.value[0], message=text)
    info = error_details_pb2.ErrorInfo(reason=reason, domain="a2a-protocol.org", metadata={"taskId": "t9"})
    result.details.add().Pack(info)
    if fields:
        bad = error_details_pb2.BadRequest()
        for field, rule in fields.items():
            bad.field_violations.add(field=field, description=rule)
        result.details.add().Pack(bad)
    return result


def test_a_message_has_a_new_id_and_its_text_first() -> None:
    result = message("hi", parts=[pb.Part(raw=b"x")], task="t", context="c")
    assert [part.WhichOneof("content") for part in result.parts] == ["text", "raw"]
    assert (result.task_id, result.context_id, result.role) == ("t", "c", pb.ROLE_USER)
    assert result.message_id != message("hi").message_id
    assert not message(parts=[]).parts


async def test_send_names_the_agent_and_the_version() -> None:
    server = ScriptedServer(send=pb.SendMessageResponse(task=TASK))
    async with talking_to(server, agent="echo") as client:
        answer = await client.send(
            message("hi"),
            configuration=pb.SendMessageConfiguration(return_immediately=True),
            metadata={"trace": "x"},
        )
    assert answer.task == TASK
    (requests,) = server.requests
    assert requests.tenant == "echo"
    assert requests.configuration.return_immediately
    assert requests.metadata["trace"] == "x"
    assert server.metadata["a2a-version"] == "1.0"


async def test_get_and_cancel_name_the_task() -> None:
    server = ScriptedServer(get=TASK, cancel=TASK)
    async with talking_to(server, agent="echo") as client:
        assert await client.get("t1") == TASK
        assert await client.get("t1", history=0) == TASK
        assert await client.cancel("t1") == TASK
    first, second, third = server.requests
    assert (first.tenant, first.id, first.HasField("history_length")) == ("echo", "t1", False)
    assert second.HasField("history_length")
    assert (third.tenant, third.id) == ("echo", "t1")


async def test_streams_give_their_events_in_order() -> None:
    events = [pb.StreamResponse(task=TASK)]
    events += [pb.StreamResponse(artifact_update=pb.TaskArtifactUpdateEvent(task_id=str(n))) for n in range(20)]
    server = ScriptedServer(stream=events, subscribe=events)
    async with talking_to(server) as client:
        assert [event async for event in client.stream(message("hi"))] == events
        assert [event async for event in client.subscribe("t1")] == events


async def test_a_list_spans_pages() -> None:
    pages = {
        "": pb.ListTasksResponse(tasks=[pb.Task(id="1"), pb.Task(id="2")], next_page_token="more"),
        "more": pb.ListTasksResponse(tasks=[pb.Task(id="3")]),
    }
    server = ScriptedServer(list=lambda request: pages[request.page_token])
    async with talking_to(server) as calls, connect(f"grpc://{calls.address}") as client:
        found = client.list(context="c1", state="WORKING", page_size=2)
        assert [result.task_id async for result in found] == ["1", "2", "3"]
    for requests in server.requests:
        assert (requests.context_id, requests.status, requests.page_size) == ("c1", pb.TASK_STATE_WORKING, 2)


async def test_a_list_fetches_pages_on_demand() -> None:
    page = pb.ListTasksResponse(tasks=[pb.Task(id="1"), pb.Task(id="2")], next_page_token="more")
    server = ScriptedServer(list=page)
    async with (
        talking_to(server) as calls,
        connect(f"grpc://{calls.address}") as client,
        aclosing(client.list()) as results,
    ):
        assert (await anext(results)).task_id == "1"
    assert len(server.requests) == 1


CALLS: list[Callable[[Client], Any]] = [
    lambda client: client.send(message("hi")),
    lambda client: client.get("t9"),
    lambda client: client.cancel("t9"),
    lambda client: anext(client.stream(message("hi"))),
    lambda client: anext(client.subscribe("t9")),
]


@pytest.mark.parametrize("call", CALLS)
async def test_every_failure_is_an_error_with_the_servers_details(call: Callable[[Client], Any]) -> None:
    bad = status(grpc.StatusCode.INVALID_ARGUMENT, "message.parts: is empty", "INVALID_PARAMS", parts="is empty")
    server = ScriptedServer(**dict.fromkeys(("send", "stream", "get", "cancel", "subscribe"), bad))
    async with talking_to(server) as client:
        with pytest.raises(ClientError) as caught:
            await call(client)
    error = caught.value
    assert (error.code, error.reason) == ("INVALID_ARGUMENT", "INVALID_PARAMS")
    assert error.message == "message.parts: is empty"
    assert [(v.field, v.description) for v in error.violations] == [("parts", "is empty")]
    assert error.metadata == {"taskId": "t9"}
    assert not error.unreachable


async def test_a_missing_server_is_unreachable(unused_tcp_port: int) -> None:
    async with Client(f"127.0.0.1:{unused_tcp_port}") as client:
        with pytest.raises(ClientError) as caught:
            await client.get("t1")
    assert caught.value.unreachable
    assert caught.value.reason == ""


async def test_a_server_that_is_shutting_down_is_not_unreachable() -> None:
    leaving = status(grpc.StatusCode.UNAVAILABLE, "shutting down", "UNAVAILABLE")
    async with talking_to(ScriptedServer(get=leaving)) as client:
        with pytest.raises(ClientError) as caught:
            await client.get("t1")
    assert not caught.value.unreachable


async def test_corrupt_details_leave_code_and_text() -> None:
    class Spoiled(_Servicer):
        async def GetTask(self, request: Any, context: Any) -> Any:
            context.set_trailing_metadata((("grpc-status-details-bin", b"\xff\xff"),))
            await context.abort(grpc.StatusCode.NOT_FOUND, "no such task")

    spoiled: Any = Spoiled
    async with talking_to(spoiled()) as client:
        with pytest.raises(ClientError) as caught:
            await client.get("t1")
    assert (caught.value.code, caught.value.message, caught.value.reason) == ("NOT_FOUND", "no such task", "")


async def test_messages_larger_than_grpcs_default_limit_are_received() -> None:
    big = pb.Task(id="t1", artifacts=[pb.Artifact(artifact_id="a", parts=[pb.Part(raw=bytes(5_000_000))])])
    async with talking_to(ScriptedServer(get=big)) as client:
        assert await client.get("t1") == big


async def test_a_client_that_was_not_entered_raises_an_error() -> None:
    with pytest.raises(RuntimeError, match="async with"):
        await Client("127.0.0.1:1").get("t1")
