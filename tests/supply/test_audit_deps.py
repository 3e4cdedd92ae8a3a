"""The dependency audit reports known vulnerabilities, and never reports an unchecked package as clean."""

from __future__ import annotations

import json
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tools import audit_deps
from tools.audit_deps import Package, concerns, judge, locked, look_up, main, rounds

LOCK = """
[[package]]
name = "dragoman"
version = "1"
source = { editable = "." }
dependencies = [{ name = "a" }]
[package.optional-dependencies]
more = [{ name = "c" }]

[[package]]
name = "a"
version = "1.5"
source = { registry = "https://pypi.org/simple" }
dependencies = [{ name = "b-b" }]

[[package]]
name = "b-b"
version = "2.0"
source = { registry = "https://pypi.org/simple" }

[[package]]
name = "c"
version = "3.0"
source = { registry = "https://pypi.org/simple" }

[[package]]
name = "d"
version = "4.0"
source = { registry = "https://pypi.org/simple" }
"""
A, B, C, D = Package("a", "1.5"), Package("b-b", "2.0"), Package("c", "3.0"), Package("d", "4.0", shipped=False)


def response(package: Package, *ids: str) -> dict[str, Any]:
    return {"name": package.name, "version": package.version, "vulns": [{"id": id} for id in ids]}


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    path = tmp_path / "uv.lock"
    path.write_text(LOCK)
    return path


def test_shipped_and_development_packages_of_a_lock_are_distinguished() -> None:
    assert locked(tomllib.loads(LOCK)) == [A, B, C, D]
    assert [str(package) for package in (A, D)] == ["a 1.5", "d 4.0 (development)"]


def test_two_versions_of_one_package_are_queried_separately() -> None:
    other = Package("a", "1.6")
    assert sorted(map(len, rounds([A, other, B]))) == [1, 2]


def test_a_package_without_a_response_is_unchecked() -> None:
    skipped = {"name": "c", "skip_reason": "Dependency not found on PyPI and could not be audited"}
    assert judge([A, B, C], [response(A, "CVE-1"), response(Package("b.b", "2.0")), skipped]) == ({A: ["CVE-1"]}, [C])


@pytest.mark.parametrize(
    ("answers", "code", "reported"),
    [
        (
            [[response(A), response(B), response(C), response(D)]],
            0,
            "4 packages of uv.lock, 0 with known vulnerabilities: by osv",
        ),
        ([[response(A), response(B, "CVE-1"), response(C), response(D)]], 1, "b-b 2.0: CVE-1"),
        ([None, [response(A), response(B), response(C), response(D)]], 0, "by pypi"),
        ([None, []], 3, "NOT CHECKED: 4 of 4 packages"),
        ([None, [response(A, "CVE-2")]], 1, "NOT CHECKED: 3 of 4 packages"),
    ],
)
def test_the_exit_code_follows_the_services_responses(
    lock: Path,
    answers: list[Any],
    code: int,
    reported: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    left = iter(answers)
    monkeypatch.setattr(audit_deps, "query", lambda service, packages: next(left))
    assert main(["--lock", str(lock)]) == code
    assert reported in capsys.readouterr().out


def spans(*events: dict[str, str]) -> dict[str, Any]:
    return {"ranges": [{"type": "ECOSYSTEM", "events": list(events)}]}


@pytest.mark.parametrize(
    ("affected", "expected"),
    [
        ({"versions": ["1.4", "1.5"]}, True),
        ({"versions": ["1.4"]}, False),
        (spans({"introduced": "0"}, {"fixed": "1.5"}), False),
        (spans({"introduced": "0"}, {"fixed": "1.5.1"}), True),
        (spans({"introduced": "1.5"}), True),
        (spans({"introduced": "1.6"}), False),
        (spans({"introduced": "0"}, {"last_affected": "1.5"}), True),
        (spans({"introduced": "0"}, {"last_affected": "1.4"}), False),
        (spans({"introduced": "0"}, {"fixed": "1.0"}, {"introduced": "1.5"}, {"fixed": "2"}), True),
        (spans({"introduced": "0"}, {"fixed": "one"}), True),
        ({"ranges": [{"type": "GIT", "events": [{"introduced": "0"}]}]}, False),
    ],
)
def test_version_ranges_follow_the_osv_schema(affected: dict[str, Any], expected: bool) -> None:
    assert concerns(affected, "1.5") is expected


def test_an_osv_export_is_checked_without_network(
    lock: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def advisory(id: str, name: str, ecosystem: str = "PyPI", **more: Any) -> str:
        affected = {"package": {"ecosystem": ecosystem, "name": name}, **spans({"introduced": "0"})}
        return json.dumps({"id": id, "affected": [affected], **more})

    export = tmp_path / "all.zip"
    with zipfile.ZipFile(export, "w") as zip_file:
        zip_file.writestr("1.json", advisory("PYSEC-1", "B_b"))
        zip_file.writestr("2.json", advisory("PYSEC-2", "a", withdrawn="2026-01-01T00:00:00Z"))
        zip_file.writestr("3.json", advisory("GHSA-3", "a", ecosystem="npm"))
        zip_file.writestr("4.json", advisory("PYSEC-4", "unknown"))
    assert look_up([A, B], export) == {B: ["PYSEC-1"]}
    assert main(["--lock", str(lock), "--osv", str(export)]) == 1
    assert "b-b 2.0: PYSEC-1" in capsys.readouterr().out
