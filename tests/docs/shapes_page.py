"""`make protocol-pages`: writes docs/reference/protocol/shapes.md: examples in every dialect, from the codecs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from dragoman.bindings import event_encoders
from dragoman.core.task.log import Event
from dragoman.wire import client_operations
from dragoman.wire.dialects import json_mixed, json_proto, json_v01, json_v03, v03
from dragoman.wire.json import protojson
from dragoman_pb.a2a.v1 import a2a_pb2 as v03_pb
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

PAGE: Final = Path(__file__).parents[2] / "docs" / "reference" / "protocol" / "shapes.md"

BEGIN: Final = "<!-- shapes: begin -->\n"
END: Final = "<!-- shapes: end -->"

TITLES: Final = {
    "1.0": "1.0",
    "a2a.v1": "0.3 REST, Google (and gRPC, as a message)",
    "0.3": "0.2 and 0.3 JSON-RPC",
    "0.1": "0.1",
    "fasta2a": "fasta2a 2.x",
    "a2a-rust": "a2a-rust 0.3",
}

REQUESTED: Final = pb.Message(
    message_id="m-1", context_id="c-1", task_id="t-1", role=pb.ROLE_USER, parts=[pb.Part(text="hello")]
)


def _task() -> pb.Task:
    message = pb.Message(message_id="m-2", context_id="c-1", task_id="t-1", role=pb.ROLE_AGENT)
    message.parts.add(text="done")
    status = pb.TaskStatus(state=pb.TASK_STATE_COMPLETED, message=message)
    status.timestamp.FromJsonString("2026-11-21T12:00:00.123Z")
    artifact = pb.Artifact(artifact_id="output", name="output")
    artifact.parts.add(text="hi")
    artifact.parts.add(raw=b"a,b\n", filename="out.csv", media_type="text/csv")
    artifact.parts.add(url="https://files.example/x.pdf", media_type="application/pdf")
    artifact.parts.add().data.struct_value.update({"rows": 2.0})
    artifact.parts.add().data.number_value = 5
    return pb.Task(id="t-1", context_id="c-1", status=status, artifacts=[artifact], history=[REQUESTED])


TASK: Final = _task()
SEND: Final = pb.SendMessageRequest(
    message=pb.Message(message_id="m-1", context_id="c-1", role=pb.ROLE_USER, parts=[pb.Part(text="hello")]),
    configuration=pb.SendMessageConfiguration(accepted_output_modes=["text/plain"], return_immediately=True),
)
WEBHOOK: Final = pb.TaskPushNotificationConfig(
    id="h-1", task_id="t-1", url="https://client.example/hook", token="t0ken",
    authentication=pb.AuthenticationInfo(scheme="Bearer", credentials="s3cret"),
)  # fmt: skip
CHUNK: Final = pb.StreamResponse(
    artifact_update=pb.TaskArtifactUpdateEvent(
        task_id="t-1",
        context_id="c-1",
        artifact=pb.Artifact(artifact_id="output", parts=[pb.Part(text="more")]),
        append=True,
    )
)
STATUS: Final = pb.StreamResponse(
    status_update=pb.TaskStatusUpdateEvent(
        task_id="t-1", context_id="c-1", status=pb.TaskStatus(state=pb.TASK_STATE_INPUT_REQUIRED)
    )
)


def _by(dialect: protojson.JsonDialect, message: Any) -> Any:
    codec: protojson.Codec[Any] = protojson.compile(type(message), dialect)
    return codec.to_dict(message)


def task(dialect: str) -> Any:
    match dialect:
        case "a2a.v1":
            return _by(json_proto.PROTOJSON_V03, v03.convert(TASK, v03_pb.Task()))
        case "0.1":
            return _by(json_v01.JSON_V01, TASK)
    return _by(FLAT[dialect], TASK)


def send(dialect: str) -> Any:
    match dialect:
        case "1.0" | "0.3":
            return client_operations.JSONRPC_OPERATIONS[dialect]["SendMessage"].encode_request(SEND)
        case "a2a.v1":
            return client_operations.rest_call("0.3", "SendMessage", SEND).body
        case "0.1":
            named = pb.SendMessageRequest()
            named.CopyFrom(SEND)
            named.message.task_id = "t-1"
            return _by(json_v01.JSON_V01, named)
    return _by(FLAT[dialect], SEND)


def webhook(dialect: str) -> Any:
    match dialect:
        case "a2a.v1":
            return _by(json_proto.PROTOJSON_V03, v03.write_push_config(WEBHOOK))
        case "0.1":
            return _by(json_v01.JSON_V01, WEBHOOK)
    return _by(FLAT[dialect], WEBHOOK)


def event(of: pb.StreamResponse) -> Callable[[str], Any]:
    """Returns an event as the last one of a send stream."""

    def response(dialect: str) -> Any:
        written = Event(7, of.SerializeToString())
        if dialect == "a2a.v1":
            return json.loads(event_encoders.V03_STREAM_ENCODERS.json(written, True))
        results: Any = getattr(event_encoders, RESULTS[dialect])()
        return json.loads(results(written, True)[-1])

    return response


FLAT: Final = {
    "1.0": json_proto.PROTOJSON_V1,
    "0.3": json_v03.JSON_V03,
    "fasta2a": json_mixed.JSON_FASTA2A,
    "a2a-rust": json_mixed.JSON_RUST,
}
RESULTS: Final = {
    "1.0": "v1_results",
    "0.3": "v03_results",
    "0.1": "v01_results",
    "fasta2a": "fasta2a_results",
    "a2a-rust": "rust_results",
}
EXAMPLES: Final[dict[str, tuple[str, Callable[[str], Any]]]] = {
    "A send that does not wait": (
        "`params` of JSON-RPC, the body of REST. 0.1 has the task's id, and no field for not waiting.",
        send,
    ),
    "A task": ("With all kinds of parts: text, bytes, a link, an object, a number.", task),
    "An event: a chunk of an artifact": ("`result` of JSON-RPC, `data:` of REST.", event(CHUNK)),
    "An event: the status with which a send's stream ends": ("", event(STATUS)),
    "A webhook": ("As sent by the client; responses have neither token nor credentials.", webhook),
}


def lines(value: dict[str, Any]) -> Iterator[str]:
    """JSON with one line per member."""
    yield "{"
    last = len(value) - 1
    for index, (key, item) in enumerate(value.items()):
        text = json.dumps(item, ensure_ascii=False)
        yield f"  {json.dumps(key)}: {text}{',' if index < last else ''}"
    yield "}"


def shapes() -> str:
    texts = []
    for title, (about, write) in EXAMPLES.items():
        texts.append(f"## {title}\n\n" + (f"{about}\n\n" if about else ""))
        for dialect, name in TITLES.items():
            text = "\n".join(lines(write(dialect)))
            texts.append(f"{name}:\n\n```json\n{text}\n```\n\n")
    return "".join(texts)


def page(text: str) -> str:
    """Returns the page with the current blocks."""
    before, rest = text.split(BEGIN)
    return f"{before}{BEGIN}\n{shapes()}{END}{rest.split(END, 1)[1]}"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text("utf-8")), "utf-8")
