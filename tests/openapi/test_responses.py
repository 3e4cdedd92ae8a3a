"""Error responses of the OpenAPI document, and the paths of the server itself."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.bindings import method_table
from dragoman.bindings.method_table import RpcRow
from dragoman.core import errors
from dragoman.wire.dialects import Dialect
from dragoman.wire.http import httprule
from dragoman.wire.http.httprule import Rule
from tools.openapi.responses import ERROR_SCHEMAS, ErrorResponses, possible_errors, server_paths
from tools.openapi.schemas import SchemaBuilder


def route(name: str, http_method: str, *, variables: bool = True) -> tuple[Rule, RpcRow]:
    """The first route of a 1.0 method."""
    service, rows = next(iter(method_table.rpc_services()))
    return next(
        (rule, rows[name])
        for method, rule in httprule.rules(service)
        if method.name == name and rule.http_method == http_method and bool(rule.template.variables) is variables
    )


def raised(name: str, http_method: str) -> set[type[errors.A2AError]]:
    return {type(error) for error in possible_errors(*route(name, http_method))}


def test_every_route_has_errors_of_its_own_and_those_of_all() -> None:
    everywhere = {errors.VersionNotSupported, errors.RateLimited, errors.InternalError}
    for service, rows in method_table.rpc_services():
        for method, rule in httprule.rules(service):
            found = {type(error) for error in possible_errors(rule, rows[method.name])}
            assert found >= everywhere | {errors.AgentNotFound}, method.full_name


def test_only_routes_with_a_body_have_errors_of_bodies() -> None:
    of_bodies = {errors.ParseError, errors.PayloadTooLarge, errors.ContentTypeNotSupported}
    assert raised("CancelTask", "POST") >= of_bodies
    assert not raised("GetTask", "GET") & of_bodies


def test_only_routes_with_variables_can_be_wrongly_encoded() -> None:
    rule, row = route("SendMessage", "POST", variables=False)
    assert "percent-encoded" not in str([error.message for error in possible_errors(rule, row)])
    rule, row = route("SendMessage", "POST")
    assert "percent-encoded" in str([error.message for error in possible_errors(rule, row)])


def test_only_public_cards_have_no_errors_of_credentials() -> None:
    of_credentials = {errors.Unauthenticated, errors.PermissionDenied, errors.Unavailable}
    assert raised("GetTask", "GET") >= of_credentials
    (v03_card,) = (
        {type(error) for error in possible_errors(rule, rows[method.name])}
        for service, rows in method_table.rpc_services()
        for method, rule in httprule.rules(service)
        if method.name == "GetAgentCard" and not rule.template.variables
    )
    assert not v03_card & of_credentials


def test_only_operations_of_push_notifications_can_find_a_server_without() -> None:
    assert errors.PushNotificationNotSupported in raised("GetTaskPushNotificationConfig", "GET")
    assert errors.PushNotificationNotSupported not in raised("GetTask", "GET")


# Collected responses ------------------------------------------------------------------------------------------------


def test_errors_of_one_status_share_a_response_with_an_example_by_reason() -> None:
    responses = ErrorResponses()
    cases = [errors.TaskNotFound(), errors.AgentNotFound(), errors.TaskNotFound("again"), errors.RateLimited("busy")]
    assert responses.refs("get", [(error, Dialect.V1) for error in cases]) == {
        "404": {"$ref": "#/components/responses/get_404"},
        "429": {"$ref": "#/components/responses/get_429"},
    }
    not_found = responses.responses["get_404"]
    examples = not_found["content"]["application/json"]["examples"]
    assert list(examples) == ["TASK_NOT_FOUND", "AGENT_NOT_FOUND"]
    assert not_found["description"] == "`TASK_NOT_FOUND`, `AGENT_NOT_FOUND`"
    assert examples["TASK_NOT_FOUND"]["value"]["error"]["message"] == errors.TaskNotFound().message


def test_equal_responses_are_shared_and_others_get_a_number() -> None:
    responses = ErrorResponses()
    task, config = [(errors.TaskNotFound(), Dialect.V1)], [(errors.PushConfigNotFound(), Dialect.V1)]
    first = responses.refs("get", task)
    assert responses.refs("get", task) == first
    other = responses.refs("get", config)
    assert other["404"]["$ref"].endswith("get_404_2")
    assert responses.refs("get", config) == other
    assert list(responses.responses) == ["get_404", "get_404_2"]


@pytest.mark.parametrize(
    ("dialect", "schema"), [(Dialect.V1, "Error"), (Dialect.GOOGLE, "Error"), (Dialect.V03, "Error03")]
)
def test_errors_of_0_3_have_their_own_schema(dialect: Dialect, schema: str) -> None:
    responses = ErrorResponses()
    responses.refs("get", [(errors.TaskNotFound(), dialect)])
    (response,) = responses.responses.values()
    media = response["content"]["application/json"]
    assert media["schema"] == {"$ref": f"#/components/schemas/{schema}"}
    (example,) = media["examples"].values()
    assert set(ERROR_SCHEMAS[schema]["required"]) <= example["value"].keys()


# The server itself --------------------------------------------------------------------------------------------------


def paths() -> dict[str, Any]:
    return server_paths(SchemaBuilder({}), ErrorResponses())


def test_cards_of_the_root_and_of_each_agent_are_described() -> None:
    found = paths()
    for file in ("agent-card.json", "agent.json"):
        root, agent = found[f"/.well-known/{file}"]["get"], found[f"/{{agent}}/.well-known/{file}"]["get"]
        assert set(root["responses"]) == {"200", "304"}
        assert set(agent["responses"]) == {"200", "304", "404"}
        assert [one["name"] for one in agent["parameters"]] == ["agent"]
        assert agent["parameters"][0]["example"] == "playground"


def test_the_keys_of_push_notifications_are_described() -> None:
    operation = paths()["/.well-known/jwks.json"]["get"]
    assert set(operation["responses"]) == {"200"}
    assert "A server that signs nothing does not have this path." in operation["description"]


def test_no_path_of_the_server_itself_needs_credentials() -> None:
    assert [path for path, verbs in paths().items() if verbs["get"]["security"] != []] == []


def test_only_readiness_can_be_refused() -> None:
    found = paths()
    assert set(found["/healthz"]["get"]["responses"]) == {"200"}
    assert set(found["/readyz"]["get"]["responses"]) == {"200", "503"}
