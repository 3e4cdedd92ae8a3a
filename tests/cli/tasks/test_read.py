"""`get`, `watch`, `list` against a real server."""

from __future__ import annotations

import json
import re

import pytest
from tests.cli.conftest import Run

pytestmark = pytest.mark.long


def test_a_list_is_ordered_by_change_and_filtered(dragoman: Run) -> None:
    first = json.loads(dragoman("send", "echo 1", "--context", "of-the-list", "--json").out)["task"]["id"]
    second = json.loads(dragoman("send", "fail", "--context", "of-the-list", "--json").out)["task"]["id"]
    lines = dragoman("list", "--context", "of-the-list").out.splitlines()
    assert [(line.split()[0], line.split()[3]) for line in lines] == [("FAILED", second), ("COMPLETED", first)]
    assert re.fullmatch(rf"FAILED +playground +\d+s +{second} +fail", lines[0])
    completed = ("list", "--context", "of-the-list", "--state", "completed")
    (line,) = dragoman(*completed, "--wide").out.splitlines()
    assert re.fullmatch(rf"COMPLETED +playground +\d+s +{first} +echo 1 +- +default +of-the-list +\d{{4}}-.*", line)
    assert first in dragoman(*completed, "--since", "1h").out
    assert dragoman(*completed, "--since", "0").err == "no tasks\n"
    assert dragoman("list", "--since", "long").code == 2
    (line,) = dragoman("list", "--context", "of-the-list", "--limit", "1", "--json").out.splitlines()
    assert json.loads(line)["id"] == second
    nothing = dragoman("list", "--context", "of-nobody")
    assert (nothing.code, nothing.out, nothing.err) == (0, "", "no tasks\n")


def test_a_list_of_all_callers_shows_what_was_asked(dragoman: Run) -> None:
    task = dragoman("send", "fail in time", "--context", "of-asking", "--no-wait").out.strip()
    dragoman("watch", task)
    (line,) = dragoman("list", "--all", "--context", "of-asking").out.splitlines()
    assert re.fullmatch(rf"FAILED +playground +\d+s +{task} +fail in time +RuntimeError: failing, as asked", line)
    (wide,) = dragoman("list", "--all", "--context", "of-asking", "--wide").out.splitlines()
    assert re.search(r"fail in time +RuntimeError: .* +default +of-asking", wide)


def test_watch_prints_past_and_new_output(dragoman: Run) -> None:
    task = dragoman("send", "stream 4 50", "--no-wait").out.strip()
    result = dragoman("watch", task)
    assert (result.code, result.out.replace("\n", "")) == (0, "chunk-1 chunk-2 chunk-3 chunk-4 ")
    assert "COMPLETED  task " in result.err


def test_watch_prints_a_finished_task(dragoman: Run) -> None:
    task = json.loads(dragoman("send", "echo done", "--json").out)["task"]["id"]
    result = dragoman("watch", task)
    assert (result.code, result.out) == (0, "done\n")
    failed = json.loads(dragoman("send", "fail", "--json").out)["task"]["id"]
    assert dragoman("watch", failed).code == 1


def test_a_list_is_filtered_as_a_cancel_is(dragoman: Run) -> None:
    kept = json.loads(dragoman("send", "echo needle", "--context", "of-filters", "--json").out)["task"]["id"]
    dragoman("send", "fail", "--context", "of-filters")
    assert dragoman("list", "--context", "of-filters", "--text", "needle").out.count("\n") == 1
    found = dragoman("list", "--context", "of-filters", "--state", "completed", "--state", "canceled").out
    assert [line.split()[3] for line in found.splitlines()] == [kept]
    assert (
        len(dragoman("list", "--context", "of-filters", "--state", "failed", "--state", "completed").out.splitlines())
        == 2
    )
    assert dragoman("list", "--context", "of-filters", "--older-than", "1h").err == "no tasks\n"


COMMANDS_WITH_A_TASK = (
    "get", "watch", "explain", "steps", "logs --no-follow", "export", "push list", "cancel", "rerun",
    "record -o case.json",
)  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS_WITH_A_TASK)
def test_a_task_is_named_by_the_beginning_of_its_id(dragoman: Run, command: str) -> None:
    # A chosen beginning has at least 18 digits: the first eight are those of a whole minute.
    task = json.loads(dragoman("send", "echo short", "--json").out)["task"]["id"]
    name, *more = command.split()
    full, short = dragoman(name, *more, task), dragoman(name, *more, task[:18])
    assert short.code == full.code
    assert (short.err == full.err) or name == "rerun" or name == "watch"
    assert task in short.out + short.err or "no " in short.out or name in ("record", "watch", "rerun")


def test_a_beginning_of_several_ids_names_these(dragoman: Run) -> None:
    # The first eight digits change once in 66 s, so that two of three have them in common.
    tasks = [json.loads(dragoman("send", f"echo {n}", "--json").out)["task"]["id"] for n in (1, 2, 3)]
    begin = tasks[1][:8]
    result = dragoman("get", begin)
    assert (result.code, result.out) == (2, "")
    assert re.search(rf"tasks begin with {begin}: .*; type more of one", result.err)
    assert dragoman("get", tasks[0][:7]).code == 4
    assert "pass the complete id" in dragoman("get", "ffffffff").err
