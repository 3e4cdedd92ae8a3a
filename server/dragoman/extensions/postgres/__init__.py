"""A store in a PostgreSQL database, which several processes may share."""

from dragoman.extensions.postgres.errors import DatabaseUnreachable, InvalidDatabase, PostgresSchemaTooNew
from dragoman.extensions.postgres.store import PostgresStore, open_store

__all__ = ["PostgresStore", "PostgresSchemaTooNew", "InvalidDatabase", "DatabaseUnreachable", "open_store"]
