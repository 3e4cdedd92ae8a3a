"""The chaos checker: a correct history passes, and every violation is reported."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from tests.chaos.history import (
    Acknowledged,
    Canceled,
    Closed,
    Entry,
    Fault,
    Got,
    Left,
    Opened,
    Recorder,
    Rejected,
    Sampled,
    Seen,
    Sent,
    digest,
    load,
    shape,
)
from tests.chaos_checker.checker import StoredEvent, StoredTask, judge, outputs, turns
from tests.load.requests import RESUME
from tests.load.transports import placed

from dragoman.core.task import states
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

LOG = (
    StoredEvent(1, "d1", states.SUBMITTED, "s1"),
    StoredEvent(2, "d2", states.WORKING, "s2"),
    StoredEvent(3, "d3", 0, "s3"),
    StoredEvent(4, "d4", 0, "s4"),
    StoredEvent(5, "d5", states.COMPLETED, "s5"),
)
TASK = StoredTask("t", states.COMPLETED, 5, LOG, ["m1"], "stream #1", begun=1)
ASKS = StoredTask(
    "a", states.INPUT_REQUIRED, 2, [LOG[0], StoredEvent(2, "a2", states.INPUT_REQUIRED)], ["m2"], "ask #2", begun=1
)
KEPT = {"t": TASK, "a": ASKS}

SENT = Sent(op=1, message="m1", binding="rest", how="at once", text="stream #1", key="k")
TWICE = replace(SENT, op=2)
ACK = Acknowledged(op=1, task="t", state=states.SUBMITTED)
FIRST = Opened(follower=7, task="t", binding="grpc")
SNAPSHOT = Seen(follower=7, sequence=2, digest="whatever", state=states.WORKING, shape="s2")
THIRD = Seen(follower=7, sequence=3, digest="d3")
AGAIN = Opened(follower=7, task="t", binding="ws", after=3)
FOURTH = Seen(follower=7, sequence=4, digest="d4")
FIFTH = Seen(follower=7, sequence=5, digest="d5", state=states.COMPLETED)
END = Closed(follower=7, why="end")
ASK = Sent(op=3, message="m2", binding="ws", how="blocking", text="ask #2")
REQUESTED = Acknowledged(op=3, task="a", state=states.INPUT_REQUIRED)
LEFT = Left(task="a")
LOOK = Sampled(at=20, up=20, orphans=[], stuck=[], waiting=3, running=40, slots=40)

GOOD: tuple[Entry, ...] = (
    SENT, TWICE, ACK, replace(ACK, op=2), FIRST, SNAPSHOT, THIRD, Fault(how="kill"), AGAIN, FOURTH, FIFTH, END,
    ASK, REQUESTED, LEFT, LOOK, Canceled(task="t", reason="TASK_NOT_CANCELABLE"), Got(task="t", state=states.COMPLETED),
)  # fmt: skip

BARE_FIRST = Opened(follower=8, task="t", binding="rest")
BARE: tuple[Entry, ...] = (
    BARE_FIRST,
    Seen(follower=8, sequence=None, digest="x", state=states.WORKING, shape="s2"),
    Seen(follower=8, sequence=None, digest="d3"),
    BARE_FIRST,
    Seen(follower=8, sequence=None, digest="y", state=states.WORKING, shape="s3"),
    Seen(follower=8, sequence=None, digest="d4"),
    Seen(follower=8, sequence=None, digest="d5", state=states.COMPLETED),
    Closed(follower=8, why="end"),
)
"""Events that a follower receives from a server without cursors."""


def without(*entries: Entry, of: Sequence[Entry] = GOOD) -> list[Entry]:
    return [entry for entry in of if entry not in entries]


def instead(old: Entry, *new: Entry, of: Sequence[Entry] = GOOD) -> list[Entry]:
    at = of.index(old)
    return [*of[:at], *new, *of[at + 1 :]]


def test_a_good_run_passes() -> None:
    assert judge(GOOD, KEPT) == []
    assert judge(BARE, KEPT) == []


@pytest.mark.parametrize(
    ("history", "problem"),
    [
        pytest.param(instead(ACK, replace(ACK, task="gone")), "lost", id="an acknowledged task"),
        pytest.param([*GOOD, Got(task="t", reason="TASK_NOT_FOUND")], "did not find", id="a task that is not found"),
        pytest.param(instead(ASK, replace(ASK, message="m9")), "message m9 acknowledged", id="an acknowledged message"),
        pytest.param(without(THIRD), "having seen 2", id="a cursor that skips"),
        pytest.param(without(FOURTH), "event 5 after 3: a gap", id="a gap after a reconnect"),
        pytest.param(instead(FOURTH, THIRD, FOURTH), "event 3 again after 3", id="an event twice"),
        pytest.param(instead(FOURTH, FIFTH, FOURTH), "again", id="events out of order"),
        pytest.param(instead(FOURTH, replace(FOURTH, digest="no")), "another event 4", id="another event"),
        pytest.param([*without(END), replace(FIFTH, sequence=6)], "event 6 of 5", id="an event that is not there"),
        pytest.param(instead(AGAIN, replace(AGAIN, after=2)), "went on after 2", id="a client with a wrong cursor"),
        pytest.param(without(SNAPSHOT), "before any Task", id="no Task first"),
        pytest.param(instead(SNAPSHOT, replace(SNAPSHOT, shape="no")), "not the fold", id="a Task that is no fold"),
        pytest.param(
            instead(FOURTH, replace(SNAPSHOT, sequence=4, shape="s4")), "another event 4", id="a Task despite a cursor"
        ),
        pytest.param(without(FIFTH), "ended after 4 of 5", id="a stream that ends early"),
        pytest.param(without(END), "left waiting", id="a stream that never ends"),
        pytest.param(instead(END, Closed(follower=7, why="refused: no")), "was refused", id="a cursor refused"),
        pytest.param([*GOOD, Opened(follower=9, task="no", binding="ws")], "not there", id="a task from nowhere"),
        pytest.param(
            [*GOOD, Opened(follower=9, task="a", binding="ws"), Closed(follower=9, why="end")],
            "the task is INPUT_REQUIRED",
            id="a stream that ends before its task",
        ),
        pytest.param(
            [*GOOD, Canceled(task="t", state=states.CANCELED)], "said CANCELED, it is COMPLETED", id="a lying cancel"
        ),
        pytest.param(instead(ACK, replace(ACK, state=states.FAILED)), "said FAILED", id="two ends"),
        pytest.param(instead(LOOK, replace(LOOK, orphans=["t"])), "dead sessions", id="a claim of a dead session"),
        pytest.param(instead(LOOK, replace(LOOK, stuck=["t"])), "never to be claimed", id="a task that is stuck"),
        pytest.param(
            [*GOOD, *(replace(LOOK, at=at, up=at, running=2) for at in range(20, 60))], "slots were free", id="a queue"
        ),
        pytest.param(instead(replace(ACK, op=2), replace(ACK, op=2, task="a")), "2 tasks: a, t", id="a key, two tasks"),
        pytest.param(
            [*GOOD, replace(ASK, op=5, task="a"), Rejected(op=5, reason="no")], "refused the answer", id="no answer"
        ),
        pytest.param([*GOOD, Left(task="t")], "log does not say so", id="asked, and not in the log"),
        pytest.param([*GOOD, Left(task="no")], "asked, and is lost", id="asked, and lost"),
        pytest.param(
            [*GOOD, replace(ASK, op=5, task="a"), replace(REQUESTED, op=5)],
            "was answered, and is",
            id="no end after it",
        ),
    ],
)
def test_a_broken_history_is_reported(history: Sequence[Entry], problem: str) -> None:
    assert problem in "\n".join(judge(history, KEPT))


@pytest.mark.parametrize(
    ("task", "problem"),
    [
        pytest.param(replace(TASK, events=LOG[:2] + LOG[3:]), "is numbered 1, 2, 4, 5", id="a gap"),
        pytest.param(replace(TASK, last=6), "its last event is 6", id="a lost last event"),
        pytest.param(replace(TASK, state=states.FAILED), "its log ends COMPLETED", id="another state"),
        pytest.param(
            replace(TASK, events=[*LOG, StoredEvent(6, "d6", 0)], last=6), "1 events follow its end", id="a late write"
        ),
        pytest.param(replace(TASK, begun=2), "called 2 times for 1 messages", id="two runs"),
        pytest.param(replace(TASK, id="other"), "acknowledged (op 1) and lost", id="another task"),
    ],
)
def test_a_broken_log_is_reported(task: StoredTask, problem: str) -> None:
    assert problem in "\n".join(judge(GOOD, {task.id: task, "a": ASKS}))


def test_a_completed_task_whose_agent_never_received_a_message_is_reported() -> None:
    task = StoredTask("t", states.COMPLETED, 0, (), ["m1", "m2"], "echo #1", begun=1)
    assert list(turns((), {"t": task})) == ["task t: completed, its agent has received 1 of 2 messages"]
    assert list(turns((), {"t": replace(task, state=states.FAILED)})) == []


def test_the_output_of_a_repeated_stream_is_there_once() -> None:
    task = StoredTask("t", states.COMPLETED, 0, (), ["m1"], "stream 3 20 #1", output="0 1 2 ")
    assert list(outputs((), {"t": task})) == []
    (problem,) = outputs((), {"t": replace(task, output="0 0 1 2 ")})
    assert problem == "task t: its output is '0 0 1 2 ', and was to be '0 1 2 '"


def test_a_second_task_of_a_key_is_reported_even_without_a_response() -> None:
    assert "made 2 tasks" in "\n".join(judge(GOOD, KEPT | {"u": replace(TASK, id="u")}))


def test_an_interrupted_task_ended_by_a_crash_is_reported() -> None:
    ended = replace(ASKS, state=states.FAILED, last=3, events=[*ASKS.events, StoredEvent(3, "a3", states.FAILED)])
    assert "was left alone, and is FAILED" in "\n".join(judge(GOOD, {"t": TASK, "a": ended}))


@pytest.mark.parametrize(("number", "digest"), [(2, "no"), (5, "d3"), (6, "d3")])
def test_without_cursors_a_gap_is_found_by_adjacent_events(number: int, digest: str) -> None:
    other = Seen(follower=8, sequence=None, digest=digest)
    broken = [*BARE[:number], other, *BARE[number + 1 :]]
    assert "do not follow each other" in "\n".join(judge(broken, KEPT))


def test_without_cursors_a_stream_that_ends_early_is_reported() -> None:
    assert "1 events before the log does" in "\n".join(judge(without(BARE[6], of=BARE), KEPT))


# The history -------------------------------------------------------------------------------------------------------


def test_a_history_can_be_read_from_its_file(tmp_path: Path) -> None:
    file = io.StringIO()
    recorder = Recorder(file)
    for entry in GOOD:
        recorder.add(entry)
    path = tmp_path / "history.jsonl"
    path.write_text(file.getvalue())
    assert load(path) == recorder.entries == list(GOOD)


def test_an_event_is_the_same_with_and_without_its_cursor() -> None:
    bare = pb.StreamResponse(status_update=pb.TaskStatusUpdateEvent(task_id="t"))
    marked = pb.StreamResponse()
    marked.CopyFrom(bare)
    marked.status_update.metadata.update({RESUME: {"cursor": "a.b.3", "sequence": 3}})
    assert digest(bare) == digest(marked)
    assert (placed(bare).sequence, placed(marked).sequence, placed(marked).cursor) == (None, 3, "a.b.3")
    marked.status_update.metadata.update({"attempt": 2})
    assert digest(bare) != digest(marked)


def test_the_shape_of_a_task_ignores_chunk_boundaries() -> None:
    def cut(*texts: str) -> pb.Task:
        return pb.Task(artifacts=[pb.Artifact(artifact_id="o", parts=[pb.Part(text=text) for text in texts])])

    assert shape(cut("a", "b")) == shape(cut("ab")) != shape(cut("abc"))
