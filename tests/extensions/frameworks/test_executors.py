"""`--executor` end to end: the child process crashes, hangs, prints, and ends with the server.

The executor is a worker of a stand-in for fasta2a; those of the real SDKs are run by `make foreign`.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from google.protobuf.json_format import MessageToDict
from tests.agents.workers.fake_worker import connected_worker, registration
from tests.agents.workers.tasks import NOW, status_text, tasks_in, texts, wait_for_state, wait_for_text
from tests.agents.workers.worker_process import worker_process
from tests.cli.server import PROCESS_TIMEOUT, Server, clean_environment, serving
from tests.docs.protocol_client import Page
from tests.eventually import eventually_blocking
from typer.testing import CliRunner

from dragoman.cli import cli
from dragoman.client.calls import Client, message
from dragoman.client.options import CallOptions
from dragoman.core.task import states
from dragoman.settings.settings import Settings, SettingsError, load_settings
from dragoman.wiring.app import open_app
from dragoman_pb.dragoman.worker.v1 import worker_pb2 as wk
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

pytestmark = pytest.mark.longest

COUNTER: Final = Path(__file__).parent / "stand_in" / "counter.py"
EXECUTOR: Final = ("--executor", f"{COUNTER}:CounterWorker", "--executor-retries", "1")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(*EXECUTOR, cwd=tmp_path_factory.mktemp("executors")) as server:
        yield server


def is_running(pid: int) -> bool:
    """Whether a process runs. A zombie does not count."""
    try:
        return ") Z" not in Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False


def wait_for_exit(pid: int) -> None:
    eventually_blocking(lambda: not is_running(pid))


async def test_the_executor_is_the_only_agent_without_an_app(server: Server) -> None:
    assert server.startup_info["agents"] == ["counter"]
    assert server.startup_info["root"] == "counter"


async def test_an_executor_responds_and_keeps_its_context_state(server: Server) -> None:
    async with Client(server.grpc) as client:
        first = (await client.send(message("count"))).task
        again = message("count")
        again.context_id = first.context_id
        second = (await client.send(again)).task
    assert [texts(task)["output"] for task in (first, second)] == ["0", "1"]


async def test_metadata_that_a_worker_sets_in_its_storage_is_that_of_the_task(server: Server) -> None:
    async with Client(server.grpc) as client:
        task = (await client.send(message("label my_key"))).task
        assert MessageToDict(await client.get(task.id))["metadata"] == {"my_key": {"turns": 0}}


@pytest.mark.parametrize("length", [7, 0])
async def test_a_worker_gets_what_the_request_has_and_nothing_of_other_tasks(server: Server, length: int) -> None:
    request = message("given")
    values = {"big": 9007199254740991, "half": 0.5, "n": 1}
    request.metadata.update(values)
    request.parts.add().data.struct_value.update({"values": values, "list": [1, -2]})
    configuration = pb.SendMessageConfiguration(history_length=length)
    async with Client(server.grpc) as client:
        task = (await client.send(request, configuration=configuration, metadata={"m": [2]})).task
    data = {"list": [1, -2], "values": values}
    given = f"{(length, {'m': [2]}, values, [data])} (None, None)"
    assert texts(task)["output"] == given


async def test_a_worker_runs_and_reads_another_task_of_its_caller(server: Server) -> None:
    async with Client(server.grpc) as client:
        first = (await client.send(message("delegate echo there"))).task
        assert texts(first) == {"output": "completed there"}
    (delegated,) = await tasks_in(server.http, f"of-{first.context_id}")
    assert delegated["artifacts"][0]["parts"][0]["text"] == "there"


async def test_a_worker_cancels_another_task_of_its_caller_and_learns_that_there_is_none(server: Server) -> None:
    async with Client(server.grpc) as client:
        task = (await client.send(message("hang"), configuration=NOW)).task.id
        await wait_for_text(client, task)
        assert (await client.send(message(f"recall {task}"))).task.status.state == states.COMPLETED
        assert (await wait_for_state(client, task, states.CANCELED)).history[-1].parts[0].text == "recalled"
        failed = (await client.send(message("recall nope"))).task
    assert status_text(failed) == 'LookupError: there is no task "nope" of this caller'


async def test_the_last_message_of_a_question_joins_the_history_with_its_answer(server: Server) -> None:
    Page("../../how-to/executors.md").says(
        "Callers see a question (`input-required`) in the status until it is answered"
    )
    Page("../../how-to/migrating-from-fasta2a.md").says("in `status.message`, and in `history` from its answer on")
    Page("../../explanation/decisions.md").says("A question stays in the status and joins the history with its answer")
    async with Client(server.grpc) as client:
        task = (await client.send(message("ask"))).task
        assert (task.status.state, status_text(task)) == (states.INPUT_REQUIRED, "which one?")
        first = [one.parts[0].text for one in task.history]
        assert (first[0], first[-1], "which one?" in first) == ("ask", "one or two?", False)
        answered = (await client.send(message("echo two", task=task.id))).task
    assert [one.parts[0].text for one in answered.history][: len(first) + 2] == [*first, "which one?", "echo two"]


async def test_a_worker_may_cancel_its_own_task(server: Server) -> None:
    async with Client(server.grpc) as client:
        task = (await client.send(message("withdraw"))).task
    assert (task.status.state, status_text(task)) == (states.CANCELED, "not worth it")


@pytest.mark.parametrize("state", ["canceled", "completed", "failed", "rejected", "input-required"])
async def test_a_final_state_that_a_worker_only_publishes_ends_its_turn(server: Server, state: str) -> None:
    async with Client(server.grpc) as client:
        task = (await client.send(message(f"publish {state}"))).task
    name = pb.TaskState.Name(task.status.state)
    assert (name, status_text(task)) == (
        f"TASK_STATE_{state.upper().replace('-', '_')}",
        "only published",
    )


async def test_output_goes_to_the_log_of_the_server(server: Server) -> None:
    async with Client(server.grpc) as client:
        printed = (await client.send(message("print"))).task
        assert printed.status.state == states.COMPLETED
        assert (await client.send(message("read x"))).task.status.state == states.COMPLETED  # stdin is empty
    assert '"agent": "counter"' in server.err.until("printed by the executor")
    server.err.until("written by the executor")
    line = server.err.until("logged by the executor")
    fields = {"level": "WARNING", "logger": "counter", "task": printed.id, "agent": "counter"}
    assert json.loads(line).items() >= fields.items()


async def test_a_cancel_stops_the_executor(server: Server) -> None:
    async with Client(server.grpc) as client:
        task = (await client.send(message("hang"), configuration=NOW)).task.id
        await wait_for_text(client, task)
        canceled = await client.cancel(task, metadata={"why": "too late"})
        assert canceled.status.state == states.CANCELED
        assert [message.parts[0].text for message in canceled.history][-1] == "too late"


async def test_a_blocked_executor_stays_connected_and_its_task_is_canceled_when_it_has_stopped(tmp_path: Path) -> None:
    with serving("--executor", f"{COUNTER}:CounterWorker", cwd=tmp_path) as server:
        async with Client(server.grpc) as client:
            task = (await client.send(message("block"), configuration=NOW)).task.id
            pid = int(await wait_for_text(client, task))
            assert (await client.cancel(task)).status.state == states.WORKING
            assert is_running(pid)
            os.kill(pid, signal.SIGKILL)
            await wait_for_state(client, task, states.CANCELED)
            assert not is_running(pid)
        server.signal(signal.SIGTERM)
        assert server.ends() == 0


async def test_a_turn_whose_process_dies_is_repeated_and_then_fails(server: Server) -> None:
    async with Client(server.grpc) as client:
        task = (await client.send(message("die"))).task
        assert status_text(task) == "INTERRUPTED: The worker running this task was lost."
        server.err.until("restarting it in 0.5 s")
        assert texts((await client.send(message("echo again"))).task) == {"output": "again"}


async def test_a_turn_that_succeeds_in_its_second_attempt_completes(server: Server, tmp_path: Path) -> None:
    async with Client(server.grpc) as client:
        task = (await client.send(message(f"once {tmp_path / 'died'}"))).task
        assert task.status.state == states.COMPLETED


async def test_a_repeated_attempt_receives_the_previous_artifacts(server: Server, tmp_path: Path) -> None:
    async with Client(server.grpc) as client:
        waiting = (await client.send(message("draft"))).task
        assert waiting.status.state == states.INPUT_REQUIRED
        reply = message(f"resume {tmp_path / 'died'}")
        reply.task_id, reply.context_id = waiting.id, waiting.context_id
        task = (await client.send(reply)).task
    assert texts(task) == {"draft": "a draft", "output": "draft"}


async def test_a_killed_process_is_replaced_and_its_turn_is_repeated(server: Server) -> None:
    async with Client(server.grpc) as client:
        task = (await client.send(message("hang"), configuration=NOW)).task.id
        pids: list[str] = []
        async with asyncio.timeout(PROCESS_TIMEOUT):
            async for event in client.subscribe(task, after="0"):
                if (text := "".join(part.text for part in event.status_update.status.message.parts)).isdecimal():
                    pids.append(text)
                    if len(pids) == 2:
                        break
                    os.kill(int(text), signal.SIGKILL)
        assert pids[0] != pids[1]
        await client.cancel(task)


async def test_a_worker_cannot_take_the_id_of_an_executor(server: Server) -> None:
    async with connected_worker(server.grpc) as fake_worker:
        await fake_worker.send(hello=wk.Hello(name="thief", agents=[registration("counter", turns=1)]))
        code, text = await fake_worker.status()
    assert code == "ALREADY_EXISTS"
    assert "is an agent of the server itself" in text


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
async def test_the_process_exits_with_its_server(tmp_path: Path, how: signal.Signals) -> None:
    with serving("--executor", f"{COUNTER}:CounterWorker", cwd=tmp_path) as server:
        async with Client(server.grpc) as client:
            task = (await client.send(message("count"))).task
            pid = int(task.history[-1].parts[0].text)
        assert is_running(pid)
        server.signal(how)
        server.ends()
        wait_for_exit(pid)


async def test_an_executor_is_served_beside_an_app(tmp_path: Path) -> None:
    app = tmp_path / "app.py"
    app.write_text(
        "from dragoman import agent, Turn\n\n@agent\nasync def echo(turn: Turn) -> str:\n    return turn.text\n"
    )
    with serving(str(app), "--executor", f"second={COUNTER}:CounterWorker", cwd=tmp_path) as server:
        assert server.startup_info["agents"] == ["echo", "second"]
        assert server.startup_info["root"] == "echo"


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ("", "none"),
        ("COUNTER_KEY", "COUNTER_KEY"),
        ("COUNTER_*", "COUNTER_KEY COUNTER_URL"),
        ("*", "COUNTER_KEY COUNTER_URL"),
    ],
)
async def test_the_process_gets_the_environment_variables_that_are_named_and_none_of_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str, names: str
) -> None:
    monkeypatch.setenv("DRAGOMAN_TOKEN", "the secret of the server")
    monkeypatch.setenv("COUNTER_KEY", "a secret of the executor")
    monkeypatch.setenv("COUNTER_URL", "http://counter")
    monkeypatch.chdir(tmp_path)
    async with (
        open_app(settings(tmp_path, executor=f"{COUNTER}:CounterWorker", executor_env=given)) as app,
        Client(str(app.grpc), options=CallOptions(token="the secret of the server")) as client,
    ):
        assert texts((await client.send(message("env"))).task) == {"output": names}


async def test_a_worker_can_run_an_executor(tmp_path: Path) -> None:
    with serving("--workers-only", cwd=tmp_path) as server:
        executor = Path(f"--executor={COUNTER}:CounterWorker")
        with worker_process("--executor-retries", "1", server=server.grpc, cwd=tmp_path, app=executor) as worker:
            async with Client(server.grpc) as client:
                assert texts((await client.send(message("echo far"))).task) == {"output": "far"}
                delegated = (await client.send(message("delegate echo farther"))).task
                assert texts(delegated) == {"output": "completed farther"}
                died = (await client.send(message("die"))).task
                assert status_text(died).startswith("INTERRUPTED")
                again = (await client.send(message(f"once {tmp_path / 'died'}"))).task
                assert again.status.state == states.COMPLETED
                task = (await client.send(message("hang"), configuration=NOW)).task.id
                pid = int(await wait_for_text(client, task))
                assert (await client.cancel(task)).status.state == states.CANCELED
            worker.signal(signal.SIGTERM)
            assert worker.ends() == 0
            wait_for_exit(pid)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"executor": "no_such_module:X"}, 'no_such_module:X: module "no_such_module" was not found'),
        ({"app": f"{COUNTER}:nope"}, f'{COUNTER}:nope: {COUNTER} has no "nope"'),
        ({"executor": f"{COUNTER}:Another"}, "the class Another has required arguments: model"),
        ({"executor": f"{COUNTER}:agent_message"}, "the function agent_message has required arguments: text"),
        ({"executor": f"{COUNTER}:CounterWorker", "executor_python": "/no/python"}, "/no/python cannot be started"),
    ],
)
async def test_an_invalid_target_is_reported_at_the_start(tmp_path: Path, options: dict[str, str], text: str) -> None:
    with pytest.raises(SettingsError, match=re.escape(text)):
        async with open_app(settings(tmp_path, **options)):
            pass


async def test_an_unsupported_fasta2a_is_named_with_those_that_are_supported(tmp_path: Path) -> None:
    files = {
        "fasta2a/__init__.py": "",
        "fasta2a/storage.py": "class Storage:\n    async def update_task(self, task): ...\n",
        "fasta2a/broker.py": "class Broker: ...\n",
        "fasta2a-9.8.7.dist-info/METADATA": "Metadata-Version: 2.1\nName: fasta2a\nVersion: 9.8.7\n",
        "newer.py": "class NewerWorker:\n    def run_task(self): ...\n    def cancel_task(self): ...\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    rule = "workers of fasta2a 9.8.7 cannot be run, because its storage is unknown; supported are fasta2a 0.2 to 2.x"
    with pytest.raises(SettingsError, match=re.escape(rule)):
        async with open_app(settings(tmp_path, executor=f"{tmp_path}/newer.py:NewerWorker")):
            pass


async def test_an_id_of_the_app_is_rejected(tmp_path: Path) -> None:
    options = {"app": "dragoman.playground", "executor": f"playground={COUNTER}:CounterWorker"}
    with pytest.raises(SettingsError, match="has the id of an agent of APP"):
        async with open_app(settings(tmp_path, **options)):
            pass


def settings(folder: Path, **options: str) -> Settings:
    return load_settings({"store": f"sqlite:///{folder}/t.db", "http": "127.0.0.1:0", "grpc": "127.0.0.1:0", **options})


def test_a_server_without_a_usable_executor_exits_with_the_reason(tmp_path: Path) -> None:
    with serving("--executor", "no_such_module:X", cwd=tmp_path, ready=False, text=True) as server:
        assert 'error: no_such_module:X: module "no_such_module" was not found' in server.err.rest()
        assert server.ends() == 2


def test_a_worker_without_agents_exits_with_an_error() -> None:
    done = CliRunner().invoke(cli, ["worker"], env=clean_environment())
    assert done.exit_code == 2
    assert "no agents; pass APP or --executor" in done.stderr
