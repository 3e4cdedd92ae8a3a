"""Tasks in one SQLite file: write-ahead log, `synchronous=FULL`, one writer thread, readers apart."""

from dragoman.core.sizes import Sizes
from dragoman.stores.sqlite.schema import SchemaTooNew
from dragoman.stores.sqlite.store import SqliteStore, open_store

__all__ = ["SchemaTooNew", "Sizes", "SqliteStore", "open_store"]
