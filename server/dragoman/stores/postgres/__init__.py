"""Tasks in a PostgreSQL database, which several processes may share."""

from dragoman.stores.postgres.opening import open_store
from dragoman.stores.postgres.store import PostgresStore
from dragoman.stores.postgres.trouble import SchemaTooNew, Unusable

__all__ = ["PostgresStore", "SchemaTooNew", "Unusable", "open_store"]
