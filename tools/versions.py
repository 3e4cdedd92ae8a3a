"""Writes the version of a release to every file that has it, and the changelog's heading.

Nothing is written if the version is invalid or older than the current one, or if the changelog has nothing to release.
Preparing a prepared release again changes nothing, so that `make release` can be repeated after a failed step.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]

_VERSION: Final = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)")

PLACES: Final[Mapping[str, Sequence[str]]] = {
    "pyproject.toml": (r'^version = "{}"$',),
    "gen/pyproject.toml": (r'^version = "{}"$',),
    "client/pyproject.toml": (r'^version = "{}"$',),
    "uv.lock": (r'^name = "dragoman"\nversion = "{}"$',),
    "deploy/helm/dragoman/Chart.yaml": (r"^version: {}$", r'^appVersion: "{}"$'),
    "README.md": (r"^Dragoman {}$",),
    "docs/tutorials/quickstart.md": (r"^Dragoman {}$",),
    "docs/how-to/data.md": (r'"dragoman":"{}"',),
}
"""Patterns of the version by file; each must match once. The first file defines the current version."""

CHANGELOG: Final = "CHANGELOG.md"
UNRELEASED: Final = "## Unreleased\n"

NOTES: Final = "docs/reference/support.md"
"""The page with a row for every release: what to do before an upgrade."""

GENERATED: Final = ("proto/baseline.binpb", "gen/openapi/", "docs/reference/scorecard.md")
"""What later steps of a release write again. A name with `/` at its end is a folder."""

WRITTEN: Final = (*PLACES, CHANGELOG, *GENERATED)
"""Every committed file that a release may change."""


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
    """Returns the changelog with a heading for the version above the unreleased entries. Raises ReleaseError.

    A changelog whose newest release is this version, without entries above it, is returned as it is, with its day.
    """
    before, found, after = changelog.partition(UNRELEASED)
    entries = re.split(r"^## ", after, maxsplit=1, flags=re.MULTILINE)[0]
    has_entries = re.search(r"^- ", entries, re.MULTILINE) is not None
    if re.search(rf"^## {re.escape(version)}\b", changelog, re.MULTILINE):
        if has_entries or not after.lstrip().startswith(f"## {version} - "):
            raise ReleaseError(
                f"CHANGELOG.md has {version} already; release its entries under Unreleased as a newer one"
            )
        return changelog
    if not found or not has_entries:
        raise ReleaseError("CHANGELOG.md has nothing under Unreleased; write there what changes for users")
    return f"{before}{UNRELEASED}\n## {version} - {day}\n{after}"


def day_of(changelog: str, version: str) -> str:
    """Returns the day of a release, such as 2026-12-24. Raises ReleaseError."""
    found = re.search(rf"^## {re.escape(version)} - (\d{{4}}-\d\d-\d\d)$", changelog, re.MULTILINE)
    if found is None:
        raise ReleaseError(f'CHANGELOG.md has no heading "## {version} - DAY"; run make release VERSION={version}')
    return found[1]


def check_notes(support: str, version: str) -> None:
    """Raises ReleaseError unless the upgrade notes have a row for the version."""
    if not re.search(rf"^\| {re.escape(version)} \| [^\s|]", support, re.MULTILINE):
        raise ReleaseError(f"{NOTES} has no row for {version} under Upgrade notes; write what an upgrade to it needs")


def is_prepared(root: Path, version: str) -> bool:
    """Whether version and heading of a release are written."""
    changelog = (root / CHANGELOG).read_text("utf-8")
    return (
        version_of(root) == version and re.search(rf"^## {re.escape(version)} - ", changelog, re.MULTILINE) is not None
    )


def prepare(root: Path, version: str, day: str) -> list[Path]:
    """Writes the files that change and returns their paths. Raises ReleaseError before the first write."""
    wanted = _VERSION.fullmatch(version)
    if wanted is None:
        raise ReleaseError(f'"{version}" is not a version such as 0.2.0; pass one: make release VERSION=0.2.0')
    old = version_of(root)
    current = _VERSION.fullmatch(old)
    assert current is not None
    if tuple(map(int, wanted.groups())) < tuple(map(int, current.groups())):
        raise ReleaseError(f"{version} is older than {old}, the version in pyproject.toml")
    check_notes((root / NOTES).read_text("utf-8"), version)
    changelog = root / CHANGELOG
    texts = {**with_version(root, old, version), changelog: with_heading(changelog.read_text("utf-8"), version, day)}
    # Unchanged files keep their time: make would create the environment again for a newer pyproject.toml.
    changed = {path: text for path, text in texts.items() if path.read_text("utf-8") != text}
    for path, text in changed.items():
        path.write_text(text, "utf-8")
    return list(changed)


def unexpected(status: str, allowed: Sequence[str]) -> list[str]:
    """Returns the files in the output of `git status --porcelain` that are not allowed to differ.

    allowed: names, or folders with `/` at their end.
    """
    names = [line[3:].rpartition(" -> ")[2] for line in status.splitlines()]
    return [
        name for name in names
        if not any(name.startswith(one) if one.endswith("/") else name == one for one in allowed)
    ]  # fmt: skip
