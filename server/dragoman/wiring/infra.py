"""Infrastructure of a server, opened from its settings: store, bus, certificates, outbound client."""

from __future__ import annotations

import errno
import inspect
import logging
import socket
import sqlite3
import tempfile
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from dragoman.bus.local import LocalBus
from dragoman.core.access.caller_credentials import CertificatePrincipals
from dragoman.core.net import targets
from dragoman.core.net.addresses import AddressPolicy
from dragoman.ports import Bus, OutboundHttp, Store
from dragoman.ports.extension import BusRequest, StartError, StoreRequest
from dragoman.security.outbound import MAX_CONNECTIONS_PER_HOST, OutboundClient
from dragoman.security.secret_box import AesGcmSecretBox, InvalidSecretKeys, read_secret_keys
from dragoman.security.tls.certificate_files import CertificateFiles, InvalidFile
from dragoman.settings.extensions import bus_schemes, shared_store_example, store_schemes
from dragoman.settings.settings import Address, Settings, SettingsError
from dragoman.settings.types import is_function
from dragoman.stores import sqlite
from dragoman.stores.sqlite import SchemaTooNew
from dragoman.stores.sqlite.cold.backup import DatabaseDamaged
from dragoman.stores.sqlite.errors import explain
from dragoman.supervision import Background, start_task
from dragoman.wiring.agent_loader import LoadError, load_module
from dragoman.wiring.extensions import extension_errors
from dragoman.wiring.store_lock import StoreFileError, StoreInUseError, StoreLock, hold_store

if TYPE_CHECKING:
    from dragoman.security.tls.client_certificates import CertificateAuthenticator


log = logging.getLogger("dragoman.store")

STORE_ERRORS: Final = (OSError, sqlite3.Error, SchemaTooNew, DatabaseDamaged)


def store_start_error(store: str, error: BaseException) -> StartError:
    """The error for a store that cannot be opened."""
    return StartError(f"the store {store} cannot be opened: {explain(error)}")


def listen_error(option: str, address: Address, error: OSError) -> StartError:
    """The error of an address that cannot be listened on. option: the setting of the address."""
    cause = error if error.errno else bind_error(address) or error
    match cause.errno:
        case errno.EADDRINUSE:
            return StartError(f"{address} is already in use; stop the other process or pass {option} HOST:PORT")
        case errno.EADDRNOTAVAIL:
            return StartError(f"{address} is not an address of this machine; pass another {option} HOST:PORT")
    return StartError(f"cannot listen on {address}: {cause.strerror or cause}; pass another {option} HOST:PORT")


def bind_error(address: Address) -> OSError | None:
    """Binds an address to learn why that fails: gRPC does not say so, and asyncio not always."""
    try:
        found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, kind, proto, _, target in found:
            with socket.socket(family, kind, proto) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do
                probe.bind(target)
    except OSError as error:
        return error
    return None


@dataclass(frozen=True, slots=True)
class Infra:
    """The infrastructure of a server."""

    lock: StoreLock | None  # None for a store that other processes may use, too
    store: Store
    bus: Bus
    outbound: OutboundHttp
    secret_box: AesGcmSecretBox
    certificates: CertificateFiles | None  # set when both ports are encrypted
    client_certificates: CertificateAuthenticator | None

    @property
    def exclusive(self) -> bool:
        """Whether no other process uses the store."""
        return self.lock is not None


async def open_infra(stack: AsyncExitStack, settings: Settings, outbound: OutboundHttp | None = None) -> Infra:
    """Opens everything that agents and runtime depend on. outbound: used instead of the one in the settings.

    Raises StartError, SettingsError.
    """
    lock, store = await open_store(stack, settings, wait=True)
    stack.push_async_callback(store.close)
    keys = settings.push.secrets_keys
    try:
        secret_box = AesGcmSecretBox(read_secret_keys(keys) if keys else ())
    except InvalidSecretKeys as error:
        raise SettingsError(f"--secrets-keys: {error}") from error
    bus = await open_bus(stack, settings, store.epoch)
    certificates, client_certificates = open_tls(stack, settings)
    if outbound is None:
        outbound = own = open_outbound(settings)
        stack.push_async_callback(own.close)
    return Infra(lock, store, bus, outbound, secret_box, certificates, client_certificates)


