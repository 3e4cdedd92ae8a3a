"""The listeners of a server: gRPC and HTTP in front of the runtime, with cards, pages and operator commands."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass, replace

from dragoman.bindings.admin.actions import OperatorActions
from dragoman.bindings.admin.table import AdminServices, OperationTable
from dragoman.bindings.cards import Cards, PublicAddresses
from dragoman.bindings.grpc import server as grpc
from dragoman.bindings.http import server as http
from dragoman.bindings.options import BoundAddress, ServerOptions
from dragoman.bindings.request_log import RejectionLog
from dragoman.core.cards.security_schemes import server_security
from dragoman.ports import Authenticator, OutboundHttp
from dragoman.ports.security import SignIn
from dragoman.runtime import Runtime
from dragoman.runtime.maintenance.api_keys import ApiKeyService
from dragoman.security.authenticators.composite import open_security
from dragoman.security.signing import JwsCardSigner, StoredSigningKeys
from dragoman.settings.extensions import installed_extensions
from dragoman.settings.settings import Address, Settings
from dragoman.stores.sqlite.store import now_ms
from dragoman.supervision import Background, start_task
from dragoman.wiring.agents import CardFile, ServerAgents, open_card_file
from dragoman.wiring.infra import Infra, listen_error


@dataclass(slots=True)
class ServerUrl:
    """The base URL of HTTP in webhooks and links: the setting, else known when the port is bound."""

    value: str

    def get(self) -> str:
        """The URL now."""
        return self.value or "http://localhost"


@dataclass(frozen=True, slots=True)
class ApiParts:
    """Dependencies of the API's listeners."""

    infra: Infra
    agents: ServerAgents
    runtime: Runtime
    options: ServerOptions
    """Without those that the settings give."""
    signing_keys: StoredSigningKeys
    metrics: Callable[[str], Awaitable[tuple[bytes, str]]]
    authenticator: Authenticator | None
    """Used instead of the one in the settings."""


async def serve_api(
    stack: AsyncExitStack, settings: Settings, api: ApiParts
) -> tuple[BoundAddress, BoundAddress, CardFile | None]:
    """Serves HTTP and gRPC until the stack closes. Returns both addresses.

    Raises StartError, SettingsError.
    """
    infra, runtime, operations = api.infra, api.runtime, api.runtime.operations
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
    cards, card_file = await _open_cards(stack, settings, api)
    await api.agents.follow(stack, infra)
    options = replace(
        api.options,
        message_bytes=settings.limits.message_bytes,
        error_table=settings.protocol.error_table,
        v03_files=settings.protocol.v03_files,
        authenticator=api.authenticator or security.authenticator,
        client_certificates=infra.client_certificates,
        behind_proxy=settings.behind_proxy,
        private_pages=settings.access.private_pages,
        rejections=RejectionLog(audit=runtime.auditor),
    )
    grpc_options = replace(options, host=settings.listen.grpc.host, port=settings.listen.grpc.port)
    http_options = replace(
        health_options(options, settings, infra),
        cors=settings.protocol.cors,
        keepalive=settings.limits.keepalive,
        lossy_numbers=settings.protocol.lossy_numbers,
        issuers=settings.access.issuers,
        blobs=infra.store.blobs,
        jwks=api.signing_keys.public if settings.push.enabled or settings.public.sign_cards else None,
        console_sign_in=_open_sign_in(settings, infra.outbound),
        extension_paths=[
            (one.http, group)
            for one in installed_extensions()
            if one.http is not None and one.http.is_on(group := settings.extensions[one.name])
        ],
        metrics=api.metrics,
    )
    actions = OperatorActions(runtime.auditor)
    stack.push_async_callback(actions.close, api.options.grace)
    services = AdminServices(
        actions=actions,
        store=infra.store,
        operations=operations,
        explainer=runtime.explainer,
        pauses=runtime.scheduler.pauses,
        maintenance=runtime.maintenance,
        redelivery=runtime.redelivery,
        auditor=runtime.auditor,
        api_keys=ApiKeyService(infra.store.api_keys, clock=now_ms, on_change=security.forget),
        signing_keys=api.signing_keys,
        worker_hub=api.agents.worker_hub,
        upstream_registry=api.agents.remote_servers,
        clock=now_ms,
        trace_url=settings.tracing.url,
    )
    admin = OperationTable(cards, services)
    grpc_server = grpc.serve_grpc(operations, cards, grpc_options, admin)
    grpc_address = await listen(stack, "--grpc", settings.listen.grpc, grpc_server)
    http_server = http.serve_http(operations, cards, http_options, admin)
    return await listen(stack, "--http", settings.listen.http, http_server), grpc_address, card_file


def health_options(options: ServerOptions, settings: Settings, infra: Infra) -> ServerOptions:
    """The options of an HTTP server that serves only `/healthz` and `/readyz`."""
    return replace(
        options,
        host=settings.listen.http.host,
        port=settings.listen.http.port,
        bus_problem=lambda: infra.bus.problem,
    )


def _open_sign_in(settings: Settings, outbound: OutboundHttp) -> SignIn | None:
    """The sign-in at the console; None if no issuer has a client for it."""
    if not any(issuer.console_client for issuer in settings.access.issuers):
        return None
    from dragoman.security.console_sign_in import ConsoleSignIn  # imports PyJWT, which other servers do not need

    return ConsoleSignIn(settings.access.issuers, outbound)


async def _open_cards(stack: AsyncExitStack, settings: Settings, api: ApiParts) -> tuple[Cards, CardFile | None]:
    """Opens the cards of the runtime's agents, which follow its registry, the card file and the signing keys.

    Raises SettingsError.
    """
    signing_keys, access = api.signing_keys, api.runtime.operations.access
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
        access_policy=api.options.access_policy,
        push=settings.push.enabled,
        signer=JwsCardSigner(signing_keys) if settings.public.sign_cards else None,
        versions=settings.protocol.card_versions,
    )
    if settings.public.sign_cards:
        await _watch_signing_keys(stack, signing_keys, cards)
    card_file = open_card_file(stack, settings.public.card_file, cards.apply_overrides)
    api.runtime.registry.add_listener(cards.put_agent, cards.remove_agent)
    return cards, card_file


async def _watch_signing_keys(stack: AsyncExitStack, signing_keys: StoredSigningKeys, cards: Cards) -> None:
    """Re-signs cards when the signing key changes, until the stack closes."""
    await signing_keys.current()
    signing_keys.change_listeners.append(cards.clear_cache)
    stack.callback(start_task(Background.SIGNING_KEYS, signing_keys.watch).cancel)


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
