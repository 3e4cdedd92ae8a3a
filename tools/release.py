"""Makes a release: versions, generated files, artifacts, trials.   python -m tools.release VERSION

Every step is a command with one line of progress; its output is in build/release/. The first step that fails ends the
run and says what to do. Then the same command can be repeated: steps write the same again.
docs/how-to/releasing.md describes the steps.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

from tools.artifacts import packages, seconds_of
from tools.versions import (
    CHANGELOG,
    ROOT,
    WRITTEN,
    ReleaseError,
    day_of,
    is_prepared,
    prepare,
    unexpected,
    version_of,
)

LOGS: Final = Path("build") / "release"
SHOWN_LINES: Final = 25
"""Lines of a failed step's output that are shown."""


class Step(NamedTuple):
    """A command of a release. `{dist}` in it is the folder of the artifacts."""

    name: str
    does: str
    command: tuple[str, ...]
    advice: str
    """What to do if it fails."""


STEPS: Final = (
    Step(
        "openapi",
        "gen/openapi gets the version",
        ("make", "openapi"),
        "It needs Go, which builds protoc-gen-openapiv2: release on a machine that has it.",
    ),
    Step(
        "protos",
        "the protos are compatible with the last release, and gen/ is up to date",
        ("make", "proto-check"),
        "Restore what callers of the last release need, or run `make proto` and commit gen/.",
    ),
    Step(
        "baseline",
        "these protos become the baseline of the next release",
        ("make", "baseline"),
        "See the log: buf needs the environment of `make env`.",
    ),
    Step(
        "scorecard",
        "the scorecard gets the version and the latest recorded runs",
        ("make", "scorecard"),
        "A page that it reads has changed its form: adapt tools/scorecard.py.",
    ),
    Step(
        "console",
        "the committed console is what console/ builds",
        ("make", "console-check", "NPM=required"),
        "Install Node.js 20 or newer with npm. If the console differs, run `make console` and commit it.",
    ),
    Step(
        "packages",
        "wheels and sdists, built twice to the same bytes",
        ("make", "wheel-check", "DIST={dist}"),
        "If two builds differ, unpack both files named in the log and compare them.",
    ),
    Step(
        "sbom",
        "the bill of materials, made twice to the same bytes",
        ("make", "sbom-check", "DIST={dist}"),
        "It installs the locked dependencies: check that the package index can be reached.",
    ),
    Step(
        "site",
        "the documentation, built twice to the same bytes",
        ("make", "site-check", "DIST={dist}"),
        "Run `make docs`: it names pages and links that are wrong.",
    ),
    Step(
        "artifacts",
        "archives, manifest.json and SHA256SUMS",
        ("python", "-m", "tools.artifacts", "{dist}"),
        "Every file of a release is in the table of tools/artifacts.py.",
    ),
    Step(
        "install",
        "wheels and sdists from an index, by pip, uvx and pipx, in new environments; the quickstart runs",
        ("make", "release-test", "DIST={dist}"),
        "The log names the test. Run it alone: `make release-test DIST={dist} ARGS='-k NAME'`.",
    ),
    Step(
        "sums",
        "the files have the bytes that were tried",
        ("sh", "-c", "cd {dist} && sha256sum --quiet --strict -c SHA256SUMS"),
        "A test changed an artifact. It must not.",
    ),
)


def expanded(words: Sequence[str], dist: str) -> list[str]:
    """Returns a command with the folder of the artifacts."""
    return [word.replace("{dist}", dist) for word in words]


def failure(step: Step, exit_code: int, output: str, log: str, version: str, dist: str) -> str:
    """Returns what is shown for a failed step: the end of its output, what to do, and how to continue."""
    shown = "\n".join(f"    {line}" for line in output.rstrip().splitlines()[-SHOWN_LINES:])
    return (
        f"{shown}\n"
        f"release: step {step.name} failed with exit code {exit_code}: {' '.join(expanded(step.command, dist))}\n"
        f"release: {step.advice.replace('{dist}', dist)}\n"
        f"release: The whole output is in {log}. Then run make release VERSION={version} again; "
        "what is prepared stays prepared.\n"
    )


def next_steps(version: str, dist: str) -> str:
    """Returns the steps that are done by hand."""
    uploaded = " ".join(f"{dist}/{name}" for name in packages(version))
    return f"""release: what remains is done by hand:

  1. Review and commit:     git diff && git commit -am "Release {version}"
  2. Test the commit:       .ci/run
  3. Tag it:                git tag -a v{version} -m "Dragoman {version}"
  4. Publish branch, tag:   git push origin HEAD v{version}
  5. Upload the packages:   twine upload {uploaded}
  6. Publish the release:   at the repository, for the tag v{version}, with all files of {dist}
                            and the changelog's section as text
  7. Publish the manual:    unpack {dist}/dragoman-{version}-site.tar.gz on its web server
  8. Image and chart:       docker build -f deploy/Dockerfile -t dragoman:{version} .
                            helm package deploy/helm/dragoman
  9. Try it as a user:      uvx dragoman@{version} serve

A clone of the tag builds the same bytes: make release VERSION={version} there, then compare SHA256SUMS.
"""


