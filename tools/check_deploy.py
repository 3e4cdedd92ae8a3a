"""`make deploy-check`: what can be said of `deploy/` without a container engine and without a cluster.

The Dockerfile goes through hadolint, YAML through yamllint, the chart's values through its schema, what the templates
give through the API's own schemas (kubernetes-validate). Where there is a helm or a docker with compose they are asked,
too; otherwise the templates are rendered by Go's text/template (`deploy/render.go`), which is what helm uses. The tools
come from PyPI into an environment of their own.

Prints a line for each step, and ends with 1 if one failed.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import jsonschema
import yaml

from dragoman.settings.settings import Settings, SettingsError, load_settings
from tools.environments import ROOT, Environment, NotCreated

DEPLOY: Final = ROOT / "deploy"
CHART: Final = DEPLOY / "helm" / "dragoman"
HERE: Final = Path(__file__).resolve().parent / "deploy"

KUBERNETES: Final = ("1.27", "1.33")
"""Whose schemas count: of the oldest that the chart names, and of a newer one."""

YAMLLINT: Final = (
    "{extends: default, rules: {line-length: {max: 160}, document-start: disable, "
    "braces: {max-spaces-inside: 1}, comments: {min-spaces-from-content: 1}, "
    "truthy: {check-keys: false}}}"
)

VALUES: Final[Mapping[str, dict[str, Any]]] = {
    "the least": {"secret": {"existing": "dragoman"}},
    "everything": {
        "secret": {"create": True, "values": {"store": "postgresql://d:p@db/d", "bus": "nats://n", "worker-key": "k"}},
        "settings": {"api_keys": True, "message_bytes": 8388608, "keepalive": 2.5, "retain_completed": "30d"},
        "app": "desk.agents",
        "drain": 120,
        "imagePullSecrets": [{"name": "registry"}],
        "metrics": {"enabled": True},
        "autoscaling": {"enabled": True},
        "service": {"annotations": {"a.example/b": "c"}},
        "serviceAccount": {"annotations": {"a.example/b": "c"}},
        "networkPolicy": {
            "enabled": True,
            "from": [{"namespaceSelector": {"matchLabels": {"team": "a"}}}],
            "postgres": {"to": [{"ipBlock": {"cidr": "10.1.2.3/32"}}]},
            "nats": {"to": [{"podSelector": {"matchLabels": {"app": "nats"}}}]},
            "extraEgress": [{"ports": [{"protocol": "TCP", "port": 9999}]}],
        },
        "server": {
            "tlsSecret": "certificate",
            "podAnnotations": {"a.example/b": "c"},
            "nodeSelector": {"disk": "fast"},
            "tolerations": [{"key": "a", "operator": "Exists"}],
            "affinity": {"nodeAffinity": {}},
            "extraEnv": [{"name": "MODEL", "value": "small"}],
            "extraVolumes": [{"name": "agents", "configMap": {"name": "agents"}}],
            "extraVolumeMounts": [{"name": "agents", "mountPath": "/agents"}],
        },
        "workers": [
            {"name": "desk", "args": ["desk.agents", "--turns", "20"], "replicas": 2, "image": "desk:1"},
            {
                "name": "other",
                "args": ["--executor", "a:B"],
                "resources": {"limits": {"memory": "1Gi"}},
                "extraEnv": [{"name": "MODEL", "value": "small"}],
                "extraVolumes": [{"name": "x", "emptyDir": {}}],
                "extraVolumeMounts": [{"name": "x", "mountPath": "/x"}],
                "nodeSelector": {"gpu": "yes"},
                "tolerations": [{"key": "a", "operator": "Exists"}],
                "affinity": {"nodeAffinity": {}},
            },
        ],
    },
}
"""What charts are rendered with."""

OF_WORKERS: Final = {"DRAGOMAN_SERVER", "DRAGOMAN_KEY_FILE"}
"""Variables of `dragoman worker`."""

Json = dict[str, Any]


class Failed(Exception):
    """A step failed; the text says with what."""


def values_with(more: Mapping[str, Any]) -> Json:
    """The chart's values with others on top, as Helm merges them. Raises Failed for what its schema refuses."""
    merged = _merged(yaml.safe_load((CHART / "values.yaml").read_text("utf-8")), more)
    try:
        jsonschema.validate(merged, json.loads((CHART / "values.schema.json").read_text("utf-8")))
    except jsonschema.ValidationError as error:
        raise Failed(f"values: {error.json_path}: {error.message}") from error
    return merged


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> Json:
    values = dict(below)
    for key, value in above.items():
        both = isinstance(value, Mapping) and isinstance(values.get(key), Mapping)
        values[key] = _merged(values[key], value) if both else value
    return values


