"""Client of the operators' API `dragoman.ops.v1`, over gRPC and HTTP."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import aclosing, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self, TypeVar
from urllib.parse import quote, urlencode

import orjson
from google.protobuf.message import Message

from dragoman.calling import tls
from dragoman.calling.errors import ClientError, ResponseErrors
from dragoman.calling.transport_http import JSON_MEDIA_TYPE, MAX_SSE_EVENT_BYTES, SSE_MEDIA_TYPE
from dragoman.client.agent_connection import grpc_address, is_http_url, server_url, split_grpc_url, url_problem
from dragoman.client.transport import CallOptions
from dragoman.wire.http import httprule, sse
from dragoman.wire.http.httprule import Rule
from dragoman.wire.json import protojson
from dragoman_pb.dragoman.ops.v1 import bulk_pb2 as bulk
from dragoman_pb.dragoman.ops.v1 import events_pb2 as events
from dragoman_pb.dragoman.ops.v1 import ops_pb2 as ops
from dragoman_pb.dragoman.ops.v1 import overview_pb2 as overview
from dragoman_pb.dragoman.ops.v1 import push_pb2 as push
from dragoman_pb.dragoman.ops.v1 import signing_pb2 as signing
from dragoman_pb.dragoman.ops.v1 import steps_pb2 as steps
from dragoman_pb.dragoman.ops.v1 import tasks_pb2 as tasks
from dragoman_pb.dragoman.ops.v1 import upstreams_pb2 as upstreams
from dragoman_pb.dragoman.ops.v1 import usage_pb2 as usage
from dragoman_pb.dragoman.ops.v1 import workers_pb2 as workers

if TYPE_CHECKING:
    import grpc

    from dragoman.client.http_client import AiohttpClient

M = TypeVar("M", bound=Message)

_OPS_SERVICE: Final = ops.DESCRIPTOR.services_by_name["OpsService"]
_OPS_CHANNEL_OPTIONS: Final = (("grpc.max_receive_message_length", -1),)
_OPS_JSON: Final = protojson.JsonDialect("1.0")


class CallerInfo(NamedTuple):
    """Who a server takes the caller for."""

    principal: str
    grants: list[str]


class Operator:
    """Operators' client of one server. An asynchronous context manager; all calls raise ClientError.

    At an HTTP address, the calls that have an HTTP rule use it; the others use the gRPC address that the server's card
    names.
    """

    def __init__(self, address: str, *, token: str = "", ca: Path | None = None, cert: Path | None = None) -> None:
        """token: sent as bearer token; empty sends none. `address`, `ca`, `cert`: as for `Client`.

        Raises ValueError for an invalid address.
        """
        if "://" in address and (problem := url_problem(address)):
            raise ValueError(problem)
        self._address = address if is_http_url(address) else split_grpc_url(address)[0]
        self._options = CallOptions(token=token, ca=ca, cert=cert)
        self._metadata = (("authorization", f"Bearer {token}"),) if token else ()
        self._is_open = False
        self._channel: grpc.aio.Channel | None = None
        self._http: AiohttpClient | None = None

    async def __aenter__(self) -> Self:
        if is_http_url(self._address):
            from dragoman.client.http_client import AiohttpClient

            url = server_url(self._address)
            self._http = AiohttpClient(url, self._options, self._options.request_headers)
        else:
            self._channel = self._new_channel(self._address)
        self._is_open = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_open = False
        if self._channel is not None:
            await self._channel.close()
        if self._http is not None:
            await self._http.close()
        self._channel = self._http = None

    async def whoami(self) -> CallerInfo | None:
        """Returns the caller's principal and grants; None over gRPC and from servers that do not tell them.

        Raises NotAllowed for credentials that the server rejects.
        """
        if self._http is not None:
            url = f"{server_url(self._address)}/console/caller"
            async with self._http.open("GET", url, {"Accept": JSON_MEDIA_TYPE}, idle_timeout=None) as response:
                data = b"".join([chunk async for chunk in response.chunks()])
            with suppress(orjson.JSONDecodeError, KeyError, TypeError):  # another answer to this path
                body = orjson.loads(data)
                return CallerInfo(body["principal"], body["grants"])
        await self.list_tasks(tasks.ListTasksRequest(own=True, limit=1))
        return None

    async def purge(self, request: ops.PurgeRequest) -> ops.PurgeResponse:
        """Erases tasks. Has no timeout."""
        return await self._unary("Purge", request, ops.PurgeResponse)

    async def list_agents(self, request: ops.ListAgentsRequest) -> ops.ListAgentsResponse:
        """Lists the agents, the root agent first."""
        return await self._unary("ListAgents", request, ops.ListAgentsResponse)

    async def list_tasks(self, request: tasks.ListTasksRequest) -> tasks.ListTasksResponse:
        """Lists the caller's tasks with all agents in all scopes. Needs no grant."""
        return await self._unary("ListTasks", request, tasks.ListTasksResponse)

    async def rerun_task(self, request: tasks.RerunTaskRequest) -> tasks.RerunTaskResponse:
        """Sends the first message of an ended task again, as a new task."""
        return await self._unary("RerunTask", request, tasks.RerunTaskResponse)

    async def cancel_tasks(self, request: bulk.CancelTasksRequest) -> bulk.CancelTasksResponse:
        """Cancels a page of the tasks that a filter selects."""
        return await self._unary("CancelTasks", request, bulk.CancelTasksResponse)

    async def rerun_tasks(self, request: bulk.RerunTasksRequest) -> bulk.RerunTasksResponse:
        """Reruns a page of the tasks that a filter selects."""
        return await self._unary("RerunTasks", request, bulk.RerunTasksResponse)

    async def erase_tasks(self, request: bulk.EraseTasksRequest) -> bulk.EraseTasksResponse:
        """Erases a page of the tasks that a filter selects."""
        return await self._unary("EraseTasks", request, bulk.EraseTasksResponse)

    async def list_usage(self, request: usage.ListUsageRequest) -> usage.ListUsageResponse:
        """Lists sums of daily usage: of all callers for operators, of its own for other callers."""
        return await self._unary("ListUsage", request, usage.ListUsageResponse)

    async def get_overview(self, request: overview.GetOverviewRequest) -> overview.GetOverviewResponse:
        """Shows for each agent what waits and runs now, and what was done in the last hours."""
        return await self._unary("GetOverview", request, overview.GetOverviewResponse)

    def watch_tasks(self, request: tasks.WatchTasksRequest) -> AsyncGenerator[tasks.WatchTasksResponse, None]:
        """Yields the tasks as `list_tasks` does, and again whenever the list has changed. Does not end."""
        return self._stream("WatchTasks", request, tasks.WatchTasksResponse)

    async def list_events(self, request: events.ListEventsRequest) -> events.ListEventsResponse:
        """Lists events of a task by sequence."""
        return await self._unary("ListEvents", request, events.ListEventsResponse)

    async def explain(self, request: ops.ExplainRequest) -> ops.ExplainResponse:
        """Explains the state of a task: why it waits or runs, and where."""
        return await self._unary("Explain", request, ops.ExplainResponse)

    async def list_steps(self, request: steps.ListStepsRequest) -> steps.ListStepsResponse:
        """Lists the durable steps of a task."""
        return await self._unary("ListSteps", request, steps.ListStepsResponse)

    async def export_audit(self, request: ops.ExportAuditRequest) -> AsyncGenerator[ops.ExportAuditResponse, None]:
        """Yields the audit log."""
        async for response in self._stream("ExportAudit", request, ops.ExportAuditResponse):
            yield response

    async def create_key(self, request: ops.CreateKeyRequest) -> ops.CreateKeyResponse:
        """Creates an API key. Only this response contains its secret."""
        return await self._unary("CreateKey", request, ops.CreateKeyResponse)

    async def list_keys(self, request: ops.ListKeysRequest) -> ops.ListKeysResponse:
        """Lists the API keys, newest first."""
        return await self._unary("ListKeys", request, ops.ListKeysResponse)

    async def rotate_key(self, request: ops.RotateKeyRequest) -> ops.RotateKeyResponse:
        """Replaces the secret of an API key."""
        return await self._unary("RotateKey", request, ops.RotateKeyResponse)

    async def revoke_key(self, request: ops.RevokeKeyRequest) -> ops.RevokeKeyResponse:
        """Revokes an API key permanently."""
        return await self._unary("RevokeKey", request, ops.RevokeKeyResponse)

    async def list_push_configs(self, request: push.ListPushConfigsRequest) -> push.ListPushConfigsResponse:
        """Lists push configurations with their delivery state."""
        return await self._unary("ListPushConfigs", request, push.ListPushConfigsResponse)

    async def redeliver(self, request: push.RedeliverRequest) -> push.RedeliverResponse:
        """Delivers events to webhooks again, also those that were given up."""
        return await self._unary("Redeliver", request, push.RedeliverResponse)

    async def list_workers(self, request: workers.ListWorkersRequest) -> workers.ListWorkersResponse:
        """Lists the agents of workers, with the workers that are connected."""
        return await self._unary("ListWorkers", request, workers.ListWorkersResponse)

    async def forget_agent(self, request: workers.ForgetAgentRequest) -> workers.ForgetAgentResponse:
        """Removes an agent of workers from the registry, which frees its id."""
        return await self._unary("ForgetAgent", request, workers.ForgetAgentResponse)

    async def list_signing_keys(self, request: signing.ListSigningKeysRequest) -> signing.ListSigningKeysResponse:
        """Lists the published signing keys."""
        return await self._unary("ListSigningKeys", request, signing.ListSigningKeysResponse)

    async def rotate_signing_key(self, request: signing.RotateSigningKeyRequest) -> signing.RotateSigningKeyResponse:
        """Creates a new signing key, which replaces the current one."""
        return await self._unary("RotateSigningKey", request, signing.RotateSigningKeyResponse)

    async def withdraw_signing_key(
        self, request: signing.WithdrawSigningKeyRequest
    ) -> signing.WithdrawSigningKeyResponse:
        """Withdraws a signing key."""
        return await self._unary("WithdrawSigningKey", request, signing.WithdrawSigningKeyResponse)

    async def list_upstreams(self, request: upstreams.ListUpstreamsRequest) -> upstreams.ListUpstreamsResponse:
        """Lists the upstream agents with their state."""
        return await self._unary("ListUpstreams", request, upstreams.ListUpstreamsResponse)

    async def add_upstream(self, request: upstreams.AddUpstreamRequest) -> upstreams.AddUpstreamResponse:
        """Adds an upstream agent."""
        return await self._unary("AddUpstream", request, upstreams.AddUpstreamResponse)

    async def pause_agent(self, request: ops.PauseAgentRequest) -> ops.PauseAgentResponse:
        """Pauses an agent: its tasks wait until it is resumed."""
        return await self._unary("PauseAgent", request, ops.PauseAgentResponse)

    async def resume_agent(self, request: ops.ResumeAgentRequest) -> ops.ResumeAgentResponse:
        """Resumes an agent."""
        return await self._unary("ResumeAgent", request, ops.ResumeAgentResponse)

    async def remove_upstream(self, request: upstreams.RemoveUpstreamRequest) -> upstreams.RemoveUpstreamResponse:
        """Removes an upstream agent."""
        return await self._unary("RemoveUpstream", request, upstreams.RemoveUpstreamResponse)

    def export_task(self, request: ops.ExportTaskRequest) -> AsyncGenerator[ops.ExportTaskResponse, None]:
        """Yields all stored data of a task."""
        return self._stream("ExportTask", request, ops.ExportTaskResponse)

    def backup(self, request: ops.BackupRequest) -> AsyncGenerator[ops.BackupResponse, None]:
        """Copies the server's store to a file on the server's machine; yields its progress."""
        return self._stream("Backup", request, ops.BackupResponse)

    async def _unary(self, name: str, request: Message, response_type: type[M]) -> M:
        if self._http is not None and (rule := _http_rule(name, request)) is not None:
            return await _call_over_http(self._http, server_url(self._address), rule, request, response_type)
        method = (await self._open_channel()).unary_unary(
            f"/{_OPS_SERVICE.full_name}/{name}", type(request).SerializeToString, response_type.FromString
        )
        with _rpc_failures():
            response: M = await method(request, metadata=self._metadata)
            return response

    async def _stream(self, name: str, request: Message, response_type: type[Any]) -> AsyncGenerator[Any, None]:
        if self._http is not None and (rule := _http_rule(name, request)) is not None:
            async with aclosing(
                _stream_over_http(self._http, server_url(self._address), rule, request, response_type)
            ) as responses:
                async for response in responses:
                    yield response
            return
        method = (await self._open_channel()).unary_stream(
            f"/{_OPS_SERVICE.full_name}/{name}", type(request).SerializeToString, response_type.FromString
        )
        answers = method(request, metadata=self._metadata)
        try:
            with _rpc_failures():
                async for one in answers:
                    yield one
        finally:
            answers.cancel()

    async def _open_channel(self) -> grpc.aio.Channel:
        if not self._is_open:
            raise RuntimeError("use an Operator inside `async with`")
        if self._channel is None:
            self._channel = self._new_channel(await grpc_address(self._address, self._options))
        return self._channel

    def _new_channel(self, address: str) -> grpc.aio.Channel:
        return tls.grpc_channel(address, _OPS_CHANNEL_OPTIONS, ca=self._options.ca, cert=self._options.cert)


