"""Rows for callers of the draft of A2A 1.1: every method of 1.0, with the draft's messages and nothing else changed."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest
from google.protobuf import empty_pb2

from dragoman.bindings import draft_rows
from dragoman.bindings.method_table import JSONRPC_ROWS, RPC_ROWS
from dragoman.wire.dialects import Dialect, draft_v1_1

RPCS = {row.name: row for row in RPC_ROWS if row.dialect is Dialect.V1}
METHODS = {row.name: row for row in JSONRPC_ROWS if row.dialect is Dialect.V1}


def changed(old: Any, new: Any) -> set[str]:
    return {field.name for field in fields(old) if getattr(old, field.name) != getattr(new, field.name)}


def test_every_method_of_1_0_has_a_row() -> None:
    assert draft_rows.rpc_rows().keys() == RPCS.keys()
    assert draft_rows.jsonrpc_rows().keys() == METHODS.keys()
    assert not any(row.is_draft for row in RPC_ROWS)
    assert not any(row.is_draft for row in JSONRPC_ROWS)


@pytest.mark.parametrize("name", RPCS)
def test_a_row_differs_in_its_messages_only(name: str) -> None:
    row, rpc = draft_rows.rpc_rows()[name], RPCS[name]
    assert changed(rpc, row) <= {"op", "request", "response", "is_draft"}
    assert changed(rpc.op, row.op) <= {"request", "response", "blocking"}
    assert (row.request, row.op.request) == (draft_v1_1.message_class(rpc.request),) * 2
    assert row.json is draft_v1_1.PROTOJSON
    assert row.op.operation is rpc.op.operation

    method, v1_method = draft_rows.jsonrpc_rows()[name], METHODS[name]
    assert changed(v1_method, method) <= {"op", "read", "write", "stream_results", "is_draft"}
    if v1_method.op.response is empty_pb2.Empty:
        assert method.write is v1_method.write


def test_a_get_of_the_draft_may_wait_as_a_send_may() -> None:
    assert [name for name, row in draft_rows.rpc_rows().items() if row.op.blocking] == ["SendMessage", "GetTask"]
    assert [name for name, row in RPCS.items() if row.op.blocking] == ["SendMessage"]
