"""gen/openapi: version, credentials and errors, the served OpenAPI 3.1, and a check for drift without network."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from openapi_spec_validator import OpenAPIV2SpecValidator, OpenAPIV31SpecValidator
from tests.cli.server import serving

from dragoman import __version__
from tools.openapi import committed as openapi

pytestmark = pytest.mark.long

ROOT = Path(__file__).resolve().parents[2]
GENERATED = sorted(path.relative_to(openapi.FOLDER).as_posix() for path in openapi.FOLDER.rglob("*.swagger.json"))


def read(name: str) -> Any:
    return json.loads((openapi.FOLDER / name).read_text("utf-8"))


@pytest.mark.parametrize("name", GENERATED)
def test_generated_documents_are_valid_and_have_version_credentials_and_errors(name: str) -> None:
    document = read(name)
    assert [str(error) for error in OpenAPIV2SpecValidator(document).iter_errors()] == []
    assert document["info"]["version"] == __version__
    assert document["securityDefinitions"].keys() == {"bearer", "apiKey"}
    assert {"bearer": []} in document["security"]
    for operations in document["paths"].values():
        for operation in operations.values():
            assert operation["responses"]["default"] == {"$ref": "#/responses/Error"}
            is_card = operation["operationId"].startswith("A2AService_GetAgentCard")
            assert (operation.get("security") == []) is is_card
            is_stream = any(name in operation["operationId"] for name in ("SendStreamingMessage", "Subscri", "Watch"))
            assert ("text/event-stream" in operation.get("produces", ())) is is_stream
    error = document["definitions"][document["responses"]["Error"]["schema"]["$ref"].rpartition("/")[2]]
    assert "error" in json.dumps(error)
    assert "rpcStatus" not in json.dumps(document)


@pytest.mark.parametrize("name", GENERATED)
def test_a_path_has_a_parameter_for_each_of_its_segments(name: str) -> None:
    for path, operations in read(name)["paths"].items():
        named = re.findall(r"\{(\w+)\}", path)
        assert not [
            parameter for parameter in named if re.search(r"_\d$", parameter) or parameter in ("name", "parent")
        ]
        for operation in operations.values():
            parameters = [(one["name"], one["in"]) for one in operation.get("parameters", ())]
            assert sorted(named) == sorted(name for name, place in parameters if place == "path"), path
            assert ("tenant", "query") not in parameters or not {"agent", "tenant"} & set(named), path


def test_the_openapi_3_1_document_is_the_one_that_a_server_serves(tmp_path: Path) -> None:
    with (
        serving("--token", "some-token", "--api-keys", cwd=tmp_path) as server,
        urllib.request.urlopen(f"{server.http}/openapi.json") as response,
    ):
        served = json.load(response)
    del served["servers"]
    assert served == read(openapi.SERVED)
    assert [str(error) for error in OpenAPIV31SpecValidator(served).iter_errors()] == []
    assert served["info"]["version"] == __version__
    assert served["components"]["securitySchemes"].keys() == {"bearer", "apiKey"}


def test_the_committed_documents_are_current() -> None:
    assert openapi.stale() == []


def test_a_change_of_any_document_is_found_without_the_plugin(tmp_path: Path) -> None:
    folder = tmp_path / "openapi"
    shutil.copytree(openapi.FOLDER, folder)

    def change(name: str, *path: str, value: Any) -> None:
        document = node = read(name)
        for step in path[:-1]:
            node = node[step]
        node[path[-1]] = value
        (folder / name).write_text(openapi.rendered(document), "utf-8")

    first, second, third = GENERATED
    change(first, "info", "version", value="0.0.0")
    change(second, "security", value=[])
    change(third, "x-dragoman-image", value="of other protos")
    (folder / openapi.SERVED).unlink()
    assert sorted(openapi.stale(folder)) == sorted([*GENERATED, openapi.SERVED])


@pytest.mark.parametrize("required", [False, True])
def test_without_go_the_check_warns_and_in_ci_it_fails(tmp_path: Path, required: bool) -> None:
    for name in ("buf.yaml", "buf.gen.yaml", "proto", "gen", "tools"):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, tmp_path / name)
    (tmp_path / ".venv").symlink_to(Path(sys.executable).parents[1])
    subprocess.run([sys.executable, "tools/sync_googleapis.py"], cwd=tmp_path, check=True, capture_output=True)
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "GO": "no-such-go"}
    environment["OPENAPI_PLUGIN"] = "required" if required else ""
    done = subprocess.run(
        ["sh", "tools/check_protos.sh"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    if required:
        assert done.returncode == 1
        assert "gen/openapi cannot be compared: Go is not installed" in done.stderr
    else:
        assert done.returncode == 0, done.stdout + done.stderr
        assert "WARNING  gen/openapi was NOT generated again" in done.stderr
