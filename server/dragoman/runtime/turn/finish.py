"""How a turn finishes: decides what is written from its result, its stop and its last output. Pure.

| the turn | is finished by |
|---|---|
| its claim is lost, or a fence has ended its task | nothing: the store rejects its writes, or has its end |
| its output could not be stored | its end as FAILED, and without that output |
| it was interrupted and may be repeated | a release, for the next attempt |
| its result is a Message, and the task is not visible | that Message, in place of the task |
| otherwise | its last artifacts and its final status |
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import Enum
from typing import Final, NamedTuple

from dragoman.core.errors import A2AError
from dragoman.core.task import states
from dragoman.core.task.log import CHANGED, AppendRejected, StatusChange, TaskRecord
from dragoman.ports import NO_CHANGE, LeaseLost, StateUpdate, TurnResult, WorkerLost
from dragoman.runtime.turn.events import Change
from dragoman.runtime.turn.status import CONTEXT_CHANGED, NOT_WRITTEN, retry_status, system_status
from dragoman.runtime.turn.stop import Stop, StopToken
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb


class FinishKind(Enum):
    """What is written at the end of a turn."""

    END = "the changes; their last one is the status, and releases the claim"
    RETRY = "the changes, and a release for the next attempt"
    REPLY = "a Message in place of the task"
    NOTHING = "nothing"


class Finish(NamedTuple):
    """The end of a turn."""

    kind: FinishKind
    changes: Sequence[Change] = ()
    state_update: StateUpdate = NO_CHANGE
    reply: pb.Message | None = None
    error: A2AError | None = None
    """What the sender gets in place of a task that nobody has seen."""


WRITES_NOTHING: Final = Finish(FinishKind.NOTHING)


class Output(NamedTuple):
    """What a turn has put and not sent yet; or why its output could not be stored."""

    changes: Sequence[Change] = ()
    state_update: StateUpdate = NO_CHANGE
    failure: Exception | None = None


def decide(
    result: TurnResult,
    output: Output,
    stop: StopToken,
    stop_status: Callable[[], StatusChange],
    lost: WorkerLost | None,
    record: TaskRecord,
    retries: int,
) -> Finish:
    """Decides how a turn of the task of `record` finishes.

    `stop_status`: gives the final status of a turn that was stopped. `lost`: the death of the process that ran it.
    `retries`: how often it may be repeated.
    """
    changes: Sequence[Change] = output.changes
    if output.failure is not None:
        match output.failure:
            case LeaseLost() if stop.state is Stop.ENDED:
                return WRITES_NOTHING
            case AppendRejected(reason=reason) if reason != CHANGED:
                return WRITES_NOTHING
            case LeaseLost():
                result = TurnResult(stop_status())
            case AppendRejected():  # the claim holds; only the write of the conversation's state was too late
                result = TurnResult(system_status(CONTEXT_CHANGED, record))
            case failure:
                result = TurnResult(system_status(NOT_WRITTEN, record, str(failure)))
    changes = with_working(changes, record)
    if result.status.state == states.FAILED and _may_retry(stop, lost, record, retries):
        if record.visible:
            changes = [*changes, retry_status(record.attempt + 1)]
        # Without the conversation's state, which might be rejected: the next attempt writes it.
        return Finish(FinishKind.RETRY, changes, replace(output.state_update, context_state=None))
    if result.reply is not None and not changes and not record.visible:
        return Finish(FinishKind.REPLY, reply=result.reply)
    return Finish(
        FinishKind.END,
        [*changes, *result.artifacts, result.status],
        output.state_update.merged_with(result.state_update),
        error=None if changes or record.visible else result.error,
    )


def _may_retry(stop: StopToken, lost: WorkerLost | None, record: TaskRecord, retries: int) -> bool:
    if lost is not None:
        return not lost.may_have_started or record.attempt <= retries
    return stop.reason in ("drain", "fenced") and record.attempt <= retries


def with_working(changes: Sequence[Change], record: TaskRecord) -> Sequence[Change]:
    """Adds WORKING before the first event of a run that has not written it itself."""
    if changes and record.state == states.SUBMITTED and not isinstance(changes[0], StatusChange):
        return [StatusChange(states.WORKING), *changes]
    return changes
