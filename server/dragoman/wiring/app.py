"""The composition root: opens a server's components in dependency order.

Infrastructure (store, bus, certificates, outbound client), agents, runtime, listeners. Shutdown runs in reverse order,
so that requests in flight keep the components they depend on.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

from dragoman.agents.functions.startup import StartupHook
from dragoman.agents.upstream.registry import LocalUpstreamRegistry
from dragoman.agents.workers.connection import HeartbeatTimings
from dragoman.agents.workers.hub import LocalWorkerHub
from dragoman.bindings import pages
from dragoman.bindings.event_encoders import DialectWebhookEncoder
from dragoman.bindings.options import CREDENTIAL_CHECK_INTERVAL, SHUTDOWN_GRACE_SECONDS, BoundAddress, ServerOptions
from dragoman.bindings.request_log import RequestMetrics
from dragoman.core.cards.agent_spec import AgentSpec
from dragoman.core.errors import Unavailable
from dragoman.ports import Agent, Authenticator, OutboundHttp
from dragoman.runtime import AuditOptions, Coalesce, Limits, Ports, PushOptions, Runtime, RuntimeConfig, open_runtime
from dragoman.runtime.lease import Lease
from dragoman.runtime.sessions import LEASE_SECONDS
from dragoman.runtime.timings import Timings
from dragoman.security.signing import StoredSigningKeys, WebhookSigner
from dragoman.security.tls.certificate_files import CertificateFiles
from dragoman.settings.settings import Settings, SettingsError
from dragoman.stores.sqlite.store import now_ms
from dragoman.wiring.agent_loader import load_own_app
from dragoman.wiring.agents import CardFile, access_policy_of, open_agents, run_startup_hooks
from dragoman.wiring.infra import check_role, open_infra, store_start_error
from dragoman.wiring.listeners import ApiParts, ServerUrl, health_options, listen, reachable_url, serve_api
from dragoman.wiring.loop_guard import dump_path, guarded_loop, read_dump
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

    def running_turns(self) -> list[str]:
        """The running turns, for the log."""
        return [f"agent {runner.record.agent} (task {runner.record.id})" for runner in self.runtime.scheduler.runs]

    @property
    def repeatable(self) -> int:
        """The number of running turns that start again if this process stops, instead of ending as FAILED."""
        return self.runtime.scheduler.repeatable

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


@dataclass(frozen=True, slots=True)
class AppTimings:
    """Waits and intervals that no setting changes, in seconds."""

    runtime: Timings = field(default_factory=lambda: RuntimeConfig().timings)
    grace: float = SHUTDOWN_GRACE_SECONDS
    """For calls in flight when the listeners close; streams end at once."""
    credential_check_interval: float = CREDENTIAL_CHECK_INTERVAL
    """Between two checks of the credentials behind open streams."""
    lease: float = LEASE_SECONDS
    """Of this process, unless no other uses the store."""
    workers: HeartbeatTimings | None = None
    """Heartbeats and leases of connected workers; None for the defaults."""


@asynccontextmanager
async def open_app(
    settings: Settings,
    agents: Sequence[Agent] | None = None,
    authenticator: Authenticator | None = None,
    *,
    startup_hooks: Sequence[StartupHook[..., Any]] = (),
    outbound: OutboundHttp | None = None,
    shared: bool = False,
    guards_loop: bool = False,
    timings: AppTimings | None = None,
) -> AsyncIterator[App]:
    """Serves `agents`, by default those of `settings.agents.app`, while the block runs.

    authenticator, outbound: used instead of those in the settings. startup_hooks: run besides those of the agents'
    modules. shared: other server processes listen on the same ports. guards_loop: end this process if its loop is
    blocked for too long.

    Raises StartError, SettingsError (also for settings of unknown agents), and LoadError for APP.
    """
    if agents is None:
        app = load_own_app(settings)
        agents, startup_hooks = app.agents, [*app.startup_hooks, *startup_hooks]
    timings = timings or AppTimings()
    check_role(settings)
    async with AsyncExitStack() as stack:
        infra = await open_infra(stack, settings, outbound)
        if settings.cluster.role != "server":  # which runs no turn of these agents
            await stack.enter_async_context(run_startup_hooks(agents, startup_hooks))
        tracing = await start_tracing(stack, settings)
        tracer = tracing.recorder if tracing else None

        config = runtime_config(settings, timings.runtime)
        lease = None if infra.exclusive else Lease(timings.lease)
        server_agents = await open_agents(stack, infra, settings, agents, lease, timings.workers)
        access_policy = access_policy_of(settings, server_agents.registry.agents.keys())

        url, listening = ServerUrl(settings.public.url), asyncio.Event()
        signing_keys = StoredSigningKeys(
            infra.store.key_values, infra.store.secret("webhooks"), infra.secret_box, clock=now_ms
        )
        webhook_encoder = DialectWebhookEncoder(WebhookSigner(signing_keys, url.get), infra.secret_box)
        push_options = PushOptions(infra.outbound, webhook_encoder, settings.push.retry_policy, ready=listening)
        infra.store.blobs.set_base_url(url.get)

        push = push_options if settings.sends_push else None
        ports = Ports(infra.store, infra.bus, server_agents.registry, push, tracer)
        blocked = read_dump(dump_path(settings))
        if guards_loop:  # before the first turn begins
            stack.enter_context(guarded_loop(settings.limits.loop_exit, agents, dump_path(settings)))
        config = replace(
            config,
            root=server_agents.root,
            allow_no_agents=server_agents.is_empty,
            exclusive=infra.exclusive,
            lease=timings.lease,
            run_lease=lease,
            blocked=blocked,
            access_policy=access_policy,
        )
        runtime = await _enter_runtime(stack, settings, ports, config)

        draining, request_metrics = asyncio.Event(), RequestMetrics(tracer)
        metrics = MetricsEndpoint(settings, runtime, request_metrics, draining, tracing)
        metrics_address = None
        if settings.listen.metrics is not None:
            metrics_server = pages.serve_metrics(
                settings.listen.metrics.host, settings.listen.metrics.port, metrics.read
            )
            metrics_address = await listen(stack, "--metrics", settings.listen.metrics, metrics_server)
        options = ServerOptions(
            shared=shared,
            grace=timings.grace,
            credential_check_interval=timings.credential_check_interval,
            certificates=infra.certificates,
            connections=settings.limits.connections,
            draining=draining,
            store_problem=runtime.store_problem,
            access_policy=access_policy,
            request_metrics=request_metrics,
        )
        new_app = partial(
            App,
            store=settings.store.name,
            runtime=runtime,
            draining=draining,
            worker_hub=server_agents.worker_hub,
            upstreams=server_agents.upstreams,
            certificates=infra.certificates,
            metrics=metrics_address,
        )
        if settings.cluster.role == "worker":
            await server_agents.follow(stack, infra)
            health_server = pages.serve_health(health_options(options, settings, infra))
            health = await listen(stack, "--http", settings.listen.http, health_server)
            yield new_app(http=health, grpc_address=None, public_url=reachable_url(health))
            return
        api = ApiParts(infra, server_agents, runtime, options, signing_keys, metrics.read, authenticator)
        http_address, grpc_address, card_file = await serve_api(stack, settings, api)
        url.value = settings.public.url or reachable_url(http_address)
        listening.set()
        if infra.lock is not None:
            infra.lock.publish(http=reachable_url(http_address), grpc=str(grpc_address))
        yield new_app(http=http_address, grpc_address=grpc_address, public_url=url.value, card_file=card_file)


async def _enter_runtime(stack: AsyncExitStack, settings: Settings, ports: Ports, config: RuntimeConfig) -> Runtime:
    """Raises SettingsError for an unknown root agent, StartError for a store that cannot be written."""
    try:
        return await stack.enter_async_context(open_runtime(ports, config))
    except ValueError as error:
        raise SettingsError(f"--root: {error}") from error
    except Unavailable as error:  # the store can be opened, but not written
        raise store_start_error(settings.store.name, error.__cause__ or error) from error


def runtime_config(settings: Settings, timings: Timings) -> RuntimeConfig:
    """The configuration of a runtime, from the settings."""
    return RuntimeConfig(
        runs_agents=settings.cluster.role != "server",
        slots=settings.limits.slots,
        strict=settings.protocol.strict_transitions,
        shows_error_texts=settings.shows_error_texts,
        loop_timeout=settings.limits.loop_timeout,
        worker_wait=settings.limits.worker_wait,
        limits=Limits(
            message_bytes=settings.limits.message_bytes,
            blocking_wait=settings.limits.blocking_wait,
            blocking_default=settings.protocol.blocking_default,
            message_id_is_key=settings.protocol.idempotent_message_ids,
        ),
        retention=settings.retention.tasks,
        coalesce=Coalesce(settings.limits.coalesce_ms / 1000, settings.limits.coalesce_bytes),
        isolation=settings.access.isolation,
        quotas=settings.quotas,
        budgets=settings.access.budgets,
        audit=AuditOptions(now_ms, settings.retention.audit, settings.retention.audit_age or 0),
        timings=timings,
    )
