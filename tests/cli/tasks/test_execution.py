"""`explain` and `steps` against a real server."""

from __future__ import annotations

import json

import pytest
from tests.cli.conftest import Run
from tests.cli.server import Server

from dragoman.cli.output import format_time
from dragoman.cli.tasks.execution import _contents
from dragoman_pb.dragoman.ops import v1 as ops

pytestmark = pytest.mark.long


def test_the_steps_of_a_task_are_listed(dragoman: Run, served: Server) -> None:
    at = ("--server", served.grpc)
    task = json.loads(dragoman("send", "go", "--agent", "steps", "--json", *at).out)["task"]["id"]
    lines = [line.split() for line in dragoman("steps", task, *at).out.splitlines()]
    assert [(line[0], line[1], line[-2:]) for line in lines] == [
        ("page", "DONE", ["1", "bytes"]),
        ("page#2", "DONE", ["1", "bytes"]),
    ]
    first, _ = map(json.loads, dragoman("steps", task, "--json", *at).out.splitlines())
    assert (first["name"], first["state"], first["attempt"]) == ("page", "TASK_STEP_STATE_DONE", 1)
    exported = [json.loads(line) for line in dragoman("export", task, *at).out.splitlines()]
    assert [one["step"]["result"]["raw"] for one in exported if "step" in one] == ["MA==", "MQ=="]
    assert exported[-1]["end"]["steps"] == 2
    detailed = dragoman("steps", task, "--results", *at).out.splitlines()
    assert [line.strip() for line in detailed if line.startswith(" ")] == [
        'arguments: {"number":0}', "result: application/json", "0",
        'arguments: {"number":1}', "result: application/json", "1",
    ]  # fmt: skip
    (listed, _) = map(json.loads, dragoman("steps", task, "--results", "--json", *at).out.splitlines())
    assert (listed["text"], json.loads(listed["details"]["input"])) == (
        {"text": "0", "mediaType": "application/json"},
        {"number": 0},
    )
    plain = json.loads(dragoman("send", "hi", "--agent", "quote", "--json", *at).out)["task"]["id"]
    assert dragoman("steps", plain, *at).out == "no steps\n"


def test_contents_of_a_failed_step_are_its_error_and_its_frames() -> None:
    step = ops.TaskStep(text=ops.TaskStepText(media_type="application/octet-stream", omitted=2_048))
    step.details.input = '{"page":3}'
    step.details.failures.add(attempt=2, error="ValueError: no", traceback="Traceback:\n  line 3")
    assert list(_contents(step)) == [
        'arguments: {"page":3}',
        f"attempt 2 failed at {format_time(0)}: ValueError: no",
        "Traceback:",
        "  line 3",
        "result: application/octet-stream, 2,048 bytes not shown",
    ]


def test_times_in_json_have_one_form(dragoman: Run) -> None:
    task = json.loads(dragoman("send", "echo x", "--json").out)["task"]
    (explained,) = dragoman("explain", task["id"], "--json").out.splitlines()
    assert json.loads(explained)["since"] == task["status"]["timestamp"]
