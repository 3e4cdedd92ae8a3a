"""Storing a message: a new task or the next turn of one, once for each idempotency key.

Nothing here waits for an agent. What is stored may be claimed for a run in the same append; whoever called is told what
was written, or what an earlier send with the same key led to.
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
from dragoman.ports import Store, StoredMessage
from dragoman.runtime.feeds import Subscriber, TaskFeeds
from dragoman.runtime.log import EventLog
from dragoman.runtime.operations.call import Admission, Call, Limits, quota_exceeded
from dragoman.runtime.operations.push_configs import PushConfigOperations, too_many_configs
from dragoman.runtime.scheduler import Scheduler
from dragoman.runtime.turn.runner import TurnRunner
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

MAX_IDEMPOTENCY_KEY_LENGTH: Final = 255
"""Characters of an idempotency key."""

REPLY_POLL_INTERVAL: Final = 0.1
"""Seconds between two looks at a task of another process that may still become a Message."""


class _AliasTaken(Exception):
    """Two messages that would create the same alias met; the other one's task is there now."""


@dataclass(frozen=True, slots=True)
class SendResult:
    """A message that was stored, now or by an earlier send with its key: its task and events, and what came of it."""

    record: TaskRecord
    events: Sequence[Event] = ()
    runner: TurnRunner | None = None
    """The run, if it began here."""
    created: bool = False
    repeated: bool = False
    reply: pb.Message | None = None


_NO_TASK: Final = TaskRecord(TaskRef(Owner("", ""), b""), "", "", "", 0, 0, 0)
"""The head of what was answered without a task."""


def new_task_key() -> bytes:
    """A fresh task key of this moment."""
    return make_task_key(time.time_ns(), IDS.random_bytes())


def new_context_id() -> str:
    """A fresh context id."""
    return IDS.uuid()


def _ignore_sent(call: Call, result: SendResult) -> None:
    """Is told nothing."""


