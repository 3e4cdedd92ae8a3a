"""The Makefile, `.ci/run` and the markers of test files name paths, targets and groups that exist."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from tests.groups import GROUPS, group_of

ROOT: Final = Path(__file__).parents[1]
MAKEFILE: Final = (ROOT / "Makefile").read_text("utf-8")
CI: Final = (ROOT / ".ci" / "run").read_text("utf-8")


def missing_paths(makefile: str) -> list[str]:
    """The paths below tests/ that a Makefile names and that are not there."""
    named = re.findall(r"(?<![\w./-])tests/[\w./-]*\w", makefile)
    return [path for path in named if not (ROOT / path).exists()]


def steps_of(ci: str) -> list[str]:
    """The steps of a CI run, in their order."""
    steps = re.search(r"^steps=\((.*?)^\)", ci, re.MULTILINE | re.DOTALL)
    assert steps is not None
    return re.findall(r"[a-z-]+", steps[1])


def missing_groups(ci: str, makefile: str) -> set[str]:
    """The groups of test files that no step of a CI run includes."""
    recipes = re.findall(r"^([a-z-]+):[^\n]*\n((?:\t[^\n]*\n)+)", makefile, re.MULTILINE)
    named = [re.findall(r"--groups ([a-z,]+)", recipe) for target, recipe in recipes if target in steps_of(ci)]
    return set(GROUPS) - {group for groups in named for each in groups for group in each.split(",")}


def missing_targets(ci: str, makefile: str) -> list[str]:
    """The steps of a CI run that are no targets of a Makefile."""
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    return [step for step in steps_of(ci) if step not in targets]


def test_every_path_in_the_makefile_exists() -> None:
    assert missing_paths(MAKEFILE) == []


def test_every_step_of_ci_is_a_target() -> None:
    assert missing_targets(CI, MAKEFILE) == []


def test_every_group_of_tests_is_in_a_step_of_ci() -> None:
    assert missing_groups(CI, MAKEFILE) == set()
    assert missing_groups(CI.replace('  "browser"\n', ""), MAKEFILE) == {"browser"}
    assert missing_groups(CI.replace('  "coverage"\n', ""), MAKEFILE) == {"long"}


def test_a_path_and_a_step_that_are_gone_are_found() -> None:
    assert missing_paths(f"{MAKEFILE}\nLONG += tests/gone/test_gone.py\n") == ["tests/gone/test_gone.py"]
    assert missing_targets(CI.replace('"test"', '"test gone"'), MAKEFILE) == ["gone"]


def without_group(sources: dict[str, str]) -> list[str]:
    """The files that mention the marker of a group but are in none: it must be the first of `pytestmark`."""
    marker = re.compile(rf"pytest\.mark\.({'|'.join(GROUPS[1:])})\b")
    return [name for name, source in sources.items() if marker.search(source) and group_of(source) == "short"]


def test_every_marker_of_a_group_is_the_first_of_its_file() -> None:
    assert without_group({str(path): path.read_text("utf-8") for path in (ROOT / "tests").rglob("test_*.py")}) == []


def test_a_marker_that_selects_nothing_is_found() -> None:
    marker = "pytest.mark." + "long"
    assert without_group({"a": f"@{marker}\ndef test(): ...", "b": f"pytestmark = [\n    {marker}]"}) == ["a"]
