"""Encoded requests, checks of responses, sections, and the clock of the load."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import orjson
import pytest
from bench.load.codecs import CODECS, Codec, PageRequest
from bench.load.connections import WrongResponse
from bench.load.process import Call, Meter, drive, percentiles
from bench.responses import EVENTS, ID, TEXT
from bench.sections import STANDALONE, TIMED, select_sections
from bench.servers.contestants import CONTESTANTS
from bench.servers.gate import Gate
from google.protobuf import json_format

from bench import responses
from bench.servers import bare_http
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

BARE = {
    "grpc": (responses.SEND_RESPONSE, responses.GET_RESPONSE, responses.chunk),
    "rest": (responses.SEND_RESPONSE_JSON, responses.GET_RESPONSE_JSON, responses.chunk_json),
    "jsonrpc": (
        responses.jsonrpc_response(responses.SEND_RESPONSE_JSON),
        responses.jsonrpc_response(responses.GET_RESPONSE_JSON),
        lambda number: responses.jsonrpc_response(responses.chunk_json(number)),
    ),
}


@pytest.mark.parametrize("binding", BARE)
def test_the_fixed_responses_pass_the_checks(binding: str) -> None:
    codec = CODECS[binding, "bare"]
    sent, read, chunk = BARE[binding]
    assert codec.is_completed(sent)
    assert codec.task_id(sent) == ID
    assert read.count(TEXT.encode()) == responses.SENTENCES
    for number in range(EVENTS):
        event = chunk(number)
        assert event[:1] == codec.marker if binding == "grpc" else event.count(codec.marker) == 1


def test_the_fixed_responses_over_grpc_and_json_have_the_same_task() -> None:
    read = pb.Task.FromString(responses.GET_RESPONSE)
    assert len(read.history) == 50
    assert json_format.MessageToDict(read) == orjson.loads(responses.GET_RESPONSE_JSON)
    sent = pb.SendMessageResponse.FromString(responses.SEND_RESPONSE)
    assert json_format.MessageToDict(sent) == orjson.loads(responses.SEND_RESPONSE_JSON)
    assert json_format.MessageToDict(pb.StreamResponse.FromString(responses.chunk(7))) == orjson.loads(
        responses.chunk_json(7)
    )


def failed(change: Callable[[pb.Task], None]) -> bytes:
    response = pb.SendMessageResponse.FromString(responses.SEND_RESPONSE)
    change(response.task)
    return response.SerializeToString()


def test_a_failed_task_is_a_wrong_response() -> None:
    codec = CODECS["grpc", "dragoman"]
    assert not codec.is_completed(failed(lambda task: setattr(task.status, "state", pb.TASK_STATE_FAILED)))
    assert not codec.is_completed(failed(lambda task: setattr(task.artifacts[0].parts[0], "text", "else")))


@pytest.mark.parametrize("binding", ["rest", "jsonrpc"])
def test_a_json_error_is_a_wrong_response(binding: str) -> None:
    codec = CODECS[binding, "dragoman"]
    sent = BARE[binding][0]
    assert not codec.is_completed(sent.replace(b"TASK_STATE_COMPLETED", b"TASK_STATE_FAILED"))
    assert not codec.is_completed(b'{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"%s"}}' % TEXT.encode())


def test_only_dragoman_has_an_agent_for_each_command() -> None:
    for implementation, path in (
        ("dragoman", "/chunks/message:stream"),
        ("a2a-sdk", "/message:stream"),
        ("bare", "/message:stream"),
    ):
        assert CODECS["rest", implementation].stream("chunks 100").path == path
    assert CODECS["jsonrpc", "dragoman"].get("talk 49", "x").path == "/talk"
    request = pb.SendMessageRequest.FromString(CODECS["grpc", "dragoman"].send("ask").body)
    assert request.tenant == "ask"
    assert not pb.SendMessageRequest.FromString(CODECS["grpc", "dragoman"].send(TEXT).body).tenant


def test_a_page_request_has_the_same_parameters_over_every_binding() -> None:
    wanted = PageRequest(10, "token", "TASK_STATE_COMPLETED")
    request = pb.ListTasksRequest.FromString(CODECS["grpc", "dragoman"].list(wanted).body)
    assert (request.page_size, request.page_token, request.status) == (10, "token", pb.TASK_STATE_COMPLETED)
    assert (
        CODECS["rest", "dragoman"].list(wanted).path == "/tasks?status=TASK_STATE_COMPLETED&pageSize=10&pageToken=token"
    )
    params = orjson.loads(CODECS["jsonrpc", "dragoman"].list(wanted).body)["params"]
    assert params == {"pageSize": 10, "pageToken": "token", "status": "TASK_STATE_COMPLETED"}


def test_every_contestant_has_a_codec_for_each_of_its_bindings() -> None:
    for contestant in CONTESTANTS.values():
        for binding in contestant.bindings:
            codec: Codec = CODECS[binding, contestant.implementation]
            assert codec.send(TEXT).body


def test_the_bare_server_has_a_path_for_every_request() -> None:
    async def routes() -> set[tuple[str, str]]:
        return {(route.method, route.path) for route in bare_http.routes(Gate("go"))}

    paths = asyncio.run(routes())
    for binding in ("rest", "jsonrpc"):
        codec = CODECS[binding, "bare"]
        for request in (codec.send(TEXT), codec.stream("chunks 1"), codec.get("", ID), codec.subscribe("", ID)):
            assert (request.method, request.path) in paths


# Sections ------------------------------------------------------------------------------------------------------


def test_sections_are_selected_by_name_part_or_pattern() -> None:
    def names(*patterns: str) -> list[str]:
        timed, alone = select_sections(list(patterns))
        return [section.name for section in timed] + alone

    assert names("grpc-send") == ["grpc-send"]
    assert names("send") == ["grpc-send", "rest-send", "jsonrpc-send"]
    assert names("*-get", "memory") == ["grpc-get", "rest-get", "jsonrpc-get", "memory"]
    assert len(names()) == len(TIMED) + len(STANDALONE)


def test_an_unknown_section_is_rejected_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r'no section "sends"; there are grpc-send,'):
        select_sections(["send", "sends"])


def test_the_bare_server_is_measured_first_in_every_section() -> None:
    for section in TIMED:
        assert section.servers[0].startswith("bare")
        assert "dragoman" in section.servers


# The clock -----------------------------------------------------------------------------------------------------


def test_percentiles_are_measured_values() -> None:
    assert percentiles([float(number) for number in range(1, 101)]) == (51.0, 100.0)
    assert percentiles([3.0]) == (3.0, 3.0)
    assert percentiles([]) == (0.0, 0.0)


async def test_one_wrong_response_fails_the_measurement() -> None:
    meter = Meter(0)
    call_count = 0

    async def call() -> None:
        nonlocal call_count
        call_count += 1
        number = call_count
        await asyncio.sleep(0)
        if number == 10:
            raise WrongResponse("an error instead")
        meter.count += 1

    calls: list[Call] = [call, call]
    with pytest.raises(WrongResponse, match="1 wrong responses, such as: an error instead"):
        await drive(calls, meter, "send", 0.0, 0.01)


async def test_an_unparsable_response_fails_the_measurement() -> None:
    meter = Meter(0)

    async def call() -> None:
        await asyncio.sleep(0)
        orjson.loads(b"<html>")

    with pytest.raises(WrongResponse, match="JSONDecodeError"):
        await drive([call], meter, "send", 0.0, 0.001)


async def test_responses_of_the_warm_up_are_not_counted() -> None:
    meter = Meter(0)
    begun = 0

    async def call() -> None:
        nonlocal begun
        begun += 1
        await asyncio.sleep(0)
        meter.count += 1

    measured = await drive([call], meter, "send", 0.02, 0.02)
    assert 0 < measured.count < begun
