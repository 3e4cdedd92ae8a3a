"""Operator calls for agents, workers, upstreams and keys (`dragoman.ops.v1`).

The operations map request messages to response messages and raise A2AError. They do not use gRPC, so the command line
can create API keys in a store that no server holds.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

from dragoman.bindings.admin.actions import OperatorCall
from dragoman.bindings.admin.fields import check_present, set_timestamps
from dragoman.bindings.cards import Cards
from dragoman.core import agent_sources
from dragoman.core.access import signing_keys
from dragoman.core.access.caller_credentials import ApiKey
from dragoman.core.access.identity import SCOPE_GRANT_PREFIX, Identity
from dragoman.core.access.signing_keys import SigningKey, SigningKeyState
from dragoman.core.errors import AgentNotFound, InvalidParams, PermissionDenied
from dragoman.ports import SigningKeys, UpstreamRegistry, UpstreamStatus, WorkerHub
from dragoman.runtime.maintenance.api_keys import ApiKeyService
from dragoman.runtime.maintenance.pauses import AgentPause, AgentPauses
from dragoman.runtime.observe.explain import Explainer
from dragoman_pb.dragoman.ops.v1 import ops_pb2 as ops
from dragoman_pb.dragoman.ops.v1 import signing_pb2 as signing_pb
from dragoman_pb.dragoman.ops.v1 import upstreams_pb2 as upstreams_pb
from dragoman_pb.dragoman.ops.v1 import workers_pb2 as workers_pb


class AgentOperations:
    """Lists, pauses and resumes agents; adds and removes remote ones."""

    def __init__(
        self,
        cards: Cards,
        explainer: Explainer,
        pauses: AgentPauses,
        worker_hub: WorkerHub,
        upstream_registry: UpstreamRegistry,
    ) -> None:
        self._cards = cards
        self._explainer = explainer
        self._pauses = pauses
        self._worker_hub = worker_hub
        self._upstream_registry = upstream_registry

    async def list_agents(self, _: OperatorCall, request: ops.ListAgentsRequest) -> ops.ListAgentsResponse:
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
                    threads_left_behind=self._explainer.scheduler.leaked_threads(spec.id),
                    pause=_pause_message(self._pauses.by_agent.get(spec.id)),
                )
                for spec in self._cards.sorted_agents()
            ]
        )

    async def pause_agent(self, operator: OperatorCall, request: ops.PauseAgentRequest) -> ops.PauseAgentResponse:
        """Pauses an agent."""
        _check_pause(operator.identity, request.agent)
        if request.agent not in {spec.id for spec in self._cards.sorted_agents()}:
            raise AgentNotFound
        if len(request.reason) > MAX_PAUSE_REASON:
            raise InvalidParams.field("reason", f"must have at most {MAX_PAUSE_REASON} characters")
        pause = await self._pauses.pause(request.agent, operator.identity.principal, request.reason)
        return ops.PauseAgentResponse(pause=_pause_message(pause))

    async def resume_agent(self, operator: OperatorCall, request: ops.ResumeAgentRequest) -> ops.ResumeAgentResponse:
        """Resumes an agent."""
        _check_pause(operator.identity, request.agent)
        await self._pauses.resume(request.agent)
        return ops.ResumeAgentResponse()

    async def list_workers(
        self, _: OperatorCall, request: workers_pb.ListWorkersRequest
    ) -> workers_pb.ListWorkersResponse:
        """Lists the agents of workers by id."""
        return workers_pb.ListWorkersResponse(
            agents=[
                workers_pb.WorkerAgent(
                    agent=status.agent,
                    principal=status.principal,
                    seen=datetime.fromtimestamp(status.last_seen / 1000, UTC),
                    workers=[
                        workers_pb.Worker(
                            name=worker.name,
                            peer=worker.peer,
                            free=worker.free_turns,
                            running=worker.running_turns,
                            draining=worker.draining,
                        )
                        for worker in status.workers
                    ],
                )
                for status in self._worker_hub.list_agents()
            ]
        )

    async def forget_agent(
        self, _: OperatorCall, request: workers_pb.ForgetAgentRequest
    ) -> workers_pb.ForgetAgentResponse:
        """Removes an agent without connected workers, which frees its id."""
        check_present("agent", request.agent)
        return workers_pb.ForgetAgentResponse(ended_tasks=await self._worker_hub.forget(request.agent))

    async def list_upstreams(
        self, _: OperatorCall, request: upstreams_pb.ListUpstreamsRequest
    ) -> upstreams_pb.ListUpstreamsResponse:
        """Lists the upstream agents with their status, by id."""
        return upstreams_pb.ListUpstreamsResponse(upstreams=map(_upstream_message, self._upstream_registry.status()))

    async def add_upstream(
        self, _: OperatorCall, request: upstreams_pb.AddUpstreamRequest
    ) -> upstreams_pb.AddUpstreamResponse:
        """Adds an upstream agent."""
        table: dict[str, Any] = {
            "url": request.url,
            "id": request.id,
            "prefix": request.prefix,
            "headers": dict(request.headers),
            "time_limit": request.time_limit.seconds + request.time_limit.nanos / 1e9,
        }
        if request.turns:
            table["turns"] = request.turns
        try:
            upstream = agent_sources.upstream_from_table(table)
        except ValueError as error:
            field, separator, rule = str(error).partition(": ")
            if not separator:
                raise InvalidParams(str(error)) from error
            raise InvalidParams.field(field, rule) from error
        status = await self._upstream_registry.add(upstream)
        return upstreams_pb.AddUpstreamResponse(upstream=_upstream_message(status))

    async def remove_upstream(
        self, _: OperatorCall, request: upstreams_pb.RemoveUpstreamRequest
    ) -> upstreams_pb.RemoveUpstreamResponse:
        """Removes an upstream agent."""
        check_present("agent", request.agent)
        return upstreams_pb.RemoveUpstreamResponse(ended_tasks=await self._upstream_registry.remove(request.agent))


MAX_PAUSE_REASON: Final = 500
"""Characters of the reason of a pause."""


def _check_pause(identity: Identity, agent: str) -> None:
    check_present("agent", agent)
    if scopes := identity.granted(SCOPE_GRANT_PREFIX):
        names = ", ".join(sorted(scopes))
        text = f"your grants are limited to scopes ({names}), and the agent serves all scopes"
        raise PermissionDenied(text, log_details=identity.log_details)


def _pause_message(pause: AgentPause | None) -> ops.AgentPause | None:
    if pause is None:
        return None
    message = ops.AgentPause(principal=pause.principal, reason=pause.reason)
    set_timestamps(message, since=pause.since)
    return message


def _upstream_message(status: UpstreamStatus) -> upstreams_pb.Upstream:
    return upstreams_pb.Upstream(
        agent=status.agent,
        url=status.url,
        settings=status.from_settings,
        credentials=status.has_credentials,
        unavailable_ms=round(status.seconds_absent * 1000),
        last_error=status.problem,
        interfaces=status.interfaces,
        skipped_interfaces=status.skipped_interfaces,
        running=status.running_turns,
        turns=status.max_turns,
    )


class ApiKeyOperations:
    """Creates, lists, rotates and revokes API keys."""

    def __init__(self, api_keys: ApiKeyService) -> None:
        self._api_keys = api_keys

    async def create_key(self, _: OperatorCall, request: ops.CreateKeyRequest) -> ops.CreateKeyResponse:
        """Creates an API key. Only this response contains its text."""
        key, text = await self._api_keys.create(
            request.name,
            principal=request.principal,
            grants=request.grants,
            lifetime=request.lifetime.ToMilliseconds(),
        )
        return ops.CreateKeyResponse(key=_api_key_message(key), text=text)

    async def list_keys(self, _: OperatorCall, request: ops.ListKeysRequest) -> ops.ListKeysResponse:
        """Lists the API keys, newest first."""
        return ops.ListKeysResponse(keys=map(_api_key_message, await self._api_keys.list(all=request.all)))

    async def rotate_key(self, _: OperatorCall, request: ops.RotateKeyRequest) -> ops.RotateKeyResponse:
        """Rotates the secret of an API key."""
        lifetime = request.lifetime.ToMilliseconds() if request.HasField("lifetime") else None
        key, text = await self._api_keys.rotate(request.id, grace=request.grace.ToMilliseconds(), lifetime=lifetime)
        return ops.RotateKeyResponse(key=_api_key_message(key), text=text)

    async def revoke_key(self, _: OperatorCall, request: ops.RevokeKeyRequest) -> ops.RevokeKeyResponse:
        """Revokes an API key."""
        return ops.RevokeKeyResponse(key=_api_key_message(await self._api_keys.revoke(request.id)))


def _api_key_message(key: ApiKey) -> ops.ApiKey:
    message = ops.ApiKey(id=key.id, name=key.name, principal=key.principal, grants=sorted(key.grants))
    set_timestamps(
        message,
        created=key.created,
        expires=key.expires,
        last_used=key.used,
        rotated=key.rotated,
        former_until=key.former_until,
        revoked=key.revoked,
    )
    return message


_SIGNING_KEY_STATES: Final[dict[SigningKeyState, signing_pb.SigningKeyState]] = {
    "next": signing_pb.SIGNING_KEY_STATE_NEXT,
    "signing": signing_pb.SIGNING_KEY_STATE_SIGNING,
    "former": signing_pb.SIGNING_KEY_STATE_FORMER,
}


class SigningKeyOperations:
    """Lists, rotates and withdraws signing keys."""

    def __init__(self, keys: SigningKeys) -> None:
        self._keys = keys

    async def list_signing_keys(
        self, _: OperatorCall, request: signing_pb.ListSigningKeysRequest
    ) -> signing_pb.ListSigningKeysResponse:
        """Lists the published signing keys."""
        return signing_pb.ListSigningKeysResponse(
            keys=[_signing_key_message(key, state) for key, state in await self._keys.list()]
        )

    async def rotate_signing_key(
        self, _: OperatorCall, request: signing_pb.RotateSigningKeyRequest
    ) -> signing_pb.RotateSigningKeyResponse:
        """Rotates the signing key."""
        lead = request.lead.ToMilliseconds() if request.HasField("lead") else signing_keys.DEFAULT_KEY_LEAD_MS
        retention = request.keep.ToMilliseconds() if request.HasField("keep") else signing_keys.DEFAULT_KEY_RETENTION_MS
        key = await self._keys.rotate(request.algorithm, lead=lead, retention=retention)
        return signing_pb.RotateSigningKeyResponse(key=_signing_key_message(key, "next" if lead else "signing"))

    async def withdraw_signing_key(
        self, _: OperatorCall, request: signing_pb.WithdrawSigningKeyRequest
    ) -> signing_pb.WithdrawSigningKeyResponse:
        """Removes a signing key."""
        check_present("id", request.id)
        await self._keys.withdraw(request.id)
        return signing_pb.WithdrawSigningKeyResponse()


def _signing_key_message(key: SigningKey, state: SigningKeyState) -> signing_pb.SigningKey:
    message = signing_pb.SigningKey(id=key.id, algorithm=key.algorithm, state=_SIGNING_KEY_STATES.get(state))
    set_timestamps(message, created=key.made, signs=key.signs, until=key.until)
    return message
