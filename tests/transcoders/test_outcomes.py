"""Every way in which two outcomes can differ is seen, and named after what the request has."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest
from google.rpc import status_pb2
from tests.transcoders.cases import Case
from tests.transcoders.outcomes import Difference, Outcome, difference
from tests.transcoders.services import Service

from dragoman_pb.lf.a2a.v1 import a2a_pb2

RPC = "/lf.a2a.v1.A2AService/GetTask"
SERVICE = cast(Service, type("Fake", (), {"requests": {RPC: a2a_pb2.GetTaskRequest}}))
CASE = Case(0, "GET /tasks/{id}", RPC, "GET", "/tasks/a", "", None, "colon")
HERE = Outcome(200, RPC, a2a_pb2.GetTaskRequest(id="a").SerializeToString(), [{"id": "a"}])
FAILED = replace(CASE, failure=status_pb2.Status(code=5))


def test_equal_outcomes_do_not_differ() -> None:
    assert difference(SERVICE, CASE, HERE, replace(HERE, reason="another text")) is None
    assert difference(SERVICE, CASE, Outcome(400), Outcome(400, reason="why")) is None


@pytest.mark.parametrize(
    ("case", "change", "expected"),
    [
        (CASE, {"method": "", "status": 404}, Difference("colon", "accepted", "404")),
        (CASE, {"method": "/other"}, Difference("colon", "accepted", "another method")),
        (CASE, {"request": b""}, Difference("colon", "accepted", "another request")),
        (CASE, {"status": 201}, Difference("answer", "200", "201")),
        (CASE, {"answer": [{"id": "b"}]}, Difference("answer", "an answer", "another answer")),
        (FAILED, {"status": 500}, Difference("status NOT_FOUND", "200", "500")),
        (FAILED, {"answer": [5, "why", []]}, Difference("error", "an answer", "another answer")),
    ],
)
def test_a_difference_has_a_subject_and_both_sides(case: Case, change: dict[str, Any], expected: Difference) -> None:
    assert difference(SERVICE, case, HERE, replace(HERE, **change)) == expected


def test_a_request_that_only_we_reject_differs() -> None:
    assert difference(SERVICE, CASE, Outcome(400), HERE) == Difference("colon", "400", "accepted")
