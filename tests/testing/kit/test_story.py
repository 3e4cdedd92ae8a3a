"""The observed state of a task: its states, steps, artifacts and texts."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dragoman import types
from dragoman.core.task.projection import fold
from dragoman.testing import Story
from dragoman.testing.kit.story import GivenArtifact, PartsView, Step, state_name
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb


def status(state: pb.TaskState, text: str = "", **metadata: Any) -> pb.StreamResponse:
    update = pb.TaskStatusUpdateEvent(status=pb.TaskStatus(state=state))
    if text:
        update.status.message.parts.add(text=text)
    if metadata:
        update.metadata.update(metadata)
    return pb.StreamResponse(status_update=update)


def chunk(id: str, *parts: pb.Part, append: bool = False, name: str = "") -> pb.StreamResponse:
    artifact = pb.Artifact(artifact_id=id, name=name, parts=parts)
    return pb.StreamResponse(artifact_update=pb.TaskArtifactUpdateEvent(artifact=artifact, append=append))


def story(*events: pb.StreamResponse) -> Story:
    """A task with these events behind the first, which submits it."""
    reported = Story("desk")
    first = pb.StreamResponse(task=pb.Task(id="t", context_id="c", status=pb.TaskStatus(state=pb.TASK_STATE_SUBMITTED)))
    reported.task.CopyFrom(first.task)
    reported.events = [Step(number, event) for number, event in enumerate([first, *events], 1)]
    for event in events:
        fold(reported.task, event)
        if event.HasField("status_update"):
            reported.task.status.CopyFrom(event.status_update.status)
    return reported


WORKING = status(pb.TASK_STATE_WORKING)
COMPLETED = status(pb.TASK_STATE_COMPLETED)
ASKS = status(pb.TASK_STATE_INPUT_REQUIRED, "When?")


def test_a_state_has_its_name_without_a_prefix() -> None:
    assert [state_name(state) for state in (0, pb.TASK_STATE_AUTH_REQUIRED)] == ["", "AUTH_REQUIRED"]


def test_parts_are_seen_as_text_data_and_files() -> None:
    view = PartsView(
        [
            types.text("a"),
            types.data([1]),
            types.text("b"),
            types.link("https://x", name="x"),
            types.file(b"f", name="f"),
        ]
    )
    assert (view.text, view.data) == ("ab", [[1]])
    assert [(file.name, file.url, file.bytes) for file in view.files] == [("x", "https://x", b""), ("f", "", b"f")]


def test_repeated_states_are_listed_once() -> None:
    reported = story(WORKING, status(pb.TASK_STATE_WORKING, "halfway"), chunk("a"), WORKING, ASKS, WORKING, COMPLETED)
    assert reported.states == ["SUBMITTED", "WORKING", "INPUT_REQUIRED", "WORKING", "COMPLETED"]


def test_steps_leave_out_the_working_of_a_message_to_a_working_agent() -> None:
    reported = story(
        WORKING,
        chunk("a", types.text("one")),
        WORKING,
        chunk("a", types.text("two"), append=True),
        status(pb.TASK_STATE_WORKING, attempt=2),
        status(pb.TASK_STATE_WORKING, "halfway"),
        ASKS,
        WORKING,
        chunk("b", types.data({"n": 1}), types.file(b"x", name="a.bin")),
        COMPLETED,
    )
    assert reported.steps == [
        "SUBMITTED",
        "WORKING",
        "a: one",
        "a+ two",
        "WORKING (attempt 2)",
        "WORKING: halfway",
        "INPUT_REQUIRED: When?",
        "WORKING",
        "b: {'n': 1} [a.bin]",
        "COMPLETED",
    ]
    assert reported.reports == ["halfway"]
    assert reported.chunks == ["one", "two", ""]


def test_the_text_is_that_of_the_last_turn() -> None:
    first = [WORKING, chunk("a", types.text("old")), ASKS]
    assert story(*first).text == "old"
    assert story(*first, WORKING).text == ""
    reported = story(*first, WORKING, chunk("b", types.text("new")), chunk("c", types.text("er")), COMPLETED)
    assert reported.text == "new\ner"
    assert reported.turn_began == 4
    assert story(*first, WORKING, chunk("a", types.text(" and new"), append=True), COMPLETED).text == "old and new"


def test_without_artifacts_the_text_is_that_of_the_status() -> None:
    reported = story(WORKING, status(pb.TASK_STATE_FAILED, "no such table"))
    assert (reported.text, reported.status_text, reported.question, reported.ended) == (
        "no such table",
        "no such table",
        "",
        True,
    )
    reported = story(WORKING, ASKS)
    assert (reported.text, reported.question, reported.ended) == ("When?", "When?", False)


def test_artifacts_are_found_by_id_or_name_and_an_error_lists_them() -> None:
    reported = story(chunk("a-1", types.text("x"), name="report"), chunk("b-2", types.data(1)))
    assert reported.artifact("report").id == reported.artifact("a-1").id == "a-1"
    assert reported.data == [1]
    with pytest.raises(AssertionError, match='has no artifact "plan"; its artifacts: "report", "b-2"'):
        reported.artifact("plan")
    with pytest.raises(AssertionError, match="its artifacts: none"):
        story().artifact("plan")


def test_a_reply_has_a_text_and_a_context_and_no_state() -> None:
    reported = Story("desk")
    reported.reply = pb.Message(context_id="c", parts=[types.text("hi")])
    assert (reported.id, reported.context_id, reported.state, reported.text, reported.ended) == (
        "",
        "c",
        "",
        "hi",
        True,
    )
    assert repr(reported) == "<reply of desk: 'hi'>"


def test_what_is_shown_of_a_task_is_short() -> None:
    assert repr(story(WORKING)) == "<task of desk: WORKING>"
    assert repr(story(chunk("a", types.text("x" * 61)), COMPLETED)) == f"<task of desk: COMPLETED: '{'x' * 60}…'>"
    reported = story(status(pb.TASK_STATE_FAILED, "INTERNAL"))
    reported.failure = "agents.py, line 3: ValueError: no"
    assert repr(reported) == "<task of desk: FAILED: agents.py, line 3: ValueError: no>"
    artifact = GivenArtifact(pb.Artifact(artifact_id="a", name="report", parts=[types.text("x")]))
    assert repr(artifact) == "<artifact report: 'x'>"


FAILING_TESTS = """
from tests.testing.agents import counter, office
from dragoman.testing import run

def test_passes():
    assert run(office, "a table", "Monday").ended

def test_fails():
    assert run(office, "a table", "Friday").data == [1]

def test_raises(agent_under_test):
    agent_under_test(counter).send("x")
    assert False
"""


def test_a_failed_test_shows_its_tasks(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(FAILING_TESTS)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist", "--rootdir", str(tmp_path)]
    env = os.environ | {"PYTHONPATH": str(Path.cwd())}
    done = subprocess.run([*command, str(tmp_path)], capture_output=True, text=True, check=False, env=env)
    assert done.returncode == 1, done.stderr
    sections = re.findall(r"-+ tasks of agents -+\n(.*?)\n[-=_]{3}", done.stdout, re.DOTALL)
    assert len(sections) == 2, done.stdout
    office, counter = sections
    assert office.splitlines()[0] == "<task of office: COMPLETED: 'Booked: a table, Friday.'>"
    assert "  INPUT_REQUIRED: On which day?" in office
    assert "Monday" not in office
    assert len(re.findall("<task of counter: FAILED: .*agents.py, line", counter)) == 1
