"""The files that trigger a reload."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dragoman.cli.serve.reload import app_argument, modification_times


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DRAGOMAN_APP", raising=False)


def test_python_files_of_the_app_are_watched_except_installed_and_hidden_ones(tmp_path: Path) -> None:
    for name in ("app.py", "deep/er/part.py", ".venv/x.py", "a/site-packages/y.py", "a/__pycache__/z.py", "notes.md"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    assert {path.relative_to(tmp_path).as_posix() for path in modification_times(tmp_path)} == {
        "app.py",
        "deep/er/part.py",
    }


def test_the_app_is_found_in_every_source_of_settings(tmp_path: Path) -> None:
    assert app_argument({"app": None}) == "dragoman.playground"
    (tmp_path / "dragoman.toml").write_text('app = "agents.py"')
    assert app_argument({"app": None}) == "agents.py"
    assert app_argument({"app": "other.py"}) == "other.py"
    assert app_argument({"app": None, "slots": "x"}) == ""


def test_the_settings_file_is_watched(tmp_path: Path) -> None:
    assert modification_times(None) == {}
    Path("dragoman.toml").touch()
    assert list(modification_times(None)) == [Path("dragoman.toml")]


def test_modified_and_deleted_files_are_changes(tmp_path: Path) -> None:
    app = tmp_path / "app.py"
    app.touch()
    before = modification_times(tmp_path)
    os.utime(app, ns=(1, 1))
    after = modification_times(tmp_path)
    assert before != after
    app.unlink()
    assert modification_times(tmp_path) == {}
