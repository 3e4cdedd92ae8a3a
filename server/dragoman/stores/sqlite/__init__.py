"""Tasks in one SQLite file: write-ahead log, `synchronous=FULL`, one writer thread, readers apart."""

from dragoman.core.task.maintenance import StorageOptions
from dragoman.stores.sqlite.schema import SqliteSchemaTooNew
from dragoman.stores.sqlite.store import SqliteStore, open_store

__all__ = ["SqliteSchemaTooNew", "StorageOptions", "SqliteStore", "open_store"]
