"""`explain` and `steps` against a real server."""

from __future__ import annotations

import json

import pytest
from tests.cli.conftest import Run
from tests.cli.server import Server
from tests.eventually import eventually_blocking

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


def test_contents_of_a_failed_step_are_its_failure() -> None:
    step = ops.TaskStep(text=ops.TaskStepText(media_type="application/octet-stream", omitted=2_048))
    step.details.input = '{"page":3}'
    failure = step.details.failures.add(attempt=2, type="ValueError", text="no\nmore", causes=["KeyError: 3"])
    failure.frames.add(file="/app/shop.py", line=3, function="price", code="raise ValueError")
    failure.ended.FromMilliseconds(0)
    assert list(_contents(step)) == [
        'arguments: {"page":3}',
        "ValueError: no",
        "more",
        f"attempt 2, {format_time(0)}",
        "/app/shop.py:3 in price: raise ValueError",
        "after KeyError: 3",
        "result: application/octet-stream, 2,048 bytes not shown",
    ]


def test_times_in_json_have_one_form(dragoman: Run) -> None:
    task = json.loads(dragoman("send", "echo x", "--json").out)["task"]
    (explained,) = dragoman("explain", task["id"], "--json").out.splitlines()
    assert json.loads(explained)["since"] == task["status"]["timestamp"]


def test_failures_are_listed_by_cause_and_rerun_by_it(dragoman: Run, served: Server) -> None:
    at = ("--server", served.grpc)
    assert "no failed tasks" in dragoman("failures", *at).err
    for text in ("one", "two"):
        task = json.loads(dragoman("send", text, "--agent", "breaks", "--json", *at).out)["task"]["id"]
    (line,) = dragoman("failures", *at).out.splitlines()
    count, agent, _, _, cause, *words = line.split()
    assert (count, agent, " ".join(words)) == ("2", "breaks", "LookupError: no two")
    (group,) = map(json.loads, dragoman("failures", "--agent", "breaks", "--json", *at).out.splitlines())
    assert (group["cause"], group["count"], group["taskId"]) == (cause, "2", task)
    assert dragoman("failures", "--agent", "quote", "--json", *at).out == ""
    explained = dragoman("explain", task, *at).out.splitlines()
    assert explained[0] == "failed       LookupError: no two"
    assert explained[1].strip() == "attempt 1"
    assert explained[2].strip().endswith('in breaks: raise LookupError(f"no {turn.text}")')
    assert explained[3].startswith(f"cause        {cause}")
    listed = dragoman("list", "--cause", cause, *at).out.splitlines()
    assert [one.rpartition("  ")[2] for one in listed] == ["LookupError: no two", "LookupError: no one"]
    assert [one.split()[3] for one in dragoman("list", "--text", "no TWO", *at).out.splitlines()] == [task]
    logged = dragoman("logs", "--agent", "breaks", "--no-follow", *at).out.splitlines()
    assert [one.partition("FAILED  ")[2] for one in logged] == ["LookupError: no one", "LookupError: no two"]
    assert dragoman("rerun", "--cause", cause, "--yes", *at).out == "2 tasks rerun\n"
    (group,) = map(json.loads, dragoman("failures", "--json", *at).out.splitlines())
    assert group["reruns"]["count"] == "2"
    assert dragoman("failures", *at).out.split()[1:3] == ["2", "breaks"]
    eventually_blocking(lambda: dragoman("list", "--cause", cause, *at).out.count("\n") == 4)  # these failed, too
    assert dragoman("rerun", "--cause", cause, "--yes", *at).out == "2 tasks rerun, 2 skipped\n"
    assert dragoman("cancel", "--cause", "0" * 16, "--dry-run", *at).out == "0 tasks would be canceled\n"
