"""MCP servers of each transport and era as agents of a whole server, called over A2A."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import aiohttp
import pytest
from google.protobuf.json_format import MessageToDict
from tests.eventually import eventually
from tests.extensions.mcp.servers.conftest import (
    Open,
    Tools,
    ask,
    data_part,
    status_text,
    stdio_spec,
    texts,
    tools_over,
)
from tests.extensions.mcp.servers.tool_server import http_server, tool_server
from tests.postgres import free_port

from dragoman.client import ClientError, NotSupported
from dragoman.client.calls import Client, message
from dragoman.client.operations import Operator
from dragoman.core.task import states
from dragoman.ports.extension import StartError
from dragoman.settings.settings import Settings, SettingsError
from dragoman.wiring.app import open_app
from dragoman_pb.dragoman.ops.v1 import upstreams_pb2 as up
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

pytestmark = pytest.mark.long

NOW = pb.SendMessageConfiguration(return_immediately=True)
WAIT_TIMEOUT = 30.0


async def wait_for(client: Client, task: str, state: int) -> pb.Task:
    """The task in this state."""
    async with asyncio.timeout(WAIT_TIMEOUT):
        while (found := await client.get(task)).status.state != state:
            assert found.status.state not in states.TERMINAL, f"the task ended otherwise: {found.status}"
            with suppress(NotSupported):  # It ended after it was read.
                async for event in client.subscribe(task):
                    if state in (event.task.status.state, event.status_update.status.state):
                        break
    return found


async def wait_for_status(client: Client, task: str, text: str) -> None:
    """Waits until the task's status has had this text."""
    async with asyncio.timeout(WAIT_TIMEOUT):
        async for event in client.subscribe(task):
            status = event.task.status if event.HasField("task") else event.status_update.status
            if text in "".join(part.text for part in status.message.parts):
                return


async def test_the_tools_of_a_server_are_the_skills_of_an_agent(tools: Tools, opened: Open) -> None:
    async with opened(tools.spec) as app, Client(str(app.grpc)) as client:
        spec = app.agents["tools"]
        assert (spec.name, spec.version, spec.description) == ("Tools for tests", "7", "All kinds of tools")
        assert [skill.name for skill in spec.skills][:2] == ["Echo", "add"]
        task = await ask(client, "echo hello")
        assert (task.status.state, texts(task)) == (states.COMPLETED, "hello")
        task = await ask(client, data_part({"tool": "add", "arguments": {"a": 1, "b": 2}}))
        assert [MessageToDict(part) for part in task.artifacts[0].parts] == [{"text": "3"}, {"data": {"result": 3}}]
        assert task.artifacts[0].name == "add"
        task = await ask(client, "picture")
        assert task.artifacts[0].parts[0].raw == b"\x89PNG\r\n\x1a\n"
        task = await ask(client, 'count {"to": 2}')
        assert (texts(task), task.history[1].parts[0].text) == ("counted to 2", "at 1")
        assert tools.calls == ["echo hello", "add 1 2"]


async def test_errors_of_tools_and_wrong_calls_end_as_failed(tools: Tools, opened: Open) -> None:
    async with opened(tools.spec) as app, Client(str(app.grpc)) as client:
        task = await ask(client, "fail badly")
        assert (task.status.state, status_text(task)) == (states.FAILED, "Error executing tool fail")
        assert MessageToDict(task.status.message.metadata) == {"reason": "TOOL_ERROR"}
        task = await ask(client, 'add {"a": "x"}')
        assert (task.status.state, "b\n  Field required" in status_text(task)) == (states.FAILED, True)
        task = await ask(client, "what is this?")
        assert task.status.state == states.FAILED
        assert status_text(task).startswith('MCP_INVALID_CALL: "what" is not a tool. Tools: echo, add, fail')


async def test_a_canceled_call_is_withdrawn_and_its_outcome_is_unknown(tools: Tools, opened: Open) -> None:
    async with opened(tools.spec) as app, Client(str(app.grpc)) as client:
        task = (await client.send(message("wait"), configuration=NOW)).task.id
        await wait_for_status(client, task, "waiting")
        await client.cancel(task)
        ended = await wait_for(client, task, states.FAILED)
        assert status_text(ended).startswith("OUTCOME_UNKNOWN")
        assert texts(await ask(client, "echo still there")) == "still there"
        assert tools.calls == ["wait", "wait ended", "echo still there"]


