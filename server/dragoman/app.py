"""The composition root: the only file that names adapters, and puts everything together.

From the ground up: the lock, the store, the bus, the runtime, gRPC, HTTP. Leaving goes the other way, so that
whoever is still being served has something under his feet.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Final

from dragoman.agents.dialled.switchboard import Switchboard
from dragoman.bindings import grpc, http
from dragoman.bindings.cards import Cards
from dragoman.bindings.letters import PushLetters
from dragoman.bindings.ops_keys import Keykeeping
from dragoman.bindings.ops_upkeep import Upkeeping
from dragoman.bindings.refusals import Refusals
from dragoman.bindings.serving import Bound, HttpOptions, Options
from dragoman.bus.local import LocalBus
from dragoman.core import targets
from dragoman.core.addresses import Reach
from dragoman.core.card import AgentSpec
from dragoman.core.enforced import enforced
from dragoman.core.errors import Unavailable
from dragoman.core.identity import Doorway
from dragoman.loading import load_agents
from dragoman.lock import StoreInUseError, StoreLock, hold
from dragoman.ports import Agent, Authenticator, Bus, Copied, Outbound, Store
from dragoman.runtime import Coalesce, Limits, Pushing, Runtime, open_runtime
from dragoman.runtime.follow import Followers
from dragoman.runtime.keyring import Keyring
from dragoman.runtime.upkeep import Upkeep
from dragoman.security.certificates import CertificateFiles, Unfit
from dragoman.security.opening import open_security
from dragoman.security.outbound import Guard
from dragoman.security.signing import LetterSigner
from dragoman.settings import Address, Settings, SettingsError
from dragoman.stores.sqlite import SchemaTooNew, Sizes, open_store
from dragoman.stores.sqlite.backup import Damaged, Restored, backup, restore
from dragoman.stores.sqlite.store import milliseconds
from dragoman.stores.sqlite.trouble import explain

LAST_WORDS: Final = 0.2
"""Seconds for the end of a turn to reach those who follow it, before their streams are closed."""


class StartError(Exception):
    """The server could not start: the store is held or unreadable, or an address is taken. The text says which."""


@dataclass(frozen=True, slots=True)
class App:
    """A server that listens."""

    http: Bound
    grpc: Bound
    public_url: str
    """Where clients find it: the setting, else the HTTP address, seen from this machine."""
    store: str
    """Where tasks are kept, without what is secret."""
    runtime: Runtime
    draining: asyncio.Event
    switchboard: Switchboard
    """Where workers dial in."""
    certificates: CertificateFiles | None = None
    """Set when both ports are encrypted."""

    @property
    def agents(self) -> Mapping[str, AgentSpec]:
        """Its agents by id."""
        return self.runtime.service.agents

    @property
    def root(self) -> str:
        """The id of the agent meant when a request names none."""
        return self.runtime.service.root

    @property
    def card_url(self) -> str:
        """Where the root agent's card is."""
        return f"{self.public_url}/.well-known/agent-card.json"

    @property
    def running(self) -> int:
        """Turns that are running now."""
        return self.runtime.dispatch.running

    async def drain(self, limit: float, report: Callable[[int], None] | None = None) -> None:
        """Begins no more turns, and gives those that run `limit` seconds to end; the others end as FAILED.

        Meanwhile everything else is served; new messages are refused with Unavailable, and `/readyz` and gRPC health
        say that we are leaving. `report` is told once a second how many turns are left.
        """
        self.draining.set()
        await self.runtime.dispatch.drain(limit, report)
        if self.running:
            await self.runtime.dispatch.stop()
            await asyncio.sleep(LAST_WORDS)