@contextmanager
def _rpc_failures() -> Iterator[None]:
    """Converts failures of RPCs to ClientError."""
    import grpc  # the calls of HTTP addresses do without

    try:
        yield
    except grpc.aio.AioRpcError as error:
        raise ClientError.from_rpc_error(error) from error


def _http_rule(name: str, request: Message) -> Rule | None:
    """The HTTP rule of a method whose path variables the request has, most variables first; None without one."""
    rules = [
        rule
        for method, rule in httprule.rules(_OPS_SERVICE)
        if method.name == name and all(getattr(request, variable.field[0]) for variable in rule.template.variables)
    ]
    return max(rules, key=lambda rule: len(rule.template.variables), default=None)


def _http_request(rule: Rule, request: Message) -> tuple[str, dict[str, str], bytes | None]:
    """Returns the path, the headers and the body of a call."""
    codec: protojson.Codec[Any] = protojson.compile(type(request), _OPS_JSON)
    fields = codec.to_dict(request)
    path = str(rule.template)
    for variable in rule.template.variables:
        name = ".".join(variable.field)
        value = fields.pop(request.DESCRIPTOR.fields_by_name[name].json_name)
        path = path.replace(f"{{{name}}}", quote(value, safe=""))
    if rule.body:
        return path, {"Content-Type": JSON_MEDIA_TYPE}, orjson.dumps(fields)
    return f"{path}?{urlencode(list(_query_pairs(fields)))}" if fields else path, {}, None


