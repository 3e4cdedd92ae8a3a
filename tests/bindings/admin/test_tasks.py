"""The operators' service over gRPC: authentication, the list of agents, and explain."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import aiohttp
import grpc
import pytest
from pydantic import SecretStr
from tests.bindings.admin.operators import ALICE, OLGA, SCOPE, TENANT_OPERATOR, VERA, Server, running_server

from dragoman import Turn, agent
from dragoman.bindings.admin import tasks
from dragoman.bindings.admin.tasks import expand_trace_url, push_config_message
from dragoman.core.names import Owner
from dragoman.core.push.configuration import PushConfig
from dragoman.core.push.delivery import PushRecord
from dragoman.core.task.log import TaskRef
from dragoman.settings.settings import Address, Settings
from dragoman.wiring.app import open_app
from dragoman_pb.dragoman.ops.v1 import ops_pb2 as ops
from dragoman_pb.dragoman.ops.v1 import ops_pb2_grpc as rpc
from dragoman_pb.dragoman.ops.v1 import push_pb2 as push
from dragoman_pb.dragoman.ops.v1 import steps_pb2 as steps
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb
from dragoman_pb.lf.a2a.v1 import a2a_pb2_grpc as a2a_rpc


@agent(id="zebra", default=True)
async def zebra(turn: Turn) -> str:
    return turn.text


@agent(id="ant", description="Small", version="2.1")
async def ant(turn: Turn) -> str:
    return turn.text


def settings(tmp_path: Path, token: str = "") -> Settings:
    anywhere = Address("127.0.0.1", 0)
    return Settings(http=anywhere, grpc=anywhere, store=f"sqlite:///{tmp_path}/t.db", token=SecretStr(token))


async def test_agents_are_listed_with_the_root_agent_first(tmp_path: Path) -> None:
    async with (
        open_app(settings(tmp_path), [ant, zebra]) as app,
        grpc.aio.insecure_channel(str(app.grpc)) as channel,
        aiohttp.ClientSession(f"http://{app.http}") as http,
    ):
        response = await rpc.OpsServiceStub(channel).ListAgents(ops.ListAgentsRequest())
        async with http.get("/agents") as http_response:
            http_agents = (await http_response.json())["agents"]
    assert [(one.id, one.root, one.version) for one in response.agents] == [
        ("zebra", True, "1.0.0"),
        ("ant", False, "2.1"),
    ]
    assert [one.card_url for one in response.agents] == [one["card"] for one in http_agents]
    assert response.agents[1].card_url == f"http://{app.http}/ant/.well-known/agent-card.json"


@pytest.mark.parametrize(("header", "allowed"), [(None, False), ("Bearer wrong", False), ("Bearer secret", True)])
async def test_operators_are_authenticated(tmp_path: Path, header: str | None, allowed: bool) -> None:
    metadata = (("authorization", header),) if header else ()
    async with (
        open_app(settings(tmp_path, "secret"), [ant]) as app,
        grpc.aio.insecure_channel(str(app.grpc)) as channel,
    ):
        call = rpc.OpsServiceStub(channel).ListAgents(ops.ListAgentsRequest(), metadata=metadata)
        if allowed:
            assert len((await call).agents) == 1
        else:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call
            assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED


async def test_explain_describes_a_task_or_reports_that_it_is_missing(tmp_path: Path) -> None:
    async with (
        open_app(settings(tmp_path), [ant]) as app,
        grpc.aio.insecure_channel(str(app.grpc)) as channel,
        aiohttp.ClientSession(f"http://{app.http}") as http,
    ):
        body = {"id": "mine", "message": {"role": "user", "parts": [{"type": "text", "text": "hi"}]}}
        async with http.post("/", json={"jsonrpc": "2.0", "id": 1, "method": "tasks/send", "params": body}) as answer:
            assert (await answer.json())["result"]["id"] == "mine"
        stub = rpc.OpsServiceStub(channel)
        (one,) = (await stub.Explain(ops.ExplainRequest(task_id="mine"))).tasks
        assert (one.agent, one.scope, one.principal, one.dialect) == ("ant", "default", "anonymous", "0.1")
        assert (one.state, one.next) == ("TASK_STATE_COMPLETED", "Nothing: the task has ended.")
        for task, code in (("none", grpc.StatusCode.NOT_FOUND), ("", grpc.StatusCode.INVALID_ARGUMENT)):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await stub.Explain(ops.ExplainRequest(task_id=task))
            assert caught.value.code() is code


def test_the_url_of_a_trace_has_its_ids() -> None:
    assert expand_trace_url("", "0af7", "t1") == ""
    assert expand_trace_url("https://a.example/{trace_id}", "0af7", "t1") == "https://a.example/0af7"
    assert expand_trace_url("https://a.example/{trace_id}", "", "t1") == "", "there is no trace to see"
    assert expand_trace_url("https://a.example/?q={task_id}", "", "a b&c/d") == "https://a.example/?q=a%20b%26c%2Fd"


async def test_the_query_of_a_webhook_s_url_is_not_shown(tmp_path: Path) -> None:
    """Many put a secret there. Its owner gets the URL back, as A2A has it."""
    url = "https://127.0.0.1:9/hook?secret=s3cret"
    any_port = Address("127.0.0.1", 0)
    served = Settings(http=any_port, grpc=any_port, store=f"sqlite:///{tmp_path}/t.db", outbound_allow="127.0.0.1:9")
    async with open_app(served, [zebra]) as app, grpc.aio.insecure_channel(str(app.grpc)) as channel:
        owner, operator = a2a_rpc.A2AServiceStub(channel), rpc.OpsServiceStub(channel)
        send = pb.SendMessageRequest(message=pb.Message(message_id="m", role=pb.ROLE_USER, parts=[pb.Part(text="x")]))
        send.configuration.task_push_notification_config.url = url
        task = (await owner.SendMessage(send)).task.id
        listed = await operator.ListPushConfigs(push.ListPushConfigsRequest(task_id=task))
        explained = await operator.Explain(ops.ExplainRequest(task_id=task))
        shown = [*listed.configs, *explained.tasks[0].pushes]
        assert [config.url for config in shown] == ["https://127.0.0.1:9/hook?..."] * 2
        own = await owner.ListTaskPushNotificationConfigs(pb.ListTaskPushNotificationConfigsRequest(task_id=task))
        assert [config.url for config in own.configs] == [url]


@pytest.mark.parametrize(("cursor", "given_up", "delivered"), [(6, 6, 0), (5, 2, 3), (1, 3, 0), (4, 0, 4)])
def test_events_that_were_given_up_are_not_delivered(cursor: int, given_up: int, delivered: int) -> None:
    config = PushConfig(id="c", url="https://hook.example/")
    ref = TaskRef(Owner("", "alice"), bytes(16))
    record = PushRecord(
        task=ref, config=config, created=0, last_delivered=cursor, last_sequence=6, given_up_events=given_up
    )
    assert push_config_message(record).delivered == delivered


# Contents of steps ------------------------------------------------------------------------------------------------


@dataclass
class Book:
    """A result that JSON does not have."""

    title: str
    pages: tuple[int, ...] = (1, 2)


STEP_RESULTS: Final[dict[str, object]] = {
    "note": "# Tides\n\n*Twice* a day.",
    "book": Book("Tides"),
    "file": b"\x00\x01",
    "long": "x" * 100_000,
    "large": ["x" * 1_000] * 2_000,
}


@agent(id="reader", default=True)
async def reader(turn: Turn) -> str:
    async def fetch(page: int, token: str) -> object:
        if (turn.text, page) == ("fail", 1):
            raise ConnectionError("the library is closed")
        return list(STEP_RESULTS.values())[page]

    for page, name in enumerate(STEP_RESULTS):
        await turn.step(name, fetch, page, token="t0p")
    return "read"


async def contents(server: Server, task: str, caller: Mapping[str, str] = OLGA, **fields: Any) -> list[steps.TaskStep]:
    request = steps.ListStepContentsRequest(task_id=task, **fields)
    return list((await server.ops.ListStepContents(request, metadata=tuple(caller.items()))).steps)


@pytest.fixture(params=["sqlite", "postgres"])
async def server(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Server]:
    in_sqlite = request.param == "sqlite"
    url: str = f"sqlite:///{tmp_path}/tasks.db" if in_sqlite else request.getfixturevalue("postgres_database")
    async with running_server(url, [reader]) as running:
        yield running


async def test_steps_have_their_arguments_and_their_results_as_text(server: Server) -> None:
    task = await server.send("go")
    found = {step.name: step for step in await contents(server, task)}
    assert [json.loads(step.details.input)["page"] for step in found.values()] == [0, 1, 2, 3, 4]
    assert json.loads(found["book"].details.input) == {"page": 1, "token": "(not stored)"}
    assert found["note"].text == steps.TaskStepText(text="# Tides\n\n*Twice* a day.", media_type="text/markdown")
    assert found["book"].text.media_type == "application/json"
    assert found["book"].text.text == '{\n  "title": "Tides",\n  "pages": [\n    1,\n    2\n  ]\n}'
    assert found["file"].text == steps.TaskStepText(media_type="application/octet-stream", omitted=2)
    assert (len(found["long"].text.text), found["long"].text.omitted) == (65_536, 34_464)
    # A result of more than a mebibyte is not parsed.
    assert found["large"].text.text.startswith('["xxx')
    assert (len(found["large"].text.text), found["large"].text.omitted) == (
        65_536,
        found["large"].result_bytes - 65_536,
    )
    assert not any(step.HasField("result") for step in found.values())


async def test_one_step_is_read_by_its_name_and_turn(server: Server) -> None:
    task = await server.send("fail")
    (failed,) = await contents(server, task, name="book")
    (attempt,) = failed.details.failures
    assert (attempt.attempt, attempt.type, attempt.text) == (1, "ConnectionError", "the library is closed")
    assert [frame.code for frame in attempt.frames] == ['raise ConnectionError("the library is closed")']
    assert not failed.HasField("text")
    for missing in ({"name": "no"}, {"name": "book", "turn": 1}):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await contents(server, task, **missing)
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND
        assert "has no step" in str(caught.value.details())
    async with server.http.get(f"/operations/tasks/{task}/steps/contents?name=note&turn=0", headers=OLGA) as answer:
        (shown,) = (await answer.json())["steps"]
    assert shown["text"] == {"text": "# Tides\n\n*Twice* a day.", "mediaType": "text/markdown"}


async def test_the_list_of_steps_has_no_contents(server: Server) -> None:
    task = await server.send("fail")
    listed = await server.ops.ListSteps(steps.ListStepsRequest(task_id=task), metadata=tuple(OLGA.items()))
    assert [step.error for step in listed.steps] == ["", "ConnectionError: the library is closed"]
    assert not any(step.details.input or step.details.failures or step.HasField("text") for step in listed.steps)


@pytest.mark.parametrize("most", [1, 2, 3])
async def test_contents_are_read_in_batches_and_keep_their_order(
    server: Server, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    task = await server.send("go")
    at_once = await contents(server, task)
    assert {step.name for step in at_once} == set(STEP_RESULTS)  # in order of time: PostgreSQL's, to which ours is set
    monkeypatch.setattr(tasks, "MAX_STEPS_READ", most)
    assert await contents(server, task) == at_once


async def test_contents_behind_the_first_mebibyte_are_left_out(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "MAX_CONTENTS_BYTES", 1)
    task = await server.send("go")
    first, *rest = await contents(server, task)
    assert first.text.text
    assert [(step.details.input, step.text.text, step.text.omitted) for step in rest] == [
        ("", "", step.result_bytes) for step in rest
    ]
    (alone,) = await contents(server, task, name="book")
    assert alone.text.text


@pytest.mark.parametrize(
    ("caller", "scope", "code"),
    [
        (ALICE, "", grpc.StatusCode.PERMISSION_DENIED),  # its owner
        (VERA, "", grpc.StatusCode.PERMISSION_DENIED),  # a viewer
        (TENANT_OPERATOR, SCOPE, grpc.StatusCode.NOT_FOUND),
        (TENANT_OPERATOR, "", grpc.StatusCode.NOT_FOUND),
    ],
)
async def test_contents_of_steps_are_for_operators_of_the_task_as_exports_are(
    server: Server, caller: Mapping[str, str], scope: str, code: grpc.StatusCode
) -> None:
    task = await server.send("fail")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await contents(server, task, caller, scope=scope)
    assert caught.value.code() is code
    assert "library" not in str(caught.value.details())
    export = server.ops.ExportTask(ops.ExportTaskRequest(task_id=task, scope=scope), metadata=tuple(caller.items()))
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await anext(aiter(export))
    assert caught.value.code() is code


async def test_an_export_has_the_stored_contents_of_steps(server: Server) -> None:
    task = await server.send("fail")
    export = server.ops.ExportTask(ops.ExportTaskRequest(task_id=task), metadata=tuple(OLGA.items()))
    note, book = [one.step async for one in export if one.HasField("step")]
    assert note.result.raw == b'"# Tides\\n\\n*Twice* a day."'
    assert not note.HasField("text")
    assert json.loads(book.details.input)["page"] == 1
    assert len(book.details.failures) == 1
