"""SendMessage, the storing half: writes the message of a send once per idempotency key.

Nothing here waits for an agent. The append that stores a message may also claim its task for a run. The caller gets
what was written, or the result of an earlier send with the same key.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Final

from dragoman.core import trace
from dragoman.core.access.identity import Caller
from dragoman.core.cards.agent_spec import AgentSpec
from dragoman.core.errors import (
    ExtensionSupportRequired,
    IdempotencyKeyReused,
    InvalidParams,
    TaskEnded,
    TaskNotFound,
    Unavailable,
    UnsupportedOperation,
)
from dragoman.core.limits import message_checks, message_limits
from dragoman.core.limits.admission import QuotaExceeded
from dragoman.core.names import Owner, make_task_key, task_id_of, task_key_of
from dragoman.core.task import states
from dragoman.core.task.log import (
    ENDED,
    EXISTS,
    ROLE_USER,
    RUNNING,
    Append,
    Appended,
    AppendRejected,
    DuplicateKey,
    Event,
    IdempotencyKey,
    IncomingMessage,
    KeyRecord,
    New,
    NewTask,
    NotRunning,
    NotTerminal,
    TaskRecord,
    TaskRef,
)
from dragoman.ids import IDS
from dragoman.ports import Store, StoredMessage, TaskSnapshot
from dragoman.runtime.feeds import Subscriber, TaskFeeds
from dragoman.runtime.log import EventLog, read_task
from dragoman.runtime.operations.call import Admission, Call, Limits, quota_exceeded
from dragoman.runtime.operations.push_configs import PushConfigOperations, too_many_configs
from dragoman.runtime.scheduler import Scheduler
from dragoman.runtime.turn.events import TaskProjection
from dragoman.runtime.turn.runner import TurnRunner
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

MAX_IDEMPOTENCY_KEY_LENGTH: Final = 255
"""Characters of an idempotency key."""

REPLY_POLL_INTERVAL: Final = 0.1
"""Seconds between polls of another process's task that may still become a Message."""


class _AliasTaken(Exception):
    """Another message created the same alias at the same time; its task exists now."""


@dataclass(frozen=True, slots=True)
class SendResult:
    """A stored message, new or of an earlier send with its key: its task, its events, and the outcome."""

    record: TaskRecord
    events: Sequence[Event] = ()
    runner: TurnRunner | None = None
    """The runner, if the turn began in this process."""
    created: bool = False
    repeated: bool = False
    reply: pb.Message | None = None


_NO_TASK: Final = TaskRecord(TaskRef(Owner("", ""), b""), "", "", "", 0, 0, 0)
"""The record in the result of a send that was answered without a task."""


def new_task_key() -> bytes:
    """A new task key, ordered by time."""
    return make_task_key(time.time_ns(), IDS.random_bytes())


def new_context_id() -> str:
    """A new context id."""
    return IDS.uuid()


def _ignore_sent(call: Call, result: SendResult) -> None:
    """Default of `on_sent`."""


