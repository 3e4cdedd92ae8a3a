"""Traces: span recorder and OTLP exporter."""
