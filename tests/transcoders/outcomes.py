"""What a case comes to: in our transcoder, and in the answer of a gateway. Both in one form, to be compared."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from google.protobuf import text_format
from google.protobuf.message import DecodeError
from google.rpc import code_pb2
from tests.transcoders.cases import Case
from tests.transcoders.services import Service
from yarl import URL

from dragoman.transcoding import (
    InvalidParams,
    NoMatch,
    ParseError,
    error_body,
    http_status,
    loads,
)

ACCEPTED: Final = "accepted"


@dataclass(frozen=True)
class Outcome:
    """The HTTP status of a request; if it reached the gRPC server, the method, the request and the answer."""

    status: int
    method: str = ""
    request: bytes = b""
    """Serialized in one order."""
    answer: object = None
    """JSON: a list of messages, or code, message and details of an error."""
    reason: str = ""
    """Why the request was rejected, for people."""

    @property
    def kind(self) -> str:
        """`accepted`, or the HTTP status of a rejection."""
        return ACCEPTED if self.method else str(self.status)


@dataclass(frozen=True)
class Difference:
    """How two outcomes of a case differ."""

    subject: str
    """The oddity of the request; `answer`, or `status CODE`, if only the answers differ."""
    here: str
    there: str


def ours(service: Service, case: Case) -> Outcome:
    """The outcome in our transcoder, used as examples/transcoder does."""
    try:
        found = service.routes.find(case.method, case.path)
        if isinstance(found, NoMatch):
            return Outcome(405 if found.allow else 404)
        body = loads(case.body) if case.body else None
        message: Any = found.request(URL(f"/?{case.query}", encoded=True).query.items(), body)
    except (InvalidParams, ParseError) as error:
        return Outcome(400, reason=str(error))
    request = message.SerializeToString(deterministic=True)
    if case.failure is not None:
        failed = json.loads(error_body(case.failure))["error"]
        answer = [case.failure.code, failed["message"], _details(failed)]
        return Outcome(http_status(case.failure.code), found.binding.rpc, request, answer)
    if found.binding.rpc != case.rpc:
        return Outcome(200, found.binding.rpc, request)  # the reply is of another type
    return Outcome(200, found.binding.rpc, request, [json.loads(found.response(reply)) for reply in case.replies])


def theirs(service: Service, case: Case, line: Mapping[str, Any]) -> Outcome:
    """The outcome of a gateway, from its answer as `judge send` prints it."""
    if line.get("error"):
        return Outcome(0, reason=line["error"])
    text = base64.b64decode(line["body"]).decode("utf-8", "replace")
    method = line["method"]
    if not method:
        return Outcome(line["status"], reason=text[:300])
    try:
        received = service.requests[method].FromString(base64.b64decode(line["received"]))
    except DecodeError as error:
        return Outcome(line["status"], method, reason=str(error))
    request = received.SerializeToString(deterministic=True)
    return Outcome(line["status"], method, request, _answer(case, text), text[:300])


def _answer(case: Case, text: str) -> object:
    try:
        if case.failure is None and text.startswith('{"result":'):
            return [json.loads(line)["result"] for line in text.splitlines() if line]
        value = json.loads(text)
    except (ValueError, KeyError):
        return text
    if case.failure is None:
        return value if case.is_stream and isinstance(value, list) else [value]
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if isinstance(value, dict):
        value = value.get("error", value)
        if isinstance(value, dict):
            return [value.get("code", 0), value.get("message", ""), _details(value)]
    return text


def _details(error: Mapping[str, Any]) -> object:
    return error.get("details", [])


def _equal(service: Service, here: Outcome, there: Outcome) -> bool:
    """Whether requests of different bytes have the same text: NaN has several forms."""
    read = service.requests[here.method].FromString
    return str(read(here.request)) == str(read(there.request))


def difference(service: Service, case: Case, here: Outcome, there: Outcome) -> Difference | None:
    """How the outcomes differ; None if they agree."""
    if not here.method or not there.method:
        if here.kind == there.kind:
            return None
        return Difference(case.oddity, here.kind, there.kind)
    if here.method != there.method:
        return Difference(case.oddity, ACCEPTED, "another method")
    if here.request != there.request and not _equal(service, here, there):
        return Difference(case.oddity, ACCEPTED, "another request")
    if here.method != case.rpc:
        return None
    if case.failure is not None:
        name = code_pb2.Code.Name(case.failure.code)
        if here.status != there.status:
            return Difference(f"status {name}", str(here.status), str(there.status))
        return None if here.answer == there.answer else Difference("error", "an answer", "another answer")
    if here.status != there.status:
        return Difference("answer", str(here.status), str(there.status))
    subject = "answer by response_body" if case.response_body else "answer"
    return None if here.answer == there.answer else Difference(subject, "an answer", "another answer")


def shown(service: Service, outcome: Outcome) -> str:
    """One line for people."""
    if not outcome.method:
        return f"{outcome.status} {outcome.reason}"
    message = service.requests[outcome.method].FromString(outcome.request)
    text = text_format.MessageToString(message, as_one_line=True, as_utf8=True)
    answer = json.dumps(outcome.answer, ensure_ascii=False)
    return f"{outcome.status} {outcome.method.rpartition('/')[2]} {text} -> {answer[:300]}"
