"""A store in one SQLite file: write-ahead log, `synchronous=FULL`, one writer thread, reader threads."""

from dragoman.core.task.maintenance import StorageOptions
from dragoman.stores.shared.rows import SchemaTooNew
from dragoman.stores.sqlite.store import SqliteStore, open_store

__all__ = ["SchemaTooNew", "StorageOptions", "SqliteStore", "open_store"]
