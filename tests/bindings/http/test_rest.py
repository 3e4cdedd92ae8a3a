"""REST, with a fake service."""

from __future__ import annotations

from typing import Any

import pytest
from tests.bindings.fake_service import RESOURCE, TASK, FakeService, over_http
from yarl import URL

from dragoman.core.errors import InvalidParams, TaskNotCancelable, TaskNotFound
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

SENT = pb.SendMessageResponse(task=TASK)
V1_SEND = {"message": {"messageId": "m1", "role": "ROLE_USER", "parts": [{"text": "hello"}]}}
V03_SEND = {"message": {"messageId": "m1", "role": "ROLE_USER", "content": [{"text": "hello"}]}}


V03_RPC = {"messageId": "m1", "role": "user", "parts": [{"kind": "text", "text": "hello"}]}


@pytest.mark.parametrize(
    ("path", "body", "state"),
    [
        ("/message:send", V1_SEND, "TASK_STATE_CANCELED"),
        ("/v1/message:send", V03_SEND, "TASK_STATE_CANCELLED"),
        ("/v1/message:send", {"request": V03_SEND["message"]}, "TASK_STATE_CANCELLED"),
        ("/v1/message:send", {"message": {**V03_RPC, "kind": "message"}}, "TASK_STATE_CANCELLED"),
        (f"/{RESOURCE}/message:send", V03_SEND, "TASK_STATE_CANCELLED"),
        (f"/v1/{RESOURCE}/a2a/v1/message:send", V03_SEND, "TASK_STATE_CANCELLED"),
    ],
)
async def test_each_path_has_its_dialect(path: str, body: Any, state: str) -> None:
    canceled = pb.Task(id="t1", status=pb.TaskStatus(state=pb.TASK_STATE_CANCELED))
    service = FakeService(pb.SendMessageResponse(task=canceled))
    async with over_http(service) as client, client.post(path, json=body) as answer:
        assert answer.status == 200
        assert answer.headers["Content-Type"] == "application/json"
        assert (await answer.json())["task"]["status"]["state"] == state
    (name, call, request), *_ = service.received
    assert (name, request.message.parts[0].text, call.caller.agent) == ("send_message", "hello", "echo")


@pytest.mark.parametrize(
    "path",
    [
        "/tasks/t1",
        "/v1/tasks/t1",
        f"/{RESOURCE}/tasks/t1",
        f"/v1/{RESOURCE}/a2a/v1/tasks/t1",
        f"/v1/{RESOURCE}/tasks/t1",
    ],
)
async def test_path_and_query_become_the_request(path: str) -> None:
    service = FakeService(TASK)
    query = "?historyLength=3&alt=json&%24.xgafv=1&prettyPrint=true" + ("" if "projects" in path else "&unknown=1")
    async with over_http(service) as client, client.get(path + query) as answer:
        assert (answer.status, (await answer.json())["id"]) == (200, "t1")
    _, call, request = service.received[0]
    assert (request.id, request.history_length) == ("t1", 3)
    assert call.caller.owner.scope == (RESOURCE.removesuffix("/agents/echo") if "projects" in path else "default")


async def test_a_misspelled_parameter_of_1_0_is_refused_and_of_0_3_ignored() -> None:
    async with over_http(FakeService(pb.ListTasksResponse())) as client:
        async with client.get("/tasks?pageSze=1&utm_source=x", headers={"A2A-Version": "1.0"}) as answer:
            text = (await answer.json())["error"]["message"]
            assert (answer.status, text) == (400, "pageSze: is not a parameter of this method; did you mean pageSize?")
        async with client.get("/v1/tasks?pageSze=1") as answer:
            assert answer.status == 200


@pytest.mark.parametrize(
    "path", ["/v1/message:send", f"/{RESOURCE}/message:send", f"/v1/{RESOURCE}/a2a/v1/message:send"]
)
@pytest.mark.parametrize("data", [{"a": 1}, {"data": {"a": 1}, "b": 2}, [1]])
async def test_0_3_refuses_data_in_the_form_of_1_0(path: str, data: Any) -> None:
    service = FakeService(SENT)
    body = {"message": {"messageId": "m1", "role": "ROLE_USER", "content": [{"text": "x"}, {"data": data}]}}
    async with over_http(service) as client, client.post(path, json=body) as answer:
        assert answer.status in (400, 422)
        violation = (await answer.json())["error"]["details"][1]["fieldViolations"][0]
    assert violation["field"] == "message.content[1].data"
    assert '{"data": {"data": {...}}}' in violation["description"]
    assert not service.received


