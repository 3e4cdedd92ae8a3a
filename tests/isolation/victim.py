"""A victim with tasks in every dialect and kind of state, and a dump of its rows in the store."""

from __future__ import annotations

import hashlib
import itertools
import json
import sqlite3
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import aiohttp
import grpc
from pydantic import ByteSize
from tests.callers import ByHeader, named
from tests.dialects.dialect_clients import AGENT as RESOURCE
from tests.dialects.dialect_clients import DIALECT_CLIENTS, ServerConnections
from tests.isolation.names import Names

from dragoman import types
from dragoman.core.access.identity import parse_isolation
from dragoman.core.task import cursors
from dragoman.playground import playground
from dragoman.ports import Store
from dragoman.settings.settings import Address, Settings
from dragoman.stores.sqlite.hot.figures import list_tasks
from dragoman.wiring.app import App, open_app
from dragoman_pb.a2a.v1 import a2a_pb2_grpc as v03_rpc
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb
from dragoman_pb.lf.a2a.v1 import a2a_pb2_grpc as rpc

VICTIM: Final = "alice"
SECRET: Final = "s3cr3t"
"""Part of all messages and responses of the victim."""

STATES: Final = {"finished": f"echo {SECRET}", "waiting": "ask", "running": "sleep 3600"}
"""Lasting states of a task, each with the playground command that leads to it."""