async def _call_over_http(http: AiohttpClient, server: str, rule: Rule, request: Message, response_type: type[M]) -> M:
    path, headers, body = _http_request(rule, request)
    headers["Accept"] = JSON_MEDIA_TYPE
    async with http.open(rule.http_method, server + path, headers, body, idle_timeout=None) as response:
        data = b"".join([chunk async for chunk in response.chunks()])
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        if response.status < 400:
            raise ResponseErrors(server).not_json(response.status, data) from error
        value = None
    if response.status >= 400:
        raise ClientError.from_response(response.status, response.headers, value)
    response_codec: protojson.Codec[Any] = protojson.compile(response_type, _OPS_JSON)
    result: M = response_codec.decode(value)
    return result


async def _stream_over_http(
    http: AiohttpClient, server: str, rule: Rule, request: Message, response_type: type[Any]
) -> AsyncGenerator[Any, None]:
    """Yields the responses of a streaming call, which are server-sent events."""
    path, headers, body = _http_request(rule, request)
    headers["Accept"] = SSE_MEDIA_TYPE
    codec: protojson.Codec[Any] = protojson.compile(response_type, _OPS_JSON)
    async with http.open(rule.http_method, server + path, headers, body, idle_timeout=None) as response:
        if response.status >= 400:
            data = b"".join([chunk async for chunk in response.chunks()])
            value = None
            with suppress(orjson.JSONDecodeError):
                value = orjson.loads(data)
            raise ClientError.from_response(response.status, response.headers, value)
        parser = sse.SseParser(limit=MAX_SSE_EVENT_BYTES)
        async for chunk in response.chunks():
            for event in parser.feed(chunk):
                value = orjson.loads(event.data)
                if "error" in value:
                    raise ClientError.from_json(value["error"])
                yield codec.decode(value)


def _query_pairs(fields: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """The query of a request's JSON: nested fields have dotted names, repeated ones several values."""
    for name, value in fields.items():
        if isinstance(value, dict):
            yield from _query_pairs(value, f"{prefix}{name}.")
            continue
        for one in value if isinstance(value, list) else [value]:
            yield f"{prefix}{name}", str(one).lower() if isinstance(one, bool) else str(one)
