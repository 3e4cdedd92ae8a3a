"""Push notifications in every dialect: what may be asked of a webhook, and in whose words it is told."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from tests.dialects.dialect_clients import DIALECT_CLIENTS, CallRejected, ServerConnections, open_connections, state_of
from tests.dialects.push_clients import PUSH_CLIENTS, PushClient, PushConfigView, Receiver, V03RestHooks, receiver

from dragoman.playground import playground
from dragoman.settings.settings import Address, Settings
from dragoman.wiring.app import open_app

SECRET = "s3cret"
SCOPED = tuple(name for name in PUSH_CLIENTS if not name.startswith("0.3 REST"))
"""Those that find tasks where the speakers make them: these three call the agent without a resource name."""
EVERY = pytest.mark.parametrize("name", PUSH_CLIENTS)
NOT_FOUND = (-32001, 404, grpc.StatusCode.NOT_FOUND)
NOT_SUPPORTED = (-32003, 400, 501, grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.UNIMPLEMENTED)
INVALID = (-32602, 400, 422, grpc.StatusCode.INVALID_ARGUMENT)


@pytest.fixture
async def hook() -> AsyncIterator[Receiver]:
    async with receiver() as found:
        yield found


def is_last(body: Any) -> bool:
    """Whether a letter tells that the task is completed."""
    member = body if "status" in body else next(iter(body.values()))
    return "status" in member and state_of(member["status"]["state"]) == "completed"


def states_in(hook: Receiver) -> list[str]:
    """The states that letters told, in one spelling."""
    members = [body if "status" in body else next(iter(body.values())) for _, body in hook.got]
    return [state_of(member["status"]["state"]) for member in members if "status" in member]


# Being told --------------------------------------------------------------------------------------------------------


@EVERY
async def test_a_send_brings_its_receiver_along(connections: ServerConnections, hook: Receiver, name: str) -> None:
    hooks = PUSH_CLIENTS[name]
    task = await hooks.send(connections, "stream 2", hook.url, SECRET)
    await hook.until(is_last)
    assert states_in(hook)[0] == "submitted"
    assert states_in(hook)[-1] == "completed"
    for headers, body in hook.got:
        assert headers[hooks.token] == SECRET
        assert headers["Authorization"] == f"Bearer {SECRET}"
        assert headers["Content-Type"] == "application/json"
        check_body(name, body, task)
    numbers = [int(headers["Dragoman-Event"].rpartition(".")[2]) for headers, _ in hook.got]
    assert numbers == sorted(set(numbers))
    if not hooks.whole:  # every event, with none left out
        assert numbers == list(range(1, len(numbers) + 1))


def check_body(name: str, body: dict[str, Any], task: str) -> None:
    """A letter's body is what its dialect reads."""
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
            assert value["status"]["state"].startswith("TASK_STATE_") == name.startswith("1.0")
        if member == "artifactUpdate":
            assert ("type" in value["artifact"]["parts"][0]) == (name == "a2a-rust")


@EVERY
async def test_a_later_registration_gets_later_events(
    connections: ServerConnections, hook: Receiver, name: str
) -> None:
    task = await start(connections, name)
    await PUSH_CLIENTS[name].create(connections, task, hook.url)
    await DIALECT_CLIENTS["1.0 REST"].send(connections, "tea", task) if name in SCOPED else await answer_at_home(
        connections, task
    )
    await hook.until(is_last)
    assert states_in(hook) == ["working", "completed"]
    check_body(name, hook.got[-1].body, task)


@pytest.mark.parametrize("name", ["0.3 gRPC", "1.0 JSON-RPC", "Google REST"])
async def test_a_webhook_uses_the_dialect_of_its_registration(
    connections: ServerConnections, hook: Receiver, name: str
) -> None:
    for maker in ("0.1", "0.3 JSON-RPC", "fasta2a 2", "1.0 gRPC"):
        hook.got.clear()
        task = (await DIALECT_CLIENTS[maker].send(connections, "ask")).id
        await PUSH_CLIENTS[name].create(connections, task, hook.url)
        await DIALECT_CLIENTS[maker].send(connections, "tea", task)
        await hook.until(is_last)
        check_body(name, hook.got[-1].body, task)


# Create, get, list, delete -----------------------------------------------------------------------------------------


async def start(connections: ServerConnections, name: str) -> str:
    """A task that waits for its caller, where this dialect finds it."""
    hooks = PUSH_CLIENTS[name]
    if name in SCOPED:
        maker = {"fasta2a 0.6": "0.3 JSON-RPC", "Google REST, configId in the query": "Google REST"}.get(name, name)
        return (await DIALECT_CLIENTS[maker].send(connections, "ask")).id
    assert isinstance(hooks, V03RestHooks)
    return (await hooks.rest.send(connections, "ask")).id


async def answer_at_home(connections: ServerConnections, task: str) -> None:
    """Answers a task of the default scope."""
    hooks = PUSH_CLIENTS["0.3 REST"]
    assert isinstance(hooks, V03RestHooks)
    await hooks.rest.send(connections, "tea", task)


