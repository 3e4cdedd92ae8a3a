from __future__ import annotations

import pytest

from dragoman.core.task import states
from dragoman.core.task.maintenance import RetentionPolicy, parse_retention_ages

DAY = 86_400_000


def test_the_most_specific_rule_counts() -> None:
    rules = RetentionPolicy(
        default={states.COMPLETED: 1, states.FAILED: 1, states.CANCELED: 1},
        declared={"echo": {states.COMPLETED: 2, states.FAILED: 2}},
        overrides={"echo": {states.COMPLETED: 3}},
    )
    assert [rules.age("echo", state) for state in (states.COMPLETED, states.FAILED, states.CANCELED)] == [3, 2, 1]
    assert rules.age("other", states.COMPLETED) == 1
    assert rules.age("other", states.REJECTED) == 0


def test_a_single_age_applies_to_all_terminal_states() -> None:
    assert parse_retention_ages("1d") == dict.fromkeys(states.TERMINAL, DAY)


def test_state_names_are_parsed_in_every_spelling() -> None:
    assert parse_retention_ages({"input-required": "1d", "COMPLETED": 60, "auth_required": "0"}) == {
        states.INPUT_REQUIRED: DAY,
        states.COMPLETED: 60_000,
        states.AUTH_REQUIRED: 0,
    }


@pytest.mark.parametrize("value", [{"working": "1d"}, {"completed": True}, {"completed": "soon"}, "soon"])
def test_invalid_rules_are_rejected(value: object) -> None:
    with pytest.raises(ValueError, match=r"not an age|not a state"):
        parse_retention_ages(value)  # type: ignore[arg-type]
