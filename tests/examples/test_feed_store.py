"""The example of an extension: its store passes the contract, and works once its distribution is installed."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import zipfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from examples.feed_store.dragoman_feed import FeedStore, open_feed_store
from tests.cli.server import Server, clean_environment, serving

from dragoman.client import connect
from dragoman.testing.contracts import StoreContract

pytestmark = pytest.mark.long

PROJECT = Path(__file__).parents[2] / "examples" / "feed_store"


class TestFeedStore(StoreContract):
    """Also the proof for `--store memory:`, whose tasks are in the same kind of file."""

    @pytest.fixture
    async def store(self, tmp_path: Path, clock: Callable[[], int]) -> AsyncIterator[FeedStore]:
        store = open_feed_store(tmp_path / "feed.jsonl", clock=clock)
        yield store
        await store.close()


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the example as pip installs it: built to a wheel, which is unpacked."""
    folder = tmp_path_factory.mktemp("site")
    project = shutil.copytree(PROJECT, tmp_path_factory.mktemp("project") / "feed_store")
    build = "import sys; from hatchling.build import build_wheel; print(build_wheel(sys.argv[1]))"
    done = subprocess.run(
        [sys.executable, "-c", build, str(project)], cwd=project, capture_output=True, text=True, check=True
    )
    with zipfile.ZipFile(project / done.stdout.split()[-1]) as wheel:
        wheel.extractall(folder)
    return folder


def environment(site: Path, **variables: str) -> dict[str, str]:
    return clean_environment() | {"PYTHONPATH": str(site)} | variables


def run(site: Path, *arguments: str, cwd: Path, **variables: str) -> str:
    """What a command prints, on stdout and stderr."""
    done = subprocess.run(
        [sys.executable, "-m", "dragoman", *arguments],
        env=environment(site, **variables),
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout + done.stderr


async def assert_serves_with_a_feed(server: Server, feed: Path) -> None:
    async with connect(server.http) as client:
        result = await client.ask("echo hello")
    lines = [json.loads(line) for line in feed.read_text().splitlines()]
    assert {line["task"] for line in lines} == {result.task_id}
    assert [line["sequence"] for line in lines] == list(range(1, len(lines) + 1))
    assert lines[0]["event"]["task"]["status"]["state"] == "TASK_STATE_SUBMITTED"
    assert lines[-1]["event"]["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"


async def test_a_function_is_served_and_committed_events_are_in_its_feed(tmp_path: Path) -> None:
    with serving("--store", f"{PROJECT / 'dragoman_feed.py'}:open_feed_store", cwd=tmp_path) as server:
        await assert_serves_with_a_feed(server, tmp_path / "feed.jsonl")
    assert [path.name for path in tmp_path.iterdir()] == ["feed.jsonl"]


async def test_an_installed_extension_serves_its_scheme(tmp_path: Path, installed: Path) -> None:
    options = ("--store", "feed:///tasks.jsonl", "--feed-sync")
    with serving(*options, cwd=tmp_path, environment=environment(installed)) as server:
        await assert_serves_with_a_feed(server, tmp_path / "tasks.jsonl")


def test_the_commands_know_an_installed_extension(tmp_path: Path, installed: Path) -> None:
    found = run(installed, "doctor", cwd=tmp_path)
    assert "feed of dragoman-feed 1.0: Feed of events; brings feed:// stores" in found
    (tmp_path / "dragoman.toml").write_text("[extensions.feed]\nsync = true\n")
    assert "feed-sync                     true" in run(installed, "config", "show", cwd=tmp_path)
    (tmp_path / "dragoman.toml").unlink()
    assert "--feed-sync" in run(installed, "serve", "--help-all", cwd=tmp_path)
    variable = run(installed, "config", "show", cwd=tmp_path, DRAGOMAN_FEED_SYNC="maybe")
    assert "DRAGOMAN_FEED_SYNC (environment): must be true or false" in variable.replace('"maybe" ', "")


def test_without_the_extension_its_scheme_is_unknown(tmp_path: Path) -> None:
    output = run(tmp_path, "serve", "--store", "feed:///tasks.jsonl", cwd=tmp_path)
    assert '"feed:///tasks.jsonl" is not the URL of a store; use sqlite:///PATH' in output
    assert "postgresql://USER@HOST/DATABASE (needs dragoman[postgres])" in output
