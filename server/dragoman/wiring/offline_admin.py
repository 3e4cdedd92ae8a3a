"""Operator commands directly on a store, without a server."""

from __future__ import annotations

import getpass
import os
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from functools import partial
from pathlib import Path

from dragoman.bindings.admin.actions import OperatorActions, OperatorCall
from dragoman.bindings.admin.maintenance import MaintenanceOperations
from dragoman.bindings.admin.server import ApiKeyOperations
from dragoman.bus.local import LocalBus
from dragoman.core.access.identity import Identity
from dragoman.ports import BackupProgress, Store
from dragoman.ports.extension import StartError
from dragoman.runtime.api_keys import ApiKeyService
from dragoman.runtime.feeds import TaskFeeds
from dragoman.runtime.maintenance.admin import Maintenance
from dragoman.runtime.observe.audit import Auditor
from dragoman.settings.extensions import store_schemes
from dragoman.settings.settings import Settings
from dragoman.stores.sqlite.maintenance.backup import RestoreResult, backup, restore
from dragoman.stores.sqlite.store import now_ms
from dragoman.wiring.infra import STORE_ERRORS, open_store, store_start_error
from dragoman_pb.dragoman.ops.v1 import ops_pb2 as ops


def _local_operator() -> OperatorCall:
    """The local user as operator: a user who can write the store's file has access to all of it."""
    try:
        name = getpass.getuser()
    except (OSError, KeyError):  # a user id without a name
        name = str(os.getuid())
    return OperatorCall(Identity(f"local:{name}"), "command line")


class _AuditedMaintenance(MaintenanceOperations):
    """Maintenance operations with audit entries as on a server."""

    def __init__(self, maintenance: Maintenance, actions: OperatorActions) -> None:
        super().__init__(maintenance)
        self._actions = actions
        self._operator = _local_operator()

    async def purge(self, request: ops.PurgeRequest) -> ops.PurgeResponse:
        return await self._actions.run("Purge", self._operator, request, partial(super().purge, request))

    def export_task(self, request: ops.ExportTaskRequest) -> AsyncGenerator[ops.ExportTaskResponse, None]:
        return self._actions.stream("ExportTask", self._operator, request, super().export_task(request))

    def export_audit(self, request: ops.ExportAuditRequest) -> AsyncGenerator[ops.ExportAuditResponse, None]:
        return self._actions.stream("ExportAudit", self._operator, request, super().export_audit(request))


class _AuditedApiKeys(ApiKeyOperations):
    """API key operations with audit entries as on a server."""

    def __init__(self, api_keys: ApiKeyService, actions: OperatorActions) -> None:
        super().__init__(api_keys)
        self._actions = actions
        self._operator = _local_operator()

    async def create_key(self, request: ops.CreateKeyRequest) -> ops.CreateKeyResponse:
        return await self._actions.run("CreateKey", self._operator, request, partial(super().create_key, request))


@asynccontextmanager
async def _audited(store: Store) -> AsyncIterator[tuple[Auditor, OperatorActions]]:
    """The audit log of an open store. A call that the user interrupts is recorded as canceled."""
    auditor = Auditor(store.audit, now_ms)
    actions = OperatorActions(auditor)
    try:
        yield auditor, actions
    finally:
        await actions.close(0)
        await auditor.close()


@asynccontextmanager
async def open_operations(settings: Settings) -> AsyncIterator[MaintenanceOperations]:
    """Opens maintenance operations on a store that no server holds. Raises StartError."""
    async with AsyncExitStack() as stack:
        _require_lasting(settings)
        if not settings.is_shared:
            _require_store(settings)
        _, store = await open_store(stack, settings, create=False)
        stack.push_async_callback(store.close)
        auditor, actions = await stack.enter_async_context(_audited(store))
        bus = LocalBus()
        yield _AuditedMaintenance(Maintenance(store, bus, TaskFeeds(store, bus), auditor), actions)


@asynccontextmanager
async def open_keys(settings: Settings) -> AsyncIterator[ApiKeyOperations]:
    """Opens API key operations on a store that no server holds; creates a missing store. Raises StartError."""
    async with AsyncExitStack() as stack:
        _require_lasting(settings)
        _, store = await open_store(stack, settings)
        stack.push_async_callback(store.close)
        _, actions = await stack.enter_async_context(_audited(store))
        yield _AuditedApiKeys(ApiKeyService(store.api_keys, clock=now_ms), actions)


async def copy_store(settings: Settings, destination: Path) -> AsyncGenerator[BackupProgress, None]:
    """Backs up a store to a folder, also while a server holds it. Raises StartError, InvalidParams."""
    _require_sqlite(settings)
    _require_store(settings)
    try:
        async with aclosing(backup(settings.store_path, destination, now_ms)) as reports:
            async for progress in reports:
                yield progress
    except STORE_ERRORS as error:
        raise store_start_error(settings.store_name, error) from error


def restore_store(settings: Settings, source: Path) -> RestoreResult:
    """Restores a store from a backup. Raises StartError, InvalidParams."""
    _require_sqlite(settings)
    try:
        return restore(source, settings.store_path)
    except STORE_ERRORS as error:
        raise store_start_error(str(source), error) from error


def _require_sqlite(settings: Settings) -> None:
    """Raises StartError for other stores, which are backed up by their own tools."""
    _require_lasting(settings)
    if settings.store_kind == "own":
        raise StartError("--store: backup and restore are for SQLite; use the tools of your own store")
    if settings.is_shared:
        tools = store_schemes()[settings.store_kind][1].backup
        raise StartError(f"--store: backup and restore are for SQLite; use {tools}")


def _require_lasting(settings: Settings) -> None:
    if settings.store_kind == "memory":
        raise StartError("--store memory: has no tasks outside its server; use --server with the address of the server")


def _require_store(settings: Settings) -> None:
    if not settings.store_path.is_file():
        raise StartError(f"--store: store {settings.store_path} does not exist")
