"""Google's form: AUTH_REQUIRED is neither an interrupted nor a terminal state, so a stream goes on."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import pytest
from google.protobuf import json_format

from dragoman import Turn, agent
from dragoman.settings.settings import Address, load_settings
from dragoman.wiring.app import App, open_app
from dragoman_pb.a2a.v1 import a2a_pb2 as v03_pb
from dragoman_pb.a2a.v1 import a2a_pb2_grpc as v03_rpc

pytestmark = pytest.mark.long

RESOURCE = "projects/p1/locations/global/collections/default_collection/engines/e1/assistants/default_assistant/agents"


@agent(default=True)
async def lab(turn: Turn) -> str:
    """Asks for a login, and then answers."""
    if turn.text == "begin":
        turn.need_auth("log in first")
    return f"done: {turn.text}"


def body(text: str, **more: Any) -> dict[str, Any]:
    return {"message": {"messageId": text, "role": "ROLE_USER", "content": [{"text": text}], **more}}


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[App]:
    any_port = Address("127.0.0.1", 0)
    settings = load_settings({"http": any_port, "grpc": any_port, "store": f"sqlite:///{tmp_path}/tasks.db"})
    async with open_app(settings, [lab]) as app, asyncio.timeout(60):
        yield app


@pytest.mark.parametrize("path", [f"/v1/{RESOURCE}/lab", f"/{RESOURCE}/lab", "/v1"], ids=["v1", "bare", "0.3"])
async def test_a_stream_goes_on_while_the_task_waits_for_credentials(app: App, path: str) -> None:
    is_google = path != "/v1"
    async with aiohttp.ClientSession(app.http.url) as http:
        parameters = {"alt": "sse"} if is_google else {}
        async with http.post(f"{path}/message:stream", params=parameters, json=body("begin")) as answer:
            task: dict[str, Any] = {}
            finals: list[tuple[str, bool]] = []
            async for line in answer.content:
                if not line.startswith(b"data:"):
                    continue
                event = json.loads(line[5:])
                task = event.get("task", task)
                update = event.get("statusUpdate", {})
                finals += [(update["status"]["state"], update.get("final", False))] if update else []
                if is_google and finals and finals[-1][0] == "TASK_STATE_AUTH_REQUIRED":
                    ids = {"taskId": task["id"].split("/")[-1], "contextId": task["contextId"]}
                    async with http.post(f"{path}/message:send", json=body("logged in", **ids)) as sent:
                        assert sent.status == 200, await sent.text()
    if is_google:
        assert ("TASK_STATE_AUTH_REQUIRED", False) in finals
        assert finals[-1] == ("TASK_STATE_COMPLETED", True)
    else:
        assert finals[-1] == ("TASK_STATE_AUTH_REQUIRED", True)


@pytest.mark.parametrize("tenant", [f"{RESOURCE}/lab", "lab", ""], ids=["resource", "id", "root"])
async def test_over_grpc_the_resource_name_of_the_agent_decides(app: App, tenant: str) -> None:
    is_google = tenant.startswith("projects/")
    async with grpc.aio.insecure_channel(str(app.grpc)) as channel:
        service = v03_rpc.A2AServiceStub(channel)
        begin = json_format.ParseDict({**body("begin"), "tenant": tenant}, v03_pb.SendMessageRequest())
        task = v03_pb.Task()
        finals: list[tuple[int, bool]] = []
        async for event in service.SendStreamingMessage(begin):
            task = event.task if event.HasField("task") else task
            if event.HasField("status_update"):
                finals.append((event.status_update.status.state, event.status_update.final))
            if is_google and finals and finals[-1][0] == v03_pb.TASK_STATE_AUTH_REQUIRED:
                ids = {"taskId": task.id, "contextId": task.context_id}
                then = {**body("logged in", **ids), "tenant": tenant}
                await service.SendMessage(json_format.ParseDict(then, v03_pb.SendMessageRequest()))
    if is_google:
        assert (v03_pb.TASK_STATE_AUTH_REQUIRED, False) in finals
        assert finals[-1] == (v03_pb.TASK_STATE_COMPLETED, True)
    else:
        assert finals[-1] == (v03_pb.TASK_STATE_AUTH_REQUIRED, True)
