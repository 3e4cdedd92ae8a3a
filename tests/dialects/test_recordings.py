"""What a2a-rust 0.3 and RabbitHole say, replayed: requests in the shapes they send, replies in those they read.

The shapes are facts: of a2a-rust those of its public types, client and conformance kit (0.3.0 to 0.3.3), of RabbitHole
those of its data model, which is that of 0.1. The words are ours.

In a recording a text that begins with `$` stands for a value that differs from run to run. The first time it is
whatever comes, after that it is the same; a request may name it. `$time` is any time, in UTC. Three dots are the events
between a stream's first and last.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from tests.dialects.dialect_clients import ServerConnections, sse

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{3})?Z")
RUST = {"Content-Type": "application/a2a+json", "A2A-Version": "1.0.0"}
RABBIT = {"Content-Type": "application/json"}


# What a recording is made of -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rpc:
    """A JSON-RPC call and its result, or its error's number; several results are a stream."""

    method: str
    params: Any
    result: Any = None
    results: list[Any] = field(default_factory=list)
    error: int = 0


@dataclass(frozen=True)
class Http:
    """A REST request and its reply; several replies are a stream."""

    method: str
    path: str
    body: Any = None
    reply: Any = None
    replies: list[Any] = field(default_factory=list)
    status: int = 200


class Some(dict[str, Any]):
    """An object with these keys and maybe others: how far a task has got when it is looked at is a matter of luck."""


