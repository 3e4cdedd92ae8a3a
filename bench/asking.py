"""How each server is asked for the same thing, over each of its bindings, and which answers are right.

A `Wire` is one request; a `Form` writes them for one binding and reads the answers. Everything is A2A 1.0, but for
fasta2a, which is asked in the names that it was made for (it takes those of 1.0 too, by way of a translation).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Protocol
from urllib.parse import urlencode

import orjson

from bench.answers import TEXT
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

AGENTS: Final = frozenset({"chunks", "ticks", "talk", "ask", "hold"})
"""Commands that are agents of their own where a server has several; everything else goes to the one that echoes."""

HEADERS: Final = {"A2A-Version": "1.0"}
SERVICE: Final = "/lf.a2a.v1.A2AService/"


@dataclass(frozen=True, slots=True)
class Wire:
    """A request: an HTTP method, path and body, or a gRPC path and message."""

    path: str
    body: bytes = b""
    method: str = "POST"


@dataclass(frozen=True, slots=True)
class Wanted:
    """A page of ListTasks."""

    size: int
    token: str = ""
    state: str = ""


@dataclass(frozen=True, slots=True)
class Listed:
    """What came of it."""

    tasks: int
    next: str
    total: int


class Form(Protocol):
    """The requests of one binding, and what is read in their answers."""

    @property
    def marker(self) -> bytes:
        """What every artifact event of a stream holds, once."""
        ...

    @property
    def waits(self) -> bool:
        """A send is answered when the task has ended. Else it is asked for until it has."""
        ...

    def send(self, text: str, *, wait: bool = True) -> Wire: ...
    def stream(self, text: str) -> Wire: ...
    def get(self, text: str, task: str) -> Wire: ...
    def subscribe(self, text: str, task: str) -> Wire: ...
    def list(self, wanted: Wanted) -> Wire: ...

    def task(self, answer: bytes) -> str:
        """The id in the answer to a send. Raises what the parser raises when there is none."""
        ...

    def completed(self, answer: bytes) -> bool:
        """Whether a send's answer is the finished task with what was said in it."""
        ...

    def listed(self, answer: bytes) -> Listed: ...


def agent_of(text: str) -> str:
    """The agent a command is for; empty for the one that echoes."""
    word = text.partition(" ")[0]
    return word if word in AGENTS else ""


def request(text: str, *, wait: bool = True) -> pb.SendMessageRequest:
    """A send of one text part."""
    send_message_request = pb.SendMessageRequest(
        message=pb.Message(message_id="bench", role="ROLE_USER", parts=[pb.Part(text=text)])
    )
    if not wait:
        send_message_request.configuration.return_immediately = True
    return send_message_request


def _request_json(text: str, wait: bool) -> dict[str, Any]:
    values: dict[str, Any] = {"message": {"messageId": "bench", "role": "ROLE_USER", "parts": [{"text": text}]}}
    if not wait:
        values["configuration"] = {"returnImmediately": True}
    return values


@dataclass(frozen=True, slots=True)
class Grpc:
    """gRPC. `tenants`: commands go to agents of their own."""

    tenants: bool = False
    marker: bytes = b"\x22"
    waits: bool = True

    def send(self, text: str, *, wait: bool = True) -> Wire:
        return self._wire("SendMessage", request(text, wait=wait), text)

    def stream(self, text: str) -> Wire:
        return self._wire("SendStreamingMessage", request(text), text)

    def get(self, text: str, task: str) -> Wire:
        return self._wire("GetTask", pb.GetTaskRequest(id=task), text)

    def subscribe(self, text: str, task: str) -> Wire:
        return self._wire("SubscribeToTask", pb.SubscribeToTaskRequest(id=task), text)

    def list(self, wanted: Wanted) -> Wire:
        state = wanted.state or "TASK_STATE_UNSPECIFIED"
        list_tasks_request = pb.ListTasksRequest(page_size=wanted.size, page_token=wanted.token, status=state)
        return self._wire("ListTasks", list_tasks_request, "")

    def task(self, answer: bytes) -> str:
        return pb.SendMessageResponse.FromString(answer).task.id

    def completed(self, answer: bytes) -> bool:
        task = pb.SendMessageResponse.FromString(answer).task
        return task.status.state == pb.TASK_STATE_COMPLETED and task.artifacts[0].parts[0].text == TEXT

    def listed(self, answer: bytes) -> Listed:
        page = pb.ListTasksResponse.FromString(answer)
        return Listed(len(page.tasks), page.next_page_token, page.total_size)

    def _wire(self, name: str, message: Any, text: str) -> Wire:
        if self.tenants:
            message.tenant = agent_of(text)
        return Wire(SERVICE + name, message.SerializeToString())


class _Json:
    """What REST and JSON-RPC read alike."""

    marker: Final = b'"artifactUpdate"'
    waits: Final = True

    def completed(self, answer: bytes) -> bool:
        return b'"TASK_STATE_COMPLETED"' in answer and b'"artifacts"' in answer and TEXT.encode() in answer


