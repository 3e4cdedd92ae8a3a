"""Extensions are found by their entry points, and their settings are read like all others."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Final

import pytest
from pydantic import BaseModel

from dragoman.ports.extension import Option, ServerExtension
from dragoman.settings import extensions
from dragoman.settings.extensions import extension_options, found_extensions, installed_extensions
from dragoman.settings.settings import SettingsError, load_settings, secret_options

pytestmark = pytest.mark.long

MODULE: Final = """
from typing import Annotated
from pydantic import BaseModel, Field, SecretStr
from dragoman.ports.extension import Option, ServerExtension
from dragoman.settings import extensions

class DemoSettings(BaseModel):
    size: Annotated[int, Option("demo_size", "N", "Size. [3]")] = Field(default=3, ge=1)
    key: Annotated[SecretStr, Option("demo_key", "KEY", "Key. [none]")] = SecretStr("")
    url: Annotated[str, Option("demo_url", "URL", "URL. [none]", may_hold_secrets=True)] = ""

EXTENSION = ServerExtension(name="demo", title="Demo", settings=DemoSettings)
OTHER = ServerExtension(name="other", title="Other", settings=DemoSettings)
TEXT = "no extension"
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder on the path that distributions can be installed in; the test's working directory is another one."""
    folder, work = tmp_path / "site", tmp_path / "work"
    folder.mkdir()
    work.mkdir()
    monkeypatch.chdir(work)
    monkeypatch.syspath_prepend(str(folder))
    (folder / "demo_module.py").write_text(MODULE)
    clear()
    yield folder
    sys.modules.pop("demo_module", None)
    clear()


def clear() -> None:
    found_extensions.cache_clear()
    installed_extensions.cache_clear()


def install(site: Path, **entry_points: str) -> None:
    """Installs a distribution with these entry points of extensions."""
    info = site / "demo-1.5.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: demo\nVersion: 1.5\n")
    lines = [f"{name} = {value}" for name, value in entry_points.items()]
    (info / "entry_points.txt").write_text("\n".join(["[dragoman.extensions]", *lines]))
    clear()


def test_ours_are_installed_like_those_of_others(site: Path) -> None:
    install(site, demo="demo_module:EXTENSION")
    found = {one.name: one.distribution for one in found_extensions()}
    assert found["demo"] == "demo 1.5"
    assert found["postgres"].startswith("dragoman ")
    assert [one.name for one in installed_extensions()] == sorted(found)


