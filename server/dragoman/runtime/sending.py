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

from dragoman.core import delegation, limits, messages, states, trace
from dragoman.core.admission import Overrun
from dragoman.core.card import AgentSpec
from dragoman.core.errors import (
    ExtensionSupportRequired,
    IdempotencyKeyReused,
    InvalidParams,
    TaskEnded,
    TaskNotFound,
    UnsupportedOperation,
)
from dragoman.core.identity import Caller
from dragoman.core.log import (
    ENDED,
    EXISTS,
    RUNNING,
    USER,
    Append,
    Appended,
    Earlier,
    Event,
    Head,
    Inbound,
    Key,
    New,
    NewTask,
    NotRunning,
    NotTerminal,
    Refused,
    Repeated,
    TaskRef,
)
from dragoman.core.names import Owner, id_of, key_of, new_key
from dragoman.entropy import ENTROPY
from dragoman.ports import Store, StoredMessage
from dragoman.runtime.admission import Admission, refused
from dragoman.runtime.call import Call, Limits
from dragoman.runtime.dispatch import Dispatch
from dragoman.runtime.follow import Followers, Subscriber
from dragoman.runtime.log import Log
from dragoman.runtime.run import Run
from dragoman.runtime.webhooks import Webhooks, refusal
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

KEY_LENGTH: Final = 255
"""Characters of an idempotency key."""

UNDECIDED: Final = 0.1
"""Seconds between two looks at a task of another process that may still become a Message."""


class _AliasTaken(Exception):
    """Two messages that would create the same alias met; the other one's task is there now."""


@dataclass(frozen=True, slots=True)
class Sent:
    """A message that was stored, now or by an earlier send with its key: its task and events, and what came of it."""

    head: Head
    events: Sequence[Event] = ()
    run: Run | None = None
    """The run, if it began here."""
    created: bool = False
    repeated: bool = False
    reply: pb.Message | None = None


_NO_TASK: Final = Head(TaskRef(Owner("", ""), b""), "", "", "", 0, 0, 0)
"""The head of what was answered without a task."""


def new_task_key() -> bytes:
    """A fresh task key of this moment."""
    return new_key(time.time_ns(), ENTROPY.take())


def new_context_id() -> str:
    """A fresh context id."""
    return ENTROPY.uuid()


def _nobody(call: Call, sent: Sent) -> None:
    """Is told nothing."""


