"""SendMessage and SendStreamingMessage: writes the message of a send once per idempotency key, then follows its turn.

`AppendBuilder` checks a request and builds its append, which creates a task or continues the named one, and may also
claim the task for a run. A repeated send follows what the first one wrote.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any, Final, NamedTuple

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
from dragoman.core.names import Owner, make_task_key, task_id_of
from dragoman.core.task import frames, states
from dragoman.core.task.log import (
    ENDED,
    EXISTS,
    ROLE_USER,
    RUNNING,
    Append,
    AppendRejected,
    DuplicateKey,
    Event,
    Exists,
    Guard,
    IdempotencyKey,
    IncomingMessage,
    KeyRecord,
    New,
    NewTask,
    NoOpenTurn,
    TaskRecord,
    TaskRef,
    is_key_expired,
)
from dragoman.core.task.projection import summary_of
from dragoman.core.task.steps import StepRecord
from dragoman.ids import IDS
from dragoman.ports import Store, StoredMessage, TaskSnapshot
from dragoman.runtime.access import Admission, Call, Limits, OnAction, check_streaming, history_length, rate_limited
from dragoman.runtime.feeds import EventStream, TaskFeeds
from dragoman.runtime.log import EventLog, read_task, task_event
from dragoman.runtime.push_configs import PushConfigOperations, too_many_configs
from dragoman.runtime.read import ends_stream, split_at_end
from dragoman.runtime.scheduler import Scheduler
from dragoman.runtime.turn.events import TaskProjection
from dragoman.runtime.turn.runner import TurnRunner, lost_task
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

MAX_IDEMPOTENCY_KEY_LENGTH: Final = 255  # characters of an idempotency key


def new_task_key() -> bytes:
    """A new task key, ordered by time."""
    return make_task_key(time.time_ns(), IDS.random_bytes())


@dataclass(eq=False, repr=False)
class AppendBuilder:
    """Builds the appends of sends."""

    store: Store
    agents: Mapping[str, AgentSpec]
    push_configs: PushConfigOperations
    admission: Admission
    limits: Limits
    new_key: Callable[[], bytes] = new_task_key
    new_context: Callable[[], str] = IDS.uuid  # creates the ids of conversations, as `new_key` those of tasks

    async def build(self, call: Call, request: pb.SendMessageRequest) -> Append:
        """The append that stores the message of a send. The request stays as it is.

        Raises PayloadTooLarge, InvalidParams, ContentTypeNotSupported, ExtensionSupportRequired, TaskNotFound and
        PushNotificationNotSupported.
        """
        message_limits.check_size(request.ByteSize(), self.limits.message_bytes)
        caller, configuration = call.caller, request.configuration
        spec = self.agents[caller.agent]
        message_checks.check_message(
            request, message_checks.ANY_MEDIA_TYPE if spec.checks_own_modes else spec.input_modes
        )
        has_push_config = configuration.HasField("task_push_notification_config")
        if has_push_config:
            self.push_configs.check_enabled()
        message = pb.Message()
        message.CopyFrom(request.message)
        envelope = pb.SendMessageRequest()  # empty for most sends
        if request.HasField("metadata"):
            envelope.metadata.CopyFrom(request.metadata)
        if modes := configuration.accepted_output_modes:
            envelope.configuration.accepted_output_modes.extend(modes)
        if configuration.HasField("history_length"):
            envelope.configuration.history_length = configuration.history_length
        if spec.extensions and (extensions := _active_extensions(spec, call)):
            envelope.message.extensions.extend(extensions)
        idempotency_key = None
        if call.idempotency_key or self.limits.message_id_is_key:
            idempotency_key = self._idempotency_key(call, message)
        record = await self.store.find(caller.owner, caller.agent, message.task_id) if message.task_id else None
        restarts = False
        if record is not None and record.alias and call.names_tasks and states.is_terminal(record.state):
            restarts = not await self.repeats(record, message, envelope)
        if record is not None and not restarts:
            change = _continue_task(record, spec, call, message, envelope)
        elif message.task_id and not call.names_tasks:
            raise TaskNotFound
        else:
            change = self._create_task(call, spec, message, envelope, restarts=restarts)
            if envelope.HasField("metadata") and (parent := trace.parent_task_of(envelope)):
                await self._set_parent(change, caller, parent)
        if has_push_config:
            # Without an id it gets the task's: a client that sends it with each message of a task has one webhook.
            requested = configuration.task_push_notification_config
            change.push_config = self.push_configs.checked_config(requested, message.task_id, call, inline=True)
        change.idempotency_key = idempotency_key
        change.quota = self.admission.quota(caller.identity, caller.agent, caller.owner.scope)
        return change

    async def repeats(self, record: TaskRecord, message: pb.Message, envelope: pb.SendMessageRequest) -> bool:
        """Whether a send repeats the last one of its task's client, not long after the task ended.

        A client that names its tasks and lost the answer sends it again. It gets the task, and no second run.
        """
        if is_key_expired(record.updated, self.store.now()):
            return False
        stored = await self.store.messages(record.ref, record.last_received - 1)
        last = next((one for one in stored.messages if one.number == record.last_received), None) if stored else None
        if last is None:
            return False
        earlier = pb.Message.FromString(last.message)
        earlier.message_id = message.message_id  # 0.1 has none: a decoder made it
        if not message.context_id:
            earlier.context_id = ""
        return earlier == message and pb.SendMessageRequest.FromString(last.envelope).metadata == envelope.metadata

    def _create_task(
        self, call: Call, spec: AgentSpec, message: pb.Message, envelope: pb.SendMessageRequest, *, restarts: bool
    ) -> Append:
        caller, alias = call.caller, bool(message.task_id)
        ref = TaskRef(caller.owner, self.new_key())
        task_id, context_id = message.task_id, message.context_id
        fresh = not context_id
        if not alias:
            task_id = message.task_id = task_id_of(ref.key)
        if fresh:
            context_id = message.context_id = self.new_context()
        # A client that names its task expects that task, and knows no Message in its place.
        visible, summary = alias or not spec.direct, summary_of(message)
        new = NewTask(
            caller.agent, task_id, context_id,
            visible=visible, dialect=call.dialect, alias=alias, restarts=restarts, fresh_context=fresh, summary=summary,
        )  # fmt: skip
        incoming = _incoming_message(caller, message, envelope)
        return Append(task=ref, guard=New(), create=new, message=incoming)

    async def _set_parent(self, change: Append, caller: Caller, parent: trace.ParentTask) -> None:
        """Records the parent task of a new task, if both have one principal and the parent has not ended."""
        assert change.create is not None
        parent_record = await self.store.find(change.task.owner, parent.agent, parent.task)
        if (
            parent_record is None
            or parent_record.principal != caller.identity.principal
            or states.is_terminal(parent_record.state)
        ):
            return
        change.create = replace(change.create, parent=parent_record.ref.key)

    def _idempotency_key(self, call: Call, message: pb.Message) -> IdempotencyKey | None:
        """The call's idempotency key with the digest of the message, which excludes the message's own id."""
        text = call.idempotency_key or (message.message_id if self.limits.message_id_is_key else "")
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


REPLY_POLL_INTERVAL: Final = 0.1  # seconds between polls of another process's task that may still become a Message


class SendResult(NamedTuple):
    """A stored message, new or of an earlier send with its key: its task, its events, and the outcome."""

    record: TaskRecord
    events: Sequence[Event] = ()
    runner: TurnRunner | None = None  # the runner, if the turn began in this process
    created: bool = False
    repeated: bool = False
    reply: pb.Message | None = None


_NO_TASK: Final = TaskRecord(TaskRef(Owner("", ""), b""), "", "", "", 0, 0, 0, visible=False)
"""The record in the result of a send that was answered without a task."""


@dataclass(eq=False, repr=False)
class SendOperations:
    """Stores the messages of sends, and answers with what follows."""

    store: Store
    event_log: EventLog
    feeds: TaskFeeds
    scheduler: Scheduler
    appends: AppendBuilder
    admission: Admission
    limits: Limits
    on_action: OnAction | None = None

    async def send_message(self, call: Call, request: pb.SendMessageRequest) -> bytes:
        """A serialized SendMessageResponse: the task when its turn has ended, or as it is at the wait limit.

        With `return_immediately`, in the request or by default for calls that leave it open, it is the stored task.
        """
        configuration = request.configuration
        history = history_length(configuration, "configuration.historyLength")
        name = request.message.task_id if call.names_tasks else ""
        limit = self.limits.blocking_wait
        deadline = asyncio.get_running_loop().time() + min(limit if call.timeout is None else call.timeout, limit)
        waits = not (
            configuration.return_immediately
            or (call.leaves_blocking_open and self.limits.blocking_default.of(call.caller.agent) == "return")
        )
        task = None
        if waits:
            self.admission.open_stream(call.caller.identity)
        try:
            result = None
            while result is None:
                change = await self.appends.build(call, request)
                if waits and change.create is not None and not self.scheduler.services.options.runs_agents:
                    result, task = await self._follow_new_task(call, change, deadline, history)
                else:
                    result = await self._store_message(call, change)
            if not result.record.visible and (message := await direct_reply(result)):
                return frames.frame(2, message.SerializeToString())
            if waits and task is None and result.record.has_open_turn:
                task = await self._wait_for_turn(result, deadline, history)
        finally:
            if waits:
                self.admission.close_stream(call.caller.identity)
        if task is None:
            task = (await read_stored_task(self.store, result, history, name)).task
        return frames.frame(1, task)

    async def send_streaming_message(self, call: Call, request: pb.SendMessageRequest) -> EventStream:
        """Events whose data are serialized StreamResponse: the Task first, or one Message (1.0 §3.1.2).

        A repeated send gets the events of the turn that the first one began: from the task's first, or after the
        caller's cursor. A caller that has all of them gets an empty stream: its connection broke after the last event.
        """
        check_streaming(self.appends.agents[call.caller.agent])
        history = history_length(request.configuration, "configuration.historyLength")
        name = request.message.task_id if call.names_tasks else ""
        self.admission.open_stream(call.caller.identity)
        try:
            change = await self.appends.build(call, request)
            async with self.feeds.subscribe(change.task) as subscriber:  # before the write, so that no event is missed
                while (result := await self._store_message(call, change)) is None:
                    change = await self.appends.build(call, request)
                    await subscriber.listen(change.task)
                if message := await direct_reply(result):
                    yield (Event(0, frames.frame(2, message.SerializeToString())),)
                    return
                record = result.record
                if record.ref != change.task:
                    await subscriber.listen(record.ref)
                if result.repeated and (result.created or call.cursor):
                    after = subscriber.resume(call.cursor, record.last_sequence)
                    ended = after == record.last_sequence and ends_stream(call, record.state, not record.has_open_turn)
                else:
                    if result.created and history is None:
                        event = result.events[0]
                    else:
                        snapshot = await read_stored_task(self.store, result, history, name)
                        record, event = snapshot.record, task_event(snapshot)
                    ended = ends_stream(call, record.state, not record.has_open_turn)
                    yield subscriber.start_with(event)
                while not ended:
                    batch = await subscriber.next_batch()
                    batch, ended = split_at_end(call, batch, 0)
                    yield batch
        finally:
            self.admission.close_stream(call.caller.identity)

    async def begin_task(self, call: Call, request: pb.SendMessageRequest, steps: Sequence[StepRecord]) -> SendResult:
        """Stores a message that begins a task, visible at once, and does not wait for its turn.

        `steps`: finished steps that the first turn finds; the message has to refer to their task (`load_input`).
        """
        result = None
        while result is None:
            change = await self.appends.build(call, request)
            assert change.create is not None, "the message names no task"
            change.create = replace(change.create, visible=True)
            change.steps = steps
            result = await self._store_message(call, change)
        return result

    async def _store_message(self, call: Call, change: Append) -> SendResult | None:
        """Stores the message of a send, and begins the run that it claimed, also when the caller disconnects meanwhile.

        The result is that of the first send with its key; None if the append has to be built again.
        """
        agent, create = call.caller.agent, change.create
        first = None
        if create is not None and create.fresh_context and (incoming := change.message) and not change.steps:
            first = StoredMessage(1, ROLE_USER, incoming.message, incoming.envelope, incoming.sender)
        reservation = self.scheduler.reserve(agent, first)
        change.claim_session = reservation.session
        if create is not None and not reservation.session:
            # A queued task is visible at once: its sender can follow it, and does not wait for a Message.
            change.create = replace(create, visible=True)
        try:
            appended = await self.event_log.append(change, reservation.commit)
        except DuplicateKey as repeated:
            return await self._resolve_duplicate(repeated.key_record, change)
        except QuotaExceeded as full:
            raise rate_limited(full.limit, full.maximum, full.current, full.retry_after) from full
        except AppendRejected as rejected:
            if rejected.reason == EXISTS:  # another message created this alias meanwhile: the next append continues it
                return None
            ended = rejected.record if rejected.reason == ENDED and call.names_tasks else None
            if ended is not None and change.message:
                sent = pb.Message.FromString(change.message.message)
                envelope = pb.SendMessageRequest.FromString(change.message.envelope)
                if await self.appends.repeats(ended, sent, envelope):
                    return SendResult(ended, repeated=True)
                if ended.alias:  # the next append restarts it
                    return None
            failure = _send_error(rejected)
            raise failure from rejected
        if self.on_action is not None:
            self.on_action("task.created" if create else "task.continued", call, appended.record.id)
        return SendResult(appended.record, appended.events, reservation.runner, create is not None)

    async def _resolve_duplicate(self, earlier: KeyRecord, change: Append) -> SendResult | None:
        """The result of the first send with this key; None, after a short wait, while it is undecided."""
        assert change.idempotency_key is not None
        if earlier.digest != change.idempotency_key.digest:
            raise IdempotencyKeyReused("Idempotency-Key: was used for a message with other content; use a new key")
        if earlier.reply:
            return SendResult(_NO_TASK, repeated=True, reply=pb.Message.FromString(earlier.reply))
        if earlier.task is None:
            raise TaskNotFound
        record = (await read_task(self.store, earlier.task, history=0, artifacts=False)).record
        if record.visible:
            return SendResult(record, created=earlier.sequence_before == 0, repeated=True)
        runner = self.scheduler.runs.find(earlier.task)
        if runner is not None:
            await asyncio.shield(runner.context.first_response)
        else:
            await asyncio.sleep(REPLY_POLL_INTERVAL)
        return None

    async def _follow_new_task(
        self, call: Call, change: Append, deadline: float, history: int | None
    ) -> tuple[SendResult | None, bytes | None]:
        """Stores the message of a task that another process is to run, and follows it from its first event.

        Returns the serialized Task if its events are all of it; else it has to be waited for or read.
        """
        async with self.feeds.subscribe(change.task) as subscriber:
            result = await self._store_message(call, change)
            if result is None or result.repeated or result.runner is not None or not result.record.visible:
                return result, None
            subscriber.position = result.record.last_sequence
            with suppress(Unavailable):
                await self.feeds.until_turn_ends(subscriber, deadline)
            projection = TaskProjection(subscriber.feed.batch_after(0))
            return result, projection.task(subscriber.position, history, remote=True)

    async def _wait_for_turn(self, result: SendResult, deadline: float, history: int | None) -> bytes | None:
        """Waits for the end of the turn that a send began or joined, until `deadline` on the loop's clock.

        Returns the serialized Task if the turn ran here and its projection is complete; None when it has to be read.
        """
        runner = result.runner or self.scheduler.runs.find(result.record.ref)
        if runner is not None:
            if not await _done_by(runner.context.turn_ended, deadline):
                return None
            if runner.context.turn_ended.result():
                return runner.context.projection.task(runner.context.record.last_sequence, history)
            if runner.context.end_is_late:
                return None
        try:
            async with self.feeds.subscribe(result.record.ref) as subscriber:
                record = (await read_task(self.store, result.record.ref, history=0)).record
                subscriber.position = record.last_sequence
                if record.has_open_turn:
                    await self.feeds.until_turn_ends(subscriber, deadline)
        except Unavailable as error:
            return known_task(result, history, error).task
        return None


async def _done_by(future: asyncio.Future[Any], deadline: float) -> bool:
    """Waits until a future of others is done, or the loop's clock shows `deadline`. Returns whether it is done.

    Instead of asyncio.wait, which makes ten more calls of Python functions.
    """
    if not future.done():
        loop = asyncio.get_running_loop()
        waiter = loop.create_future()

        def wake(_done: asyncio.Future[Any] | None = None) -> None:
            if not waiter.done():
                waiter.set_result(None)

        future.add_done_callback(wake)
        timer = loop.call_at(deadline, wake)
        try:
            await waiter
        finally:
            timer.cancel()
            future.remove_done_callback(wake)
    return future.done()


def _send_error(rejected: AppendRejected) -> Exception:
    if rejected.reason == ENDED:
        return TaskEnded()
    if rejected.reason == RUNNING:
        return UnsupportedOperation("this agent accepts no messages while it works on the task; retry later")
    return too_many_configs(rejected) or TaskNotFound()


async def direct_reply(result: SendResult) -> pb.Message | None:
    """The Message with which a `direct` agent replaced its task; waits until that is decided.

    Raises InvalidAgentResponse if its first response was invalid, Unavailable if this process has lost the task.
    """
    if result.reply is not None or result.record.visible:
        return result.reply
    if result.runner is None:  # the lease lapsed before the turn began
        raise lost_task()
    return await asyncio.shield(result.runner.context.first_response)


async def read_stored_task(store: Store, result: SendResult, history: int | None, name: str = "") -> TaskSnapshot:
    """The task of a stored message: as it is, or as `known_task` while the store is unavailable.

    `name`: the id by which its client knows it (0.1), which it may have lost by a restart.
    """
    try:
        snapshot = await read_task(store, result.record.ref, history=history)
        return replace(snapshot, task=snapshot.task + frames.text(1, name)) if name else snapshot  # the last id counts
    except Unavailable as error:
        return known_task(result, history, error)


def known_task(result: SendResult, history: int | None, error: Unavailable) -> TaskSnapshot:
    """The task of a stored message as created, while the store is unavailable.

    Raises Unavailable for a task that existed before; the error says that the message must not be sent again.
    """
    if result.created and (task := TaskProjection(result.events).task(result.record.last_sequence, history)):
        return TaskSnapshot(result.record, task)
    text = (
        f"the message was stored for task {result.record.id}, but the store is unavailable now; "
        "do not send it again, read the task later"
    )
    stored = Unavailable(text, metadata={"task": result.record.id})
    stored.retry_after = 0.0
    raise stored from error
