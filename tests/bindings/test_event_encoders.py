"""Events in every dialect: of streams, as results of JSON-RPC, and in webhook requests."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from google.protobuf import struct_pb2
from tests.runtime.push.receivers import Stamp

from dragoman.bindings import event_encoders
from dragoman.bindings.event_encoders import (
    DialectWebhookEncoder,
    EncodeEvent,
    EncodeResults,
    EventEncoder,
    StreamEncoders,
)
from dragoman.core.names import Owner
from dragoman.core.push.configuration import PushConfig
from dragoman.core.push.delivery import PushRecord
from dragoman.core.task.log import Event, TaskRef
from dragoman.core.task.plan import plan
from dragoman.security.secret_box import AesGcmSecretBox
from dragoman.testing.fixtures import SESSION, by_runner, chunk, created, new_ref
from dragoman.wire.dialects import Dialect
from dragoman_pb.a2a.v1 import a2a_pb2 as v03_pb
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

CURSOR = "0123abcd.4567cdef.2"
TASK = pb.Task(
    id="t-1",
    context_id="c-1",
    status=pb.TaskStatus(state=pb.TASK_STATE_CANCELED),
    history=[pb.Message(message_id="m", role=pb.ROLE_USER, parts=[pb.Part(text="hi")])],
    artifacts=[pb.Artifact(artifact_id="a", parts=[pb.Part(text="out")])],
)
UPDATE = pb.TaskStatusUpdateEvent(
    task_id="t-1", context_id="c-1", status=pb.TaskStatus(state=pb.TASK_STATE_INPUT_REQUIRED)
)
webhooks = DialectWebhookEncoder(Stamp(), AesGcmSecretBox())


def push(config: PushConfig) -> PushRecord:
    return PushRecord(task=TaskRef(Owner("p", "s"), b"t"), config=config, created=0, last_delivered=1, task_id="t-1")


def event(**payload: Any) -> Event:
    return Event(2, pb.StreamResponse(**payload).SerializeToString(), cursor=CURSOR)


async def body(dialect: Dialect, **payload: Any) -> Any:
    config = PushConfig(id="c", url="https://x", dialect=dialect.value)
    return json.loads((await webhooks.encode(push(config), event(**payload))).body)


@pytest.mark.parametrize("dialect", Dialect)
async def test_every_dialect_has_a_body(dialect: Dialect) -> None:
    payload: dict[str, Any] = {"task": TASK} if webhooks.sends_task(dialect.value) else {"status_update": UPDATE}
    assert await body(dialect, **payload)
    assert webhooks.sends_task(dialect.value) == (dialect in (Dialect.V03, Dialect.V01, Dialect.GOOGLE))


def test_an_unknown_dialect_is_an_error() -> None:
    with pytest.raises(ValueError, match="pigeon"):
        webhooks.sends_task("pigeon")


async def test_1_0_gets_stream_events() -> None:
    assert await body(Dialect.V1, status_update=UPDATE) == {
        "statusUpdate": {"taskId": "t-1", "contextId": "c-1", "status": {"state": "TASK_STATE_INPUT_REQUIRED"}}
    }
    assert (await body(Dialect.V1, task=TASK))["task"]["status"] == {"state": "TASK_STATE_CANCELED"}


async def test_fasta2a_and_a2a_rust_get_stream_events_in_their_format() -> None:
    update: dict[str, Any] = {"taskId": "t-1", "contextId": "c-1", "status": {"state": "input-required"}}
    assert await body(Dialect.FASTA2A, status_update=UPDATE) == {"statusUpdate": update}
    update["status"] = {"state": "TASK_STATE_INPUT_REQUIRED"}
    assert await body(Dialect.RUST, status_update=UPDATE) == {"statusUpdate": update}
    (part,) = (await body(Dialect.RUST, task=TASK))["task"]["artifacts"][0]["parts"]
    assert part == {"type": "text", "text": "out"}
    (part,) = (await body(Dialect.FASTA2A, task=TASK))["task"]["artifacts"][0]["parts"]
    assert part == {"text": "out"}


async def test_0_3_gets_the_task_with_its_kind() -> None:
    task = await body(Dialect.V03, task=TASK)
    assert (task["kind"], task["id"], task["contextId"]) == ("task", "t-1", "c-1")
    assert task["status"] == {"state": "canceled"}
    assert task["artifacts"] == [{"artifactId": "a", "parts": [{"kind": "text", "text": "out"}]}]
    assert task["history"][0]["kind"] == "message"


async def test_google_gets_the_task_of_its_package() -> None:
    task = await body(Dialect.GOOGLE, task=TASK)
    assert task["status"] == {"state": "TASK_STATE_CANCELLED"}
    assert task["history"][0]["content"] == [{"text": "hi"}]


async def test_0_1_gets_the_task_with_session_and_index() -> None:
    task = await body(Dialect.V01, task=TASK)
    assert (task["id"], task["sessionId"], task["status"]) == ("t-1", "c-1", {"state": "canceled"})
    assert task["artifacts"] == [{"parts": [{"type": "text", "text": "out"}], "index": 0}]


# Secrets and fields -------------------------------------------------------------------------------------------------


def test_secrets_are_encrypted_for_the_url_of_their_configuration() -> None:
    box = AesGcmSecretBox([bytes(32)])
    encoder = DialectWebhookEncoder(Stamp(), box)
    config = PushConfig(id="c", url="https://x", dialect="1.0", token="t0ken", credentials="s3cret", scheme="Bearer")
    stored = encoder.encrypt_secrets(config)
    assert "t0ken" not in stored.token
    assert (box.decrypt(stored.token, "https://x"), box.decrypt(stored.credentials, "https://x")) == ("t0ken", "s3cret")
    assert replace(stored, token=config.token, credentials=config.credentials) == config


@pytest.mark.parametrize(
    ("dialect", "own", "inline"),
    [
        ("1.0", "", "configuration.taskPushNotificationConfig."),
        ("0.3", "pushNotificationConfig.", "configuration.pushNotificationConfig."),
        ("0.1", "pushNotificationConfig.", "pushNotification."),
        ("google", "pushNotificationConfig.", "configuration.pushNotification."),
    ],
)
def test_errors_name_fields_of_a_configuration_as_its_dialect_has_them(dialect: str, own: str, inline: str) -> None:
    assert webhooks.field_prefix(dialect, inline=False) == own
    assert webhooks.field_prefix(dialect, inline=True) == inline


async def test_google_s_webhooks_have_the_bytes_of_files() -> None:
    task = pb.Task(id="t-1", artifacts=[pb.Artifact(artifact_id="a", parts=[pb.Part(raw=b"hi")])])
    (part,) = (await body(Dialect.GOOGLE, task=task))["artifacts"][0]["parts"]
    assert part["file"]["fileWithBytes"] == "aGk="


# Headers -----------------------------------------------------------------------------------------------------------


async def headers(dialect: Dialect = Dialect.V1, **config: str) -> dict[str, str]:
    push_config = PushConfig(id="c", url="https://x", dialect=dialect.value, **config)
    return dict((await webhooks.encode(push(push_config), event(task=TASK))).headers)


async def test_a_webhook_has_media_type_event_and_signature_headers() -> None:
    size = len((await webhooks.encode(push(PushConfig(id="c", url="https://x", dialect="1.0")), event(task=TASK))).body)
    assert await headers() == {
        "Content-Type": "application/json",
        "Dragoman-Event": CURSOR,
        "Dragoman-Signature": f"https://x t-1 {size}",
    }


@pytest.mark.parametrize("dialect", Dialect)
async def test_a_token_is_sent_in_the_header_of_its_dialect(dialect: Dialect) -> None:
    name = "a2a-notification-token" if dialect is Dialect.RUST else "X-A2A-Notification-Token"
    assert (await headers(dialect, token="secret"))[name] == "secret"


async def test_credentials_are_sent_with_their_scheme() -> None:
    sent = await headers(scheme="Bearer", credentials="abc", token="t")
    assert sent["Authorization"] == "Bearer abc"
    assert sent["X-A2A-Notification-Token"] == "t"


@pytest.mark.parametrize("scheme", ["Bearer", "bearer"])
async def test_bearer_without_credentials_sends_the_signature(scheme: str) -> None:
    sent = await headers(scheme=scheme)
    assert sent["Authorization"] == f"{scheme} {sent['Dragoman-Signature']}"


async def test_no_authorization_is_sent_without_scheme_or_credentials() -> None:
    assert "Authorization" not in await headers(scheme="Basic")
    assert "Authorization" not in await headers(credentials="abc")


async def test_webhooks_of_one_dialect_share_the_body() -> None:
    shared = event(task=TASK)
    first = await webhooks.encode(push(PushConfig(id="a", url="https://x", dialect="1.0", token="a")), shared)
    second = await webhooks.encode(push(PushConfig(id="b", url="https://y", dialect="1.0")), shared)
    assert first.body is second.body
    assert first.headers != second.headers


# Streams -----------------------------------------------------------------------------------------------------------

ENCODERS = {
    "1.0": event_encoders.V1_STREAM_ENCODERS,
    "0.3": event_encoders.V03_STREAM_ENCODERS,
    "0.3 base64": event_encoders.V03_BASE64_STREAM_ENCODERS,
    "a2a-rust": event_encoders.RUST_STREAM_ENCODERS,
}


@pytest.mark.parametrize("encoders", ENCODERS.values(), ids=ENCODERS)
def test_an_event_is_encoded_once_for_all_readers_of_a_format(encoders: StreamEncoders) -> None:
    shared = event(status_update=UPDATE)
    for encode in (encoders.sse, encoders.json):
        assert encode(shared, False) is encode(shared, False)
        assert encode(shared, True) is encode(shared, True)
    assert encoders.grpc(shared, True) is encoders.grpc(shared, True)


@pytest.mark.parametrize("encoders", ENCODERS.values(), ids=ENCODERS)
def test_an_sse_frame_has_the_cursor_as_id(encoders: StreamEncoders) -> None:
    assert encoders.sse(event(status_update=UPDATE), False).startswith(f"id: {CURSOR}\ndata: {{".encode())
    without_cursor = Event(2, pb.StreamResponse(status_update=UPDATE).SerializeToString())
    assert encoders.sse(without_cursor, False).startswith(b"data: {")


JSON_ENCODERS = {
    **{f"{name}, SSE": encoders.sse for name, encoders in ENCODERS.items()},
    **{f"{name}, JSON": encoders.json for name, encoders in ENCODERS.items()},
    **{
        name: partial(lambda results, *event: b"".join(results(*event)), getattr(event_encoders, name)())
        for name in (
            *("v1_results", "v03_results", "fasta2a_results", "rust_results"),
            *("shared_fasta2a_results", "shared_rust_results"),
        )
    },
}


METADATA = struct_pb2.Struct(fields={"text": struct_pb2.Value(string_value="text")}).SerializeToString()


@pytest.mark.parametrize("encode", JSON_ENCODERS.values(), ids=JSON_ENCODERS)
def test_a_text_chunk_from_memory_and_from_the_store_have_the_same_json(encode: EncodeEvent) -> None:
    first = plan(None, created(new_ref(), claim=SESSION), 0)
    texts = ["one", "", 'quoted "two"\n', "one", "\u2028 ☃ 😀", "}", "text"]
    changes = [
        *(chunk("a", text, append=number > 0) for number, text in enumerate(texts)),
        *(replace(chunk("b", text), last_chunk=True) for text in texts),
        *(replace(chunk("a", text), metadata=METADATA) for text in texts),
    ]
    events = plan(first.record, by_runner(first.outcome, *changes), 0).events
    assert sum(event.chunk is not None for event in events) == 3 * (len(texts) - 1)
    for event in events:
        stored = replace(event, encodings={}, chunk=None)
        assert encode(event, False) == encode(stored, False)
        assert encode(event, True) == encode(stored, True)


def test_a_text_chunk_is_encoded_once_for_all_of_its_artifact() -> None:
    parsed: list[pb.StreamResponse] = []

    def encode(response: pb.StreamResponse, final: bool) -> bytes:
        parsed.append(response)
        return b"{}"

    encoder = EventEncoder(encode)
    first = plan(None, created(new_ref(), claim=SESSION), 0)
    for event in plan(first.record, by_runner(first.outcome, *(chunk("a", str(n)) for n in range(9))), 0).events:
        encoder(event, False)
    assert len(parsed) == 1


def test_1_0_over_grpc_is_the_stored_bytes() -> None:
    stored = event(status_update=UPDATE)
    assert event_encoders.V1_STREAM_ENCODERS.grpc(stored, True) is stored.data


def test_0_3_marks_the_last_event_in_every_format() -> None:
    encoders = event_encoders.V03_STREAM_ENCODERS
    for is_last in (False, True):
        update = event(status_update=UPDATE)
        assert v03_pb.StreamResponse.FromString(encoders.grpc(update, is_last)).status_update.final is is_last
        assert json.loads(encoders.json(update, is_last))["statusUpdate"].get("final", False) is is_last
        frame = encoders.sse(update, is_last).decode()
        assert json.loads(frame.partition("data: ")[2])["statusUpdate"].get("final", False) is is_last


@pytest.mark.parametrize(("name", "sent"), [("0.3", b"hi"), ("0.3 base64", b"aGk=")])
def test_files_of_0_3_are_bytes_or_base64_text(name: str, sent: bytes) -> None:
    artifact = pb.Artifact(artifact_id="a", parts=[pb.Part(raw=b"hi")])
    update = event(artifact_update=pb.TaskArtifactUpdateEvent(task_id="t-1", artifact=artifact))
    read = v03_pb.StreamResponse.FromString(ENCODERS[name].grpc(update, False))
    assert read.artifact_update.artifact.parts[0].file.file_with_bytes == sent


def test_a2a_rust_gets_a_bare_event_within_a_json_rpc_response() -> None:
    frame = event_encoders.RUST_STREAM_ENCODERS.sse(event(status_update=UPDATE), False).decode()
    envelope = json.loads(frame.partition("data: ")[2])
    update = {"taskId": "t-1", "contextId": "c-1", "status": {"state": "TASK_STATE_INPUT_REQUIRED"}}
    assert envelope == {
        "jsonrpc": "2.0",
        "id": None,
        "result": {"statusUpdate": update},
        "statusUpdate": update,
    }


# Results of JSON-RPC ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("results", [event_encoders.v01_results, partial(event_encoders.v01_results, shared=True)])
def test_only_the_last_result_of_a_0_1_event_is_final(results: Callable[[], EncodeResults]) -> None:
    waiting = pb.Task.FromString(TASK.SerializeToString())
    waiting.status.state = pb.TASK_STATE_INPUT_REQUIRED
    artifact, status = map(json.loads, results()(event(task=waiting), True))
    assert "final" not in artifact
    assert (status["status"]["state"], status["final"]) == ("input-required", True)


@pytest.mark.parametrize("results", [event_encoders.v01_results, partial(event_encoders.v01_results, shared=True)])
def test_artifact_indexes_of_0_1_belong_to_one_stream(results: Callable[[], EncodeResults]) -> None:
    def chunk(id: str) -> Event:
        update = pb.TaskArtifactUpdateEvent(task_id="t-1", artifact=pb.Artifact(artifact_id=id))
        return event(artifact_update=update)

    first, second, shared = results(), results(), chunk("b")
    (only,) = map(json.loads, first(chunk("a"), False))
    assert only["artifact"]["index"] == 0
    assert [json.loads(encode(shared, False)[0])["artifact"]["index"] for encode in (first, second)] == [1, 0]


@pytest.mark.parametrize(
    ("results", "kind", "state"),
    [
        (event_encoders.v1_results, None, "TASK_STATE_INPUT_REQUIRED"),
        (event_encoders.rust_results, None, "TASK_STATE_INPUT_REQUIRED"),
        (event_encoders.fasta2a_results, None, "input-required"),
        (event_encoders.v03_results, "status-update", None),
        (event_encoders.shared_fasta2a_results, "status-update", "input-required"),
        (event_encoders.shared_rust_results, "status-update", "TASK_STATE_INPUT_REQUIRED"),
    ],
)
def test_a_result_has_the_wrapped_form_the_kind_or_both(
    results: Callable[[], EncodeResults], kind: str | None, state: str | None
) -> None:
    (result,) = map(json.loads, results()(event(status_update=UPDATE), True))
    assert result.get("kind") == kind
    assert result.get("statusUpdate", {}).get("status", {}).get("state") == state
    assert result.get("final") is (True if kind else None)


def test_a_stream_of_a_0_1_task_is_readable_for_0_3_and_only_its_last_event_is_final() -> None:
    results = event_encoders.v01_results(shared=True)

    def write(event: pb.StreamResponse, final: bool) -> list[Any]:
        return [json.loads(result) for result in results(Event(1, event.SerializeToString(), 2, False), final)]

    task = pb.Task.FromString(TASK.SerializeToString())
    task.status.state = pb.TASK_STATE_INPUT_REQUIRED
    artifact, status = write(pb.StreamResponse(task=task), True)
    assert (artifact["kind"], artifact["artifact"]["index"], artifact["artifact"]["artifactId"]) == (
        "artifact-update",
        0,
        "a",
    )
    assert (status["kind"], status["id"], status["taskId"], status["final"]) == ("status-update", "t-1", "t-1", True)
    assert write(pb.StreamResponse(status_update=UPDATE), False)[0]["final"] is False
