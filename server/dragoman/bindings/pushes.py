"""A push configuration as the messages of `dragoman.ops.v1` show it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from dragoman.core.push.delivery import DeliveryAttempt, PushRecord, PushState
from dragoman_pb.dragoman.ops.v1 import push_pb2 as ops

_STATES: Final = {
    PushState.LIVE: ops.PUSH_STATE_LIVE,
    PushState.DONE: ops.PUSH_STATE_DONE,
    PushState.DEAD: ops.PUSH_STATE_DEAD,
    PushState.ENDED: ops.PUSH_STATE_ENDED,
}


def config(push: PushRecord, attempts: Sequence[DeliveryAttempt] = ()) -> ops.PushConfig:
    """A configuration as operators see it: everything but its secrets."""
    made = ops.PushConfig(
        task_id=push.task_id,
        agent=push.agent,
        principal=push.task.owner.principal,
        scope=push.task.owner.scope,
        id=push.config.id,
        url=push.config.url,
        dialect=push.config.dialect,
        state=_STATES[push.state],
        why=push.reason,
        delivered=push.last_delivered,
        last=push.last_sequence,
        failures=push.failures,
        delivering=bool(push.session) and push.lag > 0,
        tries=push.attempt_count,
        attempts=map(_attempt, attempts),
    )
    made.created.FromMilliseconds(push.created)
    if push.failing_since:
        made.failing_since.FromMilliseconds(push.failing_since)
    if push.due_at and push.lag and not push.session:
        made.next_try.FromMilliseconds(push.due_at)
    return made


def _attempt(one: DeliveryAttempt) -> ops.PushAttempt:
    made = ops.PushAttempt(sequence=one.sequence, status=one.status, error=one.error, milliseconds=one.duration_ms)
    made.time.FromMilliseconds(one.at)
    return made