async def open_store(
    stack: AsyncExitStack, settings: Settings, *, create: bool = True, wait: bool = False
) -> tuple[StoreLock | None, Store]:
    """Opens the store, and locks one that only this process uses.

    `create`: create it if missing. `wait`: retry for as long as its database is unreachable. Raises StartError.
    """
    match settings.store.kind:
        case "own":
            return None, cast(Store, await _open_own("--store", settings.store.url, Store))
        case "memory":
            log.warning("--store memory: keeps nothing; all tasks are deleted when this process ends")
            folder = tempfile.TemporaryDirectory(prefix="dragoman-memory-", ignore_cleanup_errors=True)
            return _open_sqlite(stack, settings, Path(stack.enter_context(folder), "tasks.db"))
        case "sqlite":
            return _open_sqlite(stack, settings, settings.store.path)
        case scheme:
            extension, store = store_schemes()[scheme]
            own = settings.store
            request = StoreRequest(url=own.url, name=own.name, create=create, wait=wait, storage=own.options)
            with extension_errors(extension, "--store"):
                return None, await store.open(settings.extensions[extension.name], request)


def _open_sqlite(stack: AsyncExitStack, settings: Settings, path: Path) -> tuple[StoreLock, Store]:
    """Raises StartError."""
    try:
        lock = stack.enter_context(hold_store(path))
        if lock.was_lost:
            log.warning("the store %s was served before, but its file is missing: a new, empty store is created", path)
        synchronous = "normal" if settings.store.kind == "memory" else settings.store.sqlite_synchronous
        return lock, sqlite.open_store(path, synchronous=synchronous, sizes=settings.store.options)
    except FileNotFoundError as error:
        raise StartError(f"--store: folder {path.parent} does not exist; create it, or choose another") from error
    except StoreInUseError as error:
        raise StartError(f"{error}\nstop it, or choose another store with --store sqlite:///other.db") from error
    except StoreFileError as error:
        raise StartError(str(error)) from error
    except STORE_ERRORS as error:
        raise store_start_error(settings.store.name, error) from error


GIVEN_FUNCTIONS: Final[ContextVar[Mapping[str, Callable[[], Any]]]] = ContextVar("dragoman_given")
"""The functions that `dragoman.open_app` was given as a store or bus, by the MODULE:FUNCTION that stands for each."""


async def _open_own(option: str, target: str, port: type[Store] | type[Bus]) -> Store | Bus:
    """Calls MODULE:FUNCTION, which returns an object of `port` or an awaitable of one. Raises StartError."""
    module_name, _, name = target.rpartition(":")
    function: Any = GIVEN_FUNCTIONS.get({}).get(target)
    if function is None:
        try:
            function = load_module(module_name)
        except LoadError as error:
            raise StartError(f"{option} {target}: {error}") from error
        for part in name.split("."):
            function = getattr(function, part, None)
    if not callable(function):
        raise StartError(f"{option} {target}: {module_name} has no function {name}")
    try:
        opened = function()
        if inspect.isawaitable(opened):
            opened = await opened
    except Exception as error:
        raise StartError(f"{option} {target}: {name}() failed: {type(error).__name__}: {explain(error)}") from error
    required = (member for member in vars(port) if not member.startswith("_"))
    if missing := [member for member in required if not hasattr(opened, member)]:
        raise StartError(
            f"{option} {target}: the {type(opened).__name__} that {name}() returned is not a {port.__name__.lower()}: "
            f"it lacks {', '.join(missing)}; dragoman.ports.{port.__name__} defines them"
        )
    return cast("Store | Bus", opened)


def check_role(settings: Settings) -> None:
    """Raises SettingsError if the role of the process leaves it nothing to do."""
    if settings.cluster.role == "all":
        return
    if not settings.store.is_shared:
        missing = "run its turns" if settings.cluster.role == "server" else "accept its requests"
        raise SettingsError(
            f"--role {settings.cluster.role}: an SQLite store has one process, so no other could {missing}; use --role "
            f"all, or a shared store ({shared_store_example()}); to run agents in other processes, use "
            "--workers-only and `dragoman worker`"
        )
    if settings.cluster.role == "worker" and settings.agents.workers_only:
        raise SettingsError("--workers-only: a process with --role worker runs only agents of APP, and would have none")


