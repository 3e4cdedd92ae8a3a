"""`connect`, `run` and `ask` against a real server: every dialect over every binding that its card names."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from dragoman import Turn, agent
from dragoman.client import (
    Artifact,
    ClientError,
    Connection,
    Data,
    Event,
    File,
    Finished,
    Invalid,
    NotFound,
    NotSupported,
    ProtocolError,
    Question,
    ServerUnavailable,
    Status,
    TaskFailed,
    Text,
    connect,
)
from dragoman.client.content import FileInput
from dragoman.core import trace
from dragoman.playground import playground
from dragoman.settings.settings import Address, Settings
from dragoman.wiring.app import open_app

WAYS = [
    ("1.0", "grpc"), ("1.0", "rest"), ("1.0", "jsonrpc"),
    ("0.3", "grpc"), ("0.3", "rest"), ("0.3", "jsonrpc"),
]  # fmt: skip


@agent(description="Says its name")
async def other(turn: Turn) -> str:
    return f"other heard {turn.text}"


@agent(description="Gives back what it was sent", input_modes=["*/*"])
async def mirror(turn: Turn) -> None:
    turn.artifact(list(turn.message.parts))


@agent(description="Says which trace it is in")
async def traced(turn: Turn) -> str:
    return trace.trace_id_of(trace.CURRENT_TRACE.get())


class Server(NamedTuple):
    http: str
    grpc: str


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    anywhere = Address("127.0.0.1", 0)
    settings = Settings(http=anywhere, grpc=anywhere, store=f"sqlite:///{tmp_path}/tasks.db")
    async with open_app(settings, [playground, other, mirror]) as app:
        yield Server(f"http://{app.http}", f"grpc://{app.grpc}")


async def taken(events: AsyncIterator[Event]) -> list[Event]:
    return [event async for event in events]


async def test_events_are_the_same_in_every_dialect(server: Server) -> None:
    for dialect, binding in WAYS:
        async with connect(server.http, dialect=dialect, binding=binding) as client:
            result = await client.ask("echo hi")
            assert (result.text, result.state, result.ok, result.question) == ("hi", "COMPLETED", True, "")
            events = await taken(client.run("stream 5 1"))
            assert [event.text for event in events if isinstance(event, Text)] == [f"chunk-{n} " for n in range(1, 6)]
            last = events[-1]
            assert isinstance(last, Finished)
            assert last.ok
            assert last.result.text == "chunk-1 chunk-2 chunk-3 chunk-4 chunk-5 "
            assert [event for event in events if isinstance(event, Artifact)] == [Artifact("output")]
            with pytest.raises(TaskFailed, match="failing, as asked") as failed:
                await client.ask("fail")
            assert failed.value.code == failed.value.result.state == "FAILED"
            assert (await client.ask("reply hello")).text == "hello"
            (file,) = (await client.ask("file")).files
            assert (file.name, file.media_type, file.content) == (
                "hello.txt",
                "text/plain",
                b"hello from the playground\n",
            )
            assert (await client.ask("data")).data["numbers"] == [1, 2, 3]
            with pytest.raises(NotFound):
                await client.get("none")


async def test_questions_are_answered_in_the_same_task(server: Server) -> None:
    for dialect, binding in WAYS:
        async with connect(server.http, dialect=dialect, binding=binding) as client:
            events: list[Event] = []
            async for event in client.run("ask"):
                events.append(event)
                if isinstance(event, Question):
                    assert not event.wants_credentials
                    event.answer("blue")
            tasks = {event.task_id for event in events}
            assert len(tasks) == 1
            assert [type(event) for event in events if not isinstance(event, Status)] == [
                Question,
                Artifact,
                Text,
                Finished,
            ]
            answered = await client.ask("ask", answer=lambda question: f"not {question.text}")
            assert answered.text == "you said: not what would you like to say?"

            result = await client.ask("ask")
            assert (result.state, result.question) == ("INPUT_REQUIRED", "what would you like to say?")
            assert not result.is_over
            assert (await client.ask("green", task=result.task_id)).text == "you said: green"

            credentials = [event async for event in client.run("auth") if isinstance(event, Question)]
            assert [event.wants_credentials for event in credentials] == [True]


async def test_a_task_is_started_followed_canceled_and_waited_for(server: Server) -> None:
    for dialect, binding in WAYS:
        async with connect(server.http, dialect=dialect, binding=binding) as client:
            begun = await client.start("sleep 60")
            assert begun.state in ("SUBMITTED", "WORKING")
            states = []
            async with aclosing(client.follow(begun.task_id)) as events:
                async for event in events:
                    if isinstance(event, Status):
                        states.append(event.state)
                        if event.state == "WORKING" and event.text:
                            await client.cancel(event.task_id)
            assert states[-1] == "CANCELED"
            with pytest.raises(TaskFailed) as failed:
                await client.wait(begun.task_id)
            assert failed.value.code == "CANCELED"
            over = await taken(client.follow(begun.task_id))
            assert isinstance(over[-1], Finished)


async def test_the_card_decides_the_protocol_and_agents_have_their_own(server: Server) -> None:
    trace_lines: list[str] = []
    async with connect(server.http, trace=lambda direction, text: trace_lines.append(f"{direction} {text}")) as client:
        assert client.card.name == "Playground"
        assert (await client.ask("x", agent="other")).text == "other heard x"
        assert (await client.card_of("other")).name == "Other"
        with pytest.raises(NotFound, match="no card"):
            await client.ask("x", agent="nobody")
    assert any("/other/.well-known/agent-card.json" in line for line in trace_lines)
    async with connect(f"{server.http}/other") as client:
        assert (await client.ask("y")).text == "other heard y"
    async with connect(f"{server.http}/other/.well-known/agent.json") as client:
        assert (await client.ask("z")).text == "other heard z"
    async with connect(server.grpc) as client:
        assert (await client.ask("echo g")).text == "g"


def url_forms(server: Server) -> list[str]:
    """Every form of a server's URL."""
    return [
        server.http,
        f"{server.http}/",
        f"{server.http}/.well-known/agent-card.json",
        f"{server.http}/.well-known/agent.json",
        server.grpc,
        f"{server.grpc}/",
    ]


