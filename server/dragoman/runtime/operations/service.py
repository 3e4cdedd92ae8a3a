"""The operations of A2A, the same for every binding (1.0 §3.1).

Requests and answers are `lf.a2a.v1` messages, answers serialized: a binding that speaks 1.0 over gRPC passes the
bytes on untouched, every other dialect decodes them at the edge. All raise children of core.errors.A2AError.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack, aclosing, suppress
from dataclasses import replace

from dragoman.core.access.identity import (
    ANONYMOUS,
    OPEN_ACCESS,
    RESERVED_PRINCIPAL_PREFIX,
    AccessPolicy,
    Caller,
    Identity,
    Isolation,
)
from dragoman.core.cards.agent_spec import AgentSpec, resume_metadata
from dragoman.core.errors import (
    AgentNotFound,
    InvalidParams,
    PermissionDenied,
    PushNotificationNotSupported,
    TaskNotFound,
    Unauthenticated,
    Unavailable,
    UnsupportedOperation,
)
from dragoman.core.limits import message_limits
from dragoman.core.names import AGENT_ID, resolve_tenant
from dragoman.core.task import cursors, frames, states
from dragoman.core.task.log import Event, LogTruncated, TaskRecord, TaskRef
from dragoman.ports import Store, TaskSnapshot
from dragoman.runtime.feeds import (
    EventBatches,
    EventStream,
    Subscriber,
    TaskFeeds,
    ends_task,
    ends_turn,
    ends_turn_or_task,
    split_at_end,
)
from dragoman.runtime.log import EventLog
from dragoman.runtime.operations.call import Admission, Call, DialectCache, Limits
from dragoman.runtime.operations.cancel import CancelOperation, PendingWaits
from dragoman.runtime.operations.push_configs import PushConfigOperations
from dragoman.runtime.operations.send import SendOperation, SendResult, direct_reply, new_context_id, new_task_key
from dragoman.runtime.scheduler import Scheduler
from dragoman.runtime.turn.events import TaskProjection
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb


class TaskService:
    """Every operation on tasks."""

    access_policy: AccessPolicy = OPEN_ACCESS
    """Whom it lets in without credentials."""

    def __init__(
        self,
        store: Store,
        event_log: EventLog,
        feeds: TaskFeeds,
        scheduler: Scheduler,
        agents: Mapping[str, AgentSpec],
        root: str,
        limits: Limits,
        isolation: Isolation,
        push_configs: PushConfigOperations,
        admission: Admission,
        cancel_operation: CancelOperation,
        pending_waits: PendingWaits,
        *,
        new_key: Callable[[], bytes] = new_task_key,
        new_context: Callable[[], str] = new_context_id,
        access_policy: AccessPolicy = OPEN_ACCESS,
    ) -> None:
        self._store = store
        self._feeds = feeds
        self._scheduler = scheduler
        self._limits = limits
        self._isolation = isolation
        self.admission = admission
        """What callers may take up; the bindings count requests and connections with it."""
        self._send_operation = SendOperation(
            store, event_log, feeds, scheduler, agents, limits, push_configs, admission, new_key, new_context
        )
        self._push_configs = push_configs
        self._cancel_operation = cancel_operation
        self._dialect_cache = DialectCache(store)
        self.agents = agents
        """The agents of this server, by id."""
        self.root = root
        """The id of the agent meant when a request names none."""
        self.access_policy = access_policy
        self.pending_waits = pending_waits

    def on_agent_added(self, spec: AgentSpec) -> None:
        """An agent came while the server runs; where there is no root agent yet, it is that."""
        self.root = self.root or spec.id

    @property
    def push_enabled(self) -> bool:
        """Whether this server pushes."""
        return self._push_configs.enabled

    def check_push(self) -> None:
        """Raises PushNotificationNotSupported on a server that does not push, whatever else a call may say."""
        if not self.push_enabled:
            raise PushNotificationNotSupported

    def resolve_agent(self, tenant: str, identity: Identity = ANONYMOUS) -> tuple[str, str]:
        """The scope and the agent that a tenant string means here, to whom asks.

        Raises AgentNotFound; Unauthenticated for who may be told neither that an agent is there nor that it is not.
        """
        scope, agent = resolve_tenant(tenant, self.root)
        if agent in self.agents and self.access_policy.may_see(scope, agent, identity):
            return scope, agent
        if not identity.is_authenticated and not self.access_policy.may_see(scope, agent, identity):
            raise Unauthenticated("credentials are required" + (f' for agent "{tenant[:200]}"' if tenant else ""))
        private = self.access_policy.hides_agents
        none = "(none)" if private else "(none yet: no worker has come)"
        known = ", ".join(id for id in sorted(self.agents) if self.access_policy.may_see(scope, id, identity)) or none
        shown = agent if AGENT_ID.fullmatch(agent) and not private else tenant[:200]  # a root agent may be hidden
        denied = self._denied(scope, agent, identity) if agent in self.agents else None
        raise AgentNotFound(f'tenant: no agent "{shown}" here; use one of {known}') from denied

    def authorize(self, tenant: str, identity: Identity) -> Caller:
        """Whose tasks, and of which agent, a tenant string means for who calls: the one place that authorises.

        Raises AgentNotFound; Unauthenticated for who shows no credentials, but for public agents, and for a name that
        no principal may have; PermissionDenied when the caller's grants do not reach the agent.
        """
        scope, agent = self.resolve_agent(tenant, identity)
        if not identity.is_authenticated and not self.access_policy.is_public(agent):
            raise Unauthenticated(f'credentials are required for agent "{agent}"')
        if not identity.may_call(scope, agent):
            raise self._denied(scope, agent, identity)
        if not identity.principal or identity.principal.startswith(RESERVED_PRINCIPAL_PREFIX):
            raise Unauthenticated(
                f'the principal of these credentials is empty or begins with "{RESERVED_PRINCIPAL_PREFIX}"'
            )
        view = self._isolation.visibility(scope, agent, identity.principal)
        return Caller(view.owner, agent, identity, view.joined)

    def _denied(self, scope: str, agent: str, identity: Identity) -> PermissionDenied:
        about = {"principal": identity.principal, **({"key": identity.credential_id} if identity.credential_id else {})}
        why = f'tenant: these credentials do not reach agent "{agent}" in scope "{scope}"'
        return PermissionDenied(why, log_details=about)

    # Sending ----------------------------------------------------------------------------------------------------

    async def send_message(self, call: Call, request: pb.SendMessageRequest) -> bytes:
        """A serialized SendMessageResponse: the task when its turn has ended, or as it is at the wait limit."""
        history = _history_length(request.configuration)
        limit = self._limits.blocking_wait
        deadline = asyncio.get_running_loop().time() + min(limit if call.timeout is None else call.timeout, limit)
        if request.configuration.return_immediately:
            sent = await self._send_operation.store_message(call, request)
            message = await direct_reply(sent)
            shown = None
        else:
            with self.admission.hold_stream(call.caller.identity):
                sent = await self._send_operation.store_message(call, request)
                message = await direct_reply(sent)
                waits = message is None and (sent.record.running or sent.record.ready)
                shown = await self._wait_for_turn(sent, deadline, history) if waits else None
        if message is not None:
            return frames.frame(2, message.SerializeToString())
        return frames.frame(1, shown or (await self._read_stored(sent, history)).task)

    async def _wait_for_turn(self, result: SendResult, deadline: float, history: int | None) -> bytes | None:
        """Waits for the end of the turn that a send began or joined, or until the loop's clock shows `deadline`.

        The serialized Task, when the run is here and can tell; None when it has to be read.
        """
        run = result.runner or self._scheduler.find_runner(result.record.ref)
        if run is not None:
            await asyncio.wait((run.turn_ended,), timeout=deadline - asyncio.get_running_loop().time())
            if not run.turn_ended.done():
                return None
            if run.turn_ended.result():
                return run.projection.task(run.record, history)
        with suppress(Unavailable):  # then the task is told as far as it is known
            async with self._feeds.subscribe(result.record.ref) as subscriber:
                head = (await self._snapshot(result.record.ref, 0)).record
                subscriber.position = head.last_sequence
                if head.running or head.ready:
                    await self.pending_waits.until_turn_ends(subscriber, deadline)
        return None

    async def _read_stored(self, result: SendResult, history: int | None) -> TaskSnapshot:
        """The task whose message has been stored: as it is, or as it was made while the store cannot be asked.

        Raises Unavailable for a task that was there before: the error says that the message is not to be sent again.
        """
        try:
            return await self._snapshot(result.record.ref, history)
        except Unavailable as error:
            if result.created and (task := TaskProjection(result.events).task(result.record, history)):
                return TaskSnapshot(result.record, task)
            told = (
                f"the message was stored for task {result.record.id}, and is not to be sent again; "
                "the store does not answer now, so read the task later"
            )
            raise Unavailable(told, metadata={"task": result.record.id}) from error

    def send_streaming_message(self, call: Call, request: pb.SendMessageRequest) -> EventStream:
        """Events whose data are serialized StreamResponse: the Task first, or one Message (1.0 §3.1.2)."""
        return EventStream(self._send_streaming(call, request))

    async def _send_streaming(self, call: Call, request: pb.SendMessageRequest) -> EventBatches:
        self._check_streaming(call)
        history = _history_length(request.configuration)
        async with AsyncExitStack() as stack:
            stack.enter_context(self.admission.hold_stream(call.caller.identity))
            sent, subscriber = await self._send_operation.store_and_subscribe(stack, call, request)
            if message := await direct_reply(sent):
                yield (Event(0, frames.frame(2, message.SerializeToString())),)
                return
            head = sent.record
            if sent.repeated and (sent.created or call.cursor):
                async with aclosing(self._replay(subscriber, call, head)) as lots:
                    async for lot in lots:
                        yield lot
                return
            if sent.created and history is None:
                event = sent.events[0]
            else:
                snapshot = await self._read_stored(sent, history)
                head, event = snapshot.record, _as_event(snapshot)
            yield (subscriber.attach_cursor(event),)
            subscriber.position = event.sequence
            ended = not (head.running or head.ready)
            while not ended:
                lot, ended = split_at_end(await subscriber.next_batch(), ends_turn)
                yield lot

    async def _replay(self, subscriber: Subscriber, call: Call, record: TaskRecord) -> EventBatches:
        """The events of a turn that was begun before: from the task's first, or after the caller's cursor.

        Nothing for a caller who has seen the end: one whose connection broke between the last event and the end of the
        stream asks again.
        """
        after = self._cursor_sequence(call, record) if call.cursor else 0
        subscriber.resume_after(after, record.last_sequence)
        ended = after == record.last_sequence and not (record.running or record.ready)
        while not ended:
            lot, ended = split_at_end(await subscriber.next_batch(), ends_turn)
            yield lot

    # Reading ----------------------------------------------------------------------------------------------------

    async def get_task(self, call: Call, request: pb.GetTaskRequest) -> bytes:
        """A serialized Task, with the last `history_length` messages (absent: all; 1.0 §3.2.4)."""
        history = _history_length(request)
        if not request.id:
            raise InvalidParams.field("id", "is required")
        caller = call.caller
        found = await self._store.get(caller.owner, caller.agent, request.id, joined=caller.joined, history=history)
        if found is None:
            raise TaskNotFound
        return found.task

    async def list_tasks(self, call: Call, request: pb.ListTasksRequest) -> bytes:
        """A serialized ListTasksResponse (1.0 §3.1.4)."""
        history = _history_length(request)
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
            joined=call.caller.joined,
        )
        if request.page_token:
            query = replace(query, after=cursors.parse_page_token(query, request.page_token))
        page = await self._store.page(query)
        return b"".join(
            (
                *(frames.frame(1, task) for task in page.tasks),
                frames.text(2, cursors.page_token(query, page.last_key) if page.last_key else ""),
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
        message_limits.check_value("metadata", request.metadata)
        return await self._cancel_operation.cancel((await self._require_task(call.caller, request.id)).ref)

    # Following --------------------------------------------------------------------------------------------------

    def subscribe_to_task(self, call: Call, request: pb.SubscribeToTaskRequest) -> EventStream:
        """The Task as it is, then what happens to it until it ends (1.0 §3.1.6). Listening starts before reading."""
        return EventStream(self._subscribe(call, request))

    async def _subscribe(self, call: Call, request: pb.SubscribeToTaskRequest) -> EventBatches:
        self._check_streaming(call)
        head = await self._require_task(call.caller, request.id)
        with self.admission.hold_stream(call.caller.identity):
            async with aclosing(self._follow(call, head.ref)) as lots:
                async for lot in lots:
                    yield lot

    async def _follow(self, call: Call, ref: TaskRef) -> EventBatches:
        async with self._feeds.subscribe(ref) as subscriber:
            if call.cursor:
                async with aclosing(self._resume(subscriber, call, ref)) as lots:
                    async for lot in lots:
                        yield lot
                return
            snapshot = await self._snapshot(ref, None)
            ended = states.is_terminal(snapshot.record.state)
            if ended and not call.shows_finished:
                raise UnsupportedOperation("the task has ended; read it with GetTask")
            ended = ended or (call.stops_with_turn and not (snapshot.record.running or snapshot.record.ready))
            subscriber.position = snapshot.record.last_sequence
            first = _as_event(snapshot)
            first.ends = ended
            yield (subscriber.attach_cursor(first),)
            last = ends_turn_or_task if call.stops_with_turn else ends_task
            while not ended:
                lot, ended = split_at_end(await subscriber.next_batch(), last)
                yield lot

    async def _resume(self, subscriber: Subscriber, call: Call, ref: TaskRef) -> EventBatches:
        """What follows the caller's cursor, also on a finished task: the rest, then the end.

        A cursor that is older than the log gives the Task as it is, marked as a gap, and then what follows that.
        """
        head = (await self._snapshot(ref, 0)).record
        known = head.last_sequence
        after = self._cursor_sequence(call, head)
        subscriber.resume_after(after, known)
        ended = _has_ended(head, call) and after == known

        def last(event: Event) -> bool:
            return ends_task(event) or (call.stops_with_turn and event.ends and event.sequence >= known)

        while not ended:
            try:
                lot, ended = split_at_end(await subscriber.next_batch(), last)
            except LogTruncated:
                snapshot = await self._snapshot(ref, None)
                head, known = snapshot.record, snapshot.record.last_sequence
                subscriber.position = known
                yield (subscriber.attach_cursor(_gap_event(snapshot, after)),)
                ended = _has_ended(head, call)
                continue
            yield lot

    def _cursor_sequence(self, call: Call, record: TaskRecord) -> int:
        """The sequence of the caller's cursor. Raises InvalidParams for one that is not this task's."""
        return cursors.parse_cursor(
            call.cursor, cursors.cursor_prefix(self._store.epoch, record.ref.key), record.last_sequence
        )

    def _check_streaming(self, call: Call) -> None:
        if not self.agents[call.caller.agent].streaming:
            raise UnsupportedOperation("this agent does not stream, as its card says")

    # Push -------------------------------------------------------------------------------------------------------

    async def create_push(self, call: Call, request: pb.TaskPushNotificationConfig) -> bytes:
        """A serialized TaskPushNotificationConfig, as it is kept: in the place of the one of its id, if there is one
        (1.0 §3.1.7). Raises PushNotificationNotSupported, as the other three do, where the card says that there is
        none, and InvalidParams for a webhook that may not be called."""
        self.check_push()
        head = await self._require_task(call.caller, request.task_id, "taskId")
        return await self._push_configs.create(head, request, call.dialect)

    async def get_push(self, call: Call, request: pb.GetTaskPushNotificationConfigRequest) -> bytes:
        """A serialized TaskPushNotificationConfig (1.0 §3.1.8)."""
        self.check_push()
        if not request.id:
            raise InvalidParams.field("id", "is required")
        head = await self._require_task(call.caller, request.task_id, "taskId")
        return await self._push_configs.get(head, request.id)

    async def list_push(self, call: Call, request: pb.ListTaskPushNotificationConfigsRequest) -> bytes:
        """A serialized ListTaskPushNotificationConfigsResponse (1.0 §3.1.9)."""
        self.check_push()
        head = await self._require_task(call.caller, request.task_id, "taskId")
        return await self._push_configs.list(head, request.page_size, request.page_token)

    async def delete_push(self, call: Call, request: pb.DeleteTaskPushNotificationConfigRequest) -> bytes:
        """Nothing, also where there was nothing to delete (1.0 §3.1.10)."""
        self.check_push()
        if not request.id:
            raise InvalidParams.field("id", "is required")
        head = await self._require_task(call.caller, request.task_id, "taskId")
        return await self._push_configs.delete(head, request.id)

    async def dialect_of(self, caller: Caller, task_id: str) -> str:
        """The dialect in which a task was made; empty when there is none to see."""
        return await self._dialect_cache.dialect_of(caller, task_id)

    async def _require_task(self, caller: Caller, task_id: str, field: str = "id") -> TaskRecord:
        if not task_id:
            raise InvalidParams.field(field, "is required")
        head = await self._find_task(caller, task_id)
        if head is None:
            raise TaskNotFound
        return head

    async def _find_task(self, caller: Caller, task_id: str) -> TaskRecord | None:
        return await self._store.find(caller.owner, caller.agent, task_id, joined=caller.joined)

    async def _snapshot(self, ref: TaskRef, history: int | None) -> TaskSnapshot:
        snapshot = await self._store.read(ref, history=history)
        if snapshot is None:
            raise TaskNotFound
        return snapshot


def _has_ended(record: TaskRecord, call: Call) -> bool:
    """Whether a subscription to the task as it is would end at once."""
    return states.is_terminal(record.state) or (call.stops_with_turn and not (record.running or record.ready))


def _as_event(snapshot: TaskSnapshot) -> Event:
    return Event(snapshot.record.last_sequence, frames.frame(1, snapshot.task), snapshot.record.state)


def _gap_event(snapshot: TaskSnapshot, after: int) -> Event:
    """The Task as it is, for a reader whose next event is gone."""
    event = _as_event(snapshot)
    told: dict[str, str | float | bool] = {"gap": True, "from": after, "sequence": event.sequence}
    return Event(event.sequence, event.data + resume_metadata(1, told), event.state)


def _history_length(request: pb.GetTaskRequest | pb.ListTasksRequest | pb.SendMessageConfiguration) -> int | None:
    if not request.HasField("history_length"):
        return None
    if request.history_length < 0:
        raise InvalidParams.field("historyLength", "must be 0 or more")
    return request.history_length
