"""`make deploy-check`: checks `deploy/` without a container engine or a cluster.

Runs hadolint on the Dockerfile and yamllint on YAML, and validates the chart's values against its schema and the
rendered objects against the API's schemas (kubernetes-validate). helm and docker compose run too if installed; without
helm the templates are rendered by Go's text/template (`deploy/render.go`), which helm uses as well. The tools come from
PyPI, in a separate environment. Prints a line per step; the exit code is 1 if a step fails.
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

from dragoman.settings.settings import SettingsError, load_settings, setting_fields
from tools.environments import ROOT, Environment, NotCreated

DEPLOY: Final = ROOT / "deploy"
CHART: Final = DEPLOY / "helm" / "dragoman"
HERE: Final = Path(__file__).resolve().parent / "deploy"

KUBERNETES: Final = ("1.27", "1.33")
"""Versions to validate against: the oldest one that the chart supports, and a newer one."""

YAMLLINT: Final = (
    "{extends: default, rules: {line-length: {max: 160}, document-start: disable, "
    "braces: {max-spaces-inside: 1}, comments: {min-spaces-from-content: 1}, "
    "truthy: {check-keys: false}}}"
)

VALUES: Final[Mapping[str, dict[str, Any]]] = {
    "minimal values": {"secret": {"existing": "dragoman"}},
    "all values": {
        "secret": {"create": True, "values": {"store": "postgresql://d:p@db/d", "bus": "nats://n", "worker-key": "k"}},
        "settings": {"api_keys": True, "message_bytes": 8388608, "keepalive": 2.5, "retention": "completed=30d"},
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
"""Values that the chart is rendered with, by name."""

WORKER_VARIABLES: Final = {"DRAGOMAN_SERVER", "DRAGOMAN_KEY_FILE"}
"""Variables of `dragoman worker`."""

Json = dict[str, Any]


class CheckFailed(Exception):
    """A step failed. The text has its output."""


def values_with(more: Mapping[str, Any]) -> Json:
    """Returns the chart's values merged with others as Helm does. Raises CheckFailed for values against the schema."""
    merged = _merged(yaml.safe_load((CHART / "values.yaml").read_text("utf-8")), more)
    try:
        jsonschema.validate(merged, json.loads((CHART / "values.schema.json").read_text("utf-8")))
    except jsonschema.ValidationError as error:
        raise CheckFailed(f"values: {error.json_path}: {error.message}") from error
    return merged


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> Json:
    merged = dict(below)
    for key, value in above.items():
        both = isinstance(value, Mapping) and isinstance(merged.get(key), Mapping)
        merged[key] = _merged(merged[key], value) if both else value
    return merged


