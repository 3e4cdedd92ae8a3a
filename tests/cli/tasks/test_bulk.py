"""`cancel`, `rerun` and `purge` of many tasks, against a real server: output, questions and exit codes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.conftest import Run
from tests.cli.server import PROCESS_TIMEOUT, Server, clean_environment

pytestmark = pytest.mark.long

NOT_THERE = "00000000-0000-7000-8000-000000000000"


def create(dragoman: Run, text: str, context: str) -> str:
    """Sends a message in a conversation, and returns the id of its task."""
    return dragoman("send", text, "--context", context, "--no-wait").out.strip()


def states_of(dragoman: Run, context: str) -> dict[str, str]:
    """The states of a conversation's tasks by id."""
    tasks = map(json.loads, dragoman("list", "--context", context, "--json").out.splitlines())
    return {task["id"]: task["status"]["state"].removeprefix("TASK_STATE_") for task in tasks}


def test_one_task_is_rerun_and_the_new_id_is_printed(dragoman: Run) -> None:
    task = dragoman("send", "fail").err.split("task ")[1].split()[0]
    result = dragoman("rerun", task)
    assert result.code == 0
    again = result.out.strip()
    assert again != task
    assert f"see it with: dragoman explain {again}" in result.err
    dragoman("watch", again)
    assert json.loads(dragoman("rerun", again, "--json").out)["id"] not in (task, again)
    missing = dragoman("rerun", NOT_THERE)
    assert (missing.code, missing.out) == (4, "")


def test_a_task_that_has_not_ended_is_not_rerun(dragoman: Run) -> None:
    task = create(dragoman, "sleep 60", "r-open")
    result = dragoman("rerun", task)
    assert (result.code, "the task is TASK_STATE_WORKING" in result.err) == (3, True)
    assert dragoman("cancel", task).code == 0


def test_many_tasks_are_canceled_after_their_number_was_printed(dragoman: Run) -> None:
    for _ in range(3):
        create(dragoman, "sleep 60", "c-many")
    done = dragoman("send", "echo hi", "--context", "c-many", "--json").out
    assert dragoman("cancel", "--context", "c-many", "--dry-run").out == "3 tasks would be canceled\n"
    refused = dragoman("cancel", "--context", "c-many")
    assert (refused.code, refused.err) == (2, "error: Cancel 3 tasks? Pass --yes to do it, or --dry-run to count\n")
    result = dragoman("cancel", "--context", "c-many", "--yes")
    assert (result.code, result.out) == (0, "3 tasks canceled\n")
    assert sorted(states_of(dragoman, "c-many").values()) == ["CANCELED"] * 3 + ["COMPLETED"]
    assert json.loads(done)["task"]["id"] in states_of(dragoman, "c-many")
    nothing = dragoman("cancel", "--context", "c-many", "--yes")
    assert (nothing.code, nothing.out) == (0, "0 tasks would be canceled\n")


def test_reruns_with_json_are_one_object(dragoman: Run) -> None:
    for _ in range(2):
        dragoman("send", "fail", "--context", "r-json")
    found = dragoman("rerun", "--context", "r-json", "--state", "failed", "--text", "fail", "--since", "1h", "--json")
    assert json.loads(found.err)["error"]["exitCode"] == found.code == 2
    result = dragoman("rerun", "--context", "r-json", "--since", "1h", "--text", "fail", "--json", "--yes")
    assert json.loads(result.out) == {"matched": "2", "changed": "2"}
    assert len(states_of(dragoman, "r-json")) == 4


def test_purge_with_a_text_erases_what_matches(dragoman: Run) -> None:
    for text in ("echo cows", "echo cows", "echo sheep"):
        dragoman("send", text, "--context", "p-text")
    assert dragoman("purge", "--text", "cows", "--dry-run").out == "2 tasks would be erased\n"
    assert dragoman("purge", "--text", "cows", "--yes").out == "2 tasks erased\n"
    assert len(states_of(dragoman, "p-text")) == 1
    offline = dragoman("purge", "--text", "cows", "--store", "sqlite:///x.db")
    assert (offline.code, "need a server" in offline.err) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("rerun",), "select the tasks: TASK, or --agent"),
        (("cancel", "--yes"), "select the tasks: TASK, or --agent"),
        (("rerun", NOT_THERE, "--state", "failed"), "pass either TASK, or options"),
        (("cancel", NOT_THERE, "--principal", "bob"), "pass either TASK, or options"),
        (("cancel", NOT_THERE, "--dry-run"), "pass either TASK, or options"),
        (("cancel", "--since", "soon"), "--since"),
    ],
)
def test_invalid_usage_is_explained(dragoman: Run, arguments: tuple[str, ...], text: str) -> None:
    result = dragoman(*arguments)
    assert (result.code, result.out) == (2, "")
    assert text in " ".join(result.err.split())


def test_other_errors_of_the_server_name_the_field(dragoman: Run) -> None:
    result = dragoman("cancel", "--state", "completed", "--yes")
    assert (result.code, "filter.states: TASK_STATE_COMPLETED is not possible here" in result.err) == (3, True)


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
@pytest.mark.parametrize(("answer", "code", "changed"), [("n", 1, 0), ("", 1, 0), ("y", 0, 1)])
def test_a_terminal_is_asked(
    dragoman: Run, playground: Server, tmp_path: Path, answer: str, code: int, changed: int
) -> None:
    context = f"t-{answer}"
    dragoman("send", "fail", "--context", context)
    command = [sys.executable, "-m", "dragoman", "rerun", "--context", context, "--server", playground.grpc]
    controller, terminal = os.openpty()
    with subprocess.Popen(
        command, stdin=terminal, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path,
        env=clean_environment(), text=True,
    ) as process:  # fmt: skip
        os.write(controller, f"{answer}\n".encode())
        out, err = process.communicate(timeout=PROCESS_TIMEOUT)
    os.close(controller)
    os.close(terminal)
    assert (process.returncode, err) == (code, "Rerun 1 task? [y/N]: ")
    assert out == ("1 task rerun\n" if changed else "")
    assert len(states_of(dragoman, context)) == 1 + changed


def test_a_cancel_of_an_ended_task_says_its_state(dragoman: Run) -> None:
    task = json.loads(dragoman("send", "echo x", "--json").out)["task"]["id"]
    refused = dragoman("cancel", task)
    assert refused.code == 3
    assert re.search(rf"task {task} is COMPLETED since \d{{4}}-\d\d-\d\d .*; a task that has ended cannot", refused.err)
