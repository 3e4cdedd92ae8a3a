"""Routing of paths, and the routes of complete services."""

from __future__ import annotations

from typing import Any

import pytest
from google.api import annotations_pb2, http_pb2
from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.descriptor import ServiceDescriptor

from dragoman.core.errors import InvalidParams
from dragoman.wire.http.httprule import TemplateError, parse, rules
from dragoman.wire.http.routes import Candidate, Match, MatchedBinding, NoMatch, Routes, ServiceRoutes
from dragoman_pb.a2a.v1 import a2a_pb2 as v03
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as v1

T = "projects/p/locations/l/collections/c/engines/e/assistants/a/agents/g"


def routes(*bindings: tuple[str, str]) -> Routes[str]:
    created_routes: Routes[str] = Routes()
    for method, template in bindings:
        created_routes.add(method, parse(template), f"{method} {template}")
    return created_routes


@pytest.fixture(scope="module")
def services() -> Routes[str]:
    created_routes: Routes[str] = Routes()
    for module in (v03, v1):
        for method, rule in rules(module.DESCRIPTOR.services_by_name["A2AService"]):
            created_routes.add(rule.http_method, rule.template, f"{module.DESCRIPTOR.package} {method.name}")
    return created_routes


def only(match: Match[str] | NoMatch) -> tuple[str, dict[str, str]]:
    assert isinstance(match, Match)
    (candidate,) = match.candidates
    return candidate.target, dict(candidate.variables)


@pytest.mark.parametrize(
    ("method", "path", "target", "variables"),
    [
        ("POST", "/message:send", "lf.a2a.v1 SendMessage", {}),
        ("POST", "/acme/message:send", "lf.a2a.v1 SendMessage", {"tenant": "acme"}),
        ("POST", "/v1/message:send", "a2a.v1 SendMessage", {}),
        ("POST", "/acme/v1/message:stream", "a2a.v1 SendStreamingMessage", {"tenant": "acme"}),
        ("GET", "/tasks/42", "lf.a2a.v1 GetTask", {"id": "42"}),
        ("GET", "/tasks/tasks", "lf.a2a.v1 GetTask", {"id": "tasks"}),
        ("GET", "/acme/tasks", "lf.a2a.v1 ListTasks", {"tenant": "acme"}),
        ("GET", "/acme/tasks/42", "lf.a2a.v1 GetTask", {"tenant": "acme", "id": "42"}),
        ("GET", "/v1/tasks", "a2a.v1 ListTasks", {}),
        ("GET", "/v1/tasks/42", "a2a.v1 GetTask", {"name": "tasks/42"}),
        ("POST", "/v1/tasks/42:cancel", "a2a.v1 CancelTask", {"name": "tasks/42"}),
        ("GET", "/tasks/42:subscribe", "lf.a2a.v1 SubscribeToTask", {"id": "42"}),
        ("POST", "/tasks/42:subscribe", "lf.a2a.v1 SubscribeToTask", {"id": "42"}),
        ("POST", "/tasks/urn:uuid:1:cancel", "lf.a2a.v1 CancelTask", {"id": "urn:uuid:1"}),
        ("GET", "/tasks/urn:uuid:1", "lf.a2a.v1 GetTask", {"id": "urn:uuid:1"}),
        ("GET", f"/v1/{T}/a2a/v1/tasks/42", "a2a.v1 GetTask", {"tenant": T, "name": "tasks/42"}),
        ("POST", f"/v1/{T}/a2a/v1/message:send", "a2a.v1 SendMessage", {"tenant": T}),
        ("POST", f"/v1/{T}/tasks/42:cancel", "a2a.v1 CancelTask", {"name": f"{T}/tasks/42"}),
        ("GET", f"/{T}/card", "a2a.v1 GetAgentCard", {"tenant": T}),
    ],
)
def test_a_path_matches_its_method_and_binds_its_fields(
    services: Routes[str], method: str, path: str, target: str, variables: dict[str, str]
) -> None:
    assert only(services.match(method, path)) == (target, variables)


def test_a_path_of_two_services_matches_both_in_order(services: Routes[str]) -> None:
    match = services.match("GET", f"/{T}/tasks/42")
    assert match == Match(
        (
            Candidate("a2a.v1 GetTask", {"tenant": T, "name": "tasks/42"}),
            Candidate("lf.a2a.v1 GetTask", {"tenant": T, "id": "42"}),
        )
    )


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("DELETE", "/v1/tasks/42", ("GET",)),
        ("GET", "/message:send", ("POST",)),
        ("GET", "/tasks/42:cancel", ("POST",)),
        ("PUT", "/tasks/42:subscribe", ("GET", "POST")),
        ("PATCH", "/tasks/42/pushNotificationConfigs", ("GET", "POST")),
    ],
)
def test_a_wrong_method_lists_the_allowed_ones(
    services: Routes[str], method: str, path: str, allow: tuple[str, ...]
) -> None:
    assert services.match(method, path) == NoMatch(allow)


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/",
        "/nowhere",
        "/a/b/c",
        "/tasks/42:dance/x",
        "/tasks/",
        "//tasks",
        "/tasks//x",
        "/tasks/42/",
        "/message:sing",
        "/:send",
    ],
)
def test_an_unknown_path_allows_no_method(services: Routes[str], path: str) -> None:
    assert services.match("POST", path) == NoMatch()


