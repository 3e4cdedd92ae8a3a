"""Routes of complete services, and errors in their rules at start."""

from __future__ import annotations

from typing import Any

import pytest
from google.api import annotations_pb2, http_pb2
from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.descriptor import ServiceDescriptor

from dragoman.core.errors import InvalidParams
from dragoman.wire.http.httprule import TemplateError
from dragoman.wire.http.routes import MatchedBinding, NoMatch, ServiceRoutes

Field = descriptor_pb2.FieldDescriptorProto


def service(**rules: dict[str, Any] | None) -> ServiceDescriptor:
    """A service with a method for each rule (None for no rule). Requests and responses are of type Thing."""
    file = descriptor_pb2.FileDescriptorProto(name="things.proto", package="things", syntax="proto3")
    file.dependency.extend(["google/api/annotations.proto"])
    thing = file.message_type.add(name="Thing")
    thing.field.add(name="name", number=1, type=Field.TYPE_STRING, label=Field.LABEL_OPTIONAL)
    thing.field.add(name="tags", number=2, type=Field.TYPE_STRING, label=Field.LABEL_REPEATED)
    thing.field.add(
        name="part", number=3, type=Field.TYPE_MESSAGE, type_name=".things.Thing", label=Field.LABEL_OPTIONAL
    )
    things = file.service.add(name="Things")
    for name, rule in rules.items():
        method = things.method.add(name=name, input_type=".things.Thing", output_type=".things.Thing")
        if rule is not None:
            method.options.Extensions[annotations_pb2.http].CopyFrom(http_pb2.HttpRule(**rule))
    pool = descriptor_pool.DescriptorPool()
    for module in (descriptor_pb2, http_pb2, annotations_pb2):
        pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
    pool.AddSerializedFile(file.SerializeToString())
    return pool.FindServiceByName("things.Things")


def found(surface: ServiceRoutes, http_method: str, path: str) -> MatchedBinding:
    match = surface.find(http_method, path)
    assert isinstance(match, MatchedBinding)
    return match


def test_requests_decode_to_messages_and_responses_encode_to_json() -> None:
    surface = ServiceRoutes(service(Put={"put": "/v1/{part.name=things/*}", "body": "part", "response_body": "part"}))
    put = found(surface, "PUT", "/v1/things/7")
    assert put.binding.rpc == "/things.Things/Put"
    request: Any = put.request([("tags", "a"), ("tags", "b")], {"tags": ["c"], "name": "x"})
    assert request.part.name == "things/7"
    assert (list(request.tags), list(request.part.tags)) == (["a", "b"], ["c"])
    assert put.binding.response_class is type(request)
    assert put.response(request) == b'{"name":"things/7","tags":["c"]}'


def test_a_rule_for_any_method_is_the_fallback() -> None:
    surface = ServiceRoutes(
        service(
            Any={"custom": {"kind": "*", "path": "/v1/{name=things/*}"}},
            Get={"get": "/v1/{name=things/*}"},
            Report={"custom": {"kind": "REPORT", "path": "/v1/{name=things/*}"}},
        )
    )
    names = {kind: found(surface, kind, "/v1/things/7").binding.method.name for kind in ("GET", "REPORT", "LOCK")}
    assert names == {"GET": "Get", "REPORT": "Report", "LOCK": "Any"}


def test_the_first_of_equal_rules_is_used() -> None:
    rule = {"get": "/v1/{name=things/*}"}
    assert found(ServiceRoutes(service(B=rule, A=rule)), "GET", "/v1/things/7").binding.method.name == "B"


def test_an_unknown_method_is_reported_with_the_allowed_ones() -> None:
    surface = ServiceRoutes(service(Get={"get": "/v1/{name=things/*}"}))
    assert surface.find("PUT", "/v1/things/7") == NoMatch(("GET",))
    assert surface.find("GET", "/v1/others/7") == NoMatch()


def test_a_path_that_is_not_utf_8_is_rejected() -> None:
    surface = ServiceRoutes(service(Get={"get": "/v1/{name=things/*}"}))
    with pytest.raises(InvalidParams, match="name: must be percent-encoded UTF-8"):
        surface.find("GET", "/v1/things/%FF")


@pytest.mark.parametrize(
    ("rule", "error", "text"),
    [
        ({"get": "/v1/{name"}, TemplateError, "is missing"),
        ({"get": "/v1/{no_such}"}, TypeError, "things.Thing has no scalar no_such"),
        ({"get": "/v1/{tags}"}, TypeError, "has no scalar tags"),
        ({"get": "/v1/{part}"}, TypeError, "has no scalar part"),
        ({"post": "/v1/x", "body": "no_such"}, TypeError, "has no message no_such"),
        ({"get": "/v1/x", "response_body": "no_such"}, TypeError, "has no field no_such"),
    ],
)
def test_an_invalid_rule_is_rejected_at_start(rule: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        ServiceRoutes(service(Wrong=rule))


def test_a_method_without_a_rule_has_no_route() -> None:
    assert ServiceRoutes(service(Do=None)).find("POST", "/things.Things/Do") == NoMatch()
