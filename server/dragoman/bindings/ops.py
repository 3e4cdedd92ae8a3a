"""`dragoman.ops.v1` over gRPC: what operators ask the server about itself.

Without an authenticator, which only loopback is served without, everyone is an operator; with one, whoever shows
credentials with the grant `operator`, from wherever it calls.
"""

from __future__ import annotations

import grpc

from dragoman.bindings import callers, ops_calls
from dragoman.bindings.cards import Cards
from dragoman.bindings.ops_audit import Acting
from dragoman.bindings.ops_calls import Context, Refuse
from dragoman.bindings.pushes import config
from dragoman.bindings.serving import Options
from dragoman.core.errors import InvalidParams, TaskNotFound, Unauthenticated
from dragoman.core.limits.quotas import BILLION
from dragoman.core.task import states
from dragoman.runtime.observe.explain import Explainer, Explanation
from dragoman_pb.dragoman.ops.v1 import ops_pb2 as ops


class Operations:
    """The operations of OpsService."""

    def __init__(self, cards: Cards, explainer: Explainer | None, options: Options) -> None:
        self._cards = cards
        self._explainer = explainer
        self._options = options

    @property
    def unary(self) -> ops_calls.Unary:
        """Those of one answer."""
        return {
            "ListAgents": (ops.ListAgentsRequest, self.list_agents),
            "Explain": (ops.ExplainRequest, self.explain),
        }

    def handler(self, refuse: Refuse) -> grpc.GenericRpcHandler:
        """What grpc calls."""
        return ops_calls.handler(self.unary, self.check, refuse)

    async def explain(self, request: ops.ExplainRequest) -> ops.ExplainResponse:
        """Where every task of an id stands. Raises TaskNotFound."""
        if not request.task_id:
            raise InvalidParams.field("task_id", "is required")
        found = await self._explainer.explain(request.task_id) if self._explainer else []
        if not found:
            raise TaskNotFound
        return ops.ExplainResponse(tasks=map(_explained, found))

    async def list_agents(self, _: ops.ListAgentsRequest) -> ops.ListAgentsResponse:
        """The agents of this server, the root agent first."""
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
                for spec in self._cards.catalogue()
            ]
        )

    async def check_here(self, context: Context) -> Acting:
        """Also raises Unauthenticated for callers on other machines where nobody is asked who they are: `--insecure`
        opens the agents to others, and not what is everybody's."""
        acting = await self.check(context)
        if self._options.authenticator is None and not is_here(context):
            raise Unauthenticated("operations on the store are for operators, on this machine only")
        return acting

    async def check(self, context: Context) -> Acting:
        """Who calls. Raises Unauthenticated for who did not show who it is, PermissionDenied for who is no operator."""
        metadata = [(key, value) for key, value in context.invocation_metadata() or () if isinstance(value, str)]
        identity = await callers.operator(metadata, self._options, context)
        return Acting(identity, context.peer(), self._options.auditor)


def is_here(context: Context) -> bool:
    """Whether the caller is on this machine."""
    peer: str = context.peer()
    return peer.startswith(("ipv4:127.", "ipv6:%5B::1%5D", "ipv6:[::1]", "unix:"))


def _explained(one: Explanation) -> ops.Explanation:
    head = one.record
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
        attempts_allowed=one.attempts_allowed,
        session=head.session,
        session_expires=one.session_expires,
        here=one.here,
        stopping=one.stopping,
        subscribers=one.subscribers,
        ready=head.ready,
        free_slots=one.free_slots,
        next=one.next,
        pushes=map(config, one.pushes),
        worker=one.worker,
        tokens=one.usage.tokens,
        cost=one.usage.cost / BILLION,
        delegated_tokens=one.usage.delegated_tokens,
        delegated_cost=one.usage.delegated_cost / BILLION,
        trace_id=one.trace,
    )
