from types import ModuleType

import pytest
from google.api import annotations_pb2, http_pb2
from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.descriptor import ServiceDescriptor

from dragoman.wire.http.httprule import Rule, Template, TemplateError, Variable, Wildcard, parse, rules
from dragoman_pb.a2a.v1 import a2a_pb2 as v03
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as v1

ONE, REST = Wildcard.ONE, Wildcard.REST


@pytest.mark.parametrize(
    ("text", "template"),
    [
        ("/tasks", Template(("tasks",))),
        ("/message:send", Template(("message",), verb="send")),
        ("/tasks/{id}", Template(("tasks", ONE), (Variable(("id",), 1, 2),))),
        ("/v1/{name=tasks/*}:cancel", Template(("v1", "tasks", ONE), (Variable(("name",), 1, 3),), "cancel")),
        (
            "/{tenant}/{a.b_c=x/*}",
            Template((ONE, "x", ONE), (Variable(("tenant",), 0, 1), Variable(("a", "b_c"), 1, 3))),
        ),
        ("/f/{path=**}", Template(("f", REST), (Variable(("path",), 1, None),))),
        ("/f/{path=a/**}:get", Template(("f", "a", REST), (Variable(("path",), 1, None),), "get")),
        ("/*/x/**", Template((ONE, "x", REST))),
        ("/.well-known/agent-card.json", Template((".well-known", "agent-card.json"))),
    ],
)
def test_a_template_is_parsed_to_flat_segments_and_ranges(text: str, template: Template) -> None:
    assert parse(text) == template


@pytest.mark.parametrize(
    "text",
    [
        "/tasks/{id}",
        "/v1/{name=projects/*/agents/*/tasks/*}:cancel",
        "/{tenant=projects/*}/{name=tasks/*}",
        "/f/{path=**}",
        "/a/*/**:verb",
    ],
)
def test_a_parsed_template_formats_to_its_source(text: str) -> None:
    assert str(parse(text)) == text
    assert parse(str(parse(text))) == parse(text)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "`/` is missing at position 0"),
        ("tasks", "`/` is missing at position 0"),
        ("/", "a segment is missing at position 1"),
        ("/a/", "a segment is missing at position 3"),
        ("/a//b", "a segment is missing"),
        ("/{id", "`}` is missing"),
        ("/{}", "a field name is missing"),
        ("/{1a}", "a field name is missing"),
        ("/{a.}", "a field name is missing"),
        ("/{a={b}}", "a segment is missing"),
        ("/a:", "a verb is missing"),
        ("/a:b:c", "the end of the template is missing"),
        ("/a b", "the end of the template is missing"),
        ("/**/a", "only allowed as the last segment"),
        ("/{a=**}/b", "only allowed as the last segment"),
        ("/{a}/{a}", "bound twice"),
    ],
)
def test_an_invalid_template_is_rejected_with_the_position(text: str, reason: str) -> None:
    with pytest.raises(TemplateError, match=reason):
        parse(text)


def test_a_variable_of_one_segment_differs_from_one_of_several() -> None:
    single, several, rest = (parse(text).variables[0] for text in ("/{a}", "/{a=b/*}", "/{a=**}"))
    assert (single.is_single, several.is_single, rest.is_single) == (True, False, False)


@pytest.mark.parametrize("module", [v03, v1])
def test_every_method_of_both_services_has_a_published_rule_first(module: ModuleType) -> None:
    service = module.DESCRIPTOR.services_by_name["A2AService"]
    seen = [(method.name, rule.primary) for method, rule in rules(service)]
    assert {name for name, _ in seen} == {method.name for method in service.methods}
    assert len([name for name, primary in seen if primary]) == len(service.methods)
    for method in service.methods:
        assert next(primary for name, primary in seen if name == method.name)


def test_a_rule_has_a_method_template_and_body() -> None:
    service = v03.DESCRIPTOR.services_by_name["A2AService"]
    published = {method.name: rule for method, rule in rules(service) if rule.primary}
    assert published["CancelTask"] == Rule("POST", parse("/v1/{name=tasks/*}:cancel"), "*")
    assert published["GetTask"] == Rule("GET", parse("/v1/{name=tasks/*}"))
    assert published["CreateTaskPushNotificationConfig"].body == "config"


def _service(*options: http_pb2.HttpRule) -> ServiceDescriptor:
    file = descriptor_pb2.FileDescriptorProto(name="x.proto", package="x", syntax="proto3")
    file.message_type.add(name="M")
    service = file.service.add(name="S")
    for number, option in enumerate(options):
        method = service.method.add(name=f"M{number}", input_type=".x.M", output_type=".x.M")
        method.options.Extensions[annotations_pb2.http].CopyFrom(option)
    service.method.add(name="Plain", input_type=".x.M", output_type=".x.M")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return pool.FindServiceByName("x.S")


def test_custom_methods_response_bodies_and_methods_without_a_rule() -> None:
    option = http_pb2.HttpRule(response_body="r")
    option.custom.kind, option.custom.path = "SEARCH", "/s"
    assert [rule for _, rule in rules(_service(option))] == [Rule("SEARCH", parse("/s"), "", "r")]


def test_a_rule_without_a_pattern_is_rejected() -> None:
    with pytest.raises(TemplateError, match="without a pattern"):
        list(rules(_service(http_pb2.HttpRule(body="*"))))
