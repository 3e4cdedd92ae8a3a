"""What requests ask for, without a server: the operation, the request of A2A, and the result."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from tests.bindings.fake_service import make_cards

from dragoman.bindings import method_table as a2a
from dragoman.core.access.identity import ANONYMOUS, OPEN_ACCESS
from dragoman.core.errors import InvalidParams, MethodNotFound, TaskNotFound
from dragoman.extensions.mcp.endpoint.catalog import ToolCatalog
from dragoman.extensions.mcp.endpoint.decoder import McpDecoder
from dragoman.extensions.mcp.wire.envelope import STATELESS_METHODS, ClientFeatures, Envelope
from dragoman.extensions.mcp.wire.errors import MissingClientCapability
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb


def decoder(
    *,
    tasks: bool = False,
    streams: bool = True,
    version: str = "2026-07-28",
    address: str = "",
    handle_after: float = 0,
) -> McpDecoder:
    services: Any = SimpleNamespace(
        catalog=ToolCatalog(make_cards(), OPEN_ACCESS), new_id=lambda: "id-1", clock=lambda: 1_000,
        handle_after=handle_after,
    )  # fmt: skip
    envelope = Envelope(ClientFeatures(version, takes_tasks=tasks))
    return McpDecoder(services, envelope, ANONYMOUS, address, takes_streams=streams)


def tool_of(one: McpDecoder) -> str:
    listed = one.decode("tools/list", {}).description
    assert listed is not None
    return str(listed["tools"][0]["name"])


def call(one: McpDecoder, **params: Any) -> Any:
    return one.decode("tools/call", {"name": tool_of(one), "arguments": {"message": "hi"}, **params})


def test_a_call_is_a_stream_a_send_or_a_send_that_returns_at_once() -> None:
    streamed, waiting, handle = call(decoder()), call(decoder(streams=False)), call(decoder(tasks=True))
    assert streamed.row.op is a2a.STREAM_MESSAGE
    assert waiting.row.op is handle.row.op is a2a.SEND_MESSAGE
    assert not waiting.request.configuration.return_immediately
    assert handle.request.configuration.return_immediately
    assert not call(decoder(tasks=True, handle_after=0.1)).request.configuration.return_immediately
    assert [part.text for part in handle.request.message.parts] == ["hi"]
    assert handle.request.tenant == handle.tool.spec.id


def test_the_result_of_a_send_is_a_handle_or_the_result_of_the_task() -> None:
    def result_of(one: McpDecoder, state: pb.TaskState) -> Any:
        task = pb.Task(id="t", status=pb.TaskStatus(state=state))
        task.artifacts.add(artifact_id="a").parts.add(text="done")
        return call(one).result(pb.SendMessageResponse(task=task).SerializeToString(), "agent")

    with_tasks = decoder(tasks=True, handle_after=0.1)
    handle = result_of(with_tasks, pb.TASK_STATE_WORKING)
    question = result_of(with_tasks, pb.TASK_STATE_INPUT_REQUIRED)
    assert (handle["resultType"], handle["taskId"], handle["status"]) == ("task", "agent/t", "working")
    assert (question["resultType"], question["status"]) == ("task", "input_required")
    assert result_of(decoder(tasks=True), pb.TASK_STATE_COMPLETED)["resultType"] == "task", "as its client expects"
    for one in (with_tasks, decoder(streams=False)):
        assert result_of(one, pb.TASK_STATE_COMPLETED)["content"] == [{"type": "text", "text": "done"}]


@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
def test_a_client_without_the_extension_has_no_tasks(method: str) -> None:
    with pytest.raises(MissingClientCapability):
        decoder().decode(method, {"taskId": "agent/t", "inputResponses": {}})


@pytest.mark.parametrize("method", sorted(STATELESS_METHODS))
def test_methods_of_the_stateless_revision_are_unknown_in_others(method: str) -> None:
    with pytest.raises(MethodNotFound):
        decoder(version="2025-11-25").decode(method, {})


def test_unknown_notifications_mean_nothing() -> None:
    assert decoder().decode("notifications/whatever", {}).description is None


def test_only_older_revisions_cancel_by_notification() -> None:
    cancel = {"requestId": 7}
    assert decoder(version="2025-11-25").decode("notifications/cancelled", cancel).canceled_request == 7
    assert decoder().decode("notifications/cancelled", cancel).canceled_request is None


def test_a_task_is_named_by_its_handle_or_at_an_address_of_its_agent_by_its_id() -> None:
    both = [
        decoder(tasks=True, address=address).decode("tasks/get", {"taskId": id}).request
        for address, id in (("", "one/t"), ("one", "one/t"), ("one", "t"))
    ]
    assert both == [pb.GetTaskRequest(tenant="one", id="t", history_length=0)] * 3
    with pytest.raises(TaskNotFound):
        decoder(tasks=True, address="two").decode("tasks/get", {"taskId": "one/t"})
    with pytest.raises(TaskNotFound, match="is no task handle"):
        decoder(tasks=True).decode("tasks/get", {"taskId": "t"})


@pytest.mark.parametrize(
    ("method", "params", "text"),
    [
        ("tools/call", {}, "name: is required"),
        ("tools/call", {"name": "get_task"}, "task: is required"),
        ("tools/call", {"name": "get_task", "arguments": {"task": "a/b", "x": 1}}, "x: is no argument of get_task"),
        ("tools/call", {"name": "answer_task", "arguments": {"task": "a/b"}}, "answer: is required"),
        ("tasks/get", {"taskId": 7}, "taskId: is required"),
        ("tasks/update", {"taskId": "a/b"}, "inputResponses: is required"),
    ],
)
def test_what_is_missing_is_named(method: str, params: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidParams, match=text):
        decoder(tasks=True).decode(method, params)
