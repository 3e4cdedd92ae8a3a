"""Dragoman's server with a path that ends after one rung: `python -m bench.servers.ladder RUNG [OPTIONS OF serve]`.

A request passes the real steps up to its rung, and is then answered with the fixed bytes of the bare server. So the
difference between the CPU time of two rungs is the cost of the steps between them. The agent and the second append are
one rung: a turn that goes on would append its WORKING status instead.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bench.responses import SEND_RESPONSE, SEND_RESPONSE_JSON, jsonrpc_response
from dragoman.bindings.grpc.server import GrpcExchange
from dragoman.bindings.http.connections import Response
from dragoman.bindings.http.jsonrpc import JsonRpcExchange
from dragoman.bindings.http.request import JSON_CONTENT_TYPE
from dragoman.bindings.pipeline import RequestExchange
from dragoman.cli import main
from dragoman.core.errors import A2AError

AGENTS: Final = str(Path(__file__).with_name("agents.py"))
HOLD: Final = str(Path(__file__).with_name("hold.py"))
_JSONRPC_BODY: Final = jsonrpc_response(SEND_RESPONSE_JSON)
_EXCHANGES: Final[tuple[type[RequestExchange[Any]], ...]] = (JsonRpcExchange, GrpcExchange)


@dataclass(frozen=True, slots=True)
class Rung:
    """One step of the path more than the rung before."""

    name: str
    adds: str
    """What this rung adds."""
    before: str = ""
    """The method of the exchange in which the request ends; empty: it gets the real response."""
    agents: str = AGENTS
    slots: int = 100_000
    """Turns that may run at the same time. The agent of `hold.py` never ends one, so with one slot all others wait."""
    waits: bool = True
    """Whether the send waits for its turn."""
    durable: bool = True
    """Whether the store is on the disk; otherwise it is in memory."""


BARE: Final = "transport"
LADDER: Final = (
    Rung(BARE, "the bare transport with fixed bytes"),
    Rung("receive", "routing, CORS, connection limits, trace, authentication, rate", before="read"),
    Rung("parse", "the body, its JSON, the JSON-RPC envelope; nothing over gRPC", before="versions"),
    Rung("decode", "version, row of the method table, request of 1.0", before="authorize"),
    Rung("authorize", "the caller, its agent and the tasks it sees", before="call"),
    Rung(
        "append in memory", "the send is stored, without a disk; its turn waits",
        before="respond", agents=HOLD, slots=1, waits=False, durable=False,
    ),
    Rung(
        "append durable", "the same with synchronous=FULL on the disk",
        before="respond", agents=HOLD, slots=1, waits=False,
    ),
    Rung(
        "agent, second append",
        "the task is claimed, the agent called, its result stored; the waiting send returns",
        before="respond",
    ),
    Rung("encode", "the response in the dialect of the caller: the whole path"),
)  # fmt: skip


class RungReached(A2AError):
    """Ends a request at its rung."""


def end_before(method: str) -> None:
    """Makes both bindings answer with fixed bytes where they would call this method."""
    for exchange in _EXCHANGES:
        _answer_fixed(exchange)
        if method == "authorize":
            _end_after_decode(exchange)
        else:
            setattr(exchange, method, _end_now if method in ("versions", "call") else _end_soon)


def return_at_once() -> None:
    """Makes every send return without waiting for its turn."""
    for exchange in _EXCHANGES:
        _return_at_once(exchange)


def _end_now(*_: object) -> Any:
    raise RungReached


async def _end_soon(*_: object) -> Any:
    raise RungReached


def _end_after_decode(exchange: Any) -> None:
    decode = exchange.decode

    async def end(self: Any) -> Any:
        await decode(self)
        raise RungReached

    exchange.decode = end


def _return_at_once(exchange: Any) -> None:
    decode = exchange.decode

    async def decode_send(self: Any) -> Any:
        request = await decode(self)
        request.configuration.return_immediately = True
        return request

    exchange.decode = decode_send


def _answer_fixed(exchange: Any) -> None:
    reject = exchange.reject

    async def answer(self: Any, error: Exception) -> Any:
        if not isinstance(error, RungReached):
            return await reject(self, error)
        if exchange is GrpcExchange:
            return SEND_RESPONSE
        return Response(200, {"Content-Type": JSON_CONTENT_TYPE}, _JSONRPC_BODY)

    exchange.reject = answer


if __name__ == "__main__":
    rung = next(rung for rung in LADDER if rung.name == sys.argv[1])
    if rung.before:
        end_before(rung.before)
    if not rung.waits:
        return_at_once()
    sys.argv = ["dragoman", "serve", rung.agents, f"--slots={rung.slots}", "--drain=0", *sys.argv[2:]]
    main()