def test_literals_take_precedence_and_dead_ends_are_backtracked() -> None:
    created_routes = routes(("GET", "/{tenant}/b/x"), ("GET", "/a/{id}/y"), ("GET", "/a/b/z"))
    assert only(created_routes.match("GET", "/a/b/x")) == ("GET /{tenant}/b/x", {"tenant": "a"})
    assert only(created_routes.match("GET", "/a/b/y")) == ("GET /a/{id}/y", {"id": "b"})
    assert only(created_routes.match("GET", "/a/b/z")) == ("GET /a/b/z", {})


def test_a_route_with_the_method_is_preferred_to_a_405() -> None:
    created_routes = routes(("GET", "/tasks/{id}"), ("DELETE", "/{tenant}/x"))
    assert only(created_routes.match("DELETE", "/tasks/x")) == ("DELETE /{tenant}/x", {"tenant": "tasks"})
    assert created_routes.match("PUT", "/tasks/x") == NoMatch(("DELETE", "GET"))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("/t/a%20b", "a b"),
        ("/t/a%2Fb", "a/b"),
        ("/t/a%252Fb", "a%2Fb"),
        ("/t/a+b", "a+b"),
        ("/t/caf%C3%A9", "café"),
        ("/t/a%3Ago", "a:go"),
        ("/t/a%3Ab:go", "a:b"),
        ("/t/50%", "50%"),
    ],
)
def test_a_value_of_one_segment_is_decoded_once(path: str, value: str) -> None:
    created_routes = routes(("GET", "/t/{id}"), ("GET", "/t/{id}:go"))
    assert only(created_routes.match("GET", path))[1] == {"id": value}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("/v1/t/a%20b", "t/a b"),
        ("/v1/t/a%2Fb", "t/a%2Fb"),
        ("/v1/t/a%2fb%41", "t/a%2fbA"),
        ("/v1/t/a%252Fb", "t/a%2Fb"),
    ],
)
def test_a_value_of_several_segments_keeps_encoded_slashes(path: str, value: str) -> None:
    assert only(routes(("GET", "/v1/{name=t/*}")).match("GET", path))[1] == {"name": value}


def test_literals_match_percent_decoded() -> None:
    assert only(routes(("GET", "/tasks/{id}")).match("GET", "/%74asks/1"))[1] == {"id": "1"}


def test_the_rest_of_a_path_may_be_empty_or_long_and_comes_last() -> None:
    created_routes = routes(("GET", "/f/{path=**}"), ("GET", "/f/a"), ("GET", "/f/{path=**}:raw"))
    assert only(created_routes.match("GET", "/f/a")) == ("GET /f/a", {})
    assert only(created_routes.match("GET", "/f/b/c")) == ("GET /f/{path=**}", {"path": "b/c"})
    assert only(created_routes.match("GET", "/f")) == ("GET /f/{path=**}", {"path": ""})
    assert only(created_routes.match("GET", "/f/b/c:raw")) == ("GET /f/{path=**}:raw", {"path": "b/c"})


def test_a_value_that_is_not_utf8_is_rejected_with_its_field() -> None:
    with pytest.raises(InvalidParams, match="taskId: must be percent-encoded UTF-8"):
        routes(("GET", "/t/{task_id}")).match("GET", "/t/%FF")


def test_a_very_long_path_is_unknown(services: Routes[str]) -> None:
    assert services.match("GET", "/x" * 10_000) == NoMatch()


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


def find_binding(table: ServiceRoutes, http_method: str, path: str) -> MatchedBinding:
    match = table.find(http_method, path)
    assert isinstance(match, MatchedBinding)
    return match


def test_requests_decode_to_messages_and_responses_encode_to_json() -> None:
    table = ServiceRoutes(service(Put={"put": "/v1/{part.name=things/*}", "body": "part", "response_body": "part"}))
    put = find_binding(table, "PUT", "/v1/things/7")
    assert put.binding.rpc == "/things.Things/Put"
    request: Any = put.request([("tags", "a"), ("tags", "b")], {"tags": ["c"], "name": "x"})
    assert request.part.name == "things/7"
    assert (list(request.tags), list(request.part.tags)) == (["a", "b"], ["c"])
    assert put.binding.response_class is type(request)
    assert put.response(request) == b'{"name":"things/7","tags":["c"]}'


def test_a_rule_for_any_method_is_the_fallback() -> None:
    table = ServiceRoutes(
        service(
            Any={"custom": {"kind": "*", "path": "/v1/{name=things/*}"}},
            Get={"get": "/v1/{name=things/*}"},
            Report={"custom": {"kind": "REPORT", "path": "/v1/{name=things/*}"}},
        )
    )
    names = {kind: find_binding(table, kind, "/v1/things/7").binding.method.name for kind in ("GET", "REPORT", "LOCK")}
    assert names == {"GET": "Get", "REPORT": "Report", "LOCK": "Any"}


def test_the_first_of_equal_rules_is_used() -> None:
    rule = {"get": "/v1/{name=things/*}"}
    assert find_binding(ServiceRoutes(service(B=rule, A=rule)), "GET", "/v1/things/7").binding.method.name == "B"


def test_an_unknown_method_is_reported_with_the_allowed_ones() -> None:
    table = ServiceRoutes(service(Get={"get": "/v1/{name=things/*}"}))
    assert table.find("PUT", "/v1/things/7") == NoMatch(("GET",))
    assert table.find("GET", "/v1/others/7") == NoMatch()


def test_a_path_that_is_not_utf_8_is_rejected() -> None:
    table = ServiceRoutes(service(Get={"get": "/v1/{name=things/*}"}))
    with pytest.raises(InvalidParams, match="name: must be percent-encoded UTF-8"):
        table.find("GET", "/v1/things/%FF")


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