@pytest.mark.parametrize("data", [{"data": {"a": 1}}, {"data": {}}, {}])
async def test_0_3_takes_data_in_its_own_form(data: Any) -> None:
    service = FakeService(SENT)
    body = {"message": {"messageId": "m1", "role": "ROLE_USER", "content": [{"data": data}]}}
    async with over_http(service) as client, client.post(f"/{RESOURCE}/message:send", json=body) as answer:
        assert answer.status == 200
    content = service.received[0][2].message.parts[0].data.struct_value
    assert dict(content) == data.get("data", {})


@pytest.mark.parametrize("version", ["1.0", "1.0.1", "0.3", ""])
@pytest.mark.parametrize(
    ("path", "selects_v1"),
    [
        (f"/{RESOURCE}/tasks/t1", True),
        (f"/v1/{RESOURCE}/a2a/v1/tasks/t1", False),
        (f"/v1/{RESOURCE}/tasks/t1", False),
    ],
)
async def test_the_version_selects_1_0_on_resource_paths_without_one(path: str, selects_v1: bool, version: str) -> None:
    canceled = pb.Task(id="t1", status=pb.TaskStatus(state=pb.TASK_STATE_CANCELED))
    expected = "TASK_STATE_CANCELED" if selects_v1 and version.startswith("1") else "TASK_STATE_CANCELLED"
    async with over_http(FakeService(canceled)) as client:
        async with client.get(path, headers={"A2A-Version": version}) as answer:
            assert (await answer.json())["status"]["state"] == expected
        async with client.get(f"{path}?A2A-Version={version}") as answer:
            assert (await answer.json())["status"]["state"] == expected


@pytest.mark.parametrize("path", ["/other/tasks/t1", "/other/v1/tasks/t1"])
async def test_a_tenant_in_the_path_names_the_agent(path: str) -> None:
    service = FakeService(TASK)
    async with over_http(service) as client, client.get(path) as answer:
        assert answer.status == 200
    assert service.received[0][1].caller.agent == "other"


async def test_an_encoded_slash_stays_in_the_id() -> None:
    service = FakeService(TASK)
    async with over_http(service) as client:
        assert client._base_url is not None
        url = URL(f"{client._base_url.origin()}/tasks/a%2Fb%20c", encoded=True)
        async with client.get(url) as answer:
            assert answer.status == 200
    assert service.received[0][2].id == "a/b c"


@pytest.mark.parametrize(
    ("query", "headers"), [("?A2A-Version=1.0", {}), ("", {"A2A-Version": "1.0"}), ("", {"a2a-version": "1.0"})]
)
async def test_a_resource_path_is_1_0_for_callers_that_name_1_0(query: str, headers: dict[str, str]) -> None:
    canceled = pb.Task(id="t1", status=pb.TaskStatus(state=pb.TASK_STATE_CANCELED))
    async with over_http(FakeService(canceled)) as client:
        path = f"/{RESOURCE}/tasks/t1"
        async with client.get(path + query, headers=headers) as named, client.get(path) as unnamed:
            assert (await named.json())["status"]["state"] == "TASK_STATE_CANCELED"
            assert (await unnamed.json())["status"]["state"] == "TASK_STATE_CANCELLED"


@pytest.mark.parametrize("path", ["/tasks/t1", "/v1/tasks/t1", f"/{RESOURCE}/tasks/t1"])
async def test_an_unsupported_version_is_rejected_in_header_and_query(path: str) -> None:
    service = FakeService(TASK)
    async with over_http(service) as client:
        for query, headers in (("?A2A-Version=99.0", {}), ("", {"A2A-Version": "99.0"})):
            async with client.get(path + query, headers=headers) as answer:
                assert answer.status == 400
                assert (await answer.json())["error"]["details"][0]["reason"] == "VERSION_NOT_SUPPORTED"
    assert service.received == []


async def test_a2a_json_is_returned_only_to_1_0_callers_that_accept_it() -> None:
    headers = {"Accept": "application/a2a+json, application/json"}
    async with over_http(FakeService(TASK)) as client:
        async with client.get("/tasks/t1", headers=headers) as answer:
            assert answer.headers["Content-Type"] == "application/a2a+json"
        async with client.get("/v1/tasks/t1", headers=headers) as answer:
            assert answer.headers["Content-Type"] == "application/json"


