"""Whatever an agent raises or returns ends its turn within a second, and nothing else, wherever it does so."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from tests.agents.workers.worker_process import worker_process
from tests.cli.server import Server, serving
from tests.hostile import kinds

pytestmark = pytest.mark.long

FOLDER: Final = Path(__file__).parent

FUNCTIONS: Final = (
    *("function", "reraise", "generator", "sync-generator", "thread", "step", "thread-step", "block-step"),
    *("task-group", "own-task"),
)
VALUE_FUNCTIONS: Final = ("returned", "yielded", "returned-by-thread", "stored", "labeled", "step-result")
EXECUTORS: Final = {"executor": "hostile-worker", "executor-task": "hostile-worker", "framework": "framework-agent"}

MAX_LOG_LINE_CHARS: Final = 100_000


class Answer(NamedTuple):
    """How a send ended."""

    state: str
    text: str


def send(server: Server, agent: str, text: str) -> Answer:
    """Sends one message and waits for the end of its turn."""
    connection = http.client.HTTPConnection(server.http.removeprefix("http://"), timeout=60)
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": text}]}
    headers = {"Content-Type": "application/json", "A2A-Version": "1.0"}
    connection.request("POST", f"/{agent}/message:send", json.dumps({"message": message}), headers)
    body = json.loads(connection.getresponse().read())
    connection.close()
    if "error" in body:  # of a task that nobody has seen
        return Answer("TASK_STATE_FAILED", body["error"]["message"])
    status = body["task"]["status"]
    return Answer(status["state"], status.get("message", {}).get("parts", [{}])[0].get("text", ""))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    executors = [f"{FOLDER / 'executors.py'}:{name}" for name in ("HostileWorker", "framework_agent")]
    words = [word for executor in executors for word in ("--executor", executor)]
    folder = tmp_path_factory.mktemp("hostile")
    with (
        serving(str(FOLDER / "agents.py"), *words, cwd=folder) as server,
        worker_process(server=server.grpc, cwd=folder, app=FOLDER / "worker_agents.py") as worker,
    ):
        yield server
        assert server.process.poll() is None
        assert worker.process.poll() is None
        server.process.terminate()
        assert server.ends() == 0
        worker.process.kill()
        for lines in (server.err.rest().splitlines(), worker.err.rest().splitlines()):
            assert max(map(len, lines)) < MAX_LOG_LINE_CHARS
            for problem in ("it starts again", "a turn failed outside of its agent", "could not be written", "lost"):
                assert problem not in "\n".join(lines)


def check(server: Server, agent: str, text: str) -> Answer:
    """Sends to a hostile agent and, meanwhile, to another one. How long that may take: `tests/core/test_exceptions.py`,
    in CPU time."""
    with ThreadPoolExecutor(1) as pool:
        sent = pool.submit(send, server, agent, text)
        beside = send(server, "bystander", "hello")
    failed = sent.result()
    assert beside.state == "TASK_STATE_COMPLETED"
    assert failed.state == "TASK_STATE_FAILED"
    assert "INTERRUPTED" not in failed.text
    assert len(failed.text) < 5_000
    return failed


CASES: Final = [
    (place, kind)
    for place in FUNCTIONS
    for kind in kinds.EXCEPTIONS
    if (place, kind) != ("task-group", "CancelledError")  # a group takes a canceled task for no failure
]


@pytest.mark.parametrize(("place", "kind"), CASES)
def test_an_exception_ends_its_turn_in_the_server(server: Server, place: str, kind: str) -> None:
    check(server, place, kind)


@pytest.mark.parametrize(("place", "kind"), CASES)
def test_an_exception_ends_its_turn_at_a_worker(server: Server, place: str, kind: str) -> None:
    check(server, f"worker-{place}", kind)


@pytest.mark.parametrize("kind", kinds.EXCEPTIONS)
@pytest.mark.parametrize("place", EXECUTORS)
def test_an_exception_ends_its_turn_in_the_process_of_an_executor(server: Server, place: str, kind: str) -> None:
    check(
        server,
        EXECUTORS[place],
        f"{'task ' if place == 'executor-task' else 'own ' if place == 'executor' else ''}{kind}",
    )


VALUE_CASES: Final = [
    (place, kind)
    for place in VALUE_FUNCTIONS
    for kind in kinds.VALUES
    if (place, kind) not in (("stored", "NoItems"), ("stored", "NoLength"))  # orjson reads what they inherit
]


@pytest.mark.parametrize(("place", "kind"), [*VALUE_CASES, *((f"worker-{place}", kind) for place, kind in VALUE_CASES)])
def test_a_value_that_is_no_answer_ends_its_turn(server: Server, place: str, kind: str) -> None:
    check(server, place, kind)


@pytest.mark.parametrize("kind", kinds.EXCEPTIONS)
def test_an_exception_ends_both_attempts_of_a_turn(server: Server, kind: str) -> None:
    check(server, "retried", kind)
