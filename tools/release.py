"""Prepares a release: writes the version to all files and the changelog's heading.   python -m tools.release VERSION

Fails without changes if the version is invalid or older than the current one, if the changelog has nothing to release,
or if there are uncommitted changes. `make release` runs this and the next steps, listed in docs/how-to/releasing.md.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]

_VERSION: Final = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)")

PLACES: Final[Mapping[str, Sequence[str]]] = {
    "pyproject.toml": (r'^version = "{}"$',),
    "gen/pyproject.toml": (r'^version = "{}"$',),
    "uv.lock": (r'^name = "dragoman"\nversion = "{}"$',),
    "deploy/helm/dragoman/Chart.yaml": (r"^version: {}$", r'^appVersion: "{}"$'),
    "README.md": (r"^Dragoman {}$",),
}
"""Patterns of the version by file; each must match once. The first file defines the current version."""

UNRELEASED: Final = "## Unreleased\n"


class ReleaseError(Exception):
    """The release cannot be prepared. The text gives the reason."""


def version_of(root: Path) -> str:
    """Returns the current version."""
    found = re.search(r'^version = "(.*)"$', (root / "pyproject.toml").read_text("utf-8"), re.MULTILINE)
    assert found is not None
    return found[1]


def with_version(root: Path, old: str, new: str) -> dict[Path, str]:
    """Returns the new text of each file with the version. Raises ReleaseError if a pattern does not match once."""
    texts = {}
    for name, patterns in PLACES.items():
        text = (root / name).read_text("utf-8")
        for pattern in patterns:
            line = re.compile(pattern.format(re.escape(old)), re.MULTILINE)
            if len(found := line.findall(text)) != 1:
                raise ReleaseError(f"{name}: {old} found {len(found)} times, must be once ({line.pattern})")
            text = line.sub(lambda match: match[0].replace(old, new), text)
        texts[root / name] = text
    return texts


def with_heading(changelog: str, version: str, day: str) -> str:
    """Returns the changelog with a heading for the version above the unreleased entries. Raises ReleaseError."""
    if re.search(rf"^## {re.escape(version)}\b", changelog, re.MULTILINE):
        raise ReleaseError(f"CHANGELOG.md has {version} already")
    before, found, after = changelog.partition(UNRELEASED)
    entries = re.split(r"^## ", after, maxsplit=1, flags=re.MULTILINE)[0]
    if not found or not re.search(r"^- ", entries, re.MULTILINE):
        raise ReleaseError("CHANGELOG.md has nothing under Unreleased")
    return f"{before}{UNRELEASED}\n## {version} - {day}\n{after}"


def prepare(root: Path, version: str, day: str) -> list[Path]:
    """Writes all files and returns their paths. Raises ReleaseError before the first write."""
    wanted = _VERSION.fullmatch(version)
    if wanted is None:
        raise ReleaseError(f'"{version}" is not a version such as 0.2.0')
    old = version_of(root)
    current = _VERSION.fullmatch(old)
    assert current is not None
    if tuple(map(int, wanted.groups())) < tuple(map(int, current.groups())):
        raise ReleaseError(f"{version} is older than {old}")
    changelog = root / "CHANGELOG.md"
    texts = {**with_version(root, old, version), changelog: with_heading(changelog.read_text("utf-8"), version, day)}
    for path, text in texts.items():
        path.write_text(text, "utf-8")
    return list(texts)


def _is_clean(root: Path) -> bool:
    process = subprocess.run(["git", "status", "--porcelain"], cwd=root, capture_output=True, text=True, check=True)
    return not process.stdout


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.release", description="Prepare a release.")
    parser.add_argument("version", nargs="?", default="", metavar="VERSION", help="such as 0.2.0")
    parser.add_argument("--next-steps", action="store_true", help="print the remaining steps")
    namespace = parser.parse_args(words)
    if namespace.next_steps:
        version = version_of(ROOT)
        print(f"release: {version} is prepared in dist/. Review the changes (git diff), then:")
        print(f'  git commit -am "Release {version}" && git tag -a v{version} -m "Dragoman {version}"')
        return 0
    try:
        if not _is_clean(ROOT):
            raise ReleaseError("there are uncommitted changes (git status); commit or stash them")
        for path in prepare(ROOT, namespace.version, f"{datetime.now(UTC):%Y-%m-%d}"):
            print(f"release: {path.relative_to(ROOT)}")
    except ReleaseError as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
