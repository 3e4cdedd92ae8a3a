"""The A2A operations on tasks, the same for every binding (1.0 §3.1).

Requests and responses are `lf.a2a.v1` messages. Responses are serialized: the 1.0 gRPC binding passes the bytes on
untouched, every other dialect decodes them. All operations raise subclasses of core.errors.A2AError.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack, aclosing

from dragoman.core.access.identity import (
    ANONYMOUS,
    OPEN_ACCESS,
    RESERVED_PRINCIPAL_PREFIX,
    AccessPolicy,
    Caller,
    Identity,
    Isolation,
)
from dragoman.core.cards.agent_spec import AgentSpec
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
from dragoman.ports import Store
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
from dragoman.runtime.log import EventLog, gap_event, read_task, task_event
from dragoman.runtime.operations.call import Admission, Call, DialectCache, Limits, history_length, task_query
from dragoman.runtime.operations.cancel import CancelOperation, PendingWaits
from dragoman.runtime.operations.push_configs import PushConfigOperations
from dragoman.runtime.operations.send import (
    SendOperation,
    SendResult,
    direct_reply,
    known_task,
    new_context_id,
    new_task_key,
    read_stored_task,
)
from dragoman.runtime.scheduler import Scheduler
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb


class TaskService:
    """Every operation on tasks, and the authorization of callers."""

    access_policy: AccessPolicy = OPEN_ACCESS
    """Which agents are open to callers without credentials."""

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
        """Rate limits; the bindings count requests and connections with it."""
        self._send_operation = SendOperation(
            store, event_log, feeds, scheduler, agents, limits, push_configs, admission, new_key, new_context
        )
        self._push_configs = push_configs
        self._cancel_operation = cancel_operation
        self._dialect_cache = DialectCache(store)
        self.agents = agents
        """The agents of this server, by id."""
        self.root = root
        """The id of the agent addressed by requests that name none."""
        self.access_policy = access_policy
        self.pending_waits = pending_waits

    def on_agent_added(self, spec: AgentSpec) -> None:
        """Makes a newly registered agent the root agent if there is none yet."""
        self.root = self.root or spec.id

    @property
    def push_enabled(self) -> bool:
        """Whether this server sends push notifications."""
        return self._push_configs.enabled

    def check_push(self) -> None:
        """Raises PushNotificationNotSupported on a server without push notifications, before any other check."""
        if not self.push_enabled:
            raise PushNotificationNotSupported

    def resolve_agent(self, tenant: str, identity: Identity = ANONYMOUS) -> tuple[str, str]:
        """The scope and agent that a tenant string names, for this identity.

        Raises AgentNotFound; Unauthenticated for anonymous callers that may not learn whether the agent exists.
        """
        scope, agent = resolve_tenant(tenant, self.root)
        if agent in self.agents and self.access_policy.may_see(scope, agent, identity):
            return scope, agent
        if not identity.is_authenticated and not self.access_policy.may_see(scope, agent, identity):
            raise Unauthenticated("credentials are required" + (f' for agent "{tenant[:200]}"' if tenant else ""))
        hides_agents = self.access_policy.hides_agents
        no_agents = "(none)" if hides_agents else "(none yet: no worker has connected)"
        known = (
            ", ".join(id for id in sorted(self.agents) if self.access_policy.may_see(scope, id, identity)) or no_agents
        )
        shown = agent if AGENT_ID.fullmatch(agent) and not hides_agents else tenant[:200]  # a root agent may be hidden
        denied = self._denied(scope, agent, identity) if agent in self.agents else None
        raise AgentNotFound(f'tenant: no agent "{shown}" here; use one of {known}') from denied

    def authorize(self, tenant: str, identity: Identity) -> Caller:
        """Checks that an identity may call the agent that a tenant string names.

        Every operation on tasks needs the resulting Caller, whose owner limits what it sees.

        Raises AgentNotFound; Unauthenticated without credentials (except for public agents) and for reserved
        principals; PermissionDenied when the caller's grants do not cover the agent.
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
        log_details = {"principal": identity.principal}
        if identity.credential_id:
            log_details["key"] = identity.credential_id
        text = f'tenant: these credentials do not reach agent "{agent}" in scope "{scope}"'
        return PermissionDenied(text, log_details=log_details)

    # Sending ----------------------------------------------------------------------------------------------------

    async def send_message(self, call: Call, request: pb.SendMessageRequest) -> bytes:
        """A serialized SendMessageResponse: the task when its turn has ended, or as it is at the wait limit.

        With `return_immediately`, in the request or by default for calls that leave it open, it is the stored task.
        """
        history = history_length(request.configuration, "configuration.historyLength")
        limit = self._limits.blocking_wait
        deadline = asyncio.get_running_loop().time() + min(limit if call.timeout is None else call.timeout, limit)
        returns_at_once = request.configuration.return_immediately or (
            call.leaves_blocking_open and self._limits.blocking_default.of(call.caller.agent) == "return"
        )
        if returns_at_once:
            result = await self._send_operation.store_message(call, request)
            message = await direct_reply(result)
            task = None
        else:
            with self.admission.hold_stream(call.caller.identity):
                result = await self._send_operation.store_message(call, request)
                message = await direct_reply(result)
                waits = message is None and result.record.has_open_turn
                task = await self._wait_for_turn(result, deadline, history) if waits else None
        if message is not None:
            return frames.frame(2, message.SerializeToString())
        return frames.frame(1, task or (await read_stored_task(self._store, result, history)).task)

    async def _wait_for_turn(self, result: SendResult, deadline: float, history: int | None) -> bytes | None:
        """Waits for the end of the turn that a send began or joined, until `deadline` on the loop's clock.

        Returns the serialized Task if the turn ran here and its projection is complete; None when it has to be read.
        """
        runner = result.runner or self._scheduler.find_runner(result.record.ref)
        if runner is not None:
            await asyncio.wait((runner.turn_ended,), timeout=deadline - asyncio.get_running_loop().time())
            if not runner.turn_ended.done():
                return None
            if runner.turn_ended.result():
                return runner.projection.task(runner.record, history)
            if runner.end_is_late:
                return None
        try:
            async with self._feeds.subscribe(result.record.ref) as subscriber:
                record = (await read_task(self._store, result.record.ref, history=0)).record
                subscriber.position = record.last_sequence
                if record.has_open_turn:
                    await self.pending_waits.until_turn_ends(subscriber, deadline)
        except Unavailable as error:
            return known_task(result, history, error).task
        return None

    def send_streaming_message(self, call: Call, request: pb.SendMessageRequest) -> EventStream:
        """Events whose data are serialized StreamResponse: the Task first, or one Message (1.0 §3.1.2)."""
        return EventStream(self._send_streaming(call, request))

    async def _send_streaming(self, call: Call, request: pb.SendMessageRequest) -> EventBatches:
        self._check_streaming(call)
        history = history_length(request.configuration, "configuration.historyLength")
        async with AsyncExitStack() as stack:
            stack.enter_context(self.admission.hold_stream(call.caller.identity))
            result, subscriber = await self._send_operation.store_and_subscribe(stack, call, request)
            if message := await direct_reply(result):
                yield (Event(0, frames.frame(2, message.SerializeToString())),)
                return
            record = result.record
            if result.repeated and (result.created or call.cursor):
                async with aclosing(self._replay(subscriber, call, record)) as batches:
                    async for batch in batches:
                        yield batch
                return
            if result.created and history is None:
                event = result.events[0]
            else:
                snapshot = await read_stored_task(self._store, result, history)
                record, event = snapshot.record, task_event(snapshot)
            yield (subscriber.attach_cursor(event),)
            subscriber.position = event.sequence
            ended = not record.has_open_turn
            while not ended:
                batch, ended = split_at_end(await subscriber.next_batch(), ends_turn)
                yield batch

    async def _replay(self, subscriber: Subscriber, call: Call, record: TaskRecord) -> EventBatches:
        """The events of a turn that an earlier send began: from the task's first, or after the caller's cursor.

        Empty for a caller with all events, whose connection broke before the end of the stream.
        """
        after = self._cursor_sequence(call, record) if call.cursor else 0
        subscriber.resume_after(after, record.last_sequence)
        ended = after == record.last_sequence and not record.has_open_turn
        while not ended:
            batch, ended = split_at_end(await subscriber.next_batch(), ends_turn)
            yield batch

    # Reading ----------------------------------------------------------------------------------------------------

    async def get_task(self, call: Call, request: pb.GetTaskRequest) -> bytes:
        """A serialized Task, with the last `history_length` messages (absent: all; 1.0 §3.2.4)."""
        history = history_length(request)
        if not request.id:
            raise InvalidParams.field("id", "is required")
        caller = call.caller
        snapshot = await self._store.get(caller.owner, caller.agent, request.id, joined=caller.joined, history=history)
        if snapshot is None:
            raise TaskNotFound
        return snapshot.task

    async def list_tasks(self, call: Call, request: pb.ListTasksRequest) -> bytes:
        """A serialized ListTasksResponse (1.0 §3.1.4)."""
        query = task_query(call, request)
        page = await self._store.page(query)
        return b"".join(
            (
                *(frames.frame(1, task) for task in page.tasks),
                frames.text(2, cursors.page_token(query, page.last_key) if page.last_key else ""),
                frames.integer(3, query.page_size),
                frames.integer(4, page.total),
            )
        )

    # Canceling --------------------------------------------------------------------------------------------------

    async def cancel_task(self, call: Call, request: pb.CancelTaskRequest) -> bytes:
        """A serialized Task: CANCELED, or still active when the agent needs longer than CANCEL_TIMEOUT to stop.

        Raises TaskNotFound; TaskNotCancelable when the task has ended, or when the agent refuses.
        """
        metadata = message_limits.checked_cancel_metadata(request.metadata)
        return await self._cancel_operation.cancel((await self._require_task(call.caller, request.id)).ref, metadata)

    # Subscribing ------------------------------------------------------------------------------------------------

    def subscribe_to_task(self, call: Call, request: pb.SubscribeToTaskRequest) -> EventStream:
        """The Task as it is, then its events until it ends (1.0 §3.1.6). Subscribes before reading."""
        return EventStream(self._subscribe(call, request))

    async def _subscribe(self, call: Call, request: pb.SubscribeToTaskRequest) -> EventBatches:
        self._check_streaming(call)
        record = await self._require_task(call.caller, request.id)
        with self.admission.hold_stream(call.caller.identity):
            async with aclosing(self._follow(call, record.ref)) as batches:
                async for batch in batches:
                    yield batch

    async def _follow(self, call: Call, ref: TaskRef) -> EventBatches:
        async with self._feeds.subscribe(ref) as subscriber:
            if call.cursor:
                async with aclosing(self._resume(subscriber, call, ref)) as batches:
                    async for batch in batches:
                        yield batch
                return
            snapshot = await read_task(self._store, ref)
            if states.is_terminal(snapshot.record.state) and not call.shows_finished:
                raise UnsupportedOperation("the task has ended; read it with GetTask")
            ended = call.is_over_at(snapshot.record)
            subscriber.position = snapshot.record.last_sequence
            task = task_event(snapshot)
            task.ends = ended
            yield (subscriber.attach_cursor(task),)
            is_last = ends_turn_or_task if call.stops_with_turn else ends_task
            while not ended:
                batch, ended = split_at_end(await subscriber.next_batch(), is_last)
                yield batch

    async def _resume(self, subscriber: Subscriber, call: Call, ref: TaskRef) -> EventBatches:
        """The events after the caller's cursor, also of a finished task: the rest, then the end.

        For a cursor older than the log: the current Task, marked as a gap, then the events after it.
        """
        record = (await read_task(self._store, ref, history=0)).record
        known = record.last_sequence
        after = self._cursor_sequence(call, record)
        subscriber.resume_after(after, known)
        ended = call.is_over_at(record) and after == known

        def is_last(event: Event) -> bool:
            return ends_task(event) or (call.stops_with_turn and event.ends and event.sequence >= known)

        while not ended:
            try:
                batch, ended = split_at_end(await subscriber.next_batch(), is_last)
            except LogTruncated:
                snapshot = await read_task(self._store, ref)
                record, known = snapshot.record, snapshot.record.last_sequence
                subscriber.position = known
                yield (subscriber.attach_cursor(gap_event(snapshot, after)),)
                ended = call.is_over_at(record)
                continue
            yield batch

    def _cursor_sequence(self, call: Call, record: TaskRecord) -> int:
        """The sequence of the caller's cursor. Raises InvalidParams for a cursor of another task."""
        return cursors.parse_cursor(
            call.cursor, cursors.cursor_prefix(self._store.epoch, record.ref.key), record.last_sequence
        )

    def _check_streaming(self, call: Call) -> None:
        if not self.agents[call.caller.agent].streaming:
            raise UnsupportedOperation("this agent does not stream, as its card says")

    # Push -------------------------------------------------------------------------------------------------------

    async def create_push(self, call: Call, request: pb.TaskPushNotificationConfig) -> bytes:
        """A serialized TaskPushNotificationConfig as stored, replacing the one with its id (1.0 §3.1.7).

        Without an id it is a new one, and gets a fresh id. Raises PushNotificationNotSupported, as the other operations
        do, on a server without push notifications, and InvalidParams for a forbidden webhook URL.
        """
        self.check_push()
        record = await self._require_task(call.caller, request.task_id, "taskId")
        return await self._push_configs.create(record, request, call.dialect)

    async def set_push(self, call: Call, request: pb.TaskPushNotificationConfig) -> bytes:
        """As `create_push`, but without an id it gets the task's, and so replaces an earlier one without an id: the
        operation of versions before 1.0."""
        self.check_push()
        record = await self._require_task(call.caller, request.task_id, "taskId")
        return await self._push_configs.create(record, request, call.dialect, default_id=record.id)

    async def get_push(self, call: Call, request: pb.GetTaskPushNotificationConfigRequest) -> bytes:
        """A serialized TaskPushNotificationConfig (1.0 §3.1.8)."""
        self.check_push()
        if not request.id:
            raise InvalidParams.field("id", "is required")
        record = await self._require_task(call.caller, request.task_id, "taskId")
        return await self._push_configs.get(record, request.id)

    async def list_push(self, call: Call, request: pb.ListTaskPushNotificationConfigsRequest) -> bytes:
        """A serialized ListTaskPushNotificationConfigsResponse (1.0 §3.1.9)."""
        self.check_push()
        record = await self._require_task(call.caller, request.task_id, "taskId")
        return await self._push_configs.list(record, request.page_size, request.page_token)

    async def delete_push(self, call: Call, request: pb.DeleteTaskPushNotificationConfigRequest) -> bytes:
        """Empty bytes, also when there was nothing to delete (1.0 §3.1.10)."""
        self.check_push()
        if not request.id:
            raise InvalidParams.field("id", "is required")
        record = await self._require_task(call.caller, request.task_id, "taskId")
        return await self._push_configs.delete(record, request.id)

    async def dialect_of(self, caller: Caller, task_id: str) -> str:
        """The dialect in which a task was created; empty when the caller sees no such task."""
        return await self._dialect_cache.dialect_of(caller, task_id)

    async def _require_task(self, caller: Caller, task_id: str, field: str = "id") -> TaskRecord:
        if not task_id:
            raise InvalidParams.field(field, "is required")
        record = await self._store.find(caller.owner, caller.agent, task_id, joined=caller.joined)
        if record is None:
            raise TaskNotFound
        return record
