"""The operations of A2A, the same for every binding (1.0 §3.1).

Requests and answers are `lf.a2a.v1` messages, answers serialized: a binding that speaks 1.0 over gRPC passes the
bytes on untouched, every other dialect decodes them at the edge. All raise children of core.errors.A2AError.
"""

from __future__ import annotations

import asyncio
import secrets
import time
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, replace
from typing import Final

from dragoman.core import frames, limits, messages, pages, states
from dragoman.core.card import AgentSpec
from dragoman.core.errors import (
    AgentNotFound,
    ExtensionSupportRequired,
    InvalidParams,
    PushNotificationNotSupported,
    TaskEnded,
    TaskNotCancelable,
    TaskNotFound,
    UnsupportedOperation,
)
from dragoman.core.log import (
    ENDED,
    EXISTS,
    RUNNING,
    USER,
    Append,
    Appended,
    Event,
    Head,
    Inbound,
    New,
    NewTask,
    NotRunning,
    NotTerminal,
    Refused,
    StatusChange,
    TaskRef,
)
from dragoman.core.names import AGENT_ID, Caller, Owner, id_of, new_key, resolve
from dragoman.ports import Bus, Signal, Snapshot, Store, StoredMessage
from dragoman.runtime.dispatch import Dispatch
from dragoman.runtime.follow import Followers, Subscriber
from dragoman.runtime.log import Log
from dragoman.runtime.run import Run
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

CANCEL_WAIT: Final = 2.0
"""Seconds that CancelTask waits for a running agent to stop before it answers with the task as it is."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a caller may ask for: decoded bytes of a request, seconds of a blocking send."""

    message_bytes: int = limits.MESSAGE_BYTES
    blocking_wait: float = 300.0


@dataclass(frozen=True, slots=True)
class Call:
    """One request: who asks which agent, and what the asker's transport and dialect imply."""

    caller: Caller
    timeout: float | None = None
    """Seconds a blocking send may wait; None for the server's limit."""
    shows_finished: bool = False
    """Subscribing to a finished task gives the Task and closes, instead of UnsupportedOperation."""
    stops_with_turn: bool = False
    """A subscription ends when the turn does, and not only with the task."""
    dialect: str = ""
    """What a task that begins here is said to be made in."""
    extensions: tuple[str, ...] = ()
    """The URIs of extensions that the caller activates."""
    names_tasks: bool = False
    """The caller chooses the ids of its tasks: a message for one that is not there creates it (A2A 0.1)."""


class _AliasTaken(Exception):
    """Two messages that would create the same alias met; the other one's task is there now."""


@dataclass(frozen=True, slots=True)
class Sent:
    """A message that was stored: the append, and the run if it began here."""

    appended: Appended
    run: Run | None
    created: bool


