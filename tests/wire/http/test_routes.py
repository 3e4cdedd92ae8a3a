import pytest

from dragoman.core.errors import InvalidParams
from dragoman.wire.http.httprule import parse, rules
from dragoman.wire.http.routes import Candidate, Match, NoMatch, Routes
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