async def test_a_question_is_answered_with_text_data_and_decline(tools: Tools, opened: Open) -> None:
    async with opened(tools.spec) as app, Client(str(app.grpc)) as client:
        question = await ask(client, "order")
        assert question.status.state == states.INPUT_REQUIRED
        text, form = question.status.message.parts
        assert (text.text, MessageToDict(form.data)["schema"]["required"]) == ("Which size?", ["size"])
        done = await ask(client, data_part({"size": "small", "count": 3}), question.id)
        assert (done.status.state, texts(done)) == (states.COMPLETED, "ordered 3 of size small")
        question = await ask(client, "order")
        assert texts(await ask(client, "small", question.id)) == "ordered 1 of size small"
        question = await ask(client, "order")
        assert texts(await ask(client, "decline", question.id)) == "not ordered: DeclinedElicitation"
        question = await ask(client, "order")
        again = await ask(client, data_part({"count": "many"}), question.id)
        assert again.status.state == states.INPUT_REQUIRED
        assert status_text(again).startswith("The answer does not fit: ")
        assert texts(await ask(client, "large", question.id)) == "ordered 1 of size large"


async def test_a_question_during_a_call_waits_between_two_turns(old_tools: Tools, opened: Open) -> None:
    async with opened(old_tools.spec) as app, Client(str(app.grpc)) as client:
        question = await ask(client, "greet_once")
        assert (question.status.state, status_text(question)) == (states.INPUT_REQUIRED, "Who are you?")
        assert texts(await ask(client, "echo meanwhile")) == "meanwhile"
        assert texts(await ask(client, "Ann", question.id)) == "hello Ann"
        question = await ask(client, "visit")
        assert (question.status.state, question.status.message.parts[1].url) == (
            states.AUTH_REQUIRED,
            "https://x.example/sign-in",
        )
        assert texts(await ask(client, "done", question.id)) == "visited: accept"
        question = await ask(client, "locked")
        assert (question.status.state, question.status.message.parts[1].url) == (
            states.AUTH_REQUIRED,
            "https://x.example/in",
        )
        assert texts(await ask(client, "done", question.id)) == "unlocked"
        assert old_tools.calls == ["greet_once", "echo meanwhile"]


async def test_canceling_a_waiting_task_cancels_its_open_call(old_tools: Tools, opened: Open) -> None:
    async with opened(old_tools.spec) as app, Client(str(app.grpc)) as client:
        question = await ask(client, "greet_once")
        ended = await client.cancel(question.id)
        assert (ended.status.state, status_text(ended).partition(":")[0]) == (states.FAILED, "OUTCOME_UNKNOWN")
        # The server asks for one answer at a time over stdio: the next question finds its call.
        other = await ask(client, "greet_once")
        assert texts(await ask(client, "Bob", other.id)) == "hello Bob"


async def test_questions_of_two_calls_at_once_find_their_tasks_over_http(tmp_path: Path, opened: Open) -> None:
    async with tools_over("http old", tmp_path) as tools, opened(tools.spec) as app, Client(str(app.grpc)) as client:
        questions = await asyncio.gather(*(ask(client, "greet_once") for _ in range(5)))
        answers = await asyncio.gather(*(ask(client, f"n{i}", one.id) for i, one in enumerate(questions)))
        assert [texts(answer) for answer in answers] == [f"hello n{i}" for i in range(5)]


async def test_a_call_goes_on_as_a_task_of_the_server(modern_tools: Tools, opened: Open) -> None:
    async with opened(modern_tools.spec) as app, Client(str(app.grpc)) as client:
        task = (await client.send(message("long"), configuration=NOW)).task.id
        await wait_for_status(client, task, "it is working")
        modern_tools.go()
        assert texts(await wait_for(client, task, states.COMPLETED)) == "done: nothing asked"
        question = await ask(client, "long_question")
        assert (question.status.state, status_text(question)) == (states.INPUT_REQUIRED, "Who?")
        assert texts(await ask(client, "Ann", question.id)) == "done: Ann"
        failed = await ask(client, "long_failure")
        assert (failed.status.state, status_text(failed)) == (states.FAILED, "MCP_ERROR: rate limit (-32603)")
        assert [line for line in modern_tools.calls if line != "poll"] == [
            "long", "long_question", "update accept", "long_failure",
        ]  # fmt: skip


