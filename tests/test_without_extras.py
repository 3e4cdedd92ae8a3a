"""The run without extras: it hides what the extras install, and the list of tests that it leaves out is right."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Final

import pytest
from tests.without_extras.needs import MODULES

ROOT: Final = Path(__file__).parents[1]
HIDING: Final = ROOT / "tests" / "without_extras"

MODULES_OF: Final = {
    "asyncpg": "asyncpg",
    "nats-py": "nats",
    "mcp": "mcp",
    "opentelemetry-api": "opentelemetry",
}
"""The module of each distribution of an extra."""


def run(*command: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DRAGOMAN_")}
    return subprocess.run(
        [sys.executable, *command],
        env=environment | {"PYTHONPATH": str(HIDING)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def test_every_library_of_an_extra_is_hidden() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    libraries = {re.split(r"[\[<>=]", requirement)[0] for extra in extras.values() for requirement in extra}
    assert libraries == set(MODULES_OF)
    code = "import sys, json; print(json.dumps([name for name, value in sys.modules.items() if value is None]))"
    assert set(MODULES_OF.values()) <= set(json.loads(run("-c", code).stdout))


@pytest.mark.parametrize(
    ("options", "advice"),
    [
        (["--store", "postgresql://u@127.0.0.1:1/d"], "--store: PostgreSQL needs more packages"),
        (["--mcp", "http://127.0.0.1:1/mcp"], "--mcp: MCP needs more packages"),
    ],
)
def test_a_start_without_its_extra_says_what_to_install(tmp_path: Path, options: list[str], advice: str) -> None:
    places = ["--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--store", f"sqlite:///{tmp_path}/tasks.db"]
    done = run("-m", "dragoman", "serve", *places, *options)
    assert done.returncode == 1
    assert advice in done.stderr
    assert re.search(r"pip install 'dragoman\[(postgres|mcp)\]( @ file:.*)?'", done.stderr)


def test_every_listed_module_exists_and_names_its_extra() -> None:
    assert [module for module in MODULES if not (ROOT / "tests" / module).is_file()] == []
    assert {reason.partition(":")[0] for reason in MODULES.values()} <= {
        "mcp",
        "nats",
        "postgres",
        "postgres, nats, mcp",
        "telemetry",
    }


def test_every_listed_module_needs_its_extra() -> None:
    code = (
        "import importlib, sys\n"
        "for module in sys.argv[1:]:\n"
        "    try:\n"
        "        importlib.import_module(module)\n"
        "    except ImportError:\n"
        "        continue\n"
        "    print(module)\n"
    )
    names = ["tests." + module.removesuffix(".py").replace("/", ".") for module in MODULES]
    done = run("-c", code, *names)
    assert done.stdout.split() == [], done.stderr
