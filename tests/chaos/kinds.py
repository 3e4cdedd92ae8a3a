"""Kinds of chaos runs: what is served, and at which pace."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.chaos.pace import DENSE, DENSE_CLUSTER, HASTY, ORDINARY, Pace
from tests.chaos.targets.framework_server import framework_running
from tests.chaos.targets.replicas import replicas
from tests.chaos.targets.server import running
from tests.chaos.targets.target import Target


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind. `framework`: beside the ordinary agents, the server has one of each framework named here."""

    label: str
    pace: Pace = ORDINARY
    several: bool = False
    framework: str = ""

    def open(self, folder: Path, *options: str) -> AbstractAsyncContextManager[Target]:
        """Runs the target inside the block. `options`: further ones of its servers."""
        if self.several:
            return replicas(folder, *options)
        if self.framework:
            return framework_running(folder, self.framework, *options)
        return running(folder, *options)


KINDS: Final[Mapping[str, Kind]] = {
    "one": Kind(label="one server on SQLite"),
    "cluster": Kind(label="three servers, two workers, PostgreSQL and NATS", several=True),
    "dense": Kind(label="one server on SQLite, dense", pace=DENSE),
    "hasty": Kind(label="one server on SQLite, killed as soon as it serves", pace=HASTY),
    "dense-cluster": Kind(
        label="three servers, two workers, PostgreSQL and NATS, dense", pace=DENSE_CLUSTER, several=True
    ),
    "langgraph": Kind(label="one server on SQLite, dense, with a LangGraph graph", pace=DENSE, framework="langgraph"),
    "pydantic-ai": Kind(
        label="one server on SQLite, dense, with a pydantic-ai agent", pace=DENSE, framework="pydantic_ai"
    ),
}
"""`one` and `cluster` are `make chaos` and `make chaos-cluster`."""
