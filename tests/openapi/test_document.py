"""The OpenAPI document is valid, complete, and matches what the codecs write."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

from openapi_schema_validator import OAS31Validator
from openapi_spec_validator import OpenAPIV31SpecValidator

from tools.openapi import document as openapi


@cache
def document() -> Any:
    return json.loads(json.dumps(openapi.openapi_document()))


def operations() -> Iterator[tuple[str, str, Any]]:
    for path, verbs in document()["paths"].items():
        for verb, operation in verbs.items():
            yield path, verb, operation


def resolved(node: Any) -> Any:
    if "$ref" not in node:
        return node
    target = document()
    for step in node["$ref"].removeprefix("#/").split("/"):
        target = target[step]
    return target


def dictionaries(node: Any) -> Iterator[dict[str, Any]]:
    """Yields every object of a document."""
    if isinstance(node, dict):
        yield node
    for value in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from dictionaries(value)


def schema_errors(instance: Any, schema: Any) -> list[str]:
    validator = OAS31Validator({**schema, "components": document()["components"]})
    return [error.message for error in validator.iter_errors(instance)]


def test_the_document_is_valid_openapi() -> None:
    assert [str(error) for error in OpenAPIV31SpecValidator(document()).iter_errors()] == []


def test_every_http_rule_is_a_path() -> None:
    paths = document()["paths"]
    for path in ("/message:send", "/v1/tasks/{task}:cancel", "/{tenant}/v1/card", "/tasks/{task}:subscribe"):
        assert path in paths
    assert "/v1/projects/{project}/locations/{location}/collections/{collection}/engines/{engine}/assistants/" in str(
        sorted(paths)
    )
    count = {
        (rule.http_method, openapi._openapi_path(rule.template)[0])
        for rule in (one.rule for one in openapi.served_rules())
    }
    assert count == {(verb.upper(), path) for path, verb, one in operations() if one["tags"] != ["Server"]}


def test_path_variables_are_parameters() -> None:
    for path, _, operation in operations():
        parameters = [resolved(one) for one in operation["parameters"]]
        assert {one["name"] for one in parameters if one["in"] == "path"} == set(re.findall(r"\{(\w+)\}", path))


def test_operation_ids_are_unique_and_tags_declared() -> None:
    ids = [operation["operationId"] for _, _, operation in operations()]
    assert len(ids) == len(set(ids))
    declared = {tag["name"] for tag in document()["tags"]}
    assert {tag for _, _, operation in operations() for tag in operation["tags"]} == declared


def test_every_component_is_referenced_and_every_reference_resolves() -> None:
    text = json.dumps(document())
    for kind, had in document()["components"].items():
        if kind == "securitySchemes":
            assert {name for requirement in document()["security"] for name in requirement} == set(had)
            continue
        assert set(re.findall(rf'"#/components/{kind}/([^"]+)"', text)) == set(had)


def test_every_example_matches_its_schema() -> None:
    seen = 0
    for _, _, operation in operations():
        bodies = [operation.get("requestBody", {}), *map(resolved, operation["responses"].values())]
        contents = [content for body in bodies for content in body.get("content", {}).items()]
        for media in (media for media_type, media in contents if media_type != "text/event-stream"):
            shown = [one["value"] for one in media.get("examples", {}).values()]
            for value in shown + ([media["example"]] if "example" in media else []):
                assert schema_errors(value, media["schema"]) == []
                seen += 1
        for parameter in map(resolved, operation["parameters"]):
            if "example" in parameter:
                assert schema_errors(parameter["example"], parameter["schema"]) == []
    assert seen > 300


def test_every_operation_has_request_and_response_examples() -> None:
    for path, verb, operation in operations():
        if "requestBody" in operation:
            assert operation["requestBody"]["content"]["application/json"]["examples"], (verb, path)
        for status, answer in operation["responses"].items():
            if status != "304":
                (media, *_) = resolved(answer)["content"].values()
                assert media.get("examples") or media["example"], (verb, path)


def test_streams_are_sse_and_also_arrays_on_resource_paths() -> None:
    for path, _, operation in operations():
        answer = operation["responses"].get("200", {"content": {}})["content"]
        if "text/event-stream" not in answer:
            continue
        assert ("application/json" in answer) == ("projects" in path)
        events = answer["text/event-stream"]
        schema = events["schema"]["properties"]["data"]["contentSchema"]
        assert schema_errors(events["example"], events["schema"]) == []
        frames = events["example"].strip().split("\n\n")
        assert len(frames) == 5
        for frame in frames:
            assert schema_errors(json.loads(frame.removeprefix("data: ")), schema) == []


def test_every_object_has_a_name_of_its_own_and_no_branches() -> None:
    """Generators of clients make a type of each; those of unnamed ones collide, and branches lose their properties."""
    schemas = document()["components"]["schemas"]
    assert len({re.sub(r"\W", "", name).lower() for name in schemas}) == len(schemas)
    named = [id(schema) for schema in schemas.values()]
    for node in dictionaries(document()):
        if node.get("type") == "object" and "properties" in node:
            assert id(node) in named, node
            assert not {"oneOf", "anyOf", "allOf"} & node.keys(), node


def test_schemas_reject_invalid_messages() -> None:
    part = {"$ref": "#/components/schemas/lf.a2a.v1.Part"}
    assert schema_errors({"text": "a"}, part) == []
    assert schema_errors({"data": None}, part) == []
    for invalid in ({}, {"text": "a", "url": "b"}, {"text": 1}):
        assert schema_errors(invalid, part)
    assert schema_errors({"messageId": "m", "role": "ROLE_USER"}, {"$ref": "#/components/schemas/lf.a2a.v1.Message"})
    assert schema_errors("WORKING", {"$ref": "#/components/schemas/a2a.v1.TaskState"})


def test_fields_in_the_path_are_not_in_the_body() -> None:
    body = document()["paths"]["/tasks/{task}:cancel"]["post"]["requestBody"]
    assert body["required"] is False
    assert sorted(resolved(body["content"]["application/json"]["schema"])["properties"]) == ["metadata", "tenant"]
    query = document()["paths"]["/{tenant}/tasks/{task}"]["get"]["parameters"]
    assert [resolved(one)["name"] for one in query] == ["tenant", "task", "historyLength", "A2A-Version"]


def test_a_path_of_both_packages_allows_both_schemas() -> None:
    paths = document()["paths"]
    path = next(path for path in paths if path.startswith("/projects/") and path.endswith("/message:send"))
    answer = paths[path]["post"]["responses"]["200"]["content"]["application/json"]
    assert [one["$ref"].rsplit("/", 1)[1] for one in answer["schema"]["anyOf"]] == [
        "lf.a2a.v1.SendMessageResponse",
        "a2a.v1.SendMessageResponse",
    ]
    assert list(answer["examples"]) == ["v1_task", "v1_message", "v03_task", "v03_message"]
    assert len(paths[path]["post"]["requestBody"]["content"]["application/json"]["schema"]["anyOf"]) == 2


def test_operations_of_push_notifications_have_a_note_and_an_error_for_servers_without() -> None:
    for path, _, operation in operations():
        has_note = "A server without push notifications responds with `" in operation.get("description", "")
        assert has_note is ("/pushNotificationConfigs" in path), path
    operation = document()["paths"]["/tasks/{task}/pushNotificationConfigs"]["get"]
    assert "200" in operation["responses"]
    assert "`PUSH_NOTIFICATION_NOT_SUPPORTED`" in resolved(operation["responses"]["400"])["description"]


def test_error_statuses_follow_the_dialect() -> None:
    def statuses(path: str) -> list[str]:
        return list(document()["paths"][path]["post"]["responses"])

    assert statuses("/tasks/{task}:cancel") == ["200", "400", "401", "403", "404", "413", "429", "500", "503"]
    assert statuses("/v1/tasks/{task}:cancel") == (
        ["200", "400", "401", "403", "404", "409", "413", "415", "422", "429", "500", "503"]
    )


def test_descriptions_come_from_the_proto_comments() -> None:
    operation = document()["paths"]["/v1/tasks/{task}"]["get"]
    assert operation["summary"] == "Reads a task as it is now"
    assert "- NOT_FOUND: there is no such task" in operation["description"]
    state = document()["components"]["schemas"]["lf.a2a.v1.TaskState"]
    assert "- `TASK_STATE_COMPLETED`: Done, successfully. Final." in state["description"]


def test_operations_need_credentials_unless_they_declare_none() -> None:
    assert document()["security"] == [{"bearer": []}, {"apiKey": []}]
    assert document()["components"]["securitySchemes"] == {
        "bearer": {"type": "http", "scheme": "bearer"},
        "apiKey": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
    }
    for path, _, operation in operations():
        # Cards and health are public.
        is_open = operation["tags"] == ["Server"] or path.endswith("/card")
        assert (operation.get("security") == []) is is_open, path
        assert ({"401", "403"} <= set(operation["responses"])) is not is_open, path