async def open_bus(stack: AsyncExitStack, settings: Settings, epoch: str) -> Bus:
    """Raises StartError, SettingsError."""
    local, url = LocalBus(), settings.cluster.bus.get_secret_value()
    stack.push_async_callback(local.close)
    if not url:
        return local
    if not settings.store.is_shared:
        raise SettingsError("--bus: an SQLite store has one server, so there is no other to notify; see --store")
    scheme = url.partition("://")[0]
    if is_function(url):
        own = cast(Bus, await _open_own("--bus", url, Bus))
        stack.push_async_callback(own.close)
        return own
    if scheme not in (buses := bus_schemes()):
        needs = {name: f", needs {one.requirement}" if one.requirement else "" for name, (one, _) in buses.items()}
        known = ", ".join(f"{name}:// ({one.title}{needs[name]})" for name, (one, _) in buses.items()) or "none"
        known += "; or MODULE:FUNCTION (a bus of your own)"
        raise SettingsError(f"--bus: no extension has buses with such an address; known schemes: {known}")
    extension, open_extension = buses[scheme]
    with extension_errors(extension, "--bus"):
        opening = open_extension(settings.extensions[extension.name], BusRequest(url=url, local=local, epoch=epoch))
        return await stack.enter_async_context(opening)


def open_tls(
    stack: AsyncExitStack, settings: Settings
) -> tuple[CertificateFiles | None, CertificateAuthenticator | None]:
    """Opens the server's certificate, watched until the stack closes, and the authenticator of client certificates.

    Raises SettingsError.
    """
    options = {"--tls-client-revoked": settings.tls.client_revoked, "--tls-client-grants": settings.tls.client_grants}
    if settings.tls.client_ca is None and (unused := [option for option, setting in options.items() if setting]):
        raise SettingsError(f"{unused[0]}: has no effect without --tls-client-ca")
    if settings.tls.cert is None or settings.tls.key is None:
        if settings.tls.cert or settings.tls.key:
            raise SettingsError("--tls-cert, --tls-key: one is set without the other; set both or neither")
        if settings.tls.client_ca:
            raise SettingsError("--tls-client-ca: needs encrypted ports; add --tls-cert and --tls-key")
        return None, None
    authenticator, refresh_revocations = None, None
    try:
        if settings.tls.client_ca is not None:
            authenticator, refresh_revocations = _open_client_certificates(settings.tls.client_ca, settings)
        certificates = CertificateFiles(
            settings.tls.cert, settings.tls.key, settings.tls.client_ca, refresh_revocations
        )
    except InvalidFile as error:
        names = "--tls-cert, --tls-key" + (", --tls-client-ca, --tls-client-revoked" if settings.tls.client_ca else "")
        raise SettingsError(f"{names}: {error}") from error
    stack.callback(start_task(Background.CERTIFICATES, certificates.watch).cancel)
    return certificates, authenticator


def _open_client_certificates(
    client_ca: Path, settings: Settings
) -> tuple[CertificateAuthenticator, Callable[..., object] | None]:
    """The authenticator of client certificates, and what reloads their revocations. Raises InvalidFile."""
    # Imported here: cryptography is slow to import, and most servers do not need it.
    from dragoman.security.tls.client_certificates import CertificateAuthenticator, Revocations

    try:
        client_ca.read_bytes()  # `Revocations` reads it as well, but its OSError would not name the file
    except OSError as error:
        raise InvalidFile(f"{client_ca}: {error.strerror}") from error
    principals = CertificatePrincipals(settings.tls.client_principal, settings.tls.client_grants)
    if settings.tls.client_revoked is None:
        return CertificateAuthenticator(principals, lambda issuer, serial: False), None
    revocations = Revocations(settings.tls.client_revoked, client_ca.read_bytes)
    return CertificateAuthenticator(principals, revocations.is_revoked), revocations.refresh


def open_outbound(settings: Settings, *, per_host: int = MAX_CONNECTIONS_PER_HOST) -> OutboundClient:
    """Opens the outbound client that all outgoing requests use. Raises SettingsError."""
    policy = targets.OutboundPolicy(
        AddressPolicy(settings.outbound.allow, loopback=settings.is_private),
        https_only=settings.outbound.https_only,
        ports=settings.outbound.ports,
    )
    try:
        return OutboundClient(policy, ca=settings.outbound.ca, per_host=per_host)
    except OSError as error:
        raise SettingsError(f"--outbound-ca: {settings.outbound.ca} must contain PEM certificates: {error}") from error
