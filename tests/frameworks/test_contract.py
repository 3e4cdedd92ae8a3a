"""The contract of framework adapters, on every framework, in its own environment, through a real server."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import aclosing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from tests.cli.server import Server, serving
from tests.eventually import eventually
from tests.frameworks.suite import CELLS, FRAMEWORKS, UNSUPPORTED, Framework, framework

from dragoman.agents.values import struct_to_json
from dragoman.client import NotSupported
from dragoman.client.calls import Client, message
from dragoman.core.task import states
from dragoman.types import data, file
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

pytestmark = pytest.mark.longest

AT_ONCE = pb.SendMessageConfiguration(return_immediately=True)


class Served:
    """One framework's agents behind a server, which can be killed and started again."""

    def __init__(self, framework: Framework, folder: Path, names: Sequence[str] = ("assistant", "structured")) -> None:
        """`names`: of the agents, the root agent first."""
        self.framework = framework
        self.folder = folder
        self._names = names
        self.server: Server | None = None
        self._running: Any = None

    def start(self) -> None:
        agents, python = self.framework.agents, str(self.framework.environment.python)
        store = f"sqlite:///{self.folder}/tasks.db"
        root, *others = (f"{agents}:{name}" for name in self._names)
        options = [option for other in others for option in ("--executor", other)]
        options += ["--executor-python", python, "--store", store, "--executor-retries", "3"]
        self._running = serving(root, *options, cwd=self.folder)
        self.server = self._running.__enter__()

    def stop(self) -> None:
        """Kills the server."""
        self._running.__exit__(None, None, None)

    def client(self, agent: str = "assistant") -> Client:
        assert self.server is not None
        return Client(self.server.grpc, agent=agent)


@contextmanager
def serving_agent(name: str, agent: str, folder: Path) -> Iterator[Served]:
    """Serves one agent of a framework."""
    one = framework(name)
    one.environment.make()
    served = Served(one, folder, [agent])
    served.start()
    try:
        yield served
    finally:
        served.stop()


@pytest.fixture(scope="module", params=FRAMEWORKS, ids=lambda one: one.name)
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    request.param.environment.make()
    running = Served(request.param, tmp_path_factory.mktemp(request.param.name))
    running.start()
    yield running
    running.stop()


Check = Callable[[Served], Coroutine[Any, Any, None]]


def text_of(task: pb.Task) -> str:
    """The text of the task's artifacts."""
    return "".join(part.text for artifact in task.artifacts for part in artifact.parts)


async def send(client: Client, text: str = "", *parts: pb.Part, **how: Any) -> pb.Task:
    return (await client.send(message(text, parts=parts, **how))).task


def progress_of(event: pb.StreamResponse) -> dict[str, Any]:
    """The kind, name and details of a progress report; empty for another event."""
    progress: dict[str, Any] = struct_to_json(event.status_update.metadata).get("progress", {})
    return progress


async def check_text(served: Served) -> None:
    async with served.client() as client:
        assert text_of(await send(client, "hello")) == "you said: hello"


async def check_streaming(served: Served) -> None:
    chunks = []
    async with served.client() as client:
        async for event in client.stream(message("stream")):
            update = event.artifact_update
            chunks += [part.text for part in update.artifact.parts]
    assert [chunk for chunk in chunks if chunk] == ["chunk 0\n", "chunk 1\n", "chunk 2\n"]


async def check_structured(served: Served) -> None:
    async with served.client("structured") as client:
        task = await send(client, "which city?")
    (part,) = task.artifacts[-1].parts
    assert dict(part.data.struct_value.items()) == {"name": "Rome", "people": 2_800_000}


async def check_files(served: Served) -> None:
    async with served.client() as client:
        task = await send(client, "file", file(b"\x89PNG....", name="dot.png", media_type="image/png"))
    assert text_of(task) == "8 bytes of image/png"


async def check_progress(served: Served) -> None:
    seen: list[tuple[str, Any]] = []
    async with served.client() as client:
        async for event in client.stream(message("tool")):
            progress = progress_of(event)
            if progress.get("kind") in ("tool_call", "tool_result"):
                seen.append((progress["kind"], (progress["name"], progress.get("arguments"))))
            seen += [("text", part.text) for part in event.artifact_update.artifact.parts if part.text]
    assert seen[:2] == [("tool_call", ("double", {"number": 21})), ("tool_result", ("double", None))]
    assert "".join(text for kind, text in seen if kind == "text") == "the tool returned 42"


