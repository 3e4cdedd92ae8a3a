"""Hides the libraries of the extras, as in an environment without them, from this process and those it starts.

`make test` puts this folder on PYTHONPATH for the tests of core and adapters.
"""

import sys

sys.modules.update(dict.fromkeys(("asyncpg", "nats", "mcp", "opentelemetry")))  # type: ignore[arg-type] # None: absent
