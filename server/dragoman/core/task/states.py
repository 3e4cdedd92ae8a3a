"""The states of a task and their transitions. States are the numbers of `lf.a2a.v1.TaskState`.

A2A has only one rule: terminal states are final (1.0 §3.4, and every version before). As in the official servers,
everything else is allowed: SUBMITTED to COMPLETED, and WORKING to WORKING any number of times. `STRICT_TRANSITIONS` is
the narrower table that a2a-rust enforces, available as a setting to reveal mistakes in agents.
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
EXPLAINED: Final[frozenset[int]] = INTERRUPTED | {FAILED, CANCELED, REJECTED}
"""States whose message is a question or says what went wrong."""
OPEN: Final[frozenset[int]] = frozenset({SUBMITTED, WORKING}) | INTERRUPTED
STORED_STATES: Final[frozenset[int]] = OPEN | TERMINAL

UPSTREAM_STATE_KEY: Final = "upstreamState"
UNKNOWN_STATE: Final = "unknown"
"""Key and value in the metadata of a task that is WORKING because its upstream task is in a state that 1.0 does not
have. Before 1.0 its readers see this state; later the key has the word of the upstream task's next state."""

STRICT_TRANSITIONS: Final[dict[int, frozenset[int]]] = {
    SUBMITTED: frozenset({WORKING, FAILED, CANCELED, REJECTED}),
    WORKING: frozenset(INTERRUPTED | {COMPLETED, FAILED, CANCELED}),
    INPUT_REQUIRED: frozenset({WORKING, FAILED, CANCELED}),
    AUTH_REQUIRED: frozenset({WORKING, FAILED, CANCELED}),
}


def is_terminal(state: int) -> bool:
    """Whether a task in this state has ended."""
    return state in TERMINAL


def can_transition_to(state: int, next_state: int, *, strict: bool = False) -> bool:
    """Whether `next_state` may follow `state`; `strict`: by a2a-rust's table. The store checks finality in `plan`."""
    if state in TERMINAL or next_state not in STORED_STATES:
        return False
    return not strict or next_state in STRICT_TRANSITIONS[state]


def name(state: int) -> str:
    """The protocol's name of a state, for messages to users: `TASK_STATE_WORKING`."""
    return _NAMES.get(state) or f"TASK_STATE_{state}"


def short_name(state: int) -> str:
    """The name without the protocol's prefix: `INPUT_REQUIRED`."""
    return name(state).removeprefix("TASK_STATE_")


def word(state: int) -> str:
    """The state in versions before 1.0, options and labels: `input-required`."""
    return short_name(state).lower().replace("_", "-")


_NAMES: Final[dict[int, str]] = {number: name for name, number in pb.TaskState.items()}
"""A dict, because the library searches all names twice for each lookup."""
