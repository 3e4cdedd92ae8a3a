"""The tasks of all principals, for operators and viewers: search, cancel, and rerun."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Final, TypeVar

from dragoman.core.access.identity import AGENT_GRANT_PREFIX, SCOPE_GRANT_PREFIX, Caller, Identity
from dragoman.core.daily_usage import DailyUsageQuery
from dragoman.core.errors import InvalidParams, PermissionDenied, TaskNotFound, UnsupportedOperation
from dragoman.core.task import states
from dragoman.core.task.cursors import (
    FoundTasks,
    SearchPosition,
    StateCount,
    TaskSearch,
    parse_search_token,
    search_token,
)
from dragoman.core.task.log import TaskRecord
from dragoman.core.task.maintenance import TaskSelection
from dragoman.core.task.steps import CURRENT_TURN, StepRecord, StepState
from dragoman.ids import IDS
from dragoman.ports import Store, StoredMessage, TaskSnapshot
from dragoman.runtime.access import Access, Call
from dragoman.runtime.operations.cancel import CancelOperation
from dragoman.runtime.operations.send import SendOperations, SendResult, read_stored_task
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

MAX_SCOPES: Final = 1000
"""Scopes that are listed."""


NO_METADATA: Final = pb.CancelTaskRequest()


class OperatorTasks:
    """Finds, cancels and reruns tasks of all principals."""

    def __init__(
        self, store: Store, access: Access, cancel_operation: CancelOperation, send_operations: SendOperations
    ) -> None:
        self._store = store
        self._access = access
        self._cancel_operation = cancel_operation
        self._send_operations = send_operations

    async def search(self, identity: Identity, query: TaskSearch, page_token: str) -> FoundTasks:
        """A page of the tasks within the grants of an operator or viewer.

        Raises PermissionDenied for a scope or agent outside of the grants, InvalidParams for an invalid token.
        """
        query = within_grants(identity, query)
        after = parse_search_token(query, page_token) if page_token else None
        return await self._store.search(replace(query, after=after))

    async def count_states(self, identity: Identity, query: TaskSearch) -> list[StateCount]:
        """The number of tasks in each state that a search finds, whatever its states are. Raises PermissionDenied."""
        return await self._store.count_states(within_grants(identity, query))

    def token(self, identity: Identity, query: TaskSearch, position: SearchPosition) -> str:
        """The token of the page after a position in a search of this operator or viewer."""
        return search_token(within_grants(identity, query), position)

    async def scopes(self, identity: Identity) -> list[str]:
        """The scopes of the store that an operator or viewer may know, in alphabetical order."""
        names = identity.granted(SCOPE_GRANT_PREFIX)
        return [scope for scope in await self._store.scopes(MAX_SCOPES) if not names or scope in names]

    async def cancel(
        self, identity: Identity, selection: TaskSelection, metadata: pb.CancelTaskRequest
    ) -> tuple[TaskRecord, bytes]:
        """Cancels a task as its owner does. Returns its record before that, and the serialized Task after it.

        `metadata`: a request with the metadata for the agent. Raises TaskNotFound, TaskNotCancelable, and InvalidParams
        when several tasks have the id.
        """
        record = await self.find(selection)
        return record, await self.cancel_found(identity, record, metadata)

    async def cancel_found(
        self, identity: Identity, record: TaskRecord, metadata: pb.CancelTaskRequest = NO_METADATA
    ) -> bytes:
        """Cancels a task that was found. Returns the serialized Task after it. Raises as `cancel`."""
        request = pb.CancelTaskRequest(id=record.id)
        if metadata.HasField("metadata"):
            request.metadata.CopyFrom(metadata.metadata)
        caller = Caller(record.ref.owner, record.agent, identity)
        return await self._cancel_operation.cancel_task(Call(caller), request)

    async def rerun(
        self, identity: Identity, selection: TaskSelection, request_id: str = "", *, repeat_steps: bool = False
    ) -> TaskSnapshot:
        """Sends the first message of an ended task again, as a new task of its creator. Returns that without history.

        A repeated rerun with the same `request_id` returns the task of the first one. `repeat_steps`: steps that the
        ended task has finished are done again. Raises TaskNotFound, AgentNotFound, InvalidParams when several tasks
        have the id, UnsupportedOperation for a task that has not ended, and as a send.
        """
        record = await self.find(selection)
        result = await self.rerun_found(identity, record, request_id, repeat_steps=repeat_steps)
        return await read_stored_task(self._store, result, 0)

    async def rerun_found(
        self, identity: Identity, record: TaskRecord, request_id: str = "", *, repeat_steps: bool = False
    ) -> SendResult:
        """Reruns a task that was found. Raises as `rerun`."""
        if not states.is_terminal(record.state):
            state = states.name(record.state)
            text = f"the task is {state}: only a task that has ended can be rerun; cancel it, or wait for its end"
            raise UnsupportedOperation(text)
        caller = self._access.creator(record)
        conversation = await self._store.messages(record.ref)
        if conversation is None:
            raise TaskNotFound
        first = conversation.messages[0]
        has_steps = record.state != states.COMPLETED and record.last_received == first.number and not repeat_steps
        steps = finished_steps(await self._store.steps(record.ref, results=True)) if has_steps else ()
        name = sha256(f"{request_id}\n{record.ref.key.hex()}".encode()).hexdigest()[:32] if request_id else ""
        call = Call(
            caller,
            idempotency_key=f"rerun-{name}" if name else "",
            dialect=record.dialect,
            extensions=tuple(pb.SendMessageRequest.FromString(first.envelope).message.extensions),
            operator=identity,
        )
        request = repeated_request(record, first, name or IDS.uuid())
        return await self._send_operations.begin_task(call, request, steps)

    async def find(self, selection: TaskSelection) -> TaskRecord:
        """The visible task of a selection by id. Raises TaskNotFound, and InvalidParams when several tasks match."""
        found = [
            record
            for record in await self._store.locate(selection.task)
            if record.visible
            and selection.agent in ("", record.agent)
            and selection.principal in ("", record.principal)
            and selection.scope in ("", record.ref.owner.scope)
        ]
        if not found:
            raise TaskNotFound
        if len(found) > 1:
            names = ", ".join(sorted(f"{one.agent} of {one.principal} in {one.ref.owner.scope}" for one in found))
            raise InvalidParams.field("taskId", f"several tasks have it; name agent, principal or scope: {names}")
        return found[0]


def finished_steps(steps: Sequence[StepRecord]) -> list[StepRecord]:
    """The steps of the current turn that need not be done again."""
    return [step for step in steps if step.turn == CURRENT_TURN and step.state == StepState.DONE]


def repeated_request(record: TaskRecord, first: StoredMessage, message_id: str) -> pb.SendMessageRequest:
    """The request with which a task began, for a new task of its conversation that refers to it."""
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


Query = TypeVar("Query", TaskSearch, DailyUsageQuery)


def within_grants(identity: Identity, query: Query) -> Query:
    """The query, limited to the scopes and agents of an operator or viewer. Raises PermissionDenied for others."""
    return replace(
        query,
        scopes=check_reach(identity, SCOPE_GRANT_PREFIX, query.scopes),
        agents=check_reach(identity, AGENT_GRANT_PREFIX, query.agents),
    )


def check_reach(identity: Identity, kind: str, wanted: frozenset[str]) -> frozenset[str]:
    """The scopes or agents that a request of an operator or viewer covers: those that it names, else all granted.

    `kind`: the prefix of the grants. Empty for all. Raises PermissionDenied for names outside of the grants.
    """
    granted = identity.granted(kind)
    if granted and (outside := sorted(wanted - granted)):
        raise PermissionDenied(f'your grants do not include "{kind}{outside[0]}"', log_details=identity.log_details)
    return wanted or granted