class Known(dict[str, Any]):
    """The values that a run has found for the names of a recording."""

    def filled(self, value: Any) -> Any:
        """A request with the values in place of their names."""
        if isinstance(value, dict):
            return {key: self.filled(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self.filled(item) for item in value]
        return re.sub(r"\$\w+", lambda name: self[name[0]], value) if isinstance(value, str) else value

    def check(self, recorded: Any, actual: Any, at: str = "reply") -> None:
        """Whether a reply is what was recorded: the same keys, the same values."""
        if isinstance(recorded, list) and ... in recorded:
            actual = [actual[0], ..., actual[-1]]
        if recorded is ...:
            return
        if isinstance(recorded, dict):
            assert isinstance(actual, dict), at
            assert set(recorded) <= set(actual), at
            assert isinstance(recorded, Some) or set(actual) == set(recorded), at
            for key in recorded:
                self.check(recorded[key], actual[key], f"{at}.{key}")
        elif isinstance(recorded, list):
            assert isinstance(actual, list), at
            assert len(actual) == len(recorded), at
            for index, (one, other) in enumerate(zip(recorded, actual, strict=True)):
                self.check(one, other, f"{at}[{index}]")
        elif recorded == "$time":
            assert TIME.fullmatch(actual), at
        elif isinstance(recorded, str) and recorded.startswith("$"):
            assert isinstance(actual, str), at
            assert actual, at
            assert self.setdefault(recorded, actual) == actual, at
        else:
            assert (type(actual), actual) == (type(recorded), recorded), at


# a2a-rust 0.3 ----------------------------------------------------------------------------------------------


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def says(words: str, **more: Any) -> dict[str, Any]:
    return {"messageId": "msg-1", "role": "user", "parts": [text(words)], **more}


def kept(message: dict[str, Any], task: str = "$task", context: str = "$context") -> dict[str, Any]:
    """A message as its task shows it."""
    return {**message, "taskId": task, "contextId": context}


def status(state: str, message: Any = None) -> dict[str, Any]:
    return {"state": state, **({"message": message} if message else {}), "timestamp": "$time"}


def task(state: Any, *history: Any, artifacts: Any = None, name: str = "$task", context: str = "$context") -> Any:
    values = {"id": name, "contextId": context, "status": state if isinstance(state, dict) else status(state)}
    return {**values, **({"artifacts": artifacts} if artifacts else {}), **({"history": [*history]} if history else {})}


def artifact(*parts: Any, id: str = "$artifact") -> dict[str, Any]:
    return {"artifactId": id, "parts": [*parts]}


def of(**member: Any) -> dict[str, Any]:
    """An event in its wrapper."""
    return {key: {"taskId": "$task", "contextId": "$context", **value} for key, value in member.items()}


AT_ONCE = {"acceptedOutputModes": ["text/plain"], "returnImmediately": True}
FILE = {"type": "file", "file": {"name": "a.csv", "mimeType": "text/csv", "bytes": "YSxiCg=="}}
LINK = {"type": "file", "file": {"uri": "https://files.example/a.csv"}}
DATA = {"type": "data", "data": {"table": [{"name": "Ada", "score": 95}]}, "metadata": {"language": "en"}}
QUESTION = {"messageId": "$question", "role": "agent", "parts": [text("what would you like to say?")]}
STARTED = Some(id="$task", contextId="$context")
CANCELED = Some(STARTED, status=status("canceled"))
CHUNKS = [
    {"task": task("submitted", kept(says("stream 2")))},
    of(statusUpdate={"status": status("working")}),
    of(artifactUpdate={"artifact": artifact(text("chunk-1 "), id="output")}),
    of(artifactUpdate={"artifact": artifact(text("chunk-2 "), id="output"), "append": True}),
    of(statusUpdate={"status": status("completed")}),
]
FOLLOWED: list[Any] = [{"task": STARTED}, ..., CHUNKS[-1]]
HELLO = task("completed", kept(says("Hello")), artifacts=[artifact(text("Hello"))])


def both(value: Any) -> Any:
    """What is told when nothing says whether 0.3 or a2a-rust asks: each part, message and task with `kind` besides."""
    if isinstance(value, list):
        return [both(item) for item in value]
    if not isinstance(value, dict):
        return value
    kind = "task" if "status" in value else "message" if "messageId" in value else value.get("type")
    return {**{key: both(item) for key, item in value.items()}, **({"kind": kind} if kind else {})}


def enveloped(event: dict[str, Any]) -> dict[str, Any]:
    """An event of a REST stream: a2a-rust's client reads the answer of JSON-RPC in it, its book shows it bare."""
    return {"jsonrpc": "2.0", "id": None, "result": event, **event}


HOOK = "https://hook.example/"
PUSH_NAMES = (
    "CreateTaskPushNotificationConfig",
    "GetTaskPushNotificationConfig",
    "ListTaskPushNotificationConfigs",
    "DeleteTaskPushNotificationConfig",
)
OLD_PUSH_NAMES = tuple(f"tasks/pushNotificationConfig/{verb}" for verb in ("set", "get", "list", "delete"))

RUST_CALLS: dict[str, list[Rpc]] = {
    "a send gives the bare task": [Rpc("SendMessage", {"message": says("Hello")}, HELLO)],
    "the role in the words of 1.0": [
        Rpc("SendMessage", {"message": {**says("Hello"), "role": "ROLE_USER"}}, HELLO),
    ],
    "the kit's name for a send": [Rpc("message/send", {"message": says("Hello")}, HELLO)],
    "a conversation named beside the message": [
        Rpc("SendMessage", {"contextId": "ctx-7", "message": says("Hello")},
            task("completed", kept(says("Hello"), context="ctx-7"),
                 artifacts=[artifact(text("Hello"))], context="ctx-7")),
        Rpc("ListTasks", {"contextId": "ctx-7", "status": "completed", "pageSize": 5, "includeArtifacts": True},
            {"tasks": [task("completed", kept(says("Hello"), context="ctx-7"),
                            artifacts=[artifact(text("Hello"))], context="ctx-7")],
             "nextPageToken": "", "pageSize": 5, "totalSize": 1}),
        Rpc("tasks/list", {"contextId": "ctx-7", "pageSize": 5},
            {"tasks": [task("completed", kept(says("Hello"), context="ctx-7"), context="ctx-7")],
             "nextPageToken": "", "pageSize": 5, "totalSize": 1}),
    ],
    "every kind of part": [
        Rpc("SendMessage", {"message": {**says(""), "parts": [FILE, LINK, DATA]}},
            task("completed", kept({**says(""), "parts": [FILE, LINK, DATA]}),
                 artifacts=[artifact(FILE, LINK, DATA)])),
    ],
    "a message answers without a task": [
        Rpc("SendMessage", {"message": says("reply at once")},
            {"messageId": "$answer", "contextId": "$context", "role": "agent", "parts": [text("at once")]}),
    ],
    "a question and its answer": [
        Rpc("SendMessage", {"message": says("ask")},
            task(status("input-required", kept(QUESTION)), kept(says("ask")))),
        Rpc("SendMessage", {"message": says("tea", taskId="$task", contextId="$context")},
            task("completed", kept(says("ask")), kept(QUESTION), kept(says("tea")),
                 artifacts=[artifact(text("you said: tea"))])),
        Rpc("GetTask", {"id": "$task", "historyLength": 1},
            task("completed", kept(says("tea")), artifacts=[artifact(text("you said: tea"))])),
        Rpc("GetTask", {"id": "$task", "historyLength": 0},
            task("completed", artifacts=[artifact(text("you said: tea"))])),
    ],
    "a cancel": [
        Rpc("SendMessage", {"message": says("sleep 60"), "configuration": AT_ONCE},
            STARTED),
        Rpc("CancelTask", {"id": "$task", "metadata": {"reason": "enough"}}, CANCELED),
        Rpc("CancelTask", {"id": "$task"}, error=-32002),
    ],
    "the names of 0.3 for a task": [
        Rpc("message/send", {"message": says("sleep 60"), "configuration": AT_ONCE},
            STARTED),
        Rpc("tasks/get", {"id": "$task"},
            Some(STARTED, kind="task")),
        Rpc("tasks/cancel", {"id": "$task"}, Some(CANCELED, kind="task")),
    ],
    "the names of 0.3 for what is over": [
        Rpc("message/send", {"message": {**says("Hello"), "parts": [text("Hello"), DATA]}},
            task("completed", kept({**says("Hello"), "parts": [text("Hello"), DATA]}),
                 artifacts=[artifact(text("Hello"))])),
        Rpc("tasks/get", {"id": "$task"},
            both(task("completed", kept({**says("Hello"), "parts": [text("Hello"), DATA]}),
                      artifacts=[artifact(text("Hello"))]))),
    ],
    "a stream": [Rpc("SendStreamingMessage", {"message": says("stream 2")}, results=CHUNKS)],
    "the kit's name for a stream": [Rpc("message/stream", {"message": says("stream 2")}, results=CHUNKS)],
    "a subscription": [
        Rpc("SendMessage", {"message": says("sleep 1"), "configuration": AT_ONCE}, STARTED),
        Rpc("SubscribeToTask", {"id": "$task"}, results=FOLLOWED),
    ],
    "the name of its server for a subscription": [
        Rpc("SendMessage", {"message": says("sleep 1"), "configuration": AT_ONCE}, STARTED),
        Rpc("tasks/subscribe", {"id": "$task"}, results=FOLLOWED),
    ],
    "the name of 0.3 for a subscription": [
        Rpc("SendMessage", {"message": says("sleep 1"), "configuration": AT_ONCE}, STARTED),
        Rpc("tasks/resubscribe", {"id": "$task"}, results=[
            Some(FOLLOWED[0], kind="task", id="$task"),
            ...,
            Some(FOLLOWED[-1], kind="status-update", taskId="$task", final=True),
        ]),
    ],
    "what is refused": [
        Rpc("GetTask", {"id": "non-existent"}, error=-32001),
        Rpc("tasks/get", {"id": "non-existent"}, error=-32001),
        Rpc("tasks/subscribe", {"id": "non-existent"}, error=-32001),
        Rpc("SendMessage", {"message": {**says(""), "parts": []}}, error=-32602),
        Rpc("NonExistentMethod", None, error=-32601),
        Rpc("GetExtendedAgentCard", {}, error=-32004),
        Rpc("agent/authenticatedExtendedCard", None, error=-32004),
        Rpc("CreateTaskPushNotificationConfig", {"taskId": "t", "url": "https://hook.example/"}, error=-32001),
        Rpc("tasks/pushNotificationConfig/get", {"taskId": "t", "id": "c"}, error=-32001),
    ],
    **{
        f"webhooks, by the names of {whose}": [
            Rpc("SendMessage", {"message": says("ask")}, Some(id="$task")),
            Rpc(names[0], {"taskId": "$task", "url": HOOK, "token": "secret",
                           "authentication": {"scheme": "Bearer", "credentials": "secret"}},
                {"id": "$task", "taskId": "$task", "url": HOOK,
                 "authentication": {"scheme": "Bearer", "credentials": ""}}),
            Rpc(names[0], {"taskId": "$task", "id": "c", "url": HOOK}, {"id": "c", "taskId": "$task", "url": HOOK}),
            Rpc(names[1], {"taskId": "$task", "id": "c"}, {"id": "c", "taskId": "$task", "url": HOOK}),
            Rpc(names[3], {"taskId": "$task", "id": "$task"}, {}),
            Rpc(names[2], {"taskId": "$task"}, {"configs": [{"id": "c", "taskId": "$task", "url": HOOK}]}),
            Rpc(names[3], {"taskId": "$task", "id": "c"}, {}),
            Rpc(names[2], {"taskId": "$task"}, {"configs": []}),
            Rpc(names[1], {"taskId": "$task", "id": "c"}, error=-32001),
        ]
        for whose, names in (("its client", PUSH_NAMES), ("its server", OLD_PUSH_NAMES))
    },
    "a send with a webhook": [
        Rpc("SendMessage", {"message": says("ask"), "configuration": {
                "acceptedOutputModes": [], "taskPushNotificationConfig": {"taskId": "", "url": HOOK}}},
            Some(id="$task")),
        Rpc(PUSH_NAMES[1], {"taskId": "$task", "id": "$task"}, {"id": "$task", "taskId": "$task", "url": HOOK}),
    ],
}  # fmt: skip

SENT = {"message": says("sleep 60"), "configuration": AT_ONCE}

RUST_REST: dict[str, list[Http]] = {
    "a send, by either spelling": [
        Http("POST", "/message:send", {"message": says("Hello")}, HELLO),
        *(
            Http("POST", path, {"message": says("Hello")},
                 task("completed", kept(says("Hello"), name, name + "c"),
                      artifacts=[artifact(text("Hello"), id=name + "a")], name=name, context=name + "c"))
            for name, path in (
                ("$2", "/message/send"),
                ("$3", "/tenants/playground/message:send"),
                ("$4", "/tenants/playground/message/send"),
            )
        ),
        Http("GET", "/tasks/$task?historyLength=0", reply=task("completed", artifacts=[artifact(text("Hello"))])),
        Http("GET", "/tenants/playground/tasks/$task", reply=HELLO),
    ],
    "a conversation named beside the message": [
        Http("POST", "/tenants/playground/message:send", {"contextId": "ctx-8", "message": says("Hello")},
             task("completed", kept(says("Hello"), context="ctx-8"),
                  artifacts=[artifact(text("Hello"))], context="ctx-8")),
        Http("GET", "/tenants/playground/tasks?contextId=ctx-8&status=completed&pageSize=1000", status=400),
        Http("GET", "/tenants/playground/tasks?contextId=ctx-8&status=completed&pageSize=9",
             reply={"tasks": [task("completed", kept(says("Hello"), context="ctx-8"), context="ctx-8")],
                    "nextPageToken": "", "pageSize": 9, "totalSize": 1}),
    ],
    "a cancel with a slash": [
        Http("POST", "/message/send", SENT, STARTED),
        Http("POST", "/tasks/$task/cancel", {"id": "$task"}, CANCELED),
    ],
    "a cancel as its client asks": [
        Http("POST", "/tenants/playground/message:send", SENT, STARTED),
        Http("POST", "/tenants/playground/tasks/$task:cancel", {}, CANCELED),
        Http("POST", "/tenants/playground/tasks/$task/cancel", status=400),
    ],
    "a stream": [
        Http("POST", "/message:stream", {"message": says("stream 2")}, replies=[enveloped(one) for one in CHUNKS]),
    ],
    "a stream with a slash": [
        Http("POST", "/tenants/playground/message/stream", {"message": says("stream 2")},
             replies=[enveloped(one) for one in CHUNKS]),
    ],
    **{
        f"a subscription by {method} {path}": [
            Http("POST", "/message:send", {"message": says("sleep 1"), "configuration": AT_ONCE},
                 STARTED),
            Http(method, path, replies=[one if one is ... else enveloped(one) for one in FOLLOWED]),
        ]
        for method in ("GET", "POST")
        for path in ("/tasks/$task:subscribe", "/tenants/playground/tasks/$task/subscribe")
    },
    "what is refused": [
        Http("GET", "/tasks/non-existent", status=404),
        Http("GET", "/tenants/nobody/tasks", status=404),
        Http("POST", "/tasks/non-existent/cancel", status=404),
        Http("GET", "/extendedAgentCard", status=400),
        Http("POST", "/tasks/t/pushNotificationConfigs", {"taskId": "t", "url": HOOK}, status=404),
        Http("POST", "/tasks/t/pushNotificationConfig", {"taskId": "t", "url": HOOK}, status=404),
        Http("GET", "/tenants/playground/tasks/t/pushNotificationConfig/c", status=404),
        Http("DELETE", "/tasks/t/pushNotificationConfig/c", status=404),
        Http("POST", "/tasks/t/pushNotificationConfig/c/delete", status=404),
    ],
    **{
        f"webhooks at {path}": [
            Http("POST", "/message:send", {"message": says("ask")}, Some(id="$task")),
            Http("POST", path, {"taskId": "$task", "id": "c", "url": HOOK, "token": "secret",
                                "authentication": {"scheme": "Basic", "credentials": "secret"}},
                 {"id": "c", "taskId": "$task", "url": HOOK,
                  "authentication": {"scheme": "Basic", "credentials": ""}}),
            Http("GET", f"{path}/c", reply=Some(id="c", taskId="$task", url=HOOK)),
            Http("GET", path, reply={"configs": [Some(id="c", taskId="$task", url=HOOK)]}),
            Http(*deletes, reply={}),
            Http(*deletes, reply={}),
            Http("GET", path, reply={"configs": []}),
            Http("GET", f"{path}/c", status=404),
        ]
        for path, deletes in (
            ("/tasks/$task/pushNotificationConfigs", ("DELETE", "/tasks/$task/pushNotificationConfigs/c")),
            ("/tasks/$task/pushNotificationConfig", ("POST", "/tasks/$task/pushNotificationConfig/c/delete")),
            ("/tenants/playground/tasks/$task/pushNotificationConfigs",
             ("POST", "/tenants/playground/tasks/$task/pushNotificationConfigs/c/delete")),
        )
    },
}  # fmt: skip


# RabbitHole ------------------------------------------------------------------------------------------------


def v01_message(words: str, role: str = "user") -> dict[str, Any]:
    return {"role": role, "parts": [text(words)]}


def run(state: Any, *history: Any, artifacts: Any = None, id: str = "run-1", session: str = "burrow") -> Any:
    """A task of 0.1."""
    values = {"id": id, "sessionId": session, "status": state if isinstance(state, dict) else status(state)}
    given = [{**one, "index": index} for index, one in enumerate(artifacts or [])]
    return {**values, **({"artifacts": given} if given else {}), **({"history": [*history]} if history else {})}


def moved(state: Any, *, final: bool = False) -> dict[str, Any]:
    return {"id": "run-1", "status": status(state), "final": final}


BURROW = {"id": "run-1", "sessionId": "burrow"}
STORED = {"type": "file", "file": {**FILE["file"], "data": "YSxiCg=="}}  # type: ignore[dict-item]  # both names of 0.1

RABBIT_CALLS: dict[str, list[Rpc]] = {
    "a send": [
        Rpc("tasks/send", {**BURROW, "message": v01_message("Hello"), "metadata": {"hole": 3}},
            run("completed", v01_message("Hello"), artifacts=[{"parts": [text("Hello")]}])),
    ],
    "a session of the server's choice": [
        Rpc("tasks/send", {"id": "run-1", "message": v01_message("Hello")},
            run("completed", v01_message("Hello"), artifacts=[{"parts": [text("Hello")]}], session="$session")),
    ],
    "files and data": [
        Rpc("tasks/send", {**BURROW, "message": {"role": "user", "parts": [FILE, DATA]}},
            run("completed", {"role": "user", "parts": [STORED, DATA]}, artifacts=[{"parts": [STORED, DATA]}])),
    ],
    "a question and its answer": [
        Rpc("tasks/send", {**BURROW, "message": v01_message("ask")},
            run(status("input-required", v01_message("what would you like to say?", "agent")), v01_message("ask"))),
        Rpc("tasks/send", {**BURROW, "message": v01_message("tea")},
            run("completed", v01_message("ask"), v01_message("what would you like to say?", "agent"),
                v01_message("tea"), artifacts=[{"parts": [text("you said: tea")]}])),
    ],
    "a failure says why": [
        Rpc("tasks/send", {**BURROW, "message": v01_message("reject")},
            run(status("failed", v01_message("rejecting, as asked", "agent")), v01_message("reject"))),
    ],
    "a stream": [
        Rpc("tasks/sendSubscribe", {**BURROW, "message": v01_message("stream 2")}, results=[
            moved("submitted"),
            moved("working"),
            {"id": "run-1", "artifact": {"parts": [text("chunk-1 ")], "index": 0}},
            {"id": "run-1", "artifact": {"parts": [text("chunk-2 ")], "index": 0, "append": True}},
            moved("completed", final=True),
        ]),
    ],
    "what is refused": [
        Rpc("tasks/get", {"id": "non-existent"}, error=-32001),
        Rpc("tasks/cancel", {"id": "non-existent"}, error=-32001),
        Rpc("tasks/send", {"id": "run-1", "message": v01_message("")["role"]}, error=-32602),
        Rpc("tasks/pushNotification/get", {"id": "run-1"}, error=-32001),
    ],
    "a webhook": [
        Rpc("tasks/send", {**BURROW, "message": v01_message("ask")}, Some(id="run-1")),
        Rpc("tasks/pushNotification/get", {"id": "run-1"}, error=-32001),
        Rpc("tasks/pushNotification/set", {"id": "run-1", "pushNotificationConfig": {
                "url": HOOK, "token": "secret", "authentication": {"schemes": ["Bearer"], "credentials": "secret"}}},
            {"id": "run-1", "pushNotificationConfig": {"url": HOOK, "authentication": {"schemes": ["Bearer"]}}}),
        Rpc("tasks/pushNotification/set", {"id": "run-1", "pushNotificationConfig": {"url": f"{HOOK}2"}},
            {"id": "run-1", "pushNotificationConfig": {"url": f"{HOOK}2"}}),
        Rpc("tasks/pushNotification/get", {"id": "run-1"},
            {"id": "run-1", "pushNotificationConfig": {"url": f"{HOOK}2"}}),
    ],
    "a send with a webhook": [
        Rpc("tasks/send", {**BURROW, "message": v01_message("ask"), "pushNotification": {"url": HOOK}},
            Some(id="run-1")),
        Rpc("tasks/pushNotification/get", {"id": "run-1"}, {"id": "run-1", "pushNotificationConfig": {"url": HOOK}}),
    ],
}  # fmt: skip


# Replaying -------------------------------------------------------------------------------------------------


class Sleepers:
    """What sleeps in the playground until somebody hears of it: whoever subscribes must not come too late."""

    def __init__(self) -> None:
        self._asleep: list[asyncio.Event] = []

    async def sleep(self, _: float) -> None:
        self._asleep.append(woken := asyncio.Event())
        await woken.wait()

    async def hear(self, events: AsyncIterator[Any]) -> list[Any]:
        """All events of a stream."""
        values = []
        async for event in events:
            values.append(event)
            for woken in self._asleep:
                woken.set()
        return values


@pytest.fixture
def sleepers(monkeypatch: pytest.MonkeyPatch) -> Sleepers:
    found = Sleepers()
    monkeypatch.setattr("dragoman.playground.asyncio", SimpleNamespace(sleep=found.sleep))
    return found


class OverHttp:
    """JSON-RPC by POST, streams as server-sent events."""

    def __init__(self, connections: ServerConnections, headers: dict[str, str]) -> None:
        self._connections = connections
        self._headers = headers

    async def answers(self, call: dict[str, Any]) -> AsyncIterator[Any]:
        async with self._connections.http.post("/", data=json.dumps(call), headers=self._headers) as answer:
            assert answer.status == 200
            if answer.content_type == "text/event-stream":
                async for event in sse(answer):
                    yield event
            else:
                yield await answer.json()


class OverWebSocket(OverHttp):
    """JSON-RPC in text frames, streams with a last word."""

    async def answers(self, call: dict[str, Any]) -> AsyncIterator[Any]:
        async with self._connections.http.ws_connect("/ws", headers=self._headers) as socket:
            await socket.send_json(call)
            streams = "tream" in call["method"] or "ubscribe" in call["method"]
            while True:
                answer = await socket.receive_json()
                if answer.get("result") == {"status": "stream_complete"}:
                    return
                yield answer
                if not streams or "error" in answer:
                    return


async def replay(way: OverHttp, recording: list[Rpc], sleepers: Sleepers | None = None) -> None:
    known = Known()
    for number, step in enumerate(recording):
        call = {"jsonrpc": "2.0", "id": f"req-{number}", "method": step.method, "params": known.filled(step.params)}
        hears = sleepers if sleepers and step.results else Sleepers()
        answers = await hears.hear(way.answers(call))
        assert all((answer["jsonrpc"], answer["id"]) == ("2.0", call["id"]) for answer in answers)
        if step.error:
            (answer,) = answers
            assert answer["error"]["code"] == step.error, answer
        elif step.results:
            known.check(step.results, [answer["result"] for answer in answers], f"{step.method} {number}")
        else:
            (answer,) = answers
            known.check(step.result, answer["result"], f"{step.method} {number}")


@pytest.mark.parametrize("way", [OverHttp, OverWebSocket])
@pytest.mark.parametrize("name", RUST_CALLS)
async def test_a_call_of_a2a_rust_is_answered_as_it_was_recorded(
    connections: ServerConnections, sleepers: Sleepers, way: type[OverHttp], name: str
) -> None:
    await replay(way(connections, RUST), RUST_CALLS[name], sleepers)


@pytest.mark.parametrize("way", [OverHttp, OverWebSocket])
@pytest.mark.parametrize("name", RABBIT_CALLS)
async def test_a_call_of_rabbithole_is_answered_as_it_was_recorded(
    connections: ServerConnections, way: type[OverHttp], name: str
) -> None:
    await replay(way(connections, RABBIT), RABBIT_CALLS[name])


@pytest.mark.parametrize("name", RUST_REST)
async def test_a_request_of_a2a_rust_is_answered_as_it_was_recorded(
    connections: ServerConnections, sleepers: Sleepers, name: str
) -> None:
    known = Known()
    for number, step in enumerate(RUST_REST[name]):
        data = None if step.body is None else json.dumps(known.filled(step.body))
        async with connections.http.request(step.method, known.filled(step.path), data=data, headers=RUST) as answer:
            at = f"{step.method} {step.path} {number}"
            assert answer.status == step.status, f"{at}: {await answer.text()}"
            if step.replies:
                known.check(step.replies, await sleepers.hear(sse(answer)), at)
            elif step.reply is not None:
                known.check(step.reply, await answer.json(), at)


async def test_rabbithole_reads_its_task_in_its_own_dialect(connections: ServerConnections) -> None:
    """`tasks/get` and `tasks/cancel` may be 0.3's too: what 0.1 reads is there, whatever stands beside it."""
    await replay(OverHttp(connections, RABBIT), RABBIT_CALLS["a question and its answer"][:1])
    for method, state in (("tasks/get", "input-required"), ("tasks/cancel", "canceled")):
        call = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"id": "run-1", "historyLength": 9}}
        async for answer in OverHttp(connections, RABBIT).answers(call):
            result = answer["result"]
            assert (result["id"], result["sessionId"], result["status"]["state"]) == ("run-1", "burrow", state)
            assert [part["type"] for message in result["history"] for part in message["parts"]] in (
                ["text"],
                ["text", "text"],
            )
    # Who names 0.1 gets nothing else.
    known = Known()
    call = {"jsonrpc": "2.0", "id": 1, "method": "tasks/get", "params": {"id": "run-1"}}
    async for answer in OverHttp(connections, {**RABBIT, "A2A-Version": "0.1"}).answers(call):
        question = v01_message("what would you like to say?", "agent")
        known.check(run("canceled", v01_message("ask"), question), answer["result"])


@pytest.mark.parametrize("state", ["COMPLETED", "completed", "TASK_STATE_COMPLETED"])
async def test_states_may_be_requested_in_capitals(connections: ServerConnections, state: str) -> None:
    await replay(OverHttp(connections, RABBIT), RABBIT_CALLS["a send"])
    async with connections.http.get(f"/tasks?status={state}", headers=RABBIT) as answer:
        assert [one["id"] for one in (await answer.json())["tasks"]] == ["run-1"]
    async with connections.http.get("/tasks?status=CANCELED", headers=RABBIT) as answer:
        assert (await answer.json())["tasks"] == []
