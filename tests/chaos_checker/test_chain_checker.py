"""The checker of chains: each broken guarantee is reported, and only a fault makes a known kind of it expected."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from tests.chaos.actions import BEGIN, END, Action
from tests.chaos.chains.agents import DONE
from tests.chaos.chains.routes import FRONT, LAST, MIDDLE, ROUTES, TOOLS, Command
from tests.chaos.history import Acknowledged, Canceled, CancelSent, Entry, Fault, Got, Rejected, Sent
from tests.chaos_checker.chain_checker import judge_chains
from tests.chaos_checker.checker import StoredEvent, StoredTask

from dragoman.core.task import states

DEEP = Command(3, "deep", 7)
"""A command over both hops of A2A."""
ENDLESS = replace(DEEP, ticks=100_000)
JOB = replace(ENDLESS, route="job")
TOOL = replace(ENDLESS, route="tool")

BEGAN = Action(1.0, "7", 1, BEGIN, "last.1")
WORKED = [BEGAN, Action(1.1, "7", 1, "chunk 0", "last.1"), Action(1.4, "7", 1, DONE), Action(1.4, "7", 1, END)]
CANCEL = [CancelSent(at=2.0, task="front-7"), Canceled(at=2.2, task="front-7", state=states.CANCELED)]
ACKNOWLEDGED = [CancelSent(at=2.0, task="front-7"), Canceled(at=2.2, task="front-7", state=states.WORKING)]
STOPPED = [BEGAN, Action(2.1, "7", 1, END)]
GOES_ON = [BEGAN, Action(9.0, "7", 1, "chunk 80")]

Levels = Mapping[str, Mapping[str, StoredTask]]


def stored(level: str, state: int, command: Command = DEEP, ended: float = 2.1, reason: str = "") -> StoredTask:
    """The task of a command at a level."""
    text = command.text
    if level == FRONT:
        text = ROUTES[command.route].message.format(text)
    events = [StoredEvent(1, "d1", states.SUBMITTED), StoredEvent(2, "d2", state)]
    result = command.output if state == states.COMPLETED else reason
    return StoredTask(f"{level}-7", state, 2, events, ["m-7"], text, times=(0.5, ended), result_text=result)


def levels(*tasks: StoredTask) -> Levels:
    return {name: {one.id: one for one in tasks if one.id.startswith(name)} for name in (FRONT, MIDDLE, LAST)}


def chain_of(*state: int, command: Command = DEEP) -> Levels:
    """The tasks of a command, with these states from the front on."""
    return levels(*(stored(level, one, command) for level, one in zip((FRONT, MIDDLE, LAST), state, strict=False)))


def judge(
    kept: Levels, history: Sequence[Entry] = (), actions: Sequence[Action] = (), command: Command = DEEP
) -> list[str]:
    """The violations of a run with one command."""
    text = ROUTES[command.route].message.format(command.text)
    sent = Sent(op=1, message="m-7", binding="rest", how="at once", text=text, key="k")
    return judge_chains([sent, Acknowledged(op=1, task="front-7", state=states.SUBMITTED), *history], kept, actions)


def text_of(violations: list[str]) -> str:
    """The only violation."""
    (violation,) = violations
    return violation


COMPLETED = chain_of(states.COMPLETED, states.COMPLETED, states.COMPLETED)
CANCELED = chain_of(states.CANCELED, states.CANCELED, states.CANCELED, command=ENDLESS)


def test_a_result_that_arrived_at_all_levels_is_no_violation() -> None:
    assert judge(COMPLETED, actions=WORKED) == []


def test_a_cancel_that_stopped_all_levels_is_no_violation() -> None:
    assert judge(CANCELED, CANCEL, STOPPED, ENDLESS) == []


def test_a_cancel_of_what_was_never_delivered_is_no_violation() -> None:
    assert judge(chain_of(states.CANCELED, command=ENDLESS), CANCEL, [], ENDLESS) == []


@pytest.mark.parametrize("level", [FRONT, MIDDLE, LAST])
def test_a_level_without_the_task_of_running_work_is_reported(level: str) -> None:
    kept = {name: tasks if name != level else {} for name, tasks in COMPLETED.items()}
    assert any(f"its agent works, and {level} has no task" in one for one in judge(kept, actions=WORKED))


@pytest.mark.parametrize("level", [MIDDLE, LAST])
def test_a_second_task_at_a_level_is_reported(level: str) -> None:
    again = replace(COMPLETED[level][f"{level}-7"], id=f"{level}-8")
    kept = {**COMPLETED, level: {**COMPLETED[level], again.id: again}}
    assert f"2 tasks of {level}" in text_of(judge(kept, actions=WORKED))


def test_a_second_call_of_an_agent_that_must_not_repeat_is_reported() -> None:
    assert "was called 2 times" in text_of(judge(COMPLETED, actions=[*WORKED, replace(BEGAN, attempt=2)]))


def test_an_agent_may_repeat_its_turn_after_crashes_a_few_times() -> None:
    command = replace(DEEP, route="deep-again")
    kept = chain_of(states.COMPLETED, states.COMPLETED, states.COMPLETED, command=command)
    calls = [replace(BEGAN, attempt=attempt) for attempt in range(2, 5)]
    assert judge(kept, actions=[*WORKED, *calls], command=command) == []
    fifth = [*calls, replace(BEGAN, attempt=5)]
    assert "was called 5 times" in text_of(judge(kept, actions=[*WORKED, *fifth], command=command))
    twice = [*calls, replace(BEGAN, attempt=4)]
    assert any("twice for one attempt" in one for one in judge(kept, actions=[*WORKED, *twice], command=command))


def test_a_result_of_unfinished_work_is_reported() -> None:
    violations = judge(COMPLETED, actions=[BEGAN])
    assert len(violations) == 3
    assert all("its agent has not finished" in one for one in violations)


@pytest.mark.parametrize("result", ["0 1 ", "0 1 2 0 1 2 "])
def test_a_result_that_is_not_there_once_is_reported(result: str) -> None:
    front = replace(COMPLETED[FRONT]["front-7"], result_text=result)
    violations = judge({**COMPLETED, FRONT: {front.id: front}}, actions=WORKED)
    assert "completed at front with another result" in text_of(violations)


def test_a_result_that_the_server_behind_does_not_have_is_reported() -> None:
    kept = chain_of(states.COMPLETED, states.COMPLETED, states.CANCELED)
    assert "completed at middle, and is TASK_STATE_CANCELED behind it" in text_of(judge(kept, actions=WORKED))


def test_a_state_after_the_first_terminal_one_is_reported() -> None:
    history = [Got(at=1.5, task="front-7", state=states.FAILED)]
    assert "Got said FAILED" in text_of(judge(COMPLETED, history, WORKED))


def test_an_event_after_the_end_is_reported_at_every_level() -> None:
    for level in (FRONT, MIDDLE, LAST):
        task = COMPLETED[level][f"{level}-7"]
        task = replace(task, last=3, events=[*task.events, StoredEvent(3, "d3", 0)])
        violations = judge({**COMPLETED, level: {task.id: task}}, actions=WORKED)
        assert f"{level}: task {task.id}: 1 events follow its end" in text_of(violations)


# Failures -----------------------------------------------------------------------------------------------------------

HIT = Fault(at=1.0, how="kill", part=LAST, seconds=0.5)


def failed(reason: str) -> Levels:
    tasks = [stored(level, states.FAILED, reason=reason) for level in (FRONT, MIDDLE, LAST)]
    return levels(*tasks)


def test_a_failure_by_a_fault_on_its_route_is_no_violation() -> None:
    assert judge(failed("INTERRUPTED: gone"), [HIT], [BEGAN]) == []


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(replace(HIT, at=3.0), id="after the end"),
        pytest.param(replace(HIT, part=TOOLS), id="elsewhere"),
    ],
)
def test_a_failure_without_a_fault_on_its_route_is_reported(fault: Fault) -> None:
    violations = judge(failed("INTERRUPTED: gone"), [fault], [BEGAN])
    assert len(violations) == 3
    assert all("no fault hit its route" in one for one in violations)


def test_a_failure_that_no_fault_may_cause_is_reported() -> None:
    assert len(judge(failed("UPSTREAM_LOST: the agent no longer knows its task"), [HIT], [BEGAN])) == 3


def test_a_restart_does_not_explain_that_a_tool_has_another_name() -> None:
    kept = levels(stored(FRONT, states.FAILED, DEEP, reason='MCP_INVALID_CALL: "far_far" is not a tool'))
    assert "MCP_INVALID_CALL" in text_of(judge(kept, [replace(HIT, part=MIDDLE)], command=DEEP))


@pytest.mark.parametrize("entry", [Rejected(op=1, reason="INTERNAL"), Canceled(task="front-7", reason="INTERNAL")])
def test_a_rejection_is_reported(entry: Entry) -> None:
    assert "rejected: INTERNAL" in text_of(judge(COMPLETED, [entry], WORKED))


# Cancels ------------------------------------------------------------------------------------------------------------

KILLED = Fault(at=1.0, how="kill", part=FRONT, seconds=0.9)
CUT = Fault(at=1.5, how="cut", part="front-middle", seconds=3.0)


def early(middle: int, command: Command = ENDLESS) -> Levels:
    """The front is CANCELED, and the middle is not."""
    return chain_of(states.CANCELED, middle, *([states.WORKING] if command.route == "deep" else []), command=command)


@pytest.mark.parametrize("middle", [states.WORKING, states.COMPLETED])
def test_a_cancel_without_a_confirmation_is_reported(middle: int) -> None:
    violations = judge(early(middle), CANCEL, [*GOES_ON, Action(9.1, "7", 1, DONE)], ENDLESS)
    (text,) = [one for one in violations if "CANCELED at 2.200 s" in one]
    assert f"middle is {states.name(middle)}, 2 later actions until 6.900 s later" in text


@pytest.mark.parametrize("fault", [KILLED, CUT, replace(CUT, part=MIDDLE, how="pause")])
def test_no_fault_excuses_a_cancel_without_a_confirmation(fault: Fault) -> None:
    assert "CANCELED" in text_of(judge(early(states.WORKING), [fault, *CANCEL], GOES_ON, ENDLESS))


def test_the_hop_that_was_not_confirmed_is_found() -> None:
    kept = chain_of(states.CANCELED, states.CANCELED, states.WORKING, command=ENDLESS)
    assert "last is TASK_STATE_WORKING" in text_of(judge(kept, CANCEL, GOES_ON, ENDLESS))


def test_work_after_a_cancel_is_reported_when_all_levels_are_canceled() -> None:
    assert "1 later actions until 6.800 s later" in text_of(judge(CANCELED, CANCEL, GOES_ON, ENDLESS))


def test_work_of_a_tool_without_tasks_after_a_cancel_is_reported() -> None:
    kept = chain_of(states.CANCELED, command=TOOL)
    assert judge(kept, CANCEL, STOPPED, TOOL) == []
    assert "tools works" in text_of(judge(kept, [KILLED, *CANCEL], GOES_ON, TOOL))


@pytest.mark.parametrize(("command", "is_excused"), [(TOOL, True), (JOB, True), (ENDLESS, False)])
def test_only_a_cancel_by_mcp_may_stay_unconfirmed(command: Command, is_excused: bool) -> None:
    failed = stored(FRONT, states.FAILED, command, reason="OUTCOME_UNKNOWN")
    assert (judge(levels(failed), ACKNOWLEDGED, [], command) == []) == is_excused
    assert judge(levels(failed), [], [], command) != []


def test_a_task_that_is_canceled_by_nobody_is_reported() -> None:
    assert "nobody has canceled it" in text_of(judge(CANCELED, [], STOPPED, ENDLESS))


WORKING = chain_of(states.WORKING, states.WORKING, states.WORKING, command=ENDLESS)


def test_an_acknowledged_cancel_without_effect_is_reported() -> None:
    assert "its cancel was acknowledged" in text_of(judge(WORKING, ACKNOWLEDGED, GOES_ON, ENDLESS))


def test_no_fault_excuses_an_acknowledged_cancel_without_effect() -> None:
    assert "its cancel was acknowledged" in text_of(judge(WORKING, [CUT, *ACKNOWLEDGED], GOES_ON, ENDLESS))


def test_a_task_above_stopped_work_that_does_not_end_is_never_expected() -> None:
    kept = chain_of(states.WORKING, states.CANCELED, states.CANCELED, command=ENDLESS)
    assert "its cancel was acknowledged" in text_of(judge(kept, [CUT, *ACKNOWLEDGED], STOPPED, ENDLESS))


def test_a_task_that_nobody_canceled_and_that_does_not_end_is_reported() -> None:
    assert "is TASK_STATE_WORKING at front at the end" in text_of(judge(WORKING, [CUT], GOES_ON, ENDLESS))


def test_work_behind_a_failed_task_may_go_on_if_it_is_endless() -> None:
    def kept(command: Command) -> Levels:
        front = stored(FRONT, states.FAILED, command, reason="UPSTREAM_UNKNOWN: no response")
        return levels(front, stored(MIDDLE, states.WORKING, command))

    assert judge(kept(ENDLESS), [CUT], [], ENDLESS) == []
    assert "is TASK_STATE_WORKING at middle at the end" in text_of(judge(kept(DEEP), [CUT]))
