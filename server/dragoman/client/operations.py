"""Operators' calls: `dragoman.ops.v1` over gRPC."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import grpc
from google.protobuf.message import Message

from dragoman.calling import tls
from dragoman.calling.errors import ClientError
from dragoman_pb.dragoman.ops.v1 import ops_pb2 as ops
from dragoman_pb.dragoman.ops.v1 import push_pb2 as push
from dragoman_pb.dragoman.ops.v1 import signing_pb2 as signing
from dragoman_pb.dragoman.ops.v1 import upstreams_pb2 as upstreams
from dragoman_pb.dragoman.ops.v1 import workers_pb2 as workers

M = TypeVar("M", bound=Message)

_OPS_SERVICE: Final = ops.DESCRIPTOR.services_by_name["OpsService"].full_name
_OPS_CHANNEL_OPTIONS: Final = (("grpc.max_receive_message_length", -1),)


class Operator:
    """One server at HOST:PORT, for those who run it. An asynchronous context manager; all calls raise ClientError."""

    def __init__(self, address: str, *, token: str = "", ca: Path | None = None, cert: Path | None = None) -> None:
        """token: shown as bearer token, where the server asks who calls. `address`, `ca`, `cert`: as of a `Client`."""
        self._address = address
        self._ca = ca
        self._cert = cert
        self._metadata = (("authorization", f"Bearer {token}"),) if token else ()
        self._channel: grpc.aio.Channel | None = None

    async def __aenter__(self) -> Self:
        self._channel = tls.grpc_channel(self._address, _OPS_CHANNEL_OPTIONS, ca=self._ca, cert=self._cert)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._channel is not None:
            await self._channel.close()
        self._channel = None

    async def purge(self, request: ops.PurgeRequest) -> ops.PurgeResponse:
        """Erases tasks. Waits as long as it takes."""
        return await self._unary("Purge", request, ops.PurgeResponse)

    async def list_agents(self, request: ops.ListAgentsRequest) -> ops.ListAgentsResponse:
        """The agents, the root agent first."""
        return await self._unary("ListAgents", request, ops.ListAgentsResponse)

    async def explain(self, request: ops.ExplainRequest) -> ops.ExplainResponse:
        """Where a task stands."""
        return await self._unary("Explain", request, ops.ExplainResponse)

    async def export_audit(self, request: ops.ExportAuditRequest) -> AsyncGenerator[ops.ExportAuditResponse, None]:
        """The audit log."""
        async for answer in self._stream("ExportAudit", request, ops.ExportAuditResponse):
            yield answer

    async def create_key(self, request: ops.CreateKeyRequest) -> ops.CreateKeyResponse:
        """Makes an API key; its text is in the answer alone."""
        return await self._unary("CreateKey", request, ops.CreateKeyResponse)

    async def list_keys(self, request: ops.ListKeysRequest) -> ops.ListKeysResponse:
        """The API keys, the newest first."""
        return await self._unary("ListKeys", request, ops.ListKeysResponse)

    async def rotate_key(self, request: ops.RotateKeyRequest) -> ops.RotateKeyResponse:
        """Gives a key another text."""
        return await self._unary("RotateKey", request, ops.RotateKeyResponse)

    async def revoke_key(self, request: ops.RevokeKeyRequest) -> ops.RevokeKeyResponse:
        """Ends a key for good."""
        return await self._unary("RevokeKey", request, ops.RevokeKeyResponse)

    async def list_push_configs(self, request: push.ListPushConfigsRequest) -> push.ListPushConfigsResponse:
        """Push configurations, and how far they are."""
        return await self._unary("ListPushConfigs", request, push.ListPushConfigsResponse)

    async def redeliver(self, request: push.RedeliverRequest) -> push.RedeliverResponse:
        """Has events delivered, once more or after all."""
        return await self._unary("Redeliver", request, push.RedeliverResponse)

    async def list_workers(self, request: workers.ListWorkersRequest) -> workers.ListWorkersResponse:
        """The agents of workers, and who has them."""
        return await self._unary("ListWorkers", request, workers.ListWorkersResponse)

    async def forget_agent(self, request: workers.ForgetAgentRequest) -> workers.ForgetAgentResponse:
        """Frees the id of an agent that workers had."""
        return await self._unary("ForgetAgent", request, workers.ForgetAgentResponse)

    async def list_signing_keys(self, request: signing.ListSigningKeysRequest) -> signing.ListSigningKeysResponse:
        """The signing keys that are shown."""
        return await self._unary("ListSigningKeys", request, signing.ListSigningKeysResponse)

    async def rotate_signing_key(self, request: signing.RotateSigningKeyRequest) -> signing.RotateSigningKeyResponse:
        """Makes another signing key."""
        return await self._unary("RotateSigningKey", request, signing.RotateSigningKeyResponse)

    async def withdraw_signing_key(
        self, request: signing.WithdrawSigningKeyRequest
    ) -> signing.WithdrawSigningKeyResponse:
        """Takes a signing key away."""
        return await self._unary("WithdrawSigningKey", request, signing.WithdrawSigningKeyResponse)

    async def list_upstreams(self, request: upstreams.ListUpstreamsRequest) -> upstreams.ListUpstreamsResponse:
        """The agents upstream, and how it stands with them."""
        return await self._unary("ListUpstreams", request, upstreams.ListUpstreamsResponse)

    async def add_upstream(self, request: upstreams.AddUpstreamRequest) -> upstreams.AddUpstreamResponse:
        """Stands in front of one more agent."""
        return await self._unary("AddUpstream", request, upstreams.AddUpstreamResponse)

    async def remove_upstream(self, request: upstreams.RemoveUpstreamRequest) -> upstreams.RemoveUpstreamResponse:
        """Stands in front of an agent no longer."""
        return await self._unary("RemoveUpstream", request, upstreams.RemoveUpstreamResponse)

    def export_task(self, request: ops.ExportTaskRequest) -> AsyncGenerator[ops.ExportTaskResponse, None]:
        """Everything that is kept of a task."""
        return self._stream("ExportTask", request, ops.ExportTaskResponse)

    def backup(self, request: ops.BackupRequest) -> AsyncGenerator[ops.BackupResponse, None]:
        """Copies the server's store, on its machine."""
        return self._stream("Backup", request, ops.BackupResponse)

    async def _unary(self, name: str, request: Message, response_type: type[M]) -> M:
        method = self._open_channel.unary_unary(
            f"/{_OPS_SERVICE}/{name}", type(request).SerializeToString, response_type.FromString
        )
        try:
            return await method(request, metadata=self._metadata)
        except grpc.aio.AioRpcError as error:
            raise ClientError.from_rpc_error(error) from error

    async def _stream(self, name: str, request: Message, response_type: type[Any]) -> AsyncGenerator[Any, None]:
        method = self._open_channel.unary_stream(
            f"/{_OPS_SERVICE}/{name}", type(request).SerializeToString, response_type.FromString
        )
        answers = method(request, metadata=self._metadata)
        try:
            async for one in answers:
                yield one
        except grpc.aio.AioRpcError as error:
            raise ClientError.from_rpc_error(error) from error
        finally:
            answers.cancel()

    @property
    def _open_channel(self) -> grpc.aio.Channel:
        if self._channel is None:
            raise RuntimeError("use an Operator inside `async with`")
        return self._channel