@asynccontextmanager
async def open_app(
    settings: Settings,
    agents: Sequence[Agent] | None = None,
    authenticator: Authenticator | None = None,
    *,
    outbound: Outbound | None = None,
) -> AsyncIterator[App]:
    """Serves `agents`, by default those of `settings.app`, for as long as the block runs.

    `authenticator` knows the callers, and `outbound` is the way to other servers, instead of what the settings say.
    Raises StartError, SettingsError (an agent that is not there), and LoadError for APP.
    """
    if agents is None:
        agents = load_agents(settings.own_app)
    async with AsyncExitStack() as stack:
        lock, store = await _open_store(stack, settings)
        stack.push_async_callback(store.close)
        switchboard = await _switchboard(store, settings, agents)
        agents = [*agents, *switchboard.agents]
        root = settings.root or (switchboard.eldest if settings.workers_only else "")
        _check_names(settings, agents)
        bus = await _open_bus(stack, settings, store.epoch)
        certificates = _certificates(stack, settings)
        if outbound is None:
            outbound = guard(settings)
            stack.push_async_callback(outbound.close)
        doorway = Doorway(settings.asks, frozenset(settings.public_agents))
        if absent := doorway.public - {agent.spec.id for agent in agents} - {"*"}:
            raise SettingsError(f"--public-agents: no agent {', '.join(sorted(absent))} is served here")
        home, listening = "", asyncio.Event()
        signer = LetterSigner(store.secret("letters"), lambda: home)
        letters = PushLetters(signer)
        pushing = Pushing(outbound, letters, settings.push_patience, ready=listening) if settings.push else None
        try:
            runtime = await stack.enter_async_context(
                open_runtime(
                    store,
                    bus,
                    agents,
                    root=root,
                    alone=lock is not None,
                    vacant=settings.workers_only,
                    limits=Limits(
                        message_bytes=settings.message_bytes,
                        blocking_wait=settings.blocking_wait,
                        message_id_is_key=settings.idempotent_message_ids,
                    ),
                    slots=settings.slots,
                    strict=settings.strict_transitions,
                    retention=settings.rules,
                    isolation=settings.isolation,
                    quotas=settings.quotas,
                    coalesce=Coalesce(settings.coalesce_ms / 1000, settings.coalesce_bytes),
                    doorway=doorway,
                    pushing=pushing,
                    worker_wait=settings.worker_wait,
                )
            )
        except ValueError as error:
            raise SettingsError(f"--root: {error}") from error
        except Unavailable as error:  # the store can be opened, but takes nothing
            raise _trouble(settings.store_name, error.__cause__ or error) from error
        security = await stack.enter_async_context(
            open_security(
                token=settings.token.get_secret_value(),
                api_keys=store.api_keys if settings.api_keys else None,
                issuers=settings.issuers,
                outbound=outbound,
                clock=milliseconds,
            )
        )
        authenticator = authenticator or security.authenticator
        keyring = Keyring(store.api_keys, clock=milliseconds, changed=security.forget)
        cards = Cards(
            runtime.service.agents,
            runtime.service.root,
            public_url=settings.public_url,
            public_grpc=settings.public_grpc,
            trusted_proxies=settings.trusted_proxies,
            enforced=enforced(
                token=bool(settings.token.get_secret_value()), keys=settings.api_keys, issuers=settings.issuers
            ),
            doorway=doorway,
            push=settings.push,
        )
        runtime.enlisting.show(cards.show, cards.hide)
        switchboard.serve(runtime.enlisting)
        if lock is None:  # others may serve the store, and have workers
            looking = asyncio.create_task(switchboard.keep_up(), name="roster of workers")
            stack.callback(looking.cancel)
        store.blobs.served_at(lambda: home or cards.url(None))
        draining, refusals = asyncio.Event(), Refusals()
        over_grpc = Options(
            host=settings.grpc.host,
            port=settings.grpc.port,
            message_bytes=settings.message_bytes,
            table=settings.error_table,
            certificates=certificates,
            connections=settings.connections,
            authenticator=authenticator,
            doorway=doorway,
            private_pages=settings.private_pages,
            refusals=refusals,
            draining=draining,
        )
        over_http = HttpOptions(
            host=settings.http.host,
            port=settings.http.port,
            message_bytes=settings.message_bytes,
            table=settings.error_table,
            certificates=certificates,
            connections=settings.connections,
            authenticator=authenticator,
            doorway=doorway,
            private_pages=settings.private_pages,
            refusals=refusals,
            cors=settings.cors,
            draining=draining,
            keepalive=settings.keepalive,
            lossy_numbers=settings.lossy_numbers,
            openapi=openapi_files(),
            blobs=store.blobs,
            keys=signer.keys if settings.push else None,
            trouble=lambda: bus.trouble,
        )
        at_grpc = await _listen(
            stack,
            "--grpc",
            settings.grpc,
            grpc.serve(
                runtime.service,
                cards,
                over_grpc,
                runtime.explainer,
                runtime.upkeep,
                keyring,
                runtime.redelivery,
                switchboard,
            ),
        )
        at_http = await _listen(stack, "--http", settings.http, http.serve(runtime.service, cards, over_http))
        home = cards.url(None)  # also in the last words, when nothing listens any more
        listening.set()
        if lock is not None:
            lock.tell(http=_url(at_http), grpc=str(at_grpc))
        public = settings.public_url or _url(at_http)
        yield App(at_http, at_grpc, public, settings.store_name, runtime, draining, switchboard, certificates)


