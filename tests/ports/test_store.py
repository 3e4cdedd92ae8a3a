"""What the values of a store's port compute."""

from __future__ import annotations

from dragoman.core.task import states
from dragoman.core.task.log import ROLE_AGENT, ROLE_USER, TaskRecord
from dragoman.ports import CompactionResult, TaskMessages
from dragoman.ports.store import StoredMessage
from dragoman.testing.fixtures import new_ref


def test_unread_messages_are_later_ones_of_users() -> None:
    roles = [ROLE_USER, ROLE_AGENT, ROLE_USER, ROLE_AGENT, ROLE_USER]
    messages = [StoredMessage(number, role, b"", b"") for number, role in enumerate(roles, 1)]
    record = TaskRecord(new_ref(), "echo", "id", "context", states.WORKING, updated=1, last_sequence=1)
    found = TaskMessages(record, messages, b"")
    assert [[message.number for message in found.unread(last)] for last in (0, 1, 3, 5)] == [[1, 3, 5], [3, 5], [5], []]


def test_a_compaction_lists_what_it_did() -> None:
    assert str(CompactionResult()) == ""
    assert str(CompactionResult(files=2)) == "2 files removed"
    assert str(CompactionResult(1, 2, 3)) == "1 rows merged, 2 old events dropped, 3 files removed"
