"""The image of deploy/Dockerfile, built and run: by docker or podman, else as a root file system of the same steps.

A machine that allows neither skips these tests with the reason. `IMAGE=required`, as in CI, makes that a failure.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from tests.deploy import engine, rootfs
from tests.deploy.dockerfile import Config, Instruction, in_context, parse_stages
from tests.deploy.engine import EngineContainer, EngineImage
from tests.deploy.rootfs import NamespaceContainer, RootImage
from tests.eventually import eventually_blocking

DOCKERFILE: Final = Path(__file__).parents[2] / "deploy" / "Dockerfile"
TOKEN: Final = "image-test-token-0123456789"
CREDENTIALS: Final = {"DRAGOMAN_TOKEN": TOKEN, "DRAGOMAN_KEY": TOKEN}
Container = NamespaceContainer | EngineContainer

AGENTS: Final = """
import asyncio
from pathlib import Path

from dragoman import Turn, agent


@agent(default=True)
async def where(turn: Turn) -> str:
    return __file__


@agent
async def patient(turn: Turn) -> str:
    while not Path("/data/go").exists():
        await asyncio.sleep(0.05)
    return "went"
"""

GET: Final = "import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1], timeout=5).read().decode())"

pytestmark = [pytest.mark.longest, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RootImage | EngineImage]:
    if program := engine.find_engine():
        yield engine.build(program, DOCKERFILE)
        engine.remove(program)
        return
    if reason := rootfs.missing():
        reason = f"the image is neither built nor run: no docker or podman answers, and {reason}"
        pytest.fail(reason) if os.environ.get("IMAGE") == "required" else pytest.skip(reason)
    folder = tmp_path_factory.mktemp("image")
    yield rootfs.build(DOCKERFILE, folder)
    shutil.rmtree(folder)


@pytest.fixture
def start(image: RootImage | EngineImage, tmp_path: Path) -> Any:
    """Starts a container; calls of one test share /data."""
    (tmp_path / "data").mkdir()
    (tmp_path / "agents").mkdir()
    (tmp_path / "agents/desk.py").write_text(AGENTS)
    tmp_path.chmod(0o755)

    @contextmanager
    def started(*words: str, env: Mapping[str, str] = CREDENTIALS) -> Iterator[Container]:
        folders = {"data": tmp_path / "data", "agents": tmp_path / "agents"}
        with image.run(*words, **folders, env=env, log=tmp_path / "log") as container:
            yield container

    return started


def wait_until_healthy(container: Container, image: RootImage | EngineImage) -> None:
    def is_healthy() -> bool:
        assert container.is_running(), container.logs
        return container.exec(*image.config.health_check).returncode == 0

    eventually_blocking(is_healthy)


def output(container: Container, *words: str) -> str:
    done = container.exec(*words)
    assert done.returncode == 0, done.stdout + done.stderr + container.logs
    return done.stdout


def test_the_image_serves_as_a_user_without_rights(image: RootImage | EngineImage, start: Any) -> None:
    with start() as container:
        wait_until_healthy(container, image)
        assert json.loads(output(container, "python", "-c", GET, "http://127.0.0.1:8080/readyz")) == {"status": "ok"}
        assert output(container, "dragoman", "send", "echo hello") == "hello\n"
        assert output(container, "dragoman", "send", "echo hello", "--server", "http://127.0.0.1:8080") == "hello\n"
        status = output(container, "cat", "/proc/1/status")
        assert "Uid:\t10001\t10001\t10001\t10001" in status
        assert "CapEff:\t0000000000000000" in status
        assert "NoNewPrivs:\t1" in status
        for place in ("/opt/dragoman/x", "/agents/x", "/etc/x", "/x"):
            assert "Read-only file system" in container.exec("sh", "-c", f": > {place}").stderr
        assert output(container, "ls", "/data").split()[0] == "dragoman.db"


def test_sigterm_drains_and_the_tasks_are_still_there(image: RootImage | EngineImage, start: Any) -> None:
    ready = ("python", "-c", GET, "http://127.0.0.1:8080/readyz")
    with start("serve", "desk") as container:
        wait_until_healthy(container, image)
        task = output(container, "dragoman", "send", "--agent", "patient", "--no-wait", "x").split()[0]
        eventually_blocking(lambda: "WORKING" in output(container, "dragoman", "get", task))
        container.terminate()
        eventually_blocking(lambda: "503" in container.exec(*ready).stderr)  # it waits for the turn
        output(container, "touch", "/data/go")
        assert container.wait() == 0, container.logs
        assert all(json.loads(line)["level"] != "ERROR" for line in container.logs.splitlines() if line[:1] == "{")
    with start("serve", "desk") as container:
        wait_until_healthy(container, image)
        assert "COMPLETED" in output(container, "dragoman", "get", task)


def test_agents_of_the_agents_folder_are_found_by_their_module(image: RootImage | EngineImage, start: Any) -> None:
    with start("serve", "desk") as container:
        wait_until_healthy(container, image)
        assert output(container, "dragoman", "send", "x") == "/agents/desk.py\n"


def test_without_authentication_the_image_does_not_start(start: Any) -> None:
    with start(env={}) as container:
        assert container.wait() == 2
        assert "--api-keys" in container.logs


def test_the_first_keys_come_from_the_token(image: RootImage | EngineImage, start: Any) -> None:
    """What deploy/README.md says about the first key: no access to the database is needed."""
    with start(env={**CREDENTIALS, "DRAGOMAN_API_KEYS": "true"}) as container:
        wait_until_healthy(container, image)
        operator = output(container, "dragoman", "keys", "create", "ops", "--grant", "operator").strip()
        worker = output(container, "dragoman", "keys", "create", "desk", "--grant", "worker", "--key", operator).strip()
        container.terminate()
        assert container.wait() == 0, container.logs
    with start(env={"DRAGOMAN_API_KEYS": "true"}) as container:  # the token is gone
        wait_until_healthy(container, image)
        assert output(container, "dragoman", "send", "echo hello", "--key", operator) == "hello\n"
        assert container.exec("dragoman", "keys", "list", "--key", TOKEN).returncode != 0
        assert container.exec("dragoman", "keys", "list", "--key", worker).returncode != 0
        assert "desk" in output(container, "dragoman", "keys", "list", "--key", operator)


def test_every_stage_begins_with_one_base_image_named_by_its_digest() -> None:
    stages = parse_stages(DOCKERFILE.read_text())
    (base,) = {stage.base for stage in stages} - {stage.name for stage in stages}
    assert re.fullmatch(r"python:3\.13\.\d+-slim-\w+@sha256:[0-9a-f]{64}", base)


def test_a_dockerfile_is_read_into_stages() -> None:
    text = "# top\nFROM a AS b\nENV X=1 Y=$X-2\nRUN one \\\n# between\n && two\nFROM c\nCOPY --from=b /x /y\n"
    first, second = parse_stages(text)
    assert (first.base, first.name, second.base, second.name) == ("a", "b", "c", "")
    assert first.instructions[1] == Instruction("RUN", "one && two")
    assert second.instructions == (Instruction("COPY", "--from=b /x /y"),)
    config = Config()
    assert config.apply(first.instructions[0])
    assert (config.env["X"], config.env["Y"]) == ("1", "1-2")
    assert not config.apply(first.instructions[1])
    with pytest.raises(ValueError, match="RUN stands before the first FROM"):
        parse_stages("RUN x")


def test_the_build_context_leaves_out_what_is_ignored() -> None:
    rules = "# only these\n*\n!server\n!README.md\n**/__pycache__\n"
    assert in_context("server/a.py", rules)
    assert in_context("README.md", rules)
    assert not in_context("servers/a.py", rules)
    assert not in_context("tests/a.py", rules)
    assert not in_context("server/__pycache__/a.pyc", rules)
    with pytest.raises(ValueError, match="is not known here"):
        in_context("a", "*.py")