async def _switchboard(store: Store, settings: Settings, agents: Sequence[Agent]) -> Switchboard:
    """Where workers connect, with the agents that they had earlier, but for those that are the app's own now."""
    own = {agent.spec.id for agent in agents}
    known = [entry for entry in await store.roster.list() if entry.agent not in own]
    return Switchboard(store.roster, known, clock=milliseconds, frame_bytes=settings.message_bytes)


def _check_names(settings: Settings, agents: Sequence[Agent]) -> None:
    """Raises SettingsError for a word on an agent that is not served: it would hold for nobody, without a sound."""
    known = {agent.spec.id for agent in agents}
    for name, said in (("isolation", settings.isolation.particular), ("agent_limits", settings.agent_limits)):
        if unknown := sorted(set(said) - known):
            raise SettingsError(f'{name}: no agent "{unknown[0]}" here; there are {", ".join(sorted(known))}')


@asynccontextmanager
async def open_operations(settings: Settings) -> AsyncIterator[Upkeeping]:
    """The operators' verbs on a store that no server holds. Raises StartError."""
    async with AsyncExitStack() as stack:
        if not settings.is_shared:
            _check_is_there(settings)
        _, store = await _open_store(stack, settings, make=False)
        stack.push_async_callback(store.close)
        bus = LocalBus()
        yield Upkeeping(Upkeep(store, bus, Followers(store, bus)))


@asynccontextmanager
async def open_keys(settings: Settings) -> AsyncIterator[Keykeeping]:
    """The operators' verbs on the API keys of a store that no server holds; it is made if it is not there.

    Raises StartError.
    """
    async with AsyncExitStack() as stack:
        _, store = await _open_store(stack, settings)
        stack.push_async_callback(store.close)
        yield Keykeeping(Keyring(store.api_keys, clock=milliseconds))


async def copy_store(settings: Settings, destination: Path) -> AsyncGenerator[Copied, None]:
    """Copies a store to a folder, whether or not a server holds it. Raises StartError, InvalidParams."""
    _check_is_a_file(settings)
    _check_is_there(settings)
    try:
        async with aclosing(backup(settings.store_path, destination, milliseconds)) as steps:
            async for step in steps:
                yield step
    except TROUBLE as error:
        raise _trouble(settings.store_name, error) from error


def restore_store(settings: Settings, source: Path) -> Restored:
    """Makes a store of a copy. Raises StartError, InvalidParams."""
    _check_is_a_file(settings)
    path = settings.store_path
    try:
        with hold(path):
            return restore(source, path)
    except StoreInUseError as error:
        raise StartError(str(error)) from error
    except TROUBLE as error:
        raise _trouble(str(source), error) from error


async def _open_store(
    stack: AsyncExitStack, settings: Settings, *, make: bool = True
) -> tuple[StoreLock | None, Store]:
    """Opens the store, and holds it if only one may. `make`: also one that is not there yet. Raises StartError."""
    if settings.is_shared:
        return None, await _open_postgres(settings, make)
    path = settings.store_path
    try:
        lock = stack.enter_context(hold(path))
        sizes = Sizes(settings.fold_rows, settings.cut_after, settings.inline_bytes)
        return lock, open_store(path, synchronous=settings.sqlite_synchronous, sizes=sizes)
    except FileNotFoundError as error:
        raise StartError(f"--store: there is no folder {path.parent}") from error
    except StoreInUseError as error:
        raise StartError(f"{error}\nstop it, or name another store with --store sqlite:///other.db") from error
    except TROUBLE as error:
        raise _trouble(settings.store_name, error) from error