def test_settings_come_from_every_source(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(site, demo="demo_module:EXTENSION")
    assert load_settings({}).extensions["demo"].size == 3
    Path("dragoman.toml").write_text("[extensions.demo]\nsize = 4\nkey = 'secret'\n")
    assert load_settings({}).extensions["demo"].size == 4
    assert load_settings({}).extensions["demo"].key.get_secret_value() == "secret"
    monkeypatch.setenv("DRAGOMAN_DEMO_SIZE", "5")
    assert load_settings({}).extensions["demo"].size == 5
    assert load_settings({"demo_size": 6}).extensions["demo"].size == 6
    monkeypatch.delenv("DRAGOMAN_DEMO_SIZE")
    Path("dragoman.toml").write_text("demo-size = 7\n")
    assert load_settings({}).extensions["demo"].size == 7


@pytest.mark.parametrize(
    ("file", "error"),
    [
        ("[extensions.demo]\nsize = 0\n", r'^demo-size \(.*toml\): "0" must be greater than or equal to 1$'),
        ("[extensions.demo]\nsise = 4\n", r"^extensions\.demo\.sise \(.*toml\): is not a setting; "),
        ("[extensions.nothing]\nsize = 4\n", r"^extensions\.nothing \(.*toml\): is not a setting; "),
        ("extensions = 4\n", r"^extensions\. \(.*toml\): is not a setting; "),
    ],
)
def test_an_invalid_setting_is_reported_with_its_source(site: Path, file: str, error: str) -> None:
    install(site, demo="demo_module:EXTENSION")
    Path("dragoman.toml").write_text(file)
    with pytest.raises(SettingsError, match=error):
        load_settings({})


def test_invalid_settings_of_the_core_and_of_an_extension_are_reported_together(site: Path) -> None:
    install(site, demo="demo_module:EXTENSION")
    with pytest.raises(SettingsError) as caught:
        load_settings({"demo_size": 0, "slots": 0})
    assert [line.split()[0] for line in str(caught.value).splitlines()] == ["--slots", "--demo-size"]


@pytest.mark.parametrize(
    ("entry_points", "error"),
    [
        ({"demo": "demo_module:TEXT"}, "demo of demo 1.5 cannot be loaded: demo_module:TEXT is not a dragoman.ports"),
        ({"demo": "absent_module:X"}, "demo of demo 1.5 cannot be loaded: ModuleNotFoundError: .*; repair or uninst"),
        (
            {"demo": "demo_module:EXTENSION", "other": "demo_module:OTHER"},
            "the extensions demo and other both have the option --demo-size; uninstall one of them",
        ),
    ],
)
def test_an_invalid_extension_stops_the_start(site: Path, entry_points: dict[str, str], error: str) -> None:
    install(site, **entry_points)
    with pytest.raises(SettingsError, match=error):
        load_settings({})


def test_settings_without_an_option_are_rejected() -> None:
    class Settings(BaseModel):
        size: int = 3

    with pytest.raises(SettingsError, match="the extension demo: the setting size has no Option"):
        extension_options(ServerExtension(name="demo", title="Demo", settings=Settings))


def test_an_option_is_found_beside_other_annotations() -> None:
    option = Option("demo_size", "N", "Size. [3]")

    class Settings(BaseModel):
        size: Annotated[int, "a note", option] = 3

    (found,) = extension_options(ServerExtension(name="demo", title="Demo", settings=Settings)).values()
    assert found[0] is option


def test_extensions_tell_their_secrets(site: Path) -> None:
    install(site, demo="demo_module:EXTENSION")
    assert "demo_url" in secret_options()


@pytest.mark.parametrize(
    ("arguments", "looked_up"),
    [
        (["--version"], False),
        (["--help"], False),
        (["send", "--help"], False),
        (["get", "--help"], False),
        (["send", "hello", "--server", "127.0.0.1:1"], False),
        (["serve", "--help"], True),
        (["doctor", "--store", "memory:"], True),
        (["config", "show"], True),
        (["export", "--store", "sqlite:///absent.db", "none"], True),
    ],
)
def test_only_commands_with_settings_import_extensions(tmp_path: Path, arguments: list[str], looked_up: bool) -> None:
    report = (
        "import sys, atexit\n"
        "atexit.register(lambda: print('LOADED', 'dragoman.settings.extensions' in sys.modules,"
        " any(name.startswith('dragoman.extensions.') for name in sys.modules)))\n"
        "from dragoman.cli import cli\n"
        "cli(sys.argv[1:], prog_name='dragoman')\n"
    )
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DRAGOMAN_")}
    done = subprocess.run(
        [sys.executable, "-c", report, *arguments], cwd=tmp_path, env=environment, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.stdout.splitlines()[-1] == f"LOADED {looked_up} {looked_up}", done.stderr


def test_commands_of_other_distributions_are_found_by_name_alone(site: Path) -> None:
    info = site / "hello-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: dragoman-hello\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[dragoman.commands]\nhello = hello_command:register\n")
    (site / "hello_command.py").write_text(
        "import typer\n"
        "def register(cli: typer.Typer) -> None:\n"
        "    @cli.command('hello')\n"
        "    def hello(name: str) -> None:\n"
        "        '''Greet.'''\n"
        "        print(f'hello {name}')\n"
    )
    environment = dict(os.environ) | {"PYTHONPATH": str(site), "COLUMNS": "200", "NO_COLOR": "1"}

    def run(*arguments: str) -> str:
        command = [sys.executable, "-m", "dragoman", *arguments]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout

    assert re.search(r"hello +A command of dragoman-hello\.", run("--help"))
    assert run("hello", "Ada") == "hello Ada\n"


@pytest.mark.parametrize(
    ("record", "command"),
    [
        (None, "pip install 'dragoman[nats]'"),
        ('{"url": "file:///src/dragoman", "dir_info": {}}', "pip install 'dragoman[nats] @ file:///src/dragoman'"),
        ('{"url": "https://example.com/x.whl"}', "pip install 'dragoman[nats]'"),
    ],
)
def test_libraries_are_installed_from_where_dragoman_came(
    monkeypatch: pytest.MonkeyPatch, record: str | None, command: str
) -> None:
    class Installed:
        def read_text(self, name: str) -> str | None:
            return record if name == "direct_url.json" else None

    monkeypatch.setattr("importlib.metadata.distribution", lambda name: Installed())
    assert extensions.install_command("dragoman[nats]") == command
    assert extensions.install_command("theirs[all]") == "pip install 'theirs[all]'"
