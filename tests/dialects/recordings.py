"""Recorded calls of a2a-rust 0.3 and RabbitHole: requests in the shapes they send, responses in those they read.

The shapes are facts: those of a2a-rust are from its public types, client and conformance kit (0.3.0 to 0.3.3), those of
RabbitHole from its data model, which is that of 0.1. The texts are ours.

In a recording, `$name` stands for a value that differs between runs: it matches anything the first time, and the same
value later. Requests can use it. `$time` is any time in UTC. `...` stands for the events between the first and last.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{3})?Z")
RUST = {"Content-Type": "application/a2a+json", "A2A-Version": "1.0.0"}
RABBIT = {"Content-Type": "application/json"}


@dataclass(frozen=True)
class Rpc:
    """A JSON-RPC call and its result, its results (a stream), or its error code."""

    method: str
    params: Any
    result: Any = None
    results: list[Any] = field(default_factory=list)
    error: int = 0


@dataclass(frozen=True)
class Http:
    """A REST request and its response, or its responses (a stream)."""

    method: str
    path: str
    body: Any = None
    reply: Any = None
    replies: list[Any] = field(default_factory=list)
    status: int = 200


class Partial(dict[str, Any]):
    """An object with these keys and any others: the progress of a running task depends on timing."""


class Variables(dict[str, Any]):
    """The values of a recording's variables in one run."""

    def filled(self, value: Any) -> Any:
        """Returns a request with values in place of variables."""
        if isinstance(value, dict):
            return {key: self.filled(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self.filled(item) for item in value]
        return re.sub(r"\$\w+", lambda name: self[name[0]], value) if isinstance(value, str) else value

    def check(self, recorded: Any, actual: Any, at: str = "reply") -> None:
        """Asserts that a response has the recorded keys and values."""
        if isinstance(recorded, list) and ... in recorded:
            actual = [actual[0], ..., actual[-1]]
        if recorded is ...:
            return
        if isinstance(recorded, dict):
            assert isinstance(actual, dict), at
            assert set(recorded) <= set(actual), at
            assert isinstance(recorded, Partial) or set(actual) == set(recorded), at
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


def text(content: str) -> dict[str, Any]:
    return {"type": "text", "text": content}


def message(content: str, **fields: Any) -> dict[str, Any]:
    return {"messageId": "msg-1", "role": "user", "parts": [text(content)], **fields}


def stored(message: dict[str, Any], task: str = "$task", context: str = "$context") -> dict[str, Any]:
    """Returns a message as its task contains it."""
    role = {"user": "ROLE_USER", "agent": "ROLE_AGENT"}.get(message["role"], message["role"])
    return {**message, "role": role, "taskId": task, "contextId": context}


def status(state: str, message: Any = None) -> dict[str, Any]:
    return v01_state("TASK_STATE_" + state.upper().replace("-", "_"), message)


def v01_state(state: str, message: Any = None) -> dict[str, Any]:
    """Returns the status of a task of 0.1, whose states are lower-case words."""
    return {"state": state, **({"message": message} if message else {}), "timestamp": "$time"}


def task(state: Any, *history: Any, artifacts: Any = None, name: str = "$task", context: str = "$context") -> Any:
    values = {"id": name, "contextId": context, "status": state if isinstance(state, dict) else status(state)}
    return {**values, **({"artifacts": artifacts} if artifacts else {}), **({"history": [*history]} if history else {})}


def artifact(*parts: Any, id: str = "$artifact") -> dict[str, Any]:
    return {"artifactId": id, "parts": [*parts]}


def event_of(**member: Any) -> dict[str, Any]:
    """Returns an event in its wrapper."""
    return {key: {"taskId": "$task", "contextId": "$context", **value} for key, value in member.items()}


NON_BLOCKING = {"acceptedOutputModes": ["text/plain"], "returnImmediately": True}
FILE = {"type": "file", "file": {"name": "a.csv", "mimeType": "text/csv", "bytes": "YSxiCg=="}}
LINK = {"type": "file", "file": {"uri": "https://files.example/a.csv"}}
DATA = {"type": "data", "data": {"table": [{"name": "Ada", "score": 95}]}, "metadata": {"language": "en"}}
QUESTION = {"messageId": "$question", "role": "ROLE_AGENT", "parts": [text("what would you like to say?")]}
STARTED = Partial(id="$task", contextId="$context")
CANCELED = Partial(STARTED, status=status("canceled"))
CHUNKS = [
    {"task": task("submitted", stored(message("stream 2")))},
    event_of(statusUpdate={"status": status("working")}),
    event_of(artifactUpdate={"artifact": artifact(text("chunk-1 "), id="output")}),
    event_of(artifactUpdate={"artifact": artifact(text("chunk-2 "), id="output"), "append": True}),
    event_of(statusUpdate={"status": status("completed")}),
]
FOLLOWED: list[Any] = [{"task": STARTED}, ..., CHUNKS[-1]]
HELLO = task("completed", stored(message("Hello")), artifacts=[artifact(text("Hello"))])


def with_kind(value: Any) -> Any:
    """Adds `kind` to parts, messages and tasks: the response if the caller may be 0.3 or a2a-rust."""
    if isinstance(value, list):
        return [with_kind(item) for item in value]
    if not isinstance(value, dict):
        return value
    kind = "task" if "status" in value else "message" if "messageId" in value else value.get("type")
    return {**{key: with_kind(item) for key, item in value.items()}, **({"kind": kind} if kind else {})}


def enveloped(event: dict[str, Any]) -> dict[str, Any]:
    """Returns an event of a REST stream: bare as documented, and as the JSON-RPC response that a2a-rust reads."""
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
    "a send gives the bare task": [Rpc("SendMessage", {"message": message("Hello")}, HELLO)],
    "the role as in 1.0": [
        Rpc("SendMessage", {"message": {**message("Hello"), "role": "ROLE_USER"}}, HELLO),
    ],
    "a send by the method of the conformance kit": [Rpc("message/send", {"message": message("Hello")}, HELLO)],
    "a context id beside the message": [
        Rpc("SendMessage", {"contextId": "ctx-7", "message": message("Hello")},
            task("completed", stored(message("Hello"), context="ctx-7"),
                 artifacts=[artifact(text("Hello"))], context="ctx-7")),
        Rpc("ListTasks", {"contextId": "ctx-7", "status": "completed", "pageSize": 5, "includeArtifacts": True},
            {"tasks": [task("completed", stored(message("Hello"), context="ctx-7"),
                            artifacts=[artifact(text("Hello"))], context="ctx-7")],
             "nextPageToken": "", "pageSize": 5, "totalSize": 1}),
        Rpc("tasks/list", {"contextId": "ctx-7", "pageSize": 5},
            {"tasks": [task("completed", stored(message("Hello"), context="ctx-7"), context="ctx-7")],
             "nextPageToken": "", "pageSize": 5, "totalSize": 1}),
    ],
    "every kind of part": [
        Rpc("SendMessage", {"message": {**message(""), "parts": [FILE, LINK, DATA]}},
            task("completed", stored({**message(""), "parts": [FILE, LINK, DATA]}),
                 artifacts=[artifact(FILE, LINK, DATA)])),
    ],
    "a direct reply": [
        Rpc("SendMessage", {"message": message("reply at once")},
            {"messageId": "$answer", "contextId": "$context", "role": "ROLE_AGENT", "parts": [text("at once")]}),
    ],
    "a question and its answer": [
        Rpc("SendMessage", {"message": message("ask")},
            task(status("input-required", stored(QUESTION)), stored(message("ask")))),
        Rpc("SendMessage", {"message": message("tea", taskId="$task", contextId="$context")},
            task("completed", stored(message("ask")), stored(QUESTION), stored(message("tea")),
                 artifacts=[artifact(text("you said: tea"))])),
        Rpc("GetTask", {"id": "$task", "historyLength": 1},
            task("completed", stored(message("tea")), artifacts=[artifact(text("you said: tea"))])),
        Rpc("GetTask", {"id": "$task", "historyLength": 0},
            task("completed", artifacts=[artifact(text("you said: tea"))])),
    ],
    "a cancel": [
        Rpc("SendMessage", {"message": message("sleep 60"), "configuration": NON_BLOCKING},
            STARTED),
        Rpc("CancelTask", {"id": "$task", "metadata": {"reason": "enough"}}, CANCELED),
        Rpc("CancelTask", {"id": "$task"}, error=-32002),
    ],
    "a running task by the method names of 0.3": [
        Rpc("message/send", {"message": message("sleep 60"), "configuration": NON_BLOCKING},
            STARTED),
        Rpc("tasks/get", {"id": "$task"},
            Partial(STARTED, kind="task")),
        Rpc("tasks/cancel", {"id": "$task"}, Partial(CANCELED, kind="task")),
    ],
    "a finished task by the method names of 0.3": [
        Rpc("message/send", {"message": {**message("Hello"), "parts": [text("Hello"), DATA]}},
            task("completed", stored({**message("Hello"), "parts": [text("Hello"), DATA]}),
                 artifacts=[artifact(text("Hello"))])),
        Rpc("tasks/get", {"id": "$task"},
            with_kind(task("completed", stored({**message("Hello"), "parts": [text("Hello"), DATA]}),
                      artifacts=[artifact(text("Hello"))]))),
    ],
    "a stream": [Rpc("SendStreamingMessage", {"message": message("stream 2")}, results=CHUNKS)],
    "a stream by the method of the conformance kit": [
        Rpc("message/stream", {"message": message("stream 2")}, results=CHUNKS),
    ],
    "a subscription": [
        Rpc("SendMessage", {"message": message("sleep 1"), "configuration": NON_BLOCKING}, STARTED),
        Rpc("SubscribeToTask", {"id": "$task"}, results=FOLLOWED),
    ],
    "a subscription by the method name of its server": [
        Rpc("SendMessage", {"message": message("sleep 1"), "configuration": NON_BLOCKING}, STARTED),
        Rpc("tasks/subscribe", {"id": "$task"}, results=FOLLOWED),
    ],
    "a subscription by the method name of 0.3": [
        Rpc("SendMessage", {"message": message("sleep 1"), "configuration": NON_BLOCKING}, STARTED),
        Rpc("tasks/resubscribe", {"id": "$task"}, results=[
            Partial(FOLLOWED[0], kind="task", id="$task"),
            ...,
            Partial(FOLLOWED[-1], kind="status-update", taskId="$task", final=True),
        ]),
    ],
    "rejected calls": [
        Rpc("GetTask", {"id": "non-existent"}, error=-32001),
        Rpc("tasks/get", {"id": "non-existent"}, error=-32001),
        Rpc("tasks/subscribe", {"id": "non-existent"}, error=-32001),
        Rpc("SendMessage", {"message": {**message(""), "parts": []}}, error=-32602),
        Rpc("NonExistentMethod", None, error=-32601),
        Rpc("GetExtendedAgentCard", {}, error=-32004),
        Rpc("agent/authenticatedExtendedCard", None, error=-32004),
        Rpc("CreateTaskPushNotificationConfig", {"taskId": "t", "url": "https://hook.example/"}, error=-32001),
        Rpc("tasks/pushNotificationConfig/get", {"taskId": "t", "id": "c"}, error=-32001),
    ],
    **{
        f"webhooks by the method names of {source}": [
            Rpc("SendMessage", {"message": message("ask")}, Partial(id="$task")),
            Rpc(names[0], {"taskId": "$task", "url": HOOK, "token": "secret",
                           "authentication": {"scheme": "Bearer", "credentials": "secret"}},
                {"id": "$config", "taskId": "$task", "url": HOOK,
                 "authentication": {"scheme": "Bearer", "credentials": ""}}),
            Rpc(names[0], {"taskId": "$task", "id": "c", "url": HOOK}, {"id": "c", "taskId": "$task", "url": HOOK}),
            Rpc(names[1], {"taskId": "$task", "id": "c"}, {"id": "c", "taskId": "$task", "url": HOOK}),
            Rpc(names[3], {"taskId": "$task", "id": "$config"}, {}),
            Rpc(names[2], {"taskId": "$task"}, {"configs": [{"id": "c", "taskId": "$task", "url": HOOK}]}),
            Rpc(names[3], {"taskId": "$task", "id": "c"}, {}),
            Rpc(names[2], {"taskId": "$task"}, {"configs": []}),
            Rpc(names[1], {"taskId": "$task", "id": "c"}, error=-32001),
        ]
        for source, names in (("its client", PUSH_NAMES), ("its server", OLD_PUSH_NAMES))
    },
    "a send with a webhook": [
        Rpc("SendMessage", {"message": message("ask"), "configuration": {
                "acceptedOutputModes": [], "taskPushNotificationConfig": {"taskId": "", "url": HOOK}}},
            Partial(id="$task")),
        Rpc(PUSH_NAMES[1], {"taskId": "$task", "id": "$task"}, {"id": "$task", "taskId": "$task", "url": HOOK}),
    ],
}  # fmt: skip

