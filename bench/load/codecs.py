"""Codecs: the same requests for each server and binding, and the checks of responses.

A `Codec` encodes `WireRequest`s for one binding and decodes the responses. All use A2A 1.0, except for fasta2a, which
gets its native method names (it accepts those of 1.0 too, through a translation).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Final, Protocol

import orjson
from tests.load.requests import Request, WireRequest, grpc_request, jsonrpc_request, rest_request

from bench.responses import TEXT
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

AGENTS: Final = frozenset({"chunks", "ticks", "stamps", "talk", "ask", "hold"})
"""Commands with their own agent on a server with several agents; everything else goes to the echo agent."""


@dataclass(frozen=True, slots=True)
class PageRequest:
    """Parameters of ListTasks."""

    size: int
    token: str = ""
    state: str = ""


@dataclass(frozen=True, slots=True)
class TaskPage:
    """The content of a page of ListTasks."""

    tasks: int
    next_token: str
    total: int


class Codec(Protocol):
    """Encodes requests of one binding, and decodes their responses."""

    @property
    def marker(self) -> bytes:
        """Bytes that every artifact event of a stream contains exactly once."""
        ...

    @property
    def send_waits(self) -> bool:
        """Whether the response to a send has the ended task. Otherwise the task is polled."""
        ...

    def send(self, text: str, *, wait: bool = True) -> WireRequest: ...
    def stream(self, text: str) -> WireRequest: ...
    def get(self, text: str, task: str) -> WireRequest: ...
    def subscribe(self, text: str, task: str) -> WireRequest: ...
    def list(self, page_request: PageRequest) -> WireRequest: ...

    def task_id(self, response: bytes) -> str:
        """Returns the task id in the response to a send. Raises the parser's error if there is none."""
        ...

    def is_completed(self, response: bytes) -> bool:
        """Whether the response to a send is the completed task with the echoed text."""
        ...

    def page(self, response: bytes) -> TaskPage: ...


def agent_of(text: str) -> str:
    """Returns the agent of a command; empty for the echo agent."""
    word = text.partition(" ")[0]
    return word if word in AGENTS else ""


def request(text: str, *, wait: bool = True) -> pb.SendMessageRequest:
    """Returns a send request with one text part."""
    message_request = pb.SendMessageRequest(
        message=pb.Message(message_id="bench", role="ROLE_USER", parts=[pb.Part(text=text)])
    )
    if not wait:
        message_request.configuration.return_immediately = True
    return message_request


@dataclass(frozen=True)
class _V1Codec:
    """The requests of A2A 1.0. `tenants`: commands go to their own agents."""

    tenants: bool = False
    send_waits: ClassVar[bool] = True

    def send(self, text: str, *, wait: bool = True) -> WireRequest:
        return self._encode("SendMessage", request(text, wait=wait), text)

    def stream(self, text: str) -> WireRequest:
        return self._encode("SendStreamingMessage", request(text), text)

    def get(self, text: str, task: str) -> WireRequest:
        return self._encode("GetTask", pb.GetTaskRequest(id=task), text)

    def subscribe(self, text: str, task: str) -> WireRequest:
        return self._encode("SubscribeToTask", pb.SubscribeToTaskRequest(id=task), text)

    def list(self, page_request: PageRequest) -> WireRequest:
        state = page_request.state or "TASK_STATE_UNSPECIFIED"
        page = pb.ListTasksRequest(page_size=page_request.size, page_token=page_request.token, status=state)
        return self._encode("ListTasks", page, "")

    def _encode(self, rpc: str, request: Request, text: str) -> WireRequest:
        raise NotImplementedError

    def _addressed(self, request: Request, text: str) -> Request:
        """The request with the agent of a command, which is its tenant."""
        if self.tenants:
            request.tenant = agent_of(text)
        return request


@dataclass(frozen=True)
class GrpcCodec(_V1Codec):
    """gRPC."""

    marker: ClassVar[bytes] = b"\x22"

    def task_id(self, response: bytes) -> str:
        return pb.SendMessageResponse.FromString(response).task.id

    def is_completed(self, response: bytes) -> bool:
        task = pb.SendMessageResponse.FromString(response).task
        return task.status.state == pb.TASK_STATE_COMPLETED and task.artifacts[0].parts[0].text == TEXT

    def page(self, response: bytes) -> TaskPage:
        page = pb.ListTasksResponse.FromString(response)
        return TaskPage(len(page.tasks), page.next_page_token, page.total_size)

    def _encode(self, rpc: str, request: Request, text: str) -> WireRequest:
        return grpc_request(rpc, self._addressed(request, text))


