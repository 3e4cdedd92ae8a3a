"""Client codecs: names, paths and bodies of operations in each dialect."""

from __future__ import annotations

import pytest

from dragoman.wire.client_operations import GRPC_OPERATIONS, JSONRPC_OPERATIONS, OPERATION_TYPES, rest_call
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb


@pytest.mark.parametrize(
    ("dialect", "rpc", "method", "path"),
    [
        ("1.0", "GetTask", "GET", "/acme/tasks/a%2Fb?historyLength=2"),
        ("0.3", "GetTask", "GET", "/acme/v1/tasks/a%2Fb?historyLength=2"),
        ("1.0", "CancelTask", "POST", "/acme/tasks/a%2Fb:cancel"),
        ("1.0", "SubscribeToTask", "POST", "/acme/tasks/a%2Fb:subscribe"),
        ("0.3", "SubscribeToTask", "POST", "/acme/v1/tasks/a%2Fb:subscribe"),
    ],
)
def test_a_rest_call_has_the_path_of_its_dialect(dialect: str, rpc: str, method: str, path: str) -> None:
    request = OPERATION_TYPES[rpc][0](id="a/b")
    if isinstance(request, pb.GetTaskRequest):
        request.history_length = 2
    call = rest_call(dialect, rpc, request, "/acme")
    assert (call.method, call.url) == (method, path)
    assert (call.body is None) == (method == "GET" or rpc == "SubscribeToTask")


def test_a_0_1_send_gets_a_task_id() -> None:
    request = pb.SendMessageRequest(message=pb.Message(message_id="m", role=pb.ROLE_USER, parts=[pb.Part(text="x")]))
    params = JSONRPC_OPERATIONS["0.1"]["SendMessage"].encode_request(request)
    assert params["id"] == request.message.task_id != ""


@pytest.mark.parametrize("dialect", JSONRPC_OPERATIONS)
def test_a_jsonrpc_cancel_has_the_metadata_of_its_request(dialect: str) -> None:
    operation = JSONRPC_OPERATIONS[dialect]["CancelTask"]
    request = pb.CancelTaskRequest(id="t", metadata={"why": ["late", None]})
    assert operation.encode_request(request) == {"id": "t", "metadata": {"why": ["late", None]}}
    assert operation.encode_request(pb.CancelTaskRequest(id="t")) == {"id": "t"}


def test_0_3_grpc_requests_use_resource_names() -> None:
    operation = GRPC_OPERATIONS["0.3"]["SubscribeToTask"]
    assert operation.path == "/a2a.v1.A2AService/TaskSubscription"
    assert str(operation.encode_request(pb.SubscribeToTaskRequest(id="t"))) == 'name: "tasks/t"\n'
