"""Operator calls for agents, workers, upstreams and keys (`dragoman.ops.v1`).

The operations map request messages to response messages and raise A2AError. They do not use gRPC, so the command line
can create API keys in a store that no server holds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from dragoman.bindings.admin.actions import OperatorCall
from dragoman.bindings.admin.fields import check_present, message_from
from dragoman.bindings.cards import Cards
from dragoman.core import agent_sources
from dragoman.core.access import signing_keys
from dragoman.core.access.caller_credentials import ApiKey
from dragoman.core.access.identity import SCOPE_GRANT_PREFIX, Identity
from dragoman.core.access.signing_keys import SigningKey, SigningKeyState
from dragoman.core.errors import AgentNotFound, InvalidParams, PermissionDenied
from dragoman.ports import SigningKeys, UpstreamRegistry, UpstreamStatus, WorkerHub, WorkerStatus
from dragoman.runtime import Runtime
from dragoman.runtime.maintenance.api_keys import ApiKeyService
from dragoman.runtime.maintenance.pauses import AgentPause
from dragoman_pb.dragoman.ops import v1 as ops


@dataclass(frozen=True, slots=True)
class AgentOperations:
    """Lists, pauses and resumes agents; adds and removes remote ones."""

    cards: Cards
    runtime: Runtime
    worker_hub: WorkerHub
    upstream_registry: UpstreamRegistry

    async def list_agents(self, _: OperatorCall, request: ops.ListAgentsRequest) -> ops.ListAgentsResponse:
        scheduler = self.runtime.scheduler
        agents = [
            message_from(
                ops.Agent, spec, root=spec.id == self.cards.root, card_url=self.cards.card_url(spec.id, None),
                threads_left_behind=scheduler.leaked_threads(spec.id),
                pause=_pause_message(scheduler.pauses.by_agent.get(spec.id)),
            )
            for spec in self.cards.sorted_agents()
        ]  # fmt: skip
        return ops.ListAgentsResponse(agents=agents)

    async def pause_agent(self, operator: OperatorCall, request: ops.PauseAgentRequest) -> ops.PauseAgentResponse:
        _check_pause(operator.identity, request.agent)
        if request.agent not in {spec.id for spec in self.cards.sorted_agents()}:
            raise AgentNotFound
        if len(request.reason) > MAX_PAUSE_REASON:
            raise InvalidParams.field("reason", f"must have at most {MAX_PAUSE_REASON} characters")
        pause = await self.runtime.scheduler.pauses.pause(request.agent, operator.identity.principal, request.reason)
        return ops.PauseAgentResponse(pause=_pause_message(pause))

    async def resume_agent(self, operator: OperatorCall, request: ops.ResumeAgentRequest) -> ops.ResumeAgentResponse:
        _check_pause(operator.identity, request.agent)
        await self.runtime.scheduler.pauses.resume(request.agent)
        return ops.ResumeAgentResponse()

    async def list_workers(self, _: OperatorCall, request: ops.ListWorkersRequest) -> ops.ListWorkersResponse:
        return ops.ListWorkersResponse(
            agents=[
                message_from(
                    ops.WorkerAgent, status, seen=status.last_seen, workers=map(_worker_message, status.workers)
                )
                for status in self.worker_hub.list_agents()
            ]
        )

    async def forget_agent(self, _: OperatorCall, request: ops.ForgetAgentRequest) -> ops.ForgetAgentResponse:
        """Removes an agent without connected workers, which frees its id."""
        check_present("agent", request.agent)
        return ops.ForgetAgentResponse(ended_tasks=await self.worker_hub.forget(request.agent))

    async def list_upstreams(self, _: OperatorCall, request: ops.ListUpstreamsRequest) -> ops.ListUpstreamsResponse:
        return ops.ListUpstreamsResponse(upstreams=map(_upstream_message, self.upstream_registry.status()))

    async def add_upstream(self, _: OperatorCall, request: ops.AddUpstreamRequest) -> ops.AddUpstreamResponse:
        table: dict[str, Any] = {
            "url": request.url, "id": request.id, "prefix": request.prefix, "headers": dict(request.headers),
            "time_limit": request.time_limit.seconds + request.time_limit.nanos / 1e9,
        }  # fmt: skip
        if request.turns:
            table["turns"] = request.turns
        try:
            upstream = agent_sources.upstream_from_table(table)
        except ValueError as error:
            field, separator, rule = str(error).partition(": ")
            if not separator:
                raise InvalidParams(str(error)) from error
            raise InvalidParams.field(field, rule) from error
        status = await self.upstream_registry.add(upstream)
        return ops.AddUpstreamResponse(upstream=_upstream_message(status))

    async def remove_upstream(self, _: OperatorCall, request: ops.RemoveUpstreamRequest) -> ops.RemoveUpstreamResponse:
        check_present("agent", request.agent)
        return ops.RemoveUpstreamResponse(ended_tasks=await self.upstream_registry.remove(request.agent))


MAX_PAUSE_REASON: Final = 500  # characters of the reason of a pause


def _check_pause(identity: Identity, agent: str) -> None:
    check_present("agent", agent)
    if scopes := identity.granted(SCOPE_GRANT_PREFIX):
        names = ", ".join(sorted(scopes))
        text = f"your grants are limited to scopes ({names}), and the agent serves all scopes"
        raise PermissionDenied(text, log_details=identity.log_details)


def _pause_message(pause: AgentPause | None) -> ops.AgentPause | None:
    return message_from(ops.AgentPause, pause) if pause else None


def _worker_message(status: WorkerStatus) -> ops.Worker:
    return message_from(ops.Worker, status, free=status.free_turns, running=status.running_turns)


def _upstream_message(status: UpstreamStatus) -> ops.Upstream:
    return message_from(
        ops.Upstream, status, settings=status.from_settings, credentials=status.has_credentials,
        unavailable_ms=round(status.seconds_absent * 1000), last_error=status.problem, running=status.running_turns,
        turns=status.max_turns, last_error_ms=round(status.seconds_since_error * 1000),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class ApiKeyOperations:
    """Creates, lists, rotates and revokes API keys."""

    api_keys: ApiKeyService

    async def create_key(self, _: OperatorCall, request: ops.CreateKeyRequest) -> ops.CreateKeyResponse:
        """Creates an API key. Only this response contains its text."""
        key, text = await self.api_keys.create(
            request.name, principal=request.principal, grants=request.grants, lifetime=request.lifetime.ToMilliseconds()
        )
        return ops.CreateKeyResponse(key=_api_key_message(key), text=text)

    async def list_keys(self, _: OperatorCall, request: ops.ListKeysRequest) -> ops.ListKeysResponse:
        """Lists the API keys, newest first."""
        return ops.ListKeysResponse(keys=map(_api_key_message, await self.api_keys.list(all=request.all)))

    async def rotate_key(self, _: OperatorCall, request: ops.RotateKeyRequest) -> ops.RotateKeyResponse:
        lifetime = request.lifetime.ToMilliseconds() if request.HasField("lifetime") else None
        key, text = await self.api_keys.rotate(request.id, grace=request.grace.ToMilliseconds(), lifetime=lifetime)
        return ops.RotateKeyResponse(key=_api_key_message(key), text=text)

    async def revoke_key(self, _: OperatorCall, request: ops.RevokeKeyRequest) -> ops.RevokeKeyResponse:
        return ops.RevokeKeyResponse(key=_api_key_message(await self.api_keys.revoke(request.id)))


def _api_key_message(key: ApiKey) -> ops.ApiKey:
    return message_from(ops.ApiKey, key, grants=sorted(key.grants), last_used=key.used)


@dataclass(frozen=True, slots=True)
class SigningKeyOperations:
    """Lists, rotates and withdraws signing keys."""

    keys: SigningKeys

    async def list_signing_keys(
        self, _: OperatorCall, request: ops.ListSigningKeysRequest
    ) -> ops.ListSigningKeysResponse:
        return ops.ListSigningKeysResponse(
            keys=[_signing_key_message(key, state) for key, state in await self.keys.list()]
        )

    async def rotate_signing_key(
        self, _: OperatorCall, request: ops.RotateSigningKeyRequest
    ) -> ops.RotateSigningKeyResponse:
        lead = request.lead.ToMilliseconds() if request.HasField("lead") else signing_keys.DEFAULT_KEY_LEAD_MS
        retention = request.keep.ToMilliseconds() if request.HasField("keep") else signing_keys.DEFAULT_KEY_RETENTION_MS
        key = await self.keys.rotate(request.algorithm, lead=lead, retention=retention)
        return ops.RotateSigningKeyResponse(key=_signing_key_message(key, "next" if lead else "signing"))

    async def withdraw_signing_key(
        self, _: OperatorCall, request: ops.WithdrawSigningKeyRequest
    ) -> ops.WithdrawSigningKeyResponse:
        check_present("id", request.id)
        await self.keys.withdraw(request.id)
        return ops.WithdrawSigningKeyResponse()


def _signing_key_message(key: SigningKey, state: SigningKeyState) -> ops.SigningKey:
    name = f"SIGNING_KEY_STATE_{state.upper()}"
    return message_from(ops.SigningKey, key, state=name, created=key.made)
