"""The composition root: opens a server's components in dependency order.

Infrastructure (store, bus, certificates, outbound client), agents, runtime, listeners. Shutdown runs in reverse order,
so that requests in flight keep the components they depend on.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final

from dragoman.agents.functions.startup import StartupHook
from dragoman.agents.upstream.registry import LocalUpstreamRegistry
from dragoman.agents.workers.connection import HeartbeatTimings
from dragoman.agents.workers.hub import LocalWorkerHub
from dragoman.bindings import pages
from dragoman.bindings.event_encoders import DialectWebhookEncoder
from dragoman.bindings.options import CREDENTIAL_CHECK_INTERVAL, SHUTDOWN_GRACE_SECONDS, BoundAddress, ServerOptions
from dragoman.bindings.request_log import RequestMetrics
from dragoman.core.access.identity import AccessPolicy
from dragoman.core.cards.agent_spec import AgentSpec
from dragoman.core.errors import Unavailable
from dragoman.ports import Agent, Authenticator, OutboundHttp
from dragoman.runtime import AuditOptions, Coalesce, Limits, Ports, PushOptions, Runtime, RuntimeConfig, open_runtime
from dragoman.runtime.lease import Lease
from dragoman.runtime.sessions import LEASE_SECONDS, BlockedLoop
from dragoman.runtime.timings import Timings
from dragoman.security.signing import StoredSigningKeys, WebhookSigner
from dragoman.security.tls.certificate_files import CertificateFiles
from dragoman.settings.settings import Settings, SettingsError
from dragoman.stores.sqlite.store import now_ms
from dragoman.wiring.agent_loader import load_own_app
from dragoman.wiring.agents import CardFile, ServerAgents, access_policy_of, open_agents, run_startup_hooks
from dragoman.wiring.infra import Infra, check_role, open_infra, store_start_error
from dragoman.wiring.listeners import ApiParts, ServerUrl, health_options, listen, reachable_url, serve_api
from dragoman.wiring.loop_guard import dump_path, guarded_loop, read_dump
from dragoman.wiring.telemetry import MetricsEndpoint, Tracing, start_tracing

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
        return [
            f"agent {runner.context.record.agent} (task {runner.context.record.id})"
            for runner in self.runtime.scheduler.runs
        ]

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
    check_role(settings)
    start = _Start(
        settings, agents, startup_hooks, authenticator, outbound, shared, guards_loop, timings or AppTimings()
    )
    async with AsyncExitStack() as stack:
        for component in start.components:
            await component(stack)
        yield start.app


@dataclass(slots=True)
class _Start:
    """The start of one server. Each of its `components` sets fields, and leaves to the stack what closes it."""

    settings: Settings
    own_agents: Sequence[Agent]
    startup_hooks: Sequence[StartupHook[..., Any]]
    authenticator: Authenticator | None
    outbound: OutboundHttp | None
    shared: bool
    guards_loop: bool
    timings: AppTimings

    draining: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    listening: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    url: ServerUrl = field(init=False)
    infra: Infra = field(init=False)
    tracing: Tracing | None = field(init=False)
    lease: Lease | None = field(init=False)
    agents: ServerAgents = field(init=False)
    access_policy: AccessPolicy = field(init=False)
    signing_keys: StoredSigningKeys = field(init=False)
    blocked: BlockedLoop | None = field(init=False)
    runtime: Runtime = field(init=False)
    options: ServerOptions = field(init=False)
    metrics: MetricsEndpoint = field(init=False)
    metrics_address: BoundAddress | None = field(default=None, init=False)
    app: App = field(init=False)

    @property
    def components(self) -> Sequence[Callable[[AsyncExitStack], Awaitable[None]]]:
        """The components in the order of their start; each needs some of those before. They stop in reverse."""
        listeners = self._open_health if self.settings.cluster.role == "worker" else self._open_api
        return (
            self._open_infra,
            self._run_startup_hooks,
            self._open_tracing,
            self._open_agents,
            self._guard_loop,  # before the first turn begins
            self._open_runtime,
            self._open_metrics,
            listeners,
        )

    async def _open_infra(self, stack: AsyncExitStack) -> None:
        self.infra = await open_infra(stack, self.settings, self.outbound)
        self.url = ServerUrl(self.settings.public.url)
        self.infra.store.blobs.set_base_url(self.url.get)
        secrets = self.infra.store.secret("webhooks")
        self.signing_keys = StoredSigningKeys(self.infra.store.key_values, secrets, self.infra.secret_box, clock=now_ms)

    async def _run_startup_hooks(self, stack: AsyncExitStack) -> None:
        if self.settings.cluster.role != "server":  # which runs no turn of these agents
            await stack.enter_async_context(run_startup_hooks(self.own_agents, self.startup_hooks))

    async def _open_tracing(self, stack: AsyncExitStack) -> None:
        self.tracing = await start_tracing(stack, self.settings)

    async def _open_agents(self, stack: AsyncExitStack) -> None:
        self.lease = None if self.infra.exclusive else Lease(self.timings.lease)
        self.agents = await open_agents(
            stack, self.infra, self.settings, self.own_agents, self.lease, self.timings.workers
        )
        self.access_policy = access_policy_of(self.settings, self.agents.registry.agents.keys())

    async def _guard_loop(self, stack: AsyncExitStack) -> None:
        self.blocked = read_dump(dump_path(self.settings))
        if self.guards_loop:
            loop_exit = self.settings.limits.loop_exit
            stack.enter_context(guarded_loop(loop_exit, self.own_agents, dump_path(self.settings)))

    async def _open_runtime(self, stack: AsyncExitStack) -> None:
        """Raises SettingsError for an unknown root agent, StartError for a store that cannot be written."""
        infra, settings = self.infra, self.settings
        encoder = DialectWebhookEncoder(WebhookSigner(self.signing_keys, self.url.get), infra.secret_box)
        push = PushOptions(infra.outbound, encoder, settings.push.retry_policy, ready=self.listening)
        tracer = self.tracing.recorder if self.tracing else None
        ports = Ports(infra.store, infra.bus, self.agents.registry, push if settings.sends_push else None, tracer)
        config = replace(
            runtime_config(settings, self.timings.runtime),
            root=self.agents.root,
            allow_no_agents=self.agents.is_empty,
            exclusive=infra.exclusive,
            lease=self.timings.lease,
            run_lease=self.lease,
            blocked=self.blocked,
            access_policy=self.access_policy,
        )
        try:
            self.runtime = await stack.enter_async_context(open_runtime(ports, config))
        except ValueError as error:
            raise SettingsError(f"--root: {error}") from error
        except Unavailable as error:  # the store can be opened, but not written
            raise store_start_error(settings.store.name, error.__cause__ or error) from error

    async def _open_metrics(self, stack: AsyncExitStack) -> None:
        requests = RequestMetrics(self.tracing.recorder if self.tracing else None)
        self.metrics = MetricsEndpoint(self.settings, self.runtime, requests, self.draining, self.tracing)
        if (address := self.settings.listen.metrics) is not None:
            server = pages.serve_metrics(address.host, address.port, self.metrics.read)
            self.metrics_address = await listen(stack, "--metrics", address, server)
        self.options = ServerOptions(
            shared=self.shared,
            grace=self.timings.grace,
            credential_check_interval=self.timings.credential_check_interval,
            certificates=self.infra.certificates,
            connections=self.settings.limits.connections,
            draining=self.draining,
            store_problem=self.runtime.store_problem,
            access_policy=self.access_policy,
            request_metrics=requests,
        )

    async def _open_health(self, stack: AsyncExitStack) -> None:
        await self.agents.follow(stack, self.infra)
        server = pages.serve_health(health_options(self.options, self.settings, self.infra))
        health = await listen(stack, "--http", self.settings.listen.http, server)
        self.app = self._app(health, None, reachable_url(health))

    async def _open_api(self, stack: AsyncExitStack) -> None:
        api = ApiParts(
            self.infra,
            self.agents,
            self.runtime,
            self.options,
            self.signing_keys,
            self.metrics.read,
            self.authenticator,
        )
        http_address, grpc_address, card_file = await serve_api(stack, self.settings, api)
        self.url.value = self.settings.public.url or reachable_url(http_address)
        self.listening.set()
        if self.infra.lock is not None:
            self.infra.lock.publish(http=reachable_url(http_address), grpc=str(grpc_address))
        self.app = self._app(http_address, grpc_address, self.url.value, card_file)

    def _app(
        self, http: BoundAddress, grpc: BoundAddress | None, public_url: str, card_file: CardFile | None = None
    ) -> App:
        return App(
            http=http,
            grpc_address=grpc,
            public_url=public_url,
            store=self.settings.store.name,
            runtime=self.runtime,
            draining=self.draining,
            worker_hub=self.agents.worker_hub,
            upstreams=self.agents.upstreams,
            certificates=self.infra.certificates,
            card_file=card_file,
            metrics=self.metrics_address,
        )


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
