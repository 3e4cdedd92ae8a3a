"""Prepares a release: one number wherever it stands, and the changelog's heading.   python -m tools.release VERSION

Refuses, and changes nothing, when the number is no version or an older one, when there is nothing to release, or
when there are changes that are not committed. What comes after it is in docs/how-to/releasing.md;
`make release` does it in order.
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
    "uv.lock": (r'^name = "dragoman"\nversion = "{}"$',),
    "deploy/helm/dragoman/Chart.yaml": (r"^version: {}$", r'^appVersion: "{}"$'),
    "README.md": (r"^Dragoman {}$",),
}
"""Where the number stands, by file; each once. The first is what the others have to say, too."""

UNRELEASED: Final = "## Unreleased\n"


class Rejected(Exception):
    """There is nothing to be done like this. The text says why."""


def version_of(root: Path) -> str:
    """The number as it is now."""
    found = re.search(r'^version = "(.*)"$', (root / "pyproject.toml").read_text("utf-8"), re.MULTILINE)
    assert found is not None
    return found[1]


def numbered(root: Path, old: str, new: str) -> dict[Path, str]:
    """The files that say the number, as they will be. Raises Refused where it does not stand once."""
    values = {}
    for name, patterns in PLACES.items():
        text = (root / name).read_text("utf-8")
        for pattern in patterns:
            whole = re.compile(pattern.format(re.escape(old)), re.MULTILINE)
            if len(found := whole.findall(text)) != 1:
                raise Rejected(f"{name}: {old} stands there {len(found)} times where it should once ({whole.pattern})")
            text = whole.sub(lambda one: one[0].replace(old, new), text)
        values[root / name] = text
    return values


def headed(changelog: str, version: str, day: str) -> str:
    """The changelog with a heading for a version above what was not released. Raises Refused."""
    if re.search(rf"^## {re.escape(version)}\b", changelog, re.MULTILINE):
        raise Rejected(f"CHANGELOG.md has {version} already")
    before, found, after = changelog.partition(UNRELEASED)
    news = re.split(r"^## ", after, maxsplit=1, flags=re.MULTILINE)[0]
    if not found or not re.search(r"^- ", news, re.MULTILINE):
        raise Rejected("CHANGELOG.md has nothing under Unreleased")
    return f"{before}{UNRELEASED}\n## {version} - {day}\n{after}"


def prepare(root: Path, version: str, day: str) -> list[Path]:
    """Writes all of it; gives the files. Raises Refused before anything is written."""
    wanted = _VERSION.fullmatch(version)
    if wanted is None:
        raise Rejected(f'"{version}" is no version, such as 0.2.0')
    old = version_of(root)
    now = _VERSION.fullmatch(old)
    assert now is not None
    if tuple(map(int, wanted.groups())) < tuple(map(int, now.groups())):
        raise Rejected(f"{version} is older than {old}")
    changelog = root / "CHANGELOG.md"
    values = {**numbered(root, old, version), changelog: headed(changelog.read_text("utf-8"), version, day)}
    for path, text in values.items():
        path.write_text(text, "utf-8")
    return list(values)


def _is_clean(root: Path) -> bool:
    process = subprocess.run(["git", "status", "--porcelain"], cwd=root, capture_output=True, text=True, check=True)
    return not process.stdout


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.release", description="Prepare a release.")
    parser.add_argument("version", nargs="?", default="", metavar="VERSION", help="such as 0.2.0")
    parser.add_argument("--last-words", action="store_true", help="say what is left to do")
    namespace = parser.parse_args(words)
    if namespace.last_words:
        version = version_of(ROOT)
        print(f"release: {version} is prepared, and in dist/. Look at the changes (git diff), then:")
        print(f'  git commit -am "Release {version}" && git tag -a v{version} -m "Dragoman {version}"')
        return 0
    try:
        if not _is_clean(ROOT):
            raise Rejected("there are changes that are not committed (git status)")
        for path in prepare(ROOT, namespace.version, f"{datetime.now(UTC):%Y-%m-%d}"):
            print(f"release: {path.relative_to(ROOT)}")
    except Rejected as refused:
        print(f"release: {refused}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
