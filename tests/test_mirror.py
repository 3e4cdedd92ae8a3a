"""Every module of `dragoman` with logic has its tests in `tests/<folder>/test_<module>.py`, with few exceptions.

A module without logic has tables, types and declarations only: no function in it has a body. Packages (`__init__.py`)
re-export names, and are not counted.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[1]

EXEMPT: Final[Mapping[str, str]] = {
    "core/errors.py": "exceptions; tests/wire/test_errors.py has their codes and texts for every dialect",
    "extensions/frameworks/child/adapters/agent_framework_agent.py": "tests/frameworks runs it in its own environment",
    "extensions/frameworks/child/adapters/crewai_crew.py": "tests/frameworks runs it in its own environment",
    "extensions/frameworks/child/adapters/crewai_events.py": "tests/frameworks runs it in its own environment",
    "extensions/frameworks/child/adapters/crewai_flow.py": "tests/frameworks runs it in its own environment",
    "extensions/frameworks/child/adapters/google_adk_agent.py": "tests/frameworks runs it in its own environment",
    "extensions/frameworks/child/adapters/langgraph_graph.py": "tests/frameworks runs it in its own environment",
    "extensions/frameworks/child/adapters/openai_agents_agent.py": "tests/frameworks runs it in its own environment",
    "extensions/frameworks/child/adapters/pydantic_ai_agent.py": "tests/frameworks runs it in its own environment",
    "extensions/frameworks/child/adapters/strands_agent.py": "tests/frameworks runs it in its own environment",
    "runtime/observe/metrics.py": "tests/telemetry/test_metrics.py reads all of it over HTTP",
    "ports/agent.py": "a protocol; its two small classes are tested by the turns of every kind of agent",
    "extensions/postgres/maintenance/search.py": "behind ports.Store: testing/contracts/store_search.py",
    "extensions/postgres/maintenance/task_counts.py": "behind ports.Store: testing/contracts/store_search.py proves it",
    "extensions/postgres/hot/steps.py": "behind ports.Store: testing/contracts/store_steps.py proves all of it",
    "stores/sqlite/cold/search.py": "behind ports.Store: testing/contracts/store_search.py",
    "stores/sqlite/cold/daily_usage.py": "behind ports.Store: testing/contracts/store_daily_usage.py proves all of it",
    "testing/contracts/store_contents.py": "a contract suite: tests/stores runs it on every store",
    "testing/contracts/store_daily_usage.py": "a contract suite: tests/stores runs it on every store",
    "testing/contracts/store_search.py": "a contract suite: tests/stores runs it on every store",
    "testing/contracts/store_steps.py": "a contract suite: tests/stores runs it on every store",
    "stores/shared/tables.py": "behind ports: testing/contracts/store_tables.py proves it on every store",
    "stores/shared/queries.py": "statements of both stores: the contract suites run them on every store",
    "stores/sqlite/queries.py": "runs the statements of stores/shared: the contract suites prove it",
    "extensions/postgres/queries.py": "runs the statements of stores/shared: the contract suites prove it",
    "stores/sqlite/cold/pushes.py": "behind ports.PushStore: testing/contracts/store_pushes.py proves every function",
}
"""Modules with logic and without such a file, with the reason."""

MISSING: Final = frozenset(
    {
        "ports/remote_agents.py",
        "extensions/postgres/large_parts.py",
        "stores/shared/blobs.py",
        # agents, bindings, cli, client, telemetry, testing, wire, wiring, worker
        "extensions/frameworks/process.py",
        "agents/upstream/discovery.py",
        "agents/upstream/follow_ups.py",
        "agents/workers/agent.py",
        "agents/workers/connection.py",
        "bindings/http/jsonrpc.py",
        "bindings/http/listener.py",
        "bindings/http/websocket.py",
        "bindings/options.py",
        "cli/doctor.py",
        "cli/flaky.py",
        "cli/serve/command.py",
        "cli/serve/options.py",
        "client/agent_connection.py",
        "client/operations.py",
        "extensions/frameworks/child/a2a_sdk_v03.py",
        "extensions/frameworks/child/a2a_sdk_v1.py",
        "extensions/frameworks/child/start.py",
        "telemetry/otlp.py",
        "telemetry/spans.py",
        "testing/contracts/bus.py",
        "testing/contracts/store_erasure.py",
        "testing/contracts/store_machine.py",
        "testing/contracts/store_pushes.py",
        "testing/contracts/store_reads.py",
        "testing/contracts/store_sessions.py",
        "testing/contracts/store_size.py",
        "testing/contracts/store_tables.py",
        "testing/contracts/store_usage.py",
        "testing/contracts/store_writes.py",
        "testing/fixtures.py",
        "wiring/agents.py",
        "wiring/offline_admin.py",
    }
)
"""Modules whose tests still have other names. Remove a row with each file that arrives; add none."""


def has_logic(source: str) -> bool:
    """Whether any function in a module does something: its body is more than a docstring, `...` or `pass`."""
    return any(
        not isinstance(statement, ast.Pass)
        and not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant))
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for statement in node.body
    )


def problems(root: Path, exempt: Iterable[str]) -> list[str]:
    """One line for each module without its test file, and for each exemption that is not needed."""
    package, exempt = root / "server" / "dragoman", set(exempt)
    found = []
    for path in sorted(package.rglob("*.py")):
        module = path.relative_to(package)
        if module.name == "__init__.py":
            continue
        test = Path("tests", module.parent, f"test_{module.name}")
        if module.as_posix() not in exempt:
            if not (root / test).exists() and has_logic(path.read_text(encoding="utf-8")):
                found.append(f"{module.as_posix()}: {test.as_posix()} is missing")
        elif (root / test).exists():
            found.append(f"{module.as_posix()}: {test.as_posix()} exists; remove the exemption")
        elif not has_logic(path.read_text(encoding="utf-8")):
            found.append(f"{module.as_posix()}: has no logic; remove the exemption")
    return found + [
        f"{name}: does not exist; remove the exemption" for name in sorted(exempt) if not (package / name).exists()
    ]


def test_every_module_with_logic_has_its_test_file() -> None:
    assert problems(ROOT, [*EXEMPT, *MISSING]) == []


def test_every_exemption_has_one_reason() -> None:
    assert not EXEMPT.keys() & MISSING
    assert all(EXEMPT.values())


@pytest.mark.parametrize(
    ("source", "logic"),
    [
        ("LIMIT = 3\n\n\nclass Row:\n    number: int = 0\n", False),
        ('class Port:\n    def read(self) -> int:\n        """Reads."""\n        ...\n', False),
        ("class Port:\n    async def close(self) -> None: ...\n", False),
        ("def nothing():\n    pass\n", False),
        ("def one():\n    return 1\n", True),
        ("class Row:\n    async def size(self):\n        return self.a + self.b\n", True),
    ],
)
def test_a_module_has_logic_if_one_of_its_functions_has_a_body(source: str, logic: bool) -> None:
    assert has_logic(source) is logic


def test_a_missing_test_file_and_a_needless_exemption_are_found(tmp_path: Path) -> None:
    for name, text in {
        "server/dragoman/core/tested.py": "def f(): return 1",
        "tests/core/test_tested.py": "",
        "server/dragoman/core/untested.py": "def f(): return 1",
        "server/dragoman/core/elsewhere.py": "def f(): return 1",
        "tests/test_elsewhere.py": "",
        "server/dragoman/core/exempt.py": "def f(): return 1",
        "server/dragoman/core/table.py": "LIMIT = 3",
        "server/dragoman/core/__init__.py": "def f(): return 1",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert problems(tmp_path, ["core/exempt.py"]) == [
        "core/elsewhere.py: tests/core/test_elsewhere.py is missing",
        "core/untested.py: tests/core/test_untested.py is missing",
    ]
    everything = ["core/exempt.py", "core/elsewhere.py", "core/untested.py"]
    assert problems(tmp_path, [*everything, "core/tested.py", "core/table.py", "core/gone.py"]) == [
        "core/table.py: has no logic; remove the exemption",
        "core/tested.py: tests/core/test_tested.py exists; remove the exemption",
        "core/gone.py: does not exist; remove the exemption",
    ]
