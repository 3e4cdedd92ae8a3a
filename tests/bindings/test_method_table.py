"""The method table is complete, and its stream encoders share their results."""

from __future__ import annotations

from typing import Final

import pytest
from tests.bindings.fake_service import status_event, task_event

from dragoman.bindings import method_table
from dragoman.bindings.method_table import (
    JSONRPC_ROWS,
    MESSAGE_METHODS,
    OLD_PUSH_METHODS,
    PUSH_METHODS,
    RPC_ROWS,
    TASK_METHODS,
    A2AOperation,
    RpcRow,
)
from dragoman.core.errors import InvalidParams
from dragoman.core.task import states
from dragoman.wire import field_count
from dragoman.wire.http import httprule
from dragoman_pb.a2a.v1 import a2a_pb2 as v03_pb
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb


def row(service: str, rpc: str) -> RpcRow:
    return next(row for row in RPC_ROWS if (row.service, row.name) == (f"{service}.A2AService", rpc))


def test_every_rpc_of_both_packages_has_one_row() -> None:
    for descriptor, rows in method_table.rpc_services():
        assert set(rows) == set(descriptor.methods_by_name)
    assert len(RPC_ROWS) == sum(len(rows) for _, rows in method_table.rpc_services())


def test_every_row_has_an_operation_except_cards() -> None:
    for row in RPC_ROWS:
        assert (row.op.operation is None) == ("Card" in row.name), row.name


def test_every_rpc_has_an_http_rule() -> None:
    for descriptor, rows in method_table.rpc_services():
        assert {method.name for method, rule in httprule.rules(descriptor) if rule.primary} == set(rows)


def test_push_operations_are_marked() -> None:
    operations = [(row.name, row.op) for row in RPC_ROWS] + [(row.name, row.op) for row in JSONRPC_ROWS]
    for name, op in operations:
        assert op.push == ("pushnotification" in name.lower()), name


def test_push_has_four_operations_in_either_package() -> None:
    push = [row.service for row in RPC_ROWS if "PushNotification" in row.name]
    assert push.count("a2a.v1.A2AService") == push.count("lf.a2a.v1.A2AService") == 4


def test_an_event_is_encoded_once_for_each_encoder() -> None:
    event = task_event()
    for encoders in (
        row("lf.a2a.v1", "SubscribeToTask").stream_encoders(),
        row("a2a.v1", "TaskSubscription").stream_encoders(),
    ):
        assert encoders.sse(event, False) is encoders.sse(event, False)
        assert encoders.json(event, False) is encoders.json(event, False)
    assert row("lf.a2a.v1", "SubscribeToTask").stream_encoders().grpc(event, False) is event.data


def test_an_interrupted_state_is_final_only_if_the_stream_ends() -> None:
    encoders = row("a2a.v1", "SendStreamingMessage").stream_encoders()
    event = status_event(2, states.INPUT_REQUIRED, ends=True)
    for final in (True, False):
        update = v03_pb.StreamResponse.FromString(encoders.grpc(event, final)).status_update
        assert update.final is final


def test_only_sends_block_and_only_their_streams_end_with_the_turn() -> None:
    assert {row.name for row in RPC_ROWS if row.op.blocking} == {"SendMessage"}
    assert {row.name for row in RPC_ROWS if row.turn} == {"SendStreamingMessage"}


def test_only_0_3_allows_subscriptions_to_finished_tasks() -> None:
    assert [(row.service, row.name) for row in RPC_ROWS if row.shows_finished] == [
        ("a2a.v1.A2AService", "TaskSubscription")
    ]


@pytest.mark.parametrize("data", [b"\xff", b"\x0a\x02\xff\xfe"])
def test_invalid_bytes_are_rejected_with_the_expected_message_type(data: bytes) -> None:
    with pytest.raises(InvalidParams, match=r"lf\.a2a\.v1\.GetTaskRequest"):
        field_count.parse_message(pb.GetTaskRequest, data)


EVERY: Final = {name: value for name, value in vars(method_table).items() if isinstance(value, A2AOperation)}


def test_only_the_public_card_shows_the_card_of_an_agent() -> None:
    assert [name for name, operation in EVERY.items() if operation.shows_card] == ["PUBLIC_CARD"]


def test_only_cards_have_no_operation_of_the_runtime() -> None:
    assert {name for name, operation in EVERY.items() if operation.operation is None} == {
        "EXTENDED_CARD",
        "PUBLIC_CARD",
    }


def test_streaming_operations_answer_with_stream_responses() -> None:
    for name, operation in EVERY.items():
        assert operation.streaming == (operation.response.DESCRIPTOR.name == "StreamResponse"), name


@pytest.mark.parametrize("methods", [MESSAGE_METHODS, OLD_PUSH_METHODS, PUSH_METHODS, TASK_METHODS])
def test_older_names_call_operations_that_the_runtime_has(methods: dict[str, A2AOperation]) -> None:
    for name, operation in methods.items():
        assert operation in EVERY.values(), name
