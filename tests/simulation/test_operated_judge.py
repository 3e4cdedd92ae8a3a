"""The checker of histories with operators finds each broken rule, and nothing else."""

from __future__ import annotations

from dataclasses import replace

from tests.chaos.actions import BEGIN, END, Action
from tests.chaos.history import Acknowledged, Delivered, Entry, Got, Opened, Seen, Sent
from tests.chaos_checker.checker import StoredTask
from tests.simulation.judge import Observed
from tests.simulation.memory.tables import MemoryTables
from tests.simulation.operated.callers import Erased, Erasing, HookChanged, Operated, Paused, Rerun, Resuming
from tests.simulation.operated.judge import judge_operated, without_operators
from tests.simulation.plan import Plan

from dragoman.core.audit import AuditEntry, AuditRecord
from dragoman.core.task import states

PLAN = Plan("operated")
TASK = StoredTask("T", states.COMPLETED, 3, [], ["m-1"], "echo #1", agent="once", times=(1.0, 5.0))
SEND = Sent(at=1.0, op=1, message="m-1", binding="", how="at once", text="echo #1", hook=7)


def _judge(*entries: Entry, tasks: tuple[StoredTask, ...] = (TASK,), actions: tuple[Action, ...] = ()) -> list[str]:
    observed = Observed(entries, actions, {task.id: task for task in tasks})
    return judge_operated(PLAN, observed, MemoryTables())


def test_an_erased_task_is_gone() -> None:
    erased = Erased(at=3.0, task="T")
    assert _judge(erased, Got(at=4.0, task="T", reason="TASK_NOT_FOUND"), tasks=()) == []
    assert _judge(erased) == ["task T: erased at 3.000 s, and still there"]
    assert _judge(erased, Got(at=4.0, task="T", state=3), tasks=()) == [
        "task T: erased at 3.000 s, and read at 4.000 s"
    ]


def test_a_request_reruns_a_task_once() -> None:
    first = Rerun(at=3.0, task="X", name="key-1", again="T")
    assert _judge(first, first) == []
    assert _judge(first, replace(first, again="U"), tasks=(TASK, replace(TASK, id="U"))) == [
        "task X: rerun 2 times by the request key-1"
    ]
    assert _judge(first, tasks=()) == ["task X: rerun as T, which is not there"]


def test_a_process_begins_no_turn_of_an_agent_that_it_has_paused() -> None:
    paused, resuming = Paused(at=2.0, agent="once", process="server0.1"), Resuming(at=4.0, agent="once")

    def begin(at: float, process: str = "server0.1") -> Action:
        return Action(at=at, task="T", attempt=1, text=BEGIN, process=process)

    for fine in (begin(1.0), begin(4.1), begin(3.0, "server1.1")):
        assert _judge(paused, resuming, actions=(fine,)) == []
    assert _judge(paused, resuming, actions=(replace(begin(2.99), text=END), begin(3.0))) == []
    (problem,) = _judge(paused, resuming, actions=(replace(begin(2.5), text=END), begin(3.0)))
    assert "began at 3.000 s in server0.1, which had answered at 2.000 s that agent once is paused" in problem


def _delivered(at: float, sequence: int, hook: int = 7) -> Delivered:
    return Delivered(at=at, done=at, hook=hook, task="T", sequence=sequence, digest="", status=200)


def test_a_removed_webhook_is_told_nothing_and_an_added_one_the_end() -> None:
    removed = HookChanged(at=2.0, task="T", hook=7, how="removed")
    assert _judge(removed, _delivered(2.01, 1)) == []
    assert _judge(removed, _delivered(2.5, 2)) == ["webhook 7: removed at 2.000 s, told event 2 at 2.500 s"]
    added = replace(removed, how="added")
    assert _judge(added, _delivered(6.0, 3)) == []
    assert _judge(replace(added, at=5.5)) == []  # it came after the end
    assert _judge(added, _delivered(4.0, 2)) == ["webhook 7: added at 2.000 s, and never told event 3, the last"]


def test_an_answered_call_is_in_the_audit_log() -> None:
    observed, tables = Observed([Operated(at=2.0, call="PauseAgent", name="key-1")], [], {}), MemoryTables()
    missing = "PauseAgent key-1: answered at 2.000 s, and not in the audit log"
    assert judge_operated(PLAN, observed, tables) == [missing]
    entry = AuditEntry(0, "operator.PauseAgent", who={"request.reason": "key-1"})
    tables.audit.append(AuditRecord(1, entry, b"", b"", b""))
    assert judge_operated(PLAN, observed, tables) == []
    tables.audit.append(AuditRecord(3, entry, b"", b"", b""))
    assert judge_operated(PLAN, observed, tables) == ["the audit log is numbered [1, 3]…"]


def test_the_other_checkers_see_no_erased_task_and_no_changed_webhook() -> None:
    other = Acknowledged(at=2.0, op=2, task="U", state=1)
    entries = [
        SEND, Acknowledged(at=1.1, op=1, task="T", state=1), Opened(at=1.2, follower=3, task="T", binding=""),
        Seen(at=1.3, follower=3, sequence=1, digest=""), Erasing(at=2.0, task="T"), other,
    ]  # fmt: skip
    action = Action(at=1.5, task="T", attempt=1, text=BEGIN, process="server0.1")
    assert without_operators(Observed(entries, [action], {"T": TASK})) == Observed([other], [], {})
    changed = [SEND, _delivered(2.0, 1), HookChanged(at=2.0, task="U", hook=7, how="removing")]
    left, _, _ = without_operators(Observed(changed, [], {}))
    assert left == [replace(SEND, hook=0), changed[2]]
