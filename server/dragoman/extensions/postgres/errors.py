"""Classifies errors of PostgreSQL and its driver, and maps them to errors for callers and advice for operators.

ERROR_TABLE decides for every error, by SQLSTATE (its five characters, else its class, the first two) or by the class of
the driver. https://www.postgresql.org/docs/current/errcodes-appendix.html lists the codes.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Final

import asyncpg

from dragoman.core.errors import Unavailable
from dragoman.core.exceptions import walk
from dragoman.stores.shared.errors import FAULT, ErrorRow, StoreFault, Verdict, new_failure
from dragoman.stores.shared.rows import SchemaTooNew


class InvalidDatabase(Exception):
    """A database that cannot be used as a store. The text is one line."""


class PostgresSchemaTooNew(InvalidDatabase, SchemaTooNew):
    """The store was written by a newer Dragoman, and this release cannot use its schema."""


class DatabaseUnreachable(InvalidDatabase):
    """The database cannot be opened now: it is away, starting, or does not respond."""


class CommitOutcomeUnknown(Exception):
    """A commit got no response: it is not known whether it happened. The cause says why."""


_MISCONFIGURED: Final = "cannot be used by this server"
_DAMAGED: Final = "fails to read or write its data"
_OPTION: Final = (
    "an option of --store after the ? is host, port, user, database, passfile, target_session_attrs, sslmode, sslcert, "
    "sslkey, sslpassword, sslrootcert, sslcrl, ssl_min_protocol_version, ssl_max_protocol_version, krbsrvname, gsslib, "
    "or a setting that PostgreSQL lets a session choose, such as application_name or search_path"
)
_POOLER: Final = "a pooler in between drops prepared statements; set --postgres-pooler"

ERROR_TABLE: Final[Mapping[str | type[BaseException], ErrorRow]] = {
    # Of the server, by SQLSTATE ------------------------------------------------------------------------------------
    # Statements, values and states that our code got wrong, warnings and features that it does not use.
    **dict.fromkeys(("01", "02", "03", "09", "0A", "0B", "0F", "0L", "0P", "0Z", "10", "20", "21", "22", "23"), FAULT),
    **dict.fromkeys(("24", "25", "27", "2B", "2D", "2F", "34", "38", "39", "3B", "42", "44", "54", "HV", "P0"), FAULT),
    "0A000": ErrorRow(  # for the BEGIN of a write: a host that was the primary is a standby now
        Verdict.LOST, "is read-only", "it is a standby, or lacks a feature that this server needs; use the primary"
    ),
    "08": ErrorRow(Verdict.LOST, advice="the connection to it broke; check the network, its log, and a pooler"),
    "25006": ErrorRow(Verdict.LOST, "is read-only", "it is read-only; use the primary"),
    "25P03": ErrorRow(Verdict.LOST, advice="it ended an idle transaction; this process was paused for too long"),
    "25P04": ErrorRow(Verdict.LOST, advice="it ended a long transaction; raise transaction_timeout"),
    "26": ErrorRow(Verdict.FAULT, advice=_POOLER),
    "28": ErrorRow(
        Verdict.REFUSED,
        _MISCONFIGURED,
        "it rejects these credentials; check the user of --store, its password (PGPASSWORD, a password file) and "
        "pg_hba.conf",
    ),
    "3D": ErrorRow(Verdict.REFUSED, _MISCONFIGURED, "there is no database with this name; create it with createdb"),
    "3F": ErrorRow(Verdict.REFUSED, _MISCONFIGURED, "the search_path of this user names no existing schema"),
    "40": ErrorRow(Verdict.REPEAT, "is busy", "transactions collide again and again; see its log"),
    "40003": ErrorRow(Verdict.LOST),
    "42501": ErrorRow(
        Verdict.REFUSED,
        _MISCONFIGURED,
        "this user lacks a permission; it has to own the tables, or GRANT it CREATE and USAGE on the schema",
    ),
    "42704": ErrorRow(Verdict.REFUSED, _MISCONFIGURED, _OPTION),
    "42P01": ErrorRow(Verdict.REFUSED, _MISCONFIGURED, "a table is missing; check the search_path of this user"),
    "42P05": ErrorRow(Verdict.FAULT, advice=_POOLER),
    "53": ErrorRow(Verdict.REFUSED, "lacks resources", "it lacks resources; see its log"),
    "53100": ErrorRow(
        Verdict.REFUSED, "is full", "the disk is full; free some space, nothing that was acknowledged is lost"
    ),
    "53200": ErrorRow(Verdict.REFUSED, "is out of memory", "it is out of memory; give it more, or lower work_mem"),
    "53300": ErrorRow(
        Verdict.LOST,
        "accepts no more connections",
        "it accepts no more connections; lower --postgres-connections, or use a pooler",
    ),
    "55": ErrorRow(Verdict.REFUSED, "cannot do this now", "an object is in use or not in the state that is needed"),
    "55P02": ErrorRow(Verdict.REFUSED, _MISCONFIGURED, _OPTION),
    "55P03": ErrorRow(
        Verdict.BLOCKED,
        "waits for a lock of another session",
        "another session has held a lock for too long; see pg_locks and pg_blocking_pids(), and end that session",
    ),
    "57": ErrorRow(Verdict.REPEAT, "was interrupted", "an operator interrupted it"),
    "57014": ErrorRow(
        Verdict.REPEAT,
        "cancels this server's statements",
        "statements are canceled: by a statement_timeout of the database or the role, or by pg_cancel_backend",
    ),
    "57P01": ErrorRow(Verdict.LOST, advice="an operator ended the connection, or stops the server"),
    "57P02": ErrorRow(Verdict.LOST, advice="it crashed, and recovers"),
    "57P03": ErrorRow(Verdict.LOST, advice="it is starting or stopping; try again"),
    "57P04": ErrorRow(Verdict.REFUSED, _MISCONFIGURED, "the database was dropped"),
    "57P05": ErrorRow(Verdict.LOST, advice="it ended an idle connection (idle_session_timeout)"),
    "58": ErrorRow(Verdict.BROKEN, _DAMAGED, "it fails to read or write a file; see its log and its disks"),
    "72": ErrorRow(Verdict.REPEAT, "is busy"),
    "F0": ErrorRow(Verdict.REFUSED, _MISCONFIGURED, "its configuration file is invalid"),
    "XX": ErrorRow(Verdict.BROKEN, _DAMAGED, "it failed internally; see its log"),
    "XX001": ErrorRow(Verdict.BROKEN, "is damaged", "its data is damaged; keep it, and restore a backup", False),
    "XX002": ErrorRow(Verdict.BROKEN, "is damaged", "an index is damaged; REINDEX it, and check its disk"),
    # Of the driver and this machine, by class ------------------------------------------------------------------------
    asyncpg.InvalidCachedStatementError: ErrorRow(Verdict.REPEAT, "is being migrated"),
    asyncpg.OutdatedSchemaCacheError: ErrorRow(Verdict.REPEAT, "is being migrated"),
    asyncpg.InterfaceError: ErrorRow(Verdict.LOST),  # the connection was closed
    asyncpg.ClientConfigurationError: FAULT,
    asyncpg.UnsupportedClientFeatureError: FAULT,
    asyncpg.UnsupportedServerFeatureError: FAULT,
    asyncpg.InternalClientError: FAULT,
    asyncpg.ProtocolError: ErrorRow(Verdict.LOST),
    asyncpg.TargetServerAttributeNotMatched: ErrorRow(
        Verdict.LOST, advice="no host of --store is the primary; check which one is, and target_session_attrs"
    ),
    TimeoutError: ErrorRow(
        Verdict.LATE, advice="it does not respond; check that it is running, and that no firewall is in between"
    ),
    OSError: ErrorRow(
        Verdict.LOST, advice="it cannot be reached; check that it is running there and listening"
    ),
    EOFError: ErrorRow(Verdict.LOST),
    MemoryError: ErrorRow(Verdict.REFUSED),
}  # fmt: skip

DATABASE_ERRORS: Final = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    CommitOutcomeUnknown,
    OSError,
    EOFError,
    MemoryError,
)
"""All errors that the table decides. Everything else is of our code, and is raised as it is."""

_SESSION_ENDED: Final = ErrorRow(Verdict.LOST)


def row_of(error: BaseException) -> ErrorRow:
    """The row of an error; FAULT for one of our code and for unknown SQLSTATE classes."""
    if isinstance(error, CommitOutcomeUnknown) and error.__cause__ is not None:
        error = error.__cause__
    # The server ended the session between two responses, and the connection is not closed yet.
    if isinstance(error, asyncpg.InternalClientError) and "cannot switch to" in str(error):
        return _SESSION_ENDED
    if isinstance(error, asyncpg.InterfaceError) and isinstance(error, ValueError):  # an argument of a statement
        return FAULT
    for kind in type(error).__mro__:
        if kind in ERROR_TABLE:
            return ERROR_TABLE[kind]
    code = getattr(error, "sqlstate", None) or ""
    return ERROR_TABLE.get(code) or ERROR_TABLE.get(code[:2], FAULT)


def verdict_of(error: BaseException) -> Verdict:
    """Meaning of an error for the operation that failed."""
    return row_of(error).verdict


def is_disconnected(error: BaseException) -> bool:
    """Whether the connection cannot be used any more, so that a commit in progress has an unknown outcome."""
    return verdict_of(error) in (Verdict.LOST, Verdict.LATE)


def may_pass(error: BaseException) -> bool:
    """Whether the same operation may succeed within seconds: on another connection, or when a lock is free."""
    return verdict_of(error) in (Verdict.LOST, Verdict.LATE, Verdict.BLOCKED)


def is_permanent(error: BaseException) -> bool:
    """Whether opening the database again would fail in the same way: wrong settings rather than an outage."""
    return isinstance(error, (PermissionError, ssl.SSLError)) or verdict_of(error) in (Verdict.REFUSED, Verdict.FAULT)


def is_timeout(error: BaseException | None) -> bool:
    """Whether the server did not respond in time, or a lock was not free in time."""
    return error is not None and verdict_of(error) in (Verdict.LATE, Verdict.BLOCKED)


def failure_of(error: BaseException, *, is_write: bool = True, is_unknown: bool = False) -> Unavailable | StoreFault:
    """A new exception for callers, caused by one of DATABASE_ERRORS. See `new_failure`."""
    is_unknown = is_unknown or isinstance(error, CommitOutcomeUnknown)
    return new_failure(error, row_of(error), is_write=is_write, is_unknown=is_unknown)


def has_cause(error: BaseException, kind: type[asyncpg.PostgresError]) -> bool:
    """Whether an error, or one that caused it, is of a kind."""
    return any(isinstance(one, kind) for one in walk(error))


def explain(error: BaseException) -> str:
    """PostgreSQL's message, and what to do, in one line."""
    message = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, InvalidDatabase) or not (advice := row_of(error).advice):
        return message
    return f"{message}: {advice}"
