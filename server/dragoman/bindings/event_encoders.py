"""Encoders of events for streams and webhooks; each event is encoded once per format."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

import orjson

from dragoman.core.push.configuration import PushConfig
from dragoman.core.push.delivery import PushRecord
from dragoman.core.task.log import Event
from dragoman.ports import SecretBox, WebhookRequest, WebhookRequestSigner
from dragoman.wire.dialects import Dialect, file_bytes, json_mixed, json_proto, json_v01, json_v03, v03
from dragoman.wire.http import sse
from dragoman.wire.json import protojson
from dragoman_pb.a2a.v1 import a2a_pb2 as v03_pb
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

_Encode = Callable[[pb.StreamResponse, bool], bytes]


_TEXT_MARK: Final = secrets.token_hex(16)
_QUOTED_MARK: Final = orjson.dumps(_TEXT_MARK)  # stands for the text of a chunk, and for nothing else in JSON


class EventEncoder:
    """Encodes events in one format, as SSE frames with the cursor as id if `framed`, and caches the result in them.

    In JSON only the first text chunk of an artifact is encoded and framed: the others differ in their text alone (0.5
    µs each in place of 4.3).
    """

    __slots__ = ("_encode", "_frame", "_is_json")

    def __init__(self, encode: _Encode, *, framed: bool = False, is_json: bool = True) -> None:
        self._encode = encode
        self._frame: Callable[[bytes], bytes] = sse.frame if framed else bytes
        self._is_json = is_json

    def __call__(self, event: Event, is_last: bool) -> bytes:
        """The encoded event. `is_last`: it is the last event of its stream, and the dialect marks it."""
        key = (self, is_last)
        data: bytes | None = event.encodings.get(key)
        if data is None:
            if self._is_json and event.chunk is not None:
                template, text = event.chunk
                pieces = template.encodings.get(key)
                if pieces is None:
                    response = pb.StreamResponse.FromString(event.data)
                    response.artifact_update.artifact.parts[0].text = _TEXT_MARK
                    pieces = template.encodings[key] = self._frame(self._encode(response, is_last)).split(_QUOTED_MARK)
                data = orjson.dumps(text).join(pieces)
            else:
                data = self._frame(self._encode(pb.StreamResponse.FromString(event.data), is_last))
            if event.cursor and self._frame is not bytes:  # a cursor has no line breaks
                data = b"id: %b\n%b" % (event.cursor.encode(), data)
            event.encodings[key] = data
        return data


EncodeEvent = Callable[[Event, bool], bytes]  # encodes an event, given whether it is the last, as bytes of a stream


def stored_bytes(event: Event, is_last: bool) -> bytes:
    """The encoding of 1.0 over gRPC: the stored bytes."""
    return event.data


@dataclass(frozen=True, slots=True)
class StreamEncoders:
    """Encoders of one dialect: for gRPC, SSE frames, and elements of a JSON array."""

    grpc: EncodeEvent
    sse: EncodeEvent
    json: EncodeEvent


_V1_JSON: Final = protojson.compile(pb.StreamResponse, json_proto.PROTOJSON_V1)
_V03_JSON: Final = protojson.compile(v03_pb.StreamResponse, json_proto.PROTOJSON_V03)
_FASTA2A_JSON: Final = protojson.compile(pb.StreamResponse, json_mixed.JSON_FASTA2A)
_RUST_JSON: Final = protojson.compile(pb.StreamResponse, json_mixed.JSON_RUST)


def _stream_encoders(json: _Encode, grpc: EncodeEvent = stored_bytes) -> StreamEncoders:
    return StreamEncoders(grpc, EventEncoder(json, framed=True), EventEncoder(json))


def _v03_encoders(write: Callable[[pb.StreamResponse, bool], v03_pb.StreamResponse]) -> StreamEncoders:
    return _stream_encoders(
        lambda event, final: _V03_JSON.encode(write(event, final)),
        EventEncoder(lambda event, final: write(event, final).SerializeToString(), is_json=False),
    )


def _v03_base64(event: pb.StreamResponse, final: bool) -> v03_pb.StreamResponse:
    file_bytes.write_base64(event)
    return v03.write_stream(event, is_last=final)


def _rust_envelope(event: pb.StreamResponse, final: bool) -> bytes:
    """An event for both readers of a2a-rust 0.3: its client expects JSON-RPC responses over REST, its documentation
    shows bare events. Each ignores the other's keys."""
    response = _RUST_JSON.to_dict(event)
    return orjson.dumps({"jsonrpc": "2.0", "id": None, "result": response, **response})


V1_STREAM_ENCODERS: Final = _stream_encoders(lambda event, final: _V1_JSON.encode(event))
V03_STREAM_ENCODERS: Final = _v03_encoders(lambda event, final: v03.write_stream(event, is_last=final))
V03_BASE64_STREAM_ENCODERS: Final = _v03_encoders(_v03_base64)  # for clients with base64 text in `file_with_bytes`
RUST_STREAM_ENCODERS: Final = replace(
    _stream_encoders(lambda event, final: _RUST_JSON.encode(event)), sse=EventEncoder(_rust_envelope, framed=True)
)

# JSON-RPC --------------------------------------------------------------------------------------------------


class EncodeResults(Protocol):
    """Encodes an event in one or more JSON-RPC results. `final`: it is the last event, and the dialect marks it."""

    def __call__(self, event: Event, final: bool) -> Sequence[bytes]: ...


def _single_result(encode: EncodeEvent) -> Callable[[], EncodeResults]:
    def results(event: Event, final: bool) -> Sequence[bytes]:
        return (encode(event, final),)

    return lambda: results  # a factory, as of dialects whose streams keep a state


