"""What is stored of a failure: its bounds, its text in lists, and which failures are equal."""

from __future__ import annotations

from typing import Any

from dragoman.core.task.failures import MAX_TEXT_BYTES, TaskFailure, task_failure
from dragoman.core.task.projection import MAX_STATUS_TEXT
from dragoman_pb.dragoman.worker.v1 import worker_pb2 as wk
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb


def failure(
    text: str, *functions: str, kind: str = "ValueError", agent: str = "a", file: str = "/a/b.py"
) -> TaskFailure:
    frames = [{"file": file, "line": number, "function": name} for number, name in enumerate(functions, 1)]
    return task_failure(wk.Failure(type=kind, text=text, frames=frames).SerializeToString(), b"", agent, 1)


def test_failures_are_equal_by_agent_class_and_the_deepest_function_of_the_author() -> None:
    one = failure("order 7", "main", "pay").cause
    assert one == failure("anything", "other", "pay").cause
    assert one == failure("order 7", "main", "pay", file="/srv/b.py").cause
    others = (
        failure("order 7", "main"), failure("order 7", "pay", kind="KeyError"), failure("order 7", "pay", agent="b"),
        failure("order 7", "pay", file="/a/c.py"), failure("order 7"),
    )  # fmt: skip
    assert len({one, *(other.cause for other in others)}) == 6


def test_failures_without_frames_are_equal_apart_from_numbers() -> None:
    one = failure("task 0199f3c2-5c1e-7000-8000-3b1f0a52c0de: 17 of 20 failed").cause
    assert one == failure("task 7199f3c2-aa1e-7001-8fff-000f0a52c0de: 1 of 300 failed").cause
    assert one != failure("task 0199f3c2-5c1e-7000-8000-3b1f0a52c0de: 17 of 20 ended").cause


def test_a_failure_without_an_exception_is_the_reason_and_text_of_its_status() -> None:
    message = pb.Message(parts=[pb.Part(text="TIMED_OUT: The turn exceeded its time limit.")])
    message.metadata["reason"] = "TIMED_OUT"
    found = task_failure(b"", message.SerializeToString(), "a", 3)
    stored = wk.Failure.FromString(found.data)
    assert (stored.type, stored.text, stored.attempt) == ("TIMED_OUT", "The turn exceeded its time limit.", 3)
    assert found.text == "TIMED_OUT: The turn exceeded its time limit."
    assert task_failure(b"", b"", "a", 1).text == ""


def test_everything_that_a_worker_reports_is_bounded() -> None:
    frame = {"file": "f" * 9_000, "line": 1, "function": "g" * 9_000, "code": "c" * 9_000}
    huge: dict[str, Any] = {
        "type": "T" * 9_000, "text": "ä\n" * 9_000, "step": "s" * 9_000, "causes": ["x" * 9_000] * 90,
        "frames": [frame] * 90, "attempt": 99,
    }  # fmt: skip
    found = task_failure(wk.Failure(**huge).SerializeToString(), b"", "a", 2)
    stored = wk.Failure.FromString(found.data)
    assert len(found.data) < 30_000
    assert len(stored.text.encode()) <= MAX_TEXT_BYTES
    assert (len(stored.frames), len(stored.causes), stored.attempt) == (20, 4, 2)
    assert len(found.text) == MAX_STATUS_TEXT
    assert "\n" not in found.text


def test_the_deepest_frames_are_kept() -> None:
    found = failure("x", *(f"f{number}" for number in range(30)))
    assert wk.Failure.FromString(found.data).frames[-1].function == "f29"
