"""Compaction and erasure of a PostgreSQL store."""