class Chart:
    """Renders the chart with helm if installed, otherwise with Go's templates."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self.helm = shutil.which("helm")
        self._program: Path | None = None

    def render(self, values: Json, folder: Path) -> str:
        """Returns the rendered manifests. Raises CheckFailed."""
        if self.helm:
            file = folder / "values.json"
            file.write_text(json.dumps(values), "utf-8")
            return run(self.helm, "template", "dragoman", str(CHART), "--values", str(file))
        metadata = yaml.safe_load((CHART / "Chart.yaml").read_text("utf-8"))
        chart = {"Name": metadata["name"], "Version": metadata["version"], "AppVersion": metadata["appVersion"]}
        release = {"Name": "dragoman", "Namespace": "default", "Service": "Helm"}
        data = folder / "data.json"
        data.write_text(json.dumps({"Values": values, "Chart": chart, "Release": release}), "utf-8")
        return run(str(self._compiled(folder)), str(data), str(CHART / "templates"))

    def _compiled(self, folder: Path) -> Path:
        if self._program is None:
            self._program = self._environment.folder / "render"
            go = self._environment.folder / "bin" / "go"
            variables = {"GOCACHE": str(folder / "cache"), "GOFLAGS": "-p=1", "GO111MODULE": "off", "HOME": str(folder)}
            run(str(go), "build", "-o", str(self._program), str(HERE / "render.go"), environment=variables)
        return self._program


def run(*command: str, environment: Mapping[str, str] | None = None) -> str:
    """Runs a command and returns its output. Raises CheckFailed."""
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False,
        env={"PATH": "/usr/local/bin:/usr/bin:/bin", **environment} if environment else None,
    )  # fmt: skip
    if done.returncode:
        raise CheckFailed(f"{Path(command[0]).name} {command[1]}: {(done.stdout + done.stderr).strip()}")
    return done.stdout


def objects(rendered: str) -> list[Json]:
    """Returns the objects in rendered manifests."""
    return [one for one in yaml.safe_load_all(rendered) if one]


def check_references(found: Sequence[Json], values: Json) -> None:
    """Checks references between objects, settings and security, which no schema covers. Raises CheckFailed."""
    settings = {f"DRAGOMAN_{name.upper()}" for name in setting_fields()}
    by_kind = {(one["kind"], one["metadata"]["name"]): one for one in found}
    if len(by_kind) < len(found):
        raise CheckFailed("two objects have the same name")
    pods = [one for one in found if one["kind"] == "Deployment"]
    labels = [one["spec"]["template"]["metadata"]["labels"] for one in pods]
    for one in found:
        kind, spec = one["kind"], one.get("spec", {})
        chosen = spec.get("podSelector", spec.get("selector", {}))
        wanted = chosen.get("matchLabels", chosen)
        if wanted and sum(wanted.items() <= given.items() for given in labels) != 1:
            raise CheckFailed(f"{kind} {one['metadata']['name']}: its selector does not match exactly one deployment")
        if kind == "ConfigMap" and (unknown := set(one["data"]) - settings):
            raise CheckFailed(f"ConfigMap: unknown settings: {', '.join(sorted(unknown))}")
    for one in pods:
        pod = one["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        where = f"Deployment {one['metadata']['name']}"
        if pod["terminationGracePeriodSeconds"] < values["drain"] + values["preStop"] + 30:
            raise CheckFailed(f"{where}: would be killed before it has drained")
        named = {variable["name"] for variable in container["env"]}
        if unknown := {name for name in named if name.startswith("DRAGOMAN_")} - settings - WORKER_VARIABLES:
            raise CheckFailed(f"{where}: unknown settings: {', '.join(sorted(unknown))}")
        volumes, mounts = pod["volumes"], container["volumeMounts"]
        if {volume["name"] for volume in volumes} != {mount["name"] for mount in mounts}:
            raise CheckFailed(f"{where}: volumes and mounts differ")
        if not pod["securityContext"]["runAsNonRoot"] or not container["securityContext"]["readOnlyRootFilesystem"]:
            raise CheckFailed(f"{where}: must run as non-root on a read-only root filesystem")
        ports = {port["name"] for port in container.get("ports", [])}
        for probe in (container.get(f"{name}Probe") for name in ("startup", "liveness", "readiness")):
            if probe and probe["httpGet"]["port"] not in ports:
                raise CheckFailed(f"{where}: a probe uses an undefined port")
    check_settings(by_kind["ConfigMap", pods[0]["metadata"]["name"]]["data"])


def check_settings(variables: Mapping[str, str]) -> None:
    """Checks that a server accepts the variables of a pod. Raises CheckFailed."""
    values = {name.removeprefix("DRAGOMAN_").lower(): value for name, value in variables.items()}
    try:
        load_settings({"http": "0.0.0.0:8080", "grpc": "0.0.0.0:50051", **values})
    except SettingsError as error:
        raise CheckFailed(f"ConfigMap: {error}") from error


def steps(environment: Environment, folder: Path) -> Iterator[tuple[str, Sequence[str] | str]]:
    """Runs the steps. Yields each step's name and result. Raises CheckFailed."""
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
    for name, overrides in VALUES.items():
        values = values_with(overrides)
        found = objects(chart.render(values, folder))
        check_references(found, values)
        file = folder / "objects.yaml"
        file.write_text(yaml.safe_dump_all(found), "utf-8")
        for version in KUBERNETES:
            run(str(tools / "kubernetes-validate"), "--strict", "--kubernetes-version", version, str(file))
        how = "helm" if chart.helm else "text/template"
        yield f"the chart with {name}", f"{len(found)} objects by {how}, kubernetes-validate {', '.join(KUBERNETES)}"
    if docker := shutil.which("docker"):
        try:
            run(docker, "compose", "version")
        except CheckFailed:
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
    except (CheckFailed, NotCreated) as error:
        print(f"deploy: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
