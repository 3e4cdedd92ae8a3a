"""The OpenAPI document is valid, complete, and matches what the codecs write."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from openapi_schema_validator import OAS31Validator
from openapi_spec_validator import OpenAPIV31SpecValidator
from tests.bindings.fake_service import FakeService, over_http

from dragoman.bindings import method_table
from dragoman.bindings.openapi import document as openapi
from dragoman.core.access.identity import AccessPolicy
from dragoman.core.cards import security_schemes as secured
from dragoman.wire import errors
from dragoman.wire.dialects import Dialect
from dragoman.wire.http import httprule


def served_rules() -> Iterator[openapi.ServedRule]:
    for service, rows in method_table.rpc_services():
        for method, rule in httprule.rules(service):
            row = rows[method.name]
            google = row.dialect is Dialect.V03 and "projects" in rule.template.segments
            yield openapi.ServedRule(rule, row, Dialect.GOOGLE if google else row.dialect)


@cache
def document(table: errors.ErrorTable = "1.0.1", *, push: bool = True) -> Any:
    return json.loads(json.dumps(openapi.openapi_document(served_rules(), root="echo", table=table, push=push)))


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
        (rule.http_method, openapi._openapi_path(rule.template)[0]) for rule in (one.rule for one in served_rules())
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
        schema = answer["text/event-stream"]["schema"]["properties"]["data"]["contentSchema"]
        frames = answer["text/event-stream"]["example"].strip().split("\n\n")
        assert len(frames) == 5
        for frame in frames:
            assert schema_errors(json.loads(frame.removeprefix("data: ")), schema) == []


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
    assert sorted(body["content"]["application/json"]["schema"]["properties"]) == ["metadata", "tenant"]
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


def test_without_push_notifications_their_operations_have_no_success_response() -> None:
    path, verb = "/tasks/{task}/pushNotificationConfigs", "get"
    assert "200" in document()["paths"][path][verb]["responses"]
    operation = document(push=False)["paths"][path][verb]
    assert "200" not in operation["responses"]
    assert operation["description"].startswith("**Not supported by this server**")


def test_error_statuses_follow_the_table_and_the_dialect() -> None:
    def statuses(path: str, table: errors.ErrorTable = "1.0.1") -> list[str]:
        return list(document(table)["paths"][path]["post"]["responses"])

    assert statuses("/tasks/{task}:cancel") == ["200", "400", "404", "413", "429", "500"]
    assert statuses("/tasks/{task}:cancel", "1.0.0") == ["200", "400", "404", "409", "413", "415", "429", "500"]
    assert statuses("/v1/tasks/{task}:cancel") == ["200", "400", "404", "409", "413", "415", "422", "429", "500"]


def test_descriptions_come_from_the_proto_comments() -> None:
    operation = document()["paths"]["/v1/tasks/{task}"]["get"]
    assert operation["summary"] == "Reads a task as it is now"
    assert "- NOT_FOUND: there is no such task" in operation["description"]
    state = document()["components"]["schemas"]["lf.a2a.v1.TaskState"]
    assert "- `TASK_STATE_COMPLETED`: Done, successfully. Final." in state["description"]


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/.well-known/agent-card.json", "/v1/card"])
async def test_responses_match_the_document(path: str) -> None:
    async with over_http(FakeService()) as client:
        async with client.get("/openapi.json") as answer:
            assert answer.headers["Content-Type"] == "application/json"
            served_document = await answer.json()
            assert served_document["servers"] == [{"url": str(client._base_url).rstrip("/")}]
        async with client.get(path) as answer:
            body = await answer.json()
    described = served_document["paths"][path]["get"]["responses"]["200"]["content"]["application/json"]
    assert schema_errors(body, described["schema"]) == []


def secured_document(public: frozenset[str] = frozenset()) -> Any:
    """The document of a server with authentication."""
    security = secured.server_security(token=True, keys=True, issuers=())
    policy = AccessPolicy(credentials_required=True, public_agents=public)
    return json.loads(
        json.dumps(openapi.openapi_document(served_rules(), root="echo", security=security, access_policy=policy))
    )


def test_without_authentication_there_are_no_security_schemes() -> None:
    assert "securitySchemes" not in document()["components"]
    assert not [path for path, _, operation in operations() if "security" in operation]


def test_operations_that_need_credentials_declare_them() -> None:
    with_auth = secured_document()
    assert [str(error) for error in OpenAPIV31SpecValidator(with_auth).iter_errors()] == []
    assert with_auth["components"]["securitySchemes"] == {
        "bearer": {"type": "http", "scheme": "bearer"},
        "apiKey": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
    }
    for path, verbs in with_auth["paths"].items():
        for operation in verbs.values():
            # Cards and health are public.
            is_open = operation["tags"] == ["Server"] or path.endswith("/card")
            assert ("security" in operation) is not is_open, path
            assert ({"401", "403"} <= set(operation["responses"])) is not is_open, path
    assert with_auth["paths"]["/tasks"]["get"]["security"] == [{"bearer": []}, {"apiKey": []}]
    with_public_agent = secured_document(frozenset(("echo",)))
    assert with_public_agent["paths"]["/tasks"]["get"]["security"] == [{"bearer": []}, {"apiKey": []}, {}]
