"""Tasks as results and as task objects."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.core.task import states
from dragoman.extensions.mcp.wire.envelope import STATELESS_VERSION, ClientFeatures
from dragoman.extensions.mcp.wire.results import (
    MAX_PROGRESS_TEXT,
    created_task,
    large_result,
    progress_text,
    task_object,
    task_result,
    view_of,
)
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

FORMS = ClientFeatures(STATELESS_VERSION, takes_tasks=True, asks_forms=True)
ID = "01a20ee5-f138-7d0d-907f-a7f54102ec32"
CREATED = int(ID.replace("-", "")[:12], 16)


def task(state: int, text: str = "", **metadata: Any) -> pb.Task:
    status = pb.TaskStatus(state=state)  # type: ignore[arg-type]  # the states are plain integers
    status.timestamp.FromMilliseconds(CREATED + 2_000)
    if text:
        status.message.message_id = "question-1"
        status.message.parts.add(text=text)
        status.message.metadata.update(metadata)
    return pb.Task(id=ID, context_id="c1", status=status)


def shown(created: pb.Task, client: ClientFeatures = FORMS) -> dict[str, Any]:
    return task_object(view_of("echo", created), client, CREATED + 10_000)


@pytest.mark.parametrize("state", [states.SUBMITTED, states.WORKING])
def test_a_task_that_goes_on_is_working(state: int) -> None:
    found = shown(task(state, "half of it"))
    assert (found["status"], found["statusMessage"], found["taskId"]) == ("working", "half of it", f"echo/{ID}")
    assert "result" not in found


def test_a_handle_has_times_and_an_interval_that_grows_with_the_age_of_the_task() -> None:
    created = view_of("echo", task(states.WORKING))
    handle = created_task(created, CREATED)
    assert handle["createdAt"] < handle["lastUpdatedAt"]
    assert handle["ttlMs"] is None
    intervals = [created_task(created, CREATED + age)["pollIntervalMs"] for age in (0, 20_000, 3_600_000)]
    assert intervals == [500, 2000, 5000]


@pytest.mark.parametrize(
    ("reason", "status"),
    [("INTERRUPTED", "failed"), ("DRAINED", "failed"), ("TIMED_OUT", "completed"), ("", "completed")],
)
def test_only_failures_of_the_server_are_failed(reason: str, status: str) -> None:
    found = shown(task(states.FAILED, "broken", **({"reason": reason} if reason else {})))
    assert found["status"] == status
    if status == "failed":
        assert found["error"] == {"code": -32603, "message": "broken"}
    else:
        assert found["result"]["isError"] is True
        assert found["result"]["content"] == [{"type": "text", "text": "broken"}]


def test_a_canceled_task_has_no_result() -> None:
    found = shown(task(states.CANCELED))
    assert found["status"] == "cancelled"
    assert "result" not in found


@pytest.mark.parametrize(
    ("state", "is_error", "text"),
    [
        (states.REJECTED, True, "no"),
        (states.FAILED, True, "no"),
        (states.CANCELED, True, "no"),
        (states.COMPLETED, False, "no"),
    ],
)
def test_a_result_tells_how_the_task_ended(state: int, is_error: bool, text: str) -> None:
    result = task_result(view_of("echo", task(state, text)))
    assert (result["isError"], result["content"]) == (is_error, [{"type": "text", "text": text}])
    assert result["_meta"] == {"dragoman/task": f"echo/{ID}", "dragoman/contextId": "c1"}


def test_a_failure_without_a_text_names_the_state() -> None:
    assert task_result(view_of("echo", task(states.CANCELED)))["content"][0]["text"] == (
        "The task ended as TASK_STATE_CANCELED."
    )


def test_a_question_has_the_id_of_its_message_as_key() -> None:
    question = shown(task(states.INPUT_REQUIRED, "Which?"))
    assert list(question["inputRequests"]) == ["question-1"]
    silent = view_of("echo", task(states.INPUT_REQUIRED))
    assert silent.question_key == f"at-{CREATED + 2_000}"


def test_a_client_without_forms_is_told_which_tool_answers() -> None:
    question = shown(task(states.INPUT_REQUIRED, "Which?"), ClientFeatures(STATELESS_VERSION, takes_tasks=True))
    assert question["inputRequests"] == {}
    assert "answer_task" in question["statusMessage"]


def test_several_values_are_content_and_not_structured() -> None:
    created = task(states.COMPLETED)
    artifact = created.artifacts.add(artifact_id="a")
    artifact.parts.add().data.number_value = 1
    artifact.parts.add().data.number_value = 2
    result = task_result(view_of("echo", created))
    assert [one["text"] for one in result["content"]] == ["1", "2"]
    assert "structuredContent" not in result


def test_a_large_result_names_the_tool_that_returns_it() -> None:
    assert 'get_task {"task": "echo/1"}' in large_result("echo/1")["content"][0]["text"]


def test_progress_is_the_text_of_a_status_or_the_end_of_a_stream() -> None:
    status = pb.StreamResponse()
    status.status_update.status.message.parts.add(text="s" * 600)
    chunk = pb.StreamResponse()
    chunk.artifact_update.artifact.parts.add(text="a" * MAX_PROGRESS_TEXT + "end")
    assert progress_text(status) == "s" * MAX_PROGRESS_TEXT
    assert progress_text(chunk).endswith("end")
    assert len(progress_text(chunk)) == MAX_PROGRESS_TEXT
    assert progress_text(pb.StreamResponse(task=pb.Task())) == ""
