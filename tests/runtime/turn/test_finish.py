"""How a turn finishes, case by case."""

from __future__ import annotations

from typing import Any, Final

import pytest

from dragoman.core.errors import InvalidAgentResponse
from dragoman.core.task import states
from dragoman.core.task.log import CHANGED, FENCED, AppendRejected, ArtifactChange, StatusChange, TaskRecord
from dragoman.ports import LeaseLost, StateUpdate, TurnResult, WorkerLost
from dragoman.runtime.turn.events import Change
from dragoman.runtime.turn.finish import Finish, FinishKind, Output, decide, with_working
from dragoman.runtime.turn.stop import StopReason, StopToken
from dragoman.testing.fixtures import new_ref
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

DONE: Final = TurnResult(StatusChange(states.COMPLETED), [ArtifactChange("a", b"")])
FAILED: Final = TurnResult(StatusChange(states.FAILED))
CANCELED: Final = StatusChange(states.CANCELED)
REPLY: Final = TurnResult(StatusChange(states.COMPLETED), reply=pb.Message(message_id="m"))
CHUNK: Final = ArtifactChange("a", b"", text="one")


def record(*, state: int = states.WORKING, visible: bool = True, attempt: int = 1) -> TaskRecord:
    return TaskRecord(new_ref(), "echo", "task", "context", state, 0, 1, visible=visible, attempt=attempt)


def finish_of(
    result: TurnResult,
    *changes: Change,
    failure: Exception | None = None,
    reason: StopReason | None = None,
    ended: bool = False,
    lost: WorkerLost | None = None,
    retries: int = 0,
    **task: Any,
) -> Finish:
    stop = StopToken()
    if reason is not None:
        stop.request(reason)
    if ended:
        stop.escalate()
    output = Output(changes, StateUpdate(b"task", b"context"), failure)
    return decide(result, output, stop, lambda: CANCELED, lost, record(**task), retries)


def states_of(finish: Finish) -> list[int | str]:
    """The states of the changes, and the ids of artifacts."""
    return [change.state if isinstance(change, StatusChange) else change.artifact_id for change in finish.changes]


@pytest.mark.parametrize(
    ("result", "options", "kind", "changes"),
    [
        (DONE, {}, FinishKind.END, ["a", states.COMPLETED]),
        (FAILED, {}, FinishKind.END, [states.FAILED]),
        (FAILED, {"retries": 1}, FinishKind.END, [states.FAILED]),  # its own failure is no interruption
        (DONE, {"reason": "drain", "retries": 1}, FinishKind.END, ["a", states.COMPLETED]),  # in time
        (FAILED, {"reason": "drain"}, FinishKind.END, [states.FAILED]),
        (FAILED, {"reason": "drain", "retries": 1}, FinishKind.RETRY, [states.WORKING]),
        (FAILED, {"reason": "drain", "retries": 1, "attempt": 2}, FinishKind.END, [states.FAILED]),
        (FAILED, {"reason": "drain", "retries": 1, "visible": False}, FinishKind.RETRY, []),
        (FAILED, {"reason": "fenced", "retries": 1}, FinishKind.RETRY, [states.WORKING]),
        (FAILED, {"reason": "deadline", "retries": 1}, FinishKind.END, [states.FAILED]),
        (FAILED, {"reason": "client", "retries": 1}, FinishKind.END, [states.FAILED]),
        (FAILED, {"lost": WorkerLost()}, FinishKind.END, [states.FAILED]),
        (FAILED, {"lost": WorkerLost(), "retries": 1}, FinishKind.RETRY, [states.WORKING]),
        (FAILED, {"lost": WorkerLost(may_have_started=False)}, FinishKind.RETRY, [states.WORKING]),
        (TurnResult(CANCELED), {"lost": WorkerLost(), "retries": 1}, FinishKind.END, [states.CANCELED]),
        (REPLY, {"visible": False}, FinishKind.REPLY, []),
        (REPLY, {}, FinishKind.END, [states.COMPLETED]),
        (DONE, {"failure": RuntimeError("no")}, FinishKind.END, [states.FAILED]),
        (DONE, {"failure": AppendRejected(CHANGED, None)}, FinishKind.END, [states.FAILED]),
        (DONE, {"failure": AppendRejected(FENCED, None)}, FinishKind.NOTHING, []),
        (DONE, {"failure": LeaseLost(), "reason": "client"}, FinishKind.END, [states.CANCELED]),
        (DONE, {"failure": LeaseLost(), "reason": "deadline", "ended": True}, FinishKind.NOTHING, []),
    ],
)
def test_the_end_of_a_turn(result: TurnResult, options: dict[str, Any], kind: FinishKind, changes: list[Any]) -> None:
    finish = finish_of(result, **options)
    assert (finish.kind, states_of(finish)) == (kind, changes)


def test_a_message_does_not_replace_a_task_with_output() -> None:
    finish = finish_of(REPLY, CHUNK, visible=False)
    assert (finish.kind, states_of(finish)) == (FinishKind.END, ["a", states.COMPLETED])


def test_a_release_for_a_retry_leaves_the_state_of_the_conversation_to_the_next_attempt() -> None:
    finish = finish_of(FAILED, CHUNK, reason="drain", retries=1)
    assert (finish.state_update, states_of(finish)) == (StateUpdate(b"task"), ["a", states.WORKING])


@pytest.mark.parametrize(
    ("changes", "visible", "kept"),
    [((), False, True), ((CHUNK,), False, False), ((), True, False)],
)
def test_an_error_replaces_only_a_task_that_nobody_has_seen(changes: Any, visible: bool, kept: bool) -> None:
    result = TurnResult(StatusChange(states.FAILED), error=InvalidAgentResponse("bad"))
    assert (finish_of(result, *changes, visible=visible).error is not None) is kept


def test_working_is_written_before_the_first_output_of_a_submitted_task() -> None:
    submitted, working = record(state=states.SUBMITTED), record(state=states.WORKING)
    assert with_working([CHUNK], submitted) == [StatusChange(states.WORKING), CHUNK]
    assert with_working([CHUNK], working) == [CHUNK]
    assert with_working([CANCELED], submitted) == [CANCELED]
    assert with_working([], submitted) == []
