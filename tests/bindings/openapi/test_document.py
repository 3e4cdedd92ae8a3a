"""The description: valid, complete, and true to what the codecs write."""

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
from dragoman.bindings.openapi.schemas import parse_comments, proto_comments
from dragoman.core.access.identity import AccessPolicy
from dragoman.core.cards import security_schemes as secured
from dragoman.wire import errors
from dragoman.wire.dialects import Dialect
from dragoman.wire.http import httprule


def served() -> Iterator[openapi.ServedRule]:
    for service, rows in method_table.rpc_services():
        for method, rule in httprule.rules(service):
            row = rows[method.name]
            google = row.dialect is Dialect.V03 and "projects" in rule.template.segments
            yield openapi.ServedRule(rule, row, Dialect.GOOGLE if google else row.dialect)


@cache
def document(table: errors.ErrorTable = "1.0.1", *, push: bool = True) -> Any:
    return json.loads(json.dumps(openapi.openapi_document(served(), root="echo", table=table, push=push)))


def operations() -> Iterator[tuple[str, str, Any]]:
    for path, verbs in document()["paths"].items():
        for verb, operation in verbs.items():
            yield path, verb, operation


def resolved(node: Any) -> Any:
    if "$ref" not in node:
        return node
    found = document()
    for step in node["$ref"].removeprefix("#/").split("/"):
        found = found[step]
    return found


def mistakes(value: Any, schema: Any) -> list[str]:
    validator = OAS31Validator({**schema, "components": document()["components"]})
    return [error.message for error in validator.iter_errors(value)]


def test_it_is_valid_openapi() -> None:
    assert [str(error) for error in OpenAPIV31SpecValidator(document()).iter_errors()] == []


def test_every_rule_is_a_path_with_its_segments_spelled_out() -> None:
    paths = document()["paths"]
    for path in ("/message:send", "/v1/tasks/{task}:cancel", "/{tenant}/v1/card", "/tasks/{task}:subscribe"):
        assert path in paths
    assert "/v1/projects/{project}/locations/{location}/collections/{collection}/engines/{engine}/assistants/" in str(
        sorted(paths)
    )
    count = {(rule.http_method, openapi._openapi_path(rule.template)[0]) for rule in (one.rule for one in served())}
    assert count == {(verb.upper(), path) for path, verb, one in operations() if one["tags"] != ["Server"]}


def test_the_variables_of_a_path_are_its_parameters() -> None:
    for path, _, operation in operations():
        parameters = [resolved(one) for one in operation["parameters"]]
        assert {one["name"] for one in parameters if one["in"] == "path"} == set(re.findall(r"\{(\w+)\}", path))


def test_operation_ids_are_unique_and_tags_declared() -> None:
    ids = [operation["operationId"] for _, _, operation in operations()]
    assert len(ids) == len(set(ids))
    declared = {tag["name"] for tag in document()["tags"]}
    assert {tag for _, _, operation in operations() for tag in operation["tags"]} == declared


def test_it_refers_to_what_it_has_and_has_nothing_else() -> None:
    text = json.dumps(document())
    for kind, had in document()["components"].items():
        assert set(re.findall(rf'"#/components/{kind}/([^"]+)"', text)) == set(had)


def test_every_example_is_what_its_schema_says() -> None:
    seen = 0
    for _, _, operation in operations():
        bodies = [operation.get("requestBody", {}), *map(resolved, operation["responses"].values())]
        contents = [content for body in bodies for content in body.get("content", {}).items()]
        for media in (media for media_type, media in contents if media_type != "text/event-stream"):
            shown = [one["value"] for one in media.get("examples", {}).values()]
            for value in shown + ([media["example"]] if "example" in media else []):
                assert mistakes(value, media["schema"]) == []
                seen += 1
        for parameter in map(resolved, operation["parameters"]):
            if "example" in parameter:
                assert mistakes(parameter["example"], parameter["schema"]) == []
    assert seen > 300


def test_every_operation_shows_a_request_and_an_answer() -> None:
    for path, verb, operation in operations():
        if "requestBody" in operation:
            assert operation["requestBody"]["content"]["application/json"]["examples"], (verb, path)
        for status, answer in operation["responses"].items():
            if status != "304":
                (media, *_) = resolved(answer)["content"].values()
                assert media.get("examples") or media["example"], (verb, path)


def test_a_stream_is_events_and_on_resource_paths_an_array_as_well() -> None:
    for path, _, operation in operations():
        answer = operation["responses"].get("200", {"content": {}})["content"]
        if "text/event-stream" not in answer:
            continue
        assert ("application/json" in answer) == ("projects" in path)
        schema = answer["text/event-stream"]["schema"]["properties"]["data"]["contentSchema"]
        frames = answer["text/event-stream"]["example"].strip().split("\n\n")
        assert len(frames) == 5
        for frame in frames:
            assert mistakes(json.loads(frame.removeprefix("data: ")), schema) == []


