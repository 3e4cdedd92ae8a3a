"""`dragoman serve`: its output, rejected settings, drain and reload."""

from __future__ import annotations

import asyncio
import json
import shlex
import signal
import urllib.request
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from tests.agents.workers.tasks import NOW, wait_for_state
from tests.cli.server import serving

from dragoman.client.calls import Client, message
from dragoman.core.task import states
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

pytestmark = pytest.mark.long

AGENTS = """
    from dragoman import agent, Turn

    @agent
    async def {first}(turn: Turn) -> str:
        return turn.text

    @agent(id="{root}", default=True, input_modes=["text/csv"])
    async def rooted(turn: Turn) -> str:
        return turn.files[0].name
"""


def write_agents(path: Path, *, first: str = "echo", root: str = "csv") -> str:
    path.write_text(dedent(AGENTS.format(first=first, root=root)))
    return path.name


def post(line: str) -> Any:
    """Sends the request of a printed curl line, for machines without curl."""
    words = shlex.split(line)
    assert words[:2] == ["curl", "-sS"]
    headers = dict(words[at + 1].split(": ") for at, word in enumerate(words) if word == "-H")
    body = words[words.index("-d") + 1].encode()
    with urllib.request.urlopen(urllib.request.Request(words[2], body, headers)) as answer:
        return json.loads(answer.read())


def task_at(grpc: str, task: str) -> pb.Task:
    async def get() -> pb.Task:
        async with Client(grpc) as client:
            return await client.get(task)

    return asyncio.run(get())


async def begin_and_wait_until_it_works(grpc: str, text: str) -> str:
    async with Client(grpc) as client:
        events = client.stream(message(text))
        task = (await anext(events)).task.id
        while (await anext(events)).status_update.status.state != states.WORKING:
            pass
        await events.aclose()
    return task


UNUSED = (
    "a2a", "asyncpg", "cryptography", "jwt", "mcp", "nats", "offapi", "opentelemetry", "prometheus_client",
    "pydantic_settings", "rich", "watchfiles",
    "dragoman.extensions.mcp.servers", "dragoman.agents.upstream.transport",
    "dragoman.extensions.nats.connection", "dragoman.client", "dragoman.extensions.frameworks.child",
    "dragoman.playground", "dragoman.extensions.postgres.store", "dragoman.testing",
    "dragoman.wiring.doctor", "dragoman.wiring.offline_admin", "dragoman.worker",
)  # fmt: skip
"""Modules that a server with one function, SQLite, HTTP and gRPC imports at first use, if at all."""


def test_a_plain_server_imports_only_what_it_uses(tmp_path: Path) -> None:
    (tmp_path / "agents.py").write_text(
        "import sys\n\nfrom dragoman import agent\n\n@agent\nasync def imported(turn):\n"
        f"    return ' '.join(name for name in {UNUSED} if name in sys.modules) or 'none'\n"
    )
    with serving("agents.py", cwd=tmp_path, text=True) as server:
        task = post(next(line for line in server.out.seen if "curl" in line))["task"]
    assert task["artifacts"][0]["parts"] == [{"text": "none"}]


def test_the_banner_has_addresses_and_a_working_curl_line(tmp_path: Path) -> None:
    with serving(cwd=tmp_path, text=True) as server:
        printed = "\n".join(server.out.seen)
        assert "\n  Agents   playground (root)\n" in printed
        assert f"\n  Data     {tmp_path}/dragoman.db\n" in printed
        card = next(line.split()[1] for line in server.out.seen if "Card" in line)
        with urllib.request.urlopen(card) as answer:
            assert json.loads(answer.read())["name"] == "Playground"
        answered = post(next(line.strip() for line in server.out.seen if "  curl " in line))
        assert answered["task"]["status"]["state"] == "TASK_STATE_COMPLETED"
        server.signal(signal.SIGTERM)
        assert server.ends() == 0
        assert "stopped" in server.err.rest()


def test_the_curl_line_suits_a_root_agent_without_text_input(tmp_path: Path) -> None:
    with serving(write_agents(tmp_path / "agents.py"), cwd=tmp_path, text=True) as server:
        assert "\n  Agents   csv (root), echo\n" in "\n".join(server.out.seen)
        answered = post(next(line.strip() for line in server.out.seen if "  curl " in line))
        assert answered["task"]["artifacts"][0]["parts"] == [{"text": "people.csv"}]


