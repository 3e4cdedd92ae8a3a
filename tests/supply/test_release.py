"""The steps of a release: what runs, what a failure shows, what remains by hand, and which trees are rejected."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tools.artifacts import packages
from tools.release import LOGS, STEPS, Step, check_tree, expanded, failure, next_steps, run_steps
from tools.versions import PLACES, ReleaseError

ROOT = Path(__file__).parents[2]
MAKEFILE = (ROOT / "Makefile").read_text("utf-8")

GOOD = Step("good", "it works", ("sh", "-c", "echo $WORD in {dist}"), "Nothing to do.")
BAD = Step("bad", "it fails", ("sh", "-c", "seq 40; exit 3"), "Look into {dist}.")


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.name)
def test_a_step_says_what_it_does_and_what_to_do_if_it_fails(step: Step) -> None:
    assert step.does
    assert step.advice.endswith((".", "`."))
    if step.command[0] == "make":
        assert f"\n{step.command[1]}:" in MAKEFILE
    assert "{" not in " ".join(expanded(step.command, "dist/1.2.3"))


def test_files_are_written_then_packed_then_tried() -> None:
    names = [step.name for step in STEPS]
    assert len(set(names)) == len(names)
    # What changes committed files precedes what packs them; what is published is tried, and is not changed after that.
    # The check of the protos compares the version in gen/openapi, too.
    order = ["openapi", "protos", "baseline", "scorecard", "packages", "artifacts", "install", "sums"]
    assert [name for name in names if name in order] == order
    assert names.index("site") < names.index("artifacts")


def test_a_failure_shows_the_end_of_the_output_what_to_do_and_how_to_continue() -> None:
    text = failure(BAD, 3, "".join(f"line {n}\n" for n in range(100)), "build/x.log", "1.2.3", "dist/1.2.3")
    assert "    line 99\n" in text
    assert "line 74\n" not in text
    assert "step bad failed with exit code 3: sh -c seq 40; exit 3" in text
    assert "Look into dist/1.2.3." in text
    assert "build/x.log" in text
    assert "make release VERSION=1.2.3 again" in text


def test_steps_run_in_order_until_one_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    logs = tmp_path / LOGS
    logs.mkdir(parents=True)
    with pytest.raises(ReleaseError, match="step bad failed with exit code 3"):
        run_steps((GOOD, BAD, GOOD), tmp_path, "1.2.3", "dist/1.2.3", {**os.environ, "WORD": "done"})
    assert (logs / "01-good.log").read_text() == "done in dist/1.2.3\n"
    assert sorted(path.name for path in logs.iterdir()) == ["01-good.log", "02-bad.log"]
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("release:  1 of 3  good       it works ... ok, ")
    assert second.startswith("release:  2 of 3  bad        it fails ... FAILED, ")


def test_the_remaining_steps_name_the_tag_and_upload_packages_only() -> None:
    text = next_steps("1.2.3", "dist/1.2.3")
    assert 'git tag -a v1.2.3 -m "Dragoman 1.2.3"' in text
    upload = next(line for line in text.splitlines() if "twine" in line)
    assert upload.partition("twine upload ")[2].split() == [f"dist/1.2.3/{name}" for name in packages("1.2.3")]


# The tree --------------------------------------------------------------------------------------------------------


def git(root: Path, *words: str) -> None:
    identity = ("-c", "user.name=A", "-c", "user.email=a@example.com")
    subprocess.run(["git", *identity, *words], cwd=root, check=True, capture_output=True)


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A repository with one commit, prepared for 1.2.3."""
    for name in PLACES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    (tmp_path / "pyproject.toml").write_text('version = "1.2.3"\n')
    (tmp_path / "CHANGELOG.md").write_text("## Unreleased\n\n## 1.2.3 - 2026-12-24\n\n- A thing.\n")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "one")
    return tmp_path


def test_a_clean_tree_and_one_with_this_release_are_accepted(clone: Path) -> None:
    check_tree(clone, "1.2.3")
    (clone / "README.md").write_text("changed")
    check_tree(clone, "1.2.3")


def test_other_changes_are_rejected_and_named(clone: Path) -> None:
    (clone / "README.md").write_text("changed")
    with pytest.raises(ReleaseError, match=r"uncommitted changes in README\.md; commit or stash"):
        check_tree(clone, "1.2.4")  # not prepared, so no file may differ
    (clone / "notes.txt").write_text("")
    with pytest.raises(ReleaseError, match=r"uncommitted changes in notes\.txt;"):
        check_tree(clone, "1.2.3")


def test_a_tree_that_git_does_not_know_is_not_taken_for_clean(clone: Path) -> None:
    (clone / ".git" / "HEAD").unlink()
    with pytest.raises(ReleaseError, match="git status failed"):
        check_tree(clone, "1.2.3")


def test_a_tagged_version_can_only_be_built_again_at_its_tag(clone: Path) -> None:
    git(clone, "tag", "-a", "v1.2.3", "-m", "1.2.3")
    check_tree(clone, "1.2.3")
    git(clone, "commit", "-q", "--allow-empty", "-m", "two")
    with pytest.raises(ReleaseError, match=r"v1\.2\.3 is tagged already, at [0-9a-f]{10}; take a newer version"):
        check_tree(clone, "1.2.3")