async def test_lists_always_contain_all_fields() -> None:
    async with over_http(FakeService(pb.ListTasksResponse())) as client:
        async with client.get("/tasks") as answer:
            assert await answer.json() == {"tasks": [], "nextPageToken": "", "pageSize": 0, "totalSize": 0}
        async with client.get("/v1/tasks") as answer:
            assert await answer.json() == {"tasks": [], "nextPageToken": "", "totalSize": 0}


@pytest.mark.parametrize("path", ["/tasks/t1:cancel", "/v1/tasks/t1:cancel"])
@pytest.mark.parametrize("body", [None, b"", b"{}", b'{"name": "tasks/else", "id": "else"}'])
async def test_cancel_ignores_the_task_id_in_the_body(path: str, body: bytes | None) -> None:
    service = FakeService(TASK)
    headers = {"Content-Type": "application/json"}
    async with over_http(service) as client, client.post(path, data=body, headers=headers) as answer:
        assert answer.status == 200
    assert service.received[0][2].id == "t1"


async def test_1_0_errors_have_the_aip_193_format() -> None:
    service = FakeService(InvalidParams.field("pageSize", "must be 1 to 100"))
    async with over_http(service) as client, client.get("/tasks?pageSize=1000") as answer:
        assert (answer.status, answer.headers["Content-Type"]) == (400, "application/json")
        body = await answer.json()
    assert set(body) == {"error"}
    assert (body["error"]["code"], body["error"]["status"]) == (400, "INVALID_ARGUMENT")
    assert body["error"]["details"][1]["fieldViolations"][0]["field"] == "pageSize"


async def test_0_3_errors_have_the_fields_of_all_clients() -> None:
    async with over_http(FakeService(TaskNotCancelable())) as client, client.post("/v1/tasks/t1:cancel") as answer:
        assert answer.status == 409
        body = await answer.json()
    assert (body["code"], body["type"]) == (-32002, "TaskNotCancelableError")
    assert body["error"]["details"][0]["reason"] == "TASK_NOT_CANCELABLE"


async def test_errors_on_a_resource_path_are_aip_193_with_1_0_statuses() -> None:
    async with (
        over_http(FakeService(TaskNotCancelable())) as client,
        client.post(f"/{RESOURCE}/tasks/t1:cancel") as answer,
    ):
        assert (answer.status, set(await answer.json())) == (400, {"error"})


@pytest.mark.parametrize(
    "path",
    [
        "/tasks/t1",
        "/v1/tasks/t1",
        f"/{RESOURCE}/tasks/t1",
        f"/v1/{RESOURCE}/a2a/v1/tasks/t1",
        f"/v1/{RESOURCE}/tasks/t1",
    ],
)
async def test_an_unknown_verb_is_not_found(path: str) -> None:
    async with over_http(FakeService(TASK)) as client:
        async with client.post(f"{path}:frobnicate", json={}) as answer:
            assert (answer.status, (await answer.json())["error"]["status"]) == (404, "NOT_FOUND")
        async with client.delete(f"{path}:cancel") as answer:
            assert (answer.status, answer.headers["Allow"]) == (405, "POST")
        async with client.delete(path) as answer:
            assert (answer.status, answer.headers["Allow"]) == (405, "GET, HEAD")


async def test_the_extended_card_is_unsupported_without_authentication() -> None:
    async with over_http(FakeService()) as client, client.get("/extendedAgentCard") as answer:
        assert (await answer.json())["error"]["details"][0]["reason"] == "UNSUPPORTED_OPERATION"


@pytest.mark.parametrize("path", ["/v1/card", "/other/v1/card", f"/{RESOURCE}/card", f"/v1/{RESOURCE}/a2a/v1/card"])
async def test_0_3_returns_the_card_of_the_addressed_agent(path: str) -> None:
    async with over_http(FakeService()) as client, client.get(path) as answer:
        card = await answer.json()
    assert card["name"] == ("Other" if "other" in path else "Echo")
    assert card["protocolVersion"] == "0.3.0"
    assert "supportedInterfaces" not in card


async def test_an_unknown_agent_is_not_found() -> None:
    async with over_http(FakeService(TaskNotFound())) as client, client.get("/unknown/tasks/t1") as answer:
        assert answer.status == 404
        assert (await answer.json())["error"]["details"][0]["reason"] == "AGENT_NOT_FOUND"