def v01_results(*, shared: bool = False) -> EncodeResults:
    """The encoder of one 0.1 stream: its results depend on earlier events, so they are not cached.

    `shared`: in a form that 0.3 clients also parse. No dialect needs a Task in this stream.
    """
    stream = json_v01.V01StreamWriter()

    def encode(update: pb.StreamResponse, final: bool) -> bytes:
        value = stream.write(update, final)
        return orjson.dumps(json_mixed.merge(value, json_v03.write_event(update, final)) if shared else value)

    def results(event: Event, final: bool) -> Sequence[bytes]:
        *others, last = json_v01.to_updates(pb.StreamResponse.FromString(event.data))
        return [*(encode(update, False) for update in others), encode(last, final)]

    return results


shared_fasta2a_results: Final = _single_result(
    EventEncoder(lambda event, final: orjson.dumps(json_mixed.write_fasta2a_event(event, final)))
)
shared_rust_results: Final = _single_result(
    EventEncoder(lambda event, final: orjson.dumps(json_mixed.write_rust_event(event, final)))
)
v1_results: Final = _single_result(V1_STREAM_ENCODERS.json)
v03_results: Final = _single_result(EventEncoder(lambda event, final: orjson.dumps(json_v03.write_event(event, final))))
fasta2a_results: Final = _single_result(EventEncoder(lambda event, final: _FASTA2A_JSON.encode(event)))
rust_results: Final = _single_result(RUST_STREAM_ENCODERS.json)

WEBHOOK_EVENT_HEADER: Final = "Dragoman-Event"  # the event's cursor: retries repeat it, a stream resumes after it

WEBHOOK_SIGNATURE_HEADER: Final = "Dragoman-Signature"
"""A JWT that proves the sender. It is also the bearer token of configurations that ask for one without naming it."""


@dataclass(frozen=True, slots=True)
class _WebhookFormat:
    """Webhooks of a dialect. `inline_prefix`, `field_prefix`: where errors find a configuration, in a send or alone."""

    encode_body: Callable[[pb.StreamResponse], bytes]
    inline_prefix: str = "configuration.taskPushNotificationConfig."
    token_header: str = "X-A2A-Notification-Token"
    sends_task: bool = False
    field_prefix: str = ""


def _task_format(encode_task: Callable[[pb.Task], bytes], inline_prefix: str) -> _WebhookFormat:
    """The format of a dialect before 1.0, which sends whole tasks."""
    return _WebhookFormat(
        lambda event: encode_task(event.task), inline_prefix, sends_task=True, field_prefix="pushNotificationConfig."
    )


_V01_TASK_JSON: Final = protojson.compile(pb.Task, json_v01.JSON_V01)
_V03_TASK_JSON: Final = protojson.compile(pb.Task, json_v03.JSON_V03)
_GOOGLE_TASK_JSON: Final = protojson.compile(v03_pb.Task, json_proto.PROTOJSON_V03)

_WEBHOOK_FORMATS: Final = {
    Dialect.V1: _WebhookFormat(_V1_JSON.encode),
    Dialect.FASTA2A: _WebhookFormat(_FASTA2A_JSON.encode),
    Dialect.RUST: _WebhookFormat(_RUST_JSON.encode, token_header="a2a-notification-token"),
    Dialect.V03: _task_format(_V03_TASK_JSON.encode, "configuration.pushNotificationConfig."),
    Dialect.GOOGLE: _task_format(
        lambda task: _GOOGLE_TASK_JSON.encode(v03.convert(task, v03_pb.Task())), "configuration.pushNotification."
    ),
    Dialect.V01: _task_format(_V01_TASK_JSON.encode, "pushNotification."),
}


class DialectWebhookEncoder:
    """Implements `dragoman.ports.WebhookEncoder`. An event is encoded once per dialect for all receivers."""

    def __init__(self, signer: WebhookRequestSigner, secret_box: SecretBox) -> None:
        self._signer = signer
        self._secret_box = secret_box

    def sends_task(self, dialect: str) -> bool:
        return _WEBHOOK_FORMATS[Dialect(dialect)].sends_task

    def field_prefix(self, dialect: str, *, inline: bool) -> str:
        webhook_format = _WEBHOOK_FORMATS[Dialect(dialect)]
        return webhook_format.inline_prefix if inline else webhook_format.field_prefix

    def encrypt_secrets(self, config: PushConfig) -> PushConfig:
        encrypt, url = self._secret_box.encrypt, config.url
        return replace(config, token=encrypt(config.token, url), credentials=encrypt(config.credentials, url))

    def reveal_token(self, config: PushConfig) -> str:
        try:
            return self._secret_box.decrypt(config.token, config.url)
        except ValueError:
            return ""

    async def encode(self, record: PushRecord, event: Event) -> WebhookRequest:
        config = record.config
        webhook_format = _WEBHOOK_FORMATS[Dialect(config.dialect)]
        body: bytes | None = event.encodings.get(webhook_format)
        if body is None:
            body = webhook_format.encode_body(pb.StreamResponse.FromString(event.data))
            event.encodings[webhook_format] = body
        token, credentials = (
            self._secret_box.decrypt(secret, config.url) for secret in (config.token, config.credentials)
        )
        signature = await self._signer.sign(config.url, record.task_id, config.id, event.cursor, body)
        headers = {
            "Content-Type": "application/json",
            WEBHOOK_EVENT_HEADER: event.cursor,
            WEBHOOK_SIGNATURE_HEADER: signature,
        }
        if token:
            headers[webhook_format.token_header] = token
        scheme = config.preferred_scheme
        if scheme and credentials:
            headers["Authorization"] = f"{scheme} {credentials}"
        elif scheme.lower() == "bearer":
            headers["Authorization"] = f"{scheme} {signature}"
        return WebhookRequest(headers, body)
