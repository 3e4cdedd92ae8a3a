"""The end of a turn as a2a-rust's table of transitions wants it (`strict_transitions`)."""

from __future__ import annotations

from dragoman.core import states
from dragoman.core.log import StatusChange
from dragoman.runtime.batch import Change
from dragoman.runtime.notices import BROKEN, notice


def strictly(changes: list[Change], *, shown: int, said: int) -> list[Change]:
    """The last append of a turn: WORKING before a result, FAILED for an end that may not follow.

    `shown` is the state that the task has, `said` the one that the agent's verbs have brought it to. An agent that has
    said nothing may end as if it had said WORKING, which the server says for it when it takes its time.
    """
    first, end = changes[0], changes[-1]
    begins = isinstance(first, StatusChange) and first.state in states.STRICT[states.SUBMITTED]
    if shown == states.SUBMITTED and not begins:
        changes = [StatusChange(states.WORKING), *changes]
        said = states.WORKING
    before = (said, states.WORKING) if said == states.SUBMITTED else (said,)
    if isinstance(end, StatusChange) and not any(
        states.can_transition_to(one, end.state, strict=True) for one in before
    ):
        rule = f"{states.name(said)} may not be followed by {states.name(end.state)}"
        return [*changes[:-1], notice(BROKEN, rule)]
    return changes
