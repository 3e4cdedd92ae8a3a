"""What is under `deploy/` names settings, versions and files that there are. `make deploy-check` renders the chart."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from typer.testing import CliRunner

from dragoman.cli import cli
from dragoman.settings.settings import Settings
from tools.check_deploy import Failed, check_settings, together, values_with

ROOT: Final = Path(__file__).parents[2]
DEPLOY: Final = ROOT / "deploy"
DOCKERFILE: Final = (DEPLOY / "Dockerfile").read_text("utf-8")
COMPOSE: Final = yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))
PROJECT: Final = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))

SETTINGS: Final = {f"DRAGOMAN_{name.upper()}" for name in Settings.model_fields}
SERVERS: Final = [one for name, one in COMPOSE["services"].items() if name.startswith("server")]
WORKER: Final = COMPOSE["services"]["worker"]


def seconds(age: str) -> int:
    return int(age.removesuffix("s"))


def test_the_image_takes_what_the_lock_says_with_the_tool_that_wrote_it() -> None:
    assert "pip install --no-cache-dir --require-hashes -r tools/uv.txt" in DOCKERFILE
    extras = re.findall(r"--extra (\w+)", DOCKERFILE)
    assert set(extras) == set(PROJECT["project"]["optional-dependencies"]) & {"postgres", "nats"}
    assert DOCKERFILE.count("--frozen") == DOCKERFILE.count("uv sync") == 2


def test_the_image_is_made_on_an_interpreter_that_the_project_names() -> None:
    versions = re.findall(r"FROM python:([\d.]+)-", DOCKERFILE)
    assert len(versions) == 2
    assert len(set(versions)) == 1
    assert f"Programming Language :: Python :: {versions[0]}" in PROJECT["project"]["classifiers"]


def test_the_image_tells_the_server_what_it_knows() -> None:
    values = dict(re.findall(r"(DRAGOMAN_\w+)=(\S+)", DOCKERFILE))
    assert set(values) <= SETTINGS
    check_settings({**values, "DRAGOMAN_API_KEYS": "true"})
    with pytest.raises(Failed, match="authentication is off"):
        check_settings(values)


def test_the_image_does_not_run_as_root() -> None:
    assert re.findall(r"^USER (\S+)", DOCKERFILE, re.M) == ["10001:10001"]


def test_what_the_wheel_is_made_of_is_sent_to_the_builder() -> None:
    let_in = {line[1:] for line in (ROOT / ".dockerignore").read_text("utf-8").splitlines() if line.startswith("!")}
    wheel = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]
    needed = [*wheel["packages"], *wheel["force-include"], PROJECT["project"]["readme"], "uv.lock", "pyproject.toml"]
    assert {path.partition("/")[0] for path in needed} | {"tools/uv.txt"} <= let_in
    assert all((ROOT / name).exists() for name in let_in)


def test_servers_of_the_compose_file_are_told_what_they_know() -> None:
    assert len(SERVERS) == 2
    for server in SERVERS:
        values = {name: value for name, value in server["environment"].items() if name.startswith("DRAGOMAN_")}
        assert set(values) <= SETTINGS
        check_settings({"DRAGOMAN_HTTP": "0.0.0.0:8080", **values, "DRAGOMAN_TOKEN": "x" * 16})
        assert seconds(server["stop_grace_period"]) >= int(values["DRAGOMAN_DRAIN"]) + 30


def test_the_worker_of_the_compose_file_has_options_that_there_are() -> None:
    shown = CliRunner().invoke(cli, ["worker", "--help"], env={"COLUMNS": "200", "NO_COLOR": "1"}).stdout
    words = WORKER["command"]
    assert words[0] == "worker"
    assert all(word in shown for word in words if word.startswith("--"))
    assert all(name in shown for name in WORKER["environment"])
    assert seconds(WORKER["stop_grace_period"]) >= int(words[words.index("--drain") + 1]) + 30
    assert WORKER["environment"]["DRAGOMAN_SERVER"].partition(":")[0] in COMPOSE["services"]
    assert set(WORKER["secrets"]) <= set(COMPOSE["secrets"])


def test_nothing_secret_stands_in_the_files() -> None:
    for one in COMPOSE["services"].values():
        for name, value in one.get("environment", {}).items():
            if name.endswith(("PASSWORD", "TOKEN")):
                assert value.startswith("${"), name


def test_commands_in_the_readme_name_files_that_there_are() -> None:
    text = (DEPLOY / "README.md").read_text("utf-8")
    for line in re.findall(r"^(?:docker|helm) .*$", text, re.M):
        for word in shlex.split(line, comments=True):
            if word.startswith("deploy/"):
                assert (ROOT / word).exists(), line


def test_values_that_the_chart_does_not_know_are_refused() -> None:
    with pytest.raises(Failed, match="drane"):
        values_with({"drane": 3})
    with pytest.raises(Failed, match="workers"):
        values_with({"workers": [{"name": "No", "args": ["a"]}]})


def deployment(**pod: Any) -> dict[str, Any]:
    container = {
        "env": [],
        "volumeMounts": [],
        "securityContext": {"readOnlyRootFilesystem": True},
        "ports": [{"name": "http"}],
        "readinessProbe": {"httpGet": {"port": "http"}},
        **pod.pop("container", {}),
    }
    spec = {
        "terminationGracePeriodSeconds": 335,
        "securityContext": {"runAsNonRoot": True},
        "volumes": [],
        "containers": [container],
        **pod,
    }
    template = {"metadata": {"labels": {"a": "b"}}, "spec": spec}
    return {
        "kind": "Deployment",
        "metadata": {"name": "d"},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template},
    }


@pytest.mark.parametrize(
    ("pod", "rule"),
    [
        ({}, None),
        ({"terminationGracePeriodSeconds": 334}, "is killed before it has drained"),
        ({"securityContext": {"runAsNonRoot": False}}, "may do more than it has to"),
        ({"volumes": [{"name": "x"}]}, "volumes and mounts"),
        ({"container": {"env": [{"name": "DRAGOMAN_STOR"}]}}, "no settings: DRAGOMAN_STOR"),
        ({"container": {"livenessProbe": {"httpGet": {"port": "grpc"}}}}, "a probe asks a port that is none"),
    ],
)
def test_pods_that_would_go_wrong_are_found(pod: dict[str, Any], rule: str | None) -> None:
    settings = {"kind": "ConfigMap", "metadata": {"name": "d"}, "data": {"DRAGOMAN_API_KEYS": "true"}}
    found, values = [deployment(**pod), settings], {"drain": 300, "preStop": 5}
    if rule is None:
        together(found, values)
    else:
        with pytest.raises(Failed, match=rule):
            together(found, values)
