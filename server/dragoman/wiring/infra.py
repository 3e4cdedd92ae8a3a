"""Infrastructure of a server, opened from its settings: store lock, store, bus, certificates, outbound client."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import logging
import os
import sqlite3
import sys
import tempfile
from collections.abc import Iterator
from contextlib import AsyncExitStack
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from dragoman.bus.local import LocalBus
from dragoman.core.access.caller_credentials import CertificatePrincipals
from dragoman.core.net import targets
from dragoman.core.net.addresses import AddressPolicy
from dragoman.ports import Bus, Store
from dragoman.security.outbound import MAX_CONNECTIONS_PER_HOST, OutboundClient
from dragoman.security.tls.certificate_files import CertificateFiles, InvalidCertificate, open_certificates
from dragoman.settings.settings import Settings, SettingsError
from dragoman.stores import sqlite
from dragoman.stores.sqlite import SchemaTooNew, StorageOptions
from dragoman.stores.sqlite.errors import explain
from dragoman.stores.sqlite.maintenance.backup import DatabaseDamaged
from dragoman.wiring.agent_loader import LoadError, load_module

if TYPE_CHECKING:
    from dragoman.security.tls.client_certificates import CertificateAuthenticator


log = logging.getLogger("dragoman.store")


class StartError(Exception):
    """The server cannot start: the store is in use or unreadable, or an address is in use."""


STORE_ERRORS: Final = (OSError, sqlite3.Error, SchemaTooNew, DatabaseDamaged)


def store_start_error(store: str, error: BaseException) -> StartError:
    """The error for a store that cannot be opened."""
    return StartError(f"the store {store} cannot be opened: {explain(error)}")


async def open_store(
    stack: AsyncExitStack, settings: Settings, *, create: bool = True
) -> tuple[StoreLock | None, Store]:
    """Opens the store, and locks one that only this process uses. `create`: create it if missing.

    Raises StartError.
    """
    match settings.store_kind:
        case "postgresql":
            return None, await _open_postgres(settings, create)
        case "own":
            return None, await _open_own(settings.store)
        case "memory":
            log.warning("--store memory: keeps nothing; all tasks are deleted when this process ends")
            return _open_sqlite(stack, settings, Path(stack.enter_context(_temporary_folder()), "tasks.db"))
        case "sqlite":
            return _open_sqlite(stack, settings, settings.store_path)


def _temporary_folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="dragoman-memory-", ignore_cleanup_errors=True)


def _open_sqlite(stack: AsyncExitStack, settings: Settings, path: Path) -> tuple[StoreLock, Store]:
    """Raises StartError."""
    try:
        lock = stack.enter_context(hold_store(path))
        sizes = StorageOptions(settings.fold_rows, settings.cut_after, settings.inline_bytes)
        synchronous = "normal" if settings.store_kind == "memory" else settings.sqlite_synchronous
        return lock, sqlite.open_store(path, synchronous=synchronous, sizes=sizes)
    except FileNotFoundError as error:
        raise StartError(f"--store: folder {path.parent} does not exist; create it, or choose another") from error
    except StoreInUseError as error:
        raise StartError(f"{error}\nstop it, or choose another store with --store sqlite:///other.db") from error
    except STORE_ERRORS as error:
        raise store_start_error(settings.store_name, error) from error


async def _open_postgres(settings: Settings, create: bool) -> Store:
    """Raises StartError."""
    try:
        from dragoman.stores import postgres
    except ImportError as error:
        raise StartError("--store: PostgreSQL needs one more package: pip install 'dragoman[postgres]'") from error
    try:
        return await postgres.open_store(
            settings.store,
            make=create,
            sizes=StorageOptions(settings.fold_rows, settings.cut_after, settings.inline_bytes),
            connections=settings.postgres_connections,
            pooled=settings.postgres_pooler,
        )
    except postgres.InvalidDatabase as error:
        raise store_start_error(settings.store_name, error) from None  # the cause may contain a password


async def _open_own(target: str) -> Store:
    """Calls MODULE:FUNCTION, which returns a store or an awaitable of one. Raises StartError."""
    module_name, _, name = target.rpartition(":")
    try:
        function: Any = load_module(module_name)
    except LoadError as error:
        raise StartError(f"--store {target}: {error}") from error
    for part in name.split("."):
        function = getattr(function, part, None)
    if not callable(function):
        raise StartError(f"--store {target}: {module_name} has no function {name}")
    try:
        store = function()
        if inspect.isawaitable(store):
            store = await store
    except Exception as error:
        raise StartError(f"--store {target}: {name}() failed: {type(error).__name__}: {explain(error)}") from error
    required = (member for member in vars(Store) if not member.startswith("_"))
    if missing := [member for member in required if not hasattr(store, member)]:
        raise StartError(
            f"--store {target}: the {type(store).__name__} that {name}() returned is not a store: it lacks "
            f"{', '.join(missing)}; dragoman.ports.Store defines them"
        )
    return cast(Store, store)


def check_role(settings: Settings) -> None:
    """Raises SettingsError if the role of the process leaves it nothing to do."""
    if settings.role == "all":
        return
    if not settings.is_shared:
        missing = "run its turns" if settings.role == "server" else "accept its requests"
        raise SettingsError(
            f"--role {settings.role}: an SQLite store has one process, so no other could {missing}; use --role all, or "
            "a shared store (--store postgresql://USER@HOST/DATABASE); to run agents in other processes, use "
            "--workers-only and `dragoman worker`"
        )
    if settings.role == "worker" and settings.workers_only:
        raise SettingsError("--workers-only: a process with --role worker runs only agents of APP, and would have none")


async def open_bus(stack: AsyncExitStack, settings: Settings, epoch: str) -> Bus:
    """Raises StartError, SettingsError."""
    local, url = LocalBus(), settings.bus.get_secret_value()
    stack.push_async_callback(local.close)
    if not url:
        return local
    if not settings.is_shared:
        raise SettingsError("--bus: an SQLite store has one server, so there is no other to notify; see --store")
    try:
        from dragoman.bus import nats
    except ImportError as error:
        raise StartError("--bus: NATS needs one more package: pip install 'dragoman[nats]'") from error
    try:
        address = nats.NatsAddress.parse(url, settings.bus_credentials, settings.bus_ca)
    except nats.InvalidNatsAddress as error:
        raise SettingsError(f"--bus: {error}") from None
    return await stack.enter_async_context(nats.open_nats_bus(local, address, prefix=settings.bus_prefix, epoch=epoch))


def open_tls(
    stack: AsyncExitStack, settings: Settings
) -> tuple[CertificateFiles | None, CertificateAuthenticator | None]:
    """Opens the server's certificate, watched until the stack closes, and the authenticator of client certificates.

    Raises SettingsError.
    """
    options = {"--tls-client-revoked": settings.tls_client_revoked, "--tls-client-grants": settings.tls_client_grants}
    if settings.tls_client_ca is None and (unused := [option for option, setting in options.items() if setting]):
        raise SettingsError(f"{unused[0]}: has no effect without --tls-client-ca")
    if settings.tls_cert is None or settings.tls_key is None:
        if settings.tls_cert or settings.tls_key:
            raise SettingsError("--tls-cert, --tls-key: one is set without the other; set both or neither")
        if settings.tls_client_ca:
            raise SettingsError("--tls-client-ca: needs encrypted ports; add --tls-cert and --tls-key")
        return None, None
    try:
        certificates, authenticator = open_certificates(
            settings.tls_cert,
            settings.tls_key,
            client_ca=settings.tls_client_ca,
            revoked=settings.tls_client_revoked,
            principals=CertificatePrincipals(settings.tls_client_principal, settings.tls_client_grants),
        )
    except InvalidCertificate as error:
        names = "--tls-cert, --tls-key" + (", --tls-client-ca, --tls-client-revoked" if settings.tls_client_ca else "")
        raise SettingsError(f"{names}: {error}") from error
    watch = asyncio.create_task(certificates.watch(), name="certificates")
    stack.callback(watch.cancel)
    return certificates, authenticator


_LOCK_OFFSET: Final = 1 << 30
"""Windows makes locked bytes unreadable, so the locked byte is far behind the text."""

if sys.platform == "win32":
    import msvcrt

    def _lock_file(file: int) -> None:
        os.lseek(file, _LOCK_OFFSET, os.SEEK_SET)
        msvcrt.locking(file, msvcrt.LK_NBLCK, 1)

else:
    import fcntl

    def _lock_file(file: int) -> None:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


class StoreInUseError(Exception):
    """Another process holds the store; the text names it, the time since when, and its addresses."""


class StoreLock:
    """A held lock. `publish` adds the addresses of the holder, once known."""

    def __init__(self, file: int, details: dict[str, str]) -> None:
        self._file = file
        self._details = details

    def publish(self, **details: str) -> None:
        """Adds details of the holder for other processes."""
        self._details |= details
        content = json.dumps(self._details).encode()
        os.lseek(self._file, 0, os.SEEK_SET)
        os.write(self._file, content.ljust(512))


_held_files: set[int] = set()


def _close_in_fork() -> None:
    # A lock lives as long as any copy of its file: the child of an agent must not keep it when the server is killed.
    for file in _held_files:
        with contextlib.suppress(OSError):
            os.close(file)
    _held_files.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_in_fork)


@contextlib.contextmanager
def hold_store(store: Path) -> Iterator[StoreLock]:
    """Locks the store while the block runs. Raises StoreInUseError at once if another process holds it."""
    path = store.with_name(f"{store.name}-lock")
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            _lock_file(file)
        except OSError as error:
            raise StoreInUseError(_describe_holder(store, path)) from error
        _held_files.add(file)
        lock = StoreLock(file, {"pid": str(os.getpid()), "since": f"{datetime.now():%Y-%m-%d %H:%M:%S}"})
        lock.publish()
        yield lock
    finally:
        _held_files.discard(file)
        with contextlib.suppress(OSError):  # already closed in a fork
            os.close(file)


def _describe_holder(store: Path, path: Path) -> str:
    try:
        holder = json.loads(path.read_bytes())
    except (OSError, ValueError):  # the holder is writing the file
        return f"{store} is in use by another process (it holds {path})"
    addresses = " and ".join(f"{kind} {holder[kind]}" for kind in ("http", "grpc") if kind in holder)
    since = f"process {holder.get('pid', '?')} has held it since {holder.get('since', '?')}"
    return f"{store} is in use: {since}{', serving ' + addresses if addresses else ', and is starting'}"


def open_outbound(settings: Settings, *, per_host: int = MAX_CONNECTIONS_PER_HOST) -> OutboundClient:
    """Opens the outbound client that all outgoing requests use. Raises SettingsError."""
    policy = targets.OutboundPolicy(
        AddressPolicy(settings.outbound_allow, loopback=settings.is_loopback),
        https_only=settings.outbound_https_only,
        ports=settings.outbound_ports,
    )
    try:
        return OutboundClient(policy, ca=settings.outbound_ca, per_host=per_host)
    except OSError as error:
        raise SettingsError(f"--outbound-ca: {settings.outbound_ca} must contain PEM certificates: {error}") from error