def test_a_schema_catches_what_is_wrong() -> None:
    part = {"$ref": "#/components/schemas/lf.a2a.v1.Part"}
    assert mistakes({"text": "a"}, part) == []
    assert mistakes({"data": None}, part) == []
    for wrong in ({}, {"text": "a", "url": "b"}, {"text": 1}):
        assert mistakes(wrong, part)
    assert mistakes({"messageId": "m", "role": "ROLE_USER"}, {"$ref": "#/components/schemas/lf.a2a.v1.Message"})
    assert mistakes("WORKING", {"$ref": "#/components/schemas/a2a.v1.TaskState"})


def test_what_the_path_says_is_not_asked_for_again() -> None:
    body = document()["paths"]["/tasks/{task}:cancel"]["post"]["requestBody"]
    assert body["required"] is False
    assert sorted(body["content"]["application/json"]["schema"]["properties"]) == ["metadata", "tenant"]
    query = document()["paths"]["/{tenant}/tasks/{task}"]["get"]["parameters"]
    assert [resolved(one)["name"] for one in query] == ["tenant", "task", "historyLength", "A2A-Version"]


def test_a_resource_path_of_both_packages_allows_either_schema() -> None:
    paths = document()["paths"]
    path = next(path for path in paths if path.startswith("/projects/") and path.endswith("/message:send"))
    answer = paths[path]["post"]["responses"]["200"]["content"]["application/json"]
    assert [one["$ref"].rsplit("/", 1)[1] for one in answer["schema"]["anyOf"]] == [
        "lf.a2a.v1.SendMessageResponse",
        "a2a.v1.SendMessageResponse",
    ]
    assert list(answer["examples"]) == ["v1_task", "v1_message", "v03_task", "v03_message"]
    assert len(paths[path]["post"]["requestBody"]["content"]["application/json"]["schema"]["anyOf"]) == 2


def test_a_server_without_push_promises_no_answer() -> None:
    path, verb = "/tasks/{task}/pushNotificationConfigs", "get"
    assert "200" in document()["paths"][path][verb]["responses"]
    operation = document(push=False)["paths"][path][verb]
    assert "200" not in operation["responses"]
    assert operation["description"].startswith("**Not offered here**")


def test_errors_have_the_statuses_of_the_table_and_the_dialect() -> None:
    def statuses(path: str, table: errors.ErrorTable = "1.0.1") -> list[str]:
        return list(document(table)["paths"][path]["post"]["responses"])

    assert statuses("/tasks/{task}:cancel") == ["200", "400", "404", "413", "429", "500"]
    assert statuses("/tasks/{task}:cancel", "1.0.0") == ["200", "400", "404", "409", "413", "415", "429", "500"]
    assert statuses("/v1/tasks/{task}:cancel") == ["200", "400", "404", "409", "413", "415", "422", "429", "500"]


def test_the_words_are_those_of_the_protos() -> None:
    operation = document()["paths"]["/v1/tasks/{task}"]["get"]
    assert operation["summary"] == "Reads a task as it is now"
    assert "- NOT_FOUND: there is no such task" in operation["description"]
    state = document()["components"]["schemas"]["lf.a2a.v1.TaskState"]
    assert "- `TASK_STATE_COMPLETED`: Done, successfully. Final." in state["description"]


def test_without_the_image_there_are_no_words() -> None:
    assert parse_comments(b"") == {}
    assert proto_comments()["lf.a2a.v1.Task.id"].startswith("Names the task.")


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/.well-known/agent-card.json", "/v1/card"])
async def test_what_the_server_answers_is_what_the_description_says(path: str) -> None:
    async with over_http(FakeService()) as client:
        async with client.get("/openapi.json") as answer:
            assert answer.headers["Content-Type"] == "application/json"
            found = await answer.json()
            assert found["servers"] == [{"url": str(client._base_url).rstrip("/")}]
        async with client.get(path) as answer:
            value = await answer.json()
    described = found["paths"][path]["get"]["responses"]["200"]["content"]["application/json"]
    assert mistakes(value, described["schema"]) == []


def asking(public: frozenset[str] = frozenset()) -> Any:
    """The description of a server that asks callers who they are."""
    enforced = secured.server_security(token=True, keys=True, issuers=())
    policy = AccessPolicy(credentials_required=True, public_agents=public)
    return json.loads(
        json.dumps(openapi.openapi_document(served(), root="echo", security=enforced, access_policy=policy))
    )


def test_without_authentication_nothing_is_said_of_it() -> None:
    assert "securitySchemes" not in document()["components"]
    assert not [path for path, _, operation in operations() if "security" in operation]


def test_what_callers_have_to_show_is_said_where_they_have_to() -> None:
    found = asking()
    assert [str(error) for error in OpenAPIV31SpecValidator(found).iter_errors()] == []
    assert found["components"]["securitySchemes"] == {
        "bearer": {"type": "http", "scheme": "bearer"},
        "apiKey": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
    }
    for path, verbs in found["paths"].items():
        for operation in verbs.values():
            # Cards and health are everybody's.
            is_open = operation["tags"] == ["Server"] or path.endswith("/card")
            assert ("security" in operation) is not is_open, path
            assert ({"401", "403"} <= set(operation["responses"])) is not is_open, path
    assert found["paths"]["/tasks"]["get"]["security"] == [{"bearer": []}, {"apiKey": []}]
    some = asking(frozenset(("echo",)))
    assert some["paths"]["/tasks"]["get"]["security"] == [{"bearer": []}, {"apiKey": []}, {}]