def test_json_logs_have_one_line_on_start(tmp_path: Path) -> None:
    with serving(write_agents(tmp_path / "agents.py"), "--root", "echo", cwd=tmp_path) as server:
        assert server.startup_info["root"] == "echo"
        assert server.startup_info["agents"] == ["csv", "echo"]
        assert server.startup_info["pid"] == server.process.pid
        assert server.startup_info["store"] == str(tmp_path / "dragoman.db")
        server.signal(signal.SIGINT)
        assert server.ends() == 0
        for line in server.err.rest().splitlines():
            json.loads(line)
        assert server.out.rest() == ""


def test_a_second_server_on_the_same_store_is_rejected_with_the_holder(tmp_path: Path) -> None:
    with serving(cwd=tmp_path) as first, serving(cwd=tmp_path, ready=False) as second:
        assert second.ends() == 1
        text = second.err.rest()
        assert f"{tmp_path}/dragoman.db is in use: process {first.process.pid} has held it since 20" in text
        assert f"serving http {first.http} and grpc {first.grpc}" in text
        assert "--store" in text
        assert "Traceback" not in text


@pytest.mark.parametrize(
    ("text", "response"),
    [
        ("import dragoman\nimport no_such_thing\n", "error: agents.py, line 2: ModuleNotFoundError: "),
        ("x = [\n", "error: agents.py, line 1: SyntaxError: "),
        ("x = 1\n", "error: agents.py: declares no agent. An agent is a function with @agent:"),
    ],
)
def test_agents_that_fail_to_load_are_reported_with_file_and_line(tmp_path: Path, text: str, response: str) -> None:
    (tmp_path / "agents.py").write_text(text)
    with serving("agents.py", cwd=tmp_path, ready=False) as server:
        assert server.ends() == 2
        assert server.err.rest().startswith(response)
        assert "Traceback" not in server.err.rest()
        assert not list(tmp_path.glob("*.db*"))


@pytest.mark.parametrize(
    ("arguments", "code", "response"),
    [
        (["--slots", "none"], 2, 'error: --slots (command line): "none" is not an integer'),
        (["--root", "nobody"], 2, 'error: --root: root agent "nobody" is not served; use one of playground'),
        (
            ["--store", "redis://x"],
            2,
            'error: --store (command line): "redis://x" is not the URL of a store; use sqlite:///',
        ),
        (["--store", "sqlite:///no/such/place.db"], 1, "error: --store: folder "),
    ],
)
def test_invalid_settings_are_rejected_in_one_line(
    tmp_path: Path, arguments: list[str], code: int, response: str
) -> None:
    with serving(*arguments, cwd=tmp_path, ready=False) as server:
        assert server.ends() == code
        assert server.err.rest().startswith(response)
        assert "Traceback" not in server.err.rest()


def test_a_file_that_is_not_a_database_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "dragoman.db").write_text("not a database, but long enough to look like one\n" * 100)
    with serving(cwd=tmp_path, ready=False) as server:
        assert server.ends() == 1
        assert "dragoman.db cannot be opened: file is not a database" in server.err.rest()


WAITS = """
    import asyncio
    from pathlib import Path

    from dragoman import agent, Turn

    @agent
    async def waits(turn: Turn) -> None:
        turn.status("waiting")
        while not Path("go").exists():
            await asyncio.sleep(0.01)
"""


def test_a_drain_lets_turns_end_and_logs_their_number(tmp_path: Path) -> None:
    (tmp_path / "agents.py").write_text(dedent(WAITS))
    with serving("agents.py", cwd=tmp_path) as server:
        task = asyncio.run(begin_and_wait_until_it_works(server.grpc, "wait"))
        server.signal(signal.SIGTERM)
        line = json.loads(server.err.until("stopping"))
        assert line["message"] == "stopping: waiting up to 300 s for 1 turn to end; press Ctrl-C again to stop now"
        (tmp_path / "go").touch()
        assert server.ends() == 0
    with serving("agents.py", cwd=tmp_path) as server:
        assert task_at(server.grpc, task).status.state == states.COMPLETED


