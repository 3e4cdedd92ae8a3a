"""Operator calls for tasks, agents, events and push notifications (`dragoman.ops.v1`).

Without an authenticator, which only loopback is served without, everyone is an operator; with one, whoever shows
credentials with the grant `authenticate_operator`, from wherever it calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import grpc
import orjson
from google.protobuf import text_format

from dragoman.bindings import authentication, event_encoders
from dragoman.bindings.admin import rpc_handler
from dragoman.bindings.admin.rpc_handler import AbortCall, AuthorizeOperator, GrpcContext, OperatorCall
from dragoman.bindings.cards import Cards
from dragoman.bindings.options import ServerOptions
from dragoman.core.errors import InvalidParams, TaskNotFound, Unauthenticated
from dragoman.core.limits.quotas import BILLION
from dragoman.core.push.delivery import DeliveryAttempt, PushRecord, PushState
from dragoman.core.task import states
from dragoman.core.task.log import Event
from dragoman.core.task.maintenance import TaskSelection
from dragoman.runtime.maintenance.admin import Maintenance
from dragoman.runtime.observe.explain import Explainer, Explanation
from dragoman.runtime.push.scheduler import Redelivery
from dragoman.wire.dialects import json_v01
from dragoman_pb.dragoman.ops.v1 import events_pb2 as events_pb
from dragoman_pb.dragoman.ops.v1 import ops_pb2 as ops
from dragoman_pb.dragoman.ops.v1 import push_pb2 as push_pb
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb


class ServerOperations:
    """Operator calls about the server itself."""

    def __init__(self, cards: Cards, explainer: Explainer | None, options: ServerOptions) -> None:
        self._cards = cards
        self._explainer = explainer
        self._options = options

    @property
    def unary(self) -> rpc_handler.UnaryOperations:
        """The unary operations by method name."""
        return {
            "ListAgents": (ops.ListAgentsRequest, self.list_agents),
            "Explain": (ops.ExplainRequest, self.explain),
        }

    def handler(self, abort: AbortCall) -> grpc.GenericRpcHandler:
        """The handler for grpc."""
        return rpc_handler.service_handler(self.unary, self.authorize, abort)

    async def explain(self, request: ops.ExplainRequest) -> ops.ExplainResponse:
        """Explains the state of each task with an id. Raises TaskNotFound."""
        if not request.task_id:
            raise InvalidParams.field("task_id", "is required")
        found = await self._explainer.explain(request.task_id) if self._explainer else []
        if not found:
            raise TaskNotFound
        return ops.ExplainResponse(tasks=map(_explanation_message, found))

    async def list_agents(self, _: ops.ListAgentsRequest) -> ops.ListAgentsResponse:
        """Lists the agents, the root agent first."""
        return ops.ListAgentsResponse(
            agents=[
                ops.Agent(
                    id=spec.id,
                    name=spec.name,
                    description=spec.description,
                    version=spec.version,
                    root=spec.id == self._cards.root,
                    card_url=self._cards.card_url(spec.id, None),
                    input_modes=spec.input_modes,
                    output_modes=spec.output_modes,
                    threads_left_behind=self._explainer.leaked_threads(spec.id) if self._explainer else 0,
                )
                for spec in self._cards.sorted_agents()
            ]
        )

    async def authorize_local(self, context: GrpcContext) -> OperatorCall:
        """As `authorize`, but without authentication only local callers are operators: `--insecure` opens the agents to
        other machines, not the tasks of all callers."""
        acting = await self.authorize(context)
        if self._options.authenticator is None and not is_local_caller(context):
            raise Unauthenticated("operations on the store are for operators, on this machine only")
        return acting

    async def authorize(self, context: GrpcContext) -> OperatorCall:
        """Authenticates the operator. Raises Unauthenticated, PermissionDenied."""
        metadata = [(key, value) for key, value in context.invocation_metadata() or () if isinstance(value, str)]
        identity = await authentication.authenticate_operator(metadata, self._options, context)
        return OperatorCall(identity, context.peer(), self._options.auditor)


def is_local_caller(context: GrpcContext) -> bool:
    """Whether the caller is on this machine."""
    peer: str = context.peer()
    return peer.startswith(("ipv4:127.", "ipv6:%5B::1%5D", "ipv6:[::1]", "unix:"))


def _explanation_message(explanation: Explanation) -> ops.Explanation:
    head = explanation.record
    return ops.Explanation(
        task_id=head.id,
        agent=head.agent,
        scope=head.ref.owner.scope,
        principal=head.principal,
        context_id=head.context,
        state=states.name(head.state),
        since=head.updated,
        dialect=head.dialect,
        last_event=head.last_sequence,
        queued_messages=max(head.last_received - head.last_delivered, 0) if not states.is_terminal(head.state) else 0,
        attempt=head.attempt,
        attempts_allowed=explanation.attempts_allowed,
        session=head.session,
        session_expires=explanation.session_expires,
        here=explanation.here,
        stopping=explanation.stopping,
        subscribers=explanation.subscribers,
        ready=head.ready,
        free_slots=explanation.free_slots,
        next=explanation.next,
        pushes=map(push_config_message, explanation.pushes),
        worker=explanation.worker,
        tokens=explanation.usage.tokens,
        cost=explanation.usage.cost / BILLION,
        delegated_tokens=explanation.usage.delegated_tokens,
        delegated_cost=explanation.usage.delegated_cost / BILLION,
        trace_id=explanation.trace,
    )


DEFAULT_EVENT_LIMIT: Final = 20
MAX_EVENT_LIMIT: Final = 100


class EventOperations:
    """Operator calls from request message to response message. They raise A2AError."""

    def __init__(self, maintenance: Maintenance) -> None:
        self._maintenance = maintenance

    async def list_events(self, request: events_pb.ListEventsRequest) -> events_pb.ListEventsResponse:
        """Lists events of a task by sequence."""
        if not request.task_id:
            raise InvalidParams.field("taskId", "is required")
        if not 0 <= request.limit <= MAX_EVENT_LIMIT:
            raise InvalidParams.field("limit", f"must be 1 to {MAX_EVENT_LIMIT}, or 0 for {DEFAULT_EVENT_LIMIT}")
        selection = TaskSelection(
            task=request.task_id, agent=request.agent, principal=request.principal, scope=request.scope
        )
        found = await self._maintenance.log(selection, request.after, request.limit or DEFAULT_EVENT_LIMIT)
        artifacts = [artifact.artifact_id for artifact in pb.Task.FromString(found.task).artifacts]
        stream = json_v01.V01StreamWriter(artifacts)
        return events_pb.ListEventsResponse(
            events=[_event_message(event, stream) for event in found.events],
            oldest=found.oldest,
            last=found.record.last_sequence,
        )


def event_operations(maintenance: Maintenance) -> rpc_handler.UnaryOperations:
    """The operations by method name."""
    return {"ListEvents": (events_pb.ListEventsRequest, EventOperations(maintenance).list_events)}


def event_handler(maintenance: Maintenance, authorize: AuthorizeOperator, abort: AbortCall) -> grpc.GenericRpcHandler:
    """The handler for grpc."""
    return rpc_handler.service_handler(event_operations(maintenance), authorize, abort)


def _event_message(event: Event, stream: json_v01.V01StreamWriter) -> events_pb.EventOnTheWire:
    response = pb.StreamResponse.FromString(event.data)
    every = json_v01.to_updates(response)
    shown = events_pb.EventOnTheWire(
        sequence=event.sequence,
        v1_json=event_encoders.V1_STREAM_ENCODERS.json(event, False).decode(),
        v03_json=b"".join(event_encoders.v03_results()(event, event.ends)).decode(),
        v01_json=[orjson.dumps(stream.write(update, event.ends and update is every[-1])).decode() for update in every],
        text=text_format.MessageToString(response, as_utf8=True),
    )
    for status in (response.task.status, response.status_update.status):
        if status.HasField("timestamp"):
            shown.time.MergeFrom(status.timestamp)
    return shown


DEFAULT_PUSH_LIMIT: Final = 100
MAX_PUSH_LIMIT: Final = 1000


class PushAdminOperations:
    """Operator calls from request message to response message. They raise A2AError."""

    def __init__(self, redelivery: Redelivery) -> None:
        self._redelivery = redelivery

    async def list_push_configs(self, request: push_pb.ListPushConfigsRequest) -> push_pb.ListPushConfigsResponse:
        """Lists the push configurations of a task, or all with pending deliveries."""
        if request.task_id:
            found = await self._redelivery.of_selection(_selection(request))
            return push_pb.ListPushConfigsResponse(
                configs=[push_config_message(one.push, one.attempts) for one in found]
            )
        if not 0 <= request.limit <= MAX_PUSH_LIMIT:
            raise InvalidParams.field("limit", f"must be 1 to {MAX_PUSH_LIMIT}, or 0 for {DEFAULT_PUSH_LIMIT}")
        waiting = await self._redelivery.waiting(request.limit or DEFAULT_PUSH_LIMIT)
        return push_pb.ListPushConfigsResponse(
            configs=[push_config_message(push) for push in waiting if _matches_request(request, push)]
        )

    async def redeliver(self, request: push_pb.RedeliverRequest) -> push_pb.RedeliverResponse:
        """Restarts the deliveries of a configuration."""
        if not request.task_id:
            raise InvalidParams.field("taskId", "is required")
        first: int | None = getattr(request, "from") if request.HasField("from") else None
        after = None if first is None else first - 1
        begun = await self._redelivery.redeliver(_selection(request), request.config_id, after)
        return push_pb.RedeliverResponse(configs=[push_config_message(push) for push in begun])


def push_operations(redelivery: Redelivery) -> rpc_handler.UnaryOperations:
    """The operations by method name."""
    operations = PushAdminOperations(redelivery)
    return {
        "ListPushConfigs": (push_pb.ListPushConfigsRequest, operations.list_push_configs),
        "Redeliver": (push_pb.RedeliverRequest, operations.redeliver),
    }


def push_handler(redelivery: Redelivery, authorize: AuthorizeOperator, abort: AbortCall) -> grpc.GenericRpcHandler:
    """The handler for grpc."""
    return rpc_handler.service_handler(push_operations(redelivery), authorize, abort)


def _selection(request: push_pb.ListPushConfigsRequest | push_pb.RedeliverRequest) -> TaskSelection:
    return TaskSelection(task=request.task_id, agent=request.agent, principal=request.principal, scope=request.scope)


def _matches_request(request: push_pb.ListPushConfigsRequest, push: PushRecord) -> bool:
    owner = push.task.owner
    return (
        request.agent in ("", push.agent)
        and request.principal in ("", owner.principal)
        and request.scope in ("", owner.scope)
    )


_PUSH_STATES: Final = {
    PushState.LIVE: push_pb.PUSH_STATE_LIVE,
    PushState.DONE: push_pb.PUSH_STATE_DONE,
    PushState.DEAD: push_pb.PUSH_STATE_DEAD,
    PushState.ENDED: push_pb.PUSH_STATE_ENDED,
}


def push_config_message(push: PushRecord, attempts: Sequence[DeliveryAttempt] = ()) -> push_pb.PushConfig:
    """A push configuration without its secrets."""
    config = push_pb.PushConfig(
        task_id=push.task_id,
        agent=push.agent,
        principal=push.task.owner.principal,
        scope=push.task.owner.scope,
        id=push.config.id,
        url=push.config.url,
        dialect=push.config.dialect,
        state=_PUSH_STATES[push.state],
        why=push.reason,
        delivered=push.last_delivered,
        last=push.last_sequence,
        failures=push.failures,
        delivering=bool(push.session) and push.lag > 0,
        tries=push.attempt_count,
        attempts=map(_attempt_message, attempts),
    )
    config.created.FromMilliseconds(push.created)
    if push.failing_since:
        config.failing_since.FromMilliseconds(push.failing_since)
    if push.due_at and push.lag and not push.session:
        config.next_try.FromMilliseconds(push.due_at)
    return config


def _attempt_message(attempt: DeliveryAttempt) -> push_pb.PushAttempt:
    push_attempt = push_pb.PushAttempt(
        sequence=attempt.sequence, status=attempt.status, error=attempt.error, milliseconds=attempt.duration_ms
    )
    push_attempt.time.FromMilliseconds(attempt.at)
    return push_attempt
