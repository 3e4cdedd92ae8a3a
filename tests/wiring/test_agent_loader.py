"""Loading of APP, and reports of errors in it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest

from dragoman.wiring.agent_loader import LoadError, load_app, source_directory

ECHO = """
    from dragoman import agent, Turn

    @agent(name="Echo", description="Says it back")
    async def echo(turn: Turn) -> str:
        return turn.text
"""


@pytest.fixture(autouse=True)
def _clean_imports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if getattr(sys.modules[name], "__file__", None) and str(tmp_path) in str(sys.modules[name].__file__):
            del sys.modules[name]


def test_a_misspelled_file_name_gets_a_suggestion() -> None:
    write("agents.py", ECHO)
    with pytest.raises(LoadError, match=r"^agent\.py: this file does not exist; did you mean agents\.py\? \(APP is"):
        load_app("agent.py")
    with pytest.raises(LoadError, match=r"^other/agents\.py: this file does not exist \(APP is"):
        load_app("other/agents.py")


@pytest.mark.parametrize("folder", [".", "./", "..", "../project", "package/"])
def test_a_folder_is_rejected_with_a_file_in_it(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a.py", "agents.py", "project/agents.py", "project/package/agents.py"):
        write(name, ECHO)
    monkeypatch.chdir("project")
    with pytest.raises(LoadError) as caught:
        load_app(folder)
    assert str(caught.value) == f"{folder} is a folder; pass a .py file in it, such as {Path(folder, 'agents.py')}"


def test_a_folder_without_python_files_has_no_example() -> None:
    with pytest.raises(LoadError, match=r"^\. is a folder; pass a \.py file in it$"):
        load_app(".")


def write(name: str, text: str) -> str:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(dedent(text))
    return name


def test_agents_of_a_file_are_loaded() -> None:
    assert [agent.spec.id for agent in load_app(write("echoes.py", ECHO)).agents] == ["echo"]


def test_agents_of_a_module_in_the_working_directory_are_loaded() -> None:
    write("company/__init__.py", "")
    write("company/echoes.py", ECHO)
    assert [agent.spec.id for agent in load_app("company.echoes").agents] == ["echo"]


def test_the_playground_is_installed() -> None:
    assert [agent.spec.id for agent in load_app("dragoman.playground").agents] == ["playground"]


def test_a_file_can_import_its_neighbor_and_have_any_name() -> None:
    write("echoes.py", ECHO)
    assert [agent.spec.id for agent in load_app(write("my-app.py", "from echoes import echo")).agents] == ["echo"]


def test_a_file_with_the_name_of_an_imported_module_does_not_replace_it() -> None:
    import json

    load_app(write("json.py", ECHO))
    assert sys.modules["json"] is json


@pytest.mark.parametrize(
    ("text", "response"),
    [
        (
            "import dragoman\n\nimport no_such_thing\n",
            "app.py, line 3: ModuleNotFoundError: No module named 'no_such_thing'",
        ),
        ("def half(:\n", "app.py, line 1: SyntaxError: "),
        (
            "def f():\n    return 1 / 0\n\nf()\n",
            "app.py, line 2: ZeroDivisionError: division by zero\n    return 1 / 0",
        ),
        ("import json\n\njson.loads('{')\n", "app.py, line 3: JSONDecodeError: "),
        ("import sys\nsys.exit('enough')\n", "app.py, line 2: SystemExit: enough"),
        (
            "from dragoman import agent\n\n@agent(id='Not An Id')\nasync def f(turn):\n    return ''\n",
            "app.py, line 3: ValueError: ",
        ),
        ("x = 1\n", "app.py: declares no agent. An agent is a function with @agent:\n\n    from dragoman import"),
    ],
)
def test_an_error_in_the_app_is_reported_with_its_file_and_line(text: str, response: str) -> None:
    write("app.py", text)
    with pytest.raises(LoadError) as caught:
        load_app("app.py")
    assert str(caught.value).startswith(response)
    assert "Traceback" not in str(caught.value)


def test_an_error_in_an_imported_file_is_reported_with_that_file() -> None:
    write("deep/broken.py", "\n1 / 0\n")
    write("deep/__init__.py", "")
    write("app.py", "import deep.broken\n")
    with pytest.raises(LoadError, match=r"^deep/broken.py, line 2: ZeroDivisionError"):
        load_app("app.py")


@pytest.mark.parametrize(
    ("app", "response"),
    [
        ("absent.py", "absent.py: this file does not exist"),
        ("absent", 'absent: module "absent" does not exist'),
        ("absent.deep", 'absent.deep: module "absent" does not exist'),
    ],
)
def test_a_missing_app_is_rejected_with_the_format_of_app(app: str, response: str) -> None:
    with pytest.raises(LoadError) as caught:
        load_app(app)
    assert str(caught.value).startswith(response)
    assert "APP is a .py file or the name of a module" in str(caught.value)


def test_duplicate_agent_ids_are_rejected() -> None:
    echo = dedent(ECHO)
    write("app.py", echo + echo.replace("def echo", "def other").replace('name="Echo"', 'id="echo"'))
    with pytest.raises(LoadError, match=r'^app.py: two agents have the id "echo"'):
        load_app("app.py")


def test_the_source_directory_is_that_of_the_file_or_package() -> None:
    here = Path.cwd()
    write("company/__init__.py", "")
    write("company/echoes.py", ECHO)
    assert source_directory("company/echoes.py") == here / "company"
    assert source_directory("company.echoes") == here / "company"
    assert source_directory("company/") == here / "company"
    assert source_directory("no_such_module") is None