@dataclass(frozen=True)
class RestCodec(_V1Codec):
    """HTTP+JSON."""

    marker: ClassVar[bytes] = b'"artifactUpdate"'

    def task_id(self, response: bytes) -> str:
        return str(orjson.loads(response)["task"]["id"])

    def is_completed(self, response: bytes) -> bool:
        return b'"TASK_STATE_COMPLETED"' in response and b'"artifacts"' in response and TEXT.encode() in response

    def page(self, response: bytes) -> TaskPage:
        return _task_page(orjson.loads(response))

    def _encode(self, rpc: str, request: Request, text: str) -> WireRequest:
        return rest_request(rpc, self._addressed(request, text))


@dataclass(frozen=True)
class JsonRpcCodec(RestCodec):
    """JSON-RPC. The agent of a command is in the path. `by_method`: each method has its own path (bare, ceiling)."""

    by_method: bool = False

    def task_id(self, response: bytes) -> str:
        return str(orjson.loads(response)["result"]["task"]["id"])

    def page(self, response: bytes) -> TaskPage:
        return _task_page(orjson.loads(response)["result"])

    def _encode(self, rpc: str, request: Request, text: str) -> WireRequest:
        path = f"/{rpc}" if self.by_method else f"/{agent_of(text)}" if self.tenants else "/"
        return jsonrpc_request(rpc, request, path)


@dataclass(frozen=True, slots=True)
class FastA2ACodec:
    """JSON-RPC with the native methods of fasta2a 2.x, which responds to a send before the task has ended."""

    marker: bytes = b'"artifactUpdate"'
    send_waits: bool = False

    def send(self, text: str, *, wait: bool = True) -> WireRequest:
        del wait
        return self._encode("message/send", self._message(text))

    def stream(self, text: str) -> WireRequest:
        return self._encode("message/stream", self._message(text))

    def get(self, text: str, task: str) -> WireRequest:
        del text
        return self._encode("tasks/get", {"id": task})

    def subscribe(self, text: str, task: str) -> WireRequest:
        del text
        return self._encode("tasks/resubscribe", {"id": task})

    def list(self, page_request: PageRequest) -> WireRequest:
        raise NotImplementedError("fasta2a has no ListTasks")

    def task_id(self, response: bytes) -> str:
        return str(orjson.loads(response)["result"]["task"]["id"])

    def is_completed(self, response: bytes) -> bool:
        return b'"state":"completed"' in response and TEXT.encode() in response

    def page(self, response: bytes) -> TaskPage:
        raise NotImplementedError("fasta2a has no ListTasks")

    def _message(self, text: str) -> dict[str, Any]:
        return {"message": {"messageId": "bench", "role": "user", "parts": [{"text": text}]}}

    def _encode(self, method: str, params: dict[str, Any]) -> WireRequest:
        return WireRequest("/", orjson.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}))


def _task_page(page: dict[str, Any]) -> TaskPage:
    return TaskPage(len(page["tasks"]), page.get("nextPageToken", ""), page["totalSize"])


CODECS: Final[dict[tuple[str, str], Codec]] = {
    ("grpc", "bare"): GrpcCodec(),
    ("grpc", "ceiling"): GrpcCodec(),
    ("grpc", "dragoman"): GrpcCodec(tenants=True),
    ("grpc", "a2a-sdk"): GrpcCodec(),
    ("rest", "bare"): RestCodec(),
    ("rest", "ceiling"): RestCodec(),
    ("rest", "dragoman"): RestCodec(tenants=True),
    ("rest", "a2a-sdk"): RestCodec(),
    ("jsonrpc", "bare"): JsonRpcCodec(by_method=True),
    ("jsonrpc", "ceiling"): JsonRpcCodec(by_method=True),
    ("jsonrpc", "dragoman"): JsonRpcCodec(tenants=True),
    ("jsonrpc", "a2a-sdk"): JsonRpcCodec(),
    ("jsonrpc", "fasta2a"): FastA2ACodec(),
}
"""Codecs by binding and server implementation."""