class Sending:
    """Stores the messages of sends."""

    told: Callable[[Call, Sent], None] = staticmethod(_nobody)
    """Is told of each message once it is stored."""

    def __init__(
        self,
        store: Store,
        log: Log,
        followers: Followers,
        dispatch: Dispatch,
        agents: Mapping[str, AgentSpec],
        limits: Limits,
        webhooks: Webhooks,
        admission: Admission,
        new_key: Callable[[], bytes],
        new_context: Callable[[], str],
    ) -> None:
        self._store = store
        self._log = log
        self._followers = followers
        self._dispatch = dispatch
        self._agents = agents
        self._limits = limits
        self._webhooks = webhooks
        self._admission = admission
        self._new_key = new_key
        self._new_context = new_context

    async def store(self, call: Call, request: pb.SendMessageRequest) -> Sent:
        """Writes the message of a send."""
        while True:
            change = await self._prepare(call, request)
            if sent := await self._settle(change, call.caller.agent):
                self.told(call, sent)
                return sent

    async def follow(
        self, stack: AsyncExitStack, call: Call, request: pb.SendMessageRequest
    ) -> tuple[Sent, Subscriber]:
        """Writes the message of a send, and listens to its task from before that."""
        while True:
            change = await self._prepare(call, request)
            subscriber = await stack.enter_async_context(self._followers.subscribe(change.task))
            if sent := await self._settle(change, call.caller.agent):
                if sent.reply is None and sent.head.ref != change.task:
                    subscriber = await stack.enter_async_context(self._followers.subscribe(sent.head.ref))
                self.told(call, sent)
                return sent, subscriber

    async def _settle(self, change: Append, agent: str) -> Sent | None:
        """Writes a message, or finds what its key led to; None when it has to be looked at once more."""
        try:
            return await self._commit(change, agent)
        except _AliasTaken:  # so the next look finds a task to continue
            return None
        except Repeated as repeated:
            return await self._earlier(repeated.earlier, change)

    async def _earlier(self, earlier: Earlier, change: Append) -> Sent | None:
        """What the first send with this key led to; None while that is not decided, after waiting for it a little."""
        assert change.key is not None
        if earlier.digest != change.key.digest:
            raise IdempotencyKeyReused("Idempotency-Key: was used for a message with other content; use a new key")
        if earlier.reply:
            return Sent(_NO_TASK, repeated=True, reply=pb.Message.FromString(earlier.reply))
        if earlier.task is None:
            raise TaskNotFound
        head = await self._head(earlier.task)
        if head.visible:
            return Sent(head, created=earlier.first == 0, repeated=True)
        run = self._dispatch.run_of(earlier.task)
        if run is not None:
            await asyncio.shield(run.first)
        else:
            await asyncio.sleep(UNDECIDED)
        return None

    async def _head(self, ref: TaskRef) -> Head:
        snapshot = await self._store.read(ref, history=0, artifacts=False)
        if snapshot is None:
            raise TaskNotFound
        return snapshot.head

    async def _prepare(self, call: Call, request: pb.SendMessageRequest) -> Append:
        """The change that stores a message: it creates a task, or continues the one it names."""
        limits.check_size(request.ByteSize(), self._limits.message_bytes)
        spec = self._agents[call.caller.agent]
        messages.check(request, messages.ANY if spec.judges_modes else spec.input_modes)
        asked = request.configuration
        if asked.HasField("task_push_notification_config"):
            self._webhooks.check_on()
        message = pb.Message()
        message.CopyFrom(request.message)
        envelope = pb.SendMessageRequest(metadata=request.metadata if request.HasField("metadata") else None)
        envelope.configuration.accepted_output_modes.extend(request.configuration.accepted_output_modes)
        envelope.message.extensions.extend(self._activated(call))
        named, owner = self._key(call, request), call.caller.owner
        head = await self._meant(call, message) if message.task_id else None
        if head is not None:
            change = self._continue(head, call.caller, message, envelope)
        elif message.task_id and not call.names_tasks:
            raise TaskNotFound
        else:
            change = self._create(call, await self._host(call.caller, message), message, envelope)
            if envelope.HasField("metadata") and (parent := delegation.parent_of(envelope)):
                await self._attach(change, call.caller, parent)
        if asked.HasField("task_push_notification_config"):
            change.push = self._webhooks.inlined(asked.task_push_notification_config, message.task_id, call.dialect)
        if call.caller.joined and change.task.owner != owner:
            change.joins = owner
        change.key = named
        change.quota = self._admission.quota(call.caller.identity, call.caller.agent)
        return change

    async def _attach(self, change: Append, caller: Caller, parent: delegation.Parent) -> None:
        """Has a new task work for another one, if both are of one principal and that one has not ended."""
        assert change.create is not None
        above = await self._store.find(change.task.owner, parent.agent, parent.task)
        if above is None or above.principal != caller.identity.principal or states.is_terminal(above.state):
            return
        change.create = replace(change.create, parent=above.ref.key)

    async def _meant(self, call: Call, message: pb.Message) -> Head | None:
        """The task that a message is for: one that the caller sees, or one of the conversation that it joins with it.

        An id that was chosen by a client means that client's own task, so that two may choose the same.
        """
        caller, task_id = call.caller, message.task_id
        joined = caller.joined and not (call.names_tasks and key_of(task_id) is None)
        if head := await self._store.find(caller.owner, caller.agent, task_id, joined=joined):
            return head
        host = await self._host(caller, message) if joined else None
        if host is None or host == caller.owner:
            return None
        head = await self._store.find(host, caller.agent, task_id)
        return head if head is not None and head.context == message.context_id else None

    async def _host(self, caller: Caller, message: pb.Message) -> Owner | None:
        """Who began the conversation that a message names, if that is one to take part in."""
        if not (caller.joined and message.context_id):
            return None
        return await self._store.host(caller.owner, message.context_id)

    def _key(self, call: Call, request: pb.SendMessageRequest) -> Key | None:
        """The call's idempotency key with the digest of what it stands for: the message without its own id."""
        text = call.key or (request.message.message_id if self._limits.message_id_is_key else "")
        if not text:
            return None
        if len(text) > KEY_LENGTH:
            raise InvalidParams.field("Idempotency-Key", f"must be at most {KEY_LENGTH} characters, not {len(text)}")
        said = pb.Message()
        said.CopyFrom(request.message)
        said.message_id = ""
        digest = sha256(said.SerializeToString(deterministic=True)).digest()
        caller = call.caller
        sender = Owner(caller.owner.scope, caller.identity.principal)
        return Key(caller.agent, text, digest, sender)

    def _activated(self, call: Call) -> list[str]:
        """What the call activates of the agent's extensions. Raises ExtensionSupportRequired (1.0 §3.3.4)."""
        declared = self._agents[call.caller.agent].extensions
        for extension in declared:
            if extension.required and extension.uri not in call.extensions:
                raise ExtensionSupportRequired(
                    f"A2A-Extensions: this agent requires the extension {extension.uri}; name it",
                    metadata={"field": "A2A-Extensions", "required": extension.uri},
                )
        return [extension.uri for extension in declared if extension.uri in call.extensions]

    def _create(self, call: Call, host: Owner | None, message: pb.Message, envelope: pb.SendMessageRequest) -> Append:
        """A new task. `host` began the conversation that the message names, if others may join that."""
        caller, alias = call.caller, bool(message.task_id)
        # A name that its client chose is one among its own: such a task stays with it.
        owner = caller.owner if host is None or alias else host
        ref = TaskRef(owner, self._new_key())
        message.task_id = message.task_id or id_of(ref.key)
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
            open=caller.joined and (fresh or host == owner),
        )
        inbound = _inbound(caller, message, envelope)
        return Append(task=ref, guard=New(), create=new, message=inbound)

    def _continue(self, head: Head, caller: Caller, message: pb.Message, envelope: pb.SendMessageRequest) -> Append:
        if message.context_id and message.context_id != head.context:
            raise InvalidParams.field("message.contextId", "is not the context of message.taskId; leave it out")
        message.context_id = head.context
        guard = NotRunning() if self._agents[caller.agent].while_working == "refuse" else NotTerminal()
        inbound = _inbound(caller, message, envelope)
        return Append(task=head.ref, guard=guard, message=inbound)

    async def _commit(self, change: Append, agent: str) -> Sent:
        """Writes a message and begins the run it claimed, whether or not the caller is still there to hear of it."""
        session = change.claim = self._dispatch.reserve(agent)
        if change.create is not None and not session:
            # A task that has to wait is shown: who sent it may follow it, and nobody is held for a Message.
            change.create = replace(change.create, visible=True)
        inbound = change.message if change.create else None
        fresh = change.create is not None and change.create.fresh_context
        first = StoredMessage(1, USER, inbound.message, inbound.envelope, inbound.sender) if inbound else None
        started: list[Run | None] = []

        def written(appended: Appended | None) -> None:
            started.append(self._dispatch.settle(session, agent, appended, first, fresh_context=fresh))

        try:
            appended = await self._log.append(change, written)
        except Repeated:
            raise
        except Overrun as overrun:
            raise refused(overrun) from overrun
        except Refused as no:
            if no.reason == ENDED:
                raise TaskEnded from no
            if no.reason == EXISTS:
                raise _AliasTaken from no
            if crowded := refusal(no):
                raise crowded from no
            if no.reason == RUNNING:
                raise UnsupportedOperation("this agent takes no message while it works on the task") from no
            raise TaskNotFound from no
        return Sent(appended.head, appended.events, started[0], change.create is not None)


def _inbound(caller: Caller, message: pb.Message, envelope: pb.SendMessageRequest) -> Inbound:
    kept = envelope.SerializeToString()
    if context := trace.CURRENT.get():
        kept = trace.stamped(kept, context)
    return Inbound(message.SerializeToString(), kept, caller.identity.principal)


async def reply(sent: Sent) -> pb.Message | None:
    """The Message a `direct` agent answered with instead of a task; waits until that is decided."""
    if sent.reply is not None:
        return sent.reply
    if sent.run is None or sent.head.visible:
        return None
    return await asyncio.shield(sent.run.first)