class _Unary(grpc.aio.UnaryUnaryClientInterceptor):
    """Adds the caller's metadata to unary calls."""

    def __init__(self, who: Mapping[str, str]) -> None:
        self._who = tuple(who.items())

    async def intercept_unary_unary(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        return await continuation(_naming(client_call_details, self._who), request)


class _Streams(grpc.aio.UnaryStreamClientInterceptor):
    """Adds it to streams: gRPC needs an interceptor for each kind of call."""

    def __init__(self, who: Mapping[str, str]) -> None:
        self._who = tuple(who.items())

    async def intercept_unary_stream(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        return await continuation(_naming(client_call_details, self._who), request)


def _naming(details: Any, who: tuple[tuple[str, str], ...]) -> Any:
    return details._replace(metadata=grpc.aio.Metadata(*(details.metadata or ()), *who))


@asynccontextmanager
async def serving(folder: Path, isolation: str) -> AsyncIterator[tuple[App, Store]]:
    """Starts a server that trusts the caller's name. Turns pass through the same states whatever their duration."""
    anywhere = Address("127.0.0.1", 0)
    settings = Settings(
        http=anywhere,
        grpc=anywhere,
        store=f"sqlite:///{folder}/tasks.db",
        isolation=parse_isolation(isolation),
        strict_transitions=True,
        requests_per_second=0,
        inline_bytes=ByteSize(0),
        mcp_wait=0.5,  # the owner's calls of get_task wait for running tasks
    )
    async with open_app(settings, [playground], ByHeader()) as app:
        yield app, app.runtime.store


@asynccontextmanager
async def connections_of(app: App, who: Mapping[str, str]) -> AsyncIterator[ServerConnections]:
    """Connections to the server over all transports, for one caller."""
    async with AsyncExitStack() as stack:
        session = await stack.enter_async_context(aiohttp.ClientSession(f"http://{app.http}", headers=dict(who)))
        channel = grpc.aio.insecure_channel(str(app.grpc), interceptors=[_Unary(who), _Streams(who)])
        await stack.enter_async_context(channel)
        yield ServerConnections(session, rpc.A2AServiceStub(channel), v03_rpc.A2AServiceStub(channel), channel, stack)


@dataclass
class Victim:
    """The names of all its resources by tenant and state, one entry for each dialect."""

    names: dict[tuple[str, str], list[Names]]

    def everything(self) -> list[Names]:
        return list(itertools.chain.from_iterable(self.names.values()))


async def settle(app: App, store: Store) -> Victim:
    """Creates the victim's tasks, over every transport and in every dialect."""
    who = named(VICTIM)
    names: dict[tuple[str, str], list[Names]] = {}
    async with connections_of(app, who) as server_connections:
        for state, text in STATES.items():
            texts = [await _make(server_connections, speaker, state, text) for speaker in DIALECT_CLIENTS.values()]
            names[RESOURCE, state] = [await _names(store, server_connections, RESOURCE, task) for task in texts]
            here = [await _default(server_connections, state, text), await _aliased(server_connections, state, text)]
            names["", state] = [await _names(store, server_connections, "", task) for task in here]
        for tenant, state in names:
            if state == "running":  # from then on it does not change by itself
                for entry in names[tenant, state]:
                    await _until_working(server_connections, tenant, entry.task)
    return Victim(names)


async def _make(connections: ServerConnections, speaker: Any, state: str, text: str) -> str:
    if state == "running":
        return str(await speaker.start(connections, text))
    return str((await speaker.send(connections, text)).id)


async def _default(connections: ServerConnections, state: str, text: str) -> str:
    """Creates a task in the default scope, with a file and an idempotency key."""
    parts = [pb.Part(text=text), types.file(SECRET.encode() * 60_000, name=f"{SECRET}.txt")]
    message = pb.Message(message_id=f"m-{SECRET}", role=pb.ROLE_USER, parts=parts)
    configuration = pb.SendMessageConfiguration(return_immediately=state == "running")
    request = pb.SendMessageRequest(message=message, configuration=configuration)
    answer = await connections.v1.SendMessage(request, metadata=(("idempotency-key", _key(state)),))
    return str(answer.task.id)


def _key(state: str) -> str:
    return f"key-{state}-000001"


async def _aliased(connections: ServerConnections, state: str, text: str) -> str:
    """Creates a task in the default scope with a client-chosen id, in a conversation with a client-chosen id."""
    task, message = f"mine-{uuid.uuid4()}", {"role": "user", "parts": [{"type": "text", "text": text}]}
    params = {"id": task, "sessionId": f"talk-{uuid.uuid4()}", "message": message}
    method = "tasks/sendSubscribe" if state == "running" else "tasks/send"
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    async with connections.http.post("/", json=body, headers={"Idempotency-Key": f"{_key(state)}-0"}) as answer:
        async for line in answer.content:
            if state != "running":
                assert "error" not in json.loads(line)
            elif b"working" in line:
                break
    return task


async def _until_working(connections: ServerConnections, tenant: str, task: str) -> None:
    async for event in connections.v1.SubscribeToTask(pb.SubscribeToTaskRequest(tenant=tenant, id=task)):
        if pb.TASK_STATE_WORKING in (event.task.status.state, event.status_update.status.state):
            return


async def _names(store: Store, connections: ServerConnections, tenant: str, task: str) -> Names:
    scope = tenant.partition("/agents/")[0] or "default"
    (record,) = [record for record in await store.locate(task) if record.ref.owner.scope == scope]
    assert record.principal == VICTIM
    listed = await connections.v1.ListTasks(pb.ListTasksRequest(tenant=tenant, page_size=1))
    snapshot = await store.read(record.ref)
    assert snapshot is not None
    return Names(
        task=task,
        context=record.context,
        cursor=cursors.cursor_prefix(store.epoch, record.ref.key) + "1",
        token=listed.next_page_token or "A" * 38,
        key=_key("finished"),
        config=await _config(connections, tenant, task),
        blob=hashlib.sha256(SECRET.encode() * 60_000).hexdigest(),
    )


async def _config(connections: ServerConnections, tenant: str, task: str) -> str:
    """The id of a new push configuration of the task, if the task takes one."""
    config = pb.TaskPushNotificationConfig(
        tenant=tenant, task_id=task, id="config-000001", url=f"https://example.com/{SECRET}"
    )
    try:
        created = await connections.v1.CreateTaskPushNotificationConfig(config)
    except grpc.aio.AioRpcError as error:
        assert error.code() is grpc.StatusCode.FAILED_PRECONDITION, error  # noqa: PT017
        return config.id
    return str(created.id)


def kept(path: Path, principal: str = VICTIM) -> dict[str, list[tuple[Any, ...]]]:
    """All rows of a principal in the store, by table; some in each table that matters."""
    found = rows_of(path, principal)
    assert {"tasks", "log", "messages", "totals", "idempotency"} <= {name for name, rows in found.items() if rows}
    return found


def rows_of(path: Path, principal: str) -> dict[str, list[tuple[Any, ...]]]:
    """All rows of a principal in the store, by table. Its tasks are listed before, as by any list of anybody."""
    with sqlite3.connect(path) as connection:
        list_tasks(connection)
        owners = [row[0] for row in connection.execute("SELECT owner FROM owners WHERE principal = ?", (principal,))]
        tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        found = {}
        for table in tables:
            columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
            owning = [column for column in ("owner", "host") if column in columns]
            if owning:
                marks = ", ".join(map(str, owners))
                where = " OR ".join(f"{column} IN ({marks})" for column in owning)
                found[table] = sorted(connection.execute(f"SELECT * FROM {table} WHERE {where}"), key=repr)
    connection.close()
    return found
