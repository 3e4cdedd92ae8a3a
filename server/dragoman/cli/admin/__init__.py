"""Commands for operators, and where they run: at a server, or directly on a store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from dragoman.cli.options import ServerTarget

if TYPE_CHECKING:
    from dragoman.settings.settings import Settings


@asynccontextmanager
async def open_admin_client(target: ServerTarget, store: str, *, create: bool = False) -> AsyncIterator[Any]:
    """Opens a client for purge, export, the audit log and new keys: of the server, or on the store if it is named.

    `create`: creates a missing store.
    """
    if store:
        from dragoman.wiring.offline_admin import open_operations  # most commands need no store

        async with open_operations(store_settings(store), create=create) as operations:
            yield operations
    else:
        async with target.operator() as operator:
            yield operator


def store_settings(store: str) -> Settings:
    """Settings that name only this store. Raises SettingsError."""
    from dragoman.settings.settings import load_settings

    return load_settings({"store": store})
