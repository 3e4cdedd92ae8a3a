"""Push notifications in every dialect: configurations, and the format of webhook requests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from tests.dialects.dialect_clients import (
    AGENT,
    DIALECT_CLIENTS,
    CallRejected,
    ServerConnections,
    V03JsonRpc,
    open_connections,
    state_of,
)
from tests.dialects.push_clients import (
    PUSH_CLIENTS,
    Fasta2aPushClient,
    PushClient,
    PushConfigView,
    Receiver,
    V03JsonRpcPushClient,
    V03RestPushClient,
    receiver,
)

from dragoman.playground import playground
from dragoman.settings.settings import Address, Settings
from dragoman.wiring.app import open_app
from dragoman_pb.a2a.v1 import a2a_pb2 as v03_pb
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

pytestmark = pytest.mark.long

SECRET = "s3cret"
SAME_SCOPE = tuple(name for name in PUSH_CLIENTS if not name.startswith("0.3 REST"))
"""Clients that use the same scope as DIALECT_CLIENTS. The others call the agent without a resource name."""
EVERY_CLIENT = pytest.mark.parametrize("name", PUSH_CLIENTS)
NOT_FOUND = (-32001, 404, grpc.StatusCode.NOT_FOUND)
NOT_SUPPORTED = (-32003, 400, 501, grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.UNIMPLEMENTED)
INVALID = (-32602, 400, 422, grpc.StatusCode.INVALID_ARGUMENT)


@pytest.fixture
async def hook() -> AsyncIterator[Receiver]:
    async with receiver() as running:
        yield running


def is_last(body: Any) -> bool:
    """Returns whether a webhook request reports the task as completed."""
    member = body if "status" in body else next(iter(body.values()))
    return "status" in member and state_of(member["status"]["state"]) == "completed"


def states_in(hook: Receiver) -> list[str]:
    """Returns the states of the webhook requests, in one spelling."""
    members = [body if "status" in body else next(iter(body.values())) for _, body in hook.requests]
    return [state_of(member["status"]["state"]) for member in members if "status" in member]


# Webhook requests ----------------------------------------------------------------------------------------------------


@EVERY_CLIENT
async def test_a_send_with_a_configuration_calls_its_webhook(
    connections: ServerConnections, hook: Receiver, name: str
) -> None:
    client = PUSH_CLIENTS[name]
    task = await client.send(connections, "stream 2", hook.url, SECRET)
    await hook.wait_for(is_last)
    assert states_in(hook)[0] == "submitted"
    assert states_in(hook)[-1] == "completed"
    for headers, body in hook.requests:
        assert headers[client.token] == SECRET
        assert headers["Authorization"] == f"Bearer {SECRET}"
        assert headers["Content-Type"] == "application/json"
        check_body(name, body, task)
    numbers = [int(headers["Dragoman-Event"].rpartition(".")[2]) for headers, _ in hook.requests]
    assert numbers == sorted(set(numbers))
    if not client.gets_tasks:  # every event, without gaps
        assert numbers == list(range(1, len(numbers) + 1))


def check_body(name: str, body: dict[str, Any], task: str) -> None:
    """Checks that the body of a webhook request has the format of its dialect."""
    if name == "0.1":
        assert (body["id"], "kind" in body, "contextId" in body) == (task, False, False)
        assert body["sessionId"]
    elif name.startswith(("0.3", "fasta2a 0.6")):
        assert (body["kind"], body["id"]) == ("task", task)
        assert body["status"]["state"] == body["status"]["state"].lower()
    elif name.startswith("Google"):
        assert (body["id"], body["status"]["state"][:11]) == (task, "TASK_STATE_")
        assert "content" in body["history"][0]
    else:
        ((member, value),) = body.items()
        assert member in ("task", "statusUpdate", "artifactUpdate")
        assert value["id" if member == "task" else "taskId"] == task
        if "status" in value:
            assert value["status"]["state"].startswith("TASK_STATE_") == name.startswith(("1.0", "a2a-rust"))
        if member == "artifactUpdate":
            assert ("type" in value["artifact"]["parts"][0]) == (name == "a2a-rust")


@EVERY_CLIENT
async def test_a_later_registration_gets_later_events(
    connections: ServerConnections, hook: Receiver, name: str
) -> None:
    task = await start(connections, name)
    await PUSH_CLIENTS[name].create(connections, task, hook.url)
    if name in SAME_SCOPE:
        await DIALECT_CLIENTS["1.0 REST"].send(connections, "tea", task)
    else:
        await answer_in_default_scope(connections, task)
    await hook.wait_for(is_last)
    assert states_in(hook) == ["working", "completed"]
    check_body(name, hook.requests[-1].body, task)


@pytest.mark.parametrize("name", ["0.3 gRPC", "1.0 JSON-RPC", "Google REST"])
async def test_a_webhook_uses_the_dialect_of_its_registration(
    connections: ServerConnections, hook: Receiver, name: str
) -> None:
    for creator in ("0.1", "0.3 JSON-RPC", "fasta2a 2", "1.0 gRPC"):
        hook.requests.clear()
        task = (await DIALECT_CLIENTS[creator].send(connections, "ask")).id
        await PUSH_CLIENTS[name].create(connections, task, hook.url)
        await DIALECT_CLIENTS[creator].send(connections, "tea", task)
        await hook.wait_for(is_last)
        check_body(name, hook.requests[-1].body, task)


# Create, get, list, delete -----------------------------------------------------------------------------------------


async def start(connections: ServerConnections, name: str) -> str:
    """Starts a task that waits for input, in the scope of this dialect. Returns its id."""
    client = PUSH_CLIENTS[name]
    if name in SAME_SCOPE:
        creator = {"fasta2a 0.6": "0.3 JSON-RPC", "Google REST, configId in the query": "Google REST"}.get(name, name)
        return (await DIALECT_CLIENTS[creator].send(connections, "ask")).id
    assert isinstance(client, V03RestPushClient)
    return (await client.rest.send(connections, "ask")).id


async def answer_in_default_scope(connections: ServerConnections, task: str) -> None:
    """Sends the input to a task of the default scope."""
    client = PUSH_CLIENTS["0.3 REST"]
    assert isinstance(client, V03RestPushClient)
    await client.rest.send(connections, "tea", task)


@EVERY_CLIENT
async def test_a_configuration_is_created_read_replaced_and_deleted(connections: ServerConnections, name: str) -> None:
    client, task = PUSH_CLIENTS[name], await start(connections, name)
    created = await client.create(
        connections, task, "https://one.example/hook", "c" if client.has_ids else "", secret=SECRET
    )
    assert created == PushConfigView(task, "c" if client.has_ids else "", "https://one.example/hook", "Bearer")
    assert await client.get(connections, task, "c") == created
    other = await client.create(connections, task, "https://two.example/hook", "c" if client.has_ids else "")
    assert (other.url, other.scheme) == ("https://two.example/hook", "")
    assert await client.get(connections, task, "c") == other
    if not client.has_ids:
        return
    await client.delete(connections, task, "c")
    await client.delete(connections, task, "c")
    assert await client.list_all(connections, task) == []


@EVERY_CLIENT
async def test_a_configuration_without_an_id_is_a_new_one_in_1_0(connections: ServerConnections, name: str) -> None:
    client, task = PUSH_CLIENTS[name], await start(connections, name)
    first = await client.create(connections, task, "https://one.example/hook")
    second = await client.create(connections, task, "https://two.example/hook")
    if not client.has_ids:
        assert await client.get(connections, task, "") == second
        return
    expected = [second] if client.replaces_unnamed else [first, second]
    assert await client.list_all(connections, task) == expected
    assert len({first.id, second.id, task}) == (1 if client.replaces_unnamed else 3)
    for config in expected:
        assert await client.get(connections, task, config.id) == config
        await client.delete(connections, task, config.id)
    assert await client.list_all(connections, task) == []


@EVERY_CLIENT
async def test_an_unknown_task_or_configuration_is_not_found(connections: ServerConnections, name: str) -> None:
    client, task = PUSH_CLIENTS[name], await start(connections, name)
    with pytest.raises(CallRejected) as rejected:
        await client.get(connections, task, "c")
    assert rejected.value.args[0] in NOT_FOUND
    calls = [client.create(connections, "none", "https://one.example/"), client.get(connections, "none", "c")]
    if client.has_ids:
        calls += [client.list_all(connections, "none"), client.delete(connections, "none", "c")]  # type: ignore[list-item]
    for call in calls:
        with pytest.raises(CallRejected) as rejected:
            await call
        assert rejected.value.args[0] in NOT_FOUND


@EVERY_CLIENT
@pytest.mark.parametrize(
    "url", ["", "ftp://one.example/", "http://169.254.169.254/latest", "http://10.0.0.1/", "https://a:b@one.example/"]
)
async def test_a_forbidden_url_is_rejected(connections: ServerConnections, name: str, url: str) -> None:
    client, task = PUSH_CLIENTS[name], await start(connections, name)
    for call in (client.create(connections, task, url, "c"), client.send(connections, "echo", url, "")):
        with pytest.raises((CallRejected, grpc.aio.AioRpcError)) as rejected:
            await call
        error = rejected.value
        assert (error.code() if isinstance(error, grpc.aio.AioRpcError) else error.args[0]) in INVALID


@pytest.mark.parametrize("name", ["0.3 JSON-RPC", "0.3 gRPC", "fasta2a 0.6"])
async def test_0_3_gets_the_only_configuration_without_its_id(connections: ServerConnections, name: str) -> None:
    client, task = PUSH_CLIENTS[name], await start(connections, name)
    created = await client.create(connections, task, "https://one.example/", "c")
    assert await client.get(connections, task, "") == created


@EVERY_CLIENT
async def test_a_waiting_task_accepts_a_configuration(connections: ServerConnections, name: str) -> None:
    client = PUSH_CLIENTS[name]
    task = await start(connections, name)
    created = await client.create(connections, task, "https://one.example/")
    assert created.task == task


# Without push --------------------------------------------------------------------------------------------------------


@pytest.fixture
async def connections_without_push(tmp_path: Path) -> AsyncIterator[ServerConnections]:
    any_port = Address("127.0.0.1", 0)
    settings = Settings(http=any_port, grpc=any_port, store=f"sqlite:///{tmp_path}/other.db", push=False)
    async with open_app(settings, [playground]) as app, open_connections(str(app.http), str(app.grpc)) as opened:
        yield opened


@EVERY_CLIENT
async def test_a_server_without_push_rejects_every_push_call(
    connections_without_push: ServerConnections, name: str
) -> None:
    client: PushClient = PUSH_CLIENTS[name]
    task = await start(connections_without_push, name)
    calls: list[Any] = [
        client.create(connections_without_push, task, "nonsense"),
        client.get(connections_without_push, task, "c"),
        client.send(connections_without_push, "echo", "nonsense", ""),
    ]
    if client.has_ids:
        calls += [
            client.list_all(connections_without_push, "none"),
            client.delete(connections_without_push, "none", "c"),
        ]
    for call in calls:
        with pytest.raises((CallRejected, grpc.aio.AioRpcError)) as rejected:
            await call
        error = rejected.value
        assert (error.code() if isinstance(error, grpc.aio.AioRpcError) else error.args[0]) in NOT_SUPPORTED


@pytest.mark.parametrize("version", ["", "1.0", "0.3", "0.1"])
async def test_every_card_declares_whether_push_is_supported(
    connections: ServerConnections, connections_without_push: ServerConnections, version: str
) -> None:
    for server, supported in ((connections, True), (connections_without_push, False)):
        for path in ("/.well-known/agent-card.json", "/.well-known/agent.json", "/v1/card"):
            headers = {"A2A-Version": version} if version else {}
            async with server.http.get(path, headers=headers) as answer:
                assert bool((await answer.json())["capabilities"].get("pushNotifications")) is supported


@pytest.mark.parametrize("task_key", ["taskId", "task_id"])
async def test_a_flat_configuration_of_fasta2a_is_answered_in_its_shape(
    connections: ServerConnections, hook: Receiver, task_key: str
) -> None:
    client = Fasta2aPushClient()
    task = (await client.client.send(connections, "ask")).id
    flat = {"taskId": task, "id": "c", "url": hook.url}
    sent = {task_key: task, "id": "c", "url": hook.url}
    assert await client.client.call(connections, "tasks/pushNotification/set", sent) == flat
    named = {task_key: task, "id": "c"}
    assert await client.client.call(connections, "tasks/pushNotification/get", named) == flat
    listed = await client.client.call(connections, "tasks/pushNotificationConfig/list", {task_key: task})
    assert listed == {"configs": [flat]}
    with pytest.raises(CallRejected, match="-32602"):
        await client.client.call(connections, "tasks/pushNotification/set", {"url": hook.url})


async def test_fasta2a_0_5_reads_and_writes_authentication_as_openapi_does(
    connections: ServerConnections, hook: Receiver
) -> None:
    client = V03JsonRpc()
    task = (await client.send(connections, "ask")).id
    described = {"type": "http", "scheme": "bearer", "bearerFormat": "JWT", "description": "of the hook, signed"}
    wanted = {**described, "schemes": ["bearer"]}
    config = {"id": "c", "url": hook.url, "token": "seen by its setter", "authentication": described}
    sent = {"id": task, "pushNotificationConfig": config}
    shown = {"id": task, "taskId": task, "pushNotificationConfig": {**config, "authentication": wanted}}
    assert await client.call(connections, "tasks/pushNotification/set", sent) == shown
    assert await client.call(connections, "tasks/pushNotification/get", {"id": task}) == shown
    listed = await client.call(connections, "tasks/pushNotificationConfig/list", {"id": task})
    brief = {"type": "http", "scheme": "bearer", "schemes": ["bearer"]}
    assert [one["pushNotificationConfig"] for one in listed] == [{"id": "c", "url": hook.url, "authentication": brief}]
    for invalid in (
        {"type": "apiKey", "in": "header", "name": "X-Key"},
        {"type": "oauth2", "flows": {}},
        {"type": "http"},
        {**described, "description": "x" * 5000},
    ):
        bad = {"id": task, "pushNotificationConfig": {"id": "d", "url": hook.url, "authentication": invalid}}
        with pytest.raises(CallRejected, match="-32602"):
            await client.call(connections, "tasks/pushNotification/set", bad)
    assert await client.call(connections, "tasks/pushNotificationConfig/list", {"id": task}) == listed
    request = pb.GetTaskPushNotificationConfigRequest(tenant=AGENT, task_id=task, id="c")
    shown_by_1_0 = await connections.v1.GetTaskPushNotificationConfig(request)
    assert (shown_by_1_0.authentication.scheme, shown_by_1_0.token) == ("bearer", "")
    await client.send(connections, "tea", task)
    await hook.wait_for(is_last)
    assert {headers["X-A2A-Notification-Token"] for headers, _ in hook.requests} == {"seen by its setter"}


async def test_a_line_break_of_a_caller_begins_no_description(connections: ServerConnections, hook: Receiver) -> None:
    scheme = 'Bearer\n{"description": "x"}'
    task = (await V03JsonRpc().send(connections, "ask")).id
    for authentication in ({"scheme": scheme}, {"schemes": [scheme]}, {"type": "http", "scheme": scheme}):
        config = {"id": "c", "url": hook.url, "authentication": authentication}
        sent = {"id": task, "pushNotificationConfig": config}
        with pytest.raises(CallRejected, match="-32602"):
            await V03JsonRpc().call(connections, "tasks/pushNotification/set", sent)
        path, headers = f"/{AGENT}/tasks/{task}/pushNotificationConfigs", {"A2A-Version": "1.0"}
        async with connections.http.post(path, json=config, headers=headers) as answer:
            assert "must be an HTTP authentication scheme" in await answer.text()
    info = pb.AuthenticationInfo(scheme=scheme)
    requested = pb.TaskPushNotificationConfig(tenant=AGENT, task_id=task, url=hook.url, authentication=info)
    with pytest.raises(grpc.aio.AioRpcError, match="must be an HTTP authentication scheme"):
        await connections.v1.CreateTaskPushNotificationConfig(requested)
    older = v03_pb.PushNotificationConfig(url=hook.url, authentication=v03_pb.AuthenticationInfo(schemes=[scheme]))
    named = v03_pb.TaskPushNotificationConfig(push_notification_config=older)
    request = v03_pb.CreateTaskPushNotificationConfigRequest(
        parent=f"{AGENT}/tasks/{task}", config_id="c", config=named
    )
    with pytest.raises(grpc.aio.AioRpcError, match="must be an HTTP authentication scheme"):
        await connections.v03.CreateTaskPushNotificationConfig(request)


async def test_every_scheme_is_kept_and_the_first_is_used(connections: ServerConnections, hook: Receiver) -> None:
    client = V03JsonRpc()
    task = (await client.send(connections, "ask")).id
    authentication = {"schemes": ["Bearer", "Basic"], "credentials": SECRET}
    config = {"id": "c", "url": hook.url, "authentication": authentication}
    sent = {"taskId": task, "pushNotificationConfig": config}
    shown = await client.call(connections, "tasks/pushNotificationConfig/set", sent)
    assert shown["pushNotificationConfig"]["authentication"] == {"schemes": ["Bearer", "Basic"]}
    name = f"{AGENT}/a2a/v1/tasks/{task}/pushNotificationConfigs/c"
    async with connections.http.get(f"/v1/{name}") as answer:
        inner = (await answer.json())["pushNotificationConfig"]
    assert inner["authentication"]["schemes"] == ["Bearer", "Basic"]
    await client.send(connections, "tea", task)
    await hook.wait_for(is_last)
    assert {headers["Authorization"] for headers, _ in hook.requests} == {f"Bearer {SECRET}"}


@pytest.mark.parametrize("name", ["0.1", "fasta2a 0.6"])
async def test_a_token_is_shown_by_the_methods_whose_types_have_it(
    connections: ServerConnections, hook: Receiver, name: str
) -> None:
    client = PUSH_CLIENTS[name]
    assert isinstance(client, V03JsonRpcPushClient)
    task = await start(connections, name)
    params = {"id": task, "pushNotificationConfig": {"url": hook.url, "token": SECRET}}
    for method, given in ((client.names[0], params), (client.names[1], {"id": task})):
        shown = await client.client.call(connections, method, given)
        assert shown["pushNotificationConfig"]["token"] == SECRET
