"""Single calls in every dialect over every binding, against a real server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.listing import list_tasks

from dragoman.client import ClientError
from dragoman.client.calls import Client, check_protocol, message
from dragoman.client.options import CallOptions
from dragoman.playground import playground
from dragoman.settings.settings import Address, Settings
from dragoman.wiring.app import open_app
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

pytestmark = pytest.mark.long

PROTOCOLS = [
    ("1.0", "grpc"), ("1.0", "rest"), ("1.0", "jsonrpc"), ("1.0", "ws"),
    ("0.3", "grpc"), ("0.3", "rest"), ("0.3", "jsonrpc"), ("0.3", "ws"),
    ("0.1", "jsonrpc"), ("0.1", "ws"),
]  # fmt: skip
EVERY = pytest.mark.parametrize(("dialect", "binding"), PROTOCOLS)


class Server(NamedTuple):
    http: str
    grpc: str

    def client(self, dialect: str, binding: str, trace_lines: list[str] | None = None, agent: str = "") -> Client:
        address = self.grpc if binding == "grpc" else self.http

        def trace(direction: str, text: str) -> None:
            if trace_lines is not None:
                trace_lines.append(f"{direction} {text}")

        return Client(address, agent=agent, dialect=dialect, binding=binding, options=CallOptions(trace=trace))


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    anywhere = Address("127.0.0.1", 0)
    settings = Settings(http=anywhere, grpc=anywhere, store=f"sqlite:///{tmp_path}/tasks.db")
    async with open_app(settings, [playground]) as app:
        yield Server(f"http://{app.http}", str(app.grpc))


def text_of(task: pb.Task) -> str:
    return "".join(part.text for artifact in task.artifacts for part in artifact.parts)


@EVERY
async def test_a_message_is_sent_and_its_task_read(server: Server, dialect: str, binding: str) -> None:
    async with server.client(dialect, binding) as client:
        sent = (await client.send(message("echo hi"))).task
        read = await client.get(sent.id)
    assert (sent.status.state, text_of(sent)) == (pb.TASK_STATE_COMPLETED, "hi")
    assert (read.id, read.context_id, text_of(read)) == (sent.id, sent.context_id, "hi")


@EVERY
async def test_a_stream_ends_with_its_turn_and_a_follow_up_finishes_it(
    server: Server, dialect: str, binding: str
) -> None:
    async with server.client(dialect, binding) as client:
        states: list[int] = []
        task = ""
        async with aclosing(client.stream(message("ask"))) as events:
            async for event in events:
                states += [event.status_update.status.state] if event.HasField("status_update") else []
                task = task or event.task.id or event.status_update.task_id
        assert states[-1] == pb.TASK_STATE_INPUT_REQUIRED
        done = (await client.send(message("blue", task=task))).task
    assert text_of(done) == "you said: blue"


@EVERY
async def test_a_task_is_followed_and_canceled(server: Server, dialect: str, binding: str) -> None:
    async with server.client("1.0", "grpc") as other:
        now = pb.SendMessageConfiguration(return_immediately=True)
        task = (await other.send(message("sleep 60"), configuration=now)).task.id
    async with server.client(dialect, binding) as client:
        last = 0
        async with aclosing(client.subscribe(task)) as events:
            async for event in events:
                if not last:
                    await client.cancel(task)
                last = (event.status_update if event.HasField("status_update") else event.task).status.state
    assert last == pb.TASK_STATE_CANCELED


@EVERY
async def test_an_error_is_the_same_over_every_binding(server: Server, dialect: str, binding: str) -> None:
    async with server.client(dialect, binding) as client:
        with pytest.raises(ClientError) as caught:
            await client.get("none")
        assert caught.value.reason == "TASK_NOT_FOUND"
        with pytest.raises(ClientError) as caught:
            async with aclosing(client.subscribe("none")) as events:
                await anext(events)
        assert caught.value.reason == "TASK_NOT_FOUND"


@pytest.mark.parametrize(
    ("dialect", "binding"),
    [transport for transport in PROTOCOLS if transport[0] == "1.0" or transport[1] in ("rest", "grpc")],
)
async def test_tasks_are_listed_page_by_page(server: Server, dialect: str, binding: str) -> None:
    async with server.client(dialect, binding) as client:
        for number in range(3):
            await client.send(message(f"echo {number}"))
        found = [task.id async for task in list_tasks(client, page_size=2)]
    assert len(set(found)) == 3


async def test_a_call_that_a_dialect_lacks_is_not_supported(server: Server) -> None:
    async with server.client("0.3", "jsonrpc") as client:
        with pytest.raises(ClientError, match="has no ListTasks"):
            await anext(list_tasks(client))


@EVERY
async def test_the_trace_shows_both_directions(server: Server, dialect: str, binding: str) -> None:
    trace_lines: list[str] = []
    async with server.client(dialect, binding, trace_lines, agent="" if dialect == "0.3" else "playground") as client:
        await client.send(message("echo hi"))
    assert any(line.startswith("> ") and "echo hi" in line for line in trace_lines)
    assert any(line.startswith("< ") and "completed" in line.lower() for line in trace_lines)


@pytest.mark.parametrize(
    ("dialect", "binding", "text"),
    [("2.0", "grpc", "1.0, 0.3, 0.1"), ("1.0", "smoke", "grpc, rest, jsonrpc, ws"), ("0.1", "grpc", "jsonrpc and ws")],
)
def test_an_unknown_dialect_or_binding_is_rejected_with_the_valid_ones(dialect: str, binding: str, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        check_protocol(dialect, binding)


@pytest.mark.parametrize("binding", ["rest", "jsonrpc", "ws"])
async def test_a_missing_server_is_unreachable(binding: str) -> None:
    async with Client("http://127.0.0.1:9", binding=binding) as client:
        with pytest.raises(ClientError) as caught:
            await client.get("t")
    assert caught.value.unreachable
