"""The operators' service `dragoman.ops.v1`: one table of operations, and the service over gRPC.

gRPC serves every operation, HTTP those with a `google.api.http` rule, under `/operations`. Both authenticate the
operator and call the table, which records the call. Operations on a caller's own tasks are for every caller.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, Final, Never, Protocol

import grpc
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from dragoman.bindings import authentication
from dragoman.bindings.admin.actions import OperatorActions, OperatorCall
from dragoman.bindings.admin.bulk import BulkOperations
from dragoman.bindings.admin.fields import narrow_request
from dragoman.bindings.admin.maintenance import MaintenanceOperations
from dragoman.bindings.admin.server import AgentOperations, ApiKeyOperations, SigningKeyOperations
from dragoman.bindings.admin.tasks import ListedTaskOperations, TaskOperations
from dragoman.bindings.admin.usage import OverviewOperations, UsageOperations
from dragoman.bindings.cards import Cards
from dragoman.bindings.options import ServerOptions
from dragoman.bindings.request_log import GRPC_LABEL, RequestLogEntry, RequestMetrics
from dragoman.bindings.stream_registry import StreamRegistry
from dragoman.core.access.identity import Identity
from dragoman.core.errors import Unauthenticated
from dragoman.ports import SigningKeys, UpstreamRegistry, WorkerHub
from dragoman.runtime.api_keys import ApiKeyService
from dragoman.runtime.maintenance.admin import Maintenance
from dragoman.runtime.observe.explain import Explainer
from dragoman.runtime.operations.bulk_tasks import BulkTasks
from dragoman.runtime.operations.caller_tasks import CallerTasks, CallerUsage
from dragoman.runtime.operations.operator_tasks import OperatorTasks
from dragoman.runtime.operations.overview import Overviews
from dragoman.runtime.pauses import AgentPauses
from dragoman.runtime.push.scheduler import Redelivery
from dragoman.wire.field_count import parse_message
from dragoman_pb.dragoman.ops.v1 import ops_pb2 as ops

OPS_SERVICE: Final = ops.DESCRIPTOR.services_by_name["OpsService"]

GrpcContext = grpc.aio.ServicerContext[bytes, bytes]
UnaryOperation = Callable[[Any], Coroutine[Any, Any, Message]]
CallerOperation = Callable[[Identity, bool, Any], Coroutine[Any, Any, Message]]
"""Gets the caller, and whether it is an operator or viewer."""
OperatorOperation = Callable[[Identity, Any], Coroutine[Any, Any, Message]]
StreamingOperation = Callable[[Any], AsyncGenerator[Message, None]]
StreamingCallerOperation = Callable[[Identity, bool, Any], AsyncGenerator[Message, None]]
"""As CallerOperation."""

_CALLED_REMOTELY: Final = frozenset(("ListAgents", "ListTasks", "WatchTasks"))
"""Operations that a server without authentication offers over gRPC to other machines, too: of tasks, their own."""

VIEWER_OPERATIONS: Final = frozenset(
    (
        "ListAgents",
        "GetOverview",
        "Explain",
        "ListEvents",
        "ListSteps",
        "ListPushConfigs",
        "ListWorkers",
        "ListUpstreams",
    )
)
"""Operations that the grant `viewer` allows, besides those that need no grant."""

LIMITED_OPERATIONS: Final = frozenset(
    (
        "ListAgents",
        "GetOverview",
        "PauseAgent",
        "ResumeAgent",
        "CancelTask",
        "RerunTask",
        "CancelTasks",
        "RerunTasks",
        "EraseTasks",
        "Explain",
        "ListEvents",
        "ListSteps",
        "ListPushConfigs",
        "Redeliver",
        "Purge",
        "ExportTask",
    )
)
"""Operations that operators and viewers of some scopes or agents may call, on tasks within these."""


@dataclass(frozen=True, slots=True)
class AdminServices:
    """The services that operator calls use."""

    actions: OperatorActions
    caller_tasks: CallerTasks
    caller_usage: CallerUsage
    operator_tasks: OperatorTasks
    bulk_tasks: BulkTasks
    overviews: Overviews
    explainer: Explainer
    pauses: AgentPauses
    maintenance: Maintenance
    redelivery: Redelivery
    api_keys: ApiKeyService
    signing_keys: SigningKeys
    worker_hub: WorkerHub
    upstream_registry: UpstreamRegistry
    trace_url: str = ""
    """The URL of a trace, with `{trace_id}` or `{task_id}`; empty for none."""


class OperationTable:
    """The operations by method name. The request type is in the service's descriptor."""

    def __init__(self, cards: Cards, services: AdminServices) -> None:
        agents = AgentOperations(
            cards, services.explainer, services.pauses, services.worker_hub, services.upstream_registry
        )
        tasks = TaskOperations(services.explainer, services.maintenance, services.redelivery, services.trace_url)
        listed_tasks = ListedTaskOperations(services.caller_tasks, services.operator_tasks)
        bulk = BulkOperations(services.bulk_tasks)
        maintenance = MaintenanceOperations(services.maintenance)
        api_keys = ApiKeyOperations(services.api_keys)
        signing_keys = SigningKeyOperations(services.signing_keys)
        self._actions = services.actions
        self._unary: Final[Mapping[str, UnaryOperation]] = {
            "ListAgents": agents.list_agents,
            "ListWorkers": agents.list_workers,
            "ForgetAgent": agents.forget_agent,
            "ListUpstreams": agents.list_upstreams,
            "AddUpstream": agents.add_upstream,
            "RemoveUpstream": agents.remove_upstream,
            "ListEvents": tasks.list_events,
            "ListSteps": tasks.list_steps,
            "ListPushConfigs": tasks.list_push_configs,
            "Redeliver": tasks.redeliver,
            "Purge": maintenance.purge,
            "CreateKey": api_keys.create_key,
            "ListKeys": api_keys.list_keys,
            "RotateKey": api_keys.rotate_key,
            "RevokeKey": api_keys.revoke_key,
            "ListSigningKeys": signing_keys.list_signing_keys,
            "RotateSigningKey": signing_keys.rotate_signing_key,
            "WithdrawSigningKey": signing_keys.withdraw_signing_key,
        }
        self._for_callers: Final[Mapping[str, CallerOperation]] = {
            "ListTasks": listed_tasks.list_tasks,
            "ListUsage": UsageOperations(services.caller_usage).list_usage,
        }
        """Operations that need no grant."""
        self._for_operators: Final[Mapping[str, OperatorOperation]] = {
            "Explain": tasks.explain,
            "CancelTask": listed_tasks.cancel_task,
            "RerunTask": listed_tasks.rerun_task,
            "PauseAgent": agents.pause_agent,
            "ResumeAgent": agents.resume_agent,
            "CancelTasks": bulk.cancel_tasks,
            "RerunTasks": bulk.rerun_tasks,
            "EraseTasks": bulk.erase_tasks,
        }
        """Operations that depend on who the operator or viewer is."""
        self._within_grants: Final[Mapping[str, OperatorOperation]] = {
            "GetOverview": OverviewOperations(services.overviews).get_overview
        }
        """Operations that cover all scopes and agents in the grants of the operator or viewer."""
        self._streaming: Final[Mapping[str, StreamingOperation]] = {
            "ExportTask": maintenance.export_task,
            "Backup": maintenance.backup,
            "ExportAudit": maintenance.export_audit,
        }
        self._streaming_for_callers: Final[Mapping[str, StreamingCallerOperation]] = {
            "WatchTasks": listed_tasks.watch_tasks
        }
        """Streaming operations that need no grant."""

    def unary_names(self) -> Iterator[str]:
        """The names of all unary operations."""
        return chain(self._unary, self._for_callers, self._for_operators, self._within_grants)

    def streaming_names(self) -> Iterator[str]:
        """The names of all streaming operations."""
        return chain(self._streaming, self._streaming_for_callers)

    async def run(self, name: str, operator: OperatorCall, request: Message) -> Message:
        """Calls a unary operation, and records it. Raises A2AError."""
        if name not in self._for_callers and name not in self._within_grants:
            narrow_request(request, operator.identity)
        return await self._actions.run(name, operator, request, partial(self._call, name, operator, request))

    def _call(self, name: str, operator: OperatorCall, request: Message) -> Coroutine[Any, Any, Message]:
        if name in self._for_callers:
            return self._for_callers[name](operator.identity, operator.is_viewer, request)
        if name in self._within_grants:
            return self._within_grants[name](operator.identity, request)
        if name in self._for_operators:
            return self._for_operators[name](operator.identity, request)
        return self._unary[name](request)

    def stream(self, name: str, operator: OperatorCall, request: Message) -> AsyncGenerator[Message, None]:
        """Calls a streaming operation, and records it. Raises A2AError, as does the stream."""
        if name in self._streaming_for_callers:
            responses = self._streaming_for_callers[name](operator.identity, operator.is_viewer, request)
        else:
            narrow_request(request, operator.identity)
            responses = self._streaming[name](request)
        return self._actions.stream(name, operator, request, responses)

    def is_for_callers(self, name: str) -> bool:
        """Whether an operation needs no grant."""
        return name in self._for_callers or name in self._streaming_for_callers