async def test_every_call_goes_to_the_agent_that_it_names_over_every_form_of_url(server: Server) -> None:
    for url in url_forms(server):
        async with connect(url) as client:
            result = await client.ask("x", agent="other")
            assert result.text == "other heard x", url
            begun = await client.start("y", agent="other")
            assert (await client.wait(begun.task_id, agent="other")).text == "other heard y", url
            events = await taken(client.run("z", agent="other"))
            assert [event.text for event in events if isinstance(event, Text)] == ["other heard z"], url
            assert (await client.get(result.task_id, agent="other")).text == "other heard x", url
            assert result.task_id in {task.task_id async for task in client.list(agent="other")}, url
            assert result.task_id not in {task.task_id async for task in client.list()}, url
            paused = await client.start("sleep 60")
            assert (await client.cancel(paused.task_id)).task_id == paused.task_id
            for wrong in ("other", "nobody"):
                with pytest.raises(NotFound):
                    await client.get(paused.task_id, agent=wrong)
                with pytest.raises(NotFound):
                    await client.cancel(paused.task_id, agent=wrong)


async def test_an_agent_that_does_not_exist_is_not_found_over_every_form_of_url(server: Server) -> None:
    for url in url_forms(server):
        async with connect(url) as client:
            for call in (
                lambda client=client: client.ask("x", agent="nobody"),
                lambda client=client: client.start("x", agent="nobody"),
                lambda client=client: taken(client.run("x", agent="nobody")),
                lambda client=client: client.get("1", agent="nobody"),
                lambda client=client: client.cancel("1", agent="nobody"),
                lambda client=client: taken(client.list(agent="nobody")),
            ):
                with pytest.raises(NotFound, match="nobody"):
                    await call()
            assert [task async for task in client.list()] == []


async def test_the_path_of_a_grpc_address_names_the_agent(server: Server) -> None:
    for dialect in ("1.0", "0.3"):
        async with connect(f"{server.grpc}/other", dialect=dialect) as client:
            assert (await client.ask("x")).text == "other heard x"
    scope = "projects/p/locations/l/collections/c/engines/e/assistants/a"
    for url in (server.grpc, server.http):
        async with connect(url) as client:
            result = await client.ask("x", agent=f"{scope}/agents/other")
            assert result.text == "other heard x"
            assert (await client.get(result.task_id, agent=f"{scope}/agents/other")).text == "other heard x"
            with pytest.raises(NotFound):
                await client.get(result.task_id, agent="other")


