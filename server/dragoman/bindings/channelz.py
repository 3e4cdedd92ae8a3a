"""gRPC channelz (grpc.channelz.v1) for operators: the port's own view of its connections, streams and calls.

What it shows are addresses of callers and counts, so it is for operators, and there only where somebody wants it: the
library keeps more of each connection then.
"""

from __future__ import annotations

from typing import Any, Final

import grpc
from google.protobuf.message import Message
from grpc_channelz.v1 import channelz_pb2  # type: ignore[import-untyped]
from grpc_channelz.v1.channelz import ChannelzServicer  # type: ignore[import-untyped]

from dragoman.bindings.access import Access
from dragoman.bindings.methods import parse
from dragoman.bindings.ops_calls import Check, Context, Refuse
from dragoman.bindings.tally import GRPC

SERVICE: Final = channelz_pb2.DESCRIPTOR.services_by_name["Channelz"]
FILE: Final = channelz_pb2.DESCRIPTOR


class _Said:
    """Takes what the library's servicer says of a call."""

    code: grpc.StatusCode | None = None
    details = ""

    def set_code(self, code: grpc.StatusCode) -> None:
        self.code = code

    def set_details(self, details: str) -> None:
        self.details = details


def handler(check: Check, refuse: Refuse) -> grpc.GenericRpcHandler:
    """What grpc calls."""
    return grpc.method_handlers_generic_handler(
        SERVICE.full_name, {method.name: _method(method.name, check, refuse) for method in SERVICE.methods}
    )


def _method(name: str, check: Check, refuse: Refuse) -> grpc.RpcMethodHandler[bytes, bytes]:
    request: type[Message] = getattr(channelz_pb2, SERVICE.methods_by_name[name].input_type.name)
    look: Any = getattr(ChannelzServicer, name)

    async def call(data: bytes, context: Context) -> bytes:
        access, said = Access(refuse.tally, GRPC, f"{SERVICE.full_name}/{name}", "ops"), _Said()
        try:
            await check(context)
            answer: Message = look(parse(request, data), said)
        except Exception as error:
            await refuse(context, error, access)
        if said.code is not None:
            access.done(said.code.name)
            await context.abort(said.code, said.details)
        access.done("OK")
        return answer.SerializeToString()

    return grpc.unary_unary_rpc_method_handler(call)
