"""The composition root: opens a server's components in dependency order.

Lock, store, bus, runtime, gRPC, HTTP. Shutdown runs in reverse order, so that requests in flight keep the components
they depend on.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from dragoman.agents.functions.startup import StartupHook
from dragoman.agents.upstream.registry import LocalUpstreamRegistry
from dragoman.agents.workers.hub import LocalWorkerHub
from dragoman.bindings import pages
from dragoman.bindings.admin.handlers import AdminServices
from dragoman.bindings.cards import Cards
from dragoman.bindings.event_encoders import DialectWebhookEncoder
from dragoman.bindings.grpc import server as grpc
from dragoman.bindings.http import server as http
from dragoman.bindings.options import BoundAddress, HttpOptions, ServerOptions
from dragoman.bindings.request_log import AuthFailureLog, RequestMetrics
from dragoman.core.access.identity import AccessPolicy
from dragoman.core.cards.agent_spec import AgentSpec
from dragoman.core.cards.security_schemes import server_security
from dragoman.core.errors import Unavailable
from dragoman.ports import Agent, Authenticator, OutboundHttp
from dragoman.runtime import AuditOptions, Coalesce, Limits, PushOptions, Runtime, open_runtime
from dragoman.runtime.api_keys import ApiKeyService
from dragoman.runtime.operations.caller_tasks import CallerTasks
from dragoman.security.authenticators.composite import open_security
from dragoman.security.secret_box import InvalidSecretKeys, open_secret_box
from dragoman.security.signing import JwsCardSigner, StoredSigningKeys, WebhookSigner
from dragoman.security.tls.certificate_files import CertificateFiles
from dragoman.settings.settings import Address, Settings, SettingsError
from dragoman.stores.sqlite.store import now_ms
from dragoman.supervision import Background, start_task
from dragoman.wiring.agent_loader import load_app
from dragoman.wiring.agents import CardFile, open_agents, open_card_file, run_startup_hooks
from dragoman.wiring.infra import (
    StartError,
    check_role,
    open_bus,
    open_outbound,
    open_store,
    open_tls,
    store_start_error,
)
from dragoman.wiring.telemetry import MetricsEndpoint, start_tracing

STREAM_FLUSH_SECONDS: Final = 0.2
"""Seconds for the last events of a turn to reach subscribers before their streams are closed."""


@dataclass(frozen=True, slots=True)
class App:
    """A running server."""

    http: BoundAddress
    grpc_address: BoundAddress | None
    """None for a worker process, which serves only `/healthz` and `/readyz` over HTTP."""
    public_url: str
    """The URL for clients: the setting, else the HTTP address as seen from this machine."""
    store: str
    """The store for display, without secrets."""
    runtime: Runtime
    draining: asyncio.Event
    worker_hub: LocalWorkerHub
    """The hub of workers."""
    upstreams: LocalUpstreamRegistry
    """The registry of upstream agents."""
    certificates: CertificateFiles | None = None
    """Set when both ports are encrypted."""
    card_file: CardFile | None = None
    """The card overrides; None without a card file."""
    metrics: BoundAddress | None = None
    """The separate address of `/metrics`, if any."""

    @property
    def grpc(self) -> BoundAddress:
        """The gRPC address; only for processes that serve gRPC."""
        assert self.grpc_address is not None
        return self.grpc_address

    @property
    def agents(self) -> Mapping[str, AgentSpec]:
        """The agents by id."""
        return self.runtime.operations.access.agents

    @property
    def root(self) -> str:
        """The id of the root agent, for requests that name none."""
        return self.runtime.operations.access.root

    @property
    def card_url(self) -> str:
        """The URL of the root agent's card."""
        return f"{self.public_url}/.well-known/agent-card.json"

    @property
    def running(self) -> int:
        """The number of running turns."""
        return self.runtime.scheduler.running

    async def drain(self, limit: float, report: Callable[[int], None] | None = None) -> None:
        """Starts no more turns, and gives running ones `limit` seconds to finish; the rest end as FAILED.

        Meanwhile new messages are rejected with Unavailable, `/readyz` and gRPC health report not ready, and other
        requests are served. `report` receives the number of running turns once a second. At the end, calls that wait
        for turns of other processes return their tasks unfinished.
        """
        self.draining.set()
        await self.runtime.scheduler.drain(limit, report)
        self.runtime.feeds.release_waits()
        if self.running:
            await self.runtime.scheduler.stop()
            await asyncio.sleep(STREAM_FLUSH_SECONDS)