async def check_approval(served: Served) -> None:
    (served.folder / "deleted").unlink(missing_ok=True)
    async with served.client() as client:
        events = [event async for event in client.stream(message("delete"))]
        assert "tool_result" not in [progress_of(event).get("kind") for event in events]
        question = await client.get(events[0].task.id)
        assert question.status.state == states.INPUT_REQUIRED
        assert "delete" in question.status.message.parts[0].text
        assert not (served.folder / "deleted").exists()
        seen = [progress_of(event) async for event in client.stream(message("yes", task=question.id))]
        task = await client.get(question.id)
    assert (served.folder / "deleted").read_text() == "all.txt"
    assert text_of(task) == "the tool returned all.txt is deleted"
    assert all(progress["name"] for progress in seen if progress)


async def check_denial(served: Served) -> None:
    (served.folder / "deleted").unlink(missing_ok=True)
    async with served.client() as client:
        question = await send(client, "delete")
        task = await send(client, "", data({"approved": False}), task=question.id)
        assert task.status.state == states.COMPLETED
        question = await send(client, "delete")
        task = await send(client, "", data(denial_by_id(question)), task=question.id)
    assert task.status.state == states.COMPLETED
    assert not (served.folder / "deleted").exists()


def denial_by_id(question: pb.Task) -> dict[str, Any]:
    """Answers a question with the id in its data: of a tool call to approve, or of an interrupt. Others have no id."""
    found = struct_to_json(question.status.message.parts[1].data.struct_value)
    if "interrupts" in found:
        return {found["interrupts"][0]["id"]: {"approved": False}}
    if "approvals" not in found:
        return {"approved": False}
    (call,) = found["approvals"]
    assert (call["name"], call["arguments"]) == ("delete", {"name": "all.txt"})
    return {"approvals": {call["id"]: False}}


async def check_session(served: Served) -> None:
    async with served.client() as client:
        first = await send(client, "remember the sea")
        second = await send(client, "recall", context=first.context_id)
        other = await send(client, "recall")
    assert text_of(second) == "remember the sea"
    assert "sea" not in text_of(other)


async def check_restart(served: Served) -> None:
    (served.folder / "deleted").unlink(missing_ok=True)
    async with served.client() as client:
        first = await send(client, "remember the hills")
        question = await send(client, "delete")
    served.stop()
    served.start()
    async with served.client() as client:
        assert text_of(await send(client, "recall", context=first.context_id)) == "remember the hills"
        task = await send(client, "yes", task=question.id)
    assert text_of(task) == "the tool returned all.txt is deleted"


async def check_steps(served: Served) -> None:
    async with served.client() as client:
        task = (await client.send(message("buy"), configuration=AT_ONCE)).task
        await asyncio.to_thread(_wait_for, served.folder / "waiting")
    served.stop()
    (served.folder / "killed").touch()
    served.start()
    async with served.client() as client:
        with suppress(NotSupported):  # it has ended already
            async for _ in client.subscribe(task.id):
                pass
        task = await client.get(task.id)
    assert (task.status.state, text_of(task)) == (states.COMPLETED, "bought")
    assert (served.folder / "bill").read_text().split("\n") == ["plan", "a boat", "report", ""]


async def check_cancel(served: Served) -> None:
    async with served.client() as client:
        task = (await client.send(message("hang"), configuration=AT_ONCE)).task
        await asyncio.to_thread(_wait_for, served.folder / "hanging")
        await client.cancel(task.id)
        await asyncio.to_thread(_wait_for, served.folder / "stopped")
        with suppress(NotSupported):  # it has ended already
            async for _ in client.subscribe(task.id):
                pass
        assert (await client.get(task.id)).status.state == states.CANCELED


def _wait_for(path: Path) -> None:
    asyncio.run(eventually(path.exists, seconds=30))


async def check_usage(served: Served) -> None:
    async with served.client() as client:
        task = await client.get((await send(client, "hello")).id)
    assert struct_to_json(task.metadata)["usage"]["tokens"] > 0


async def check_error(served: Served) -> None:
    async with served.client() as client:
        task = await send(client, "fail")
    assert task.status.state == states.FAILED
    assert "the model is away" in task.status.message.parts[0].text


async def card_of(served: Served) -> Any:
    assert served.server is not None
    url = f"{served.server.http}/assistant/.well-known/agent-card.json"
    with await asyncio.to_thread(urllib.request.urlopen, url) as response:
        return json.load(response)


async def check_card(served: Served) -> None:
    card = await card_of(served)
    assert (card["name"], card["description"]) == ("Assistant", "Follows a script")


