"""Recordings: what of a task they keep, as JSON that can be read, compared and sent again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.testing.agents import office

from dragoman import types
from dragoman.testing import Recording, record, run
from dragoman.testing.kit.recording import (
    MAX_READABLE_BYTES,
    clean_json,
    joined,
    make_cleaner,
    parts_as_json,
    parts_from_json,
    recording_of_export,
    send_arguments,
)
from dragoman_pb.dragoman.ops.v1 import ops_pb2 as ops
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

UUID = "01a1fb2a-bd29-7b48-8221-ff7b0dc19d30"


def test_a_file_without_a_recording_is_rejected(tmp_path: Path) -> None:
    for text, why in (("{", "is not JSON"), ("[]", "is not a recording"), ('{"recording": 2}', "must be 1")):
        (tmp_path / "case.json").write_text(text)
        with pytest.raises(ValueError, match=why):
            Recording.read(tmp_path / "case.json")


def test_a_plain_run_can_be_recorded() -> None:
    assert record(run(office, "a table")).turns[0]["says"] == "On which day?"


def test_a_recording_is_read_as_it_was_written(tmp_path: Path) -> None:
    recording = Recording("desk", [{"send": {"parts": [{"text": "ü"}]}, "state": "COMPLETED"}])
    recording.write(tmp_path / "case.json")
    assert Recording.read(tmp_path / "case.json") == recording
    assert '"ü"' in (tmp_path / "case.json").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        (f"task {UUID}", "task <id>"),
        (f"task {UUID.replace('-', '')}!", "task <id>!"),
        ("id-12 and id-x", "<id> and id-x"),
        ("at 2026-01-01T00:00:00Z", "at <time>"),
        ("at 2026-01-01 00:00:00.118+01:00", "at <time>"),
        ("on 2026-01-01", "on 2026-01-01"),
        ("t-1 of c-1", "<task> of c-1"),
    ],
)
def test_ids_and_times_become_placeholders(text: str, cleaned: str) -> None:
    clean = make_cleaner([("t-1", "<task>"), ("", "<context>")])
    assert clean(text) == cleaned
    assert clean_json({text: [text, 1, None]}, clean) == {cleaned: [cleaned, 1, None]}


PARTS = [
    types.text("two\nlines"),
    types.text("noted", metadata={"m": 1}),
    types.data({"n": [1]}),
    types.data(None),
    types.file("a,b\n", name="a.csv", media_type="text/csv"),
    types.file(b"\xff\x00", name="a.bin", media_type="application/octet-stream"),
    types.file(b"\xff\x00", name="broken.txt", media_type="text/plain"),
    types.link("https://example.com/x", name="x"),
]


def test_parts_that_are_sent_again_are_unchanged() -> None:
    assert parts_from_json(parts_as_json(PARTS, str, with_bytes=True)) == PARTS


def test_a_text_file_is_readable_up_to_a_size_and_others_have_a_digest() -> None:
    files = [
        types.file("x" * size, name="a.txt", media_type="text/plain")
        for size in (MAX_READABLE_BYTES, MAX_READABLE_BYTES + 1)
    ]
    short, long = parts_as_json(files, str, with_bytes=False)
    assert short["text"] == "x" * MAX_READABLE_BYTES
    assert (long["bytes"], len(long["sha256"])) == (MAX_READABLE_BYTES + 1, 64)
    assert "text" not in long


def test_adjacent_plain_texts_are_joined() -> None:
    parts = [pb.Part(text="a"), pb.Part(text="b"), pb.Part(text="c", media_type="text/x"), pb.Part(text="d")]
    assert [part.text for part in joined(parts)] == ["ab", "c", "d"]
    assert parts[0].text == "a"


def test_a_recorded_message_is_sent_with_all_its_fields() -> None:
    entry: dict[str, Any] = {
        "parts": [{"text": ["a", "b"]}],
        "extensions": ["urn:x"],
        "metadata": {"m": 1},
        "requestMetadata": {"r": 2},
        "acceptedOutputModes": ["text/plain"],
    }
    sent = send_arguments(entry)
    assert (sent["metadata"], sent["accepts"]) == ({"r": 2}, ["text/plain"])
    message = sent["message"]
    assert (message.role, message.parts[0].text, list(message.extensions)) == (pb.ROLE_USER, "a\nb", ["urn:x"])
    assert dict(message.metadata) == {"m": 1}
    assert send_arguments({"parts": []}) == {"message": pb.Message(role=pb.ROLE_USER), "metadata": None, "accepts": ()}


def exported(first: int = 1) -> list[ops.ExportTaskResponse]:
    """The export of a task with one message, one chunk and its end."""
    message = pb.Message(message_id="m", role=pb.ROLE_USER, parts=[pb.Part(text="hi")])
    task = pb.Task(id=UUID, context_id="c", status=pb.TaskStatus(state=pb.TASK_STATE_SUBMITTED))
    artifact = pb.Artifact(artifact_id="output", parts=[pb.Part(text=f"hello from {UUID}")])
    events = [
        pb.StreamResponse(task=task),
        pb.StreamResponse(artifact_update=pb.TaskArtifactUpdateEvent(task_id=UUID, artifact=artifact)),
        pb.StreamResponse(
            status_update=pb.TaskStatusUpdateEvent(task_id=UUID, status=pb.TaskStatus(state=pb.TASK_STATE_COMPLETED))
        ),
    ]
    sent = ops.ExportTaskResponse()
    sent.message.number = 1
    sent.message.message.CopyFrom(message)
    sent.message.metadata.update({"r": 2})
    sent.message.accepted_output_modes.append("text/plain")
    entries = [ops.ExportTaskResponse(), ops.ExportTaskResponse(task=task)]
    entries[0].header.agent = "desk"
    for sequence, event in enumerate(events, first):
        entry = ops.ExportTaskResponse()
        entry.event.sequence = sequence
        entry.event.event.CopyFrom(event)
        entries.append(entry)
    return [*entries, sent]


def test_an_export_becomes_a_recording_with_the_request_of_each_message() -> None:
    assert recording_of_export(exported()) == Recording(
        "desk",
        [
            {
                "send": {
                    "parts": [{"text": "hi"}],
                    "requestMetadata": {"r": 2},
                    "acceptedOutputModes": ["text/plain"],
                },
                "state": "COMPLETED",
                "artifacts": {"output": {"parts": [{"text": "hello from <task>"}]}},
            }
        ],
    )


def test_an_export_without_its_first_events_is_rejected() -> None:
    with pytest.raises(ValueError, match=f"task {UUID}: its log was truncated"):
        recording_of_export(exported(first=2))
