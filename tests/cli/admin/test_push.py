"""`push list`, `push redeliver`, and receivers in `explain` and `export`, against a real server."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from tests.cli.conftest import CommandResult, Run
from tests.cli.server import Server, serving

pytestmark = pytest.mark.long

WAIT_TIMEOUT = 60.0
NOT_THERE = "00000000-0000-7000-8000-000000000000"


@pytest.fixture(scope="module")
def playground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The playground, with retries later than the end of all tests."""
    with serving("--push-first-wait", "3600", cwd=tmp_path_factory.mktemp("playground")) as server:
        yield server


class Hook(ThreadingHTTPServer):
    """A receiver on this machine that responds with `status` and counts requests."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Take)
        self.status = 200
        self.events: list[int] = []
        self.news = threading.Condition()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/hook"

    def until(self, count: int) -> list[int]:
        """Waits for this number of events and returns them."""
        with self.news:
            assert self.news.wait_for(lambda: len(self.events) >= count, WAIT_TIMEOUT), self.events
            return list(self.events)


class _Take(BaseHTTPRequestHandler):
    server: Hook

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        with self.server.news:  # before the response, after which the next request may arrive in another thread
            self.server.events.append(int(self.headers["Dragoman-Event"].rpartition(".")[2]))
            self.server.news.notify_all()
        self.send_response(self.server.status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Disables the log."""


@pytest.fixture
def hook() -> Iterator[Hook]:
    hook = Hook()
    thread = threading.Thread(target=hook.serve_forever, daemon=True)
    thread.start()
    try:
        yield hook
    finally:
        hook.shutdown()
        hook.server_close()


def task_of(result: CommandResult) -> str:
    return str(json.loads(result.out)["task"]["id"])


def post(server: Server, path: str, body: Any) -> Any:
    """Sends a REST request."""
    host, _, port = server.http.removeprefix("http://").rpartition(":")
    data = json.dumps(body).encode()
    with closing(socket.create_connection((host, int(port)), WAIT_TIMEOUT)) as wire:
        head = f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nConnection: close\r\n"
        wire.sendall(head.encode() + f"Content-Length: {len(data)}\r\n\r\n".encode() + data)
        answer = b"".join(iter(lambda: wire.recv(65536), b""))
    return json.loads(answer.partition(b"\r\n\r\n")[2])


def send(server: Server, text: str, url: str) -> str:
    """Creates a task with a push configuration."""
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": text}]}
    config = {"id": "c", "url": url, "token": "s3cret"}
    response = post(
        server, "/message:send", {"message": message, "configuration": {"taskPushNotificationConfig": config}}
    )
    return str(response["task"]["id"])


def test_a_receiver_without_backlog_is_listed_with_its_attempts(dragoman: Run, playground: Server, hook: Hook) -> None:
    task = send(playground, "echo hello", hook.url)
    hook.until(3)
    config: dict[str, Any] = {}
    while config.get("state") != "PUSH_STATE_COMPLETE":
        (line,) = dragoman("push", "list", task, "--json").out.splitlines()
        config = json.loads(line)
    assert (config["taskId"], config["id"], config["url"], config["dialect"]) == (task, "c", hook.url, "1.0")
    assert (config["delivered"], config["last"], config["attemptCount"]) == (3, 3, 3)
    assert [(one["sequence"], one["status"]) for one in config["attempts"]] == [(3, 200), (2, 200), (1, 200)]
    result = dragoman("push", "list", task)
    assert "state      COMPLETE\ndelivered  3 of 3 events\n" in result.out
    assert "event 1  HTTP 200" in result.out
    assert "s3cret" not in result.out + line
    assert f"push         c to {hook.url}: COMPLETE" in dragoman("explain", task).out


def test_delivered_events_can_be_redelivered(dragoman: Run, playground: Server, hook: Hook) -> None:
    task = send(playground, "echo hello", hook.url)
    hook.until(3)
    result = dragoman("push", "redeliver", task, "c", "--from", "2")
    assert (result.code, result.out) == (0, f"c  events 2 to 3  {hook.url}\n")
    assert hook.until(5)[3:] == [2, 3]
    (again,) = map(json.loads, dragoman("push", "redeliver", task, "--from", "1", "--json").out.splitlines())
    assert (again["id"], again["last"], again.get("delivered", 0)) == ("c", 3, 0)
    assert hook.until(8)[5:] == [1, 2, 3]


def test_a_failing_receiver_is_listed_and_redelivered_at_once(dragoman: Run, playground: Server, hook: Hook) -> None:
    hook.status = 500
    task = send(playground, "echo hello", hook.url)
    hook.until(1)
    config: dict[str, Any] = {}
    while not config.get("failures"):
        config = json.loads(dragoman("push", "list", task, "--json").out)
    assert config["reason"] == "answered 500"
    assert task in dragoman("push", "list").out
    text = dragoman("push", "list", task).out
    assert ", 3 remaining" in text
    assert "attempts for the next event" in text
    hook.status = 200
    before = len(hook.until(1))
    assert dragoman("push", "redeliver", task).out == f"c  events 1 to 3  {hook.url}\n"
    assert hook.until(before + 3)[-3:] == [1, 2, 3]


def test_an_export_has_push_configurations_without_secrets(dragoman: Run, playground: Server, hook: Hook) -> None:
    task = send(playground, "echo hello", hook.url)
    hook.until(3)
    lines = [json.loads(line) for line in dragoman("export", task).out.splitlines()]
    (push,) = [line["push"] for line in lines if "push" in line]
    assert (push["id"], push["url"]) == ("c", hook.url)
    assert lines[-1]["end"]["pushes"] == 1
    assert list(lines[-2]) == ["push"]
    assert "s3cret" not in json.dumps(lines)


@pytest.mark.parametrize(
    ("arguments", "code", "response"),
    [
        (["push", "list", NOT_THERE], 4, "TASK_NOT_FOUND"),
        (["push", "redeliver", NOT_THERE], 4, "TASK_NOT_FOUND"),
        (["push", "list", "--limit", "5000"], 2, "--limit"),
        (["push", "redeliver"], 2, "TASK"),
        (["push", "redeliver", "x", "--from", "0"], 2, "--from"),
    ],
)
def test_invalid_arguments_are_reported(dragoman: Run, arguments: list[str], code: int, response: str) -> None:
    result = dragoman(*arguments)
    assert (result.code, response in result.err) == (code, True), result


def test_a_task_without_receivers_has_none_to_list_or_redeliver(dragoman: Run, playground: Server) -> None:
    task = task_of(dragoman("send", "echo hello", "--json"))
    assert dragoman("push", "list", task).out == "no push configurations\n"
    result = dragoman("push", "redeliver", task)
    assert (result.code, "no such push notification configuration" in result.err) == (4, True)
    beyond = dragoman("push", "redeliver", task, "--from", "99")
    assert "from: must be an event of the task, 1 to 3" in beyond.err