def request_type_of(name: str) -> type[Message]:
    return GetMessageClass(OPS_SERVICE.methods_by_name[name].input_type)


# ---- gRPC


class AbortCall(Protocol):
    """Aborts a failed call."""

    @property
    def metrics(self) -> RequestMetrics:
        """Counts the calls."""
        ...

    async def __call__(self, context: GrpcContext, error: Exception, log_entry: RequestLogEntry) -> Never:
        """Aborts the call; never returns."""
        ...


class ReadMessage(Protocol):
    """Reads messages of gRPC calls."""

    async def read(self, context: GrpcContext, principal: str) -> bytes:
        """Returns the message of a call. Raises A2AError."""
        ...


async def authorize_grpc(
    context: GrpcContext,
    options: ServerOptions,
    operation: str = "",
    *,
    local_only: bool = True,
    for_callers: bool = False,
) -> OperatorCall:
    """Authenticates the operator of a gRPC call. Raises Unauthenticated, PermissionDenied.

    `local_only`: without authentication only callers on this machine are operators. `--insecure` opens the agents to
    other machines, but not the tasks of all callers. `for_callers`: the operation needs no grant.
    `operation`: its name, if viewers or operators with grants for scopes or agents may call it.
    """
    metadata = [(key, text) for key, text in context.invocation_metadata() or () if isinstance(text, str)]
    if local_only and options.authenticator is None and not authentication.is_local(metadata, options, context):
        raise Unauthenticated(authentication.LOCAL_ONLY.format(what="operations on the store are allowed"))
    return await authorize(metadata, options, context, context.peer(), operation, for_callers)


