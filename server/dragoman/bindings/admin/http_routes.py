"""Operator calls over HTTP: operations with a `google.api.http` rule, under `/operations`.

They are the same operations as over gRPC, for those whom `operators.py` lets in.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from aiohttp import web
from google.protobuf.message import Message
from yarl import URL

from dragoman.bindings import authentication
from dragoman.bindings.admin import agents, rpc_handler, tasks
from dragoman.bindings.admin.rpc_handler import OPS_SERVICE, AdminOperation, OperatorCall
from dragoman.bindings.admin.tasks import ServerOperations
from dragoman.bindings.cards import Cards
from dragoman.bindings.http import bodies, cors
from dragoman.bindings.http.cors import is_loopback_host
from dragoman.bindings.options import HttpOptions
from dragoman.core.errors import Unauthenticated
from dragoman.ports import WorkerHub
from dragoman.runtime.maintenance.admin import Maintenance
from dragoman.runtime.observe.explain import Explainer
from dragoman.runtime.push.scheduler import Redelivery
from dragoman.wire.http import httprule
from dragoman.wire.http.httprule import Rule
from dragoman.wire.http.transcode import Transcoder
from dragoman.wire.json import protojson

HttpEndpoint = Callable[[web.BaseRequest, Mapping[str, str]], Awaitable[web.StreamResponse]]

OPS_PROTOJSON: Final = protojson.JsonDialect("dragoman.ops.v1")


@dataclass(frozen=True, slots=True)
class AdminServices:
    """The services that operator calls use; None: not available."""

    explainer: Explainer
    maintenance: Maintenance
    redelivery: Redelivery
    worker_hub: WorkerHub


def admin_routes(
    services: AdminServices | None, cards: Cards, options: HttpOptions
) -> Iterator[tuple[Rule, HttpEndpoint]]:
    """Yields each rule with its endpoint; nothing without services."""
    if services is None:
        return
    operations: rpc_handler.UnaryOperations = {
        **ServerOperations(cards, services.explainer, options).unary,
        **tasks.push_operations(services.redelivery),
        **tasks.event_operations(services.maintenance),
        **agents.worker_operations(services.worker_hub),
    }
    for method, rule in httprule.rules(OPS_SERVICE):
        request, operation = operations[method.name]
        yield rule, _endpoint(method.name, Transcoder(request, OPS_PROTOJSON, body=rule.body), operation, options)


def _endpoint(
    name: str, transcoder: Transcoder[Message], operation: AdminOperation, options: HttpOptions
) -> HttpEndpoint:
    async def endpoint(request: web.BaseRequest, variables: Mapping[str, str]) -> web.StreamResponse:
        who = await authorize_operator(request, options)
        sent = await bodies.read_json(request, options.message_bytes)
        message = transcoder.request(variables, request.query.items(), sent)
        answer: Any = await operation(message)
        await who.record(name, message, answer)
        data = protojson.compile(type(answer), OPS_PROTOJSON).encode(answer)
        return web.Response(body=data, content_type="application/json", headers={"Cache-Control": "no-store"})

    return endpoint


_FORWARDING_HEADERS: Final = ("Forwarded", "X-Forwarded-For", "X-Real-IP")


async def authorize_operator(request: web.BaseRequest, options: HttpOptions) -> OperatorCall:
    """Authenticates the operator. Raises Unauthenticated, PermissionDenied."""
    if options.authenticator is None and not _is_local_request(request):
        raise Unauthenticated("this is for operators, on this machine only where nobody is asked who they are")
    identity = await authentication.authenticate_operator(request.headers.items(), options, request)
    return OperatorCall(identity, request.remote or "", options.auditor)


def _is_local_request(request: web.BaseRequest) -> bool:
    try:
        host = URL.build(authority=request.headers.get("Host", "")).host or ""
    except ValueError:
        return False
    if cors.is_cross_site(request) or any(name in request.headers for name in _FORWARDING_HEADERS):
        return False
    return is_loopback_host(request.remote or "") and is_loopback_host(host)
