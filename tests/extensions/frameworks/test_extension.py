"""What frameworks attach: their settings, an APP that names an object, and what a worker or a server decides."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, cast

import pytest
from tests.extensions.agent_host import agent_host
from typer.testing import CliRunner

from dragoman.agents.workers.agent import WorkerAgent
from dragoman.cli import cli
from dragoman.cli.serve.reload import app_argument
from dragoman.extensions.frameworks import EXTENSION, open_executors
from dragoman.extensions.frameworks.sources import ExecutorSpec, FrameworkSettings
from dragoman.settings.settings import Settings, load_settings
from dragoman.wiring import doctor

COUNTER: Final = Path(__file__).parent / "stand_in" / "counter.py"


def group_of(settings: Settings) -> Any:
    return settings.extensions["frameworks"]


def test_executors_come_from_options_variables_and_tables_and_replace_the_playground(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = load_settings({"executor": ["a.b:C", "d=e.py:f"], "executor_python": "venv/bin/python"})
    assert group_of(settings).executors == (ExecutorSpec("c", "a.b:C"), ExecutorSpec("d", "e.py:f"))
    assert (group_of(settings).interpreter, group_of(settings).turns) == ("venv/bin/python", 100)
    assert settings.own_app == ""
    assert load_settings({"executor": ["a.b:C"], "app": "a.py"}).own_app == "a.py"
    monkeypatch.setenv("DRAGOMAN_EXECUTOR", "a.b:C,d=e.py:f")
    assert group_of(load_settings({})).executors == group_of(settings).executors
    monkeypatch.delenv("DRAGOMAN_EXECUTOR")
    file = tmp_path / "dragoman.toml"
    for text in ('executor = ["a.b:C", "d=e.py:f"]', '[extensions.frameworks]\nexecutors = ["a.b:C", "d=e.py:f"]'):
        file.write_text(text)
        assert group_of(load_settings({"config": file})).executors == group_of(settings).executors


def test_an_app_that_names_an_object_is_the_first_executor_and_no_app() -> None:
    settings = load_settings({"app": "agents.py:graph", "executor": ["a.b:C"]})
    assert settings.own_app == ""
    assert [one.id for one in group_of(settings).started(settings.agents.app)] == ["graph", "c"]


@pytest.mark.parametrize(
    ("given", "watched"),
    [
        ({"app": "agents.py:graph", "executor": ["a.b:C"]}, "agents.py"),
        ({"executor": ["a.b:C", "d.e:F"]}, "a.b"),
        ({"app": "agents.py", "executor": ["a.b:C"]}, "agents.py"),
        ({"app": "agents.py:tasks"}, "agents.py"),  # no valid id, which the server reports
        ({}, "dragoman.playground"),
    ],
)
def test_reload_watches_the_module_of_the_first_executor_unless_there_is_an_app(given: Any, watched: str) -> None:
    assert app_argument(given) == watched


@pytest.mark.parametrize(
    ("app", "executors", "text"),
    [
        ("", ["echo=a:B"], "--executor: has the id of an agent of APP"),
        ("agents.py:graph", ["graph=a:B"], "--executor: has the id of an agent of APP"),
        ("agents.py:tasks", [], '"agents.py:tasks": agent id "tasks" is taken by a route'),
    ],
)
async def test_ids_are_checked_before_a_process_starts(app: str, executors: list[str], text: str) -> None:
    settings = FrameworkSettings.model_validate({"executors": executors, "python": "/no/python"})
    with pytest.raises(ValueError, match=text):
        async with open_executors(settings, agent_host(app=app, reserved_ids=["echo"])):
            pass


@pytest.mark.parametrize(("turns", "expected"), [(None, 7), (3, 3), (0, 0)])
async def test_the_host_may_limit_the_turns(turns: int | None, expected: int) -> None:
    settings = FrameworkSettings.model_validate({"executors": [f"{COUNTER}:CounterWorker"], "turns": 7})
    async with open_executors(settings, agent_host(turns=turns)) as source:
        source.start()
        (agent,) = source.agents
        assert (agent.spec.id, cast(WorkerAgent, agent).capacity) == ("counter", expected)
        assert source.status() == ()


def test_a_worker_names_the_option_of_an_invalid_setting() -> None:
    for options, text in (
        (("--executor", "app"), '--executor (command line): "app" is not [ID=]MODULE:NAME'),
        (
            ("--executor", "a:B", "--executor-retries", "101"),
            '--executor-retries (command line): "101" must be less than',
        ),
    ):
        result = CliRunner().invoke(cli, ["worker", *options], env={"COLUMNS": "300"})
        assert (result.exit_code, text in " ".join(result.output.split())) == (2, True), result.output


@pytest.mark.parametrize("command", ["serve", "worker"])
def test_the_help_has_the_examples_of_the_extension(command: str) -> None:
    assert EXTENSION.agents is not None
    text = CliRunner().invoke(cli, [command, "--help"], env={"COLUMNS": "300"}).output
    assert "{examples}" not in text
    for arguments, _ in EXTENSION.agents.examples:
        assert f"dragoman {command} {arguments}" in text


async def test_doctor_lists_the_extension_and_where_agents_come_from() -> None:
    settings = load_settings({"executor": ["a.b:C"], "app": "dragoman.playground"})
    (finding,) = await doctor.check_agents(settings)
    assert (finding.level, finding.found) == ("ok", "playground, those of --executor")
    (own,) = [one for one in await doctor.check_extensions(settings) if one.found.startswith("frameworks of dragoman ")]
    assert (own.level, own.found.partition(": ")[2]) == ("ok", "Frameworks; brings agents")