async def test_a_cancel_reaches_the_task_of_the_server(modern_tools: Tools, opened: Open) -> None:
    async with opened(modern_tools.spec) as app, Client(str(app.grpc)) as client:
        task = (await client.send(message("long"), configuration=NOW)).task.id
        await wait_for_status(client, task, "it is working")
        await client.cancel(task)
        await wait_for(client, task, states.CANCELED)
        assert modern_tools.calls.count("cancel") == 1
        modern_tools.go()
        question = await ask(client, "long_question")
        assert (await client.cancel(question.id)).status.state == states.CANCELED
        assert modern_tools.calls.count("cancel") == 2


async def test_a_changed_list_of_tools_changes_the_card(tools: Tools, opened: Open) -> None:
    async with opened(tools.spec) as app, Client(str(app.grpc)) as client:
        assert "grown" not in [skill.id for skill in app.agents["tools"].skills]
        assert texts(await ask(client, "grow")) == "added"
        await eventually(lambda: "grown" in [skill.id for skill in app.agents["tools"].skills])
        assert texts(await ask(client, "grown")) == "grown"


async def test_tasks_wait_for_a_server_that_is_down(opened: Open) -> None:
    port = free_port()
    async with opened(f"tools=http://127.0.0.1:{port}/mcp") as app, Client(str(app.grpc)) as client:
        task = (await client.send(message("echo after all"), configuration=NOW)).task.id
        assert (await client.get(task)).status.state == states.SUBMITTED
        async with http_server(tool_server(), port):
            assert texts(await wait_for(client, task, states.COMPLETED)) == "after all"


async def test_a_process_that_dies_is_started_again(tmp_path: Path, opened: Open) -> None:
    async with (
        tools_over("stdio modern", tmp_path) as tools,
        opened(tools.spec) as app,
        Client(str(app.grpc)) as client,
    ):
        died = await ask(client, "die")
        assert (died.status.state, status_text(died)) == (
            states.FAILED,
            'MCP_UNKNOWN: it is unknown what the tool "die" has done, because the connection was lost while it ran. '
            "It is not called again, because it is declared neither read-only nor idempotent.",
        )
        assert texts(await ask(client, "echo back")) == "back"
        assert tools.calls == ["die", "echo back"]


async def test_the_card_and_json_rpc_show_schemas_and_results(tmp_path: Path, opened: Open) -> None:
    async with (
        tools_over("http modern", tmp_path) as tools,
        opened(tools.spec) as app,
        aiohttp.ClientSession() as web,
    ):
        async with web.get(app.card_url) as response:
            card = await response.json()
        (extension,) = [one for one in card["capabilities"]["extensions"] if one["uri"] == "urn:dragoman:schemas:v1"]
        assert extension["params"]["echo"]["annotations"] == {"readOnlyHint": True}
        assert extension["params"]["add"]["input"]["required"] == ["a", "b"]
        assert extension["params"]["add"]["output"]["required"] == ["result"]
        call = {
            "message": {
                "messageId": "m-1",
                "role": "ROLE_USER",
                "metadata": {"skill": "add"},
                "parts": [{"data": {"a": 3, "b": 4}}],
            }
        }
        body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": call}
        async with web.post(app.http.url, json=body, headers={"A2A-Version": "1.0"}) as response:
            answer = json.loads(await response.text())
        assert answer["result"]["task"]["artifacts"][0]["parts"][1] == {"data": {"result": 7}}
        async with web.post(f"{app.http.url}/tools/message:send", json=call) as response:
            assert (await response.json())["task"]["status"]["state"] == "TASK_STATE_COMPLETED"


