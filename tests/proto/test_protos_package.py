"""dragoman-protos: the stubs alone, beside the server's own, with the oldest runtimes that generated code accepts."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from email import message_from_string
from email.message import Message
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GEN = ROOT / "gen"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    project = tmp_path_factory.mktemp("gen") / "gen"
    shutil.copytree(GEN, project)
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel"]
    subprocess.run(command, cwd=project, check=True, capture_output=True)
    (path,) = (project / "dist").iterdir()
    return zipfile.ZipFile(path)


@pytest.fixture(scope="module")
def metadata(wheel: zipfile.ZipFile) -> Message:
    (name,) = (name for name in wheel.namelist() if name.endswith("/METADATA"))
    return message_from_string(wheel.read(name).decode())


def test_the_wheel_has_the_generated_code_and_the_image_and_no_server(wheel: zipfile.ZipFile) -> None:
    generated = {
        path.relative_to(GEN / "dragoman_pb").as_posix()
        for path in (GEN / "dragoman_pb").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    expected = {f"dragoman_protos/{name}" for name in {*generated, "dragoman.binpb"}}
    assert {name for name in wheel.namelist() if ".dist-info/" not in name} == expected


def test_the_version_is_that_of_the_server(metadata: Message) -> None:
    server = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert metadata["Version"] == server["version"]


def test_the_oldest_runtimes_are_those_that_the_generated_code_accepts(metadata: Message) -> None:
    code = "\n".join(path.read_text("utf-8") for path in (GEN / "dragoman_pb").rglob("*_pb2*.py"))
    (protobuf,) = set(re.findall(r"^# Protobuf Python Version: (.*)$", code, re.M))
    (grpcio,) = set(re.findall(r"^GRPC_GENERATED_VERSION = '(.*)'$", code, re.M))
    major = int(protobuf.split(".")[0])
    # protobuf supports generated code on its own major version and the next one.
    expected = {f"protobuf<{major + 2},>={protobuf}", f"grpcio<2,>={grpcio}"}
    assert expected <= set(metadata.get_all("Requires-Dist", []))


def test_it_can_be_imported_beside_the_stubs_of_the_server(wheel: zipfile.ZipFile, tmp_path: Path) -> None:
    wheel.extractall(tmp_path)
    program = """
import pickle
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as servers
from dragoman_protos.lf.a2a.v1 import a2a_pb2 as ours, a2a_pb2_grpc
from dragoman_protos.a2a.v1 import a2a_pb2_grpc
from dragoman_protos.dragoman.worker.v1 import worker_pb2_grpc
task = ours.Task(id="t-1", status={"state": ours.TASK_STATE_WORKING}, metadata={"tags": ["a"]})
assert ours.Task is not servers.Task
assert servers.Task.FromString(task.SerializeToString()).id == "t-1"
assert pickle.loads(pickle.dumps(task)) == task
"""
    done = subprocess.run(
        [sys.executable, "-c", program], env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
