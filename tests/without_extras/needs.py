"""Tests of core and adapters that need an extra, which a run without extras leaves out and counts.

Tests of extensions are in tests/extensions. `make test` runs the others without the libraries of the extras.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Final

import pytest

WITHOUT_EXTRAS: Final = "asyncpg" in sys.modules and sys.modules["asyncpg"] is None
"""Whether `sitecustomize.py` hides the libraries from this process."""

FIXTURES: Final = frozenset(
    {
        "nats",
        "nats_with_streams",
        "own_nats",
        "own_postgres",
        "patient_bus",
        "postgres",
        "postgres_database",
        "postgres_url",
    }
)
"""Fixtures that start PostgreSQL or NATS."""

MODULES: Final[Mapping[str, str]] = {
    "chaos_checker/test_campaign.py": "postgres: reads the logs of chaos runs, whose faults are those of its driver",
    "chaos_checker/test_logged_errors.py": "postgres: as above",
    "chaos_checker/test_report.py": "postgres: as above",
    "chaos_checker/test_soak.py": "postgres: as above",
    "client/test_trace_context.py": "telemetry: the client takes the trace context of OpenTelemetry",
    "fuzz/remote/test_remote.py": "mcp: answers of other servers, among them MCP servers",
    "runtime/push/test_takeover.py": "postgres: webhooks that another server of the store takes over",
    "runtime/test_nats.py": "nats: two runtimes on one bus",
    "runtime/test_postgres.py": "postgres: two runtimes on one store",
    "runtime/test_postgres_outage.py": "postgres: a runtime whose database fails",
    "telemetry/test_traces.py": "telemetry: the spans of agents' own libraries",
    "test_asgi.py": "telemetry: FastAPI imports OpenTelemetry",
    "test_background_faults.py": "postgres, nats, mcp: faults in all background work, theirs too",
}
"""Modules below tests/ that cannot be imported without an extra, with the extra and the reason. The list only
shrinks: take the store as a parameter, or move the module to tests/extensions."""


def needs_extra(item: pytest.Item) -> bool:
    """Whether a test has a fixture, a parameter or the marker of an extra."""
    parameters = getattr(item, "callspec", None)
    values = parameters.params.values() if parameters is not None else ()
    return (
        item.get_closest_marker("extra") is not None
        or not FIXTURES.isdisjoint(getattr(item, "fixturenames", ()))
        or "postgres" in values
        or "[extensions." in item.name  # a row of a table, about a module of an extension
    )