async def test_operators_see_the_state_of_mcp_servers_and_cannot_remove_them(tmp_path: Path, opened: Open) -> None:
    async with (
        tools_over("http modern", tmp_path) as tools,
        opened(tools.spec, f"a=http://127.0.0.1:{free_port()}/mcp") as app,
        Operator(str(app.grpc)) as operator,
    ):
        away, found = (await operator.list_upstreams(up.ListUpstreamsRequest())).upstreams
        assert (away.agent, away.settings, "refused the connection" in away.last_error) == ("a", True, True)
        assert (found.agent, list(found.interfaces)) == ("tools", ["MCP 2026-07-28 over HTTP"])
        with pytest.raises(ClientError, match='"tools" is not an upstream agent'):
            await operator.remove_upstream(up.RemoveUpstreamRequest(agent="tools"))


async def test_two_servers_are_two_agents_and_need_two_names(tmp_path: Path, opened: Open) -> None:
    async with tools_over("http modern", tmp_path) as tools:
        unnamed, other = tools.spec.url, stdio_spec("old", tmp_path / "other", "other")
        async with opened(unnamed, other) as app:
            assert list(app.agents) == ["test-tools", "other"]
            assert app.root == "test-tools"
        async with opened(unnamed, unnamed) as app:
            assert list(app.agents) == ["test-tools"]


async def test_the_missing_sdk_is_named_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dragoman.extensions.mcp.servers.registry", None)
    with pytest.raises(StartError, match=r"--mcp: MCP needs more packages .*: pip install 'dragoman\[mcp\]( @ .*)?'"):
        await open_app(Settings(mcp=["echo"], store="memory:")).__aenter__()


async def test_a_token_file_that_cannot_be_used_is_named(tmp_path: Path, opened: Open) -> None:
    table = {"url": "http://127.0.0.1:8/mcp", "token_file": str(tmp_path / "token")}
    with pytest.raises(SettingsError, match=r"--mcp: token_file: .*token cannot be read: No such file"):
        await open_app(Settings(mcp=[table], store="memory:")).__aenter__()
    (tmp_path / "token").write_text("a\nb")
    with pytest.raises(SettingsError, match=r"--mcp: token_file: headers\.Authorization: must be printable ASCII"):
        await open_app(Settings(mcp=[table], store="memory:")).__aenter__()


@pytest.mark.parametrize(
    ("server", "why"),
    [
        ("http://127.0.0.1:PORT/mcp", r"--mcp: http://.*/mcp: .*refused the connection; with an id"),
        ("http://127.0.0.1:1/mcp", "--mcp: http://127.0.0.1:1/mcp: port 1 belongs to another protocol"),
        ("no-such-program x", "--mcp: no-such-program: cannot be started: No such file or directory; with an id"),
        ("sh -c 'echo broken >&2; exit 1'", "--mcp: sh: the process ended; last line of its output: broken; with an"),
    ],
)
async def test_a_server_that_is_not_there_is_named_at_the_start(server: str, why: str) -> None:
    server = server.replace("PORT", str(free_port()))
    with pytest.raises(StartError, match=why):
        await open_app(Settings(mcp=[server], store="memory:", http="127.0.0.1:0", grpc="127.0.0.1:0")).__aenter__()


def test_a_file_beside_the_agents_does_not_hide_the_library(tmp_path: Path) -> None:
    (tmp_path / "mcp.py").write_text("raise RuntimeError('not this one')")
    (tmp_path / "agents.py").write_text(
        "from dragoman import Turn, agent\n@agent\nasync def echo(turn: Turn) -> str:\n    return turn.text"
    )
    raw_server = Path(__file__).with_name("raw_server.py")
    script = (
        "import asyncio\nfrom dragoman.wiring.app import open_app\nfrom dragoman.settings.settings import Settings\n"
        "async def main():\n"
        f"    settings = Settings(app='agents.py', mcp=['raw={sys.executable} {raw_server} good'], store='memory:',\n"
        "        http='127.0.0.1:0', grpc='127.0.0.1:0')\n"
        "    async with open_app(settings) as app:\n        print(sorted(app.agents))\n"
        "asyncio.run(main())"
    )
    ran = subprocess.run(
        [sys.executable, "-P", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ran.stdout == "['echo', 'raw']\n", ran.stderr
