"""Commands for operators, and where they run: at a server, or directly on a store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from dragoman.calling.errors import ClientError
from dragoman.cli import ExitCode, print_error
from dragoman.cli.task_calls import run_command
from dragoman.client.operations import Operator
from dragoman.core.errors import A2AError, AgentNotFound, KeyNotFound, TaskNotFound

if TYPE_CHECKING:
    from dragoman.settings.settings import Settings


@dataclass(frozen=True, slots=True)
class AdminTarget:
    """A server's address, or a store's URL, which takes precedence."""

    server: str
    key: str
    store: str = ""

    def operator(self) -> Operator:
        """Returns an unopened client of the server's operator API."""
        return Operator(self.server, token=self.key)


def run_admin_command(server: str, command: Coroutine[Any, Any, ExitCode]) -> NoReturn:
    """Runs a command and ends the process with its exit code."""
    run_command(server, _exit_code_of(command))


async def _exit_code_of(command: Coroutine[Any, Any, ExitCode]) -> ExitCode:
    try:
        return await command
    except A2AError as error:
        not_found = isinstance(error, TaskNotFound | AgentNotFound | KeyNotFound)
        return print_error(error.message, ExitCode.NOT_FOUND if not_found else ExitCode.UNAVAILABLE)
    except ClientError:
        raise
    except Exception as error:
        # Only commands on a store raise these, and others need not import them: that takes longer than their call.
        from dragoman.ports.extension import StartError
        from dragoman.settings.settings import SettingsError

        if isinstance(error, SettingsError):
            return print_error(error, ExitCode.USAGE)
        if isinstance(error, StartError):
            return print_error(error, ExitCode.FAILED)
        raise


@asynccontextmanager
async def open_admin_client(target: AdminTarget, *, create: bool = False) -> AsyncIterator[Any]:
    """Opens a client for purge, export, the audit log and new keys: of the server, or on the store itself.

    `create`: creates a missing store.
    """
    if target.store:
        from dragoman.wiring.offline_admin import open_operations  # most commands need no store

        async with open_operations(store_settings(target.store), create=create) as operations:
            yield operations
    else:
        async with target.operator() as operator:
            yield operator


def store_settings(store: str) -> Settings:
    """Settings that name only this store. Raises SettingsError."""
    from dragoman.settings.settings import load_settings

    return load_settings({"store": store})
