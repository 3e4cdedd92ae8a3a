"""The append of a send: its request is checked, then it creates a task or continues the named one."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from hashlib import sha256
from typing import Final

from dragoman.core import trace
from dragoman.core.access.identity import Caller
from dragoman.core.cards.agent_spec import AgentSpec
from dragoman.core.errors import ExtensionSupportRequired, InvalidParams, TaskNotFound, UnsupportedOperation
from dragoman.core.limits import message_checks, message_limits
from dragoman.core.names import Owner, make_task_key, task_id_of
from dragoman.core.task import states
from dragoman.core.task.log import (
    Append,
    Exists,
    Guard,
    IdempotencyKey,
    IncomingMessage,
    New,
    NewTask,
    NoOpenTurn,
    TaskRecord,
    TaskRef,
)
from dragoman.core.task.projection import summary_of
from dragoman.ids import IDS
from dragoman.ports import Store
from dragoman.runtime.access import NO_STREAMS, Admission, Call, Limits
from dragoman.runtime.operations.push_configs import PushConfigOperations
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

MAX_IDEMPOTENCY_KEY_LENGTH: Final = 255
"""Characters of an idempotency key."""


def new_task_key() -> bytes:
    """A new task key, ordered by time."""
    return make_task_key(time.time_ns(), IDS.random_bytes())


def new_context_id() -> str:
    """A new context id."""
    return IDS.uuid()


class AppendBuilder:
    """Builds the appends of sends."""

    def __init__(
        self,
        store: Store,
        agents: Mapping[str, AgentSpec],
        push_configs: PushConfigOperations,
        admission: Admission,
        limits: Limits,
        new_key: Callable[[], bytes] = new_task_key,
        new_context: Callable[[], str] = new_context_id,
    ) -> None:
        """`new_key` and `new_context` create the ids of tasks and conversations."""
        self._store = store
        self._agents = agents
        self._push_configs = push_configs
        self._admission = admission
        self._limits = limits
        self._new_key = new_key
        self._new_context = new_context

    def check_streaming(self, call: Call) -> None:
        """Raises UnsupportedOperation if the agent does not stream."""
        if not self._agents[call.caller.agent].streaming:
            raise UnsupportedOperation(NO_STREAMS)

    async def build(self, call: Call, request: pb.SendMessageRequest) -> Append:
        """The append that stores the message of a send. The request stays as it is.

        Raises InvalidParams, ContentTypeNotSupported, ExtensionSupportRequired, PushNotificationNotSupported and
        TaskNotFound.
        """
        message_limits.check_size(request.ByteSize(), self._limits.message_bytes)
        caller, configuration = call.caller, request.configuration
        spec = self._agents[caller.agent]
        message_checks.check_message(
            request, message_checks.ANY_MEDIA_TYPE if spec.checks_own_modes else spec.input_modes
        )
        has_push_config = configuration.HasField("task_push_notification_config")
        if has_push_config:
            self._push_configs.check_enabled()
        message = pb.Message()
        message.CopyFrom(request.message)
        envelope = pb.SendMessageRequest()  # empty for most sends
        if request.HasField("metadata"):
            envelope.metadata.CopyFrom(request.metadata)
        if modes := configuration.accepted_output_modes:
            envelope.configuration.accepted_output_modes.extend(modes)
        if spec.extensions and (extensions := _active_extensions(spec, call)):
            envelope.message.extensions.extend(extensions)
        idempotency_key = self._idempotency_key(call, message)
        record = await self._store.find(caller.owner, caller.agent, message.task_id) if message.task_id else None
        if record is not None:
            change = _continue_task(record, spec, call, message, envelope)
        elif message.task_id and not call.names_tasks:
            raise TaskNotFound
        else:
            change = self._create_task(call, spec, message, envelope)
            if envelope.HasField("metadata") and (parent := trace.parent_task_of(envelope)):
                await self._set_parent(change, caller, parent)
        if has_push_config:
            change.push_config = self._push_configs.config_of_send(
                configuration.task_push_notification_config, message.task_id, call.dialect
            )
        change.idempotency_key = idempotency_key
        change.quota = self._admission.quota(caller.identity, caller.agent)
        return change

    def _create_task(
        self,
        call: Call,
        spec: AgentSpec,
        message: pb.Message,
        envelope: pb.SendMessageRequest,
    ) -> Append:
        """The append for a new task."""
        caller, alias = call.caller, bool(message.task_id)
        ref = TaskRef(caller.owner, self._new_key())
        task_id, context_id = message.task_id, message.context_id
        fresh = not context_id
        if not alias:
            task_id = message.task_id = task_id_of(ref.key)
        if fresh:
            context_id = message.context_id = self._new_context()
        # A client that names its task expects that task, and knows no Message in its place.
        visible = alias or not spec.direct
        new = NewTask(
            caller.agent,
            task_id,
            context_id,
            visible=visible,
            dialect=call.dialect,
            alias=alias,
            fresh_context=fresh,
            summary=summary_of(message),
        )
        incoming = _incoming_message(caller, message, envelope)
        return Append(task=ref, guard=New(), create=new, message=incoming)

    async def _set_parent(self, change: Append, caller: Caller, parent: trace.ParentTask) -> None:
        """Records the parent task of a new task, if both have one principal and the parent has not ended."""
        assert change.create is not None
        parent_record = await self._store.find(change.task.owner, parent.agent, parent.task)
        if (
            parent_record is None
            or parent_record.principal != caller.identity.principal
            or states.is_terminal(parent_record.state)
        ):
            return
        change.create = replace(change.create, parent=parent_record.ref.key)

    def _idempotency_key(self, call: Call, message: pb.Message) -> IdempotencyKey | None:
        """The call's idempotency key with the digest of the message, which excludes the message's own id."""
        text = call.idempotency_key or (message.message_id if self._limits.message_id_is_key else "")
        if not text:
            return None
        if len(text) > MAX_IDEMPOTENCY_KEY_LENGTH:
            raise InvalidParams.field(
                "Idempotency-Key", f"must be at most {MAX_IDEMPOTENCY_KEY_LENGTH} characters, not {len(text)}"
            )
        message_id, message.message_id = message.message_id, ""
        digest = sha256(message.SerializeToString(deterministic=True)).digest()
        message.message_id = message_id
        caller = call.caller
        sender = Owner(caller.owner.scope, caller.identity.principal)
        return IdempotencyKey(caller.agent, text, digest, sender)


def _continue_task(
    record: TaskRecord, spec: AgentSpec, call: Call, message: pb.Message, envelope: pb.SendMessageRequest
) -> Append:
    if message.context_id and message.context_id != record.context:
        raise InvalidParams.field("message.contextId", "is not the context of message.taskId; leave it out")
    message.context_id = record.context
    refuses = call.answers_question or spec.while_working == "refuse"
    guard: Guard = NoOpenTurn() if refuses else Exists()
    incoming = _incoming_message(call.caller, message, envelope)
    return Append(task=record.ref, guard=guard, message=incoming)


def _active_extensions(spec: AgentSpec, call: Call) -> list[str]:
    """The agent's extensions that the call activates. Raises ExtensionSupportRequired (1.0 §3.3.4)."""
    for extension in spec.extensions:
        if extension.required and extension.uri not in call.extensions:
            raise ExtensionSupportRequired(
                f"A2A-Extensions: this agent requires the extension {extension.uri}; activate it in this header",
                metadata={"field": "A2A-Extensions", "required": extension.uri},
            )
    return [extension.uri for extension in spec.extensions if extension.uri in call.extensions]


def _incoming_message(caller: Caller, message: pb.Message, envelope: pb.SendMessageRequest) -> IncomingMessage:
    stored = envelope.SerializeToString()
    if context := trace.CURRENT_TRACE.get():
        stored = trace.add_trace(stored, context)
    return IncomingMessage(message.SerializeToString(), stored, caller.identity.principal)
