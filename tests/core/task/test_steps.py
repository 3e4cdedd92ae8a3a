"""The journal of a turn: which stored step a call finds."""

from __future__ import annotations

import json

import pytest

from dragoman.core.task.steps import NO_POSITION, StepJournal, StepMismatch, StepRecord, StepState, without_secrets

TASK = "00ff"


def done(name: str, number: int = 1, position: int = 0, turn: int = 0) -> StepRecord:
    return StepRecord(name, number, position, StepState.DONE, result=b"result", turn=turn)


def journal(*stored: StepRecord) -> StepJournal:
    return StepJournal(stored, TASK)


def begin(steps: StepJournal, name: str, *, own_code: bool = True) -> StepRecord:
    return steps.begin(name, 1_000, own_code=own_code)


def test_a_new_step_is_running() -> None:
    assert begin(journal(), "search") == StepRecord("search", 1, 0, StepState.RUNNING, started=1_000)


def test_steps_of_one_name_are_numbered() -> None:
    steps = journal()
    assert [begin(steps, name).label for name in ("page", "page", "sum", "page")] == ["page", "page#2", "sum", "page#3"]


def test_a_repeated_turn_finds_its_steps_in_order() -> None:
    stored = [done("page"), done("page", 2, 1), done("sum", 1, 2)]
    steps = journal(*reversed(stored))
    assert [begin(steps, name) for name in ("page", "page", "sum")] == stored
    assert begin(steps, "mail").state is StepState.RUNNING


def test_replaying_ends_with_the_last_stored_step_of_the_own_code() -> None:
    steps = journal(done("a"), done("b", 1, 1), done("c", 1, NO_POSITION))
    seen = [steps.replaying]
    for name in ("a", "b"):
        begin(steps, name)
        seen.append(steps.replaying)
    assert seen == [True, True, False]
    assert not journal().replaying


def test_another_name_at_a_place_is_a_mismatch() -> None:
    with pytest.raises(StepMismatch, match=r'step 1 of this turn is "fetch", and was "search"'):
        begin(journal(done("search")), "fetch")


def test_a_step_that_moved_is_a_mismatch() -> None:
    steps = journal(done("late", 1, 1))
    with pytest.raises(StepMismatch, match='step "late" of this turn was called at another place'):
        begin(steps, "late")


def test_an_unfinished_step_leaves_its_place_free() -> None:
    steps = journal(done("b", 1, 1))  # a and b ran together, and b was finished
    assert begin(steps, "a").state is StepState.RUNNING
    assert begin(steps, "b") == done("b", 1, 1)


def test_concurrent_tasks_find_their_steps_in_any_order() -> None:
    stored = done("page 1", 1, NO_POSITION), done("page 2", 1, NO_POSITION)
    steps = journal(*stored)
    assert begin(steps, "page 2", own_code=False) == stored[1]
    assert begin(steps, "page 1", own_code=False) == stored[0]


@pytest.mark.parametrize("own_code", [(True, False), (False, True), (False, False)])
def test_a_name_is_used_once_by_concurrent_tasks(own_code: tuple[bool, bool]) -> None:
    steps = journal()
    begin(steps, "page", own_code=own_code[0])
    with pytest.raises(ValueError, match="give each call a name of its own"):
        begin(steps, "page", own_code=own_code[1])


def test_steps_of_earlier_turns_are_not_found() -> None:
    assert begin(journal(done("search", turn=1)), "search").state is StepState.RUNNING


def test_the_key_of_a_step_is_the_same_in_every_run_and_in_no_other_turn() -> None:
    steps = journal(done("pay"))
    first = steps.key(begin(steps, "pay"))
    again = journal()
    assert again.key(begin(again, "pay")) == first
    others = [
        journal(done("pay", turn=1)).key(done("pay")),
        StepJournal((), "00fe").key(done("pay")),
        again.key(begin(again, "pay")),
        again.key(begin(again, "pay 2")),
    ]
    assert len({first, *others}) == 5


def test_texts_under_the_names_of_secrets_are_left_out_of_arguments() -> None:
    arguments = {
        "city": "Rome",
        "api_key": "k1",
        "tokens": ["k2", 3],
        "login": {"password": {"of": "k3"}, "user": "ann"},
    }
    shown = json.loads(without_secrets(json.dumps(arguments)))
    hidden = "(not stored)"
    login = {"password": {"of": hidden}, "user": "ann"}
    assert shown == {"city": "Rome", "api_key": hidden, "tokens": [hidden, 3], "login": login}
    assert without_secrets("not JSON") == without_secrets("[" * 100_000) == ""
