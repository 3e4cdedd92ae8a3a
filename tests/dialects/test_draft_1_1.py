"""The draft of A2A 1.1 over every binding; and that other callers get the bytes they got without it."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet
from tests.conftest import set_timings
from tests.dialects.dialect_clients import ServerConnections, open_connections
from tests.dialects.draft_clients import BINDINGS, MISMATCH_CODES, SERVICE, Answer, Call, Rejected, head, headers_of
from tests.dialects.push_clients import receiver

from dragoman.core.cards.agent_spec import RESUME_EXTENSION
from dragoman.playground import playground
from dragoman.settings.settings import Address, Settings
from dragoman.wiring.app import open_app
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

DRAFT = "1.1"
every_binding = pytest.mark.parametrize("binding", BINDINGS)


@pytest.fixture
def draft_1_1() -> bool:
    return True


def send_params(text: str, task: str = "", **configuration: Any) -> dict[str, Any]:
    message = {"messageId": f"m-{text}", "role": "ROLE_USER", "parts": [{"text": text}]}
    return {"message": {**message, **({"taskId": task} if task else {})}, "configuration": configuration}


def generation(task: dict[str, Any]) -> int:
    assert isinstance(task["generation"], str), "ProtoJSON writes an int64 as text"
    return int(task["generation"])


async def begin(connections: ServerConnections, call: Call, text: str = "ask") -> dict[str, Any]:
    task: dict[str, Any] = (await call(connections, "SendMessage", send_params(text), DRAFT)).value["task"]
    return task


@every_binding
async def test_every_answer_with_a_task_has_its_generation(connections: ServerConnections, binding: str) -> None:
    call = BINDINGS[binding]
    task = await begin(connections, call)
    (listed,) = (await call(connections, "ListTasks", {}, DRAFT)).value["tasks"]
    read = (await call(connections, "GetTask", {"id": task["id"]}, DRAFT)).value
    canceled = (await call(connections, "CancelTask", {"id": task["id"]}, DRAFT)).value
    assert generation(task) == generation(listed) == generation(read) == generation(canceled) - 1
    assert generation(task) > 1


@every_binding
async def test_the_events_of_a_task_have_all_generations_from_one(connections: ServerConnections, binding: str) -> None:
    call = BINDINGS[binding]
    events = (await call(connections, "SendStreamingMessage", send_params("stream 3"), DRAFT)).values
    members = [next(iter(event.values())) for event in events]
    assert [generation(member) for member in members] == list(range(1, len(events) + 1))
    assert {"task", "statusUpdate", "artifactUpdate"} == {next(iter(event)) for event in events}
    task = (await call(connections, "GetTask", {"id": members[0]["id"]}, DRAFT)).value
    assert generation(task) == len(events)


@every_binding
async def test_a_stream_of_an_older_task_begins_with_its_generation(
    connections: ServerConnections, binding: str
) -> None:
    call = BINDINGS[binding]
    task = await begin(connections, call)
    events = (await call(connections, "SendStreamingMessage", send_params("more", task["id"]), DRAFT)).values
    numbers = [generation(next(iter(event.values()))) for event in events]
    assert numbers == list(range(generation(task) + 1, generation(task) + 1 + len(events)))


@every_binding
async def test_a_message_reply_has_no_generation(connections: ServerConnections, binding: str) -> None:
    answer = await BINDINGS[binding](connections, "SendMessage", send_params("reply hello"), DRAFT)
    assert "generation" not in answer.value["message"]
    (event,) = (await BINDINGS[binding](connections, "SendStreamingMessage", send_params("reply x"), DRAFT)).values
    assert "generation" not in event["message"]


@every_binding
async def test_a_long_poll_answers_with_the_next_change(connections: ServerConnections, binding: str) -> None:
    call = BINDINGS[binding]
    task = await begin(connections, call)
    known = generation(task)
    at_once = (await call(connections, "GetTask", {"id": task["id"], "currentGeneration": known - 1}, DRAFT)).value
    assert generation(at_once) == known
    polling = asyncio.create_task(
        call(connections, "GetTask", {"id": task["id"], "currentGeneration": known, "historyLength": 0}, DRAFT)
    )
    await call(connections, "SendMessage", send_params("hello", task["id"]), DRAFT)
    async with asyncio.timeout(60):
        later = (await polling).value
    assert generation(later) > known
    assert "history" not in later


@every_binding
async def test_a_message_for_a_passed_generation_is_rejected_and_changes_nothing(
    connections: ServerConnections, binding: str
) -> None:
    call = BINDINGS[binding]
    task = await begin(connections, call)
    known = generation(task)
    for method in ("SendMessage", "SendStreamingMessage"):
        params = send_params("late", task["id"], ifGenerationMatch=known - 1)
        answer = await call(connections, method, params, DRAFT)
        assert answer.error == Rejected(
            MISMATCH_CODES[binding],
            "TASK_GENERATION_MISMATCH",
            {"taskId": task["id"], "expectedGeneration": str(known - 1), "currentGeneration": str(known)},
        )
    assert (await call(connections, "GetTask", {"id": task["id"]}, DRAFT)).value == task
    params = send_params("in time", task["id"], ifGenerationMatch=known)
    assert generation((await call(connections, "SendMessage", params, DRAFT)).value["task"]) > known


@every_binding
async def test_a_generation_for_a_new_task_is_ignored(connections: ServerConnections, binding: str) -> None:
    params = send_params("ask", ifGenerationMatch=7)
    assert generation((await BINDINGS[binding](connections, "SendMessage", params, DRAFT)).value["task"]) > 1


@every_binding
@pytest.mark.parametrize("version", ["", "1.0", "1.2"])
async def test_callers_that_do_not_name_the_draft_are_served_as_1_0(
    connections: ServerConnections, binding: str, version: str
) -> None:
    call = BINDINGS[binding]
    answer = await call(connections, "SendMessage", send_params("ask", ifGenerationMatch=99), version)
    task = answer.value["task"]
    follow_up = send_params("more", task["id"], ifGenerationMatch=99)
    answers = [
        answer,
        await call(connections, "GetTask", {"id": task["id"], "currentGeneration": 99}, version),
        await call(connections, "SendMessage", follow_up, version),
        await call(connections, "ListTasks", {}, version),
        await call(connections, "SendStreamingMessage", send_params("stream 2"), version),
    ]
    assert [one.error for one in answers] == [None] * len(answers)
    assert "generation" not in json.dumps([one.values for one in answers])


@pytest.mark.parametrize("value", ["x", "1.5", "9223372036854775808"])
async def test_a_generation_that_is_none_is_rejected_by_its_name(connections: ServerConnections, value: str) -> None:
    answer = await BINDINGS["REST"](connections, "GetTask", {"id": "t", "currentGeneration": value}, DRAFT)
    assert answer.error is not None
    assert (answer.error.code, b"currentGeneration" in answer.raw[1]) == (400, True)


async def test_the_draft_may_be_named_in_the_query(connections: ServerConnections) -> None:
    task = await begin(connections, BINDINGS["REST"])
    async with connections.http.get(f"/tasks/{task['id']}?A2A-Version=1.1") as response:
        assert await response.json() == task


async def test_an_event_has_both_its_cursor_and_its_generation(connections: ServerConnections) -> None:
    headers = {**headers_of(DRAFT), "A2A-Extensions": RESUME_EXTENSION.uri}
    async with connections.http.post("/message:stream", json=send_params("echo hi"), headers=headers) as response:
        assert response.headers["A2A-Extensions"] == RESUME_EXTENSION.uri
        events = [json.loads(line[6:]) async for line in response.content if line.startswith(b"data: ")]
    members = [next(iter(event.values())) for event in events]
    sequences = [member["metadata"][RESUME_EXTENSION.uri]["sequence"] for member in members]
    assert sequences == [generation(member) for member in members] == list(range(1, len(events) + 1))


# Cards -----------------------------------------------------------------------------------------------------------


def interfaces(card: dict[str, Any]) -> list[tuple[str, str]]:
    return [(one["protocolBinding"], one["protocolVersion"]) for one in card["supportedInterfaces"]]


async def test_the_card_lists_the_draft_for_callers_that_name_it(connections: ServerConnections) -> None:
    cards = {}
    for version in ("", "1.0", "1.1", "0.3"):
        async with connections.http.get("/.well-known/agent-card.json", headers=headers_of(version)) as response:
            assert response.headers["Vary"] == "A2A-Version"
            cards[version] = await response.json()
    bindings = ["JSONRPC", "HTTP+JSON", "GRPC"]
    assert interfaces(cards["1.1"])[:6] == [(name, version) for version in ("1.1", "1.0") for name in bindings]
    for version in ("", "1.0", "0.3"):
        assert "1.1" not in json.dumps(cards[version].get("supportedInterfaces", ""))
    listed = [one for one in cards["1.1"]["supportedInterfaces"] if one["protocolVersion"] != "1.1"]
    assert {**cards["1.1"], "supportedInterfaces": listed} == cards["1.0"]


# Webhooks --------------------------------------------------------------------------------------------------------


@pytest.fixture
async def pushing(tmp_path: Path) -> AsyncIterator[ServerConnections]:
    settings = Settings.model_validate(
        {
            "http": "127.0.0.1:0",
            "grpc": "127.0.0.1:0",
            "store": f"sqlite:///{tmp_path}/push.db",
            "a2a_draft_1_1": True,
            "outbound_allow": "127.0.0.1",
        }
    )
    async with open_app(settings, [playground]) as app, open_connections(str(app.http), str(app.grpc)) as opened:
        yield opened


@every_binding
@pytest.mark.parametrize("version", ["1.0", "1.1"])
async def test_webhooks_get_the_form_of_the_caller_that_configured_them(
    pushing: ServerConnections, binding: str, version: str
) -> None:
    async with receiver() as hook:
        params = send_params("stream 2", taskPushNotificationConfig={"url": hook.url})
        answer = await BINDINGS[binding](pushing, "SendMessage", params, version)
        assert answer.error is None
        await hook.wait_for(lambda body: "COMPLETED" in json.dumps(body))
        members = [next(iter(request.body.values())) for request in hook.requests]
    numbers = [generation(member) for member in members] if version == DRAFT else []
    assert numbers == (list(range(1, len(members) + 1)) if version == DRAFT else [])
    assert all("generation" in member for member in members) == (version == DRAFT)


# Bytes -----------------------------------------------------------------------------------------------------------

CALLS = [
    ("SendMessage", send_params("ask", ifGenerationMatch="1")),
    ("GetTask", {"id": "$task", "currentGeneration": "1"}),
    ("GetTask", {"id": "$task", "historyLength": 0}),
    ("SendMessage", send_params("answer", "$task", ifGenerationMatch="999")),
    ("SendMessage", send_params("late", "$task")),
    ("SubscribeToTask", {"id": "$task"}),
    ("CancelTask", {"id": "$task"}),
    ("GetTask", {"id": "none", "currentGeneration": "1"}),
    ("SendMessage", send_params("data")),
    ("SendMessage", send_params("file")),
    ("SendMessage", send_params("reply hello")),
    ("SendMessage", send_params("fail")),
    ("SendStreamingMessage", send_params("stream 3")),
    ("SendStreamingMessage", send_params("echo x")),
    ("CreateTaskPushNotificationConfig", {"taskId": "$task", "url": "nothing"}),
    ("GetExtendedAgentCard", {}),
    ("ListTasks", {}),
    ("ListTasks", {"pageSize": 0}),
]
"""Calls of 1.0 with every kind of answer, some with fields of the draft, which 1.0 ignores."""

NAMES = [
    rb"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|\b[0-9a-f]{32}\b",
    rb"\b[0-9a-f]{8}\.[0-9a-f]{8}(?=\.\d)",
]
"""Ids and cursors, which differ between two servers."""
OF_THE_MOMENT = rb"timestamp \{[^}]*\}|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{3})?Z|127\.0\.0\.1:\d+|ETag: \S+"
"""Times, ports, and the tag of a page that has a port."""


def settled(raw: bytes) -> bytes:
    """An answer with ids replaced by their number in order of first appearance, and without times and ports."""
    for pattern in NAMES:
        seen: dict[bytes, bytes] = {}
        for name in re.findall(pattern, raw):
            seen.setdefault(name, b"<%d>" % len(seen))
        for name, number in seen.items():
            raw = raw.replace(name, number)
    return re.sub(OF_THE_MOMENT, b"<>", raw)


def settled_grpc(method: str, raw: bytes) -> bytes:
    """As `settled`, for a message of 1.0, whose times have no fixed length. It has no field that 1.0 does not know."""
    message = getattr(pb, SERVICE.methods_by_name[method].output_type.name).FromString(raw)
    assert unknown_fields(message) == []
    assert len(message.SerializeToString()) == len(raw)  # the order of a map is not fixed
    return settled(str(message).encode())


def unknown_fields(message: Message) -> list[int]:
    unknown = UnknownFieldSet(message)
    found = [unknown[index].field_number for index in range(len(unknown))]
    for descriptor, value in message.ListFields():
        if descriptor.message_type is not None and not descriptor.message_type.GetOptions().map_entry:
            for each in value if descriptor.is_repeated else [value]:
                found += unknown_fields(each)
    return found


@asynccontextmanager
async def serving(tmp_path: Path, name: str, *, offered: bool) -> AsyncIterator[ServerConnections]:
    """A server of its own, which may offer the draft."""
    any_port = Address("127.0.0.1", 0)
    store = f"sqlite:///{tmp_path}/{name}.db"
    settings = Settings(http=any_port, grpc=any_port, store=store, a2a_draft_1_1=offered)
    async with open_app(settings, [playground]) as app, open_connections(str(app.http), str(app.grpc)) as opened:
        yield opened


async def transcript(tmp_path: Path, binding: str, version: str, *, offered: bool) -> list[list[bytes]]:
    """The raw answers of a server to CALLS."""
    task, answers = "", []
    async with serving(tmp_path, f"{version}-{offered}", offered=offered) as connections:
        for method, params in CALLS:
            filled = json.loads(json.dumps(params).replace("$task", task))
            answer: Answer = await BINDINGS[binding](connections, method, filled, version)
            if not task:
                task = answer.value["task"]["id"]
            is_message = binding == "gRPC" and answer.error is None and (version, offered) != (DRAFT, True)
            answers.append([settled_grpc(method, raw) if is_message else settled(raw) for raw in answer.raw])
    return answers


@every_binding
async def test_every_byte_is_as_without_the_draft(
    tmp_path: Path, time_to_stop: None, time_to_think: None, monkeypatch: pytest.MonkeyPatch, binding: str
) -> None:
    """With the setting off 1.1 is one of the later minors, like 1.2; with it on only callers of 1.1 see it."""
    set_timings(monkeypatch, working_delay=60.0)  # the same events on a slow machine
    for version in ("", "1.0", "1.2"):
        expected = await transcript(tmp_path, binding, version, offered=False)
        assert b"generation" not in b"".join(part for answer in expected for part in answer).lower()
        assert await transcript(tmp_path, binding, version, offered=True) == expected
    assert await transcript(tmp_path, binding, DRAFT, offered=False) == expected
    assert await transcript(tmp_path, binding, DRAFT, offered=True) != expected


DESCRIPTIONS = ["agent-card.json", "agent.json", "ai-catalog.json"]


@pytest.mark.parametrize("version", ["", "1.0", "0.3", "0.1"])
async def test_every_byte_of_a_description_is_as_without_the_draft(tmp_path: Path, version: str) -> None:
    pages: list[list[bytes]] = []
    for offered in (False, True):
        pages.append([])
        async with serving(tmp_path, str(offered), offered=offered) as connections:
            for path in (*(f"/.well-known/{name}" for name in DESCRIPTIONS), "/v1/card", "/openapi.json", "/agents"):
                async with connections.http.get(path, headers=headers_of(version)) as response:
                    assert response.status == 200
                    pages[-1] += [settled(head(response)), settled(await response.read())]
    assert pages[0] == pages[1]
