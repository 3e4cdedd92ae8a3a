"""The console's sources: folders import in one direction, files are readable, and the README names each folder."""

from __future__ import annotations

import re
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Final

SRC: Final = Path(__file__).resolve().parents[1] / "console" / "src"
FOLDERS: Final = sorted(path.name for path in SRC.iterdir() if path.is_dir())
IMPORT: Final = re.compile(r'\bfrom "(\.[^"]+)"')

MAX_FILES: Final = 15
MAX_LINES: Final = 800


def sources() -> list[Path]:
    return sorted(path for path in SRC.rglob("*") if path.suffix in {".ts", ".tsx", ".css"})


def imports(file: Path) -> Iterator[str]:
    """Yields the folder of each module that a file imports from the console."""
    for target in IMPORT.findall(file.read_text(encoding="utf-8")):
        yield (file.parent / target).resolve().relative_to(SRC).parts[0]


def test_shared_modules_import_no_page() -> None:
    found = {(file.name, folder) for file in (SRC / "shared").rglob("*.ts*") for folder in imports(file)}
    assert {folder for _, folder in found} == {"shared"}, found


def test_folders_import_in_one_direction_with_the_frame_of_the_pages_on_top() -> None:
    imported: dict[str, set[str]] = {folder: set() for folder in FOLDERS}
    for file in sources():
        folder = file.relative_to(SRC).parts[0]
        imported[folder] |= set(imports(file)) - {folder}
    TopologicalSorter(imported).prepare()  # raises CycleError
    assert [folder for folder, others in imported.items() if "app" in others] == []


def test_folders_and_files_are_of_a_readable_size() -> None:
    folders = {file.parent for file in sources()}
    assert [str(folder) for folder in folders if sum(path.is_file() for path in folder.iterdir()) > MAX_FILES] == []
    assert [file.name for file in sources() if file.read_text(encoding="utf-8").count("\n") > MAX_LINES] == []


def test_the_readme_has_every_folder_and_every_file_that_it_names() -> None:
    text = (SRC / "README.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"^\| `(\w+)/` \|", text, re.MULTILINE)) == FOLDERS
    names = {path.name for path in sources()}
    assert {name.rsplit("/", 1)[-1] for name in re.findall(r"`([\w/]+\.tsx?)`", text)} <= names