@dataclass(frozen=True, slots=True)
class Rest(_Json):
    """HTTP+JSON. `tenants`: commands go to agents of their own."""

    tenants: bool = False

    def send(self, text: str, *, wait: bool = True) -> Wire:
        return Wire(self._at(text) + "/message:send", orjson.dumps(_request_json(text, wait)))

    def stream(self, text: str) -> Wire:
        return Wire(self._at(text) + "/message:stream", orjson.dumps(_request_json(text, True)))

    def get(self, text: str, task: str) -> Wire:
        return Wire(f"{self._at(text)}/tasks/{task}", method="GET")

    def subscribe(self, text: str, task: str) -> Wire:
        return Wire(f"{self._at(text)}/tasks/{task}:subscribe", method="GET")

    def list(self, wanted: Wanted) -> Wire:
        query = {"pageSize": wanted.size, "pageToken": wanted.token, "status": wanted.state}
        return Wire("/tasks?" + urlencode({name: value for name, value in query.items() if value}), method="GET")

    def task(self, answer: bytes) -> str:
        return str(orjson.loads(answer)["task"]["id"])

    def listed(self, answer: bytes) -> Listed:
        return _listed(orjson.loads(answer))

    def _at(self, text: str) -> str:
        agent = agent_of(text) if self.tenants else ""
        return f"/{agent}" if agent else ""


@dataclass(frozen=True, slots=True)
class JsonRpc(_Json):
    """JSON-RPC. `tenants`: commands go to agents of their own. `by_method`: each method has a path (bare_http)."""

    tenants: bool = False
    by_method: bool = False

    def send(self, text: str, *, wait: bool = True) -> Wire:
        return self._wire("SendMessage", _request_json(text, wait), text)

    def stream(self, text: str) -> Wire:
        return self._wire("SendStreamingMessage", _request_json(text, True), text)

    def get(self, text: str, task: str) -> Wire:
        return self._wire("GetTask", {"id": task}, text)

    def subscribe(self, text: str, task: str) -> Wire:
        return self._wire("SubscribeToTask", {"id": task}, text)

    def list(self, wanted: Wanted) -> Wire:
        query = {"pageSize": wanted.size, "pageToken": wanted.token, "status": wanted.state}
        return self._wire("ListTasks", {name: value for name, value in query.items() if value}, "")

    def task(self, answer: bytes) -> str:
        return str(orjson.loads(answer)["result"]["task"]["id"])

    def listed(self, answer: bytes) -> Listed:
        return _listed(orjson.loads(answer)["result"])

    def _wire(self, method: str, params: dict[str, Any], text: str) -> Wire:
        path = f"/{method}" if self.by_method else f"/{agent_of(text)}" if self.tenants else "/"
        return Wire(path, orjson.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}))


@dataclass(frozen=True, slots=True)
class FastA2A:
    """JSON-RPC as fasta2a 2.x was made for it. It answers a send before the task is done."""

    marker: bytes = b'"artifactUpdate"'
    waits: bool = False

    def send(self, text: str, *, wait: bool = True) -> Wire:
        del wait
        return self._wire("message/send", self._message(text))

    def stream(self, text: str) -> Wire:
        return self._wire("message/stream", self._message(text))

    def get(self, text: str, task: str) -> Wire:
        del text
        return self._wire("tasks/get", {"id": task})

    def subscribe(self, text: str, task: str) -> Wire:
        del text
        return self._wire("tasks/resubscribe", {"id": task})

    def list(self, wanted: Wanted) -> Wire:
        raise NotImplementedError("fasta2a has no ListTasks")

    def task(self, answer: bytes) -> str:
        return str(orjson.loads(answer)["result"]["task"]["id"])

    def completed(self, answer: bytes) -> bool:
        return b'"state":"completed"' in answer and TEXT.encode() in answer

    def listed(self, answer: bytes) -> Listed:
        raise NotImplementedError("fasta2a has no ListTasks")

    def _message(self, text: str) -> dict[str, Any]:
        return {"message": {"messageId": "bench", "role": "user", "parts": [{"text": text}]}}

    def _wire(self, method: str, params: dict[str, Any]) -> Wire:
        return Wire("/", orjson.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}))


def _listed(page: dict[str, Any]) -> Listed:
    return Listed(len(page["tasks"]), page.get("nextPageToken", ""), page["totalSize"])


FORMS: Final[dict[tuple[str, str], Form]] = {
    ("grpc", "bare"): Grpc(),
    ("grpc", "dragoman"): Grpc(tenants=True),
    ("grpc", "a2a-sdk"): Grpc(),
    ("rest", "bare"): Rest(),
    ("rest", "dragoman"): Rest(tenants=True),
    ("rest", "a2a-sdk"): Rest(),
    ("jsonrpc", "bare"): JsonRpc(by_method=True),
    ("jsonrpc", "dragoman"): JsonRpc(tenants=True),
    ("jsonrpc", "a2a-sdk"): JsonRpc(),
    ("jsonrpc", "fasta2a"): FastA2A(),
}
"""By binding and by whose server it is."""
