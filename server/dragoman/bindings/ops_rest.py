"""`dragoman.ops.v1` over HTTP: the operations that have a `google.api.http` rule, under `/operations`.

They are the same operations as over gRPC, for those whom `operators.py` lets in.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from aiohttp import web
from google.protobuf.message import Message

from dragoman.bindings import body, operators, ops_calls, ops_events, ops_push, ops_workers
from dragoman.bindings.cards import Cards
from dragoman.bindings.ops import Operations
from dragoman.bindings.ops_calls import SERVICE, Operation
from dragoman.bindings.serving import HttpOptions
from dragoman.ports import WorkerHub
from dragoman.runtime.maintenance.admin import Maintenance
from dragoman.runtime.observe.explain import Explainer
from dragoman.runtime.push.scheduler import Redelivery
from dragoman.wire.http import httprule
from dragoman.wire.http.httprule import Rule
from dragoman.wire.http.transcode import Transcoder
from dragoman.wire.json import protojson

Endpoint = Callable[[web.BaseRequest, Mapping[str, str]], Awaitable[web.StreamResponse]]

JSON: Final = protojson.JsonDialect("dragoman.ops.v1")


@dataclass(frozen=True, slots=True)
class Operated:
    """What the operations are about."""

    explainer: Explainer
    upkeep: Maintenance
    redelivery: Redelivery
    switchboard: WorkerHub


def routes(operated: Operated | None, known: Cards, options: HttpOptions) -> Iterator[tuple[Rule, Endpoint]]:
    """Every rule with what serves it; none without anything to operate."""
    if operated is None:
        return
    operations: ops_calls.Unary = {
        **Operations(known, operated.explainer, options).unary,
        **ops_push.unary(operated.redelivery),
        **ops_events.unary(operated.upkeep),
        **ops_workers.unary(operated.switchboard),
    }
    for method, rule in httprule.rules(SERVICE):
        request, operation = operations[method.name]
        yield rule, _endpoint(method.name, Transcoder(request, JSON, body=rule.body), operation, options)


def _endpoint(name: str, transcoder: Transcoder[Message], operation: Operation, options: HttpOptions) -> Endpoint:
    async def endpoint(request: web.BaseRequest, variables: Mapping[str, str]) -> web.StreamResponse:
        who = await operators.check(request, options)
        sent = await body.read(request, options.message_bytes)
        asked = transcoder.request(variables, request.query.items(), sent)
        answer: Any = await operation(asked)
        await who.did(name, asked, answer)
        said = protojson.compile(type(answer), JSON).encode(answer)
        return web.Response(body=said, content_type="application/json", headers={"Cache-Control": "no-store"})

    return endpoint
