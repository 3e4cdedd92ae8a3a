"""Rows of the method table for callers of the DRAFT of A2A 1.1 (`wire/dialects/draft_v1_1.py`).

The draft has the methods, paths and JSON of 1.0, so its rows are those of 1.0 with the draft's messages. They are built
when the first caller names the draft: `RequestExchange.speaks_draft` chooses between both.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Final

from dragoman.bindings import a2a_operations as a2a
from dragoman.bindings import event_encoders
from dragoman.bindings.method_table import JSONRPC_ROWS, RPC_ROWS, JsonRpcRow, RpcRow
from dragoman.wire.dialects import Dialect, draft_v1_1
from dragoman.wire.json import protojson

_WAITING: Final = ("SendMessage", "GetTask")
"""Methods whose answer may wait: GetTask is a long poll."""


def _operation(name: str, op: a2a.A2AOperation) -> a2a.A2AOperation:
    return replace(
        op,
        request=draft_v1_1.message_class(op.request),
        response=draft_v1_1.message_class(op.response),
        blocking=name in _WAITING,
    )


@cache
def rpc_rows() -> dict[str, RpcRow]:
    """The rows of 1.0 for callers of the draft of 1.1, by RPC name: the same methods, with the draft's messages."""
    return {
        row.name: replace(
            row,
            op=_operation(row.name, row.op),
            request=draft_v1_1.message_class(row.request),
            response=draft_v1_1.message_class(row.response),
            is_draft=True,
        )
        for row in RPC_ROWS
        if row.dialect is Dialect.V1
    }


@cache
def jsonrpc_rows() -> dict[str, JsonRpcRow]:
    """As `rpc_rows`, for JSON-RPC, by method name."""
    rows = {}
    for row in JSONRPC_ROWS:
        if row.dialect is Dialect.V1:
            op = _operation(row.name, row.op)
            write = protojson.compile(op.response, draft_v1_1.PROTOJSON).to_dict
            rows[row.name] = replace(
                row,
                op=op,
                read=protojson.compile(op.request, draft_v1_1.PROTOJSON).decode,
                write=row.write if op.response is row.op.response else write,
                stream_results=event_encoders.draft_results,
                is_draft=True,
            )
    return rows