@pytest.mark.parametrize(
    ("url", "options", "problem"),
    [
        ("grpc://127.0.0.1", {}, "HOST:PORT"),
        ("grpc://127.0.0.1:1?agent=x", {}, "HOST:PORT"),
        ("grpc://127.0.0.1:1#x", {}, "HOST:PORT"),
        ("grpc://me@127.0.0.1:1", {}, "HOST:PORT"),
        ("grpc://127.0.0.1:port", {}, "Port could not be cast"),
        ("http://", {}, "is not the URL of a server"),
        ("127.0.0.1:50051", {}, "is not the URL of a server"),
        ("grpc://127.0.0.1:1", {"dialect": "0.1"}, 'dialect: "0.1"'),
        ("grpc://127.0.0.1:1", {"binding": "rest"}, 'binding: "rest"'),
    ],
)
def test_an_address_that_cannot_be_used_is_refused(url: str, options: dict[str, str], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        connect(url, **options)  # type: ignore[arg-type]  # options of one type


async def test_files_and_values_make_a_round_trip(server: Server, tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_bytes(b"a,b\n")
    async with connect(server.http) as client:
        sent: list[FileInput] = [tmp_path / "table.csv", ("../../evil.txt", b"e"), b"\x00"]
        events = await taken(client.run(files=sent, data={"n": 1}, agent="mirror"))
        files = [event for event in events if isinstance(event, File)]
        assert [(file.name, file.media_type) for file in files] == [
            ("table.csv", "text/csv"), ("../../evil.txt", "text/plain"), ("file", "application/octet-stream"),
        ]  # fmt: skip
        assert [event.value for event in events if isinstance(event, Data)] == [{"n": 1}]
        last = events[-1]
        assert isinstance(last, Finished)
        saved = last.result.save(tmp_path / "out")
        again = last.result.save(tmp_path / "out")
    assert [path.name for path in saved] == ["table.csv", "evil.txt", "file"]
    assert [path.name for path in again] == ["table-1.csv", "evil-1.txt", "file-1"]
    assert {path.parent for path in saved + again} == {tmp_path / "out"}


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"data": {"ids": [1, 1234567890123456789]}}, "data.ids[1]: the number 1234567890123456789 is beyond 2^53"),
        ({"metadata": {"order": -(2**60)}}, "metadata.order: the number -1152921504606846976 is beyond"),
        ({"data": [float("nan")]}, "data[0]: nan is not a JSON number"),
        ({"data": {"set": {1}}}, "data.set: set is not JSON"),
        ({"data": {1: "one"}}, "data: the key '1' must be text"),
    ],
)
async def test_values_that_json_would_change_are_rejected(server: Server, given: dict[str, Any], says: str) -> None:
    async with connect(server.http) as client:
        for ask in (client.ask, client.start):
            with pytest.raises(ValueError, match=re.escape(says)):
                await ask("echo x", **given)
        assert (await client.ask(data={"n": 2**53, "t": [True, None, 0.5]}, agent="mirror")).data == {
            "n": 2**53, "t": [True, None, 0.5],
        }  # fmt: skip


async def test_the_same_key_returns_the_same_task(server: Server) -> None:
    async with connect(server.http) as client:
        first = await client.ask("echo once", key="order-1")
        second = await client.ask("echo once", key="order-1")
        assert first.task_id == second.task_id
        with pytest.raises(ClientError) as caught:
            await client.ask("echo twice", key="order-1")
        assert caught.value.reason == "IDEMPOTENCY_KEY_REUSED"
        assert len([task async for task in client.list()]) == 1


async def test_another_process_resumes_after_a_stored_cursor(server: Server) -> None:
    async with connect(server.http) as client:
        events = await taken(client.run("stream 6 1"))
    place = next(n for n, event in enumerate(events) if isinstance(event, Text) and event.text == "chunk-3 ")
    async with connect(server.http) as client:
        rest = await taken(client.follow(events[0].task_id, after=events[place].cursor))
        assert [event for event in rest if isinstance(event, Text)] == [
            event for event in events[place + 1 :] if isinstance(event, Text)
        ]
        last = rest[-1]
        assert isinstance(last, Finished)
        assert last.result.text.startswith("chunk-1 ")
        with pytest.raises(Invalid, match="cursor"):
            await taken(client.follow(events[0].task_id, after="00000000.00000000.1"))


async def test_the_agent_is_in_the_trace_of_its_caller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACEPARENT", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
    at = {"http": "127.0.0.1:0", "grpc": "127.0.0.1:0", "store": f"sqlite:///{tmp_path}/t.db"}
    settings = Settings.model_validate({**at, "otlp": "http://127.0.0.1:9"})
    async with open_app(settings, [traced]) as app:
        for dialect, binding in WAYS:
            async with connect(f"http://{app.http}", dialect=dialect, binding=binding) as client:
                assert (await client.ask("x")).text == "0af7651916cd43dd8448eb211c80319c"


async def test_invalid_arguments_are_rejected(server: Server) -> None:
    with pytest.raises(ValueError, match="not the URL"):
        connect("host")
    with pytest.raises(ValueError, match='"ws" is unknown'):
        connect("http://host", binding="ws")
    with pytest.raises(ValueError, match="unknown"):
        connect("http://host", dialect="2.0")
    with pytest.raises(ServerUnavailable) as away:
        async with connect("http://127.0.0.1:9", retry_timeout=0):
            pass
    assert not away.value.may_have_arrived
    with pytest.raises(ProtocolError, match=r"no interface for 0\.1 over grpc"):
        async with connect(server.http, dialect="0.1", binding="grpc"):
            pass
    async with connect(server.http, dialect="0.3", binding="jsonrpc") as client:
        with pytest.raises(NotSupported, match="ListTasks"):
            await anext(client.list())


def test_a_connection_is_public() -> None:
    assert isinstance(connect("https://host.example"), Connection)