def test_a_second_ctrl_c_ends_turns_at_once_and_notifies_subscribers(tmp_path: Path) -> None:
    async def follow_to_the_end() -> pb.TaskStatus:
        async with Client(server.grpc) as client:
            async for event in client.subscribe(task):
                if event.HasField("task"):
                    server.signal(signal.SIGINT)
                    await asyncio.to_thread(server.err.until, "stopping")
                    server.signal(signal.SIGINT)
        return event.status_update.status

    with serving(cwd=tmp_path) as server:
        task = asyncio.run(begin_and_wait_until_it_works(server.grpc, "sleep 600"))
        status = asyncio.run(follow_to_the_end())
        assert server.ends() == 0
    assert status.state == states.FAILED
    assert "DRAINED" in status.message.parts[0].text


def test_the_drain_ends_at_its_limit(tmp_path: Path) -> None:
    with serving("--drain", "0.2", cwd=tmp_path) as server:
        task = asyncio.run(begin_and_wait_until_it_works(server.grpc, "sleep 600"))
        server.signal(signal.SIGTERM)
        assert server.ends() == 0
    with serving(cwd=tmp_path) as server:
        assert task_at(server.grpc, task).status.state == states.FAILED


def test_reload_serves_the_changed_file_and_survives_a_broken_one(tmp_path: Path) -> None:
    agents = tmp_path / "agents.py"
    with serving(write_agents(agents), "--reload", cwd=tmp_path) as server:
        assert server.startup_info["agents"] == ["csv", "echo"]
        agents.write_text("import no_such_thing\n")
        server.err.until("agents.py, line 1: ModuleNotFoundError")
        server.err.until("the code before this change is still served")
        with urllib.request.urlopen(f"{server.http}/.well-known/agent-card.json") as response:
            assert response.status == 200
        write_agents(agents, first="parrot")
        server.await_ready()
        assert server.startup_info["agents"] == ["csv", "parrot"]
        server.signal(signal.SIGTERM)
        assert server.ends() == 0
        assert server.startup_info["pid"] != server.process.pid


LONG_AGENTS = """
    import asyncio
    from dragoman import agent, retry, Turn

    @agent
    async def fragile(turn: Turn) -> str:
        await asyncio.Event().wait()

    @agent(on_crash=retry(1))
    async def sturdy(turn: Turn) -> str:
        if turn.attempt == 1:
            await asyncio.Event().wait()
        return "done"
"""


async def test_reload_says_what_happens_to_running_turns(tmp_path: Path) -> None:
    agents, names = tmp_path / "agents.py", ("fragile", "sturdy")
    agents.write_text(dedent(LONG_AGENTS))
    with serving(agents.name, "--reload", cwd=tmp_path) as server:
        tasks = {}
        for name in names:
            async with Client(server.grpc, agent=name) as client:
                tasks[name] = (await client.send(message("x"), configuration=NOW)).task.id
        agents.write_text(dedent(LONG_AGENTS) + "\n")
        line = await asyncio.to_thread(server.err.until, "waiting up to 2 s for 2 turns to end")
        assert json.loads(line)["message"].endswith(
            "otherwise 1 turn will start again after the restart, and 1 turn without @agent(on_crash=retry(n)) will "
            "end as FAILED"
        )
        for state in ("FAILED", "RETRYING"):
            await asyncio.to_thread(server.err.until, f'"state": "{state}"')
        await asyncio.to_thread(server.await_ready)
        async with Client(server.grpc, agent="fragile") as client:
            assert (await client.get(tasks["fragile"])).status.state == states.FAILED
        async with Client(server.grpc, agent="sturdy") as client:
            await wait_for_state(client, tasks["sturdy"], states.COMPLETED)


def test_reload_prints_one_line_when_it_serves_again(tmp_path: Path) -> None:
    agents = tmp_path / "agents.py"
    with serving(write_agents(agents), "--reload", cwd=tmp_path, text=True) as server:
        write_agents(agents, first="parrot")
        line = server.err.until("serving again, ")
        assert line.endswith(" s after the change: parrot, csv")
        server.signal(signal.SIGTERM)
        assert server.ends() == 0
        assert server.out.rest().count("Dragoman") == 1  # the banner


def test_a_server_that_cannot_start_is_started_at_the_next_change(tmp_path: Path) -> None:
    agents = tmp_path / "agents.py"
    agents.write_text("import no_such_thing\n")
    with serving(agents.name, "--reload", cwd=tmp_path, ready=False) as server:
        server.err.until("ModuleNotFoundError")
        write_agents(agents)
        server.await_ready()
        assert server.startup_info["agents"] == ["csv", "echo"]