SENT = {"message": message("sleep 60"), "configuration": NON_BLOCKING}

RUST_REST: dict[str, list[Http]] = {
    "a send by every path": [
        Http("POST", "/message:send", {"message": message("Hello")}, HELLO),
        *(
            Http("POST", path, {"message": message("Hello")},
                 task("completed", stored(message("Hello"), name, name + "c"),
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
    "a context id beside the message": [
        Http("POST", "/tenants/playground/message:send", {"contextId": "ctx-8", "message": message("Hello")},
             task("completed", stored(message("Hello"), context="ctx-8"),
                  artifacts=[artifact(text("Hello"))], context="ctx-8")),
        Http("GET", "/tenants/playground/tasks?contextId=ctx-8&status=completed&pageSize=1000", status=400),
        Http("GET", "/tenants/playground/tasks?contextId=ctx-8&status=completed&pageSize=9",
             reply={"tasks": [task("completed", stored(message("Hello"), context="ctx-8"), context="ctx-8")],
                    "nextPageToken": "", "pageSize": 9, "totalSize": 1}),
    ],
    "a cancel with a slash": [
        Http("POST", "/message/send", SENT, STARTED),
        Http("POST", "/tasks/$task/cancel", {"id": "$task"}, CANCELED),
    ],
    "a cancel by the path of its client": [
        Http("POST", "/tenants/playground/message:send", SENT, STARTED),
        Http("POST", "/tenants/playground/tasks/$task:cancel", {}, CANCELED),
        Http("POST", "/tenants/playground/tasks/$task/cancel", status=400),
    ],
    "a stream": [
        Http("POST", "/message:stream", {"message": message("stream 2")},
             replies=[enveloped(event) for event in CHUNKS]),
    ],
    "a stream with a slash": [
        Http("POST", "/tenants/playground/message/stream", {"message": message("stream 2")},
             replies=[enveloped(event) for event in CHUNKS]),
    ],
    **{
        f"a subscription by {method} {path}": [
            Http("POST", "/message:send", {"message": message("sleep 1"), "configuration": NON_BLOCKING},
                 STARTED),
            Http(method, path, replies=[event if event is ... else enveloped(event) for event in FOLLOWED]),
        ]
        for method in ("GET", "POST")
        for path in ("/tasks/$task:subscribe", "/tenants/playground/tasks/$task/subscribe")
    },
    "rejected calls": [
        Http("GET", "/tasks/non-existent", status=404),
        Http("GET", "/tenants/unknown/tasks", status=404),
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
            Http("POST", "/message:send", {"message": message("ask")}, Partial(id="$task")),
            Http("POST", path, {"taskId": "$task", "id": "c", "url": HOOK, "token": "secret",
                                "authentication": {"scheme": "Basic", "credentials": "secret"}},
                 {"id": "c", "taskId": "$task", "url": HOOK,
                  "authentication": {"scheme": "Basic", "credentials": ""}}),
            Http("GET", f"{path}/c", reply=Partial(id="c", taskId="$task", url=HOOK)),
            Http("GET", path, reply={"configs": [Partial(id="c", taskId="$task", url=HOOK)]}),
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


def v01_message(content: str, role: str = "user") -> dict[str, Any]:
    return {"role": role, "parts": [text(content)]}


def v01_task(state: Any, *history: Any, artifacts: Any = None, id: str = "run-1", session: str = "burrow") -> Any:
    """Returns a task of 0.1."""
    values = {"id": id, "sessionId": session, "status": state if isinstance(state, dict) else v01_state(state)}
    indexed = [{**artifact, "index": index} for index, artifact in enumerate(artifacts or [])]
    return {**values, **({"artifacts": indexed} if indexed else {}), **({"history": [*history]} if history else {})}


def v01_status(state: Any, *, final: bool = False) -> dict[str, Any]:
    return {"id": "run-1", "status": v01_state(state), "final": final}


BURROW = {"id": "run-1", "sessionId": "burrow"}
STORED_FILE = {"type": "file", "file": {**FILE["file"], "data": "YSxiCg=="}}  # type: ignore[dict-item]  # both 0.1 names

RABBIT_CALLS: dict[str, list[Rpc]] = {
    "a send": [
        Rpc("tasks/send", {**BURROW, "message": v01_message("Hello"), "metadata": {"hole": 3}},
            v01_task("completed", v01_message("Hello"), artifacts=[{"parts": [text("Hello")]}])),
    ],
    "a session id from the server": [
        Rpc("tasks/send", {"id": "run-1", "message": v01_message("Hello")},
            v01_task("completed", v01_message("Hello"), artifacts=[{"parts": [text("Hello")]}], session="$session")),
    ],
    "files and data": [
        Rpc("tasks/send", {**BURROW, "message": {"role": "user", "parts": [FILE, DATA]}},
            v01_task("completed", {"role": "user", "parts": [STORED_FILE, DATA]},
                     artifacts=[{"parts": [STORED_FILE, DATA]}])),
    ],
    "a question and its answer": [
        Rpc("tasks/send", {**BURROW, "message": v01_message("ask")},
            v01_task(v01_state("input-required", v01_message("what would you like to say?", "agent")),
                     v01_message("ask"))),
        Rpc("tasks/send", {**BURROW, "message": v01_message("tea")},
            v01_task("completed", v01_message("ask"), v01_message("what would you like to say?", "agent"),
                v01_message("tea"), artifacts=[{"parts": [text("you said: tea")]}])),
    ],
    "a rejection with its message": [
        Rpc("tasks/send", {**BURROW, "message": v01_message("reject")},
            v01_task(v01_state("failed", v01_message("rejecting, as asked", "agent")), v01_message("reject"))),
    ],
    "a stream": [
        Rpc("tasks/sendSubscribe", {**BURROW, "message": v01_message("stream 2")}, results=[
            v01_status("submitted"),
            v01_status("working"),
            {"id": "run-1", "artifact": {"parts": [text("chunk-1 ")], "index": 0}},
            {"id": "run-1", "artifact": {"parts": [text("chunk-2 ")], "index": 0, "append": True}},
            v01_status("completed", final=True),
        ]),
    ],
    "rejected calls": [
        Rpc("tasks/get", {"id": "non-existent"}, error=-32001),
        Rpc("tasks/cancel", {"id": "non-existent"}, error=-32001),
        Rpc("tasks/send", {"id": "run-1", "message": v01_message("")["role"]}, error=-32602),
        Rpc("tasks/pushNotification/get", {"id": "run-1"}, error=-32001),
    ],
    "a webhook": [
        Rpc("tasks/send", {**BURROW, "message": v01_message("ask")}, Partial(id="run-1")),
        Rpc("tasks/pushNotification/get", {"id": "run-1"}, error=-32001),
        Rpc("tasks/pushNotification/set", {"id": "run-1", "pushNotificationConfig": {
                "url": HOOK, "token": "secret", "authentication": {"schemes": ["Bearer"], "credentials": "secret"}}},
            {"id": "run-1", "pushNotificationConfig": {
                "url": HOOK, "token": "secret", "authentication": {"schemes": ["Bearer"]}}}),
        Rpc("tasks/pushNotification/set", {"id": "run-1", "pushNotificationConfig": {"url": f"{HOOK}2"}},
            {"id": "run-1", "pushNotificationConfig": {"url": f"{HOOK}2"}}),
        Rpc("tasks/pushNotification/get", {"id": "run-1"},
            {"id": "run-1", "pushNotificationConfig": {"url": f"{HOOK}2"}}),
    ],
    "a send with a webhook": [
        Rpc("tasks/send", {**BURROW, "message": v01_message("ask"), "pushNotification": {"url": HOOK}},
            Partial(id="run-1")),
        Rpc("tasks/pushNotification/get", {"id": "run-1"}, {"id": "run-1", "pushNotificationConfig": {"url": HOOK}}),
    ],
}  # fmt: skip
