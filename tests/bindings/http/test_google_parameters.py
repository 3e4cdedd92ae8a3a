"""Google's form over REST: strict requests and the system parameters of Google's APIs, with a fake service."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from typing import Any

import pytest
from tests.bindings.fake_service import RESOURCE, TASK, FakeService, over_grpc, over_http, status_event, task_event

from dragoman.core.access.identity import AccessPolicy, Identity
from dragoman.core.errors import PushConfigNotFound, TaskNotFound, Unauthenticated
from dragoman.core.task import states
from dragoman.security.authenticators.composite import read_credentials
from dragoman_pb.a2a.v1 import a2a_pb2 as v03_pb
from dragoman_pb.a2a.v1 import a2a_pb2_grpc as v03_rpc
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

pytestmark = pytest.mark.long

SENT = pb.SendMessageResponse(task=TASK)
MESSAGE = {"messageId": "m1", "role": "ROLE_USER", "content": [{"text": "hello"}]}
SEND_PATHS = [f"/{RESOURCE}/message:send", f"/v1/{RESOURCE}/a2a/v1/message:send", f"/v1/{RESOURCE}/message:send"]
GET_PATHS = [f"/{RESOURCE}/tasks/t1", f"/v1/{RESOURCE}/a2a/v1/tasks/t1", f"/v1/{RESOURCE}/tasks/t1"]


def violation(body: Any) -> dict[str, str]:
    """The only field violation of an INVALID_ARGUMENT error."""
    assert (body["error"]["code"], body["error"]["status"]) == (400, "INVALID_ARGUMENT")
    (found,) = body["error"]["details"][1]["fieldViolations"]
    return dict(found)


@pytest.mark.parametrize("path", SEND_PATHS)
@pytest.mark.parametrize(
    ("body", "field", "use"),
    [
        ({"message": MESSAGE, "config": {}}, "config", "configuration"),
        ({"message": {**MESSAGE, "kind": "message"}}, "message.kind", "messageId"),
        ({"message": {**MESSAGE, "content": [{"kind": "text", "text": "x"}]}}, "message.content[0].kind", "text"),
        ({"request": {"messageId": "m", "parts": [{"txt": "x"}]}}, "request.parts[0].txt", "text"),
        ({"message": MESSAGE, "configuration": {"returnImmediately": True}}, "configuration.returnImmediately", "bl"),
        ({"message": MESSAGE, "unknown": None}, "unknown", "message"),
    ],
)
async def test_an_unknown_field_is_refused_by_its_name(path: str, body: Any, field: str, use: str) -> None:
    service = FakeService(SENT)
    async with over_http(service) as client, client.post(path, json=body) as answer:
        found = violation(await answer.json())
    assert found["field"] == field
    assert found["description"].startswith("is not a field of")
    assert use in found["description"].partition("use")[2]
    assert not service.received


@pytest.mark.parametrize("form", [f"/{RESOURCE}", f"/v1/{RESOURCE}/a2a/v1", f"/v1/{RESOURCE}"])
async def test_every_resource_form_has_the_calls_of_an_agent(form: str) -> None:
    service = FakeService(SENT, events=[task_event()])
    async with over_http(service) as client:
        for verb in ("send", "stream"):
            async with client.post(f"{form}/message:{verb}", json={"message": MESSAGE}) as answer:
                assert answer.status == 200
        service.answer = pb.ListTasksResponse()
        async with client.get(f"{form}/tasks") as answer:
            assert (answer.status, (await answer.json())["tasks"]) == (200, [])
        async with client.get(f"{form}/card") as answer:
            assert (await answer.json())["url"].endswith(f"/{RESOURCE}")
    scopes = {call.caller.owner.scope for _, call, _ in service.received}
    assert (len(service.received), scopes) == (3, {RESOURCE.removesuffix("/agents/echo")})


async def test_other_forms_ignore_unknown_fields_and_parameters() -> None:
    service = FakeService(SENT)
    body = {"message": MESSAGE, "unknown": 1}
    async with over_http(service) as client:
        async with client.post("/v1/message:send?unknown=1", json=body) as answer:
            assert answer.status == 200
        v1 = {"message": {**MESSAGE, "parts": MESSAGE["content"]}, "unknown": 1}
        headers = {"A2A-Version": "1.0"}
        async with client.post(f"{SEND_PATHS[0]}?unknown=1", json=v1, headers=headers) as answer:
            assert answer.status == 200


@pytest.mark.parametrize("path", GET_PATHS)
@pytest.mark.parametrize(
    ("query", "field", "rule"),
    [
        ("pageSize=1", "pageSize", "is not a parameter of this method; use name, historyLength, tenant"),
        ("historylength=1", "historylength", "is not a parameter"),
        ("name=tasks/other", "name", "is also given as"),
        ("alt=proto", "alt", 'must be json or sse, each also with ";enum-encoding=int"'),
        ("%24alt=json;enum-encoding=hex", "$alt", "must be json or sse"),
        ("alt=json&%24alt=sse", "$alt", "is given more than once, with different values"),
        ("alt=sse", "alt", "sse is for streams; use json"),
        ("prettyPrint=maybe", "prettyPrint", "must be true or false"),
        ("%24.xgafv=3", "$.xgafv", "must be 1 or 2"),
        ("callback=f", "callback", "JSONP is not served"),
        ("fields=state", "fields", '"state" is not a field of Task; use id, contextId, status'),
        ("fields=", "fields", "must name fields"),
        ("fields=id(", "fields", "needs the name of a field"),
        ("fields=status(state", "fields", 'has a "(" without a ")"'),
        ("fields=id/x", "fields", '"id" has no fields to select from'),
        ("fields=" + "/".join(["metadata"] * 33), "fields", "has more than 32 levels"),
    ],
)
async def test_a_wrong_parameter_is_refused_by_its_name(path: str, query: str, field: str, rule: str) -> None:
    service = FakeService(TASK)
    async with over_http(service) as client, client.get(f"{path}?{query}") as answer:
        found = violation(await answer.json())
    assert found["field"] == field
    assert rule in found["description"]
    assert not service.received


@pytest.mark.parametrize("path", GET_PATHS)
async def test_a_value_may_be_repeated_but_not_changed(path: str) -> None:
    service = FakeService(TASK)
    async with over_http(service) as client:
        async with client.get(f"{path}?name=tasks/t1") as answer:
            assert answer.status == 200
        async with client.post(f"{path}:cancel", json={"name": "tasks/t1"}) as answer:
            assert answer.status == 200
        async with client.post(f"{path}:cancel", json={"name": "tasks/t2"}) as answer:
            assert violation(await answer.json())["field"] == "name"
    assert [request.id for _, _, request in service.received] == ["t1", "t1"]


async def test_a_parameter_beside_the_same_field_in_the_body_is_refused() -> None:
    service = FakeService(SENT)
    body = {"message": MESSAGE, "configuration": {"blocking": True}}
    async with (
        over_http(service) as client,
        client.post(f"{SEND_PATHS[0]}?configuration.historyLength=1", json=body) as answer,
    ):
        assert violation(await answer.json())["field"] == "configuration.historyLength"
    assert not service.received


@pytest.mark.parametrize("path", GET_PATHS)
@pytest.mark.parametrize(
    "query",
    [
        "quotaUser=u&uploadType=x&upload_protocol=raw&key=k",
        "historyLength=2&access_token=t",
        "%24.xgafv=2&A2A-Version=0.3",
    ],
)
async def test_system_parameters_without_effect_are_accepted(path: str, query: str) -> None:
    async with over_http(FakeService(TASK)) as client, client.get(f"{path}?{query}") as answer:
        assert answer.status == 200


@pytest.mark.parametrize("path", GET_PATHS)
@pytest.mark.parametrize(
    ("mask", "expected"),
    [
        ("id", {"id": "t1"}),
        ("id,status/state", {"id": "t1", "status": {"state": "TASK_STATE_COMPLETED"}}),
        ("status.state,contextId", {"contextId": "c1", "status": {"state": "TASK_STATE_COMPLETED"}}),
        ("context_id", {"contextId": "c1"}),
        ("artifacts(parts/text)", {"artifacts": [{"parts": [{"text": "hello"}]}]}),
        ("artifacts/*/text,artifacts(artifactId)", {"artifacts": [{"artifactId": "a1", "parts": [{"text": "hello"}]}]}),
        ("status,status/state", {"status": {"state": "TASK_STATE_COMPLETED"}}),
        ("history", {}),
    ],
)
async def test_fields_selects_a_part_of_the_response(path: str, mask: str, expected: Any) -> None:
    async with over_http(FakeService(TASK)) as client, client.get(path, params={"fields": mask}) as answer:
        assert (answer.status, await answer.json()) == (200, expected)


async def test_fields_selects_keys_of_metadata() -> None:
    task = pb.Task(id="t1")
    task.metadata.update({"a": {"b": 1, "c": 2}, "d": 3})
    async with over_http(FakeService(task)) as client, client.get(f"{GET_PATHS[0]}?fields=metadata/a/b") as answer:
        assert await answer.json() == {"metadata": {"a": {"b": 1}}}


async def test_a_star_selects_every_field() -> None:
    async with over_http(FakeService(TASK)) as client:
        async with client.get(f"{GET_PATHS[0]}?fields=*") as answer:
            selected = await answer.json()
        async with client.get(GET_PATHS[0]) as answer:
            assert await answer.json() == selected


async def test_enums_are_numbers_on_request() -> None:
    async with over_http(FakeService(TASK)) as client:
        async with client.get(f"{GET_PATHS[0]}?%24alt=json;enum-encoding=int") as answer:
            assert (await answer.json())["status"] == {"state": 3}
        async with client.get(GET_PATHS[0]) as answer:
            assert (await answer.json())["status"] == {"state": "TASK_STATE_COMPLETED"}


async def test_pretty_print_indents() -> None:
    async with over_http(FakeService(TASK)) as client:
        async with client.get(f"{GET_PATHS[0]}?prettyPrint=true") as answer:
            assert (await answer.text()).startswith('{\n  "id": "t1"')
        async with client.get(f"{GET_PATHS[0]}?prettyPrint=false") as answer:
            assert (await answer.text()).startswith('{"id":"t1"')


@pytest.mark.parametrize("alt", ["json", "sse"])
async def test_a_stream_is_formatted_element_by_element(alt: str) -> None:
    events = [task_event(), status_event(2, states.COMPLETED, ends=True)]
    query = f"alt={alt};enum-encoding=int&prettyPrint=true&fields=task/status/state,statusUpdate(status/state,final)"
    async with (
        over_http(FakeService(events=events)) as client,
        client.get(f"{GET_PATHS[0]}:subscribe?{query}") as answer,
    ):
        text = await answer.text()
    elements = (
        json.loads(text)
        if alt == "json"
        else [json.loads(line.removeprefix("data: ")) for line in text.splitlines() if line.startswith("data: ")]
    )
    assert elements == [{"task": {"status": {"state": 1}}}, {"statusUpdate": {"status": {"state": 3}, "final": True}}]


async def test_a_wrong_mask_of_a_stream_is_refused_before_it_starts() -> None:
    service = FakeService(events=[task_event()])
    async with over_http(service) as client, client.get(f"{GET_PATHS[0]}:subscribe?fields=id") as answer:
        assert violation(await answer.json())["field"] == "fields"
    assert not service.received


async def test_the_card_has_the_same_parameters() -> None:
    async with over_http(FakeService()) as client, client.get(f"/{RESOURCE}/card?fields=name,skills/id") as answer:
        assert (await answer.json())["name"] == "Echo"
        assert set(await answer.json()) <= {"name", "skills"}


@pytest.mark.parametrize("path", GET_PATHS)
async def test_the_first_error_format_adds_a_list(path: str) -> None:
    async with over_http(FakeService(TaskNotFound())) as client:
        async with client.get(f"{path}?%24.xgafv=1") as answer:
            error = (await answer.json())["error"]
            assert error["errors"] == [{"domain": "global", "reason": "notFound", "message": error["message"]}]
            assert (error["code"], error["status"]) == (404, "NOT_FOUND")
        async with client.get(f"{path}?%24.xgafv=2") as answer:
            assert "errors" not in (await answer.json())["error"]


SECRET = "s3cret-credential"


class OneCredential:
    """Knows SECRET, as key or bearer token. Implements `dragoman.ports.Authenticator`."""

    async def authenticate(self, headers: Iterable[tuple[str, str]]) -> Identity | None:
        credentials = read_credentials(headers, keys=True)
        if credentials is None:
            return None
        if SECRET not in credentials:
            raise Unauthenticated("not known")
        return Identity("key" if credentials.key else "bearer")

    async def recheck(self, identity: Identity) -> None:
        pass


class PushService(FakeService):
    enabled = True


@pytest.mark.parametrize(
    "path", [GET_PATHS[0].removesuffix("/t1"), *(f"{path}/pushNotificationConfigs" for path in GET_PATHS)]
)
@pytest.mark.parametrize(("size", "used"), [(101, 100), (2**31 - 1, 100), (100, 100), (7, 7), (0, 0), (-1, -1)])
async def test_a_page_size_above_the_limit_is_clamped(path: str, size: int, used: int) -> None:
    service = PushService(pb.ListTasksResponse())
    async with over_http(service) as client, client.get(f"{path}?pageSize={size}") as answer:
        assert answer.status == 200
    assert service.received[0][2].page_size == used


@pytest.mark.parametrize("path", [*GET_PATHS, "/tasks/t1", "/v1/tasks/t1"])
async def test_a_missing_push_configuration_is_not_a_missing_task(path: str) -> None:
    service = PushService(PushConfigNotFound())
    async with over_http(service) as client, client.get(f"{path}/pushNotificationConfigs/c") as answer:
        error = (await answer.json())["error"]
    reason = "PUSH_NOTIFICATION_CONFIG_NOT_FOUND" if path in GET_PATHS else "TASK_NOT_FOUND"  # 1.0 §5.4
    assert (answer.status, error["status"], error["details"][0]["reason"]) == (404, "NOT_FOUND", reason)
    if path in GET_PATHS:
        assert error["message"] == "The task has no such push notification configuration"


@pytest.mark.parametrize("path", GET_PATHS)
async def test_names_of_push_configurations_are_full_where_the_path_is_a_name(path: str) -> None:
    config = pb.TaskPushNotificationConfig(id="c", task_id="t1", url="https://h.example")
    name = "tasks/t1/pushNotificationConfigs/c"
    if path == f"/v1/{RESOURCE}/tasks/t1":
        name = f"{RESOURCE}/{name}"
    async with over_http(PushService(config)) as client:
        async with client.get(f"{path}/pushNotificationConfigs/c") as answer:
            assert (await answer.json())["name"] == name
        body = {"pushNotificationConfig": {"url": "https://h.example"}}
        async with client.post(f"{path}/pushNotificationConfigs", json=body) as answer:
            assert (await answer.json())["name"] == name
        async with client.get(f"{path}/pushNotificationConfigs/c?fields=name") as answer:
            assert await answer.json() == {"name": name}
    listed = pb.ListTaskPushNotificationConfigsResponse(configs=[config])
    async with over_http(PushService(listed)) as client, client.get(f"{path}/pushNotificationConfigs") as answer:
        assert [each["name"] for each in (await answer.json())["configs"]] == [name]


HOOK = {"url": "https://h.example"}


@pytest.mark.parametrize("path", GET_PATHS)
@pytest.mark.parametrize(
    ("query", "body", "id"),
    [
        ("", {"pushNotificationConfig": HOOK}, ""),
        ("", {"name": "tasks/t1/pushNotificationConfigs/c", "pushNotificationConfig": HOOK}, "c"),
        ("", {"name": f"{RESOURCE}/tasks/t1/pushNotificationConfigs/c", "pushNotificationConfig": HOOK}, "c"),
        ("", {"pushNotificationConfig": {**HOOK, "id": "c"}}, "c"),
        ("configId=c", {"pushNotificationConfig": HOOK}, "c"),
        (
            "configId=c",
            {"name": "tasks/t1/pushNotificationConfigs/c", "pushNotificationConfig": {**HOOK, "id": "c"}},
            "c",
        ),
        ("configId=c", {"name": "tasks/t1/pushNotificationConfigs/None", "pushNotificationConfig": HOOK}, "c"),
        ("", {"name": "tasks/t1/pushNotificationConfigs/undefined", "pushNotificationConfig": HOOK}, ""),
    ],
)
async def test_a_push_configuration_takes_its_id_from_wherever_it_is(path: str, query: str, body: Any, id: str) -> None:
    service = PushService(pb.TaskPushNotificationConfig(id="c", task_id="t1", url="https://h.example"))
    async with (
        over_http(service) as client,
        client.post(f"{path}/pushNotificationConfigs?{query}", json=body) as answer,
    ):
        assert answer.status == 200, await answer.text()
    assert service.received[0][2].id == id


@pytest.mark.parametrize("path", GET_PATHS)
@pytest.mark.parametrize(
    ("query", "config", "field", "rule"),
    [
        ("configId=c", {"pushNotificationConfig": {**HOOK, "id": "d"}}, "pushNotificationConfig.id", '"c"'),
        ("configId=c", {"name": "tasks/t1/pushNotificationConfigs/d"}, "name", '"c"'),
        ("", {"name": "tasks/t1/pushNotificationConfigs/d", "pushNotificationConfig": {"id": "c"}}, "name", '"c"'),
        ("", {"name": "tasks/t2/pushNotificationConfigs/c"}, "name", "tasks/t1/pushNotificationConfigs/ID"),
        ("", {"name": f"{RESOURCE}x/tasks/t1/pushNotificationConfigs/c"}, "name", "tasks/t1/"),
        ("", {"name": "c"}, "name", "tasks/t1/pushNotificationConfigs/ID"),
        ("", {"name": "tasks/t1"}, "name", "tasks/t1/pushNotificationConfigs/ID"),
    ],
)
async def test_ids_of_a_push_configuration_that_contradict_are_refused(
    path: str, query: str, config: Any, field: str, rule: str
) -> None:
    service = PushService(pb.TaskPushNotificationConfig(id="c", task_id="t1"))
    body = {**config, "pushNotificationConfig": HOOK | config.get("pushNotificationConfig", {})}
    async with (
        over_http(service) as client,
        client.post(f"{path}/pushNotificationConfigs?{query}", json=body) as answer,
    ):
        found = violation(await answer.json())
    assert found["field"] == f"config.{field}"
    assert rule in found["description"]
    assert not service.received


async def test_other_forms_of_0_3_ignore_the_name_of_a_push_configuration() -> None:
    service = PushService(pb.TaskPushNotificationConfig(id="c", task_id="t1"))
    body = {"name": "tasks/t1/pushNotificationConfigs/d", "pushNotificationConfig": HOOK}
    async with (
        over_http(service) as client,
        client.post("/v1/tasks/t1/pushNotificationConfigs?configId=c", json=body) as answer,
    ):
        assert answer.status == 200
    assert service.received[0][2].id == "c"


async def test_names_are_full_over_grpc_if_the_request_s_are() -> None:
    config = pb.TaskPushNotificationConfig(id="c", task_id="t1", url="https://h.example")
    name = "tasks/t1/pushNotificationConfigs/c"
    async with over_grpc(PushService(config)) as (channel, _):
        stub = v03_rpc.A2AServiceStub(channel)
        for given in (name, f"{RESOURCE}/{name}"):
            request = v03_pb.GetTaskPushNotificationConfigRequest(name=given)
            assert (await stub.GetTaskPushNotificationConfig(request)).name == given


@pytest.mark.parametrize("path", ["/tasks", "/v1/tasks"])
async def test_other_forms_keep_the_page_size_as_sent(path: str) -> None:
    service = FakeService(pb.ListTasksResponse())
    async with over_http(service) as client, client.get(f"{path}?pageSize=101") as answer:
        assert answer.status == 200
    assert service.received[0][2].page_size == 101


@pytest.mark.parametrize("path", [*GET_PATHS, f"/{RESOURCE}/card"])
@pytest.mark.parametrize(
    ("query", "headers", "principal"),
    [
        (f"key={SECRET}", {}, "key"),
        (f"%24key={SECRET}", {}, "key"),
        ("", {"X-Goog-Api-Key": SECRET}, "key"),
        (f"access_token={SECRET}", {}, "bearer"),
        (f"oauth_token={SECRET}", {}, "bearer"),
        ("", {"Authorization": f"Bearer {SECRET}"}, "bearer"),
    ],
)
async def test_credentials_are_read_where_google_s_clients_put_them(
    path: str, query: str, headers: dict[str, str], principal: str, caplog: pytest.LogCaptureFixture
) -> None:
    service = FakeService(TASK)
    caplog.set_level(logging.DEBUG)
    async with (
        over_http(
            service, authenticator=OneCredential(), access_policy=AccessPolicy(credentials_required=True)
        ) as client,
        client.get(f"{path}?{query}", headers=headers) as answer,
    ):
        assert answer.status == 200
    for _, call, _ in service.received:
        assert call.caller.owner.principal == principal
    assert SECRET not in caplog.text


@pytest.mark.parametrize("query", [f"key={SECRET}&key={SECRET}", f"key={SECRET}&access_token={SECRET}", "key=other"])
async def test_wrong_credentials_in_the_query_are_refused_and_not_logged(
    query: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with (
        over_http(FakeService(TASK), authenticator=OneCredential()) as client,
        client.get(f"{GET_PATHS[0]}?{query}") as answer,
    ):
        assert answer.status == 401
        assert SECRET not in await answer.text()
    assert "key=" not in caplog.text
    assert SECRET not in caplog.text


async def test_other_paths_take_no_credentials_from_the_query() -> None:
    async with (
        over_http(
            FakeService(TASK), authenticator=OneCredential(), access_policy=AccessPolicy(credentials_required=True)
        ) as client,
        client.get(f"/v1/tasks/t1?key={SECRET}") as answer,
    ):
        assert answer.status == 401
