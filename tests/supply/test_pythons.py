"""`make test-pythons` finds every CPython, and hides no failed or skipped test."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from tests import postgres

from tools import pythons
from tools.environments import ROOT
from tools.pythons import Interpreter, Outcome, ask, installed, read_report, run_tests, select


def program(path: Path, output: str, status: int = 0) -> Path:
    """A program that prints this text."""
    path.write_text(f"#!/bin/sh\ncat <<'EOF'\n{output}\nEOF\nexit {status}\n")
    path.chmod(0o755)
    return path


def interpreter(path: Path, version: str, *, kind: str = "cpython", without_gil: bool = False) -> Path:
    """A program that answers as an interpreter of this version does."""
    answer = {"executable": str(path), "version": version, "kind": kind, "without_gil": without_gil}
    return program(path, json.dumps(answer))


def test_this_interpreter_is_found_outside_of_its_environment() -> None:
    found = ask(Path(sys.executable))
    assert found is not None
    assert found.version == sys.version.split()[0]
    assert not found.executable.is_relative_to(sys.prefix)


def test_interpreters_are_listed_once_from_the_oldest_to_the_newest(tmp_path: Path) -> None:
    paths = [
        interpreter(tmp_path / f"p{number}", version)
        for number, version in enumerate(["3.13.0", "3.11.10", "3.11.9", "3.13.0", "3.10.13", "3.14.0rc1"])
    ]
    assert [one.version for one in installed(paths)] == ["3.11.9", "3.11.10", "3.13.0", "3.14.0rc1"]
    assert installed(paths)[2].executable == paths[0]


def test_other_programs_are_passed_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert ask(tmp_path / "missing") is None
    assert ask(program(tmp_path / "shim", "pyenv: python3.12: command not found", status=127)) is None
    assert ask(program(tmp_path / "other", "Python")) is None
    assert ask(interpreter(tmp_path / "pypy", "3.11.9", kind="pypy")) is None
    assert capsys.readouterr().out == ""
    assert ask(interpreter(tmp_path / "free", "3.13.0", without_gil=True)) is None
    assert "free is left out" in capsys.readouterr().out


def test_the_newest_interpreter_of_each_version_asked_for_is_taken() -> None:
    found = [Interpreter(Path("/x"), version) for version in ("3.11.2", "3.11.7", "3.12.1", "3.13.0")]
    assert select(found, []) == (found, [])
    assert select(found, ["3.13", "3.11"]) == ([found[1], found[3]], [])
    assert select(found, ["3.11.2", "3.1", "3.14"]) == ([found[0]], ["3.1", "3.14"])


def test_an_interpreter_that_was_asked_for_and_is_missing_is_an_error() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "tools.pythons"], cwd=ROOT, env={**os.environ, "PYTHONS": "3.11 3.99"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ended.returncode == 1
    assert ended.stdout.startswith("test-pythons: CPython 3.99 is missing; found: 3.")


TESTS = """
import pytest

@pytest.fixture
def broken():
    raise OSError
    yield

@pytest.fixture
def broken_at_its_end():
    yield
    raise OSError

def test_passes(): ...
def test_fails(): assert False
def test_has_a_broken_fixture(broken): ...
def test_passes_before_its_fixture_breaks(broken_at_its_end): ...
@pytest.mark.parametrize("n", [1, 2])
def test_needs_something(n): pytest.skip("it is missing")
@pytest.mark.xfail(reason="known")
def test_fails_as_expected(): assert False
"""


def test_each_test_is_counted_once_and_skips_by_their_reason(tmp_path: Path) -> None:
    (tmp_path / "test_some.py").write_text(TESTS)
    report = tmp_path / "report.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-c", os.devnull, f"--rootdir={tmp_path}", f"--junitxml={report}"]
    assert subprocess.run([*command, tmp_path / "test_some.py"], capture_output=True, check=False).returncode == 1
    outcome = read_report(report)
    assert (outcome.passed, outcome.failed) == (1, 3)
    assert outcome.skipped == Counter({"it is missing": 2, "known": 1})
    assert not outcome.is_good
    first, *reasons = outcome.lines("3.13.0")
    assert first.startswith("test-pythons: 3.13.0   1 passed, 3 failed, 3 skipped in ")
    assert reasons == ["      2 skipped: it is missing", "      1 skipped: known"]


def test_a_run_without_failed_tests_that_does_not_end_well_is_no_success(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pythons, "ROOT", tmp_path)
    script = tmp_path / "tools" / "make_env.sh"
    script.parent.mkdir()
    program(script, "no index", status=1)
    one = Interpreter(Path("/x"), "3.13.0")
    assert run_tests(one, []) == Outcome(problem="its environment could not be made from uv.lock")
    program(script, "")
    programs = tmp_path / ".tools" / "pythons" / "3.13.0" / "bin"
    programs.mkdir(parents=True)
    program(programs / "python", "no tests ran", status=5)
    outcome = run_tests(one, [])
    assert not outcome.is_good
    assert next(outcome.lines("3.13.0")).endswith("0 passed, 0 failed, 0 skipped in 0 s: pytest ended with 5")


@pytest.fixture
def no_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A system without PostgreSQL, and without a wheel of it; returns the folder of Debian's packages."""
    monkeypatch.setitem(sys.modules, "pgserver", None)
    monkeypatch.setattr(postgres, "DEBIAN", tmp_path / "debian")
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    return tmp_path / "debian"


def test_without_a_wheel_of_postgresql_the_newest_of_the_system_is_taken(no_wheel: Path, tmp_path: Path) -> None:
    (tmp_path / "path").mkdir()
    program(tmp_path / "path" / "postgres", "")
    assert postgres.binaries() == tmp_path / "path"
    for version in ("9.6", "14", "100", "15"):
        (no_wheel / version / "bin").mkdir(parents=True)
        program(no_wheel / version / "bin" / "postgres", "")
    assert postgres.binaries() == no_wheel / "100" / "bin"


def test_without_any_postgresql_its_tests_are_skipped_with_what_to_do(no_wheel: Path) -> None:
    assert postgres.binaries() is None
    with pytest.raises(pytest.skip.Exception, match=r"no PostgreSQL server .*apt-get install postgresql"):
        postgres.needed()
