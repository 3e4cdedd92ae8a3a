"""Client of the operators' API `dragoman.ops.v1`, over gRPC and HTTP."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Mapping
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
Q = TypeVar("Q", bound=Message)

_OPS_SERVICE: Final = ops.DESCRIPTOR.services_by_name["OpsService"]
_OPS_CHANNEL_OPTIONS: Final = (("grpc.max_receive_message_length", -1),)
_OPS_JSON: Final = protojson.JsonDialect("1.0")


def _unary(request_type: type[Q], response_type: type[M]) -> Callable[[Operator, Q], Coroutine[Any, Any, M]]:
    """A method of Operator for the unary call with these types."""

    async def call(self: Operator, request: Q) -> M:
        return await self._call(rpc, request, response_type)

    rpc = request_type.DESCRIPTOR.name.removesuffix("Request")
    return call


def _stream(request_type: type[Q], response_type: type[M]) -> Callable[[Operator, Q], AsyncGenerator[M, None]]:
    """A method of Operator for the streaming call with these types."""

    def stream(self: Operator, request: Q) -> AsyncGenerator[M, None]:
        return self._responses(rpc, request, response_type)

    rpc = request_type.DESCRIPTOR.name.removesuffix("Request")
    return stream


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

    # Calls by name, as proto/dragoman/ops/v1 describes them. Streams are asynchronous generators.
    purge = _unary(ops.PurgeRequest, ops.PurgeResponse)
    list_agents = _unary(ops.ListAgentsRequest, ops.ListAgentsResponse)
    list_tasks = _unary(tasks.ListTasksRequest, tasks.ListTasksResponse)
    rerun_task = _unary(tasks.RerunTaskRequest, tasks.RerunTaskResponse)
    cancel_tasks = _unary(bulk.CancelTasksRequest, bulk.CancelTasksResponse)
    rerun_tasks = _unary(bulk.RerunTasksRequest, bulk.RerunTasksResponse)
    erase_tasks = _unary(bulk.EraseTasksRequest, bulk.EraseTasksResponse)
    list_usage = _unary(usage.ListUsageRequest, usage.ListUsageResponse)
    get_overview = _unary(overview.GetOverviewRequest, overview.GetOverviewResponse)
    watch_tasks = _stream(tasks.WatchTasksRequest, tasks.WatchTasksResponse)
    list_events = _unary(events.ListEventsRequest, events.ListEventsResponse)
    explain = _unary(ops.ExplainRequest, ops.ExplainResponse)
    list_steps = _unary(steps.ListStepsRequest, steps.ListStepsResponse)
    export_audit = _stream(ops.ExportAuditRequest, ops.ExportAuditResponse)
    create_key = _unary(ops.CreateKeyRequest, ops.CreateKeyResponse)
    list_keys = _unary(ops.ListKeysRequest, ops.ListKeysResponse)
    rotate_key = _unary(ops.RotateKeyRequest, ops.RotateKeyResponse)
    revoke_key = _unary(ops.RevokeKeyRequest, ops.RevokeKeyResponse)
    list_push_configs = _unary(push.ListPushConfigsRequest, push.ListPushConfigsResponse)
    redeliver = _unary(push.RedeliverRequest, push.RedeliverResponse)
    list_workers = _unary(workers.ListWorkersRequest, workers.ListWorkersResponse)
    forget_agent = _unary(workers.ForgetAgentRequest, workers.ForgetAgentResponse)
    list_signing_keys = _unary(signing.ListSigningKeysRequest, signing.ListSigningKeysResponse)
    rotate_signing_key = _unary(signing.RotateSigningKeyRequest, signing.RotateSigningKeyResponse)
    withdraw_signing_key = _unary(signing.WithdrawSigningKeyRequest, signing.WithdrawSigningKeyResponse)
    list_upstreams = _unary(upstreams.ListUpstreamsRequest, upstreams.ListUpstreamsResponse)
    add_upstream = _unary(upstreams.AddUpstreamRequest, upstreams.AddUpstreamResponse)
    pause_agent = _unary(ops.PauseAgentRequest, ops.PauseAgentResponse)
    resume_agent = _unary(ops.ResumeAgentRequest, ops.ResumeAgentResponse)
    remove_upstream = _unary(upstreams.RemoveUpstreamRequest, upstreams.RemoveUpstreamResponse)
    export_task = _stream(ops.ExportTaskRequest, ops.ExportTaskResponse)
    backup = _stream(ops.BackupRequest, ops.BackupResponse)

    async def _call(self, name: str, request: Message, response_type: type[M]) -> M:
        if self._http is not None and (rule := _http_rule(name, request)) is not None:
            return await _call_over_http(self._http, server_url(self._address), rule, request, response_type)
        method = (await self._open_channel()).unary_unary(
            f"/{_OPS_SERVICE.full_name}/{name}", type(request).SerializeToString, response_type.FromString
        )
        with _rpc_failures():
            response: M = await method(request, metadata=self._metadata)
            return response

    async def _responses(self, name: str, request: Message, response_type: type[M]) -> AsyncGenerator[M, None]:
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
