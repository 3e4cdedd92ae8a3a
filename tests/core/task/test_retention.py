from __future__ import annotations

import pytest

from dragoman.core.task import states
from dragoman.core.task.maintenance import RetentionPolicy, parse_retention_ages

DAY = 86_400_000


def test_the_most_particular_word_counts() -> None:
    rules = RetentionPolicy(
        default={states.COMPLETED: 1, states.FAILED: 1, states.CANCELED: 1},
        declared={"echo": {states.COMPLETED: 2, states.FAILED: 2}},
        overrides={"echo": {states.COMPLETED: 3}},
    )
    assert [rules.age("echo", state) for state in (states.COMPLETED, states.FAILED, states.CANCELED)] == [3, 2, 1]
    assert rules.age("other", states.COMPLETED) == 1
    assert rules.age("other", states.REJECTED) == 0


def test_one_age_is_for_all_in_which_a_task_has_ended() -> None:
    assert parse_retention_ages("1d") == dict.fromkeys(states.TERMINAL, DAY)


def test_states_are_written_as_people_write_them() -> None:
    assert parse_retention_ages({"input-required": "1d", "COMPLETED": 60, "auth_required": "0"}) == {
        states.INPUT_REQUIRED: DAY,
        states.COMPLETED: 60_000,
        states.AUTH_REQUIRED: 0,
    }


@pytest.mark.parametrize("said", [{"working": "1d"}, {"completed": True}, {"completed": "soon"}, "soon"])
def test_what_makes_no_sense_is_refused(said: object) -> None:
    with pytest.raises(ValueError, match=r"not an age|not a state"):
        parse_retention_ages(said)  # type: ignore[arg-type]