class Chart:
    """Renders the chart: by helm where there is one, otherwise by Go's templates."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self.helm = shutil.which("helm")
        self._program: Path | None = None

    def render(self, values: Json, folder: Path) -> str:
        """All that it gives. Raises Failed."""
        if self.helm:
            file = folder / "values.json"
            file.write_text(json.dumps(values), "utf-8")
            return run(self.helm, "template", "dragoman", str(CHART), "--values", str(file))
        value = yaml.safe_load((CHART / "Chart.yaml").read_text("utf-8"))
        chart = {"Name": value["name"], "Version": value["version"], "AppVersion": value["appVersion"]}
        release = {"Name": "dragoman", "Namespace": "default", "Service": "Helm"}
        data = folder / "data.json"
        data.write_text(json.dumps({"Values": values, "Chart": chart, "Release": release}), "utf-8")
        return run(str(self._created(folder)), str(data), str(CHART / "templates"))

    def _created(self, folder: Path) -> Path:
        if self._program is None:
            self._program = self._environment.folder / "render"
            go = self._environment.folder / "bin" / "go"
            values = {"GOCACHE": str(folder / "cache"), "GOFLAGS": "-p=1", "GO111MODULE": "off", "HOME": str(folder)}
            run(str(go), "build", "-o", str(self._program), str(HERE / "render.go"), environment=values)
        return self._program


def run(*command: str, environment: Mapping[str, str] | None = None) -> str:
    """What a command says. Raises Failed."""
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False,
        env={"PATH": "/usr/local/bin:/usr/bin:/bin", **environment} if environment else None,
    )  # fmt: skip
    if done.returncode:
        raise Failed(f"{Path(command[0]).name} {command[1]}: {(done.stdout + done.stderr).strip()}")
    return done.stdout


def objects(rendered: str) -> list[Json]:
    """The objects in what a chart gives."""
    return [one for one in yaml.safe_load_all(rendered) if one]


def together(found: Sequence[Json], values: Json) -> None:
    """What no schema says: that the objects mean each other, and the server what it is told. Raises Failed."""
    settings = {f"DRAGOMAN_{name.upper()}" for name in Settings.model_fields}
    by_kind = {(one["kind"], one["metadata"]["name"]): one for one in found}
    if len(by_kind) < len(found):
        raise Failed("two objects have the same name")
    pods = [one for one in found if one["kind"] == "Deployment"]
    labels = [one["spec"]["template"]["metadata"]["labels"] for one in pods]
    for one in found:
        kind, spec = one["kind"], one.get("spec", {})
        chosen = spec.get("podSelector", spec.get("selector", {}))
        wanted = chosen.get("matchLabels", chosen)
        if wanted and sum(wanted.items() <= given.items() for given in labels) != 1:
            raise Failed(f"{kind} {one['metadata']['name']}: its selector means not one deployment")
        if kind == "ConfigMap" and (unknown := set(one["data"]) - settings):
            raise Failed(f"ConfigMap: no settings: {', '.join(sorted(unknown))}")
    for one in pods:
        pod = one["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        where = f"Deployment {one['metadata']['name']}"
        if pod["terminationGracePeriodSeconds"] < values["drain"] + values["preStop"] + 30:
            raise Failed(f"{where}: is killed before it has drained")
        named = {variable["name"] for variable in container["env"]}
        if unknown := {name for name in named if name.startswith("DRAGOMAN_")} - settings - OF_WORKERS:
            raise Failed(f"{where}: no settings: {', '.join(sorted(unknown))}")
        volumes, mounts = pod["volumes"], container["volumeMounts"]
        if {volume["name"] for volume in volumes} != {mount["name"] for mount in mounts}:
            raise Failed(f"{where}: volumes and mounts are not the same")
        if not pod["securityContext"]["runAsNonRoot"] or not container["securityContext"]["readOnlyRootFilesystem"]:
            raise Failed(f"{where}: may do more than it has to")
        ports = {port["name"] for port in container.get("ports", [])}
        for probe in (container.get(f"{name}Probe") for name in ("startup", "liveness", "readiness")):
            if probe and probe["httpGet"]["port"] not in ports:
                raise Failed(f"{where}: a probe asks a port that is none")
    check_settings(by_kind["ConfigMap", pods[0]["metadata"]["name"]]["data"])


def check_settings(response_values: Mapping[str, str]) -> None:
    """What a pod is told is what a server takes. Raises Failed."""
    values = {name.removeprefix("DRAGOMAN_").lower(): value for name, value in response_values.items()}
    try:
        load_settings({"http": "0.0.0.0:8080", "grpc": "0.0.0.0:50051", **values})
    except SettingsError as error:
        raise Failed(f"ConfigMap: {error}") from error


def steps(environment: Environment, folder: Path) -> Iterator[tuple[str, Sequence[str] | str]]:
    """Each step's name and what it found, lazily. Raises Failed."""
    tools = environment.folder / "bin"
    run(str(tools / "hadolint"), "--failure-threshold", "info", "--ignore", "DL3008", str(DEPLOY / "Dockerfile"))
    yield "Dockerfile", "hadolint"
    run(
        str(tools / "yamllint"), "--strict", "-d", YAMLLINT,
        str(DEPLOY / "compose.yaml"), str(CHART / "values.yaml"), str(CHART / "Chart.yaml"),
    )  # fmt: skip
    yield "compose.yaml, Chart.yaml, values.yaml", "yamllint"
    chart = Chart(environment)
    if chart.helm:
        run(chart.helm, "lint", "--strict", str(CHART), "--set", "secret.existing=dragoman")
        yield "the chart", "helm lint"
    for name, response_values in VALUES.items():
        values = values_with(response_values)
        found = objects(chart.render(values, folder))
        together(found, values)
        file = folder / "objects.yaml"
        file.write_text(yaml.safe_dump_all(found), "utf-8")
        for version in KUBERNETES:
            run(str(tools / "kubernetes-validate"), "--strict", "--kubernetes-version", version, str(file))
        how = "helm" if chart.helm else "text/template"
        yield f"the chart with {name}", f"{len(found)} objects by {how}, kubernetes-validate {', '.join(KUBERNETES)}"
    if docker := shutil.which("docker"):
        try:
            run(docker, "compose", "version")
        except Failed:
            return
        secrets = {"DRAGOMAN_TOKEN": "t" * 16, "POSTGRES_PASSWORD": "p"}
        run(docker, "compose", "-f", str(DEPLOY / "compose.yaml"), "config", "--quiet", environment=secrets)
        yield "compose.yaml", "docker compose config"


def main() -> int:
    environment = Environment("deploy", (HERE / "requirements.txt",))
    try:
        environment.make()
        with tempfile.TemporaryDirectory() as folder:
            for what, how in steps(environment, Path(folder)):
                print(f"deploy: {what}: ok ({how})", flush=True)
    except (Failed, NotCreated) as error:
        print(f"deploy: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