def _git(root: Path, *words: str) -> str:
    """The output of a git command; empty if it fails, as for a tag that is not there."""
    process = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=False)
    return process.stdout.rstrip() if process.returncode == 0 else ""


def _status(root: Path) -> str:
    """The changed files. Raises ReleaseError if git cannot tell: then nothing says that the tree is clean."""
    process = subprocess.run(["git", "status", "--porcelain"], cwd=root, capture_output=True, text=True, check=False)
    if process.returncode:
        raise ReleaseError(f"git status failed ({process.stderr.strip()}); run it in a clone that git accepts")
    return process.stdout.rstrip()


def check_tree(root: Path, version: str) -> None:
    """Raises ReleaseError for uncommitted changes that are not of this release, and if its tag is another commit."""
    allowed = WRITTEN if is_prepared(root, version) else ()
    if files := unexpected(_status(root), allowed):
        raise ReleaseError(f"uncommitted changes in {', '.join(files)}; commit or stash them")
    tagged = _git(root, "rev-parse", "--verify", "--quiet", f"refs/tags/v{version}^{{commit}}")
    if tagged and tagged != _git(root, "rev-parse", "HEAD"):
        raise ReleaseError(
            f"v{version} is tagged already, at {tagged[:10]}; take a newer version, or check out the tag"
        )


def run_steps(steps: Sequence[Step], root: Path, version: str, dist: str, environment: Mapping[str, str]) -> None:
    """Runs steps, with a line of progress for each. Raises ReleaseError with the advice of the first that fails."""
    for number, step in enumerate(steps, 1):
        print(f"release: {number:2} of {len(steps)}  {step.name:<10} {step.does} ... ", end="", flush=True)
        began = time.monotonic()
        log = root / LOGS / f"{number:02}-{step.name}.log"
        with log.open("w") as output:
            done = subprocess.run(
                expanded(step.command, dist), cwd=root, env=environment, stdout=output, stderr=output, check=False
            )
        print(f"{'ok' if done.returncode == 0 else 'FAILED'}, {time.monotonic() - began:.0f} s", flush=True)
        if done.returncode:
            text = log.read_text("utf-8", "replace")
            name = log.relative_to(root).as_posix()
            raise ReleaseError("\n" + failure(step, done.returncode, text, name, version, dist))


def release(root: Path, version: str, today: str) -> None:
    """Makes the release. Raises ReleaseError."""
    began = time.monotonic()
    check_tree(root, version)
    changed = [path.relative_to(root).as_posix() for path in prepare(root, version, today)]
    print(f"release: version {version}" + (f", written to {', '.join(changed)}" if changed else ", written already"))
    dist = f"dist/{version}"
    for folder in (root / dist, root / LOGS):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    day = day_of((root / CHANGELOG).read_text("utf-8"), version)
    # Only for the site and archives: packages have the fixed date of hatchling, also outside of a release.
    run_steps(STEPS, root, version, dist, {**os.environ, "RELEASE_EPOCH": str(seconds_of(day))})
    status = _status(root)
    if others := unexpected(status, WRITTEN):
        raise ReleaseError(f"a step changed {', '.join(others)}, which a release must not; see {LOGS}")
    files = sorted(path.name for path in (root / dist).iterdir())
    print(f"release: {version} is in {dist}, {len(files)} files, after {time.monotonic() - began:.0f} s:")
    for name in files:
        print(f"release:   {(root / dist / name).stat().st_size:>9}  {name}")
    names = [line[3:] for line in status.splitlines()]
    print(
        f"release: changed files to commit: {', '.join(names)}" if names else "release: no committed file has changed"
    )


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.release", description="Make a release.")
    parser.add_argument("version", nargs="?", default="", metavar="VERSION", help="such as 0.2.0")
    parser.add_argument("--next-steps", action="store_true", help="print the steps that are done by hand, and no more")
    parser.add_argument("--files", action="store_true", help="print the committed files that a release may change")
    namespace = parser.parse_args(words)
    version = namespace.version or (version_of(ROOT) if namespace.next_steps else "")
    if namespace.files:
        print("\n".join(WRITTEN))
        return 0
    try:
        if not namespace.next_steps:
            release(ROOT, version, f"{datetime.now(UTC):%Y-%m-%d}")
            print()
    except ReleaseError as error:
        print(f"release: {error}".replace("release: \n", "\n"), file=sys.stderr)
        return 1
    print(next_steps(version, f"dist/{version}"), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
