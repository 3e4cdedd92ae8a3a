"""State machine test for stores: for any operations in any order, a store and a plain model agree.

Subclass `StoreMachine`, implement how your store is opened, and give pytest its `TestCase`:

    class Machine(StoreMachine):
        def opened(self, folder, clock):
            return open_my_store(folder / "tasks", clock=clock)

    TestMachine = Machine.TestCase

hypothesis generates changes of tasks in batches, with crashes in between. You have to install hypothesis.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from collections.abc import Awaitable, Coroutine
from dataclasses import dataclass, field, replace
from inspect import isawaitable
from pathlib import Path
from typing import Any, Final, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from dragoman.core.task import states
from dragoman.core.task.cursors import TaskQuery
from dragoman.core.task.log import (
    ABSENT,
    CHANGED,
    ENDED,
    EXISTS,
    FENCED,
    NOT_READY,
    RUNNING,
    Append,
    Appended,
    AppendRejected,
    ArtifactChange,
    ClaimHeld,
    Exists,
    IdempotencyKey,
    New,
    NoOpenTurn,
    Ready,
    StatusChange,
    TaskRef,
    Version,
)
from dragoman.ports import Store
from dragoman.testing.fixtures import (
    OWNER,
    Clock,
    artifact,
    cancel,
    chunk,
    created,
    follow_up,
    new_ref,
    status,
)
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

AGENTS: Final = ("echo", "other")
END_STATES: Final = (states.COMPLETED, states.FAILED, states.REJECTED, states.CANCELED)
NO_LIMIT: Final = 1_000_000
SESSION_LEASE_SECONDS: Final = 10.0

T = TypeVar("T")

texts = st.text("abc\u00e9 ", min_size=1, max_size=8)
names = st.sampled_from(("out", "notes"))
changes = st.one_of(
    st.builds(lambda text: status(states.WORKING, text), st.one_of(st.just(""), texts)),
    st.builds(lambda name, text, append: chunk(name, text, append=append), names, texts, st.booleans()),
    st.builds(lambda name, text, append: artifact(name, text, append=append), names, texts, st.booleans()),
)
task_numbers = st.integers(0, 30)
"""Selects an existing task."""


class StoreMachine(RuleBasedStateMachine):
    """Changes are queued, and written together by `write`; the model applies each at once."""

    def open_store(self, folder: Path, clock: Clock) -> Store | Awaitable[Store]:
        """Opens the store in a folder: the same folder has the same tasks. May be a coroutine."""
        raise NotImplementedError

    @initialize()
    def begin(self) -> None:
        """An empty store and its first session."""
        self.folder = tempfile.TemporaryDirectory(prefix="store-")
        self.runner = asyncio.Runner()
        self.clock = Clock()
        self.model = StoreModel()
        self.pending: list[tuple[Append, AppendOutcome]] = []
        self.touched: set[TaskRef] = set()
        self.store = self._open()
        self.session = self._run(self.store.open_session(SESSION_LEASE_SECONDS, exclusive=True))

    def teardown(self) -> None:
        if hasattr(self, "store"):
            try:
                self.write()
                self.matches_model()
            finally:
                self._run(self.store.close())
                self.runner.close()
                self.folder.cleanup()

    # Changes --------------------------------------------------------------------------------------------------------

    @rule(text=texts, agent=st.sampled_from(AGENTS), claim=st.booleans(), visible=st.booleans(), key=st.integers(0, 9))
    def create(self, text: str, agent: str, claim: bool, visible: bool, key: int) -> None:
        """Creates a task, sometimes with one of a few idempotency keys, or hidden."""
        self.clock.now += 1
        session = self.session if claim or not visible else 0
        change = created(new_ref(), text=text, agent=agent, claim=session, visible=visible)
        if key < 4:
            change = replace(change, idempotency_key=IdempotencyKey(agent, f"key-{key}", b"digest"))
        self._append(change)

    @precondition(lambda self: self.model.tasks)
    @rule(number=task_numbers)
    def create_again(self, number: int) -> None:
        """Repeats an idempotency key; it is rejected."""
        task = self._task(number)
        change = created(task.ref, text="again", agent=task.agent)
        self._append(change)

    @precondition(lambda self: self.model.tasks)
    @rule(number=task_numbers)
    def claim(self, number: int) -> None:
        """A session claims a task if the task is ready."""
        self._append(Append(task=self._task(number).ref, guard=Ready(), claim_session=self.session))

    @precondition(lambda self: self.model.tasks)
    @rule(number=task_numbers, text=texts, claim=st.booleans(), alone=st.booleans())
    def message(self, number: int, text: str, claim: bool, alone: bool) -> None:
        """A follow-up message; `alone`: to an agent that rejects messages while it works."""
        change = follow_up(self._task(number).ref, text, claim=self.session if claim else 0)
        self._append(replace(change, guard=NoOpenTurn() if alone else Exists()))

    @precondition(lambda self: self.model.tasks)
    @rule(
        number=task_numbers, events=st.lists(changes, min_size=1, max_size=5), late=st.integers(0, 5), task_state=texts
    )
    def put(self, number: int, events: list[StatusChange | ArtifactChange], late: int, task_state: str) -> None:
        """A turn appends; sometimes a turn that lost its claim."""
        task = self._task(number)
        change = Append(task=task.ref, guard=self._guard(task, late), events=events, last_delivered=task.last_received)
        self._append(replace(change, task_state=task_state.encode()) if late == 1 else change)

    @precondition(lambda self: self.model.tasks)
    @rule(
        number=task_numbers,
        events=st.lists(changes, max_size=2),
        state=st.sampled_from((*END_STATES, states.INPUT_REQUIRED, states.AUTH_REQUIRED)),
        text=texts,
        late=st.integers(0, 5),
        all_read=st.booleans(),
    )
    def end_turn(
        self,
        number: int,
        events: list[StatusChange | ArtifactChange],
        state: int,
        text: str,
        late: int,
        all_read: bool,
    ) -> None:
        """A turn completes, fails or asks for input; perhaps with undelivered messages."""
        task = self._task(number)
        taken = task.last_received if all_read else 1
        guard = self._guard(task, late)
        self._append(
            Append(
                task=task.ref, guard=guard, events=[*events, status(state, text)], last_delivered=taken, release=True
            )
        )

    @precondition(lambda self: self.model.tasks)
    @rule(number=task_numbers)
    def cancel(self, number: int) -> None:
        """A client cancels a task, or a turn is fenced."""
        self._append(cancel(self._task(number).ref))

    @precondition(lambda self: self.model.tasks)
    @rule(number=task_numbers, off=st.integers(0, 1))
    def read_decide_write(self, number: int, off: int) -> None:
        """A change that is guarded by a version."""
        task = self._task(number)
        guard = Version(len(task.events) - off)
        self._append(Append(task=task.ref, guard=guard, events=[status(states.WORKING)]))

    @precondition(lambda self: self.model.tasks)
    @rule(number=task_numbers)
    def discard(self, number: int) -> None:
        """A turn replies without a task: the hidden task is discarded."""
        task = self._task(number)
        if not task.visible:
            self._append(Append(task=task.ref, guard=self._guard(task, 1), discard=True))

    # Commits and crashes --------------------------------------------------------------------------------------------

    @rule()
    def write(self) -> None:
        """Writes the queued changes together; each is rejected or written as the model predicts."""
        pending, self.pending = self.pending, []

        async def together() -> list[Appended | BaseException]:
            return await asyncio.gather(*(self.store.append(change) for change, _ in pending), return_exceptions=True)

        for (change, outcome), result in zip(pending, self._run(together()), strict=True):
            assert _outcome(result) == outcome, change
            if isinstance(result, Appended):
                first = result.record.last_sequence - len(result.events)
                assert [event.sequence for event in result.events] == list(
                    range(first + 1, result.record.last_sequence + 1)
                )

    @rule(retry=st.booleans())
    def crash(self, retry: bool) -> None:
        """The process dies; the next process finds the orphaned tasks, and ends or restarts them."""
        self.write()
        self._run(self.store.close())
        self.store = self._open()
        before, self.session = self.session, self._run(self.store.open_session(SESSION_LEASE_SECONDS, exclusive=True))
        assert self.session > before
        orphans = {record.ref for record in self._run(self.store.orphaned_tasks(self.session, NO_LIMIT))}
        left = [task for task in self.model.tasks.values() if task.session]
        assert orphans == {task.ref for task in left}
        for task in left:
            guard = ClaimHeld(task.session, task.token)
            if not task.visible:
                self._append(Append(task=task.ref, guard=guard, discard=True))
            elif retry:
                self._append(Append(task=task.ref, guard=guard, retry=True))
            else:
                self._append(Append(task=task.ref, guard=guard, events=[status(states.FAILED, "gone")], release=True))
        self.touched.update(task.ref for task in self.model.tasks.values())

    @invariant()
    def matches_model(self) -> None:
        """Once all changes are written, store and model are equal."""
        if not hasattr(self, "store") or self.pending:
            return
        touched, self.touched = self.touched, set()
        for ref in touched:
            self._compare(ref)
        tasks = list(self.model.tasks.values())
        waiting = self._run(self.store.ready_tasks(AGENTS, NO_LIMIT))
        assert {record.ref for record in waiting} == {task.ref for task in tasks if task.ready}
        assert self._run(self.store.orphaned_tasks(self.session, 1)) == []
        versions = self._run(self.store.last_sequences([task.ref for task in tasks]))
        assert versions == {task.ref.key: len(task.events) for task in tasks}
        seen = Counter((task.agent, task.state) for task in tasks if task.visible)
        for agent in AGENTS:
            for state in states.STORED_STATES:
                page = self._run(self.store.page(TaskQuery(OWNER, agent, state=state, page_size=1)))
                assert page.total == seen[agent, state]

    # Helpers --------------------------------------------------------------------------------------------------------

    def _open(self) -> Store:
        async def inside_the_loop() -> Store:
            store = self.open_store(Path(self.folder.name), self.clock)
            return await store if isawaitable(store) else store

        return self._run(inside_the_loop())

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(work)

    def _append(self, change: Append) -> None:
        self.pending.append((change, self.model.apply(change)))
        self.touched.add(change.task)

    def _task(self, number: int) -> ModelTask:
        tasks = list(self.model.tasks.values())
        return tasks[-1 - number % len(tasks)]  # small numbers select new tasks, which allow more operations

    def _guard(self, task: ModelTask, late: int) -> ClaimHeld:
        """The claim of the current turn of a task, or of an earlier one."""
        return ClaimHeld(task.session or self.session, task.token - (late == 0))

    def _compare(self, ref: TaskRef) -> None:
        task = self.model.tasks.get(ref.key)
        snapshot = self._run(self.store.read(ref))
        events = self._run(self.store.events(ref, 0, NO_LIMIT))
        if task is None:
            assert snapshot is None
            assert events == []
            return
        assert [(one.sequence, one.state, one.ends) for one in events] == [
            (number, one.state, one.ends) for number, one in enumerate(task.events, 1)
        ]
        assert snapshot is not None
        record, shown = snapshot.record, pb.Task.FromString(snapshot.task)
        assert (record.state, record.last_sequence, record.session, record.token) == (
            task.state, len(task.events), task.session, task.token,
        )  # fmt: skip
        assert (record.ready, record.visible, record.last_received, record.last_delivered, record.attempt) == (
            task.ready, task.visible, task.last_received, task.last_delivered, task.attempt,
        )  # fmt: skip
        assert shown.status.state == task.state
        assert [message.parts[0].text for message in shown.history] == task.history
        assert {one.artifact_id: _text(one.parts) for one in shown.artifacts} == task.artifacts
        kept = self._run(self.store.messages(ref))
        assert kept is not None
        assert kept.task_state == task.task_state
        assert [pb.Message.FromString(one.message).parts[0].text for one in kept.messages] == task.messages
        found = self._run(self.store.find(OWNER, task.agent, record.id))
        assert (found is not None) == task.visible


def _outcome(result: Appended | BaseException) -> AppendOutcome:
    if isinstance(result, AppendRejected):
        return AppendOutcome(result.reason)
    if isinstance(result, BaseException):
        raise result
    return AppendOutcome("", result.record.last_sequence, result.turn_continues, result.claimed)


def _text(parts: Any) -> str:
    return "".join(part.text for part in parts)


# The model -----------------------------------------------------------------------------------------------------------


DUPLICATE_KEY = "repeated"
STATES_IGNORING_UNREAD = frozenset({states.FAILED, states.REJECTED, states.CANCELED, states.WORKING})
"""States that take effect even if messages are undelivered."""


@dataclass
class ModelEvent:
    """One event: its state (0 for an artifact), the text it adds, and whether it ends the turn."""

    state: int
    text: str = ""
    ends: bool = False


@dataclass
class ModelTask:
    """One task. `messages`: all messages. `status`: the number of the message in the current status, 0 for none."""

    ref: TaskRef
    agent: str
    visible: bool
    messages: list[str]
    state: int = states.SUBMITTED
    events: list[ModelEvent] = field(default_factory=lambda: [ModelEvent(states.SUBMITTED)])
    artifacts: dict[str, str] = field(default_factory=dict)
    status: int = 0
    task_state: bytes = b""
    last_received: int = 1
    last_delivered: int = 0
    last_completed: int = 0
    attempt: int = 1
    session: int = 0
    token: int = 0
    ready: bool = True

    @property
    def history(self) -> list[str]:
        """The history in the response to GetTask."""
        return [text for number, text in enumerate(self.messages, 1) if number != self.status]


@dataclass(frozen=True)
class AppendOutcome:
    """Result of an append: the reason of its rejection, or the last sequence, turn continuation and claim."""

    rejected: str = ""
    last: int = 0
    continues: bool = False
    claimed: bool = False


class StoreModel:
    """Model of a store: all tasks, in order of creation."""

    def __init__(self) -> None:
        self.tasks: dict[bytes, ModelTask] = {}
        self.keys: dict[tuple[str, str], bytes] = {}

    def apply(self, change: Append) -> AppendOutcome:
        """Applies a change as a store has to."""
        task = self.tasks.get(change.task.key)
        if reason := self._rejection(task, change):
            return AppendOutcome(reason)
        if change.idempotency_key is not None:
            self.keys[change.idempotency_key.agent, change.idempotency_key.text] = change.task.key
        if task is None:
            assert change.create is not None
            assert change.message is not None
            messages = [text_of(change.message.message)]
            task = ModelTask(change.task, change.create.agent, change.create.visible, messages)
            self.tasks[change.task.key] = task
        elif change.message is not None:
            task.messages.append(text_of(change.message.message))
            task.last_received = len(task.messages)
            if not task.session and not task.ready:
                task.state, task.ready = states.WORKING, True
            task.status = 0
            task.events.append(ModelEvent(task.state))
        continues, token = self._apply_events(task, change), task.token
        self._update_claim(task, change, continues=continues)
        if change.discard:
            del self.tasks[change.task.key]
            self.keys = {key: kept for key, kept in self.keys.items() if kept != change.task.key}
        return AppendOutcome("", len(task.events), continues, task.token > token)

    def _rejection(self, task: ModelTask | None, change: Append) -> str:
        guard = change.guard
        if (
            change.idempotency_key is not None
            and (change.idempotency_key.agent, change.idempotency_key.text) in self.keys
        ):
            return DUPLICATE_KEY
        if task is not None and task.state in states.TERMINAL:
            return EXISTS if change.create else ENDED
        if isinstance(guard, New):
            return EXISTS if task else ""
        if task is None:
            return ABSENT
        if isinstance(guard, ClaimHeld) and (task.session, task.token) != (guard.session, guard.token):
            return FENCED
        if isinstance(guard, Ready) and not task.ready:
            return NOT_READY
        if isinstance(guard, NoOpenTurn) and (task.session or task.ready):
            return RUNNING
        if isinstance(guard, Version) and guard.last_sequence != len(task.events):
            return CHANGED
        return ""

    def _apply_events(self, task: ModelTask, change: Append) -> bool:
        continues = False
        task.last_delivered = max(task.last_delivered, change.last_delivered)
        if change.task_state is not None:
            task.task_state = change.task_state
        for event in change.events:
            task.visible = True
            if isinstance(event, StatusChange):
                has_unread = (
                    change.release
                    and event.state not in STATES_IGNORING_UNREAD
                    and task.last_received > task.last_delivered
                )
                continues = continues or has_unread
                task.state = states.WORKING if has_unread else event.state
                task.status = 0
                if event.message:
                    task.messages.append(text_of(event.message))
                    task.status = len(task.messages)
                task.events.append(ModelEvent(task.state))
            else:
                text = text_in(event)
                before = task.artifacts.get(event.artifact_id, "") if event.append else ""
                task.artifacts[event.artifact_id] = before + text
                task.events.append(ModelEvent(0, text))
        return continues

    def _update_claim(self, task: ModelTask, change: Append, *, continues: bool) -> None:
        if change.release:
            task.attempt, task.last_completed = 1, task.last_delivered
        if change.retry:
            task.session, task.ready, task.attempt, task.last_delivered = 0, True, task.attempt + 1, task.last_completed
        if change.release and not continues:
            task.session, task.ready = 0, False
            if change.events:
                task.events[-1].ends = True
        if change.claim_session and task.ready:
            task.session, task.token, task.ready = change.claim_session, task.token + 1, False


def text_of(message: bytes) -> str:
    """Returns the text of a serialized Message."""
    return "".join(part.text for part in pb.Message.FromString(message).parts)


def text_in(change: ArtifactChange) -> str:
    """Returns the text that a change adds to its artifact."""
    if change.text is not None:
        return change.text
    return "".join(part.text for part in pb.Artifact.FromString(change.parts).parts)
