"""GetTask, ListTasks and SubscribeToTask, and the lookup of a task for the other operations."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from dragoman.core.access.identity import Caller
from dragoman.core.cards.agent_spec import AgentSpec
from dragoman.core.errors import InvalidParams, TaskNotFound, UnsupportedOperation
from dragoman.core.names import Owner, task_key_of
from dragoman.core.task import cursors, frames, states
from dragoman.core.task.log import Event, LogTruncated, TaskRecord, TaskRef
from dragoman.ports import Store, TaskSnapshot
from dragoman.runtime.access import Admission, Call, check_streaming, history_length
from dragoman.runtime.feeds import EventStream, TaskFeeds
from dragoman.runtime.log import gap_event, read_task, task_event
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

MAX_CACHED_DIALECTS: Final = 4096  # tasks whose dialect is cached


@dataclass(eq=False, repr=False)
class ReadOperations:
    """Reads and follows the tasks that a caller sees."""

    store: Store
    feeds: TaskFeeds
    agents: Mapping[str, AgentSpec]
    admission: Admission
    _dialects: dict[tuple[Owner, str, str], str] = field(default_factory=dict, init=False)

    async def get_task(self, call: Call, request: pb.GetTaskRequest) -> bytes:
        """A serialized Task, with the last `history_length` messages (absent: all; 1.0 §3.2.4)."""
        history = history_length(request)
        if not request.id:
            raise InvalidParams.field("id", "is required")
        caller = call.caller
        snapshot = await self.store.get(caller.owner, caller.agent, request.id, history=history)
        if snapshot is None:
            raise TaskNotFound
        return snapshot.task

    async def list_tasks(self, call: Call, request: pb.ListTasksRequest) -> bytes:
        """A serialized ListTasksResponse (1.0 §3.1.4)."""
        query = _task_query(call, request)
        page = await self.store.page(query)
        token = cursors.page_token(query, page.last_key) if page.last_key else ""
        numbers = frames.integer(3, query.page_size) + frames.integer(4, page.total)
        return b"".join(frames.frame(1, task) for task in page.tasks) + frames.text(2, token) + numbers

    async def dialect_of(self, caller: Caller, task_id: str) -> str:
        """The dialect in which a task was created; empty when the caller sees no such task.

        It never changes, and pollers ask repeatedly, so it is cached; but not for ids chosen by clients, because
        another task may get the same id later.
        """
        key = caller.owner, caller.agent, task_id
        dialect = self._dialects.get(key, "")
        if not dialect and task_id:
            record = await self.store.find(caller.owner, caller.agent, task_id)
            dialect = record.dialect if record else ""
            if dialect and record and not record.alias:
                if len(self._dialects) >= MAX_CACHED_DIALECTS:
                    del self._dialects[next(iter(self._dialects))]
                self._dialects[key] = dialect
        return dialect

    async def subscribe_to_task(self, call: Call, request: pb.SubscribeToTaskRequest) -> EventStream:
        """The Task as it is, then its events until it ends (1.0 §3.1.6).

        With a cursor: the events after it, also of a finished task. If the log no longer reaches back to it: the Task,
        marked as a gap, then the events after that.
        """
        caller, task_id = call.caller, request.id
        check_streaming(self.agents[caller.agent])
        if not task_id:
            raise InvalidParams.field("id", "is required")
        # Listening comes before reading, so that no event falls between; most ids name the task without a look-up.
        key = task_key_of(task_id)
        ref = TaskRef(caller.owner, key) if key else (await find_task(self.store, caller, task_id)).ref
        async with self.feeds.subscribe(ref) as subscriber:
            snapshot = await self._read(call, task_id)
            if snapshot.record.ref != ref:  # an id that a client chose, in the form of ours
                await subscriber.listen(snapshot.record.ref)
                snapshot = await self._read(call, task_id)
            self.admission.open_stream(caller.identity)
            try:
                record, known = snapshot.record, snapshot.record.last_sequence
                if call.cursor:
                    ended = subscriber.resume(call.cursor, known) == known and _is_over(call, record)
                else:
                    if states.is_terminal(record.state) and not call.shows_finished:
                        raise UnsupportedOperation("the task has ended; read it with GetTask")
                    ended = _is_over(call, record)
                    event = task_event(snapshot)
                    event.ends = ended
                    yield subscriber.start_with(event)
                turn_after = known - 1 if call.stops_with_turn else NEVER
                while not ended:
                    try:
                        batch, ended = split_at_end(call, await subscriber.next_batch(), turn_after)
                    except LogTruncated:
                        snapshot = await read_task(self.store, subscriber.feed.ref)
                        ended = _is_over(call, snapshot.record)
                        batch = subscriber.start_with(gap_event(snapshot, subscriber.position))
                    yield batch
            finally:
                self.admission.close_stream(caller.identity)

    async def _read(self, call: Call, task_id: str) -> TaskSnapshot:
        """The task of a subscription; with a cursor its record only, because the stream does not begin with a Task."""
        if call.cursor:
            return TaskSnapshot(await find_task(self.store, call.caller, task_id), b"")
        snapshot = await self.store.get(call.caller.owner, call.caller.agent, task_id)
        if snapshot is None:
            raise TaskNotFound
        return snapshot


async def find_task(store: Store, caller: Caller, task_id: str, field: str = "id") -> TaskRecord:
    """The task with this id that the caller sees. Raises TaskNotFound; InvalidParams, naming `field`, without an id."""
    if not task_id:
        raise InvalidParams.field(field, "is required")
    record = await store.find(caller.owner, caller.agent, task_id)
    if record is None:
        raise TaskNotFound
    return record


def _task_query(call: Call, request: pb.ListTasksRequest) -> cursors.TaskQuery:
    """The store query of a ListTasks request. Raises InvalidParams."""
    history = history_length(request)
    size = request.page_size if request.HasField("page_size") else cursors.DEFAULT_PAGE_SIZE
    if not 1 <= size <= cursors.MAX_PAGE_SIZE:
        raise InvalidParams.field("pageSize", f"must be 1 to {cursors.MAX_PAGE_SIZE}, not {request.page_size}")
    if request.status and request.status not in states.STORED_STATES:
        known = ", ".join(map(states.name, sorted(states.STORED_STATES)))
        raise InvalidParams.field("status", f"must be one of {known}")
    after = request.HasField("status_timestamp_after")
    since = -(-request.status_timestamp_after.ToNanoseconds() // 1_000_000) if after else 0
    query = cursors.TaskQuery(
        call.caller.owner, call.caller.agent, context=request.context_id, state=request.status,
        updated_since=since, page_size=size, history=history, artifacts=request.include_artifacts,
    )  # fmt: skip
    if request.page_token:
        query = replace(query, after=cursors.parse_page_token(query, request.page_token))
    return query


NEVER: Final = sys.maxsize  # a sequence that no event has


def _is_over(call: Call, record: TaskRecord) -> bool:
    """Whether a subscription ends at once for a task in this state."""
    return ends_stream(call, record.state, call.stops_with_turn and not record.has_open_turn)


def ends_stream(call: Call, state: int, turn_ended: bool) -> bool:
    """Whether a stream ends with a task in this state, or with its turn.

    The turn counts except in Google's form of 0.3, where AUTH_REQUIRED neither interrupts nor ends a task.
    """
    return state in states.TERMINAL or (turn_ended and not (call.waits_for_auth and state == states.AUTH_REQUIRED))


def split_at_end(call: Call, batch: Sequence[Event], turn_after: int) -> tuple[Sequence[Event], bool]:
    """The events up to the end of the task, or of a turn with an event after `turn_after`; and whether it was there."""
    for number, event in enumerate(batch, 1):
        # Chunks have neither: most events cost no call.
        if (event.ends or event.state) and ends_stream(call, event.state, event.ends and event.sequence > turn_after):
            return batch[:number], True
    return batch, False
