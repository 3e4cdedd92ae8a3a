"""The order of states as a2a-rust's table of transitions wants it (`strict_transitions`)."""

from __future__ import annotations

from dragoman.core import states
from dragoman.core.log import StatusChange
from dragoman.runtime.batch import Change
from dragoman.runtime.notices import BROKEN, notice


class Strict:
    """The states that the verbs of one turn bring its task to, from the one in which the turn began."""

    def __init__(self, state: int) -> None:
        self._state = state
        self._said_working = False

    def step(self, change: Change) -> None:
        """Raises ValueError, in the agent's own call, for a state that may not follow.

        The WORKING that the server wrote for the agent does not count against the agent's own first one.
        """
        if not isinstance(change, StatusChange):
            if self._state == states.SUBMITTED:
                self._state = states.WORKING
            return
        again = change.state == self._state == states.WORKING and not self._said_working
        if not again and not states.can_transition_to(self._state, change.state, strict=True):
            raise ValueError(f"{states.name(self._state)} may not be followed by {states.name(change.state)}")
        self._said_working = change.state == states.WORKING
        self._state = change.state

    def end(self, changes: list[Change], *, shown: int) -> list[Change]:
        """The last append of the turn: WORKING before a result, FAILED for an end that may not follow.

        `shown` is the state that the task has. An agent that has said nothing may end as if it had said WORKING, which
        the server says for it when it takes its time.
        """
        first, end, said = changes[0], changes[-1], self._state
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
