"""A store in a PostgreSQL database, which several processes may share."""

from dragoman.stores.postgres.errors import DatabaseUnreachable, InvalidDatabase, PostgresSchemaTooNew
from dragoman.stores.postgres.store import PostgresStore, open_store

__all__ = ["PostgresStore", "PostgresSchemaTooNew", "InvalidDatabase", "DatabaseUnreachable", "open_store"]
