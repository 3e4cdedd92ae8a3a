"""Node examples: `npm ci` works on every platform, and with the Node that the example names."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tools.environments import ROOT

LOCKS = sorted(path for path in (ROOT / "examples").rglob("package-lock.json") if "node_modules" not in path.parts)


@pytest.mark.parametrize("path", LOCKS, ids=lambda path: path.parent.name)
def test_a_lock_has_the_packages_of_every_platform(path: Path) -> None:
    packages = json.loads(path.read_text("utf-8"))["packages"]
    locked = {name.rpartition("node_modules/")[2] for name in packages if name}
    named = {
        name
        for package in packages.values()
        for kind in ("dependencies", "optionalDependencies")
        for name in package.get(kind, {})
    }
    assert named <= locked


@pytest.mark.parametrize("path", LOCKS, ids=lambda path: path.parent.name)
def test_every_locked_package_runs_on_the_node_that_the_example_names(path: Path) -> None:
    packages = json.loads(path.read_text("utf-8"))["packages"]
    oldest = int(packages[""]["engines"]["node"].removeprefix(">="))
    for name, package in packages.items():
        ranges = package.get("engines", {}).get("node", "*") if name else "*"
        majors = [int(found) for found in re.findall(r">=\s*(\d+)", ranges)]
        assert not majors or min(majors) <= oldest, f"{name} requires Node {ranges}"