class SendOperation:
    """Stores the messages of sends."""

    on_sent: Callable[[Call, SendResult], None] = staticmethod(_ignore_sent)
    """Called for each message once it is stored."""

    def __init__(
        self,
        store: Store,
        event_log: EventLog,
        feeds: TaskFeeds,
        scheduler: Scheduler,
        agents: Mapping[str, AgentSpec],
        limits: Limits,
        push_configs: PushConfigOperations,
        admission: Admission,
        new_key: Callable[[], bytes],
        new_context: Callable[[], str],
    ) -> None:
        self._store = store
        self._log = event_log
        self._feeds = feeds
        self._scheduler = scheduler
        self._agents = agents
        self._limits = limits
        self._push_configs = push_configs
        self._admission = admission
        self._new_key = new_key
        self._new_context = new_context

    async def store_message(self, call: Call, request: pb.SendMessageRequest) -> SendResult:
        """Stores the message of a send."""
        while True:
            change = await self._prepare(call, request)
            if result := await self._try_commit(change, call.caller.agent):
                self.on_sent(call, result)
                return result

    async def store_and_subscribe(
        self, stack: AsyncExitStack, call: Call, request: pb.SendMessageRequest
    ) -> tuple[SendResult, Subscriber]:
        """Stores the message of a send, subscribed to its task from before the write."""
        while True:
            change = await self._prepare(call, request)
            subscriber = await stack.enter_async_context(self._feeds.subscribe(change.task))
            if result := await self._try_commit(change, call.caller.agent):
                if result.reply is None and result.record.ref != change.task:
                    subscriber = await stack.enter_async_context(self._feeds.subscribe(result.record.ref))
                self.on_sent(call, result)
                return result, subscriber

    async def _try_commit(self, change: Append, agent: str) -> SendResult | None:
        """Stores a message or resolves its duplicate key; None when it has to be prepared again."""
        try:
            return await self._commit(change, agent)
        except _AliasTaken:  # the next attempt finds that task and continues it
            return None
        except DuplicateKey as repeated:
            return await self._resolve_duplicate(repeated.key_record, change)

    async def _resolve_duplicate(self, earlier: KeyRecord, change: Append) -> SendResult | None:
        """The result of the first send with this key; None, after a short wait, while it is undecided."""
        assert change.idempotency_key is not None
        if earlier.digest != change.idempotency_key.digest:
            raise IdempotencyKeyReused("Idempotency-Key: was used for a message with other content; use a new key")
        if earlier.reply:
            return SendResult(_NO_TASK, repeated=True, reply=pb.Message.FromString(earlier.reply))
        if earlier.task is None:
            raise TaskNotFound
        record = (await read_task(self._store, earlier.task, history=0, artifacts=False)).record
        if record.visible:
            return SendResult(record, created=earlier.sequence_before == 0, repeated=True)
        runner = self._scheduler.find_runner(earlier.task)
        if runner is not None:
            await asyncio.shield(runner.first_response)
        else:
            await asyncio.sleep(REPLY_POLL_INTERVAL)
        return None

    async def _prepare(self, call: Call, request: pb.SendMessageRequest) -> Append:
        """The append that stores a message: it creates a task, or continues the named one."""
        message_limits.check_size(request.ByteSize(), self._limits.message_bytes)
        spec = self._agents[call.caller.agent]
        message_checks.check_message(
            request, message_checks.ANY_MEDIA_TYPE if spec.checks_own_modes else spec.input_modes
        )
        configuration = request.configuration
        if configuration.HasField("task_push_notification_config"):
            self._push_configs.check_enabled()
        message = pb.Message()
        message.CopyFrom(request.message)
        envelope = pb.SendMessageRequest(metadata=request.metadata if request.HasField("metadata") else None)
        envelope.configuration.accepted_output_modes.extend(request.configuration.accepted_output_modes)
        envelope.message.extensions.extend(self._active_extensions(call))
        idempotency_key, owner = self._idempotency_key(call, request), call.caller.owner
        record = await self._find_task(call, message) if message.task_id else None
        if record is not None:
            change = self._continue_task(record, call.caller, message, envelope)
        elif message.task_id and not call.names_tasks:
            raise TaskNotFound
        else:
            change = self._create_task(call, await self._context_owner(call.caller, message), message, envelope)
            if envelope.HasField("metadata") and (parent := trace.parent_task_of(envelope)):
                await self._set_parent(change, call.caller, parent)
        if configuration.HasField("task_push_notification_config"):
            change.push_config = self._push_configs.config_of_send(
                configuration.task_push_notification_config, message.task_id, call.dialect
            )
        if call.caller.joined and change.task.owner != owner:
            change.participant = owner
        change.idempotency_key = idempotency_key
        change.quota = self._admission.quota(call.caller.identity, call.caller.agent)
        return change

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

    async def _find_task(self, call: Call, message: pb.Message) -> TaskRecord | None:
        """The named task, if the caller sees it or shares its conversation.

        An id chosen by a client means that client's own task, because two clients may choose the same id.
        """
        caller, task_id = call.caller, message.task_id
        joined = caller.joined and not (call.names_tasks and task_key_of(task_id) is None)
        if record := await self._store.find(caller.owner, caller.agent, task_id, joined=joined):
            return record
        host = await self._context_owner(caller, message) if joined else None
        if host is None or host == caller.owner:
            return None
        record = await self._store.find(host, caller.agent, task_id)
        return record if record is not None and record.context == message.context_id else None

    async def _context_owner(self, caller: Caller, message: pb.Message) -> Owner | None:
        """The owner of the conversation that a message names, if the caller may join it."""
        if not (caller.joined and message.context_id):
            return None
        return await self._store.context_owner(caller.owner, message.context_id)

    def _idempotency_key(self, call: Call, request: pb.SendMessageRequest) -> IdempotencyKey | None:
        """The call's idempotency key with the digest of the message, which excludes the message's own id."""
        text = call.idempotency_key or (request.message.message_id if self._limits.message_id_is_key else "")
        if not text:
            return None
        if len(text) > MAX_IDEMPOTENCY_KEY_LENGTH:
            raise InvalidParams.field(
                "Idempotency-Key", f"must be at most {MAX_IDEMPOTENCY_KEY_LENGTH} characters, not {len(text)}"
            )
        content = pb.Message()
        content.CopyFrom(request.message)
        content.message_id = ""
        digest = sha256(content.SerializeToString(deterministic=True)).digest()
        caller = call.caller
        sender = Owner(caller.owner.scope, caller.identity.principal)
        return IdempotencyKey(caller.agent, text, digest, sender)

    def _active_extensions(self, call: Call) -> list[str]:
        """The agent's extensions that the call activates. Raises ExtensionSupportRequired (1.0 §3.3.4)."""
        declared = self._agents[call.caller.agent].extensions
        for extension in declared:
            if extension.required and extension.uri not in call.extensions:
                raise ExtensionSupportRequired(
                    f"A2A-Extensions: this agent requires the extension {extension.uri}; activate it in this header",
                    metadata={"field": "A2A-Extensions", "required": extension.uri},
                )
        return [extension.uri for extension in declared if extension.uri in call.extensions]

    def _create_task(
        self, call: Call, host: Owner | None, message: pb.Message, envelope: pb.SendMessageRequest
    ) -> Append:
        """The append for a new task. `host` owns the conversation that the message names, if it is shared."""
        caller, alias = call.caller, bool(message.task_id)
        # An alias belongs to the client that chose it, so its task does too.
        owner = caller.owner if host is None or alias else host
        ref = TaskRef(owner, self._new_key())
        message.task_id = message.task_id or task_id_of(ref.key)
        fresh = not message.context_id
        message.context_id = message.context_id or self._new_context()
        # A client that names its task expects that task, and knows no Message in its place.
        visible = alias or not self._agents[caller.agent].direct
        new = NewTask(
            caller.agent,
            message.task_id,
            message.context_id,
            visible=visible,
            dialect=call.dialect,
            alias=alias,
            fresh_context=fresh,
            joinable=caller.joined and (fresh or host == owner),
        )
        incoming = _incoming_message(caller, message, envelope)
        return Append(task=ref, guard=New(), create=new, message=incoming)

    def _continue_task(
        self, record: TaskRecord, caller: Caller, message: pb.Message, envelope: pb.SendMessageRequest
    ) -> Append:
        if message.context_id and message.context_id != record.context:
            raise InvalidParams.field("message.contextId", "is not the context of message.taskId; leave it out")
        message.context_id = record.context
        guard = NotRunning() if self._agents[caller.agent].while_working == "refuse" else NotTerminal()
        incoming = _incoming_message(caller, message, envelope)
        return Append(task=record.ref, guard=guard, message=incoming)

    async def _commit(self, change: Append, agent: str) -> SendResult:
        """Stores a message and begins the run that it claimed, also when the caller disconnects meanwhile."""
        session = change.claim_session = self._scheduler.reserve_slot(agent)
        if change.create is not None and not session:
            # A queued task is visible at once: its sender can follow it, and does not wait for a Message.
            change.create = replace(change.create, visible=True)
        incoming = change.message if change.create else None
        fresh = change.create is not None and change.create.fresh_context
        first = StoredMessage(1, ROLE_USER, incoming.message, incoming.envelope, incoming.sender) if incoming else None
        started: list[TurnRunner | None] = []

        def on_result(appended: Appended | None) -> None:
            started.append(self._scheduler.complete_reservation(session, agent, appended, first, fresh_context=fresh))

        try:
            appended = await self._log.append(change, on_result)
        except DuplicateKey:
            raise
        except QuotaExceeded as exceeded:
            raise quota_exceeded(exceeded) from exceeded
        except AppendRejected as rejected:
            if rejected.reason == ENDED:
                raise TaskEnded from rejected
            if rejected.reason == EXISTS:
                raise _AliasTaken from rejected
            if error := too_many_configs(rejected):
                raise error from rejected
            if rejected.reason == RUNNING:
                raise UnsupportedOperation(
                    "this agent accepts no messages while it works on the task; retry later"
                ) from rejected
            raise TaskNotFound from rejected
        return SendResult(appended.record, appended.events, started[0], change.create is not None)


