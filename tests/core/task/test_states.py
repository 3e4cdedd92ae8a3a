from __future__ import annotations

import pytest

from dragoman.core.task import states
from dragoman.core.task.states import (
    AUTH_REQUIRED,
    CANCELED,
    COMPLETED,
    FAILED,
    INPUT_REQUIRED,
    REJECTED,
    SUBMITTED,
    WORKING,
)


@pytest.mark.parametrize("state", sorted(states.TERMINAL))
@pytest.mark.parametrize("strict", [False, True])
def test_a_terminal_state_is_final(state: int, strict: bool) -> None:
    assert states.is_terminal(state)
    assert not any(states.can_transition_to(state, following, strict=strict) for following in states.STORED_STATES)


@pytest.mark.parametrize("state", sorted(states.STORED_STATES - states.TERMINAL))
def test_an_unfinished_task_may_enter_any_state(state: int) -> None:
    assert all(states.can_transition_to(state, following) for following in states.STORED_STATES)


@pytest.mark.parametrize(
    ("state", "allowed"),
    [
        (SUBMITTED, {WORKING, FAILED, CANCELED, REJECTED}),
        (WORKING, {INPUT_REQUIRED, AUTH_REQUIRED, COMPLETED, FAILED, CANCELED}),
        (INPUT_REQUIRED, {WORKING, FAILED, CANCELED}),
        (AUTH_REQUIRED, {WORKING, FAILED, CANCELED}),
    ],
)
def test_the_strict_table_is_that_of_a2a_rust(state: int, allowed: set[int]) -> None:
    assert {one for one in states.STORED_STATES if states.can_transition_to(state, one, strict=True)} == allowed


@pytest.mark.parametrize("unknown", [0, 9, -1])
def test_an_unknown_state_is_never_allowed(unknown: int) -> None:
    assert not states.can_transition_to(SUBMITTED, unknown)


def test_states_have_the_names_of_the_protocol() -> None:
    assert states.name(CANCELED) == "TASK_STATE_CANCELED"
    assert states.name(77) == "TASK_STATE_77"
