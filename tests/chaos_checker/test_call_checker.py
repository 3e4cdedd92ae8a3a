"""The checker of MCP calls: a correct history passes, and every violation is reported."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from tests.chaos.history import (
    Acknowledged,
    CallLeft,
    CallOpened,
    CallResult,
    Entry,
    Fault,
    Progressed,
    Sent,
)
from tests.chaos_checker.call_checker import canceled_by_leaving, judge_calls
from tests.chaos_checker.checker import StoredEvent, StoredTask, acknowledged

from dragoman.core.task import states

LOG = (
    StoredEvent(1, "d1", states.SUBMITTED),
    StoredEvent(2, "d2", states.INPUT_REQUIRED, text="and then?"),
    StoredEvent(3, "d3", states.WORKING),
    StoredEvent(4, "d4", 0, text="said"),
    StoredEvent(5, "d5", states.COMPLETED),
)
TASK = StoredTask(
    "t", states.COMPLETED, 5, LOG, ["m1", "m2"], "ask #1", texts=["ask #1", "so #2"], result_text="said", times=(0, 4)
)

SENT = Sent(op=1, message="", binding="mcp-wait", how="call", text="ask #1", key="k")
OPENED = CallOpened(at=1, call=7, task="", how="call")
ACK = Acknowledged(at=1.1, op=1, task="t", state=states.WORKING)
ASKS = Progressed(at=1.1, call=7, task="t", sequence=2, cursor=2, text="and then?")
QUESTION = CallResult(at=1.2, call=7, task="t", kind="question", state=states.INPUT_REQUIRED)
ANSWER = Sent(at=1.3, op=2, message="", binding="mcp-wait", how="answer", text="so #2", task="t")
ANSWERED = Acknowledged(at=1.4, op=2, task="t", state=states.WORKING)
RETRY = CallOpened(at=1.5, call=7, task="t", how="retry")
SAYS = Progressed(at=1.6, call=7, task="t", sequence=5, cursor=5, text="said")
RESULT = CallResult(at=1.7, call=7, task="t", kind="final", state=states.COMPLETED, text="said")
GOOD: tuple[Entry, ...] = (SENT, OPENED, ACK, ASKS, QUESTION, ANSWER, ANSWERED, RETRY, SAYS, RESULT)


def instead(old: Entry, *new: Entry) -> list[Entry]:
    at = GOOD.index(old)
    return [*GOOD[:at], *new, *GOOD[at + 1 :]]


def problems(history: Sequence[Entry], *tasks: StoredTask) -> str:
    kept = {task.id: task for task in tasks or (TASK,)}
    return "\n".join([*judge_calls(history, kept), *acknowledged(history, kept)])


def test_a_good_run_passes() -> None:
    assert problems(GOOD) == ""


@pytest.mark.parametrize(
    ("history", "problem"),
    [
        pytest.param(instead(RESULT, replace(RESULT, text="no")), 'its result is "no"', id="another result"),
        pytest.param(instead(RESULT, replace(RESULT, state=states.FAILED)), "its result says", id="another state"),
        pytest.param(instead(RESULT, replace(RESULT, task="u")), "has 2 tasks: t, u", id="another task"),
        pytest.param(instead(RESULT, replace(RESULT, kind="error", text="no")), "failed: no", id="an error"),
        pytest.param(instead(RESULT), "was left waiting although", id="no result"),
        pytest.param(instead(RESULT, replace(RESULT, kind="unfinished")), "left waiting", id="an unfinished result"),
        pytest.param([SENT, OPENED], "got no response", id="no response at all"),
        pytest.param(instead(SAYS, replace(SAYS, sequence=2, cursor=2)), "progress 2 after 2", id="progress again"),
        pytest.param(instead(SAYS, replace(SAYS, cursor=4)), "has the cursor 4", id="another cursor"),
        pytest.param(instead(SAYS, replace(SAYS, sequence=6)), "progress 6 of 5 events", id="progress beyond the log"),
        pytest.param(instead(SAYS, replace(SAYS, text="no")), "no event after 2 does", id="another text"),
        pytest.param(instead(SAYS, SAYS, replace(QUESTION, at=1.65)), "was asked again", id="a question again"),
        pytest.param(instead(SENT, replace(SENT, text="ask #9")), '"ask #9" acknowledged', id="a lost call"),
        pytest.param(instead(ANSWER, replace(ANSWER, text="so #9")), '"so #9" acknowledged', id="a lost answer"),
    ],
)
def test_a_broken_history_is_reported(history: Sequence[Entry], problem: str) -> None:
    assert problem in problems(history)


def test_a_message_that_is_stored_twice_is_reported() -> None:
    assert '"so #2" is stored 2 times' in problems(GOOD, replace(TASK, texts=["ask #1", "so #2", "so #2"]))
    assert '"ask #1" is stored 2 times' in problems(GOOD, TASK, replace(TASK, id="u"))


def test_a_failed_call_has_the_reason_in_its_text() -> None:
    failed = replace(TASK, state=states.FAILED, result_text="out of paper")
    result = replace(RESULT, state=states.FAILED, text="out of paperhalf of the output")
    assert problems(instead(RESULT, result), failed) == ""
    assert 'failed with "out of paper"' in problems(instead(RESULT, replace(result, text="no")), failed)


@pytest.mark.parametrize(
    ("task", "faults", "reported"),
    [
        pytest.param(replace(TASK, times=(0, 30)), [], True, id="it ran on"),
        pytest.param(replace(TASK, times=(0, 12)), [], False, id="it had ended by itself"),
        pytest.param(replace(TASK, state=states.CANCELED, times=(0, 30)), [], False, id="canceled"),
        pytest.param(replace(TASK, times=(0, 30)), [Fault(at=12, how="kill")], False, id="killed before the cancel"),
        pytest.param(replace(TASK, times=(0, 30)), [Fault(at=3, how="kill")], False, id="starting"),
        pytest.param(replace(TASK, times=(0, 30)), [Fault(at=20, how="kill")], True, id="killed too late"),
    ],
)
def test_an_abandoned_call_cancels_its_task_unless_a_fault_prevents_it(
    task: StoredTask, faults: Sequence[Entry], reported: bool
) -> None:
    left = CallLeft(at=10.5, call=7, task="t", cancels=True)
    assert ("was abandoned at 10.500" in "\n".join(judge_calls([OPENED, left, *faults], {"t": task}))) == reported
    assert canceled_by_leaving([left], {"t": task}) == (task.state == states.CANCELED)
