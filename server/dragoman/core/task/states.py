"""The states of a task, and what may follow what.

A2A fixes one rule only: a task that has ended never moves again (1.0 §3.4, every version before it likewise).
Everything else is allowed, as in the official servers: a task may go from SUBMITTED straight to COMPLETED, and
WORKING may follow WORKING as often as the agent has something to say. `STRICT_TRANSITIONS` is the narrower table that
a2a-rust enforces; it is a setting, for those who want an agent's slips to show.

States are the numbers of `lf.a2a.v1.TaskState`.
"""

from __future__ import annotations

from typing import Final

from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

SUBMITTED: Final = pb.TASK_STATE_SUBMITTED
WORKING: Final = pb.TASK_STATE_WORKING
COMPLETED: Final = pb.TASK_STATE_COMPLETED
FAILED: Final = pb.TASK_STATE_FAILED
CANCELED: Final = pb.TASK_STATE_CANCELED
INPUT_REQUIRED: Final = pb.TASK_STATE_INPUT_REQUIRED
REJECTED: Final = pb.TASK_STATE_REJECTED
AUTH_REQUIRED: Final = pb.TASK_STATE_AUTH_REQUIRED

TERMINAL: Final[frozenset[int]] = frozenset({COMPLETED, FAILED, CANCELED, REJECTED})
INTERRUPTED: Final[frozenset[int]] = frozenset({INPUT_REQUIRED, AUTH_REQUIRED})
STORED_STATES: Final[frozenset[int]] = frozenset({SUBMITTED, WORKING}) | INTERRUPTED | TERMINAL

STRICT_TRANSITIONS: Final[dict[int, frozenset[int]]] = {
    SUBMITTED: frozenset({WORKING, FAILED, CANCELED, REJECTED}),
    WORKING: frozenset(INTERRUPTED | {COMPLETED, FAILED, CANCELED}),
    INPUT_REQUIRED: frozenset({WORKING, FAILED, CANCELED}),
    AUTH_REQUIRED: frozenset({WORKING, FAILED, CANCELED}),
}


def is_terminal(state: int) -> bool:
    """Whether a task in this state has ended for good."""
    return state in TERMINAL


def can_transition_to(state: int, next_state: int, *, strict: bool = False) -> bool:
    """Whether `following` may come after `state`; `strict` asks a2a-rust's table instead of the specification."""
    if state in TERMINAL or next_state not in STORED_STATES:
        return False
    return not strict or next_state in STRICT_TRANSITIONS[state]


def name(state: int) -> str:
    """The state as the protocol spells it, for messages to people: `TASK_STATE_WORKING`."""
    return _NAMES.get(state) or f"TASK_STATE_{state}"


_NAMES: Final[dict[int, str]] = {number: name for name, number in pb.TaskState.items()}
"""The library looks through all of them, twice, for each one."""
