"""A gRPC client without protos: it uses reflection to discover and call the services."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.message_factory import GetMessageClass
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

sys.path.insert(0, str(Path(__file__).parents[1]))
from checks import Checks, arguments, finish

check = Checks()


class Reflected:
    """The services described by the server's reflection."""

    def __init__(self, channel: grpc.Channel) -> None:
        self._channel = channel
        self._database = ProtoReflectionDescriptorDatabase(channel)
        self._pool = DescriptorPool(self._database)

    def services(self) -> set[str]:
        return set(self._database.get_services())

    def call(self, service: str, rpc: str, body: dict[str, Any]) -> Any:
        """Makes a call with JSON; returns a list for a streaming RPC."""
        method = self._pool.FindServiceByName(service).methods_by_name[rpc]
        request = ParseDict(body, GetMessageClass(method.input_type)(), descriptor_pool=self._pool)
        answer_of = GetMessageClass(method.output_type).FromString
        make = self._channel.unary_stream if method.server_streaming else self._channel.unary_unary
        answer = make(f"/{service}/{rpc}", type(request).SerializeToString, answer_of)(request, timeout=60)
        if method.server_streaming:
            return [MessageToDict(one, descriptor_pool=self._pool) for one in _iterate(answer)]
        return MessageToDict(answer, descriptor_pool=self._pool)


def _iterate(stream: Any) -> Iterator[Any]:
    yield from stream


@check
def it_lists_both_packages_health_and_reflection(server: Reflected) -> None:
    expected = {"a2a.v1.A2AService", "lf.a2a.v1.A2AService", "grpc.health.v1.Health"}
    assert expected <= server.services()
    assert any(name.startswith("grpc.reflection.") for name in server.services())


@check
def it_calls_1_0(server: Reflected) -> None:
    body = {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "echo hello"}]}}
    task = server.call("lf.a2a.v1.A2AService", "SendMessage", body)["task"]
    assert task["artifacts"][0]["parts"] == [{"text": "hello"}]
    assert server.call("lf.a2a.v1.A2AService", "GetTask", {"id": task["id"]}) == task


@check
def it_calls_0_3(server: Reflected) -> None:
    body = {"message": {"messageId": "m", "role": "ROLE_USER", "content": [{"text": "echo hello"}]}}
    task = server.call("a2a.v1.A2AService", "SendMessage", body)["task"]
    assert task["artifacts"][0]["parts"] == [{"text": "hello"}]
    assert server.call("a2a.v1.A2AService", "GetTask", {"name": f"tasks/{task['id']}"}) == task
    assert server.call("a2a.v1.A2AService", "GetAgentCard", {})["name"] == "Playground"


@check
def it_streams(server: Reflected) -> None:
    body = {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "stream 3"}]}}
    events = server.call("lf.a2a.v1.A2AService", "SendStreamingMessage", body)
    assert [next(iter(event)) for event in events] == [
        "task", "statusUpdate", "artifactUpdate", "artifactUpdate", "artifactUpdate", "statusUpdate",
    ]  # fmt: skip


@check
def it_asks_for_health(server: Reflected) -> None:
    for service in ("", "a2a.v1.A2AService", "lf.a2a.v1.A2AService"):
        assert server.call("grpc.health.v1.Health", "Check", {"service": service}) == {"status": "SERVING"}


with grpc.insecure_channel(arguments().grpc) as channel:
    good = asyncio.run(check.run("reflection", Reflected(channel)))
finish(good)
