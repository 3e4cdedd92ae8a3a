"""HTTP and JSON for any service with `google.api.http` rules: the parts of Dragoman's own REST binding, without A2A.

Nothing here does I/O or knows a web framework: a request's method, path, query and parsed body go in, a message comes
out; a message goes in, the bytes of its JSON come out. What it takes is a service's descriptor, as generated code has
it, and nothing is generated for HTTP.

    from library_pb2 import DESCRIPTOR

    surface = Surface(DESCRIPTOR.services_by_name["Library"])     # once, at start: finds all mistakes of the rules
    found = surface.find("GET", "/v1/shelves/7/books/3")          # Found, or Refused
    request = found.request([("readMask", "title")])              # a GetBookRequest; raises InvalidParams
    body = found.answer(book)                                     # b'{"title":...}'

| names | what for | specification |
|---|---|---|
| `ServiceRoutes`, `Found`, `Binding`, `Refused` | all rules of services, ready to answer | google/api/http.proto |
| `rules`, `parse`, `Rule`, `Template`, `Variable`, `Wildcard`, `TemplateError` | the rules themselves | its grammar |
| `Routes`, `Match`, `Candidate` | from method and path to whatever serves them | "Path template syntax" |
| `Transcoder`, `ResponseEncoder`, `WHOLE` | path, query and body to a request; an answer to a body | "HTTP Transcoding" |
| `JsonDialect`, `Codec`, `codec` | messages in JSON, and other spellings that clients have | ProtoJSON format guide |
| `loads` | the JSON of a body, refused where two readers could understand it differently | RFC 8259 §4, §6; RFC 7493 |
| `http_status`, `error_body`, `invalid` | `google.rpc.Status` as HTTP status and body | AIP-193 |
| `frame`, `comment`, `KEEP_ALIVE`, `Event`, `EventParser` | server-sent events, both ways | WHATWG HTML §9.2 |
| `InvalidParams`, `Violation`, `ParseError`, `PayloadTooLarge` | what is raised | |

docs/how-to/transcoder.md says what is accepted, and where it departs from `json_format` and from grpc-gateway;
examples/transcoder serves a service with it. These names stay within a major version; the modules that they come from
may be cut anew.
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