@EVERY
async def test_a_configuration_is_kept_shown_replaced_and_deleted(connections: ServerConnections, name: str) -> None:
    hooks, task = PUSH_CLIENTS[name], await start(connections, name)
    created = await hooks.create(
        connections, task, "https://one.example/hook", "c" if hooks.named else "", secret=SECRET
    )
    assert created == PushConfigView(task, "c" if hooks.named else "", "https://one.example/hook", "Bearer")
    assert await hooks.get(connections, task, "c") == created
    other = await hooks.create(connections, task, "https://two.example/hook", "c" if hooks.named else "")
    assert (other.url, other.scheme) == ("https://two.example/hook", "")
    assert await hooks.get(connections, task, "c") == other
    if not hooks.named:
        return
    unnamed = await hooks.create(connections, task, "https://three.example/hook")
    assert unnamed.id == task  # the id that a client gets who names none
    assert {one.id for one in await hooks.list_all(connections, task)} == {"c", task}
    await hooks.delete(connections, task, "c")
    await hooks.delete(connections, task, "c")
    assert await hooks.list_all(connections, task) == [unnamed]
    await hooks.delete(connections, task, task)
    assert await hooks.list_all(connections, task) == []


@EVERY
async def test_what_is_not_there_is_not_found(connections: ServerConnections, name: str) -> None:
    hooks, task = PUSH_CLIENTS[name], await start(connections, name)
    with pytest.raises(CallRejected) as refused:
        await hooks.get(connections, task, "c")
    assert refused.value.args[0] in NOT_FOUND
    calls = [hooks.create(connections, "none", "https://one.example/"), hooks.get(connections, "none", "c")]
    if hooks.named:
        calls += [hooks.list_all(connections, "none"), hooks.delete(connections, "none", "c")]  # type: ignore[list-item]
    for call in calls:
        with pytest.raises(CallRejected) as refused:
            await call
        assert refused.value.args[0] in NOT_FOUND


@EVERY
@pytest.mark.parametrize(
    "url", ["", "ftp://one.example/", "http://169.254.169.254/latest", "http://10.0.0.1/", "https://a:b@one.example/"]
)
async def test_a_url_that_may_not_be_called_is_refused(connections: ServerConnections, name: str, url: str) -> None:
    hooks, task = PUSH_CLIENTS[name], await start(connections, name)
    for call in (hooks.create(connections, task, url, "c"), hooks.send(connections, "echo", url, "")):
        with pytest.raises((CallRejected, grpc.aio.AioRpcError)) as refused:
            await call
        error = refused.value
        assert (error.code() if isinstance(error, grpc.aio.AioRpcError) else error.args[0]) in INVALID


@pytest.mark.parametrize("name", ["0.3 JSON-RPC", "0.3 gRPC", "fasta2a 0.6"])
async def test_0_3_gets_the_one_there_is_when_it_names_none(connections: ServerConnections, name: str) -> None:
    hooks, task = PUSH_CLIENTS[name], await start(connections, name)
    created = await hooks.create(connections, task, "https://one.example/", "c")
    assert await hooks.get(connections, task, "") == created


@EVERY
async def test_a_finished_task_takes_one_too(connections: ServerConnections, name: str) -> None:
    hooks = PUSH_CLIENTS[name]
    task = await start(connections, name)
    created = await hooks.create(connections, task, "https://one.example/")
    assert created.task == task


# Without -----------------------------------------------------------------------------------------------------------


@pytest.fixture
async def without(tmp_path: Path) -> AsyncIterator[ServerConnections]:
    anywhere = Address("127.0.0.1", 0)
    settings = Settings(http=anywhere, grpc=anywhere, store=f"sqlite:///{tmp_path}/other.db", push=False)
    async with open_app(settings, [playground]) as app, open_connections(str(app.http), str(app.grpc)) as found:
        yield found


@EVERY
async def test_a_server_without_push_says_so_to_every_call(without: ServerConnections, name: str) -> None:
    hooks: PushClient = PUSH_CLIENTS[name]
    task = await start(without, name)
    calls: list[Any] = [
        hooks.create(without, task, "nonsense"),
        hooks.get(without, task, "c"),
        hooks.send(without, "echo", "nonsense", ""),
    ]
    if hooks.named:
        calls += [hooks.list_all(without, "none"), hooks.delete(without, "none", "c")]
    for call in calls:
        with pytest.raises((CallRejected, grpc.aio.AioRpcError)) as refused:
            await call
        error = refused.value
        assert (error.code() if isinstance(error, grpc.aio.AioRpcError) else error.args[0]) in NOT_SUPPORTED


@pytest.mark.parametrize("version", ["", "1.0", "0.3", "0.1"])
async def test_every_card_says_whether_there_is_push(
    connections: ServerConnections, without: ServerConnections, version: str
) -> None:
    for server, on in ((connections, True), (without, False)):
        for path in ("/.well-known/agent-card.json", "/.well-known/agent.json", "/v1/card"):
            headers = {"A2A-Version": version} if version else {}
            async with server.http.get(path, headers=headers) as answer:
                assert bool((await answer.json())["capabilities"].get("pushNotifications")) is on
