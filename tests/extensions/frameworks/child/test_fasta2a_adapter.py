"""FastA2A applications of published versions, each in its own environment: what their workers see and may do."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from aiohttp import ClientSession
from google.protobuf import json_format
from tests.agents.workers.tasks import status_text, tasks_in
from tests.cli.server import Server, serving

from dragoman.client.calls import Client, message
from tools.environments import ROOT, Environment, NotCreated

pytestmark = pytest.mark.longest

HERE: Final = Path(__file__).parents[1] / "real_fasta2a"
REQUIREMENTS: Final = {
    "0.2": ROOT / "tests" / "foreign" / "fasta2a_0_2" / "requirements.txt",
    "0.5": HERE / "fasta2a_0_5.txt",
}


def interpreter(version: str) -> str:
    """The Python of the environment with this version."""
    path = REQUIREMENTS[version]
    environment = Environment(path.stem if path.parent == HERE else path.parent.name, (path,))
    try:
        environment.make()
    except NotCreated as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"the packages cannot be had: {error}")
    return str(environment.python)


@pytest.fixture(scope="module", params=REQUIREMENTS)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    python = interpreter(request.param)
    with serving(f"{HERE}/app.py:app", "--executor-python", python, cwd=tmp_path_factory.mktemp("fasta2a")) as server:
        yield server


async def answer(server: Server, text: str) -> str:
    """The text of the artifact that the worker answers with; else that of the status."""
    async with Client(server.grpc) as client:
        task = (await client.send(message(text))).task
    return task.artifacts[0].parts[0].text if task.artifacts else status_text(task)


async def test_the_application_is_served_with_its_card(server: Server) -> None:
    assert await answer(server, "echo hello") == "hello"
    async with ClientSession(server.http) as http, http.get("/.well-known/agent-card.json") as response:
        card = await response.json()
    assert (card["name"], card["description"], card["version"]) == ("Relay", "Runs tasks", "3.2")


async def test_a_task_that_a_worker_submits_and_runs_is_one_of_its_caller(server: Server) -> None:
    async with Client(server.grpc) as client:
        task = (await client.send(message("relay echo there"))).task
        assert task.artifacts[0].parts[0].text == "completed 1 there True"
    relayed = next(one for one in await tasks_in(server.http, task.context_id) if one["id"] != task.id)
    assert relayed["history"][0]["parts"] == [{"text": "echo there"}]


async def test_a_task_that_was_only_submitted_is_none_of_the_server(server: Server) -> None:
    submitted = await answer(server, "submit echo there")
    assert await answer(server, f"load {submitted}") == "None"


async def test_integers_of_data_and_metadata_are_int(server: Server) -> None:
    values: dict[str, Any] = {"big": 9007199254740991, "half": 0.5, "list": [-1, 0, True, None], "n": 1}
    request = message("values")
    json_format.ParseDict(values, request.parts.add().data.struct_value)
    request.metadata.update(values)
    async with Client(server.grpc) as client:
        task = (await client.send(request, metadata=values)).task
    assert task.artifacts[0].parts[0].text == repr((values, values, values))


async def test_an_unknown_task_is_none(server: Server) -> None:
    assert await answer(server, "load nope") == "None"


async def test_an_id_that_a_task_has_is_refused_as_by_the_package() -> None:
    python = interpreter("0.2")
    with serving(f"{HERE}/app.py:app", "--executor-python", python, cwd=HERE) as server:
        text = await answer(server, "again")
    assert text.startswith("ValueError: Task ")
    assert text.endswith(" already exists")