def new_task_key() -> bytes:
    """A fresh task key of this moment."""
    return new_key(time.time_ns() // 1_000_000, secrets.token_bytes(10))


def new_context_id() -> str:
    """A fresh context id."""
    return str(uuid.uuid4())


class TaskService:
    """Every operation on tasks."""

    def __init__(
        self,
        store: Store,
        bus: Bus,
        log: Log,
        followers: Followers,
        dispatch: Dispatch,
        agents: Mapping[str, AgentSpec],
        root: str,
        limits: Limits,
        *,
        new_key: Callable[[], bytes] = new_task_key,
        new_context: Callable[[], str] = new_context_id,
    ) -> None:
        self._store = store
        self._bus = bus
        self._log = log
        self._followers = followers
        self._dispatch = dispatch
        self._limits = limits
        self._new_key = new_key
        self._new_context = new_context
        self.agents = agents
        """The agents of this server, by id."""
        self.root = root
        """The id of the agent meant when a request names none."""

    def caller(self, tenant: str, principal: str) -> Caller:
        """Who and what a tenant string and a principal mean. Raises AgentNotFound."""
        scope, agent = resolve(tenant, self.root)
        if agent not in self.agents:
            known = ", ".join(sorted(self.agents))
            shown = agent if AGENT_ID.fullmatch(agent) else tenant[:200]
            raise AgentNotFound(f'tenant: no agent "{shown}" here; use one of {known}')
        return Caller(Owner(scope, principal), agent)

    # Sending ----------------------------------------------------------------------------------------------------

    async def send_message(self, call: Call, request: pb.SendMessageRequest) -> bytes:
        """A serialized SendMessageResponse: the task when its turn has ended, or as it is at the wait limit."""
        history = _history_length(request.configuration)
        limit = self._limits.blocking_wait
        deadline = asyncio.get_running_loop().time() + min(limit if call.timeout is None else call.timeout, limit)
        async with AsyncExitStack() as stack:
            follow = not request.configuration.return_immediately
            sent, subscriber = await self._store_message(stack, call, request, follow=follow)
            if message := await _reply(sent):
                return frames.frame(2, message.SerializeToString())
            if subscriber is not None:
                subscriber.at = sent.appended.head.last
                await _until_turn_ends(subscriber, deadline)
        return frames.frame(1, (await self._snapshot(sent.appended.head.ref, history)).task)

    async def send_streaming_message(self, call: Call, request: pb.SendMessageRequest) -> AsyncIterator[Event]:
        """Events whose data are serialized StreamResponse: the Task first, or one Message (1.0 §3.1.2)."""
        history = _history_length(request.configuration)
        async with AsyncExitStack() as stack:
            sent, subscriber = await self._store_message(stack, call, request, follow=True)
            assert subscriber is not None
            if message := await _reply(sent):
                yield Event(0, frames.frame(2, message.SerializeToString()))
                return
            head = sent.appended.head
            if sent.created and history is None:
                event = sent.appended.events[0]
            else:
                snapshot = await self._snapshot(head.ref, history)
                head, event = snapshot.head, _as_event(snapshot)
            yield event
            subscriber.at = event.sequence
            ended = not (head.running or head.ready)
            while not ended:
                event = await subscriber.next()
                ended = event.ends
                yield event

    async def _store_message(
        self, stack: AsyncExitStack, call: Call, request: pb.SendMessageRequest, *, follow: bool
    ) -> tuple[Sent, Subscriber | None]:
        """Writes the message of a send, and listens to its task from before that if asked to."""
        while True:
            change = await self._prepare(call, request)
            subscriber = await stack.enter_async_context(self._followers.subscribe(change.task)) if follow else None
            try:
                return await self._commit(change), subscriber
            except _AliasTaken:  # so the next look finds a task to continue
                continue

    async def _prepare(self, call: Call, request: pb.SendMessageRequest) -> Append:
        """The change that stores a message: it creates a task, or continues the one it names."""
        limits.check_size(request.ByteSize(), self._limits.message_bytes)
        messages.check(request, self.agents[call.caller.agent].input_modes)
        if request.configuration.HasField("task_push_notification_config"):
            raise PushNotificationNotSupported
        message = pb.Message()
        message.CopyFrom(request.message)
        envelope = pb.SendMessageRequest(metadata=request.metadata if request.HasField("metadata") else None)
        envelope.configuration.accepted_output_modes.extend(request.configuration.accepted_output_modes)
        envelope.message.extensions.extend(self._activated(call))
        if message.task_id:
            head = await self._store.find(call.caller.owner, call.caller.agent, message.task_id)
            if head is not None:
                return self._continue(head, call.caller, message, envelope)
            if not call.names_tasks:
                raise TaskNotFound
        return self._create(call, message, envelope)

    def _activated(self, call: Call) -> list[str]:
        """What the call activates of the agent's extensions. Raises ExtensionSupportRequired (1.0 §3.3.4)."""
        declared = self.agents[call.caller.agent].extensions
        for extension in declared:
            if extension.required and extension.uri not in call.extensions:
                raise ExtensionSupportRequired(
                    f"A2A-Extensions: this agent requires the extension {extension.uri}; name it",
                    metadata={"field": "A2A-Extensions", "required": extension.uri},
                )
        return [extension.uri for extension in declared if extension.uri in call.extensions]

    def _create(self, call: Call, message: pb.Message, envelope: pb.SendMessageRequest) -> Append:
        caller = call.caller
        ref = TaskRef(caller.owner, self._new_key())
        alias = bool(message.task_id)
        message.task_id = message.task_id or id_of(ref.key)
        message.context_id = message.context_id or self._new_context()
        # Who names its task waits for that task and knows no other answer.
        visible = alias or not self.agents[caller.agent].direct
        new = NewTask(
            caller.agent, message.task_id, message.context_id, visible=visible, dialect=call.dialect, alias=alias
        )
        inbound = Inbound(message.SerializeToString(), envelope.SerializeToString())
        return Append(task=ref, guard=New(), create=new, message=inbound)

    def _continue(self, head: Head, caller: Caller, message: pb.Message, envelope: pb.SendMessageRequest) -> Append:
        if message.context_id and message.context_id != head.context:
            raise InvalidParams.field("message.contextId", "is not the context of message.taskId; leave it out")
        message.context_id = head.context
        guard = NotRunning() if self.agents[caller.agent].while_working == "refuse" else NotTerminal()
        inbound = Inbound(message.SerializeToString(), envelope.SerializeToString())
        return Append(task=head.ref, guard=guard, message=inbound)

    async def _commit(self, change: Append) -> Sent:
        """Writes a message and begins the run it claimed, whether or not the caller is still there to hear of it."""
        session = self._dispatch.reserve()
        inbound = change.message if change.create else None
        first = StoredMessage(1, USER, inbound.message, inbound.envelope) if inbound else None
        started: list[Run | None] = []

        def written(appended: Appended | None) -> None:
            started.append(self._dispatch.settle(session, appended, first))

        try:
            appended = await self._log.append(replace(change, claim=session), written)
        except Refused as refused:
            if refused.reason == ENDED:
                raise TaskEnded from refused
            if refused.reason == EXISTS:
                raise _AliasTaken from refused
            if refused.reason == RUNNING:
                raise UnsupportedOperation("this agent takes no message while it works on the task") from refused
            raise TaskNotFound from refused
        return Sent(appended, started[0], change.create is not None)

    # Reading ----------------------------------------------------------------------------------------------------

    async def get_task(self, call: Call, request: pb.GetTaskRequest) -> bytes:
        """A serialized Task, with the last `history_length` messages (absent: all; 1.0 §3.2.4)."""
        history = _history_length(request)
        head = await self._find(call.caller, request.id)
        return (await self._snapshot(head.ref, history)).task

    async def list_tasks(self, call: Call, request: pb.ListTasksRequest) -> bytes:
        """A serialized ListTasksResponse (1.0 §3.1.4)."""
        history = _history_length(request)
        size = request.page_size if request.HasField("page_size") else pages.DEFAULT_SIZE
        if not 1 <= size <= pages.MAX_SIZE:
            raise InvalidParams.field("pageSize", f"must be 1 to {pages.MAX_SIZE}")
        if request.status and request.status not in states.STORED:
            raise InvalidParams.field("status", f"must be one of {', '.join(map(states.name, sorted(states.STORED)))}")
        since = 0
        if request.HasField("status_timestamp_after"):
            since = -(-request.status_timestamp_after.ToNanoseconds() // 1_000_000)
        query = pages.Query(
            call.caller.owner,
            call.caller.agent,
            context=request.context_id,
            state=request.status,
            since=since,
            size=size,
            history=history,
            artifacts=request.include_artifacts,
        )
        if request.page_token:
            query = replace(query, after=pages.after(query, request.page_token))
        page = await self._store.page(query)
        return b"".join(
            (
                *(frames.frame(1, task) for task in page.tasks),
                frames.text(2, pages.token(query, page.last) if page.last else ""),
                frames.integer(3, size),
                frames.integer(4, page.total),
            )
        )

    # Ending -----------------------------------------------------------------------------------------------------

    async def cancel_task(self, call: Call, request: pb.CancelTaskRequest) -> bytes:
        """A serialized Task: CANCELED, or still active when the agent takes longer than CANCEL_WAIT to stop.

        Raises TaskNotCancelable when the task has ended, when a result came first, or when the agent does not
        let itself be canceled.
        """
        limits.check_value("metadata", request.metadata)
        ref = (await self._find(call.caller, request.id)).ref
        async with self._followers.subscribe(ref) as subscriber:
            head = (await self._snapshot(ref, 0)).head
            if states.is_terminal(head.state):
                raise TaskNotCancelable
            if not self.agents[head.agent].cancelable and (head.running or head.ready):
                raise TaskNotCancelable("this agent does not let a running task be canceled")
            if head.running:
                subscriber.at = head.last
                self._bus.signal(ref, Signal.CANCEL)
                await _until_turn_ends(subscriber, asyncio.get_running_loop().time() + CANCEL_WAIT)
            else:
                canceled = [StatusChange(states.CANCELED)]
                with suppress(Refused):  # it ended in this moment: told below
                    await self._log.append(Append(task=ref, guard=NotTerminal(), events=canceled, release=True))
        after = await self._snapshot(ref, None)
        if states.is_terminal(after.head.state) and after.head.state != states.CANCELED:
            raise TaskNotCancelable("the task ended before it could be canceled")
        return after.task

    # Following --------------------------------------------------------------------------------------------------

    async def subscribe_to_task(self, call: Call, request: pb.SubscribeToTaskRequest) -> AsyncIterator[Event]:
        """The Task as it is, then what happens to it until it ends (1.0 §3.1.6). Listening starts before reading."""
        head = await self._find(call.caller, request.id)
        async with self._followers.subscribe(head.ref) as subscriber:
            snapshot = await self._snapshot(head.ref, None)
            ended = states.is_terminal(snapshot.head.state)
            if ended and not call.shows_finished:
                raise UnsupportedOperation("the task has ended; read it with GetTask")
            ended = ended or (call.stops_with_turn and not (snapshot.head.running or snapshot.head.ready))
            subscriber.at = snapshot.head.last
            first = _as_event(snapshot)
            first.ends = ended
            yield first
            while not ended:
                event = await subscriber.next()
                ended = states.is_terminal(event.state) or (call.stops_with_turn and event.ends)
                yield event

    async def made_in(self, caller: Caller, task_id: str) -> str:
        """The dialect in which a task was made; empty when there is none to see."""
        head = await self._store.find(caller.owner, caller.agent, task_id) if task_id else None
        return head.dialect if head else ""

    async def _find(self, caller: Caller, task_id: str) -> Head:
        if not task_id:
            raise InvalidParams.field("id", "is required")
        head = await self._store.find(caller.owner, caller.agent, task_id)
        if head is None:
            raise TaskNotFound
        return head

    async def _snapshot(self, ref: TaskRef, history: int | None) -> Snapshot:
        snapshot = await self._store.read(ref, history=history)
        if snapshot is None:
            raise TaskNotFound
        return snapshot


async def _reply(sent: Sent) -> pb.Message | None:
    """The Message a `direct` agent answered with instead of a task; waits until that is decided."""
    if sent.run is None or sent.appended.head.visible:
        return None
    return await asyncio.shield(sent.run.first)


async def _until_turn_ends(subscriber: Subscriber, deadline: float) -> None:
    """Follows until the turn ends, or until the loop's clock shows `deadline`."""
    try:
        async with asyncio.timeout_at(deadline):
            while not (await subscriber.next()).ends:
                pass
    except TimeoutError:
        return


def _as_event(snapshot: Snapshot) -> Event:
    return Event(snapshot.head.last, frames.frame(1, snapshot.task), snapshot.head.state)


def _history_length(request: pb.GetTaskRequest | pb.ListTasksRequest | pb.SendMessageConfiguration) -> int | None:
    if not request.HasField("history_length"):
        return None
    if request.history_length < 0:
        raise InvalidParams.field("historyLength", "must be 0 or more")
    return request.history_length
