"""The files in `deploy/` use existing settings, versions and files. `make deploy-check` renders the chart."""

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
from dragoman.settings.settings import setting_fields
from tools.check_deploy import CheckFailed, check_references, check_settings, values_with

ROOT: Final = Path(__file__).parents[2]
DEPLOY: Final = ROOT / "deploy"
DOCKERFILE: Final = (DEPLOY / "Dockerfile").read_text("utf-8")
COMPOSE: Final = yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))
PROJECT: Final = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))

SETTINGS: Final = {f"DRAGOMAN_{name.upper()}" for name in setting_fields()}
SERVERS: Final = [one for name, one in COMPOSE["services"].items() if name.startswith("server")]
WORKER: Final = COMPOSE["services"]["worker"]


def seconds(age: str) -> int:
    return int(age.removesuffix("s"))


def test_the_image_installs_the_locked_packages_with_the_locked_uv() -> None:
    assert "pip install --no-cache-dir --require-hashes -r tools/uv.txt" in DOCKERFILE
    extras = re.findall(r"--extra (\w+)", DOCKERFILE)
    assert set(extras) == set(PROJECT["project"]["optional-dependencies"]) & {"postgres", "nats", "mcp"}
    assert DOCKERFILE.count("--frozen") == DOCKERFILE.count("uv sync") == 2


def test_the_image_uses_a_supported_python_version() -> None:
    versions = re.findall(r"FROM python:([\d.]+)-", DOCKERFILE)
    assert len(versions) == 2
    assert len(set(versions)) == 1
    assert f"Programming Language :: Python :: {versions[0].rpartition('.')[0]}" in PROJECT["project"]["classifiers"]


def test_the_image_sets_only_existing_settings() -> None:
    variables = dict(re.findall(r"(DRAGOMAN_\w+)=(\S+)", DOCKERFILE))
    assert set(variables) <= SETTINGS
    check_settings({**variables, "DRAGOMAN_API_KEYS": "true"})
    with pytest.raises(CheckFailed, match="authentication is off"):
        check_settings(variables)


def test_the_image_does_not_run_as_root() -> None:
    assert re.findall(r"^USER (\S+)", DOCKERFILE, re.M) == ["10001:10001"]


def test_the_build_context_has_all_files_of_the_wheel() -> None:
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text("utf-8").splitlines() if line.startswith("!")}
    wheel = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]
    needed = [*wheel["packages"], *wheel["force-include"], PROJECT["project"]["readme"], "uv.lock", "pyproject.toml"]
    assert {path.partition("/")[0] for path in needed} | {"tools/uv.txt"} <= allowed
    assert all((ROOT / name).exists() for name in allowed)


def test_servers_of_the_compose_file_have_only_existing_settings() -> None:
    assert len(SERVERS) == 2
    for server in SERVERS:
        values = {name: value for name, value in server["environment"].items() if name.startswith("DRAGOMAN_")}
        assert set(values) <= SETTINGS
        check_settings({"DRAGOMAN_HTTP": "0.0.0.0:8080", **values, "DRAGOMAN_TOKEN": "x" * 16})
        assert seconds(server["stop_grace_period"]) >= int(values["DRAGOMAN_DRAIN"]) + 30


def test_the_worker_of_the_compose_file_has_existing_options() -> None:
    shown = CliRunner().invoke(cli, ["worker", "--help"], env={"COLUMNS": "200", "NO_COLOR": "1"}).stdout
    words = WORKER["command"]
    assert words[0] == "worker"
    assert all(word in shown for word in words if word.startswith("--"))
    assert all(name in shown for name in WORKER["environment"])
    assert seconds(WORKER["stop_grace_period"]) >= int(words[words.index("--drain") + 1]) + 30
    assert WORKER["environment"]["DRAGOMAN_SERVER"].partition(":")[0] in COMPOSE["services"]
    assert set(WORKER["secrets"]) <= set(COMPOSE["secrets"])


def test_images_are_named_by_version_and_digest() -> None:
    images = [service["image"] for service in COMPOSE["services"].values() if service["image"] != "dragoman"]
    images += re.findall(r"^FROM (\S+:\S+)", (DEPLOY / "Dockerfile").read_text("utf-8"), re.MULTILINE)
    assert len(images) == 4
    for image in images:
        assert re.fullmatch(r"[a-z]+:\d+\.\d+(\.\d+)?-[a-z-]+@sha256:[0-9a-f]{64}", image), image


def test_the_compose_file_contains_no_secrets() -> None:
    for one in COMPOSE["services"].values():
        for name, value in one.get("environment", {}).items():
            if name.endswith(("PASSWORD", "TOKEN")):
                assert value.startswith("${"), name


def test_commands_in_the_readme_name_existing_files() -> None:
    text = (DEPLOY / "README.md").read_text("utf-8")
    for line in re.findall(r"^(?:docker|helm) .*$", text, re.M):
        for word in shlex.split(line, comments=True):
            if word.startswith("deploy/"):
                assert (ROOT / word).exists(), line


def test_unknown_chart_values_are_rejected() -> None:
    with pytest.raises(CheckFailed, match="drane"):
        values_with({"drane": 3})
    with pytest.raises(CheckFailed, match="workers"):
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
        ({"terminationGracePeriodSeconds": 334}, "would be killed before it has drained"),
        ({"securityContext": {"runAsNonRoot": False}}, "must run as non-root"),
        ({"volumes": [{"name": "x"}]}, "volumes and mounts"),
        ({"container": {"env": [{"name": "DRAGOMAN_STOR"}]}}, "unknown settings: DRAGOMAN_STOR"),
        ({"container": {"livenessProbe": {"httpGet": {"port": "grpc"}}}}, "a probe uses an undefined port"),
    ],
)
def test_misconfigured_pods_are_rejected(pod: dict[str, Any], rule: str | None) -> None:
    settings = {"kind": "ConfigMap", "metadata": {"name": "d"}, "data": {"DRAGOMAN_API_KEYS": "true"}}
    found, values = [deployment(**pod), settings], {"drain": 300, "preStop": 5}
    if rule is None:
        check_references(found, values)
    else:
        with pytest.raises(CheckFailed, match=rule):
            check_references(found, values)
