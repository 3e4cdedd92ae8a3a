"""HTTP and JSON for any service with `google.api.http` rules: the parts of Dragoman's own REST binding, without A2A.

It does no I/O and needs no web framework: a request's method, path, query and parsed body become a message, a message
becomes the bytes of its JSON. It works from a service's descriptor; no code is generated for HTTP.

    from library_pb2 import DESCRIPTOR

    routes = ServiceRoutes(DESCRIPTOR.services_by_name["Library"])   # once; reports all mistakes of the rules
    match = routes.find("GET", "/v1/shelves/7/books/3")              # MatchedBinding, or NoMatch
    request = match.request([("readMask", "title")])                 # a GetBookRequest; raises InvalidParams
    body = match.response(book)                                      # b'{"title":...}'

| names | what for | specification |
|---|---|---|
| `ServiceRoutes`, `MatchedBinding`, `Binding`, `NoMatch` | all rules of services | google/api/http.proto |
| `rules`, `parse`, `Rule`, `Template`, `Variable`, `Wildcard`, `TemplateError` | the rules themselves | its grammar |
| `Routes`, `Match`, `Candidate` | from method and path to a handler | "Path template syntax" |
| `Transcoder`, `ResponseEncoder`, `WHOLE_REQUEST` | JSON to request, response to JSON | "HTTP Transcoding" |
| `JsonDialect`, `Codec`, `codec` | messages in JSON, and the variants that clients send | ProtoJSON format guide |
| `loads` | the JSON of a body; ambiguous JSON is rejected | RFC 8259 §4, §6; RFC 7493 |
| `http_status`, `error_body`, `invalid_argument` | `google.rpc.Status` as HTTP status and body | AIP-193 |
| `frame`, `comment`, `KEEP_ALIVE`, `SseEvent`, `SseParser` | server-sent events, both directions | WHATWG HTML §9.2 |
| `InvalidParams`, `Violation`, `ParseError`, `PayloadTooLarge` | exceptions | |

docs/how-to/transcoder.md lists what is accepted, and the differences to `json_format` and grpc-gateway;
examples/transcoder serves a service with it. These names are stable within a major version; the modules that they
come from may change.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import orjson
from google.protobuf.any_pb2 import Any as AnyMessage
from google.rpc import code_pb2, error_details_pb2, status_pb2

from dragoman.core.errors import InvalidParams, ParseError, PayloadTooLarge, Violation
from dragoman.wire.http.httprule import Rule, Template, TemplateError, Variable, Wildcard, parse, rules
from dragoman.wire.http.routes import Binding, Candidate, Match, MatchedBinding, NoMatch, Routes, ServiceRoutes
from dragoman.wire.http.sse import KEEP_ALIVE, SseEvent, SseParser, comment, frame
from dragoman.wire.http.transcode import WHOLE_REQUEST, ResponseEncoder, Transcoder
from dragoman.wire.json.protojson import Codec, JsonDialect
from dragoman.wire.json.protojson import compile as codec
from dragoman.wire.json.request import loads

__all__ = [
    "ServiceRoutes", "MatchedBinding", "Binding", "NoMatch", "rules", "parse", "Rule", "Template", "Variable",
    "Wildcard", "TemplateError", "Routes", "Match", "Candidate", "Transcoder", "ResponseEncoder", "WHOLE_REQUEST",
    "JsonDialect", "Codec", "codec", "loads", "http_status", "error_body", "invalid_argument", "frame", "comment",
    "KEEP_ALIVE", "SseEvent", "SseParser", "InvalidParams", "Violation", "ParseError", "PayloadTooLarge",
]  # fmt: skip

HTTP_STATUS_BY_CODE: Final[Mapping[int, int]] = {
    code_pb2.OK: 200,
    code_pb2.CANCELLED: 499,
    code_pb2.UNKNOWN: 500,
    code_pb2.INVALID_ARGUMENT: 400,
    code_pb2.DEADLINE_EXCEEDED: 504,
    code_pb2.NOT_FOUND: 404,
    code_pb2.ALREADY_EXISTS: 409,
    code_pb2.PERMISSION_DENIED: 403,
    code_pb2.RESOURCE_EXHAUSTED: 429,
    code_pb2.FAILED_PRECONDITION: 400,  # not 412, which is for HTTP's conditional requests
    code_pb2.ABORTED: 409,
    code_pb2.OUT_OF_RANGE: 400,
    code_pb2.UNIMPLEMENTED: 501,
    code_pb2.INTERNAL: 500,
    code_pb2.UNAVAILABLE: 503,
    code_pb2.DATA_LOSS: 500,
    code_pb2.UNAUTHENTICATED: 401,
}
"""The HTTP status of each code, from google/rpc/code.proto."""

_ANY: Final = codec(AnyMessage, JsonDialect("google.rpc"))


def http_status(code: int) -> int:
    """The HTTP status of a `google.rpc.Code` (equal to the gRPC code); 500 if unknown."""
    return HTTP_STATUS_BY_CODE.get(code, 500)


def error_body(status: Any, *, http_code: int = 0) -> bytes:
    """The body for a failed request: `{"error": {"code", "message", "status", "details"}}`.

    `status` is a google.rpc.Status. `http_code` is the HTTP status if it differs from that of the code. Details of
    unknown types are omitted.
    """
    details = []
    for detail in status.details:
        try:
            details.append(_ANY.to_dict(detail))
        except ValueError:
            continue
    known = status.code in HTTP_STATUS_BY_CODE
    error: dict[str, Any] = {
        "code": http_code or http_status(status.code),
        "message": status.message,
        "status": code_pb2.Code.Name(status.code if known else code_pb2.UNKNOWN),
    }
    if details:
        error["details"] = details
    return orjson.dumps({"error": error})


def invalid_argument(error: InvalidParams | ParseError) -> Any:
    """The google.rpc.Status of an invalid request: INVALID_ARGUMENT, with BadRequest for the violations."""
    status = status_pb2.Status(code=code_pb2.INVALID_ARGUMENT, message=_clean(error.message))
    if isinstance(error, InvalidParams) and error.violations:
        bad = error_details_pb2.BadRequest()
        for violation in error.violations:
            bad.field_violations.add(field=_clean(violation.field), description=_clean(violation.description))
        status.details.add().Pack(bad)
    return status


def _clean(text: str) -> str:
    """Replaces lone surrogates, which quoted input can contain and protobuf rejects."""
    return text.encode(errors="replace").decode()
