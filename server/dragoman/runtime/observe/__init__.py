"""Observability for operators: explain, metrics, audit log, traces."""
