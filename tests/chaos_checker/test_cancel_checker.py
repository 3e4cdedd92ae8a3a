"""The cancel checker: every action after CANCELED was told is reported."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.chaos.actions import BEGIN, END, Action, act, read_actions
from tests.chaos.history import Acknowledged, Canceled, Entry, Fault, Got, Opened, Seen
from tests.chaos_checker.cancel_checker import judge_cancels

from dragoman.core.task import states

BEGAN = Action(1.0, "t", 1, BEGIN, "server-1.7")
WROTE = Action(2.0, "t", 1, "chunk 1", "server-1.7")
AGAIN = Action(9.7, "t", 2, BEGIN, "server-2.8")
REPORTED = Canceled(at=2.5, task="t", state=states.CANCELED)
FOLLOWED = Opened(at=0.5, follower=3, task="t", binding="ws")


@pytest.mark.parametrize(
    "history",
    [
        pytest.param([REPORTED], id="it had stopped"),
        pytest.param([Canceled(at=1.5, task="t", state=states.WORKING), REPORTED], id="still working, then canceled"),
        pytest.param([Canceled(at=0.0, task="t", reason="TASK_NOT_CANCELABLE")], id="refused"),
        pytest.param([Canceled(at=0.0, task="other", state=states.CANCELED)], id="another task"),
        pytest.param([Canceled(at=2.0, task="t", state=states.CANCELED)], id="at the same time"),
    ],
)
def test_an_agent_that_stopped_first_is_no_violation(history: list[Entry]) -> None:
    assert list(judge_cancels(history, [BEGAN, WROTE])) == []


@pytest.mark.parametrize(
    "reported",
    [
        REPORTED,
        Got(at=2.5, task="t", state=states.CANCELED),
        Acknowledged(at=2.5, op=1, task="t", state=states.CANCELED),
        Seen(at=2.5, follower=3, sequence=4, digest="d", state=states.CANCELED),
    ],
    ids=lambda entry: type(entry).__name__,
)
def test_an_action_after_the_answer_is_reported(reported: Entry) -> None:
    (problem,) = judge_cancels([FOLLOWED, reported], [BEGAN, Action(2.6, "t", 1, "chunk 2", "server-1.7")])
    assert "went on until 0.100 s later: 1 actions" in problem
    assert "chunk 2 of attempt 1 in server-1.7" in problem


def test_a_new_attempt_after_the_answer_is_reported() -> None:
    (problem,) = judge_cancels([REPORTED], [BEGAN, WROTE, AGAIN])
    assert "went on until 7.200 s later, and began again" in problem


FREEZE = Fault(at=1.9, how="pause", seconds=12.0)


def test_an_agent_may_clean_up_when_its_process_wakes() -> None:
    assert list(judge_cancels([FREEZE, REPORTED], [BEGAN, WROTE, Action(14.0, "t", 1, END, "server-1.7")])) == []


@pytest.mark.parametrize(
    "late",
    [
        pytest.param([Action(13.9, "t", 1, "chunk 2", "server-1.7")], id="it does more than to clean up"),
        pytest.param(
            [Action(13.9, "t", 1, "chunk 2", "server-1.7"), Action(13.9, "t", 1, END, "server-1.7")], id="and cleans up"
        ),
        pytest.param([Action(9.0, "t", 1, END, "server-1.7")], id="it was not frozen then"),
        pytest.param([Action(15.0, "t", 1, END, "server-1.7")], id="it goes on after the freeze"),
    ],
)
def test_whatever_else_an_agent_does_after_a_freeze_is_reported(late: list[Action]) -> None:
    assert len(list(judge_cancels([FREEZE, REPORTED], [BEGAN, WROTE, *late]))) == 1


def test_the_first_answer_counts() -> None:
    later = Got(at=99.0, task="t", state=states.CANCELED)
    assert len(list(judge_cancels([later, REPORTED], [BEGAN, AGAIN]))) == 1


def test_actions_are_read_as_they_were_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHAOS_ACTIONS", str(tmp_path))
    monkeypatch.setenv("CHAOS_PART", "worker-1")
    act("t", 1, BEGIN)
    act("t", 1, "chunk 1")
    first, second = read_actions(tmp_path, 0.0)
    assert (first.task, first.attempt, first.text) == ("t", 1, BEGIN)
    assert (second.text, second.process) == ("chunk 1", f"worker-1.{os.getpid()}")
    assert first.at <= second.at
