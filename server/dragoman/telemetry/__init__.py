"""Exporters of metrics (Prometheus) and traces (OTLP)."""
