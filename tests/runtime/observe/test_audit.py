"""The audit log: what is recorded, how entries wait, and what an unavailable store loses."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from tests.eventually import eventually

from dragoman.core.access.identity import Caller, Identity
from dragoman.core.audit import AuditEntry, AuditLevel, AuditRecord
from dragoman.core.errors import PermissionDenied, TaskNotFound, Unauthenticated
from dragoman.core.names import Owner
from dragoman.core.task.maintenance import ErasureCounts, ErasureReceipt
from dragoman.runtime.access import Call
from dragoman.runtime.observe.audit import MAX_COUNTED_CALLERS, Auditor

ALICE = Identity("alice", credential_id="abc")
CALL = Call(Caller(Owner("default", "alice"), "echo", ALICE))


@dataclass
class Shelf:
    """An audit log in memory, which can be out of order."""

    entries: list[AuditEntry] = field(default_factory=list)
    batches: list[int] = field(default_factory=list)
    broken: bool = False
    old: list[int] = field(default_factory=list)
    tried: asyncio.Event = field(default_factory=asyncio.Event)

    async def append(self, entries: Sequence[AuditEntry]) -> None:
        await asyncio.sleep(0)
        if self.broken:
            self.tried.set()
            raise OSError("no room")
        self.entries += entries
        self.batches.append(len(entries))

    async def read(self, after: int, limit: int = 256) -> list[AuditRecord]:
        raise NotImplementedError

    async def truncate(self, before: int, limit: int = 1024) -> int:
        return self.old.pop() if self.old else 0


def open_auditor(shelf: Shelf, level: AuditLevel = "all", **options: Any) -> Auditor:
    return Auditor(shelf, itertools.count(1).__next__, level, **options)


def actions(shelf: Shelf) -> list[str]:
    return [entry.action for entry in shelf.entries]


async def test_actions_of_callers_are_written_in_a_batch_and_soon() -> None:
    shelf = Shelf()
    auditor = open_auditor(shelf, flush_interval=0.0)
    for number in range(3):
        auditor.note_call("task.created", CALL, f"t{number}")
    assert shelf.entries == []
    await eventually(lambda: shelf.entries)
    assert shelf.batches == [3]
    about, who = {"scope": "default", "agent": "echo"}, {"principal": "alice", "key": "abc", "task": "t0"}
    assert shelf.entries[0] == AuditEntry(1, "task.created", "ok", about, who)


async def test_entries_that_come_during_a_write_wait_for_the_next_one() -> None:
    shelf = Shelf()
    auditor = open_auditor(shelf)
    for number in range(2):
        auditor.note_call("task.created", CALL, f"t{number}")
    flushed = asyncio.create_task(auditor.flush())
    await asyncio.sleep(0)  # the write has begun
    auditor.note_call("task.created", CALL, "t2")
    await flushed
    assert shelf.batches == [2]
    await auditor.close()
    assert shelf.batches == [2, 1]


async def test_actions_of_operators_are_durable_when_they_return_and_follow_earlier_entries() -> None:
    shelf = Shelf()
    auditor = open_auditor(shelf)
    auditor.note_call("task.created", CALL, "t")
    await auditor.record_operator_call("Purge", {"principal": "olga", "request.x": "x" * 1000}, {"call": "1"}, "begun")
    assert actions(shelf) == ["task.created", "operator.Purge"]
    assert len(shelf.entries[1].who["request.x"]) == 512
    assert (shelf.entries[1].outcome, shelf.entries[1].about) == ("begun", {"call": "1"})
    await auditor.close()


async def test_what_has_been_done_is_recorded_when_the_store_is_back(caplog: pytest.LogCaptureFixture) -> None:
    shelf = Shelf(broken=True)
    auditor = open_auditor(shelf, flush_interval=0.0)
    await auditor.record_operator_call("Purge", {"principal": "olga"}, {"call": "1"}, "done")
    assert "the audit entry of operator.Purge waits for the store" in caplog.text
    shelf.broken = False
    await eventually(lambda: shelf.entries)
    assert [(entry.action, entry.outcome) for entry in shelf.entries] == [("operator.Purge", "done")]


async def test_denials_are_recorded_without_credentials() -> None:
    shelf = Shelf()
    auditor = open_auditor(shelf)
    auditor.note_denied(PermissionDenied("no", log_details={"principal": "mallory"}), "10.0.0.1", "GET /tasks")
    auditor.note_denied(Unauthenticated("bad", log_details={"key": "k"}), "10.0.0.1", "m")
    auditor.note_denied(TaskNotFound(), "10.0.0.1", "m")
    await auditor.close()
    assert [entry.outcome for entry in shelf.entries] == ["PermissionDenied", "Unauthenticated"]
    assert shelf.entries[0].who == {"peer": "10.0.0.1", "principal": "mallory"}
    assert shelf.entries[0].about == {"method": "GET /tasks", "reason": "no"}


async def test_denials_beyond_the_limit_are_counted_for_each_principal() -> None:
    shelf = Shelf()
    auditor = open_auditor(shelf, flush_interval=0.0, count_interval=0.0)
    for _ in range(3):
        auditor.count_denied(PermissionDenied("no"), "mallory")
    auditor.count_denied(Unauthenticated("bad"), "")
    assert shelf.entries == []
    await eventually(lambda: len(shelf.entries) == 2)
    auditor.count_denied(PermissionDenied("no"), "mallory")
    await auditor.close()  # what was counted until then is not lost
    assert [(entry.action, entry.outcome, entry.about, entry.who) for entry in shelf.entries] == [
        ("access.denied", "PermissionDenied", {"others": "3"}, {"principal": "mallory"}),
        ("access.denied", "Unauthenticated", {"others": "1"}, {}),
        ("access.denied", "PermissionDenied", {"others": "1"}, {"principal": "mallory"}),
    ]


async def test_denials_of_many_principals_are_counted_together() -> None:
    shelf = Shelf()
    auditor = open_auditor(shelf)
    for number in range(MAX_COUNTED_CALLERS + 5):
        auditor.count_denied(PermissionDenied("no"), f"p{number}")
    await auditor.close()
    assert len(shelf.entries) == MAX_COUNTED_CALLERS + 1
    assert (shelf.entries[-1].about, shelf.entries[-1].who) == ({"others": "5"}, {})


async def test_erasures_are_recorded_with_their_receipt() -> None:
    shelf = Shelf()
    auditor = open_auditor(shelf)
    counts = ErasureCounts(tasks=2, bytes=10)
    await auditor.record_erasure(ErasureReceipt(7, "RETENTION", "older than 1d", 1, 2, counts, "abc"))
    await auditor.record_erasure(ErasureReceipt(0, "PURGE", "task", 1, 2, ErasureCounts(), "abc"))
    expected_fields = {"receipt": "7", "reason": "RETENTION", "selection": "older than 1d"}
    assert [entry.about for entry in shelf.entries] == [
        {**expected_fields, "tasks": "2", "bytes": "10", "digest": "abc"}
    ]


@pytest.mark.parametrize(
    ("level", "recorded"), [("off", []), ("security", ["operator.X"]), ("all", ["task.x", "operator.X"])]
)
async def test_the_setting_decides_what_is_recorded(level: AuditLevel, recorded: list[str]) -> None:
    shelf = Shelf()
    auditor = open_auditor(shelf, level)
    auditor.note_call("task.x", CALL, "t")
    await auditor.record_operator_call("X", {}, {}, "begun")
    await auditor.close()
    assert actions(shelf) == recorded


async def test_entries_wait_for_an_unavailable_store_and_dropped_ones_are_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    shelf = Shelf(broken=True)
    auditor = open_auditor(shelf, max_pending=3)
    for number in range(5):
        auditor.note_call("task.created", CALL, f"t{number}")
    with pytest.raises(OSError, match="no room"):
        await auditor.record_operator_call("Purge", {}, {}, "begun")
    shelf.broken = False
    await auditor.close()
    assert actions(shelf) == ["task.created"] * 3 + ["audit.lost"]
    assert shelf.entries[-1].about == {"entries": "2"}


async def test_a_failed_write_is_retried(caplog: pytest.LogCaptureFixture) -> None:
    shelf = Shelf(broken=True)
    auditor = open_auditor(shelf, flush_interval=0.0)
    auditor.note_call("task.created", CALL, "t")
    await shelf.tried.wait()
    shelf.broken = False
    await eventually(lambda: shelf.entries)
    assert "background work failed: audit log: OSError: no room" in caplog.text
    assert actions(shelf) == ["task.created"]


async def test_entries_removed_by_policy_are_recorded() -> None:
    shelf = Shelf(old=[3, 5])
    auditor = open_auditor(shelf)
    assert await auditor.truncate(1000) == 8
    assert await auditor.truncate(1000) == 0
    assert [(entry.action, dict(entry.about)) for entry in shelf.entries] == [
        ("audit.cut", {"entries": "8", "age_ms": "1000"})
    ]
