"""The system parameters of Google's APIs, on resource paths (https://cloud.google.com/apis/docs/system-parameters).

| parameter | effect |
|---|---|
| `alt`, `$alt` | `json` or `sse`; `json;enum-encoding=int` writes enums as numbers |
| `fields`, `$fields` | response mask |
| `prettyPrint`, `$prettyPrint` | `true` indents JSON; events of an SSE stream stay on one line |
| `$.xgafv` | `1` adds the list `errors` of the first error format; `2` is the default |
| `key`, `access_token`, `oauth_token` | credentials |
| `quotaUser`, `uploadType`, `upload_protocol` | none: there are no quotas per user and no uploads |
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import orjson
from aiohttp import web
from google.protobuf.descriptor import Descriptor

from dragoman.bindings.event_encoders import EncodeEvent
from dragoman.bindings.http.connections import PlainRequest
from dragoman.bindings.pipeline import VERSION_HEADER
from dragoman.core.errors import InvalidParams
from dragoman.core.task.log import Event
from dragoman.wire.dialects import json_proto, v03
from dragoman.wire.http import sse
from dragoman.wire.http.partial_response import FieldMask
from dragoman.wire.json import protojson
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

ERROR_FORMAT_PARAMETER: Final = "$.xgafv"

_WITHOUT_EFFECT: Final = frozenset({"quotaUser", "uploadType", "upload_protocol", VERSION_HEADER})
_CREDENTIAL_HEADERS: Final = {"key": "X-API-Key", "access_token": "Authorization", "oauth_token": "Authorization"}
"""The header that a credential in the query stands for. The authenticator reads headers."""
_GOOGLE_KEY_HEADER: Final = "x-goog-api-key"
_NUMERIC_ENUMS: Final = "enum-encoding=int"
_BOOLEANS: Final = {"true": True, "1": True, "false": False, "0": False}


@dataclass(frozen=True, slots=True)
class ResponseFormat:
    """How a caller wants its response. Attributes are empty or false by default."""

    alt: str = ""  # `json` or `sse`
    has_numeric_enums: bool = False
    is_pretty: bool = False
    mask: FieldMask | None = None

    @property
    def is_default(self) -> bool:
        """Whether the response is written as without parameters, apart from the framing of a stream."""
        return not (self.has_numeric_enums or self.is_pretty or self.mask)

    def encode(self, message: Any) -> bytes:
        """The JSON of an `a2a.v1` message."""
        dialect = json_proto.PROTOJSON_GOOGLE_NUMBERS if self.has_numeric_enums else json_proto.PROTOJSON_V03
        return self.encode_value(protojson.compile(type(message), dialect).to_dict(message))

    def encode_value(self, value: Any) -> bytes:
        """The JSON of a response that is already a JSON value."""
        selected = self.mask.apply(value) if self.mask is not None else value
        return orjson.dumps(selected, option=orjson.OPT_INDENT_2 if self.is_pretty else 0)

    def stream_encoder(self, *, as_array: bool) -> EncodeEvent:
        """The encoder of a stream's elements. It does not cache: each caller may have another mask."""
        one_line = self if as_array else ResponseFormat(self.alt, self.has_numeric_enums, mask=self.mask)

        def encode(event: Event, is_last: bool) -> bytes:
            response = v03.write_stream(pb.StreamResponse.FromString(event.data), is_last=is_last)
            json = one_line.encode(response)
            return json if as_array else sse.frame(json, id=event.cursor or None)

        return encode


def read(
    query: Iterable[tuple[str, str]], response: Descriptor, *, streaming: bool
) -> tuple[ResponseFormat, list[tuple[str, str]]]:
    """Splits a query into the response format and the parameters of the method.

    `response`: the type of the response, or of each element of a stream. Raises InvalidParams.
    """
    given: dict[str, tuple[str, str]] = {}
    others: list[tuple[str, str]] = []
    for sent, text in query:
        name = sent.removeprefix("$") if sent != ERROR_FORMAT_PARAMETER else sent
        if name in _READERS:
            if given.setdefault(name, (sent, text))[1] != text:
                raise InvalidParams.field(sent, "is given more than once, with different values")
        elif name == "callback":
            raise InvalidParams.field(sent, "is not supported, because JSONP is not served; leave it out")
        elif sent not in _WITHOUT_EFFECT and name not in _CREDENTIAL_HEADERS:
            others.append((sent, text))
    values = {name: _READERS[name](sent, text) for name, (sent, text) in given.items()}
    alt, numeric = values.get("alt", ("", False))
    if alt == "sse" and not streaming:
        raise InvalidParams.field(given["alt"][0], "sse is for streams; use json")
    mask = None
    if "fields" in values:
        mask = FieldMask(values["fields"], response, json_proto.PROTOJSON_GOOGLE, parameter=given["fields"][0])
    return ResponseFormat(alt, numeric, values.get("prettyPrint", False), mask), others


def credential_headers(request: web.BaseRequest | PlainRequest) -> Iterator[tuple[str, str]]:
    """Yields the headers of a request, with credentials under the names that the authenticator reads."""
    for name, value in request.headers.items():
        yield ("X-API-Key" if name.lower() == _GOOGLE_KEY_HEADER else name), value
    for sent, value in request.query.items() if request.query_string else ():
        if header := _CREDENTIAL_HEADERS.get(sent.removeprefix("$")):
            yield header, f"Bearer {value}" if header == "Authorization" else value


def _read_alt(name: str, text: str) -> tuple[str, bool]:
    alt, _, option = text.partition(";")
    if alt not in ("json", "sse") or option not in ("", _NUMERIC_ENUMS):
        raise InvalidParams.field(name, f'must be json or sse, each also with ";{_NUMERIC_ENUMS}"')
    return alt, bool(option)


def _read_boolean(name: str, text: str) -> bool:
    value = _BOOLEANS.get(text.lower())
    if value is None:
        raise InvalidParams.field(name, "must be true or false")
    return value


def _read_error_format(name: str, text: str) -> str:
    if text not in ("1", "2"):
        raise InvalidParams.field(name, "must be 1 or 2")
    return text


_READERS: Final[dict[str, Any]] = {
    "alt": _read_alt,
    "fields": lambda name, text: text,
    "prettyPrint": _read_boolean,
    ERROR_FORMAT_PARAMETER: _read_error_format,
}
"""Readers of the parameters that have an effect, by name without `$`. They take the name as sent, for errors."""
