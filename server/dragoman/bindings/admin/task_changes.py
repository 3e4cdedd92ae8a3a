"""Changes of tasks of all principals for operators (`dragoman.ops.v1`): cancel and rerun one, or a page of a search.

Pages go by creation, newest first, so that no page meets a task again, or a new one. Every changed task has an entry of
its own in the audit log, and a task that cannot be changed does not stop its page.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any, Final, TypeVar

from google.protobuf.json_format import MessageToJson, Parse

from dragoman.bindings.admin import fields
from dragoman.bindings.admin.actions import OperatorCall
from dragoman.bindings.admin.task_lists import RERUNS_NAME, check_states, selection_search
from dragoman.core.access.identity import Caller, Identity
from dragoman.core.errors import A2AError, InvalidParams, TaskNotCancelable, TaskNotFound, UnsupportedOperation
from dragoman.core.task import states
from dragoman.core.task.cursors import TaskSearch, page_token, parse_page_token
from dragoman.core.task.log import TaskRecord
from dragoman.core.task.maintenance import TaskSelection
from dragoman.core.task.steps import CURRENT_TURN, StepRecord, StepState
from dragoman.ids import IDS
from dragoman.ports import StoredMessage
from dragoman.runtime import Runtime
from dragoman.runtime.access import Call
from dragoman.runtime.send import SendResult, read_stored_task
from dragoman_pb.dragoman.ops import v1 as ops
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

MAX_BULK_PAGE: Final = 100  # tasks of one page
MAX_BULK_COUNT: Final = 100_000  # tasks that a dry run counts
COUNTED_ROWS: Final = 4_000_000  # about how many rows a dry run reads, where no index has the tasks that match
PAGE_ROWS: Final = 100_000  # the same for a page: with fewer, most pages of a search for rare tasks would be empty

OPEN_STATES: Final = states.STORED_STATES - states.TERMINAL
UNSUCCESSFUL_STATES: Final = states.TERMINAL - {states.COMPLETED}

_SELECTING_FIELDS: Final = (
    "task_id", "scope", "agent", "context_id", "state", "principal", "states", "changed_since", "changed_before",
    "text", "metadata", "cause",
)  # fmt: skip

Response = TypeVar("Response", ops.CancelTasksResponse, ops.RerunTasksResponse, ops.EraseTasksResponse)
ChangeTask = Callable[[TaskRecord], Awaitable[str | None]]
"""Changes a task. Returns the id of a task that it has created, else an empty text; None if there was nothing to do."""


@dataclass(frozen=True, slots=True)
class _Change:
    """One kind of change of many tasks."""

    entry: str  # the operation in the audit entry of each task
    allowed: frozenset[int]  # the states that a filter may name
    default: frozenset[int]  # the states of a filter that names none; empty for all
    concurrency: int  # tasks of a page that are changed at the same time


_CANCEL: Final = _Change("CancelTask", OPEN_STATES, OPEN_STATES, MAX_BULK_PAGE)
_RERUN: Final = _Change("RerunTask", states.TERMINAL, UNSUCCESSFUL_STATES, 16)  # each has its messages in memory
_ERASE: Final = _Change("EraseTask", states.STORED_STATES, frozenset(), 4)  # each has a transaction for itself


@dataclass(frozen=True, slots=True)
class TaskChanges:
    """Cancels, reruns and erases tasks of all principals."""

    runtime: Runtime

    async def cancel_task(self, operator: OperatorCall, request: ops.CancelTaskRequest) -> ops.CancelTaskResponse:
        """Cancels a task as its owner does. Raises TaskNotFound, TaskNotCancelable, InvalidParams."""
        record = await self._find(request)
        for_agent = pb.CancelTaskRequest(id=record.id)
        if request.HasField("metadata"):
            for_agent.metadata.CopyFrom(request.metadata)
        return ops.CancelTaskResponse(
            task=_changed_task(record, await self._cancel(operator.identity, record, for_agent))
        )

    async def rerun_task(self, operator: OperatorCall, request: ops.RerunTaskRequest) -> ops.RerunTaskResponse:
        """Sends the first message of an ended task again, as a new task of its creator.

        A repeated rerun with the same request id returns the task of the first one. Raises TaskNotFound, AgentNotFound,
        InvalidParams, UnsupportedOperation for a task that has not ended, and as a send.
        """
        fields.check_request_id(request.request_id)
        record = await self._find(request)
        result = await self._rerun(operator.identity, record, request.request_id, request.repeat_steps)
        snapshot = await read_stored_task(self.runtime.store, result, 0)
        return ops.RerunTaskResponse(task=_changed_task(snapshot.record, snapshot.task))

    async def cancel_tasks(self, operator: OperatorCall, request: ops.CancelTasksRequest) -> ops.CancelTasksResponse:
        async def cancel(record: TaskRecord) -> str | None:
            try:
                await self._cancel(operator.identity, record, pb.CancelTaskRequest(id=record.id))
            except TaskNotCancelable:
                current = await self.runtime.store.find(record.ref.owner, record.agent, record.id)
                if current is None or states.is_terminal(current.state):
                    return None
                raise
            return ""

        return await self._change(operator.identity, request, _CANCEL, cancel, ops.CancelTasksResponse())

    async def rerun_tasks(self, operator: OperatorCall, request: ops.RerunTasksRequest) -> ops.RerunTasksResponse:
        if request.filter.cause and not request.request_id:  # each of the tasks that failed alike is rerun once
            request.request_id = f"cause-{request.filter.cause}{'-all-steps' if request.repeat_steps else ''}"

        async def rerun(record: TaskRecord) -> str | None:
            result = await self._rerun(operator.identity, record, request.request_id, request.repeat_steps)
            return None if result.repeated else result.record.id

        response = await self._change(operator.identity, request, _RERUN, rerun, ops.RerunTasksResponse())
        if request.filter.cause and response.changed:
            await self._note_reruns(request.filter.cause, operator.identity.principal, response.changed)
        return response

    async def erase_tasks(self, operator: OperatorCall, request: ops.EraseTasksRequest) -> ops.EraseTasksResponse:
        async def erase(record: TaskRecord) -> str | None:
            scope = record.ref.owner.scope
            selection = TaskSelection(task=record.id, agent=record.agent, principal=record.principal, scope=scope)
            return "" if (await self.runtime.maintenance.purge(selection)).number else None

        return await self._change(operator.identity, request, _ERASE, erase, ops.EraseTasksResponse())

    # ---- one task

    async def _find(self, request: Any) -> TaskRecord:
        """The visible task that a request names. Raises TaskNotFound, and InvalidParams for no id or several tasks."""
        fields.check_present("taskId", request.task_id)
        found = [
            record
            for record in await self.runtime.store.locate(request.task_id)
            if record.visible and fields.matches_task(request, record)
        ]
        if not found:
            raise TaskNotFound
        if len(found) > 1:
            names = ", ".join(sorted(f"{one.agent} of {one.principal} in {one.ref.owner.scope}" for one in found))
            raise InvalidParams.field("taskId", f"several tasks have it; name agent, principal or scope: {names}")
        return found[0]

    async def _cancel(self, identity: Identity, record: TaskRecord, request: pb.CancelTaskRequest) -> bytes:
        """Cancels a task. Returns the serialized Task after it."""
        caller = Caller(record.ref.owner, record.agent, identity)
        return await self.runtime.operations.cancel.cancel_task(Call(caller), request)

    async def _rerun(self, identity: Identity, record: TaskRecord, request_id: str, repeat_steps: bool) -> SendResult:
        if not states.is_terminal(record.state):
            state = states.name(record.state)
            text = f"the task is {state}: only a task that has ended can be rerun; cancel it, or wait for its end"
            raise UnsupportedOperation(text)
        caller = self.runtime.operations.access.creator(record)
        conversation = await self.runtime.store.messages(record.ref)
        if conversation is None:
            raise TaskNotFound
        first = conversation.messages[0]
        has_steps = record.state != states.COMPLETED and record.last_received == first.number and not repeat_steps
        steps = finished_steps(await self.runtime.store.steps(record.ref, results=True)) if has_steps else ()
        name = sha256(f"{request_id}\n{record.ref.key.hex()}".encode()).hexdigest()[:32] if request_id else ""
        call = Call(
            caller,
            idempotency_key=f"rerun-{name}" if name else "",
            dialect=record.dialect,
            extensions=tuple(pb.SendMessageRequest.FromString(first.envelope).message.extensions),
            operator=identity,
        )
        request = repeated_request(record, first, name or IDS.uuid())
        return await self.runtime.operations.send.begin_task(call, request, steps)

    async def _note_reruns(self, cause: str, principal: str, count: int) -> None:
        """Stores that tasks of a group of failures were rerun."""
        store, name, stored = self.runtime.store, RERUNS_NAME.format(cause), False
        while not stored:  # another page of the same rerun may end at this moment
            before = await store.key_values.get(name)
            reruns = Parse(before or "{}", ops.FailureReruns(), ignore_unknown_fields=True)
            reruns.last.FromMilliseconds(store.now())
            reruns.principal, reruns.count = principal, reruns.count + count
            stored = await store.key_values.compare_and_set(name, MessageToJson(reruns), expected=before)

    # ---- a page of tasks

    async def _change(
        self, identity: Identity, request: Any, change: _Change, change_task: ChangeTask, response: Response
    ) -> Response:
        """Fills the response to a dry run, or changes a page. Raises InvalidParams, PermissionDenied."""
        query = fields.within_grants(identity, _bulk_search(request, change))
        if request.dry_run:
            query = replace(query, page_size=1, searched_rows=COUNTED_ROWS, max_total=MAX_BULK_COUNT)
            counted = await self.runtime.store.search(query)
            response.matched, response.matched_is_minimum = counted.total, not counted.is_total_exact
            return response
        # A failed task never changes again, so that its end is as good an order; there is an index for each cause.
        query = replace(query, order="changed" if query.cause else "created", searched_rows=PAGE_ROWS)
        after = parse_page_token(query, request.page_token) if request.page_token else None
        found = await self.runtime.store.search(replace(query, after=after))
        response.matched = len(found.tasks)
        if found.next is not None:
            response.next_page_token = page_token(query, found.next)
        slots = asyncio.Semaphore(change.concurrency)

        async def change_one(record: TaskRecord) -> None:
            async with slots:
                try:
                    created = await change_task(record)
                except TaskNotFound:  # erased meanwhile
                    created = None
                except A2AError as error:
                    names = {"task_id": record.id, "scope": record.ref.owner.scope, "reason": error.message}
                    response.failures.append(fields.message_from(ops.TaskFailure, record, **names))
                    return
            if created is None:
                response.skipped += 1
                return
            response.changed += 1
            self._note(identity, change.entry, record, request.request_id, created)

        await asyncio.gather(*(change_one(one.record) for one in found.tasks))
        return response

    def _note(self, identity: Identity, entry: str, record: TaskRecord, request_id: str, created: str) -> None:
        if self.runtime.auditor is None:
            return
        scope = record.ref.owner.scope
        arguments = {"request.taskId": record.id, "request.agent": record.agent, "request.scope": scope}
        # The names of an erased task's principal must not stay.
        arguments |= {} if entry == _ERASE.entry else {"request.principal": record.principal}
        arguments |= {name: text for name, text in (("request.requestId", request_id), ("task", created)) if text}
        self.runtime.auditor.note_operator_action(entry, identity, arguments)


def _bulk_search(request: Any, change: _Change) -> TaskSearch:
    """The search that a request describes. Raises InvalidParams."""
    selecting = request.filter
    query = selection_search(selecting, fields.page_limit(request.limit, default=50, maximum=MAX_BULK_PAGE))
    if not {field.name for field, _ in selecting.ListFields()}.intersection(_SELECTING_FIELDS):
        names = ", ".join(selecting.DESCRIPTOR.fields_by_name[name].camelcase_name for name in _SELECTING_FIELDS)
        raise InvalidParams.field("filter", f"is required; select the tasks by at least one of {names}")
    fields.check_request_id(request.request_id)
    return check_states(query, change.allowed, change.default)


def finished_steps(steps: Sequence[StepRecord]) -> list[StepRecord]:
    """Returns the steps of the current turn that need not be done again."""
    return [step for step in steps if step.turn == CURRENT_TURN and step.state == StepState.DONE]


def repeated_request(record: TaskRecord, first: StoredMessage, message_id: str) -> pb.SendMessageRequest:
    """Returns the request with which a task began, for a new task of its conversation that refers to it."""
    message = pb.Message.FromString(first.message)
    message.message_id, message.task_id, message.context_id = message_id, "", record.context
    if record.id not in message.reference_task_ids:
        message.reference_task_ids.append(record.id)
    request = pb.SendMessageRequest(message=message)
    envelope = pb.SendMessageRequest.FromString(first.envelope)
    if envelope.HasField("metadata"):
        request.metadata.CopyFrom(envelope.metadata)
    request.configuration.accepted_output_modes.extend(envelope.configuration.accepted_output_modes)
    return request


def _changed_task(record: TaskRecord, data: bytes) -> ops.ListedTask:
    """The message for a task after a change. `data`: a serialized Task."""
    task = pb.Task.FromString(data)
    task.ClearField("history")
    return ops.ListedTask(
        scope=record.ref.owner.scope, agent=record.agent, task=task, principal=record.principal, summary=record.summary
    )
