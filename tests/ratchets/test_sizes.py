"""The package does not grow: lines, files, functions, constructors, settings, and the store's port."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, Final

import pytest
from tests.ratchets import sizes

from dragoman.settings.options import fields_by_option
from dragoman.settings.settings import own_groups

PACKAGE: Final = Path(__file__).parents[2] / "server" / "dragoman"
LIMITS: Final[dict[str, dict[str, Any]]] = tomllib.loads((Path(__file__).parent / "limits.toml").read_text("utf-8"))

SLACK: Final = 0.01
"""How far a limit may stand above what it limits; a larger gain lowers the limit with it."""


def measure(package: Path) -> dict[str, int]:
    """Returns each measure of `[size]` for a package."""
    texts = list(sizes.core_and_adapters(package))
    return {
        "core_and_adapter_lines": sum(map(sizes.lines, texts)),
        "core_and_adapter_code_lines": sum(map(sizes.code_lines, texts)),
        "store_members": len(sizes.members((package / "ports" / "store.py").read_text("utf-8"), "Store")),
    }


def test_the_whole_stays_within_its_limits() -> None:
    readme = (PACKAGE.parents[1] / "README.md").read_text("utf-8")
    found = measure(PACKAGE)
    found |= {"settings": len(fields_by_option(own_groups().values())), "readme_lines": sizes.lines(readme)}
    assert {name: count for name, count in found.items() if count > LIMITS["size"][name]} == {}
    slack = {name: count for name, count in found.items() if count < LIMITS["size"][name] * (1 - SLACK)}
    assert slack == {}, "lower the limits to these"


@pytest.mark.parametrize(
    ("measure_of", "name"),
    [
        (sizes.long_files, "file_lines"),
        (sizes.full_folders, "folder_files"),
        (sizes.long_functions, "function_lines"),
        (sizes.wide_constructors, "constructor_arguments"),
    ],
)
def test_each_part_stays_within_its_limit(measure_of: Any, name: str) -> None:
    larger = measure_of(PACKAGE, LIMITS["each"][name])
    assert larger == LIMITS.get(name, {}), "lower the limits of parts that shrank, remove those that are small now"


def plant(root: Path, place: str, text: str) -> Path:
    (root / place).parent.mkdir(parents=True, exist_ok=True)
    (root / place).write_text(text)
    return root


def test_further_lines_and_members_are_counted(tmp_path: Path) -> None:
    text = (
        '"""One line."""\n\n\nclass Store:\n    """Its port."""\n\n    pushes: int  # one\n\n    def read(self): ...\n'
    )
    package = plant(tmp_path, "ports/store.py", text)
    plant(package, "extensions/own/store.py", "x = 1\n" * 50)
    plant(package, "testing/contracts/store.py", "x = 1\n" * 50)
    assert measure(package) == {
        "core_and_adapter_lines": 9,
        "core_and_adapter_code_lines": 3,
        "store_members": 2,
    }


def test_a_planted_slip_of_each_kind_is_found(tmp_path: Path) -> None:
    plant(tmp_path, "core/long.py", "x = 1\n" * 801)
    for number in range(16):
        plant(tmp_path, f"wire/f{number}.py", "")
    plant(tmp_path, "extensions/own/main.py", "async def serve():\n" + "    x = 1\n" * 80)
    arguments = "".join(f"        a{number},\n" for number in range(9))
    plant(tmp_path, "cli/app.py", f"class Wide:\n    def __init__(\n        self,\n{arguments}    ): ...\n")
    assert sizes.long_files(tmp_path, 800) == {"core/long.py": 801}
    assert sizes.full_folders(tmp_path, 15) == {"wire": 16}
    assert sizes.long_functions(tmp_path, 80) == {"extensions/own/main.py::serve": 81}
    assert sizes.wide_constructors(tmp_path, 8) == {"cli/app.py::Wide": 9}
