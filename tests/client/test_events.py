"""The result of a run, as programs print it."""

from __future__ import annotations

from dragoman.client import Result
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb


def test_the_representation_of_a_result_is_one_short_line() -> None:
    artifact = pb.Artifact(artifact_id="a", parts=[pb.Part(text="line\n" * 1000)])
    result = Result(pb.Task(id="t", status=pb.TaskStatus(state=pb.TASK_STATE_COMPLETED), artifacts=[artifact]))
    shown = repr(result)
    assert shown.startswith("Result(state='COMPLETED', task_id='t', text='line\\nline")
    assert shown.endswith("…')")
    assert len(shown) < 200
    assert "\n" not in shown


def test_a_short_text_is_shown_whole() -> None:
    reply = Result(message=pb.Message(parts=[pb.Part(text="hello")]))
    assert repr(reply) == "Result(state='COMPLETED', task_id='', text='hello')"
