"""Operators of one scope: no operation of theirs, with whatever request, changes a row outside of that scope."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import grpc
import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from tests.bindings.admin.operation_table import work
from tests.bindings.admin.operators import ALICE, OLGA, SCOPE, TENANT_OPERATOR, Server, running_server
from tests.bindings.admin.store_dump import dump_store, outside_of
from tests.callers import named

from dragoman.bindings.admin.table import OPS_SERVICE, request_type_of
from dragoman.core.push.configuration import PushConfig
from dragoman.core.task.maintenance import TaskSelection
from dragoman_pb.dragoman.ops.v1 import ops_pb2 as ops
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

pytestmark = pytest.mark.long

TENANT: Final = f"{SCOPE}/agents/work"
ROOT: Final = named("root", "operator")
_GROWING: Final = frozenset(("audit", "receipts"))
"""Tables that get rows for each call; the earlier ones stay."""
_OF_ALL_SCOPES: Final = "quota_counters"
"""The table of quotas: its counts are of a principal's tasks in all scopes."""


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    in_sqlite = request.param == "sqlite"
    return f"sqlite:///{tmp_path}/tasks.db" if in_sqlite else request.getfixturevalue("postgres_database")


@pytest.fixture
async def server(url: str) -> AsyncIterator[Server]:
    async with running_server(url, [work], push=False) as running:
        yield running


def requests(request_type: Callable[[], Message], names: Mapping[str, Any]) -> Iterator[Message]:
    """Requests of an operation: an empty one, one for each name that it can select by, and one with all of them."""
    yield request_type()
    for chosen in (*({name: value} for name, value in names.items()), names):
        request = request_type()
        if fill(request, chosen):
            yield request


def fill(message: Message, names: Mapping[str, Any]) -> bool:
    """Sets the fields with these names, also in the selection or filter of a request. Returns whether it has any."""
    filled = False
    for field in message.DESCRIPTOR.fields:
        if field.name in names:
            if field.type == FieldDescriptor.TYPE_MESSAGE:
                getattr(message, field.name).FromMilliseconds(1)
            else:
                setattr(message, field.name, names[field.name])
            filled = True
        elif field.name in ("selection", "filter"):
            filled |= fill(getattr(message, field.name), names)
    return filled


async def call(server: Server, name: str, request: Message) -> None:
    """Calls an operation of the tenant's operator, which may reject the request."""
    response = getattr(server.ops, name)(request, metadata=tuple(TENANT_OPERATOR.items()))
    with suppress(grpc.aio.AioRpcError):
        if not OPS_SERVICE.methods_by_name[name].server_streaming:
            await response
        elif name == "WatchTasks":
            await response.read()
            response.cancel()
        else:
            async for _ in response:
                pass


async def test_no_operation_changes_anything_outside_of_its_scope(server: Server, url: str) -> None:
    store = server.app.runtime.store
    outside = {text: await server.send(text) for text in ("ask", "fail", "go")}
    inside = {text: await server.send(text, ALICE, TENANT) for text in ("ask", "fail", "go")}
    (waiting,) = await store.locate(outside["ask"])
    await store.pushes.put(waiting.ref, PushConfig(id="hook", url="https://receiver.example/x", dialect="1.0"))
    root = tuple(ROOT.items())
    key = (await server.ops.CreateKey(ops.CreateKeyRequest(name="old", principal="alice"), metadata=root)).key
    await server.ops.RevokeKey(ops.RevokeKeyRequest(id=key.id), metadata=root)
    assert len(await server.audit()) > 10
    assert (await server.get(inside["ask"], ALICE, TENANT)).status.state == pb.TASK_STATE_INPUT_REQUIRED

    before = outside_of(await dump_store(url), SCOPE)
    assert before["tasks"]
    assert before["pushes"]
    assert before["daily_usage"] or before["hourly_usage"]
    for principal in ("alice", "root", "olga"):
        names = {
            "task_id": outside["ask"],
            "context_id": waiting.context,
            "principal": principal,
            "scope": "default",
            "agent": "work",
            "id": key.id,
            "config_id": "hook",
            "older_than": 1,
        }
        for method in OPS_SERVICE.methods:
            for request in requests(request_type_of(method.name), names):
                await call(server, method.name, request)
                after = outside_of(await dump_store(url), SCOPE)
                for table, rows in before.items():
                    if table == _OF_ALL_SCOPES:
                        continue
                    changed = rows - after[table] if table in _GROWING else rows ^ after[table]
                    assert not changed, (method.name, request, table)
    # It could change what is in its scope, and has.
    assert not [
        one async for page in store.erasures.select(TaskSelection(principal="alice", scope=SCOPE)) for one in page
    ]
    # A full operator reaches everything, so that the comparison has something to find.
    purge = ops.PurgeRequest(selection=ops.Selection(principal="alice"))
    await server.ops.Purge(purge, metadata=tuple(OLGA.items()))
    after = outside_of(await dump_store(url), SCOPE)
    assert {table for table, rows in before.items() if rows - after[table]} >= {"tasks", "api_keys", "audit", "pushes"}
