"""`make test-pythons`: the tests of every extra, too, on each CPython of this machine, in an environment of its own.

The environments are made from uv.lock in `.tools/pythons/VERSION`. Interpreters are looked for on PATH, among the
versions of pyenv, and among those that uv has installed. `PYTHONS="3.12 3.13.0"` in the environment selects some.
Prints a line for each interpreter, and below it why tests were skipped.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tools.environments import ROOT, UV

LOWEST: Final = (3, 11)

_ON_PATH: Final = re.compile(r"python3\.\d+")
_QUESTION: Final = """
import json, platform, sys, sysconfig
json.dump({
    "executable": sys._base_executable, "version": platform.python_version(), "kind": sys.implementation.name,
    "without_gil": bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
}, sys.stdout)
"""


@dataclass(frozen=True)
class Interpreter:
    """A CPython of this machine, outside of any environment."""

    executable: Path
    version: str  # such as 3.13.0 or 3.14.0rc1

    @property
    def order(self) -> list[int]:
        """A key that sorts by version."""
        return [int(digits) for digits in re.findall(r"\d+", self.version)]

    def matches(self, wanted: str) -> bool:
        """Whether it is a version that was asked for: `3.13` or `3.13.0`."""
        return self.version == wanted or self.version.startswith(f"{wanted}.")


@dataclass
class Outcome:
    """Counts of one run of the tests."""

    passed: int = 0
    failed: int = 0
    seconds: float = 0.0
    skipped: Counter[str] = field(default_factory=Counter)  # by reason
    problem: str = ""  # why there are no counts, or why they are not all

    @property
    def is_good(self) -> bool:
        return not self.failed and not self.problem

    def lines(self, version: str) -> Iterator[str]:
        """The line of an interpreter, and one for each reason of skipped tests."""
        counts = f"{self.passed} passed, {self.failed} failed, {self.skipped.total()} skipped in {self.seconds:.0f} s"
        yield f"test-pythons: {version:8} {counts}{self.problem and f': {self.problem}'}"
        for reason, count in self.skipped.most_common():
            yield f"  {count:5} skipped: {reason}"


def candidates() -> Iterator[Path]:
    """Paths that may be interpreters, of which several may be the same."""
    for folder in os.get_exec_path():
        if Path(folder).is_dir():
            yield from (path for path in sorted(Path(folder).iterdir()) if _ON_PATH.fullmatch(path.name))
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    yield from sorted(pyenv.glob("versions/*/bin/python"))
    listed = subprocess.run(
        [UV, "python", "list", "--only-installed", "--output-format", "json"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if listed.returncode == 0:
        yield from (Path(row["path"]) for row in json.loads(listed.stdout))


def ask(path: Path) -> Interpreter | None:
    """The interpreter at a path; None for what is no CPython, is too old, or has no global interpreter lock."""
    try:
        printed = subprocess.run([path, "-c", _QUESTION], capture_output=True, text=True, check=True, timeout=60)
        answer = json.loads(printed.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):  # such as pyenv's shim of a version that is not active
        return None
    found = Interpreter(Path(answer["executable"]), answer["version"])
    if answer["kind"] != "cpython" or tuple(found.order[:2]) < LOWEST:
        return None
    if answer["without_gil"]:
        print(f"test-pythons: {found.executable} is left out: it has no global interpreter lock")
        return None
    return found


def installed(paths: Iterable[Path]) -> list[Interpreter]:
    """The interpreters at these paths, one of each version, the oldest first."""
    by_version: dict[str, Interpreter] = {}
    for path in paths:
        if (found := ask(path)) is not None:
            by_version.setdefault(found.version, found)
    return sorted(by_version.values(), key=lambda one: one.order)


def select(found: Sequence[Interpreter], wanted: Sequence[str]) -> tuple[list[Interpreter], list[str]]:
    """The newest interpreter of each version asked for, or all; and the versions that are missing."""
    if not wanted:
        return list(found), []
    chosen = {version: [one for one in found if one.matches(version)][-1:] for version in wanted}
    selected = [one for one in found if any(one in few for few in chosen.values())]
    return selected, [version for version, few in chosen.items() if not few]


def read_report(report: Path) -> Outcome:
    """The counts in pytest's report (JUnit XML)."""
    outcome = Outcome()
    for suite in ET.parse(report).getroot().iter("testsuite"):
        outcome.seconds += float(suite.get("time", 0))
        for case in suite.iter("testcase"):
            skipped = case.find("skipped")
            if case.find("failure") is not None or case.find("error") is not None:
                outcome.failed += 1
            elif skipped is not None:
                outcome.skipped[skipped.get("message", "").partition("\n")[0]] += 1
            else:
                outcome.passed += 1
    return outcome


def run_tests(interpreter: Interpreter, arguments: Sequence[str]) -> Outcome:
    """Runs the tests on one interpreter, and shows pytest's output."""
    environment = ROOT / ".tools" / "pythons" / interpreter.version
    if subprocess.call([ROOT / "tools" / "make_env.sh", interpreter.executable, UV, environment], cwd=ROOT):
        return Outcome(problem="its environment could not be made from uv.lock")
    programs = environment / "bin"
    with tempfile.TemporaryDirectory(prefix="test-pythons-") as folder:
        report = Path(folder) / "report.xml"
        command: list[str | Path] = [
            programs / "python",
            "-m",
            "pytest",
            "-n",
            "2",
            "--groups",
            "short",
            f"--junitxml={report}",
        ]
        variables = {**os.environ, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}
        ended = subprocess.run([*command, *arguments], cwd=ROOT, env=variables, check=False)
        outcome = read_report(report) if report.exists() else Outcome()
    if ended.returncode and not outcome.failed:
        outcome.problem = f"pytest ended with {ended.returncode}"
    return outcome


def main() -> int:
    found = installed(candidates())
    selected, missing = select(found, os.environ.get("PYTHONS", "").split())
    versions = ", ".join(one.version for one in found) or "none"
    if missing or not selected:
        print(f"test-pythons: CPython {' and '.join(missing) or '3.11 or newer'} is missing; found: {versions}")
        return 1
    outcomes: dict[str, Outcome] = {}
    for one in selected:
        print(f"test-pythons: {one.version} at {one.executable}", flush=True)
        outcomes[one.version] = run_tests(one, sys.argv[1:])
    for version, outcome in outcomes.items():
        print("\n".join(outcome.lines(version)))
    return 0 if all(outcome.is_good for outcome in outcomes.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
