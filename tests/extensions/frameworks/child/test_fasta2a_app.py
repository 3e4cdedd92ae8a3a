"""`serve app.py:app` with a FastA2A application of the stand-in for fasta2a, in its child process."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest
from aiohttp import ClientSession
from tests.agents.workers.tasks import texts
from tests.cli.server import serving

from dragoman.client.calls import Client, message
from dragoman.settings.settings import SettingsError, load_settings
from dragoman.wiring.app import open_app

pytestmark = pytest.mark.long

APPS: Final = Path(__file__).parents[1] / "stand_in" / "counting_app.py"


async def test_an_application_is_served_by_the_worker_that_its_lifespan_runs(tmp_path: Path) -> None:
    with serving(f"{APPS}:app", cwd=tmp_path) as server:
        async with Client(server.grpc) as client:
            task = (await client.send(message("ann"))).task
        assert texts(task) == {"output": "hello from the lifespan, ann"}
        async with ClientSession(server.http) as http, http.get("/.well-known/agent-card.json") as response:
            card = await response.json()
        assert (card["name"], card["description"]) == ("Greeter", "Greeter")
        notice = "in Dragoman's store: its own storage, broker, routes and middleware are not used"
        assert any(notice in line for line in server.err.seen)


async def test_an_application_without_a_worker_is_refused_in_one_line(tmp_path: Path) -> None:
    free = {"http": "127.0.0.1:0", "grpc": "127.0.0.1:0"}
    given = {"app": f"{APPS}:idle_app", "store": f"sqlite:///{tmp_path}/t.db", **free}
    rule = "the lifespan of the FastA2A application runs no workers, and exactly one is served; name the Worker class"
    with pytest.raises(SettingsError, match=rule):
        async with open_app(load_settings(given)):
            pass