@asynccontextmanager
async def open_app(
    settings: Settings,
    agents: Sequence[Agent] | None = None,
    authenticator: Authenticator | None = None,
    *,
    startup_hooks: Sequence[StartupHook[..., Any]] = (),
    outbound: OutboundHttp | None = None,
    shared: bool = False,
) -> AsyncIterator[App]:
    """Serves `agents`, by default those of `settings.app`, while the block runs.

    authenticator, outbound: used instead of those in the settings. startup_hooks: run besides those of the agents'
    modules. shared: other server processes listen on the same ports.

    Raises StartError, SettingsError (also for settings of unknown agents), and LoadError for APP.
    """
    if agents is None:
        app = load_app(settings.own_app)
        agents, startup_hooks = app.agents, [*app.startup_hooks, *startup_hooks]
    check_role(settings)
    async with AsyncExitStack() as stack:
        lock, store = await open_store(stack, settings, wait=True)
        stack.push_async_callback(store.close)
        if settings.role != "server":  # which runs no turn of these agents
            await stack.enter_async_context(run_startup_hooks(agents, startup_hooks))
        tracing = await start_tracing(stack, settings)
        tracer = tracing.recorder if tracing else None
        try:
            secret_box = open_secret_box(settings.secrets_keys)
        except InvalidSecretKeys as error:
            raise SettingsError(f"--secrets-keys: {error}") from error
        server_agents = await open_agents(stack, store, settings, secret_box, agents)
        bus = await open_bus(stack, settings, store.epoch)
        certificates, client_certificates = open_tls(stack, settings)
        if outbound is None:
            outbound = open_outbound(settings)
            stack.push_async_callback(outbound.close)
        access_policy = AccessPolicy(settings.requires_auth, frozenset(settings.public_agents), settings.private_pages)
        if absent := access_policy.public_agents - server_agents.ids - {"*"}:
            raise SettingsError(f"--public-agents: agent {', '.join(sorted(absent))} is not served")
        base_url, listening = "", asyncio.Event()
        signing_keys = StoredSigningKeys(store.key_values, store.secret("letters"), secret_box, clock=now_ms)
        webhook_encoder = DialectWebhookEncoder(WebhookSigner(signing_keys, lambda: base_url), secret_box)
        push_options = (
            PushOptions(outbound, webhook_encoder, settings.push_retry_policy, ready=listening)
            if settings.sends_push
            else None
        )
        try:
            runtime = await stack.enter_async_context(
                open_runtime(
                    store,
                    bus,
                    server_agents.agents,
                    root=server_agents.root,
                    exclusive=lock is not None,
                    allow_no_agents=server_agents.is_empty,
                    limits=Limits(
                        message_bytes=settings.message_bytes,
                        blocking_wait=settings.blocking_wait,
                        blocking_default=settings.blocking_default,
                        message_id_is_key=settings.idempotent_message_ids,
                    ),
                    slots=settings.slots,
                    strict=settings.strict_transitions,
                    retention=settings.retention_policy,
                    isolation=settings.isolation,
                    quotas=settings.quotas,
                    coalesce=Coalesce(settings.coalesce_ms / 1000, settings.coalesce_bytes),
                    access_policy=access_policy,
                    push_options=push_options,
                    worker_wait=settings.worker_wait,
                    runs_agents=settings.role != "server",
                    audit=AuditOptions(now_ms, settings.audit, settings.retain_audit or 0),
                    tracer=tracer,
                    budgets=settings.budgets,
                )
            )
        except ValueError as error:
            raise SettingsError(f"--root: {error}") from error
        except Unavailable as error:  # the store can be opened, but not written
            raise store_start_error(settings.store_name, error.__cause__ or error) from error
        auditor = runtime.auditor
        draining, request_metrics = asyncio.Event(), RequestMetrics(tracer)
        auth_failures = AuthFailureLog(audit=auditor.note_denied if auditor else None)
        metrics = MetricsEndpoint(settings, runtime, request_metrics, draining, tracing)
        metrics_address = None
        if settings.metrics is not None:
            metrics_server = pages.serve_metrics(settings.metrics.host, settings.metrics.port, metrics.read)
            metrics_address = await _listen(stack, "--metrics", settings.metrics, metrics_server)
        if settings.role == "worker":
            http_options = HttpOptions(
                host=settings.http.host,
                port=settings.http.port,
                certificates=certificates,
                connections=settings.connections,
                shared=shared,
                draining=draining,
                store_problem=runtime.store_problem,
                bus_problem=lambda: bus.problem,
            )
            await server_agents.attach(stack, runtime.registry, bus, exclusive=False)
            health_address = await _listen(stack, "--http", settings.http, pages.serve_health(http_options))
            yield App(
                health_address,
                None,
                _reachable_url(health_address),
                settings.store_name,
                runtime,
                draining,
                server_agents.worker_hub,
                server_agents.upstreams,
                certificates,
                metrics=metrics_address,
            )
            return
        security = await stack.enter_async_context(
            open_security(
                token=settings.token.get_secret_value(),
                api_keys=store.api_keys if settings.api_keys else None,
                issuers=settings.issuers,
                outbound=outbound,
                clock=now_ms,
                certificates=client_certificates,
            )
        )
        authenticator = authenticator or security.authenticator
        api_keys = ApiKeyService(store.api_keys, clock=now_ms, on_change=security.forget)
        cards = Cards(
            runtime.operations.access.agents,
            runtime.operations.access.root,
            public_url=settings.public_url,
            public_grpc=settings.public_grpc,
            trusted_proxies=settings.trusted_proxies,
            security=server_security(
                token=bool(settings.token.get_secret_value()),
                keys=settings.api_keys,
                issuers=settings.issuers,
                certificates=settings.tls_client_ca is not None,
            ),
            access_policy=access_policy,
            push=settings.push,
            signer=JwsCardSigner(signing_keys) if settings.sign_cards else None,
            versions=settings.card_versions,
        )
        if settings.sign_cards:
            await _watch_signing_keys(stack, signing_keys, cards)
        card_file = open_card_file(stack, settings.card_file, cards.apply_overrides)
        runtime.registry.add_listener(cards.put_agent, cards.remove_agent)
        await server_agents.attach(stack, runtime.registry, bus, exclusive=lock is not None)
        store.blobs.set_base_url(lambda: base_url or cards.base_url(None))
        grpc_options = ServerOptions(
            host=settings.grpc.host,
            port=settings.grpc.port,
            channelz=settings.channelz,
            shared=shared,
            message_bytes=settings.message_bytes,
            error_table=settings.error_table,
            v03_files=settings.v03_files,
            certificates=certificates,
            connections=settings.connections,
            authenticator=authenticator,
            client_certificates=client_certificates,
            access_policy=access_policy,
            private_pages=settings.private_pages,
            auth_failures=auth_failures,
            request_metrics=request_metrics,
            auditor=auditor,
            draining=draining,
            store_problem=runtime.store_problem,
        )
        http_options = HttpOptions(
            host=settings.http.host,
            port=settings.http.port,
            shared=shared,
            message_bytes=settings.message_bytes,
            error_table=settings.error_table,
            v03_files=settings.v03_files,
            certificates=certificates,
            connections=settings.connections,
            authenticator=authenticator,
            client_certificates=client_certificates,
            access_policy=access_policy,
            private_pages=settings.private_pages,
            auth_failures=auth_failures,
            request_metrics=request_metrics,
            auditor=auditor,
            cors=settings.cors,
            draining=draining,
            store_problem=runtime.store_problem,
            keepalive=settings.keepalive,
            lossy_numbers=settings.lossy_numbers,
            openapi=openapi_files(),
            blobs=store.blobs,
            jwks=signing_keys.public if settings.push or settings.sign_cards else None,
            bus_problem=lambda: bus.problem,
            metrics=metrics.read,
        )
        admin = AdminServices(
            CallerTasks(store, runtime.operations.access, runtime.operations.admission),
            runtime.explainer,
            runtime.maintenance,
            runtime.redelivery,
            api_keys,
            signing_keys,
            server_agents.worker_hub,
            server_agents.upstreams,
        )
        grpc_address = await _listen(
            stack, "--grpc", settings.grpc, grpc.serve_grpc(runtime.operations, cards, grpc_options, admin)
        )
        http_address = await _listen(
            stack, "--http", settings.http, http.serve_http(runtime.operations, cards, http_options, admin)
        )
        base_url = cards.base_url(None)  # kept for webhooks that are sent after the listeners have closed
        listening.set()
        if lock is not None:
            lock.publish(http=_reachable_url(http_address), grpc=str(grpc_address))
        yield App(
            http_address,
            grpc_address,
            settings.public_url or _reachable_url(http_address),
            settings.store_name,
            runtime,
            draining,
            server_agents.worker_hub,
            server_agents.upstreams,
            certificates,
            card_file,
            metrics_address,
        )


