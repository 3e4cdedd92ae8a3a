"""Compaction, erasure and backup of a SQLite store."""