async def _open_postgres(settings: Settings, make: bool) -> Store:
    """Raises StartError."""
    try:
        from dragoman.stores import postgres
    except ImportError as error:
        raise StartError("--store: PostgreSQL needs one more package: pip install 'dragoman[postgres]'") from error
    try:
        return await postgres.open_store(
            settings.store,
            make=make,
            sizes=Sizes(settings.fold_rows, settings.cut_after, settings.inline_bytes),
            connections=settings.postgres_connections,
            pooled=settings.postgres_pooler,
        )
    except postgres.Unusable as error:
        raise _trouble(settings.store_name, error) from None  # what caused it may hold a password


async def _open_bus(stack: AsyncExitStack, settings: Settings, epoch: str) -> Bus:
    """Raises StartError, SettingsError."""
    here, url = LocalBus(), settings.bus.get_secret_value()
    stack.push_async_callback(here.close)
    if not url:
        return here
    if not settings.is_shared:
        raise SettingsError("--bus: one server alone has an SQLite store, so there is nobody to tell; see --store")
    try:
        from dragoman.bus import nats
    except ImportError as error:
        raise StartError("--bus: NATS needs one more package: pip install 'dragoman[nats]'") from error
    try:
        address = nats.Address.parse(url, settings.bus_credentials, settings.bus_ca)
    except nats.BadAddress as error:
        raise SettingsError(f"--bus: {error}") from None
    return await stack.enter_async_context(nats.open_bus(here, address, prefix=settings.bus_prefix, epoch=epoch))


TROUBLE: Final = (OSError, sqlite3.Error, SchemaTooNew, Damaged)


def _trouble(store: str, error: BaseException) -> StartError:
    return StartError(f"the store {store} cannot be opened: {explain(error)}")


def _check_is_a_file(settings: Settings) -> None:
    """Raises StartError for a store that is copied by the tools of its database."""
    if settings.is_shared:
        raise StartError("--store: backup and restore are for SQLite; use pg_dump and pg_restore, or pg_basebackup")


def _certificates(stack: AsyncExitStack, settings: Settings) -> CertificateFiles | None:
    """The servers' certificate, watched until the stack is left. Raises SettingsError."""
    if settings.tls_cert is None or settings.tls_key is None:
        if settings.tls_cert or settings.tls_key:
            raise SettingsError("--tls-cert, --tls-key: a certificate and its key belong together; set both, or none")
        return None
    try:
        certificates = CertificateFiles(settings.tls_cert, settings.tls_key)
    except Unfit as error:
        raise SettingsError(f"--tls-cert, --tls-key: {error}") from error
    watching = asyncio.create_task(certificates.watch(), name="certificates")
    stack.callback(watching.cancel)
    return certificates


def guard(settings: Settings) -> Outbound:
    """The one way out of this process. Raises SettingsError."""
    rules = targets.Rules(
        Reach(settings.outbound_allow, loopback=settings.is_loopback),
        https_only=settings.outbound_https_only,
        ports=settings.outbound_ports,
    )
    try:
        return Guard(rules, ca=settings.outbound_ca)
    except OSError as error:
        raise SettingsError(f"--outbound-ca: {settings.outbound_ca} holds no certificates in PEM: {error}") from error


def _check_is_there(settings: Settings) -> None:
    if not settings.store_path.is_file():
        raise StartError(f"--store: there is no store {settings.store_path}")


async def _listen(
    stack: AsyncExitStack, option: str, address: Address, server: AbstractAsyncContextManager[Bound]
) -> Bound:
    try:
        return await stack.enter_async_context(server)
    except OSError as error:
        why = error.strerror or "taken by another process, or no address of this machine"
        raise StartError(f"{option}: cannot listen on {address}: {why}; choose another, or port 0 for any") from error


def _url(at: Bound) -> str:
    return (replace(at, host="127.0.0.1") if at.is_any else at).url


def openapi_files() -> dict[str, bytes]:
    """The OpenAPI 2 documents by relative path: beside the generated code in a wheel, one up in a source tree."""
    package = files("dragoman_pb")
    for place in (package / "openapi", package / ".." / "openapi"):
        root = Path(str(place))
        if root.is_dir():
            return {path.relative_to(root).as_posix(): path.read_bytes() for path in sorted(root.rglob("*.json"))}
    return {}
