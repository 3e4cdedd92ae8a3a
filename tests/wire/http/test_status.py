"""google.rpc.Status over HTTP, against the mapping written in google/rpc/code.proto and AIP-193's example."""

from __future__ import annotations

import orjson
import pytest
from google.protobuf import any_pb2
from google.rpc import code_pb2, error_details_pb2, status_pb2

from dragoman.core.errors import InvalidParams, ParseError
from dragoman.wire.http import status


def test_every_code_has_its_http_status() -> None:
    assert set(status.HTTP_STATUS_BY_CODE) == set(code_pb2.Code.values())
    assert status.http_status(code_pb2.ABORTED) == 409
    assert status.http_status(4711) == 500


def test_the_body_is_that_of_aip_193() -> None:
    value = status_pb2.Status(code=code_pb2.RESOURCE_EXHAUSTED, message="The zone has no more.")
    info = error_details_pb2.ErrorInfo(reason="STOCKOUT", domain="compute.example.com", metadata={"zone": "a"})
    value.details.add().Pack(info)
    value.details.add().Pack(error_details_pb2.LocalizedMessage(locale="de", message="Nichts mehr da."))
    assert orjson.loads(status.error_body(value)) == {
        "error": {
            "code": 429,
            "message": "The zone has no more.",
            "status": "RESOURCE_EXHAUSTED",
            "details": [
                {
                    "@type": "type.googleapis.com/google.rpc.ErrorInfo",
                    "reason": "STOCKOUT",
                    "domain": "compute.example.com",
                    "metadata": {"zone": "a"},
                },
                {
                    "@type": "type.googleapis.com/google.rpc.LocalizedMessage",
                    "locale": "de",
                    "message": "Nichts mehr da.",
                },
            ],
        }
    }


def test_a_detail_of_an_unknown_type_is_left_out() -> None:
    value = status_pb2.Status(code=code_pb2.INTERNAL, message="x")
    value.details.append(any_pb2.Any(type_url="x/no.Such", value=b"x"))
    value.details.add().Pack(error_details_pb2.RetryInfo(retry_delay={"seconds": 2}))
    details = orjson.loads(status.error_body(value))["error"]["details"]
    assert details == [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "2s"}]


def test_an_unknown_code_is_unknown() -> None:
    assert orjson.loads(status.error_body(status_pb2.Status(code=99))) == {
        "error": {"code": 500, "message": "", "status": "UNKNOWN"}
    }


@pytest.mark.parametrize(
    ("error", "fields"),
    [
        (InvalidParams.field("book.title", "must be a string"), [("book.title", "must be a string")]),
        (InvalidParams("nothing fits"), []),
        (ParseError("no JSON"), []),
        (InvalidParams.field("\ud800", "\ud800"), [("?", "?")]),
    ],
)
def test_a_broken_rule_is_an_invalid_argument_with_its_fields(
    error: InvalidParams | ParseError, fields: list[tuple[str, str]]
) -> None:
    value = status.invalid_argument(error)
    assert value.code == code_pb2.INVALID_ARGUMENT
    found = []
    for detail in value.details:
        bad = error_details_pb2.BadRequest()
        assert detail.Unpack(bad)
        found += [(violation.field, violation.description) for violation in bad.field_violations]
    assert found == fields
