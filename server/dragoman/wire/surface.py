"""What services say of themselves over HTTP: all their `google.api.http` rules, ready to answer.

For a service whose requests need no more than its rules say. It takes the pieces that stand beside it (`httprule`,
`routes`, `transcode`, `protojson`), and does no I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from dragoman.wire import httprule
from dragoman.wire.httprule import Rule
from dragoman.wire.protojson import JsonDialect
from dragoman.wire.routes import Refused, Routes
from dragoman.wire.transcode import Answers, Transcoder


@dataclass(frozen=True, slots=True)
class Binding:
    """One rule of one method, with what reads its requests and writes its answers."""

    method: MethodDescriptor
    rule: Rule
    requests: Transcoder[Any]
    answers: Answers[Any]

    @property
    def rpc(self) -> str:
        """The path of the method over gRPC, `/package.Service/Method`."""
        return f"/{self.method.containing_service.full_name}/{self.method.name}"

    @property
    def answer_class(self) -> type[Message]:
        """The class of the method's answers, or of each answer of a stream."""
        return GetMessageClass(self.method.output_type)


@dataclass(frozen=True, slots=True)
class Found:
    """The binding that serves a request, with the values that its path binds."""

    binding: Binding
    variables: Mapping[str, str]

    def request(self, query: Iterable[tuple[str, str]] = (), body: object = None) -> Message:
        """The message of the request.

        `query` are the decoded pairs in their order, `body` the parsed JSON, None when there is none. Raises
        InvalidParams that names the field, the rule and the allowed values.
        """
        message: Message = self.binding.requests.request(self.variables, query, body)
        return message

    def answer(self, message: Message) -> bytes:
        """The JSON of an answer, or of one answer of a stream. Raises ValueError for what JSON cannot say."""
        return self.binding.answers.encode(message)


class Surface:
    """The HTTP surface of services, built once at start and only read afterwards: threads may share it."""

    def __init__(self, *services: ServiceDescriptor, dialect: JsonDialect | None = None) -> None:
        """`dialect` says how the messages are spelled; by default as ProtoJSON has it.

        Raises TemplateError for a rule that does not follow the grammar, and TypeError for one that names what its
        messages do not have, or for a type without a JSON codec: all mistakes are found here.
        """
        self.dialect = dialect or JsonDialect("ProtoJSON")
        self._routes: Routes[Binding] = Routes()
        for service in services:
            for method, rule in httprule.rules(service):
                self._routes.add(rule.http_method, rule.template, self._binding(method, rule))

    def _binding(self, method: MethodDescriptor, rule: Rule) -> Binding:
        request, answer = GetMessageClass(method.input_type), GetMessageClass(method.output_type)
        requests = Transcoder(request, self.dialect, body=rule.body)
        for variable in rule.template.variables:
            requests.check_variable(".".join(variable.field))
        return Binding(method, rule, requests, Answers(answer, self.dialect, response_body=rule.response_body))

    def find(self, http_method: str, path: str) -> Found | Refused:
        """What serves a request, or why nothing does.

        `path` is what stood in the request line, still percent-encoded, without the query. Of rules that fit equally
        the first in the order of the services and their methods serves. Raises InvalidParams for a value in the path
        that is not UTF-8.
        """
        match = self._routes.match(http_method, path)
        if isinstance(match, Refused):
            return match
        first = match.candidates[0]
        return Found(first.target, first.variables)
