"""GetTask and ListTasks, and the lookup of a task for the other operations."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from dragoman.core.access.identity import Caller
from dragoman.core.errors import InvalidParams, TaskNotFound
from dragoman.core.names import Owner
from dragoman.core.task import cursors, frames, states
from dragoman.core.task.log import TaskRecord
from dragoman.ports import Store
from dragoman.runtime.access import Call, history_length
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

MAX_CACHED_DIALECTS: Final = 4096
"""Tasks whose dialect is cached."""


class ReadOperations:
    """Reads the tasks that a caller sees."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._dialects: dict[tuple[Owner, str, str], str] = {}

    async def get_task(self, call: Call, request: pb.GetTaskRequest) -> bytes:
        """A serialized Task, with the last `history_length` messages (absent: all; 1.0 §3.2.4)."""
        history = history_length(request)
        if not request.id:
            raise InvalidParams.field("id", "is required")
        caller = call.caller
        snapshot = await self._store.get(caller.owner, caller.agent, request.id, history=history)
        if snapshot is None:
            raise TaskNotFound
        return snapshot.task

    async def list_tasks(self, call: Call, request: pb.ListTasksRequest) -> bytes:
        """A serialized ListTasksResponse (1.0 §3.1.4)."""
        query = _task_query(call, request)
        page = await self._store.page(query)
        return b"".join(
            (
                *(frames.frame(1, task) for task in page.tasks),
                frames.text(2, cursors.page_token(query, page.last_key) if page.last_key else ""),
                frames.integer(3, query.page_size),
                frames.integer(4, page.total),
            )
        )

    async def dialect_of(self, caller: Caller, task_id: str) -> str:
        """The dialect in which a task was created; empty when the caller sees no such task.

        It never changes, and pollers ask repeatedly, so it is cached; but not for ids chosen by clients, because
        another task may get the same id later.
        """
        key = caller.owner, caller.agent, task_id
        dialect = self._dialects.get(key, "")
        if not dialect and task_id:
            record = await self._store.find(caller.owner, caller.agent, task_id)
            dialect = record.dialect if record else ""
            if dialect and record and not record.alias:
                if len(self._dialects) >= MAX_CACHED_DIALECTS:
                    del self._dialects[next(iter(self._dialects))]
                self._dialects[key] = dialect
        return dialect


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
        raise InvalidParams.field(
            "status", f"must be one of {', '.join(map(states.name, sorted(states.STORED_STATES)))}"
        )
    since = 0
    if request.HasField("status_timestamp_after"):
        since = -(-request.status_timestamp_after.ToNanoseconds() // 1_000_000)
    query = cursors.TaskQuery(
        call.caller.owner,
        call.caller.agent,
        context=request.context_id,
        state=request.status,
        updated_since=since,
        page_size=size,
        history=history,
        artifacts=request.include_artifacts,
    )
    if request.page_token:
        query = replace(query, after=cursors.parse_page_token(query, request.page_token))
    return query