class SendOperation:
    """Stores the messages of sends."""

    on_sent: Callable[[Call, SendResult], None] = staticmethod(_ignore_sent)
    """Is told of each message once it is stored."""

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
        """Writes the message of a send."""
        while True:
            change = await self._prepare(call, request)
            if sent := await self._try_commit(change, call.caller.agent):
                self.on_sent(call, sent)
                return sent

    async def store_and_subscribe(
        self, stack: AsyncExitStack, call: Call, request: pb.SendMessageRequest
    ) -> tuple[SendResult, Subscriber]:
        """Writes the message of a send, and listens to its task from before that."""
        while True:
            change = await self._prepare(call, request)
            subscriber = await stack.enter_async_context(self._feeds.subscribe(change.task))
            if sent := await self._try_commit(change, call.caller.agent):
                if sent.reply is None and sent.record.ref != change.task:
                    subscriber = await stack.enter_async_context(self._feeds.subscribe(sent.record.ref))
                self.on_sent(call, sent)
                return sent, subscriber

    async def _try_commit(self, change: Append, agent: str) -> SendResult | None:
        """Writes a message, or finds what its key led to; None when it has to be looked at once more."""
        try:
            return await self._commit(change, agent)
        except _AliasTaken:  # so the next look finds a task to continue
            return None
        except DuplicateKey as repeated:
            return await self._resolve_duplicate(repeated.key_record, change)

    async def _resolve_duplicate(self, earlier: KeyRecord, change: Append) -> SendResult | None:
        """What the first send with this key led to; None while that is not decided, after waiting for it a little."""
        assert change.idempotency_key is not None
        if earlier.digest != change.idempotency_key.digest:
            raise IdempotencyKeyReused("Idempotency-Key: was used for a message with other content; use a new key")
        if earlier.reply:
            return SendResult(_NO_TASK, repeated=True, reply=pb.Message.FromString(earlier.reply))
        if earlier.task is None:
            raise TaskNotFound
        head = await self._read_record(earlier.task)
        if head.visible:
            return SendResult(head, created=earlier.sequence_before == 0, repeated=True)
        run = self._scheduler.find_runner(earlier.task)
        if run is not None:
            await asyncio.shield(run.first_response)
        else:
            await asyncio.sleep(REPLY_POLL_INTERVAL)
        return None

    async def _read_record(self, ref: TaskRef) -> TaskRecord:
        snapshot = await self._store.read(ref, history=0, artifacts=False)
        if snapshot is None:
            raise TaskNotFound
        return snapshot.record

    async def _prepare(self, call: Call, request: pb.SendMessageRequest) -> Append:
        """The change that stores a message: it creates a task, or continues the one it names."""
        message_limits.check_size(request.ByteSize(), self._limits.message_bytes)
        spec = self._agents[call.caller.agent]
        message_checks.check_message(
            request, message_checks.ANY_MEDIA_TYPE if spec.checks_own_modes else spec.input_modes
        )
        asked = request.configuration
        if asked.HasField("task_push_notification_config"):
            self._push_configs.check_enabled()
        message = pb.Message()
        message.CopyFrom(request.message)
        envelope = pb.SendMessageRequest(metadata=request.metadata if request.HasField("metadata") else None)
        envelope.configuration.accepted_output_modes.extend(request.configuration.accepted_output_modes)
        envelope.message.extensions.extend(self._active_extensions(call))
        named, owner = self._idempotency_key(call, request), call.caller.owner
        head = await self._find_task(call, message) if message.task_id else None
        if head is not None:
            change = self._continue_task(head, call.caller, message, envelope)
        elif message.task_id and not call.names_tasks:
            raise TaskNotFound
        else:
            change = self._create_task(call, await self._context_owner(call.caller, message), message, envelope)
            if envelope.HasField("metadata") and (parent := trace.parent_task_of(envelope)):
                await self._set_parent(change, call.caller, parent)
        if asked.HasField("task_push_notification_config"):
            change.push_config = self._push_configs.config_of_send(
                asked.task_push_notification_config, message.task_id, call.dialect
            )
        if call.caller.joined and change.task.owner != owner:
            change.participant = owner
        change.idempotency_key = named
        change.quota = self._admission.quota(call.caller.identity, call.caller.agent)
        return change

    async def _set_parent(self, change: Append, caller: Caller, parent: trace.ParentTask) -> None:
        """Has a new task work for another one, if both are of one principal and that one has not ended."""
        assert change.create is not None
        above = await self._store.find(change.task.owner, parent.agent, parent.task)
        if above is None or above.principal != caller.identity.principal or states.is_terminal(above.state):
            return
        change.create = replace(change.create, parent=above.ref.key)

    async def _find_task(self, call: Call, message: pb.Message) -> TaskRecord | None:
        """The task that a message is for: one that the caller sees, or one of the conversation that it joins with it.

        An id that was chosen by a client means that client's own task, so that two may choose the same.
        """
        caller, task_id = call.caller, message.task_id
        joined = caller.joined and not (call.names_tasks and task_key_of(task_id) is None)
        if head := await self._store.find(caller.owner, caller.agent, task_id, joined=joined):
            return head
        host = await self._context_owner(caller, message) if joined else None
        if host is None or host == caller.owner:
            return None
        head = await self._store.find(host, caller.agent, task_id)
        return head if head is not None and head.context == message.context_id else None

    async def _context_owner(self, caller: Caller, message: pb.Message) -> Owner | None:
        """Who began the conversation that a message names, if that is one to take part in."""
        if not (caller.joined and message.context_id):
            return None
        return await self._store.context_owner(caller.owner, message.context_id)

    def _idempotency_key(self, call: Call, request: pb.SendMessageRequest) -> IdempotencyKey | None:
        """The call's idempotency key with the digest of what it stands for: the message without its own id."""
        text = call.idempotency_key or (request.message.message_id if self._limits.message_id_is_key else "")
        if not text:
            return None
        if len(text) > MAX_IDEMPOTENCY_KEY_LENGTH:
            raise InvalidParams.field(
                "Idempotency-Key", f"must be at most {MAX_IDEMPOTENCY_KEY_LENGTH} characters, not {len(text)}"
            )
        said = pb.Message()
        said.CopyFrom(request.message)
        said.message_id = ""
        digest = sha256(said.SerializeToString(deterministic=True)).digest()
        caller = call.caller
        sender = Owner(caller.owner.scope, caller.identity.principal)
        return IdempotencyKey(caller.agent, text, digest, sender)

    def _active_extensions(self, call: Call) -> list[str]:
        """What the call activates of the agent's extensions. Raises ExtensionSupportRequired (1.0 §3.3.4)."""
        declared = self._agents[call.caller.agent].extensions
        for extension in declared:
            if extension.required and extension.uri not in call.extensions:
                raise ExtensionSupportRequired(
                    f"A2A-Extensions: this agent requires the extension {extension.uri}; name it",
                    metadata={"field": "A2A-Extensions", "required": extension.uri},
                )
        return [extension.uri for extension in declared if extension.uri in call.extensions]

    def _create_task(
        self, call: Call, host: Owner | None, message: pb.Message, envelope: pb.SendMessageRequest
    ) -> Append:
        """A new task. `host` began the conversation that the message names, if others may join that."""
        caller, alias = call.caller, bool(message.task_id)
        # A name that its client chose is one among its own: such a task stays with it.
        owner = caller.owner if host is None or alias else host
        ref = TaskRef(owner, self._new_key())
        message.task_id = message.task_id or task_id_of(ref.key)
        fresh = not message.context_id
        message.context_id = message.context_id or self._new_context()
        # Who names its task waits for that task and knows no other answer.
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
        inbound = _incoming_message(caller, message, envelope)
        return Append(task=ref, guard=New(), create=new, message=inbound)

    def _continue_task(
        self, record: TaskRecord, caller: Caller, message: pb.Message, envelope: pb.SendMessageRequest
    ) -> Append:
        if message.context_id and message.context_id != record.context:
            raise InvalidParams.field("message.contextId", "is not the context of message.taskId; leave it out")
        message.context_id = record.context
        guard = NotRunning() if self._agents[caller.agent].while_working == "refuse" else NotTerminal()
        inbound = _incoming_message(caller, message, envelope)
        return Append(task=record.ref, guard=guard, message=inbound)

    async def _commit(self, change: Append, agent: str) -> SendResult:
        """Writes a message and begins the run it claimed, whether or not the caller is still there to hear of it."""
        session = change.claim_session = self._scheduler.reserve_slot(agent)
        if change.create is not None and not session:
            # A task that has to wait is shown: who sent it may follow it, and nobody is held for a Message.
            change.create = replace(change.create, visible=True)
        inbound = change.message if change.create else None
        fresh = change.create is not None and change.create.fresh_context
        first = StoredMessage(1, ROLE_USER, inbound.message, inbound.envelope, inbound.sender) if inbound else None
        started: list[TurnRunner | None] = []

        def written(appended: Appended | None) -> None:
            started.append(self._scheduler.complete_reservation(session, agent, appended, first, fresh_context=fresh))

        try:
            appended = await self._log.append(change, written)
        except DuplicateKey:
            raise
        except QuotaExceeded as overrun:
            raise quota_exceeded(overrun) from overrun
        except AppendRejected as no:
            if no.reason == ENDED:
                raise TaskEnded from no
            if no.reason == EXISTS:
                raise _AliasTaken from no
            if crowded := too_many_configs(no):
                raise crowded from no
            if no.reason == RUNNING:
                raise UnsupportedOperation("this agent takes no message while it works on the task") from no
            raise TaskNotFound from no
        return SendResult(appended.record, appended.events, started[0], change.create is not None)


def _incoming_message(caller: Caller, message: pb.Message, envelope: pb.SendMessageRequest) -> IncomingMessage:
    kept = envelope.SerializeToString()
    if context := trace.CURRENT_TRACE.get():
        kept = trace.add_trace(kept, context)
    return IncomingMessage(message.SerializeToString(), kept, caller.identity.principal)


async def direct_reply(result: SendResult) -> pb.Message | None:
    """The Message a `direct` agent answered with instead of a task; waits until that is decided."""
    if result.reply is not None:
        return result.reply
    if result.runner is None or result.record.visible:
        return None
    return await asyncio.shield(result.runner.first_response)
