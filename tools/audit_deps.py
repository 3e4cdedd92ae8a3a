"""Are there known vulnerabilities in what uv.lock names? `make audit-deps`, or audit_deps.py [--osv ZIP]

Asks OSV, then PyPI, by way of pip-audit. Where neither is to be had, `--osv` takes the file
https://osv-vulnerabilities.storage.googleapis.com/PyPI/all.zip, fetched where there is a network.

Ends with 0 when every package was checked and nothing is known, 1 when something is, and 3 when a package could not be
checked: an advisory service that knows nothing of a package is no clean bill, though pip-audit itself ends with 0 then.
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
    """One version of a package in the lock. `shipped`: whoever installs dragoman, with its extras, gets it."""

    name: str
    version: str
    shipped: bool = True

    def __str__(self) -> str:
        return f"{self.name} {self.version}" + ("" if self.shipped else " (development)")


def locked(lock: Mapping[str, Any]) -> list[Package]:
    """Every package of a lock that comes from an index."""
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
    """The packages in lists that name each once: pip-audit takes no two versions of one."""
    left = list(packages)
    while left:
        chosen = list({package.name: package for package in left}.values())
        left = [package for package in left if package not in chosen]
        yield chosen


def ask(service: str, packages: Iterable[Package]) -> list[dict[str, Any]] | None:
    """What pip-audit says of each package; None when the service cannot be reached."""
    valueses: list[dict[str, Any]] = []
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
            valueses += json.loads(done.stdout)["dependencies"]
        except ValueError:
            reason = (done.stderr.strip().splitlines() or ["no answer"])[-1]
            print(f"audit-deps: {service} cannot be asked: {reason[:300]}", file=sys.stderr)
            return None
    return valueses


def judge(
    packages: Iterable[Package], valueses: Iterable[Mapping[str, Any]]
) -> tuple[dict[Package, list[str]], list[Package]]:
    """The packages of which something is known, with what, and those of which nobody said whether there is anything."""
    values = {(canonicalize_name(one["name"]), one["version"]): one["vulns"] for one in valueses if "vulns" in one}
    known, unchecked = {}, []
    for package in packages:
        vulnerabilities = values.get((canonicalize_name(package.name), package.version))
        if vulnerabilities is None:
            unchecked.append(package)
        elif vulnerabilities:
            known[package] = [one["id"] for one in vulnerabilities]
    return known, unchecked


# Without one ------------------------------------------------------------------------------------------------------


def look_up(packages: Iterable[Package], export: Path) -> dict[Package, list[str]]:
    """What OSV's export knows of the packages. Raises OSError and zipfile.BadZipFile."""
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
    """Whether an `affected` of OSV's schema names a version, in its list or by a range."""
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
        return True  # rather one too many than one that nobody looked at


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
        some = ", ".join(map(str, unchecked[:3]))
        print(f"audit-deps: NOT CHECKED: {len(unchecked)} of {len(packages)} packages ({some}, ...): {where}")
        print("audit-deps: run it where api.osv.dev can be reached, or give OSV's export: make audit-deps OSV=all.zip")
    else:
        print(f"audit-deps: {len(packages)} packages of uv.lock, {len(known)} with known vulnerabilities: {where}")
    return VULNERABLE if known else UNCHECKED if unchecked else CLEAN


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="audit_deps.py")
    parser.add_argument("--osv", type=Path, help="OSV's export of PyPI's advisories, all.zip; nobody is asked then")
    parser.add_argument("--lock", type=Path, default=ROOT / "uv.lock")
    given = parser.parse_args(arguments)
    packages = locked(tomllib.loads(given.lock.read_text("utf-8")))
    if given.osv is not None:
        return report(packages, look_up(packages, given.osv), [], f"by {given.osv}")
    known: dict[Package, list[str]] = {}
    unchecked = packages
    for service in SERVICES:
        valueses = ask(service, unchecked)
        found, unchecked = judge(unchecked, valueses or ())
        known |= found
        if not unchecked:
            return report(packages, known, [], f"by {service}")
    return report(packages, known, unchecked, f"neither {' nor '.join(SERVICES)} said anything of them")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
