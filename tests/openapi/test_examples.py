"""Examples of the OpenAPI document: each is what the server itself reads and writes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dragoman.bindings import method_table
from dragoman.bindings.method_table import RpcRow
from dragoman.wire.dialects import Dialect
from dragoman.wire.json import protojson
from tools.openapi import examples

ROWS = method_table.RPC_ROWS
UNARY = pytest.mark.parametrize(
    "row", [row for row in ROWS if not row.streaming], ids=lambda row: f"{row.dialect.value} {row.name}"
)
STREAMING = pytest.mark.parametrize(
    "row", [row for row in ROWS if row.streaming], ids=lambda row: f"{row.dialect.value} {row.name}"
)


def row_of(name: str, dialect: Dialect) -> RpcRow:
    return next(row for row in ROWS if row.name == name and row.dialect is dialect)


@UNARY
def test_every_response_is_read_and_written_unchanged(row: RpcRow) -> None:
    codec = protojson.compile(row.response, row.json)
    found = examples.response_examples(row)
    assert found
    for name, example in found.items():
        assert example["summary"], name
        assert codec.to_dict(codec.decode(example["value"])) == example["value"]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.dialect.value} {row.name}")
def test_every_request_is_read_and_written_unchanged(row: RpcRow) -> None:
    cls = row.request
    if row.name == "CreateTaskPushNotificationConfig" and row.dialect is Dialect.V03:
        cls = row.response  # the body is the field `config` of the request
    codec = protojson.compile(cls, row.json)
    found = examples.request_examples(row)
    assert found
    for example in found.values():
        assert codec.to_dict(codec.decode(example["value"])) == example["value"]


@pytest.mark.parametrize("dialect", [Dialect.V1, Dialect.V03])
def test_a_send_that_returns_at_once_is_shown_in_each_dialect(dialect: Dialect) -> None:
    row = row_of("SendMessage", dialect)
    codec = protojson.compile(row.request, row.json)
    sent: dict[str, Any] = {
        name: codec.decode(example["value"]) for name, example in examples.request_examples(row).items()
    }
    if row.decode is not None:
        sent = {name: row.decode(request) for name, request in sent.items()}
    assert not sent["text"].configuration.return_immediately
    assert sent["data"].configuration.return_immediately
    assert sent["data"].configuration.history_length == 10
    assert [part.WhichOneof("content") for part in sent["data"].message.parts] == ["text", "data"]


def test_each_dialect_writes_its_own_states() -> None:
    for dialect, state in ((Dialect.V1, "TASK_STATE_CANCELED"), (Dialect.V03, "TASK_STATE_CANCELLED")):
        shown = examples.response_examples(row_of("CancelTask", dialect))["canceled"]["value"]
        assert (shown["id"], shown["status"]["state"]) == (examples.EXAMPLE_TASK_ID, state)


@STREAMING
def test_a_stream_has_the_same_events_as_sse_and_as_an_array(row: RpcRow) -> None:
    text, elements = examples.stream_example(row)
    frames = text.removesuffix("\n\n").split("\n\n")
    assert [json.loads(frame.removeprefix("data: ")) for frame in frames] == elements
    assert [next(iter(element)) for element in elements] == [
        "task",
        "statusUpdate",
        "artifactUpdate",
        "artifactUpdate",
        "statusUpdate",
    ]


@STREAMING
def test_the_chunks_of_a_stream_are_one_artifact_and_its_end_is_the_task_s(row: RpcRow) -> None:
    _, elements = examples.stream_example(row)
    updates = [element["artifactUpdate"] for element in elements if "artifactUpdate" in element]
    assert [update.get("append", False) for update in updates] == [False, True]
    assert "".join(update["artifact"]["parts"][0]["text"] for update in updates) == "hello"
    last = elements[-1]["statusUpdate"]
    assert last["status"]["state"] == "TASK_STATE_COMPLETED"
    assert last.get("final", False) is (row.dialect is Dialect.V03)


def test_the_card_is_one_object_for_both_versions() -> None:
    card = examples.card_example()
    assert card["skills"][0]["id"] == "late"
    assert card["supportedInterfaces"][0]["url"].startswith("https://agents.example.com")
    assert card["protocolVersion"] == "0.3.0"
