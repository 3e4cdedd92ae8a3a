"""The operations of `dragoman.ops.v1` on a store, each with a request that it serves.

The table is the server's, on a running runtime. Registries of other servers are replaced by ones that only store.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Final

import grpc
from google.protobuf.message import Message
from tests.callers import ByHeader, named

from dragoman import AgentError, Turn, agent
from dragoman.bindings.admin.actions import OperatorActions, OperatorCall
from dragoman.bindings.admin.table import OPS_SERVICE, AdminServices, AdminTable
from dragoman.bindings.cards import Cards
from dragoman.core.access.identity import Identity
from dragoman.core.agent_sources import UpstreamSpec
from dragoman.core.audit import AuditEntry
from dragoman.core.push.configuration import PushConfig
from dragoman.ids import now_ms
from dragoman.ports import AddedUpstream, RegisteredAgent, Store, UpstreamStatus
from dragoman.runtime.maintenance.api_keys import ApiKeyService
from dragoman.security.secret_box import AesGcmSecretBox
from dragoman.security.signing import StoredSigningKeys
from dragoman.settings.settings import Address, Settings
from dragoman.wiring.app import App, open_app
from dragoman_pb.dragoman.ops.v1 import bulk_pb2 as bulk
from dragoman_pb.dragoman.ops.v1 import events_pb2 as events
from dragoman_pb.dragoman.ops.v1 import failures_pb2 as failures
from dragoman_pb.dragoman.ops.v1 import ops_pb2 as ops
from dragoman_pb.dragoman.ops.v1 import overview_pb2 as overview
from dragoman_pb.dragoman.ops.v1 import push_pb2 as push
from dragoman_pb.dragoman.ops.v1 import signing_pb2 as signing
from dragoman_pb.dragoman.ops.v1 import steps_pb2 as steps
from dragoman_pb.dragoman.ops.v1 import tasks_pb2 as tasks
from dragoman_pb.dragoman.ops.v1 import upstreams_pb2 as upstreams
from dragoman_pb.dragoman.ops.v1 import usage_pb2 as usage
from dragoman_pb.dragoman.ops.v1 import workers_pb2 as workers
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb
from dragoman_pb.lf.a2a.v1 import a2a_pb2_grpc as rpc

OLGA: Final = OperatorCall(Identity("olga", frozenset({"operator"})), "192.0.2.1", is_local=True)


@agent(id="work", default=True)
async def work(turn: Turn) -> str:
    match turn.text:
        case "ask":
            turn.ask("what?")
        case "fail":
            raise AgentError("no")
    return "done"


class _StoredWorkers:
    """Worker agents that are known from the store."""

    def __init__(self, store: Store) -> None:
        self._registry = store.worker_registry

    def connect(self, *_: Any) -> Any:
        raise NotImplementedError

    def list_agents(self) -> list[Any]:
        return []

    async def forget(self, agent: str) -> int:
        await self._registry.unregister(agent)
        return 0


class _StoredUpstreams:
    """Upstream agents that are stored, and not called."""

    def __init__(self, store: Store) -> None:
        self._stored = store.upstreams

    async def add(self, upstream: UpstreamSpec) -> UpstreamStatus:
        await self._stored.add(AddedUpstream(upstream.id, b"{}", 1))
        return UpstreamStatus(upstream.id, upstream.location, False, False, 0.0, "", 0.0, (), (), 0, 1)

    async def remove(self, agent: str) -> int:
        await self._stored.remove(agent)
        return 0

    def status(self) -> list[UpstreamStatus]:
        return []


@dataclass
class TableUnderTest:
    """A table of operations, and what its requests name."""

    app: App
    store: Store
    url: str
    folder: Path
    table: AdminTable
    actions: OperatorActions
    keys: ApiKeyService
    signing_keys: StoredSigningKeys
    send_message: Callable[..., Awaitable[pb.SendMessageResponse]]
    _names: Any = field(default_factory=lambda: count(1))

    def new_name(self) -> str:
        """A name that nothing has yet."""
        return f"n{next(self._names)}"

    async def send(self, text: str = "go", principal: str = "alice") -> str:
        """Sends a message and returns the id of its task, which has ended or asks."""
        message = pb.Message(message_id=self.new_name(), role=pb.ROLE_USER, parts=[pb.Part(text=text)])
        request = pb.SendMessageRequest(message=message)
        return (await self.send_message(request, metadata=tuple(named(principal).items()))).task.id

    async def entries(self) -> list[AuditEntry]:
        """The audit log, with the entries of canceled calls that the store was still to write."""
        assert self.app.runtime.auditor is not None
        await self.app.runtime.auditor.record(AuditEntry(0, "test.barrier"))
        found, after = list[AuditEntry](), 0
        while records := await self.store.audit.read(after):
            found += [record.entry for record in records]
            after = records[-1].number
        return found

    async def call(self, name: str, request: Message, operator: OperatorCall = OLGA) -> list[Message]:
        """Calls an operation as the bindings do. Returns the responses; of a list that is watched, the first."""
        if not OPS_SERVICE.methods_by_name[name].server_streaming:
            return [await self.table.run(name, operator, request)]
        responses = list[Message]()
        stream = self.table.stream(name, operator, request)
        try:
            async for response in stream:
                responses.append(response)
                if name == "WatchTasks":
                    break
        finally:
            await stream.aclose()
        return responses


@asynccontextmanager
async def open_table(folder: Path, url: str = "", *, actions: OperatorActions | None = None) -> AsyncIterator[Any]:
    """Opens the table on the store of a running server; by default in SQLite."""
    url = url or f"sqlite:///{folder}/tasks.db"
    anywhere = Address("127.0.0.1", 0)
    settings = Settings(http=anywhere, grpc=anywhere, store=url, api_keys=True, push=False)
    async with (
        open_app(settings, [work], ByHeader()) as app,
        grpc.aio.insecure_channel(str(app.grpc)) as channel,
    ):
        runtime, operations = app.runtime, app.runtime.operations
        store = runtime.store
        actions = actions or OperatorActions(runtime.auditor)
        keys = ApiKeyService(store.api_keys, clock=now_ms)
        signing_keys = StoredSigningKeys(store.key_values, b"s" * 32, AesGcmSecretBox(), clock=now_ms)
        services = AdminServices(
            actions=actions,
            runtime=runtime,
            api_keys=keys,
            signing_keys=signing_keys,
            worker_hub=_StoredWorkers(store),
            upstream_registry=_StoredUpstreams(store),
            clock=now_ms,
        )
        table = AdminTable(Cards(operations.access.agents, operations.access.root), services)
        stub: Any = rpc.A2AServiceStub(channel)
        yield TableUnderTest(app, store, url, folder, table, actions, keys, signing_keys, stub.SendMessage)
        await actions.close(60)


NewRequest = Callable[[TableUnderTest], Awaitable[Message]]
"""Prepares the store for a request, and returns the request."""


def _fixed(request: Message) -> NewRequest:
    async def new(_: TableUnderTest) -> Message:
        return request

    return new


def _for_task(request_type: Callable[..., Message], text: str = "go", **fields: Any) -> NewRequest:
    async def new(on: TableUnderTest) -> Message:
        return request_type(task_id=await on.send(text), **fields)

    return new


def _for_many(request_type: Callable[..., Message], text: str) -> NewRequest:
    async def new(on: TableUnderTest) -> Message:
        principal = on.new_name()
        for _ in range(3):
            await on.send(text, principal)
        return request_type(filter=tasks.ListTasksRequest(principal=principal))

    return new


async def _purge(on: TableUnderTest) -> Message:
    principal = on.new_name()
    for _ in range(3):
        await on.send("go", principal)
    return ops.PurgeRequest(selection=ops.Selection(principal=principal))


async def _redeliver(on: TableUnderTest) -> Message:
    (record,) = await on.store.locate(await on.send("ask"))
    await on.store.pushes.put(record.ref, PushConfig(id="hook", url="https://receiver.example/x", dialect="1.0"))
    request = push.RedeliverRequest(task_id=record.id)
    setattr(request, "from", 1)
    return request


async def _forget_agent(on: TableUnderTest) -> Message:
    name = on.new_name()
    await on.store.worker_registry.register(RegisteredAgent(name, "wanda", b"", 1, 1))
    return workers.ForgetAgentRequest(agent=name)


async def _add_upstream(on: TableUnderTest) -> Message:
    return upstreams.AddUpstreamRequest(url="https://agents.example", id=on.new_name())


async def _remove_upstream(on: TableUnderTest) -> Message:
    name = on.new_name()
    await on.store.upstreams.add(AddedUpstream(name, b"{}", 1))
    return upstreams.RemoveUpstreamRequest(agent=name)


async def _create_key(on: TableUnderTest) -> Message:
    return ops.CreateKeyRequest(name=on.new_name())


def _for_key(request_type: Callable[..., Message]) -> NewRequest:
    async def new(on: TableUnderTest) -> Message:
        key, _ = await on.keys.create(on.new_name())
        return request_type(id=key.id)

    return new


async def _withdraw_signing_key(on: TableUnderTest) -> Message:
    key = await on.signing_keys.rotate("ES256", lead=3_600_000, retention=3_600_000)
    return signing.WithdrawSigningKeyRequest(id=key.id)


async def _pause(on: TableUnderTest) -> Message:
    await on.app.runtime.scheduler.pauses.resume("work")
    return ops.PauseAgentRequest(agent="work")


async def _resume(on: TableUnderTest) -> Message:
    await on.app.runtime.scheduler.pauses.pause("work", "olga", "")
    return ops.ResumeAgentRequest(agent="work")


async def _backup(on: TableUnderTest) -> Message:
    return ops.BackupRequest(destination=str(on.folder / on.new_name()))


READS: Final[Mapping[str, NewRequest]] = {
    "ListAgents": _fixed(ops.ListAgentsRequest()),
    "GetOverview": _fixed(overview.GetOverviewRequest()),
    "ListWorkers": _fixed(workers.ListWorkersRequest()),
    "ListUpstreams": _fixed(upstreams.ListUpstreamsRequest()),
    "ListTasks": _fixed(tasks.ListTasksRequest(principal="alice")),
    "ListFailures": _fixed(failures.ListFailuresRequest(filter={"principal": "alice"})),
    "ListUsage": _fixed(usage.ListUsageRequest(principal="alice")),
    "ListKeys": _fixed(ops.ListKeysRequest()),
    "ListSigningKeys": _fixed(signing.ListSigningKeysRequest()),
    "Explain": _for_task(ops.ExplainRequest),
    "ListEvents": _for_task(events.ListEventsRequest),
    "ListSteps": _for_task(steps.ListStepsRequest),
    "ListStepContents": _for_task(steps.ListStepContentsRequest),
    "ListPushConfigs": _for_task(push.ListPushConfigsRequest),
}
STREAMS: Final[Mapping[str, NewRequest]] = {
    "WatchTasks": _fixed(tasks.WatchTasksRequest()),
    "ExportTask": _for_task(ops.ExportTaskRequest),
    "ExportAudit": _fixed(ops.ExportAuditRequest()),
    "Backup": _backup,
}
CHANGES: Final[Mapping[str, NewRequest]] = {
    "CancelTask": _for_task(tasks.CancelTaskRequest, "ask"),
    "RerunTask": _for_task(tasks.RerunTaskRequest),
    "CancelTasks": _for_many(bulk.CancelTasksRequest, "ask"),
    "RerunTasks": _for_many(bulk.RerunTasksRequest, "fail"),
    "EraseTasks": _for_many(bulk.EraseTasksRequest, "go"),
    "Purge": _purge,
    "Redeliver": _redeliver,
    "PauseAgent": _pause,
    "ResumeAgent": _resume,
    "ForgetAgent": _forget_agent,
    "AddUpstream": _add_upstream,
    "RemoveUpstream": _remove_upstream,
    "CreateKey": _create_key,
    "RotateKey": _for_key(ops.RotateKeyRequest),
    "RevokeKey": _for_key(ops.RevokeKeyRequest),
    "RotateSigningKey": _fixed(signing.RotateSigningKeyRequest(lead={"seconds": 0})),
    "WithdrawSigningKey": _withdraw_signing_key,
}
"""Every operation, by what it does."""
