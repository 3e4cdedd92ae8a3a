"""Maps errors of PostgreSQL to errors for callers and advice for operators, without secrets."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from typing import Final

import asyncpg

from dragoman.core.errors import OutOfMemory, Unavailable, lacks_memory, out_of_memory
from dragoman.stores.shared.rows import SchemaTooNew


class InvalidDatabase(Exception):
    """A database that cannot be used as a store. The text is one line."""


class PostgresSchemaTooNew(InvalidDatabase, SchemaTooNew):
    """The store was written by a newer Dragoman, and this release cannot use its schema."""


class DatabaseUnreachable(InvalidDatabase):
    """The database cannot be opened now: it is away, starting, or does not respond."""


class CommitOutcomeUnknown(Exception):
    """A commit got no response: it is not known whether it happened. The cause says why."""


_UNREACHABLE_ERRORS: Final[Sequence[type[BaseException]]] = (
    asyncpg.PostgresConnectionError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.CannotConnectNowError,
    asyncpg.TooManyConnectionsError,
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.LockNotAvailableError,
    asyncpg.TargetServerAttributeNotMatched,
    CommitOutcomeUnknown,
    OSError,
    TimeoutError,
)
"""The server is unreachable, does not respond in time, is starting or stopping, or is now a standby, as are all of
several hosts during a failover."""

_COLLISION_ERRORS: Final = (asyncpg.DeadlockDetectedError, asyncpg.SerializationError)

_ADVICE: Final[Sequence[tuple[tuple[type[BaseException], ...], str]]] = (
    (
        (asyncpg.InvalidAuthorizationSpecificationError,),
        "it rejects these credentials; check the user of --store, its password (PGPASSWORD, a password file) and "
        "pg_hba.conf",
    ),
    ((asyncpg.InvalidCatalogNameError,), "there is no database with this name; create it with createdb"),
    (
        (asyncpg.InsufficientPrivilegeError,),
        "this user lacks a permission; it has to own the tables, or GRANT it CREATE and USAGE on the schema",
    ),
    ((asyncpg.InvalidSchemaNameError,), "the search_path of this user names no existing schema"),
    (
        (asyncpg.TooManyConnectionsError,),
        "it accepts no more connections; lower --postgres-connections, or use a pooler",
    ),
    ((asyncpg.CannotConnectNowError,), "it is starting or stopping; try again"),
    ((asyncpg.ReadOnlySQLTransactionError,), "it is read-only; use the primary"),
    (
        (asyncpg.TargetServerAttributeNotMatched,),
        "no host of --store is the primary; check which one is, and target_session_attrs",
    ),
    ((asyncpg.DiskFullError,), "the disk is full; free some space, nothing that was acknowledged is lost"),
    ((asyncpg.LockNotAvailableError,), "another session has held a lock for too long; see pg_locks"),
    ((TimeoutError,), "it does not respond; check that it is running, and that no firewall is in between"),
    ((OSError,), "it cannot be reached; check that it is running there and listening"),
)


def is_unreachable(error: BaseException) -> bool:
    """Whether the server cannot be reached now, and a retry may succeed."""
    if isinstance(error, asyncpg.InterfaceError):  # the connection was closed; a ValueError: an argument is invalid
        return not isinstance(error, ValueError)
    if isinstance(error, tuple(_UNREACHABLE_ERRORS)):
        return True
    if isinstance(error, asyncpg.InternalClientError):
        # The server ended the session between two responses, and the connection is not closed yet.
        return "cannot switch to" in str(error)
    return False


def is_permanent(error: BaseException) -> bool:
    """Whether opening the database again would fail in the same way: wrong settings rather than an outage."""
    return isinstance(error, (PermissionError, ssl.SSLError)) or not is_unreachable(error)


def is_timeout(error: BaseException | None) -> bool:
    """Whether the server did not respond in time, or a lock was not free in time."""
    if isinstance(error, CommitOutcomeUnknown):
        error = error.__cause__
    return isinstance(error, (TimeoutError, asyncpg.LockNotAvailableError))


def is_collision(error: BaseException) -> bool:
    """Whether a transaction was rolled back because of another one, and can simply be retried."""
    return isinstance(error, _COLLISION_ERRORS)


def map_error(error: BaseException, *, is_write: bool = True, is_unknown: bool = False) -> BaseException:
    """The exception to raise for an error: Unavailable when it concerns the server, otherwise the error itself.

    is_write: a write failed, and was not done. A failed read may belong to a request that is already done. is_unknown:
    an earlier attempt of this write may have been done.
    """
    undone = ", this request was not done" if is_write else ""
    is_unknown = is_unknown or isinstance(error, CommitOutcomeUnknown)
    if is_unknown:
        outage = (
            "stopped responding during a commit: it is not known whether this request was done, "
            "so check before you repeat it"
        )
    elif is_unreachable(error):
        outage = f"does not respond; what it has acknowledged is safe{undone}"
    elif isinstance(error, asyncpg.DiskFullError):
        outage = f"is full; what it has acknowledged is safe{undone}"
    elif lacks_memory(error):  # asyncpg wraps the MemoryError in errors of its own
        return error if isinstance(error, OutOfMemory) else out_of_memory(error)
    else:
        return error
    unavailable = Unavailable(f"the store {outage}")
    unavailable.outcome_unknown = is_unknown
    unavailable.__cause__ = error
    return unavailable


def explain(error: BaseException) -> str:
    """PostgreSQL's message, and what to do, in one line."""
    message = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, InvalidDatabase):
        return message
    for kinds, advice in _ADVICE:
        if isinstance(error, kinds):
            return f"{message}: {advice}"
    return message
