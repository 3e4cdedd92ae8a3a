"""grpc-gateway before the gRPC port of a served Dragoman: calls through it have the answers of our REST binding."""

from __future__ import annotations

import json
import os
import re
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from google.rpc import code_pb2
from tests.cli.server import serving
from tests.transcoders.build import build
from tests.transcoders.services import NAMES

from tools.environments import NotCreated

pytestmark = pytest.mark.long

_TOKEN: Final = "secret-of-the-test"

_V1: Final = {"message": {"messageId": "ID", "role": "ROLE_USER", "parts": [{"text": "hello"}]}}
_V03: Final = {"message": {"messageId": "ID", "role": "ROLE_USER", "content": [{"text": "hello"}]}}
_HOOK: Final = "https://example.com/hook"
_CALLS: Final[tuple[tuple[int, str, str, object], ...]] = (
    (0, "POST", "/message:send", _V1),
    (0, "POST", "/message:stream", _V1),
    (0, "GET", "/tasks/{task}", None),
    (0, "GET", "/tasks/{task}?historyLength=1", None),
    (0, "GET", "/tasks?pageSize=1&includeArtifacts=true&status=TASK_STATE_COMPLETED", None),
    (0, "GET", "/tasks?statusTimestampAfter=2020-01-01T00:00:00.5Z&contextId=nothing", None),
    (0, "POST", "/tasks/{task}/pushNotificationConfigs", {"id": "c", "url": _HOOK, "token": "t"}),
    (0, "GET", "/tasks/{task}/pushNotificationConfigs/c", None),
    (0, "GET", "/tasks/{task}/pushNotificationConfigs", None),
    (0, "DELETE", "/tasks/{task}/pushNotificationConfigs/c", None),
    (0, "GET", "/tasks/{task}/pushNotificationConfigs/c", None),
    (0, "GET", "/tasks/none", None),
    (0, "POST", "/tasks/{task}:cancel", {"metadata": {"why": [1, None]}}),
    (0, "POST", "/tasks/none:cancel", {}),
    (0, "GET", "/tasks/none:subscribe", None),
    (0, "POST", "/message:send", {}),
    (0, "POST", "/message:send", {**_V1, "tenant": "none"}),
    (0, "GET", "/tasks?pageSize=-1", None),
    (0, "GET", "/tasks?pageToken=none", None),
    (1, "POST", "/v1/message:send", _V03),
    (1, "POST", "/v1/message:stream", _V03),
    (1, "GET", "/v1/tasks/{task}?historyLength=1", None),
    (1, "GET", "/v1/tasks/none", None),
    (1, "POST", "/v1/tasks/{task}:cancel", {}),
    (1, "GET", "/v1/tasks/none:subscribe", None),
    (1, "POST", "/v1/message:send", {"message": {"messageId": "ID"}}),
    (2, "GET", "/operations/agents", None),
    (2, "GET", "/operations/tasks?pageSize=2", None),
    (2, "GET", "/operations/tasks/{task}/events?limit=2", None),
    (2, "POST", "/operations/tasks/none:cancel", {}),
)
"""Service, HTTP method, path and body. `{task}` is a finished task, ID a new id for each call."""


@contextmanager
def gateway_before(program: Path, grpc: str) -> Iterator[list[str]]:
    """Yields the URLs of a gateway before a gRPC port, by service."""
    command = [str(program), "serve", grpc]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            _, *ports = json.loads(process.stdout.readline())
            yield [f"http://127.0.0.1:{port}" for port in ports[: len(NAMES)]]
        finally:
            process.kill()


@pytest.fixture(scope="module")
def program() -> Path:
    """The program of go/main.go."""
    try:
        return build() / "judge"
    except NotCreated as error:
        if os.environ.get("GATEWAY") == "required":
            raise
        pytest.skip(str(error))


def test_calls_through_the_gateway_have_the_answers_of_our_rest_binding(program: Path, tmp_path: Path) -> None:
    with serving("--token", _TOKEN, cwd=tmp_path) as server, gateway_before(program, server.grpc) as gateways:
        task = _ask(server.http, "POST", "/message:send", _V1, "first")[1][0]["task"]["id"]
        for number, (service, method, template, body) in enumerate(_CALLS):
            path = template.replace("{task}", task)
            here = _ask(server.http, method, path, body, f"here-{number}")
            there = _ask(gateways[service], method, path, body, f"there-{number}")
            assert _comparable(here, service) == _comparable(there, service), (method, path, here, there)


def _ask(url: str, method: str, path: str, body: object, message_id: str) -> tuple[int, list[Any]]:
    """The HTTP status, and the messages of an answer: one, or those of a stream."""
    data = None if body is None else json.dumps(body).replace('"ID"', f'"{message_id}"').encode()
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {_TOKEN}"}
    request = urllib.request.Request(url + path, data, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            status, text = response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        status, text = error.code, error.read().decode()
    if text and not text.startswith("{"):  # server-sent events
        return status, [json.loads(line[5:]) for line in text.splitlines() if line.startswith("data:")]
    if text.startswith('{"result":'):
        return status, [json.loads(line)["result"] for line in text.splitlines() if line]
    return status, [json.loads(text) if text else {}]


def _comparable(answer: tuple[int, list[Any]], service: int) -> object:
    """An answer without what differs between two equal calls: ids, times, and the form of errors and defaults.

    REST of 0.3 has HTTP statuses and texts of its own, so that only code and reason are compared.
    """
    status, messages = answer
    if status >= 400:
        error = messages[0].get("error", messages[0])
        code, details = error.get("status") or code_pb2.Code.Name(error["code"]), error.get("details", [])
        if NAMES[service] == "a2a.v1.A2AService":
            return code, [detail["reason"] for detail in details if "reason" in detail]
        return status, code, error.get("message"), details
    text = json.dumps([_without_defaults(message) for message in messages], sort_keys=True)
    text = re.sub(r"[0-9a-f]{32}|[0-9a-f]{8}-[0-9a-f-]{27}|\b(here|there)-\d+", "ID", text)
    return status, re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z", "TIME", text)


def _without_defaults(value: Any) -> Any:
    if isinstance(value, dict):
        inner = {key: _without_defaults(one) for key, one in value.items()}
        return {key: one for key, one in inner.items() if one not in ("", [], {}, 0, False, None, "0")}
    return [_without_defaults(one) for one in value] if isinstance(value, list) else value
