"""`new`, `config init` and `config show`: files and settings."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from tests.cli.conftest import CommandResult
from tests.cli.server import clean_environment
from typer.testing import CliRunner

from dragoman.cli import cli
from dragoman.settings.settings import setting_fields

pytestmark = pytest.mark.long


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def call(*arguments: str, **environment: str) -> CommandResult:
    result = CliRunner().invoke(cli, arguments, env=clean_environment() | environment)
    return CommandResult(result.exit_code, result.stdout, result.stderr)


def test_the_tests_of_a_new_project_pass(tmp_path: Path) -> None:
    created = call("new", "travel")
    assert created.code == 0, created
    assert {path.name for path in Path("travel").iterdir()} == {Path(line).name for line in created.out.splitlines()}
    assert "\n  cd travel\n" in created.err
    # It may be in the folder of another project, such as our clone.
    Path("pyproject.toml").write_text('[tool.pytest.ini_options]\naddopts = "--strict-config"\nother = 1\n')
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(words, cwd=tmp_path / "travel", capture_output=True, text=True, check=False)
    assert "2 passed" in done.stdout, done.stdout
    texts = [path.read_text() for path in Path("travel").iterdir() if path.is_file() and path.suffix != ".py"]
    assert "{" not in "".join(texts)
    assert call("new", "travel").code == 2
    assert call("new", "../1x").code == 2


def test_every_setting_of_the_sample_exists_and_it_changes_none() -> None:
    assert call("config", "init").code == 0
    text = Path("dragoman.toml").read_text("utf-8")
    assert Path("dragoman.toml").stat().st_mode & 0o777 == 0o600  # a place for tokens and passwords
    assert tomllib.loads(text) == {}
    settings = [line[1:] for line in text.splitlines() if line.startswith("#") and not line.startswith("# ")]
    names = {name.replace("-", "_") for line in settings for name in tomllib.loads(line)}
    assert {"http", "store", "slots"} < names <= set(setting_fields())
    assert call("config", "init").code == 2


def test_settings_are_shown_with_their_source_and_without_secrets() -> None:
    Path("dragoman.toml").write_text("slots = 5\n")
    shown = call("config", "show", "--json", DRAGOMAN_TOKEN="a-secret-of-a-server")
    rows = {row["name"]: (row["value"], row["source"]) for row in map(json.loads, shown.out.splitlines())}
    assert rows == {"token": ("(hidden)", "DRAGOMAN_TOKEN"), "slots": (5, "dragoman.toml")}
    assert "http" in call("config", "show", "--all").out
    assert call("config", "show", DRAGOMAN_SLOTS="0").code == 2
