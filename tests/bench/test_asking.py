"""What is asked of each server, and which answers are taken for right."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import orjson
import pytest
from bench.answers import EVENTS, ID, TEXT
from bench.asking import FORMS, Form, Wanted
from bench.gate import Gate
from bench.lines import Wrong
from bench.load import Ask, Meter, drive, percentiles
from bench.sections import ALONE, TIMED, chosen
from bench.servers import CONTESTANTS
from google.protobuf import json_format

from bench import answers, bare_http
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

BARE = {
    "grpc": (answers.SENT, answers.READ, answers.chunk),
    "rest": (answers.SENT_JSON, answers.READ_JSON, answers.chunk_json),
    "jsonrpc": (
        answers.enveloped(answers.SENT_JSON),
        answers.enveloped(answers.READ_JSON),
        lambda number: answers.enveloped(answers.chunk_json(number)),
    ),
}


@pytest.mark.parametrize("binding", BARE)
def test_the_fixed_answers_are_those_that_a_server_has_to_give(binding: str) -> None:
    form = FORMS[binding, "bare"]
    sent, read, chunk = BARE[binding]
    assert form.completed(sent)
    assert form.task(sent) == ID
    assert read.count(TEXT.encode()) == answers.SENTENCES
    for number in range(EVENTS):
        event = chunk(number)
        assert event[:1] == form.marker if binding == "grpc" else event.count(form.marker) == 1


def test_the_fixed_answers_over_grpc_and_json_are_the_same_task() -> None:
    read = pb.Task.FromString(answers.READ)
    assert len(read.history) == 50
    assert json_format.MessageToDict(read) == orjson.loads(answers.READ_JSON)
    sent = pb.SendMessageResponse.FromString(answers.SENT)
    assert json_format.MessageToDict(sent) == orjson.loads(answers.SENT_JSON)
    assert json_format.MessageToDict(pb.StreamResponse.FromString(answers.chunk(7))) == orjson.loads(
        answers.chunk_json(7)
    )


def failed(change: Callable[[pb.Task], None]) -> bytes:
    response = pb.SendMessageResponse.FromString(answers.SENT)
    change(response.task)
    return response.SerializeToString()


def test_a_task_that_failed_is_no_right_answer() -> None:
    form = FORMS["grpc", "dragoman"]
    assert not form.completed(failed(lambda task: setattr(task.status, "state", pb.TASK_STATE_FAILED)))
    assert not form.completed(failed(lambda task: setattr(task.artifacts[0].parts[0], "text", "else")))


@pytest.mark.parametrize("binding", ["rest", "jsonrpc"])
def test_neither_is_an_error_in_json(binding: str) -> None:
    form = FORMS[binding, "dragoman"]
    sent = BARE[binding][0]
    assert not form.completed(sent.replace(b"TASK_STATE_COMPLETED", b"TASK_STATE_FAILED"))
    assert not form.completed(b'{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"%s"}}' % TEXT.encode())


def test_only_our_server_has_an_agent_for_each_command() -> None:
    for whose, path in (
        ("dragoman", "/chunks/message:stream"),
        ("a2a-sdk", "/message:stream"),
        ("bare", "/message:stream"),
    ):
        assert FORMS["rest", whose].stream("chunks 100").path == path
    assert FORMS["jsonrpc", "dragoman"].get("talk 49", "x").path == "/talk"
    request = pb.SendMessageRequest.FromString(FORMS["grpc", "dragoman"].send("ask").body)
    assert request.tenant == "ask"
    assert not pb.SendMessageRequest.FromString(FORMS["grpc", "dragoman"].send(TEXT).body).tenant


def test_a_page_is_asked_for_alike_over_every_binding() -> None:
    wanted = Wanted(10, "token", "TASK_STATE_COMPLETED")
    request = pb.ListTasksRequest.FromString(FORMS["grpc", "dragoman"].list(wanted).body)
    assert (request.page_size, request.page_token, request.status) == (10, "token", pb.TASK_STATE_COMPLETED)
    assert (
        FORMS["rest", "dragoman"].list(wanted).path == "/tasks?pageSize=10&pageToken=token&status=TASK_STATE_COMPLETED"
    )
    params = orjson.loads(FORMS["jsonrpc", "dragoman"].list(wanted).body)["params"]
    assert params == {"pageSize": 10, "pageToken": "token", "status": "TASK_STATE_COMPLETED"}


def test_every_contestant_can_be_asked_over_every_binding_it_has() -> None:
    for contestant in CONTESTANTS.values():
        for binding in contestant.bindings:
            form: Form = FORMS[binding, contestant.whose]
            assert form.send(TEXT).body


def test_the_bare_server_has_a_path_for_everything_it_is_asked() -> None:
    async def routes() -> set[tuple[str, str]]:
        return {(route.method, route.path) for route in bare_http.routes(Gate("go"))}

    there = asyncio.run(routes())
    for binding in ("rest", "jsonrpc"):
        form = FORMS[binding, "bare"]
        for wire in (form.send(TEXT), form.stream("chunks 1"), form.get("", ID), form.subscribe("", ID)):
            assert (wire.method, wire.path) in there


# Sections ------------------------------------------------------------------------------------------------------


def test_sections_are_chosen_by_name_by_part_or_by_pattern() -> None:
    def names(*patterns: str) -> list[str]:
        timed, alone = chosen(list(patterns))
        return [section.name for section in timed] + alone

    assert names("grpc-send") == ["grpc-send"]
    assert names("send") == ["grpc-send", "rest-send", "jsonrpc-send"]
    assert names("*-get", "memory") == ["grpc-get", "rest-get", "jsonrpc-get", "memory"]
    assert len(names()) == len(TIMED) + len(ALONE)


def test_a_section_that_is_not_there_is_named_with_those_that_are() -> None:
    with pytest.raises(ValueError, match=r'no section "sends"; there are grpc-send,'):
        chosen(["send", "sends"])


def test_the_limit_is_measured_first_in_every_section() -> None:
    for section in TIMED:
        assert section.servers[0].startswith("bare")
        assert "dragoman" in section.servers


# The clock -----------------------------------------------------------------------------------------------------


def test_percentiles_are_values_that_were_measured() -> None:
    assert percentiles([float(number) for number in range(1, 101)]) == (51.0, 100.0)
    assert percentiles([3.0]) == (3.0, 3.0)
    assert percentiles([]) == (0.0, 0.0)


async def test_one_wrong_answer_spoils_the_measurement() -> None:
    meter = Meter(0)
    requested_number = 0

    async def ask() -> None:
        nonlocal requested_number
        requested_number += 1
        number = requested_number
        await asyncio.sleep(0)
        if number == 10:
            raise Wrong("an error instead")
        meter.count += 1

    asks: list[Ask] = [ask, ask]
    with pytest.raises(Wrong, match="1 wrong answers, such as: an error instead"):
        await drive(asks, meter, "send", 0.0, 0.01)


async def test_an_answer_that_cannot_be_read_is_wrong_too() -> None:
    meter = Meter(0)

    async def ask() -> None:
        await asyncio.sleep(0)
        orjson.loads(b"<html>")

    with pytest.raises(Wrong, match="JSONDecodeError"):
        await drive([ask], meter, "send", 0.0, 0.001)


async def test_what_was_answered_before_the_clock_ran_is_not_counted() -> None:
    meter = Meter(0)
    begun = 0

    async def ask() -> None:
        nonlocal begun
        begun += 1
        await asyncio.sleep(0)
        meter.count += 1

    measured = await drive([ask], meter, "send", 0.02, 0.02)
    assert 0 < measured.count < begun
