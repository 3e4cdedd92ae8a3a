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

from dragoman.core.errors import InvalidParams, ParseError, PayloadTooLarge, Violation
from dragoman.wire.body_scan import loads
from dragoman.wire.http.httprule import Rule, Template, TemplateError, Variable, Wildcard, parse, rules
from dragoman.wire.http.routes import Binding, Candidate, Match, MatchedBinding, NoMatch, Routes, ServiceRoutes
from dragoman.wire.http.sse import KEEP_ALIVE, SseEvent, SseParser, comment, frame
from dragoman.wire.http.status import error_body, http_status, invalid_argument
from dragoman.wire.http.transcode import WHOLE_REQUEST, ResponseEncoder, Transcoder
from dragoman.wire.json.protojson import Codec, JsonDialect
from dragoman.wire.json.protojson import compile as codec

__all__ = [
    "ServiceRoutes",
    "MatchedBinding",
    "Binding",
    "NoMatch",
    "rules",
    "parse",
    "Rule",
    "Template",
    "Variable",
    "Wildcard",
    "TemplateError",
    "Routes",
    "Match",
    "Candidate",
    "Transcoder",
    "ResponseEncoder",
    "WHOLE_REQUEST",
    "JsonDialect",
    "Codec",
    "codec",
    "loads",
    "http_status",
    "error_body",
    "invalid_argument",
    "frame",
    "comment",
    "KEEP_ALIVE",
    "SseEvent",
    "SseParser",
    "InvalidParams",
    "Violation",
    "ParseError",
    "PayloadTooLarge",
]
