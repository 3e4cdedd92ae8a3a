"""The same agents for a worker, whose ids begin with `worker-`."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

from dragoman import agent

sys.path.insert(0, str(Path(__file__).parent))

agents: Any = importlib.import_module("agents")  # tests/hostile/agents.py

for one in (*agents.FUNCTIONS, *agents.VALUE_FUNCTIONS):
    globals()[f"agent_{one.__name__}"] = agent(id=f"worker-{one.__name__.replace('_', '-')}")(one)
