"""Lists known vulnerabilities of the packages in uv.lock: `make audit-deps`, or audit_deps.py [--osv ZIP]

Queries OSV, then PyPI, through pip-audit. Without network, `--osv` takes a downloaded
https://osv-vulnerabilities.storage.googleapis.com/PyPI/all.zip.

Exit codes: 0 all packages checked, none vulnerable; 1 vulnerabilities found; 3 a package could not be checked. A
service without data on a package does not clear it, although pip-audit itself exits with 0 then.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

ROOT: Final = Path(__file__).resolve().parents[1]
CLEAN, VULNERABLE, UNCHECKED = 0, 1, 3
SERVICES: Final = ("osv", "pypi")


@dataclass(frozen=True, order=True)
class Package:
    """One version of a package in the lock. `shipped`: a dependency of dragoman or its extras."""

    name: str
    version: str
    shipped: bool = True

    def __str__(self) -> str:
        return f"{self.name} {self.version}" + ("" if self.shipped else " (development)")


def locked(lock: Mapping[str, Any]) -> list[Package]:
    """Returns every package of a lock that comes from an index."""
    packages = {package["name"]: package for package in lock["package"]}
    reached, todo = set(), ["dragoman"]
    while todo:
        package = packages[todo.pop()]
        reached.add(package["name"])
        extras = package.get("optional-dependencies", {}).values()
        wanted = [*package.get("dependencies", ()), *(one for extra in extras for one in extra)]
        todo += [one["name"] for one in wanted if one["name"] not in reached]
    found = (package for package in lock["package"] if "registry" in package["source"])
    return sorted(Package(one["name"], one["version"], one["name"] in reached) for one in found)


# With a network ---------------------------------------------------------------------------------------------------


def rounds(packages: Iterable[Package]) -> Iterator[list[Package]]:
    """Yields lists with one version per package: pip-audit does not accept two versions of one."""
    left = list(packages)
    while left:
        chosen = list({package.name: package for package in left}.values())
        left = [package for package in left if package not in chosen]
        yield chosen


def query(service: str, packages: Iterable[Package]) -> list[dict[str, Any]] | None:
    """Returns pip-audit's entry for each package; None if the service cannot be reached."""
    entries: list[dict[str, Any]] = []
    for chosen in rounds(packages):
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as wanted:
            wanted.write("".join(f"{package.name}=={package.version}\n" for package in chosen))
            wanted.flush()
            words = ["pip_audit", "--no-deps", "--disable-pip", "--progress-spinner", "off", "--format", "json"]
            done = subprocess.run(
                [sys.executable, "-m", *words, "--vulnerability-service", service, "--requirement", wanted.name],
                capture_output=True,
                text=True,
                check=False,
            )
        try:
            entries += json.loads(done.stdout)["dependencies"]
        except ValueError:
            reason = (done.stderr.strip().splitlines() or ["no response"])[-1]
            print(f"audit-deps: {service} failed: {reason[:300]}", file=sys.stderr)
            return None
    return entries


def judge(
    packages: Iterable[Package], entries: Iterable[Mapping[str, Any]]
) -> tuple[dict[Package, list[str]], list[Package]]:
    """Returns the vulnerable packages with their advisory ids, and the packages without an entry."""
    by_package = {(canonicalize_name(one["name"]), one["version"]): one["vulns"] for one in entries if "vulns" in one}
    known, unchecked = {}, []
    for package in packages:
        vulnerabilities = by_package.get((canonicalize_name(package.name), package.version))
        if vulnerabilities is None:
            unchecked.append(package)
        elif vulnerabilities:
            known[package] = [one["id"] for one in vulnerabilities]
    return known, unchecked


# From OSV's export ------------------------------------------------------------------------------------------------


def look_up(packages: Iterable[Package], export: Path) -> dict[Package, list[str]]:
    """Returns the advisory ids of each vulnerable package in OSV's export. Raises OSError, zipfile.BadZipFile."""
    by_name: dict[str, list[Package]] = {}
    for package in packages:
        by_name.setdefault(canonicalize_name(package.name), []).append(package)
    known: dict[Package, list[str]] = {}
    with zipfile.ZipFile(export) as entries:
        for entry in entries.namelist():
            advisory = json.loads(entries.read(entry))
            if advisory.get("withdrawn"):
                continue
            for affected in advisory.get("affected", ()):
                about = affected.get("package", {})
                if about.get("ecosystem") != "PyPI":
                    continue
                for package in by_name.get(canonicalize_name(about["name"]), ()):
                    if concerns(affected, package.version) and advisory["id"] not in known.get(package, ()):
                        known.setdefault(package, []).append(advisory["id"])
    return known


def concerns(affected: Mapping[str, Any], version: str) -> bool:
    """Whether an `affected` object of OSV's schema includes a version, in its list or in a range."""
    if version in affected.get("versions", ()):
        return True
    try:
        here = Version(version)
        return any(
            _within(span["events"], here)
            for span in affected.get("ranges", ())
            if span["type"] in ("ECOSYSTEM", "SEMVER")
        )
    except InvalidVersion:
        return True  # unparsable versions are reported rather than missed


def _within(events: Iterable[Mapping[str, str]], here: Version) -> bool:
    inside = False
    marks = [(Version(text), kind) for event in events for kind, text in event.items() if kind != "limit"]
    # At one version a fix comes before the next introduction; "last_affected" is itself still inside.
    for at, kind in sorted(marks, key=lambda mark: (mark[0], mark[1] == "introduced")):
        if kind == "introduced" and at <= here:
            inside = True
        elif (kind == "fixed" and at <= here) or (kind == "last_affected" and at < here):
            inside = False
    return inside


# ------------------------------------------------------------------------------------------------------------------


def report(packages: list[Package], known: Mapping[Package, list[str]], unchecked: list[Package], where: str) -> int:
    for package, ids in sorted(known.items()):
        print(f"audit-deps: {package}: {', '.join(ids)}")
    if unchecked:
        examples = ", ".join(map(str, unchecked[:3]))
        print(f"audit-deps: NOT CHECKED: {len(unchecked)} of {len(packages)} packages ({examples}, ...): {where}")
        print("audit-deps: run it where api.osv.dev is reachable, or pass OSV's export: make audit-deps OSV=all.zip")
    else:
        print(f"audit-deps: {len(packages)} packages of uv.lock, {len(known)} with known vulnerabilities: {where}")
    return VULNERABLE if known else UNCHECKED if unchecked else CLEAN


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="audit_deps.py")
    parser.add_argument("--osv", type=Path, help="OSV's export of PyPI's advisories, all.zip; disables network queries")
    parser.add_argument("--lock", type=Path, default=ROOT / "uv.lock")
    namespace = parser.parse_args(arguments)
    packages = locked(tomllib.loads(namespace.lock.read_text("utf-8")))
    if namespace.osv is not None:
        return report(packages, look_up(packages, namespace.osv), [], f"by {namespace.osv}")
    known: dict[Package, list[str]] = {}
    unchecked = packages
    for service in SERVICES:
        found, unchecked = judge(unchecked, query(service, unchecked) or ())
        known |= found
        if not unchecked:
            return report(packages, known, [], f"by {service}")
    return report(packages, known, unchecked, f"neither {' nor '.join(SERVICES)} has data on them")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
