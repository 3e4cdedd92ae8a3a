"""Retention, compaction, erasure, and other work of operators."""
