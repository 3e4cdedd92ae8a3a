"""Operator commands directly on a store, without a server."""

from __future__ import annotations

import getpass
import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from dragoman.bindings.admin.actions import AdminOperation, OperatorActions, OperatorCall
from dragoman.bindings.admin.maintenance import MaintenanceOperations
from dragoman.bindings.admin.server import ApiKeyOperations
from dragoman.bus.local import LocalBus
from dragoman.core.access.identity import LOCAL_PRINCIPAL_PREFIX, Identity
from dragoman.ids import now_ms
from dragoman.ports import Store
from dragoman.ports.extension import StartError
from dragoman.runtime.feeds import TaskFeeds
from dragoman.runtime.maintenance.admin import Maintenance
from dragoman.runtime.maintenance.api_keys import ApiKeyService
from dragoman.runtime.observe.audit import Auditor
from dragoman.security.signing import SIGNING_KEYS_ENTRY
from dragoman.settings.extensions import store_schemes
from dragoman.settings.settings import Settings
from dragoman.stores.sqlite.cold.backup import RestoreResult, backup, restore
from dragoman.stores.sqlite.errors import explain
from dragoman.wiring.infra import STORE_ERRORS, open_store
from dragoman_pb.dragoman.ops import v1 as ops


def _local_operator() -> OperatorCall:
    """The local user as operator: a user who can write the store's file has access to all of it."""
    try:
        name = getpass.getuser()
    except (OSError, KeyError):  # a user id without a name
        name = str(os.getuid())
    return OperatorCall(Identity(f"{LOCAL_PRINCIPAL_PREFIX}{name}"), "command line")


class OfflineOperations:
    """Operators' operations on an open store, with audit entries as on a server."""

    def __init__(self, store: Store, auditor: Auditor, actions: OperatorActions) -> None:
        bus, operator = LocalBus(), _local_operator()
        stored = MaintenanceOperations(Maintenance(store, bus, TaskFeeds(store, bus), auditor))
        keys = ApiKeyOperations(ApiKeyService(store.api_keys, clock=now_ms))
        self.purge = partial(actions.run, AdminOperation("Purge", stored.purge), operator)
        self.create_key = partial(actions.run, AdminOperation("CreateKey", keys.create_key), operator)
        self.list_keys = partial(actions.run, AdminOperation("ListKeys", keys.list_keys, read_only=True), operator)
        self.rotate_key = partial(actions.run, AdminOperation("RotateKey", keys.rotate_key), operator)
        self.revoke_key = partial(actions.run, AdminOperation("RevokeKey", keys.revoke_key), operator)
        self.export_task = partial(actions.stream, AdminOperation("ExportTask", stored.export_task), operator)
        self.export_audit: Callable[[ops.ExportAuditRequest], AsyncGenerator[Any, None]] = partial(
            actions.stream, AdminOperation("ExportAudit", stored.export_audit), operator
        )


@asynccontextmanager
async def open_operations(settings: Settings, *, create: bool = False) -> AsyncIterator[OfflineOperations]:
    """Opens the operations on a store that no server holds. Raises StartError.

    `create`: creates a missing store. A call that the user interrupts is recorded as canceled.
    """
    async with AsyncExitStack() as stack:
        _require_lasting(settings)
        if not create and not settings.store.is_shared:
            _require_store(settings)
        _, store = await open_store(stack, settings, create=create)
        stack.push_async_callback(store.close)
        auditor = Auditor(store.audit, now_ms)
        stack.push_async_callback(auditor.close)
        actions = OperatorActions(auditor)
        stack.push_async_callback(actions.close, 0)
        yield OfflineOperations(store, auditor, actions)


async def copy_store(settings: Settings, destination: Path) -> AsyncGenerator[ops.BackupResponse, None]:
    """Backs up a store to a folder, also while a server holds it. Raises StartError, InvalidParams."""
    _require_sqlite(settings)
    _require_store(settings)
    try:
        async with aclosing(backup(settings.store.path, destination, now_ms)) as reports:
            async for progress in reports:
                yield ops.BackupResponse(bytes=progress.bytes, total_bytes=progress.total, done=progress.done)
    except STORE_ERRORS as error:
        raise StartError(f"{settings.store.name} cannot be copied to {destination}: {explain(error)}") from error


def restore_store(settings: Settings, source: Path) -> RestoreResult:
    """Restores a store from a backup. Raises StartError, InvalidParams."""
    _require_sqlite(settings)
    try:
        return restore(source, settings.store.path, forgotten=(SIGNING_KEYS_ENTRY,))
    except STORE_ERRORS as error:
        raise StartError(f"{settings.store.name} cannot be restored from {source}: {explain(error)}") from error


def _require_sqlite(settings: Settings) -> None:
    """Raises StartError for other stores, which are backed up by their own tools."""
    _require_lasting(settings)
    if settings.store.kind == "own":
        raise StartError("--store: backup and restore are for SQLite; use the tools of your own store")
    if settings.store.is_shared:
        tools = store_schemes()[settings.store.kind][1].backup
        raise StartError(f"--store: backup and restore are for SQLite; use {tools}")


def _require_lasting(settings: Settings) -> None:
    if settings.store.kind == "memory":
        raise StartError("--store memory: has no tasks outside its server; use --server with the address of the server")


def _require_store(settings: Settings) -> None:
    if not settings.store.path.is_file():
        raise StartError(f"--store: store {settings.store.path} does not exist")
