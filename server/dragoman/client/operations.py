"""Client of the operators' API `dragoman.ops.v1`, over gRPC and HTTP."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import aclosing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self, TypeVar, cast

from google.protobuf.message import Message

from dragoman.calling.errors import ProtocolError
from dragoman.calling.transport import Transport
from dragoman.client.agent_connection import grpc_address, is_http_url, server_url, split_grpc_url, url_problem
from dragoman.client.options import CallOptions
from dragoman.wire.cards.remote_card import Interface
from dragoman_pb.dragoman.ops import v1 as ops
from dragoman_pb.dragoman.ops.v1 import ops_pb2

if TYPE_CHECKING:
    from dragoman.client.http_client import OperationsTransport

M = TypeVar("M", bound=Message)
Q = TypeVar("Q", bound=Message)
OperatorMethod = Callable[["Operator", Q], Coroutine[Any, Any, M]]

_OPS_SERVICE: Final = ops_pb2.DESCRIPTOR.services_by_name["OpsService"]


def _unary(request_type: type[Q], response_type: type[M]) -> OperatorMethod[Q, M]:
    """A method of Operator for the unary call with these types."""

    async def call(self: Operator, request: Q) -> M:
        return cast(M, await (await self._transport(rpc, request)).call(rpc, request))

    rpc = request_type.DESCRIPTOR.name.removesuffix("Request")
    return call


def _stream(request_type: type[Q], response_type: type[M]) -> Callable[[Operator, Q], AsyncGenerator[M, None]]:
    """A method of Operator for the streaming call with these types."""

    async def stream(self: Operator, request: Q) -> AsyncGenerator[M, None]:
        async with aclosing((await self._transport(rpc, request)).stream(rpc, request)) as responses:
            async for response in responses:
                yield cast(M, response)

    rpc = request_type.DESCRIPTOR.name.removesuffix("Request")
    return stream


class CallerInfo(NamedTuple):
    """Who a server takes the caller for."""

    principal: str
    grants: list[str]


class Operator:
    """Operators' client of one server. An asynchronous context manager; all calls raise ClientError. At an HTTP
    address, the calls that have an HTTP rule use it; the others use the gRPC address that the server's card names."""

    def __init__(self, address: str, *, token: str = "", ca: Path | None = None, cert: Path | None = None) -> None:
        """token: sent as bearer token; empty sends none. `address`, `ca`, `cert`: as for `Client`. Raises ValueError
        for an invalid address."""
        if "://" in address and (problem := url_problem(address)):
            raise ValueError(problem)
        self._address = address if is_http_url(address) else split_grpc_url(address)[0]
        self._options = CallOptions(token=token, ca=ca, cert=cert)
        self._is_open = False
        self._http: OperationsTransport | None = None
        self._grpc: Transport | None = None

    async def __aenter__(self) -> Self:
        if is_http_url(self._address):
            from dragoman.client.http_client import OperationsTransport

            self._http = OperationsTransport(server_url(self._address), self._options)
        self._is_open = True
        return self

    async def __aexit__(self, *_: object) -> None:
        self._is_open = False
        transports, self._http, self._grpc = (self._http, self._grpc), None, None
        for transport in transports:
            if transport is not None:
                await transport.close()

    async def whoami(self) -> CallerInfo | None:
        """Returns the caller's principal and grants; None over gRPC and from servers that do not tell them. Raises
        NotAllowed for credentials that the server rejects."""
        if self._http is not None:
            with suppress(ProtocolError, KeyError, TypeError):  # another answer to this path
                body = await self._http.get_json("/console/caller")
                return CallerInfo(body["principal"], body["grants"])
        await self.list_tasks(ops.ListTasksRequest(own=True, limit=1))
        return None

    # Calls by name, as proto/dragoman/ops/v1 describes them. Streams are asynchronous generators.
    purge = _unary(ops.PurgeRequest, ops.PurgeResponse)
    list_agents = _unary(ops.ListAgentsRequest, ops.ListAgentsResponse)
    list_tasks = _unary(ops.ListTasksRequest, ops.ListTasksResponse)
    rerun_task = _unary(ops.RerunTaskRequest, ops.RerunTaskResponse)
    cancel_task = _unary(ops.CancelTaskRequest, ops.CancelTaskResponse)
    cancel_tasks = _unary(ops.CancelTasksRequest, ops.CancelTasksResponse)
    rerun_tasks = _unary(ops.RerunTasksRequest, ops.RerunTasksResponse)
    erase_tasks = _unary(ops.EraseTasksRequest, ops.EraseTasksResponse)
    list_failures = _unary(ops.ListFailuresRequest, ops.ListFailuresResponse)
    list_usage = _unary(ops.ListUsageRequest, ops.ListUsageResponse)
    get_overview = _unary(ops.GetOverviewRequest, ops.GetOverviewResponse)
    watch_tasks = _stream(ops.WatchTasksRequest, ops.WatchTasksResponse)
    list_events = _unary(ops.ListEventsRequest, ops.ListEventsResponse)
    explain = _unary(ops.ExplainRequest, ops.ExplainResponse)
    list_steps = _unary(ops.ListStepsRequest, ops.ListStepsResponse)
    list_step_contents = _unary(ops.ListStepContentsRequest, ops.ListStepContentsResponse)
    export_audit = _stream(ops.ExportAuditRequest, ops.ExportAuditResponse)
    create_key = _unary(ops.CreateKeyRequest, ops.CreateKeyResponse)
    list_keys = _unary(ops.ListKeysRequest, ops.ListKeysResponse)
    rotate_key = _unary(ops.RotateKeyRequest, ops.RotateKeyResponse)
    revoke_key = _unary(ops.RevokeKeyRequest, ops.RevokeKeyResponse)
    list_push_configs = _unary(ops.ListPushConfigsRequest, ops.ListPushConfigsResponse)
    redeliver = _unary(ops.RedeliverRequest, ops.RedeliverResponse)
    list_workers = _unary(ops.ListWorkersRequest, ops.ListWorkersResponse)
    forget_agent = _unary(ops.ForgetAgentRequest, ops.ForgetAgentResponse)
    list_signing_keys = _unary(ops.ListSigningKeysRequest, ops.ListSigningKeysResponse)
    rotate_signing_key = _unary(ops.RotateSigningKeyRequest, ops.RotateSigningKeyResponse)
    withdraw_signing_key = _unary(ops.WithdrawSigningKeyRequest, ops.WithdrawSigningKeyResponse)
    list_upstreams = _unary(ops.ListUpstreamsRequest, ops.ListUpstreamsResponse)
    add_upstream = _unary(ops.AddUpstreamRequest, ops.AddUpstreamResponse)
    pause_agent = _unary(ops.PauseAgentRequest, ops.PauseAgentResponse)
    resume_agent = _unary(ops.ResumeAgentRequest, ops.ResumeAgentResponse)
    remove_upstream = _unary(ops.RemoveUpstreamRequest, ops.RemoveUpstreamResponse)
    export_task = _stream(ops.ExportTaskRequest, ops.ExportTaskResponse)
    backup = _stream(ops.BackupRequest, ops.BackupResponse)

    async def _transport(self, name: str, request: Message) -> Transport:
        """The transport for a call: HTTP if the call has a rule for it."""
        if self._http is not None and self._http.rule_of(name, request) is not None:
            return self._http
        if not self._is_open:
            raise RuntimeError("use an Operator inside `async with`")
        if self._grpc is None:
            from dragoman.calling.transport_grpc import GrpcTransport
            from dragoman.wire.client_operations import unconverted

            operations = {one.name: unconverted(_OPS_SERVICE, one.name) for one in _OPS_SERVICE.methods}
            is_http = is_http_url(self._address)
            address = await grpc_address(self._address, self._options) if is_http else self._address
            self._grpc = GrpcTransport(
                Interface(address, "GRPC", "1.0"),
                self._options.for_transport(address, self._options.request_headers),
                connect=lambda: self._options.grpc_channel(address),
                keeps_channels=True,
                operations=operations,
            )
        return self._grpc
