"""The composition root: opens a server's components in dependency order.

Infrastructure (store, bus, certificates, outbound client), agents, runtime, listeners. Shutdown runs in reverse order,
so that requests in flight keep the components they depend on.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final

from dragoman.agents.functions.startup import StartupHook
from dragoman.agents.workers.connection import HeartbeatTimings
from dragoman.bindings import pages
from dragoman.bindings.admin.actions import OperatorActions
from dragoman.bindings.admin.table import AdminServices, AdminTable
from dragoman.bindings.cards import Cards, PublicAddresses
from dragoman.bindings.event_encoders import DialectWebhookEncoder
from dragoman.bindings.grpc import server as grpc
from dragoman.bindings.http import server as http
from dragoman.bindings.options import CREDENTIAL_CHECK_INTERVAL, SHUTDOWN_GRACE_SECONDS, BoundAddress, ServerOptions
from dragoman.bindings.rejection_log import RejectionLog
from dragoman.core.access.identity import AccessPolicy
from dragoman.core.cards.agent_spec import AgentSpec
from dragoman.core.cards.security_schemes import server_security
from dragoman.core.counters import MetricFamily, MetricSample, RequestMetrics, gauge
from dragoman.core.errors import Unavailable
from dragoman.ids import now_ms
from dragoman.ports import Agent, Authenticator, OutboundHttp
from dragoman.ports.security import IdentifyCaller, SignIn
from dragoman.runtime import AuditOptions, Coalesce, Limits, Ports, PushOptions, Runtime, RuntimeConfig, open_runtime
from dragoman.runtime.lease import Lease
from dragoman.runtime.maintenance.api_keys import ApiKeyService
from dragoman.runtime.sessions import LEASE_SECONDS, BlockedLoop
from dragoman.runtime.timings import Timings
from dragoman.security.authenticators.composite import open_security
from dragoman.security.authenticators.host import HostAuthenticator, ServeExchange, with_scope
from dragoman.security.signing import JwsCardSigner, StoredSigningKeys, WebhookSigner
from dragoman.settings.extensions import installed_extensions
from dragoman.settings.settings import Address, Settings, SettingsError
from dragoman.supervision import Background, start_task
from dragoman.telemetry.spans import SpanRecorder
from dragoman.version import __version__
from dragoman.wiring.agent_loader import load_own_app
from dragoman.wiring.agents import (
    CardFile,
    ServerAgents,
    access_policy_of,
    open_agents,
    open_card_file,
    run_startup_hooks,
)
from dragoman.wiring.infra import Infra, check_role, listen_error, open_infra, store_start_error
from dragoman.wiring.loop_guard import dump_path, guarded_loop, read_dump
from dragoman.wiring.telemetry import Exposition, Tracing, start_tracing

STREAM_FLUSH_SECONDS: Final = 0.2
"""Seconds for the last events of a turn to reach subscribers before their streams are closed."""


@dataclass(frozen=True, slots=True)
class AppTimings:
    """Waits and intervals that no setting changes, in seconds."""

    runtime: Timings = field(default_factory=lambda: RuntimeConfig().timings)
    grace: float = SHUTDOWN_GRACE_SECONDS  # for calls in flight when the listeners close; streams end at once
    credential_check_interval: float = CREDENTIAL_CHECK_INTERVAL
    """Between two checks of the credentials behind open streams."""
    lease: float = LEASE_SECONDS  # of this process, unless no other uses the store
    workers: HeartbeatTimings | None = None  # heartbeats and leases of connected workers; None for the defaults


@dataclass(frozen=True, slots=True)
class Mount:
    """How a server is part of another application, which listens for it."""

    identify: IdentifyCaller | None = None  # who calls; None: the settings' own authentication knows
    console: bool = False  # serve the console, and the HTTP operations of operators
    grpc: bool = False  # serve gRPC, too, on its own address


@dataclass(slots=True, eq=False)
class App:
    """A server. Each of its `components` sets fields at the start, and leaves to the stack what closes it."""

    settings: Settings
    own_agents: Sequence[Agent]
    startup_hooks: Sequence[StartupHook[..., Any]]
    authenticator: Authenticator | None
    outbound: OutboundHttp | None
    shared: bool
    guards_loop: bool
    timings: AppTimings
    mount: Mount | None = None  # HTTP then arrives as ASGI exchanges

    draining: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    listening: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    infra: Infra = field(init=False)
    signing_keys: StoredSigningKeys = field(init=False)
    tracing: Tracing | None = field(init=False)
    lease: Lease | None = field(init=False)
    sources: ServerAgents = field(init=False)
    access_policy: AccessPolicy = field(init=False)
    blocked: BlockedLoop | None = field(init=False)
    runtime: Runtime = field(init=False)
    request_metrics: RequestMetrics = field(default_factory=RequestMetrics, init=False)
    exposition: Exposition | None = field(default=None, init=False)  # created by the first scrape
    metrics: BoundAddress | None = field(default=None, init=False)  # the separate address of `/metrics`, if any
    card_file: CardFile | None = field(default=None, init=False)  # the card overrides; None without a card file
    http: BoundAddress = field(init=False)
    serve_asgi: ServeExchange = field(init=False)  # of a mounted server, which has no `http`
    grpc_address: BoundAddress | None = field(default=None, init=False)
    """None for a worker process, which serves only `/healthz` and `/readyz` over HTTP."""
    public_url: str = field(default="", init=False)
    """The URL for clients: the setting, else the HTTP address as seen from this machine. A mounted server has none."""

    @property
    def grpc(self) -> BoundAddress:
        """The gRPC address; only for processes that serve gRPC."""
        assert self.grpc_address is not None
        return self.grpc_address

    @property
    def agents(self) -> Mapping[str, AgentSpec]:
        return self.runtime.operations.access.agents

    @property
    def root(self) -> str:
        """The id of the root agent, for requests that name none."""
        return self.runtime.operations.access.root

    @property
    def card_url(self) -> str:
        return f"{self.public_url}/.well-known/agent-card.json"

    @property
    def tracer(self) -> SpanRecorder | None:
        """Records spans, if a collector is set."""
        return self.tracing.recorder if self.tracing else None

    def base_url(self) -> str:
        """The base URL of HTTP in webhooks and links: the setting, else known when both ports are bound."""
        return self.settings.public.url or (self.grpc_address and self.public_url) or "http://localhost"

    @property
    def running(self) -> int:
        return self.runtime.scheduler.running

    def running_turns(self) -> list[str]:
        return [
            f"agent {runner.context.record.agent} (task {runner.context.record.id})"
            for runner in self.runtime.scheduler.runs
        ]

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
        self.infra = infra = await open_infra(stack, self.settings, self.outbound)
        infra.store.blobs.set_base_url(self.base_url)
        secret = infra.store.secret("webhooks")
        self.signing_keys = StoredSigningKeys(infra.store.key_values, secret, infra.secret_box, clock=now_ms)

    async def _run_startup_hooks(self, stack: AsyncExitStack) -> None:
        if self.settings.cluster.role != "server":  # which runs no turn of these agents
            await stack.enter_async_context(run_startup_hooks(self.own_agents, self.startup_hooks))

    async def _open_tracing(self, stack: AsyncExitStack) -> None:
        self.tracing = await start_tracing(stack, self.settings)

    async def _open_agents(self, stack: AsyncExitStack) -> None:
        self.lease = None if self.infra.exclusive else Lease(self.timings.lease)
        self.sources = await open_agents(
            stack, self.infra, self.settings, self.own_agents, self.lease, self.timings.workers
        )
        self.access_policy = access_policy_of(self.settings, self.sources.registry.agents.keys())

    async def _guard_loop(self, stack: AsyncExitStack) -> None:
        self.blocked = read_dump(dump_path(self.settings))
        if self.guards_loop:
            loop_exit = self.settings.limits.loop_exit
            stack.enter_context(guarded_loop(loop_exit, self.own_agents, dump_path(self.settings)))

    async def _open_runtime(self, stack: AsyncExitStack) -> None:
        """Raises SettingsError for an unknown root agent, StartError for a store that cannot be written."""
        infra, settings = self.infra, self.settings
        encoder = DialectWebhookEncoder(WebhookSigner(self.signing_keys, self.base_url), infra.secret_box)
        push = PushOptions(infra.outbound, encoder, settings.push.retry_policy, ready=self.listening)
        ports = Ports(infra.store, infra.bus, self.sources.registry, push if settings.sends_push else None, self.tracer)
        config = RuntimeConfig(
            runs_agents=settings.cluster.role != "server",
            slots=settings.limits.slots,
            strict=settings.protocol.strict_transitions,
            shows_error_texts=settings.shows_error_texts,
            loop_timeout=settings.limits.loop_timeout,
            worker_wait=settings.limits.worker_wait,
            cancel_wait=settings.limits.cancel_wait,
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
            timings=self.timings.runtime,
            root=self.sources.root,
            allow_no_agents=self.sources.is_empty,
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
        if (address := self.settings.listen.metrics) is not None:
            server = pages.serve_metrics(address.host, address.port, self.read_metrics)
            self.metrics = await listen(stack, "--metrics", address, server)

    async def read_metrics(self, accept: str = "") -> tuple[bytes, str]:
        """All metrics for an `Accept` header, and their media type."""
        labels, help = (__version__, self.settings.store.kind), "The version of this server, and the kind of its store."
        build = MetricFamily("build_info", "gauge", help, ("version", "store"), (MetricSample(labels, 1),))
        draining = gauge("draining", "Whether the server is about to stop.", self.draining.is_set())
        traces = self.tracing.families() if self.tracing else ()
        families = [build, draining, *traces, *self.request_metrics.families(), *await self.runtime.metrics.families()]
        self.exposition = self.exposition or Exposition()
        return self.exposition.render(families, accept)

    async def _open_health(self, stack: AsyncExitStack) -> None:
        await self.sources.follow(stack, self.infra)
        self.http = await listen(stack, "--http", self.settings.listen.http, pages.serve_health(self._health_options()))
        self.public_url = reachable_url(self.http)

    def _health_options(self) -> ServerOptions:
        """The options of an HTTP server that serves only `/healthz` and `/readyz`."""
        return ServerOptions(
            host=self.settings.listen.http.host,
            port=self.settings.listen.http.port,
            shared=self.shared,
            grace=self.timings.grace,
            credential_check_interval=self.timings.credential_check_interval,
            certificates=self.infra.certificates,
            connections=self.settings.limits.connections,
            draining=self.draining,
            store_problem=self.runtime.store_problem,
            bus_problem=lambda: self.infra.bus.problem,
            access_policy=self.access_policy,
            request_metrics=self.request_metrics,
        )

    async def _open_api(self, stack: AsyncExitStack) -> None:
        """Serves HTTP and gRPC. Raises StartError, SettingsError."""
        settings, infra = self.settings, self.infra
        security = await stack.enter_async_context(
            open_security(
                token=settings.access.token.get_secret_value(),
                api_keys=infra.store.api_keys if settings.access.api_keys else None,
                issuers=settings.access.issuers,
                outbound=infra.outbound,
                clock=now_ms,
                certificates=infra.client_certificates,
            )
        )
        authenticator = self.authenticator or security.authenticator
        if self.mount is not None and self.mount.identify is not None:
            authenticator = HostAuthenticator(self.mount.identify, authenticator, now_ms)
        cards = await self._open_cards(stack)
        await self.sources.follow(stack, infra)
        options = replace(
            self._health_options(),
            message_bytes=settings.limits.message_bytes,
            error_table=settings.protocol.error_table,
            v03_files=settings.protocol.v03_files,
            authenticator=authenticator,
            client_certificates=infra.client_certificates,
            behind_proxy=settings.behind_proxy,
            private_pages=settings.access.private_pages,
            rejections=RejectionLog(audit=self.runtime.auditor),
            tracer=self.tracer,
            cors=settings.protocol.cors,
            keepalive=settings.limits.keepalive,
            lossy_numbers=settings.protocol.lossy_numbers,
            issuers=settings.access.issuers,
            blobs=infra.store.blobs,
            jwks=self.signing_keys.public if settings.push.enabled or settings.public.sign_cards else None,
            console=self.mount is None or self.mount.console,
            console_sign_in=_open_sign_in(settings, infra.outbound),
            extension_paths=[
                (one.http, group)
                for one in installed_extensions()
                if one.http is not None and one.http.is_on(group := settings.extensions[one.name])
            ],
            metrics=self.read_metrics,
        )
        operations, listen_grpc = self.runtime.operations, settings.listen.grpc
        admin = AdminTable(cards, self._admin_services(stack, security.forget))
        if self.mount is None or self.mount.grpc:
            grpc_options = replace(options, host=listen_grpc.host, port=listen_grpc.port)
            grpc_server = grpc.serve_grpc(operations, cards, grpc_options, admin)
            self.grpc_address = await listen(stack, "--grpc", listen_grpc, grpc_server)
        addresses = {"grpc": str(self.grpc_address)} if self.grpc_address else {}
        self.public_url = settings.public.url
        if self.mount is not None:
            shown = admin if self.mount.console else None
            served = http.serve_asgi(operations, cards, options, shown)
            self.serve_asgi = with_scope(await stack.enter_async_context(served))
        else:
            http_server = http.serve_http(operations, cards, options, admin)
            self.http = await listen(stack, "--http", settings.listen.http, http_server)
            self.public_url = self.public_url or reachable_url(self.http)
            addresses = {"http": reachable_url(self.http), **addresses}
        self.listening.set()
        if infra.lock is not None:
            infra.lock.publish(**addresses)

    def _admin_services(self, stack: AsyncExitStack, forget_key: Callable[[str], None]) -> AdminServices:
        actions = OperatorActions(self.runtime.auditor)
        stack.push_async_callback(actions.close, self.timings.grace)
        return AdminServices(
            actions=actions,
            runtime=self.runtime,
            api_keys=ApiKeyService(self.infra.store.api_keys, clock=now_ms, on_change=forget_key),
            signing_keys=self.signing_keys,
            worker_hub=self.sources.worker_hub,
            upstream_registry=self.sources.upstreams,
            clock=now_ms,
            trace_url=self.settings.tracing.url,
        )

    async def _open_cards(self, stack: AsyncExitStack) -> Cards:
        """Opens cards that follow the registry, the card file and the signing keys. Raises SettingsError."""
        settings, signing_keys, access = self.settings, self.signing_keys, self.runtime.operations.access
        cards = Cards(
            access.agents,
            access.root,
            addresses=PublicAddresses(settings.public.url, settings.public.grpc, settings.public.trusted_proxies),
            security=server_security(
                token=bool(settings.access.token.get_secret_value()),
                keys=settings.access.api_keys,
                issuers=settings.access.issuers,
                certificates=settings.tls.client_ca is not None,
            ),
            access_policy=self.access_policy,
            push=settings.push.enabled,
            signer=JwsCardSigner(signing_keys) if settings.public.sign_cards else None,
            versions=settings.protocol.card_versions,
        )
        if settings.public.sign_cards:  # with the current key, and again when it changes
            await signing_keys.current()
            signing_keys.change_listeners.append(cards.clear_cache)
            stack.callback(start_task(Background.SIGNING_KEYS, signing_keys.watch).cancel)
        self.card_file = open_card_file(stack, settings.public.card_file, cards.apply_overrides)
        self.runtime.registry.add_listener(cards.put_agent, cards.remove_agent)
        return cards


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
    mount: Mount | None = None,
) -> AsyncIterator[App]:
    """Serves `agents`, by default those of `settings.agents.app`, while the block runs.

    authenticator, outbound: used instead of those in the settings. startup_hooks: run besides those of the agents'
    modules. shared: other server processes listen on the same ports. guards_loop: end this process if its loop is
    blocked for too long. mount: serve HTTP with `App.serve_asgi` in place of a port.

    Raises StartError, SettingsError (also for settings of unknown agents), and LoadError for APP.
    """
    if agents is None:
        app = load_own_app(settings)
        agents, startup_hooks = app.agents, [*app.startup_hooks, *startup_hooks]
    check_role(settings)
    timings = timings or AppTimings()
    server = App(settings, agents, startup_hooks, authenticator, outbound, shared, guards_loop, timings, mount)
    async with AsyncExitStack() as stack:
        for component in server.components:
            await component(stack)
        yield server


def _open_sign_in(settings: Settings, outbound: OutboundHttp) -> SignIn | None:
    """The sign-in at the console; None if no issuer has a client for it."""
    if not any(issuer.console_client for issuer in settings.access.issuers):
        return None
    from dragoman.security.console_sign_in import ConsoleSignIn  # imports PyJWT, which other servers do not need

    return ConsoleSignIn(settings.access.issuers, outbound)


async def listen(
    stack: AsyncExitStack, option: str, address: Address, server: AbstractAsyncContextManager[BoundAddress]
) -> BoundAddress:
    """Listens until the stack closes. option: the setting of the address. Raises StartError."""
    try:
        return await stack.enter_async_context(server)
    except OSError as error:
        raise listen_error(option, address, error) from error


def reachable_url(bound: BoundAddress) -> str:
    """The URL of an address for clients on this machine."""
    return bound.reachable("127.0.0.1").url
