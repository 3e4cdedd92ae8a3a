"""What is wrong with a database, in words that say what to do, and without what is secret."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import asyncpg

from dragoman.core.errors import Unavailable
from dragoman.stores.shared.schema import SchemaTooNew


class InvalidDatabase(Exception):
    """A database that cannot hold a store. The text is one line."""


class PostgresSchemaTooNew(InvalidDatabase, SchemaTooNew):
    """The store was written by a newer Dragoman, on whose schema this one cannot run."""


class CommitOutcomeUnknown(Exception):
    """The connection broke while a commit was under way: whether it happened is not known."""


_UNREACHABLE_ERRORS: Final[Sequence[type[BaseException]]] = (
    asyncpg.PostgresConnectionError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.CannotConnectNowError,
    asyncpg.TooManyConnectionsError,
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    OSError,
    TimeoutError,
)
"""The server is not there, is starting or stopping, or is a standby now."""

_COLLISION_ERRORS: Final = (asyncpg.DeadlockDetectedError, asyncpg.SerializationError)

_ADVICE: Final[Sequence[tuple[tuple[type[BaseException], ...], str]]] = (
    (
        (asyncpg.InvalidAuthorizationSpecificationError,),
        "it does not take these credentials; see the user of --store, its password (PGPASSWORD, a password file) and "
        "pg_hba.conf",
    ),
    ((asyncpg.InvalidCatalogNameError,), "there is no database of this name; make it with createdb"),
    (
        (asyncpg.InsufficientPrivilegeError,),
        "this user may not do that; it has to own the tables, or GRANT it CREATE and USAGE on the schema",
    ),
    ((asyncpg.InvalidSchemaNameError,), "the search_path of this user names no schema that is there"),
    (
        (asyncpg.TooManyConnectionsError,),
        "it takes no more connections; lower --postgres-connections, or put a pooler in",
    ),
    ((asyncpg.CannotConnectNowError,), "it is starting or stopping; try again"),
    ((asyncpg.ReadOnlySQLTransactionError,), "it is read-only; name the primary"),
    ((asyncpg.DiskFullError,), "there is no room left; free some on its disk, nothing that was acknowledged is lost"),
    ((TimeoutError,), "it does not answer; see whether it runs, and whether a firewall is between"),
    ((OSError,), "it cannot be reached; see whether it runs there and listens"),
)


def is_unreachable(error: BaseException) -> bool:
    """Whether an error says that the server cannot be asked now; a little later it may."""
    if isinstance(error, asyncpg.InterfaceError):  # the connection was closed; or, as a ValueError, a value is no good
        return not isinstance(error, ValueError)
    if isinstance(error, asyncpg.InternalClientError):
        # The server said goodbye outside of an answer, and the connection is not closed yet.
        return "cannot switch to" in str(error)
    return isinstance(error, tuple(_UNREACHABLE_ERRORS))


def is_collision(error: BaseException) -> bool:
    """Whether a transaction was undone because of another one, and may simply be tried again."""
    return isinstance(error, _COLLISION_ERRORS)


def map_error(error: BaseException, *, is_write: bool = True) -> BaseException:
    """What callers are told of an error: that it is not their fault, and nothing of ours; or the error itself.

    wrote: a write met it, and is not done. What only was to be read may belong to a request that is done already.
    """
    undone = ", this request is not done" if is_write else ""
    if isinstance(error, CommitOutcomeUnknown):
        said = "stopped answering in a commit: whether this request was done is not known, so look before you repeat it"
    elif is_unreachable(error):
        said = f"does not answer; what it has acknowledged is safe{undone}"
    elif isinstance(error, asyncpg.DiskFullError):
        said = f"is full; what it has acknowledged is safe{undone}"
    else:
        return error
    unavailable = Unavailable(f"the store {said}")
    unavailable.__cause__ = error
    return unavailable


def explain(error: BaseException) -> str:
    """What the trouble is and what helps, in one line, with PostgreSQL's own words."""
    own = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, InvalidDatabase):
        return own
    for kinds, said in _ADVICE:
        if isinstance(error, kinds):
            return f"{own}: {said}"
    return own