async def _watch_signing_keys(stack: AsyncExitStack, signing_keys: StoredSigningKeys, cards: Cards) -> None:
    """Re-signs cards when the signing key changes, until the stack closes."""
    await signing_keys.current()
    signing_keys.change_listeners.append(cards.clear_cache)
    stack.callback(start_task(Background.SIGNING_KEYS, signing_keys.watch).cancel)


async def _listen(
    stack: AsyncExitStack, option: str, address: Address, server: AbstractAsyncContextManager[BoundAddress]
) -> BoundAddress:
    try:
        return await stack.enter_async_context(server)
    except OSError as error:
        reason = error.strerror or "in use by another process, or not an address of this machine"
        raise StartError(
            f"{option}: cannot listen on {address}: {reason}; choose another, or port 0 for any"
        ) from error


def _reachable_url(bound: BoundAddress) -> str:
    return (replace(bound, host="127.0.0.1") if bound.is_any else bound).url


@cache
def openapi_files() -> Mapping[str, bytes]:
    """The OpenAPI documents by relative path: beside the generated code in a wheel, one up in a source tree."""
    package = files("dragoman_pb")
    for folder in (package / "openapi", package / ".." / "openapi"):
        root = Path(str(folder))
        if root.is_dir():
            return {path.relative_to(root).as_posix(): path.read_bytes() for path in sorted(root.rglob("*.json"))}
    return {}