async def authorize(
    headers: Iterable[tuple[str, str]],
    options: ServerOptions,
    connection: authentication.CallerConnection,
    peer: str,
    operation: str,
    for_callers: bool,
) -> OperatorCall:
    if not for_callers:
        identity = await authentication.authenticate_operator(
            headers,
            options,
            connection,
            viewer=operation in VIEWER_OPERATIONS,
            limited=operation in LIMITED_OPERATIONS,
        )
        return OperatorCall(identity, peer)
    identity = await authentication.authenticate(headers, options, connection)
    if options.authenticator is None:
        is_viewer = authentication.is_local(headers, options, connection)
    else:
        is_viewer = identity.is_viewer
    return OperatorCall(identity, peer, is_viewer)


def grpc_handler(
    services: AdminServices,
    cards: Cards,
    options: ServerOptions,
    abort: AbortCall,
    streams: StreamRegistry,
    reader: ReadMessage,
) -> grpc.GenericRpcHandler:
    """The handler of the operators' service for grpc."""
    table = OperationTable(cards, services)

    def unary(name: str) -> grpc.RpcMethodHandler[bytes, bytes]:
        request_type, for_callers = request_type_of(name), table.is_for_callers(name)

        async def call(_: object, context: GrpcContext) -> bytes:
            log_entry = RequestLogEntry(abort.metrics, GRPC_LABEL, f"{OPS_SERVICE.full_name}/{name}", "ops")
            try:
                operator = await authorize_grpc(
                    context, options, name, local_only=name not in _CALLED_REMOTELY, for_callers=for_callers
                )
                request = parse_message(request_type, await reader.read(context, operator.identity.principal))
                encoded = (await table.run(name, operator, request)).SerializeToString()
            except Exception as error:
                await abort(context, error, log_entry)
            log_entry.finish("OK")
            return encoded

        return grpc.stream_unary_rpc_method_handler(call)

    def streaming(name: str) -> grpc.RpcMethodHandler[bytes, bytes]:
        request_type, for_callers = request_type_of(name), table.is_for_callers(name)

        async def call(_: object, context: GrpcContext) -> AsyncIterator[bytes]:
            log_entry = RequestLogEntry(abort.metrics, GRPC_LABEL, f"{OPS_SERVICE.full_name}/{name}", "ops")
            try:
                with streams.open() as stream:
                    operator = await authorize_grpc(
                        context, options, name, local_only=name not in _CALLED_REMOTELY, for_callers=for_callers
                    )
                    stream.identity = operator.identity
                    request = parse_message(request_type, await reader.read(context, operator.identity.principal))
                    responses = table.stream(name, operator, request)
                    async with aclosing(responses):
                        async for response in responses:
                            yield response.SerializeToString()
            except Exception as error:
                await abort(context, error, log_entry)
            except asyncio.CancelledError:
                if end_reason := streams.take_end_reason():
                    await abort(context, end_reason, log_entry)
                log_entry.finish("CANCELLED")
                raise
            log_entry.finish("OK")

        return grpc.stream_stream_rpc_method_handler(call)

    handlers = {name: unary(name) for name in table.unary_names()}
    handlers |= {name: streaming(name) for name in table.streaming_names()}
    return grpc.method_handlers_generic_handler(OPS_SERVICE.full_name, handlers)