def _incoming_message(caller: Caller, message: pb.Message, envelope: pb.SendMessageRequest) -> IncomingMessage:
    stored = envelope.SerializeToString()
    if context := trace.CURRENT_TRACE.get():
        stored = trace.add_trace(stored, context)
    return IncomingMessage(message.SerializeToString(), stored, caller.identity.principal)


async def direct_reply(result: SendResult) -> pb.Message | None:
    """The Message with which a `direct` agent replaced its task; waits until that is decided.

    Raises InvalidAgentResponse if its first response was invalid.
    """
    if result.reply is not None:
        return result.reply
    if result.runner is None or result.record.visible:
        return None
    return await asyncio.shield(result.runner.first_response)


async def read_stored_task(store: Store, result: SendResult, history: int | None) -> TaskSnapshot:
    """The task of a stored message: as it is, or as `known_task` while the store is unavailable."""
    try:
        return await read_task(store, result.record.ref, history=history)
    except Unavailable as error:
        return known_task(result, history, error)


def known_task(result: SendResult, history: int | None, error: Unavailable) -> TaskSnapshot:
    """The task of a stored message as created, while the store is unavailable.

    Raises Unavailable for a task that existed before; the error says that the message must not be sent again.
    """
    if result.created and (task := TaskProjection(result.events).task(result.record, history)):
        return TaskSnapshot(result.record, task)
    text = (
        f"the message was stored for task {result.record.id}, but the store is unavailable now; "
        "do not send it again, read the task later"
    )
    stored = Unavailable(text, metadata={"task": result.record.id})
    stored.retry_after = 0.0
    raise stored from error