async def check_skills(served: Served) -> None:
    card = await card_of(served)
    skills = {skill["id"]: skill["description"] for skill in card["skills"]}
    assert {"double": "Doubles a number.", "delete": "Deletes a file."}.items() <= skills.items()


CHECKS: dict[str, Check] = {
    name.removeprefix("check_"): check for name, check in globals().items() if name.startswith("check_")
}


def test_every_cell_has_a_check() -> None:
    assert CHECKS.keys() == CELLS.keys()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("cell", CELLS)
async def test_a_framework_fulfills_the_contract(served: Served, cell: str) -> None:
    if reason := UNSUPPORTED.get((served.framework.name, cell)):
        pytest.skip(reason)
    await CHECKS[cell](served)


@pytest.mark.timeout(120)
async def test_middleware_of_langchain_asks_for_approval(tmp_path: Path) -> None:
    """A text answers it, which becomes the decisions that the middleware expects."""
    with serving_agent("langgraph", "reviewed", tmp_path) as served:
        async with served.client("reviewed") as client:
            question = await send(client, "delete")
            assert question.status.message.parts[0].text.startswith('Approve delete({"name": "all.txt"})?')
            task = await send(client, "not today", task=question.id)
            assert "not today" in text_of(task)
            assert not (tmp_path / "deleted").exists()
            question = await send(client, "delete")
            task = await send(client, "yes", task=question.id)
    assert text_of(task) == "the tool returned all.txt is deleted"
    assert (tmp_path / "deleted").exists()


@pytest.mark.timeout(120)
async def test_text_that_is_a_json_object_fills_the_fields_of_a_langgraph_graph(tmp_path: Path) -> None:
    order = {"item": "a table", "customer": "Ada", "guests": 3}
    with serving_agent("langgraph", "ordered", tmp_path) as served:
        async with served.client("ordered") as client:
            for sent in ((json.dumps(order),), ("", data(order))):
                task = await send(client, *sent)
                assert struct_to_json(task.artifacts[-1].parts[0].data.struct_value)["item"] == (
                    "a table for Ada and 3 guests"
                )
            for text in ("a table", '["a table"]', '{"item": "a table", "colour": "red"}', "{item}"):
                refused = await send(client, text)
                assert refused.status.state == states.FAILED, text


@pytest.mark.timeout(120)
async def test_text_of_a_finished_node_of_langgraph_survives_a_crash(tmp_path: Path) -> None:
    """The node ends before its text was read; its neighbor keeps their step of the graph open until the crash."""
    with serving_agent("langgraph", "flooded", tmp_path) as served:
        async with served.client("flooded") as client:
            task, seen = "", ""
            async with aclosing(client.stream(message("begin"))) as events:
                async for event in events:
                    task = task or event.task.id
                    seen += "".join(part.text for part in event.artifact_update.artifact.parts)
                    if seen.endswith(" 999 "):
                        break
        served.stop()
        (tmp_path / "killed").touch()
        served.start()
        async with served.client("flooded") as client:
            with suppress(NotSupported):  # it has ended already
                async for _ in client.subscribe(task):
                    pass
            found = await client.get(task)
    assert text_of(found) == "".join(f"{number} " for number in range(1000))


@pytest.mark.timeout(120)
async def test_a_tool_of_google_adk_that_needs_a_credential_asks_for_it(tmp_path: Path) -> None:
    with serving_agent("google_adk", "assistant", tmp_path) as served:
        async with served.client() as client:
            request = await send(client, "mail")
            assert request.status.state == states.AUTH_REQUIRED
            text, described = request.status.message.parts
            assert text.text.startswith("Authorize at https://login.example/authorize?")
            assert "hidden" not in str(request)
            (needed,) = struct_to_json(described.data.struct_value)["credentials"]
            credential = {"authType": "oauth2", "oauth2": {"accessToken": "Ada"}}
            task = await send(client, "", data({"credentials": {needed["id"]: credential}}), task=request.id)
    assert text_of(task) == "the tool returned a letter for Ada"


@pytest.mark.timeout(120)
async def test_pydantic_ai_reports_the_cost_of_a_model_with_a_known_price(tmp_path: Path) -> None:
    with serving_agent("pydantic_ai", "priced", tmp_path) as served:
        async with served.client("priced") as client:
            task = await client.get((await send(client, "hello")).id)
    usage = struct_to_json(task.metadata)["usage"]
    assert 0 < usage["cost"] < 0.01
