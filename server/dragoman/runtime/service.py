"""The operations of A2A, the same for every binding (1.0 §3.1).

Requests and answers are `lf.a2a.v1` messages, answers serialized: a binding that speaks 1.0 over gRPC passes the
bytes on untouched, every other dialect decodes them at the edge. All raise children of core.errors.A2AError.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack, aclosing, suppress
from dataclasses import replace

from dragoman.core import cursors, frames, limits, pages, states
from dragoman.core.card import AgentSpec
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
from dragoman.core.extensions import overlay
from dragoman.core.identity import NOBODY, OPEN, Caller, Doorway, Identity
from dragoman.core.isolation import RESERVED, Isolation
from dragoman.core.log import Cut, Event, Head, TaskRef
from dragoman.core.names import AGENT_ID, resolve
from dragoman.ports import Snapshot, Store
from dragoman.runtime.admission import Admission
from dragoman.runtime.call import Call, Limits
from dragoman.runtime.canceling import Canceling
from dragoman.runtime.dispatch import Dispatch
from dragoman.runtime.flow import Flow, Lots, ends, terminal, terminal_or_ends, up_to
from dragoman.runtime.follow import Followers, Subscriber
from dragoman.runtime.log import Log
from dragoman.runtime.origins import Origins
from dragoman.runtime.sending import Sending, Sent, new_context_id, new_task_key, reply
from dragoman.runtime.shown import Shown
from dragoman.runtime.waits import Waits
from dragoman.runtime.webhooks import Webhooks
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb


class TaskService:
    """Every operation on tasks."""

    doorway: Doorway = OPEN
    """Whom it lets in without credentials."""

    def __init__(
        self,
        store: Store,
        log: Log,
        followers: Followers,
        dispatch: Dispatch,
        agents: Mapping[str, AgentSpec],
        root: str,
        limits: Limits,
        isolation: Isolation,
        webhooks: Webhooks,
        admission: Admission,
        canceling: Canceling,
        waits: Waits,
        *,
        new_key: Callable[[], bytes] = new_task_key,
        new_context: Callable[[], str] = new_context_id,
        doorway: Doorway = OPEN,
    ) -> None:
        self._store = store
        self._followers = followers
        self._dispatch = dispatch
        self._limits = limits
        self._isolation = isolation
        self.admission = admission
        """What callers may take up; the bindings count requests and connections with it."""
        self._sending = Sending(
            store, log, followers, dispatch, agents, limits, webhooks, admission, new_key, new_context
        )
        self._webhooks = webhooks
        self._canceling = canceling
        self._origins = Origins(store)
        self.agents = agents
        """The agents of this server, by id."""
        self.root = root
        """The id of the agent meant when a request names none."""
        self.doorway = doorway
        self.waits = waits

    def welcome(self, spec: AgentSpec) -> None:
        """An agent came while the server runs; where there is no root agent yet, it is that."""
        self.root = self.root or spec.id

    @property
    def push(self) -> bool:
        """Whether this server pushes."""
        return self._webhooks.on

    def check_push(self) -> None:
        """Raises PushNotificationNotSupported on a server that does not push, whatever else a call may say."""
        if not self.push:
            raise PushNotificationNotSupported

    def meant(self, tenant: str, identity: Identity = NOBODY) -> tuple[str, str]:
        """The scope and the agent that a tenant string means here, to whom asks.

        Raises AgentNotFound; Unauthenticated for who may be told neither that an agent is there nor that it is not.
        """
        scope, agent = resolve(tenant, self.root)
        if agent in self.agents and self.doorway.shows(scope, agent, identity):
            return scope, agent
        if not identity.known and not self.doorway.shows(scope, agent, identity):
            raise Unauthenticated("credentials are required" + (f' for agent "{tenant[:200]}"' if tenant else ""))
        private = self.doorway.private
        none = "(none)" if private else "(none yet: no worker has come)"
        known = ", ".join(id for id in sorted(self.agents) if self.doorway.shows(scope, id, identity)) or none
        shown = agent if AGENT_ID.fullmatch(agent) and not private else tenant[:200]  # a root agent may be hidden
        denied = self._denied(scope, agent, identity) if agent in self.agents else None
        raise AgentNotFound(f'tenant: no agent "{shown}" here; use one of {known}') from denied

    def caller(self, tenant: str, identity: Identity) -> Caller:
        """Whose tasks, and of which agent, a tenant string means for who calls: the one place that authorises.

        Raises AgentNotFound; Unauthenticated for who shows no credentials, but for public agents, and for a name that
        no principal may have; PermissionDenied when the caller's grants do not reach the agent.
        """
        scope, agent = self.meant(tenant, identity)
        if not identity.known and not self.doorway.is_public(agent):
            raise Unauthenticated(f'credentials are required for agent "{agent}"')
        if not identity.may_call(scope, agent):
            raise self._denied(scope, agent, identity)
        if not identity.principal or identity.principal.startswith(RESERVED):
            raise Unauthenticated(f'the principal of these credentials is empty or begins with "{RESERVED}"')
        view = self._isolation.view(scope, agent, identity.principal)
        return Caller(view.owner, agent, identity, view.joined)

    def _denied(self, scope: str, agent: str, identity: Identity) -> PermissionDenied:
        about = {"principal": identity.principal, **({"key": identity.key} if identity.key else {})}
        why = f'tenant: these credentials do not reach agent "{agent}" in scope "{scope}"'
        return PermissionDenied(why, about=about)

    # Sending ----------------------------------------------------------------------------------------------------

    async def send_message(self, call: Call, request: pb.SendMessageRequest) -> bytes:
        """A serialized SendMessageResponse: the task when its turn has ended, or as it is at the wait limit."""
        history = _history_length(request.configuration)
        limit = self._limits.blocking_wait
        deadline = asyncio.get_running_loop().time() + min(limit if call.timeout is None else call.timeout, limit)
        if request.configuration.return_immediately:
            sent = await self._sending.store(call, request)
            message = await reply(sent)
            shown = None
        else:
            with self.admission.open(call.caller.identity):
                sent = await self._sending.store(call, request)
                message = await reply(sent)
                waits = message is None and (sent.head.running or sent.head.ready)
                shown = await self._turn_of(sent, deadline, history) if waits else None
        if message is not None:
            return frames.frame(2, message.SerializeToString())
        return frames.frame(1, shown or (await self._stored(sent, history)).task)

    async def _turn_of(self, sent: Sent, deadline: float, history: int | None) -> bytes | None:
        """Waits for the end of the turn that a send began or joined, or until the loop's clock shows `deadline`.

        The serialized Task, when the run is here and can tell; None when it has to be read.
        """
        run = sent.run or self._dispatch.run_of(sent.head.ref)
        if run is not None:
            await asyncio.wait((run.over,), timeout=deadline - asyncio.get_running_loop().time())
            if not run.over.done():
                return None
            if run.over.result():
                return run.shown.task(run.head, history)
        with suppress(Unavailable):  # then the task is told as far as it is known
            async with self._followers.subscribe(sent.head.ref) as subscriber:
                head = (await self._snapshot(sent.head.ref, 0)).head
                subscriber.at = head.last
                if head.running or head.ready:
                    await self.waits.until_turn_ends(subscriber, deadline)
        return None

    async def _stored(self, sent: Sent, history: int | None) -> Snapshot:
        """The task whose message has been stored: as it is, or as it was made while the store cannot be asked.

        Raises Unavailable for a task that was there before: the error says that the message is not to be sent again.
        """
        try:
            return await self._snapshot(sent.head.ref, history)
        except Unavailable as error:
            if sent.created and (task := Shown(sent.events).task(sent.head, history)):
                return Snapshot(sent.head, task)
            told = (
                f"the message was stored for task {sent.head.id}, and is not to be sent again; "
                "the store does not answer now, so read the task later"
            )
            raise Unavailable(told, metadata={"task": sent.head.id}) from error

    def send_streaming_message(self, call: Call, request: pb.SendMessageRequest) -> Flow:
        """Events whose data are serialized StreamResponse: the Task first, or one Message (1.0 §3.1.2)."""
        return Flow(self._send_streaming(call, request))

    async def _send_streaming(self, call: Call, request: pb.SendMessageRequest) -> Lots:
        self._check_streaming(call)
        history = _history_length(request.configuration)
        async with AsyncExitStack() as stack:
            stack.enter_context(self.admission.open(call.caller.identity))
            sent, subscriber = await self._sending.follow(stack, call, request)
            if message := await reply(sent):
                yield (Event(0, frames.frame(2, message.SerializeToString())),)
                return
            head = sent.head
            if sent.repeated and (sent.created or call.after):
                async with aclosing(self._replay(subscriber, call, head)) as lots:
                    async for lot in lots:
                        yield lot
                return
            if sent.created and history is None:
                event = sent.events[0]
            else:
                snapshot = await self._stored(sent, history)
                head, event = snapshot.head, _as_event(snapshot)
            yield (subscriber.mark(event),)
            subscriber.at = event.sequence
            ended = not (head.running or head.ready)
            while not ended:
                lot, ended = up_to(await subscriber.lot(), ends)
                yield lot

    async def _replay(self, subscriber: Subscriber, call: Call, head: Head) -> Lots:
        """The events of a turn that was begun before: from the task's first, or after the caller's cursor.

        Nothing for a caller who has seen the end: one whose connection broke between the last event and the end of the
        stream asks again.
        """
        after = self._at(call, head) if call.after else 0
        subscriber.go_on(after, head.last)
        ended = after == head.last and not (head.running or head.ready)
        while not ended:
            lot, ended = up_to(await subscriber.lot(), ends)
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
        size = request.page_size if request.HasField("page_size") else pages.DEFAULT_SIZE
        if not 1 <= size <= pages.MAX_SIZE:
            raise InvalidParams.field("pageSize", f"must be 1 to {pages.MAX_SIZE}, not {request.page_size}")
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
            joined=call.caller.joined,
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
        return await self._canceling.cancel((await self._find(call.caller, request.id)).ref)

    # Following --------------------------------------------------------------------------------------------------

    def subscribe_to_task(self, call: Call, request: pb.SubscribeToTaskRequest) -> Flow:
        """The Task as it is, then what happens to it until it ends (1.0 §3.1.6). Listening starts before reading."""
        return Flow(self._subscribe(call, request))

    async def _subscribe(self, call: Call, request: pb.SubscribeToTaskRequest) -> Lots:
        self._check_streaming(call)
        head = await self._find(call.caller, request.id)
        with self.admission.open(call.caller.identity):
            async with aclosing(self._follow(call, head.ref)) as lots:
                async for lot in lots:
                    yield lot

    async def _follow(self, call: Call, ref: TaskRef) -> Lots:
        async with self._followers.subscribe(ref) as subscriber:
            if call.after:
                async with aclosing(self._resume(subscriber, call, ref)) as lots:
                    async for lot in lots:
                        yield lot
                return
            snapshot = await self._snapshot(ref, None)
            ended = states.is_terminal(snapshot.head.state)
            if ended and not call.shows_finished:
                raise UnsupportedOperation("the task has ended; read it with GetTask")
            ended = ended or (call.stops_with_turn and not (snapshot.head.running or snapshot.head.ready))
            subscriber.at = snapshot.head.last
            first = _as_event(snapshot)
            first.ends = ended
            yield (subscriber.mark(first),)
            last = terminal_or_ends if call.stops_with_turn else terminal
            while not ended:
                lot, ended = up_to(await subscriber.lot(), last)
                yield lot

    async def _resume(self, subscriber: Subscriber, call: Call, ref: TaskRef) -> Lots:
        """What follows the caller's cursor, also on a finished task: the rest, then the end.

        A cursor that is older than the log gives the Task as it is, marked as a gap, and then what follows that.
        """
        head = (await self._snapshot(ref, 0)).head
        known = head.last
        after = self._at(call, head)
        subscriber.go_on(after, known)
        ended = _over(head, call) and after == known

        def last(event: Event) -> bool:
            return terminal(event) or (call.stops_with_turn and event.ends and event.sequence >= known)

        while not ended:
            try:
                lot, ended = up_to(await subscriber.lot(), last)
            except Cut:
                snapshot = await self._snapshot(ref, None)
                head, known = snapshot.head, snapshot.head.last
                subscriber.at = known
                yield (subscriber.mark(_gap(snapshot, after)),)
                ended = _over(head, call)
                continue
            yield lot

    def _at(self, call: Call, head: Head) -> int:
        """The sequence of the caller's cursor. Raises InvalidParams for one that is not this task's."""
        return cursors.sequence(call.after, cursors.prefix(self._store.epoch, head.ref.key), head.last)

    def _check_streaming(self, call: Call) -> None:
        if not self.agents[call.caller.agent].streaming:
            raise UnsupportedOperation("this agent does not stream, as its card says")

    # Push -------------------------------------------------------------------------------------------------------

    async def create_push(self, call: Call, request: pb.TaskPushNotificationConfig) -> bytes:
        """A serialized TaskPushNotificationConfig, as it is kept: in the place of the one of its id, if there is one
        (1.0 §3.1.7). Raises PushNotificationNotSupported, as the other three do, where the card says that there is
        none, and InvalidParams for a webhook that may not be called."""
        self.check_push()
        head = await self._find(call.caller, request.task_id, "taskId")
        return await self._webhooks.create(head, request, call.dialect)

    async def get_push(self, call: Call, request: pb.GetTaskPushNotificationConfigRequest) -> bytes:
        """A serialized TaskPushNotificationConfig (1.0 §3.1.8)."""
        self.check_push()
        if not request.id:
            raise InvalidParams.field("id", "is required")
        head = await self._find(call.caller, request.task_id, "taskId")
        return await self._webhooks.get(head, request.id)

    async def list_push(self, call: Call, request: pb.ListTaskPushNotificationConfigsRequest) -> bytes:
        """A serialized ListTaskPushNotificationConfigsResponse (1.0 §3.1.9)."""
        self.check_push()
        head = await self._find(call.caller, request.task_id, "taskId")
        return await self._webhooks.list(head, request.page_size, request.page_token)

    async def delete_push(self, call: Call, request: pb.DeleteTaskPushNotificationConfigRequest) -> bytes:
        """Nothing, also where there was nothing to delete (1.0 §3.1.10)."""
        self.check_push()
        if not request.id:
            raise InvalidParams.field("id", "is required")
        head = await self._find(call.caller, request.task_id, "taskId")
        return await self._webhooks.delete(head, request.id)

    async def made_in(self, caller: Caller, task_id: str) -> str:
        """The dialect in which a task was made; empty when there is none to see."""
        return await self._origins.of(caller, task_id)

    async def _find(self, caller: Caller, task_id: str, field: str = "id") -> Head:
        if not task_id:
            raise InvalidParams.field(field, "is required")
        head = await self._look(caller, task_id)
        if head is None:
            raise TaskNotFound
        return head

    async def _look(self, caller: Caller, task_id: str) -> Head | None:
        return await self._store.find(caller.owner, caller.agent, task_id, joined=caller.joined)

    async def _snapshot(self, ref: TaskRef, history: int | None) -> Snapshot:
        snapshot = await self._store.read(ref, history=history)
        if snapshot is None:
            raise TaskNotFound
        return snapshot


def _over(head: Head, call: Call) -> bool:
    """Whether a subscription to the task as it is would end at once."""
    return states.is_terminal(head.state) or (call.stops_with_turn and not (head.running or head.ready))


def _as_event(snapshot: Snapshot) -> Event:
    return Event(snapshot.head.last, frames.frame(1, snapshot.task), snapshot.head.state)


def _gap(snapshot: Snapshot, after: int) -> Event:
    """The Task as it is, for a reader whose next event is gone."""
    event = _as_event(snapshot)
    told: dict[str, str | float | bool] = {"gap": True, "from": after, "sequence": event.sequence}
    return Event(event.sequence, event.data + overlay(1, told), event.state)


def _history_length(request: pb.GetTaskRequest | pb.ListTasksRequest | pb.SendMessageConfiguration) -> int | None:
    if not request.HasField("history_length"):
        return None
    if request.history_length < 0:
        raise InvalidParams.field("historyLength", "must be 0 or more")
    return request.history_length
