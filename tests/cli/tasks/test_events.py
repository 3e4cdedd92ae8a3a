"""`dragoman logs`: the events of a task, and the changes of all tasks."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.cli.conftest import CommandResult, Run
from tests.cli.server import Lines, Server, clean_environment, serving
from typer.testing import CliRunner

from dragoman.cli import cli
from dragoman.cli.tasks.events import describe
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

pytestmark = pytest.mark.long

LINE = re.compile(r"(?P<time>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d|-) +(?P<agent>\S+)  (?P<task>\S+)  (?P<event>.*)")


def parsed(text: str) -> list[dict[str, str]]:
    matches = [LINE.fullmatch(line) for line in text.splitlines()]
    assert None not in matches, text
    return [match.groupdict() for match in matches if match]


def addresses(server: Server) -> list[str]:
    return [server.http, f"grpc://{server.grpc}"]


@contextmanager
def logging(server: str, *arguments: str, key: str = "") -> Iterator[Lines]:
    """Runs `dragoman logs` in a process of its own, which is ended with the block."""
    process = subprocess.Popen(
        [sys.executable, "-m", "dragoman", "logs", *arguments, "--server", server],
        stdout=subprocess.PIPE,
        env=clean_environment() | ({"DRAGOMAN_KEY": key} if key else {}),
        text=True,
    )
    assert process.stdout is not None
    try:
        yield Lines(process.stdout)
    finally:
        process.kill()
        process.wait()


def test_the_log_of_a_task_has_every_event(dragoman: Run, playground: Server) -> None:
    task = dragoman("send", "stream 2 1", "--no-wait").out.strip()
    dragoman("watch", task)
    for server in addresses(playground):
        result = dragoman("logs", task, "--server", server)
        assert result.code == 0, result
        events = parsed(result.out)
        assert {(one["agent"], one["task"]) for one in events} == {("playground", task)}
        assert [one["event"].split("  ")[0] for one in events][:2] == ["SUBMITTED", "WORKING"]
        assert events[0]["event"] == "SUBMITTED  stream 2 1"
        assert events[-1]["event"].startswith("COMPLETED")
        chunks = [one for one in events if " output  " in one["event"]]
        assert [one["event"] for one in chunks] == ["artifact output  chunk-1", "append output  chunk-2"]
        assert {one["time"] for one in chunks} == {"-"}


def test_without_follow_a_log_ends_at_the_newest_event(dragoman: Run) -> None:
    task = json.loads(dragoman("send", "ask", "--json").out)["task"]["id"]
    result = dragoman("logs", task, "--no-follow", "--json")
    assert result.code == 0, result
    lines = [json.loads(line) for line in result.out.splitlines()]
    assert lines[0]["task"] == task
    assert lines[0]["event"]["task"]["status"]["state"] == "TASK_STATE_SUBMITTED"
    assert lines[-1]["event"]["statusUpdate"]["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    assert lines[-1]["time"] == lines[-1]["event"]["statusUpdate"]["status"]["timestamp"]
    dragoman("cancel", task)


def test_a_task_that_is_not_there_is_not_found(dragoman: Run, playground: Server) -> None:
    for server in addresses(playground):
        result = dragoman("logs", "none", "--server", server)
        assert (result.code, result.out) == (4, "")


def test_the_changes_of_all_tasks_come_oldest_first(dragoman: Run, playground: Server) -> None:
    first = dragoman("send", "echo one", "--no-wait").out.strip()
    dragoman("watch", first)
    second = dragoman("send", "fail now", "--no-wait").out.strip()
    dragoman("watch", second)
    for server in addresses(playground):
        found = parsed(dragoman("logs", "--no-follow", "--since", "1h", "--server", server).out)
        ids = [one["task"] for one in found]
        assert ids.index(first) < ids.index(second)
        assert next(one["event"] for one in found if one["task"] == second).startswith("FAILED  ")
    assert dragoman("logs", "--no-follow", "--agent", "other").out == ""
    assert dragoman("logs", "--since", "soon").code == 2


@pytest.mark.parametrize("position", [0, 1])
def test_new_tasks_appear_as_they_change(dragoman: Run, playground: Server, position: int) -> None:
    old = dragoman("send", "echo first", "--no-wait").out.strip()
    dragoman("watch", old)
    with logging(addresses(playground)[position]) as lines:
        lines.until(old)
        new = dragoman("send", "ask", "--no-wait").out.strip()
        assert "INPUT_REQUIRED" in lines.until(f"{new}  INPUT")
        dragoman("cancel", new)
        assert "CANCELED" in lines.until(f"{new}  CANCELED")


@pytest.fixture(scope="module")
def call_as(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., CommandResult]]:
    """Runs a command as `alice`, as `bob`, or as `carol`, who is an operator."""
    folder = tmp_path_factory.mktemp("keys")
    keys = {}
    for name, grants in (("alice", ()), ("bob", ()), ("carol", ("--grant", "operator"))):
        options = ("--principal", name, *grants, "--store", f"sqlite:///{folder}/dragoman.db")
        created = CliRunner().invoke(cli, ["keys", "create", name, *options], env=clean_environment())
        assert created.exit_code == 0, created
        keys[name] = created.stdout.strip()
    with serving("--api-keys", cwd=folder) as server:

        def call(who: str, *arguments: str) -> CommandResult:
            environment = clean_environment() | {"DRAGOMAN_SERVER": server.http, "DRAGOMAN_KEY": keys[who]}
            result = CliRunner().invoke(cli, arguments, env=environment)
            return CommandResult(result.exit_code, result.stdout, result.stderr)

        yield call


def test_operators_see_the_tasks_of_all_callers_and_others_their_own(
    call_as: Callable[..., CommandResult], tmp_path: Path
) -> None:
    task = call_as("alice", "send", "stream 2 1", "--no-wait").out.strip()
    assert call_as("alice", "watch", task).code == 0
    own = call_as("alice", "logs", task)
    assert own.code == 0, own
    assert call_as("carol", "logs", task).out == own.out
    assert call_as("carol", "logs", task, "--no-follow", "--principal", "alice").out == own.out
    hidden = call_as("bob", "logs", task)
    assert (hidden.code, hidden.out) == (4, "")
    assert task in call_as("carol", "logs", "--no-follow").out
    assert task in call_as("alice", "logs", "--no-follow").out
    assert call_as("bob", "logs", "--no-follow").out == ""
    assert call_as("bob", "logs", "--no-follow", "--principal", "alice").code == 3


def test_other_parts_than_text_are_named() -> None:
    artifact = pb.Artifact(artifact_id="a", parts=[pb.Part(text="two\nlines"), pb.Part(raw=b"x", filename="x.bin")])
    event = pb.StreamResponse(artifact_update=pb.TaskArtifactUpdateEvent(artifact=artifact))
    assert describe(event) == "artifact a  two lines [x.bin]"
    reply = pb.StreamResponse(message=pb.Message(parts=[pb.Part(text="hello")]))
    assert describe(reply) == "message  hello"
