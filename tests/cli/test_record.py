"""`dragoman record` and `dragoman replay`, and the server fixture for tests of agents."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.testing import agents
from tests.testing.agents import counter, listener, office
from typer.testing import CliRunner, Result

from dragoman.cli import cli
from dragoman.client.calls import Client, message
from dragoman.testing import LiveServer, Recording, record, run

AGENTS = str(Path(agents.__file__))


def command(*arguments: str) -> Result:
    return CliRunner().invoke(cli, arguments)


def test_a_servers_task_is_recorded_and_replayed(dragoman_server: Callable[..., LiveServer], tmp_path: Path) -> None:
    server = dragoman_server(office, counter, listener)

    async def talk() -> str:
        async with Client(server.grpc) as client:
            text = (await client.send(message("a table"), metadata={"m": 1})).task.id
            await client.send(message("Friday", task=text))
            return text

    task, case = asyncio.run(talk()), tmp_path / "case.json"
    recorded = command("record", task, "-o", str(case), "--server", server.grpc)
    assert (recorded.exit_code, recorded.stdout) == (0, f"{case}: 2 turns of office\n"), recorded.output
    same = record(run(office, "a table", "Friday", metadata={"m": 1}))
    assert Recording.read(case) == same

    replayed = command("replay", str(case), AGENTS)
    assert (replayed.exit_code, replayed.stdout) == (0, f"{case}: 2 turns of office, same answers as recorded\n")
    value = json.loads(case.read_text())
    value["turns"][1]["artifacts"]["#1"]["parts"][0]["text"] = "Booked: a chair, Friday."
    case.write_text(json.dumps(value))
    replayed = command("replay", str(case), AGENTS)
    assert replayed.exit_code == 1
    assert "  2.artifacts.#1.parts.1.text\n      recorded  'Booked: a chair, Friday.'\n" in replayed.stdout


def test_invalid_recordings_are_rejected(dragoman_server: Callable[..., LiveServer], tmp_path: Path) -> None:
    server, case = dragoman_server(office), tmp_path / "case.json"
    none = command("record", "nobody's", "-o", str(case), "--server", server.grpc)
    assert none.exit_code == 4
    assert not case.exists()
    for text, why in (
        ("{}", "is not a recording"),
        ('{"recording": 1, "agent": "x", "turns": []}', "has no turns"),
        ('{"recording": 1, "agent": "x", "turns": [{"send": {"parts": []}}]}', 'of agent "x", which is not under test'),
    ):
        case.write_text(text)
        refused = command("replay", str(case), AGENTS)
        assert refused.exit_code == 2
        assert why in refused.stderr
    assert command("replay", str(tmp_path / "none.json"), AGENTS).exit_code == 2
    Recording("office", [{"send": {"parts": []}}]).write(case)
    refused = command("replay", str(case), str(tmp_path / "none.py"))
    assert refused.exit_code == 2
    assert "this file does not exist" in refused.stderr


@pytest.mark.usefixtures("dragoman_server")
def test_an_unused_server_fixture_starts_no_server() -> None:
    assert run(office, "a table").question == "On which day?"
