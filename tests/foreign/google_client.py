"""Checks of a generated Google client, for both path families of its discovery document.

Static discovery, anonymous credentials, and our server as the endpoint: everything else is Google's own code.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import quote, urlencode
from urllib.request import urlopen

from checks import Checks
from google.auth.credentials import AnonymousCredentials
from googleapiclient.discovery import build
from googleapiclient.errors import HttpError
from hook import hook

check = Checks("google-api-python-client")

ASSISTANT = "projects/p/locations/global/collections/default_collection/engines/e/assistants/default_assistant"
AGENT = f"{ASSISTANT}/agents/playground"
BARE = f"{ASSISTANT}/agents/bare"


def agents(http: str) -> Any:
    """Returns the agents resource of Discovery Engine for the server at `http`."""
    service = build(
        "discoveryengine", "v1", static_discovery=True, credentials=AnonymousCredentials(),
        client_options={"api_endpoint": http},
    )  # fmt: skip
    return service.projects().locations().collections().engines().assistants().agents()


class Caller:
    """The resources of one agent. `root` has `message()` and `tasks()`, `card` the card."""

    def __init__(self, http: str, root: Any, card: Any, agent: str = AGENT) -> None:
        self.agent = agent
        self.http = http
        self.root = root
        self.card = card

    def body(self, text: str, **message: Any) -> dict[str, Any]:
        return {"message": {"messageId": "m-1", "role": "ROLE_USER", "content": [{"text": text}], **message}}

    def send(self, text: str, blocking: bool = True, **message: Any) -> dict[str, Any]:
        body = {**self.body(text, **message), "configuration": {"blocking": blocking}}
        return self.root.message().send(tenant=self.agent, body=body).execute()

    def stream(self, text: str) -> list[dict[str, Any]]:
        return self.root.message().stream(tenant=self.agent, body=self.body(text)).execute()

    def get(self, task: str, **parameters: Any) -> dict[str, Any]:
        return self.root.tasks().get(tenant=self.agent, name=f"tasks/{task}", **parameters).execute()

    def cancel(self, task: str) -> dict[str, Any]:
        return self.root.tasks().cancel(tenant=self.agent, name=f"tasks/{task}", body={}).execute()

    def push(self, task: str, url: str) -> dict[str, Any]:
        """Registers a webhook. Google's rule has the collection in the parent."""
        body = {"pushNotificationConfig": {"url": url, "token": "t0ken"}}
        configs = self.root.tasks().pushNotificationConfigs()
        return configs.create(
            tenant=self.agent, parent=f"tasks/{task}/pushNotificationConfigs", configId="c", body=body
        ).execute()

    def listed(self, task: str) -> list[dict[str, Any]]:
        configs = self.root.tasks().pushNotificationConfigs()
        return configs.list(tenant=self.agent, parent=f"tasks/{task}").execute()["configs"]

    def subscribe(self, task: str) -> list[dict[str, Any]]:
        return self.root.tasks().subscribe(tenant=self.agent, name=f"tasks/{task}").execute()


def chunks(events: list[dict[str, Any]]) -> list[str]:
    return [event["artifactUpdate"]["artifact"]["parts"][0]["text"] for event in events if "artifactUpdate" in event]


@check.of("card")
def it_reads_the_card(caller: Caller) -> None:
    assert caller.card(tenant=AGENT).execute()["name"] == "Playground"


@check.of("send")
def it_sends_and_waits(caller: Caller) -> None:
    task = caller.send("echo hello")["task"]
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    assert task["artifacts"][0]["parts"] == [{"text": "hello"}]
    assert task["history"][0]["content"] == [{"text": "echo hello"}]


@check.of("non-blocking send", "get", "cancel")
def it_sends_without_waiting_and_gets(caller: Caller) -> None:
    task = caller.send("sleep 30", blocking=False)["task"]
    assert caller.get(task["id"])["status"]["state"] in ("TASK_STATE_SUBMITTED", "TASK_STATE_WORKING")
    assert caller.cancel(task["id"])["status"]["state"] == "TASK_STATE_CANCELLED"


@check.of("follow-up", "get")
def it_continues_a_task_and_cuts_its_history(caller: Caller) -> None:
    task = caller.send("ask")["task"]
    assert task["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    done = caller.send("blue", taskId=task["id"])["task"]
    assert done["artifacts"][0]["parts"] == [{"text": "you said: blue"}]
    assert len(caller.get(task["id"], historyLength=1)["history"]) == 1
    assert len(caller.get(task["id"])["history"]) == 3


@check.of("stream")
def it_streams_a_json_array(caller: Caller) -> None:
    events = caller.stream("stream 5 5")
    assert "task" in events[0]
    assert chunks(events) == [f"chunk-{number} " for number in range(1, 6)]
    assert events[-1]["statusUpdate"]["final"] is True


@check.of("subscribe")
def it_subscribes_to_a_running_task(caller: Caller) -> None:
    task = caller.send("sleep 30", blocking=False)["task"]["id"]
    canceling = threading.Thread(
        target=cancel_when_followed, args=(Caller(caller.http, *caller_parts(caller)), task), daemon=True
    )
    canceling.start()
    events = caller.subscribe(task)
    canceling.join()
    assert events[0]["task"]["id"] == task
    assert events[-1]["statusUpdate"]["status"]["state"] == "TASK_STATE_CANCELLED"


def cancel_when_followed(caller: Caller, task: str) -> None:
    followers = 0
    while not followers:
        with urlopen(f"{caller.http}/operations/tasks/{task}:explain") as answer:
            followers = int(json.load(answer)["tasks"][0].get("subscribers", 0))
        time.sleep(0.02)
    caller.cancel(task)


def caller_parts(caller: Caller) -> tuple[Any, Any]:
    """Resources with a separate connection, since Google's client is not thread-safe."""
    own = agents(caller.http)
    root = own if hasattr(own, "message") else own.a2a().v1()
    return root, None


@check.of("subscribe")
def it_subscribes_to_a_finished_task(caller: Caller) -> None:
    task = caller.send("hello")["task"]["id"]
    events = caller.subscribe(task)
    assert [list(event) for event in events] == [["task"]]


@check.of("push configs")
def it_keeps_lists_and_deletes_webhooks(caller: Caller) -> None:
    task = caller.send("ask")["task"]["id"]
    configs, name = caller.root.tasks().pushNotificationConfigs(), f"tasks/{task}/pushNotificationConfigs/c"
    shown = caller.push(task, "https://one.example/hook")
    assert (shown["name"], shown["pushNotificationConfig"]["url"]) == (name, "https://one.example/hook")
    assert "token" not in shown["pushNotificationConfig"]
    assert configs.get(tenant=AGENT, name=name).execute() == shown
    assert caller.listed(task) == [shown]
    for _ in range(2):
        assert configs.delete(tenant=AGENT, name=name).execute() == {}
    assert caller.listed(task) == []


@check.of("push")
def it_receives_the_task_as_its_state_changes(caller: Caller) -> None:
    with hook() as there:
        body = caller.body("echo hello")
        body["configuration"] = {"blocking": True, "pushNotification": {"id": "c", "url": there.url, "token": "t0ken"}}
        task = caller.root.message().send(tenant=AGENT, body=body).execute()["task"]
        deliveries = there.wait(lambda body: body["status"]["state"] == "TASK_STATE_COMPLETED")
        assert {body["id"] for _, body in deliveries} == {task["id"]}
        assert deliveries[-1][1]["artifacts"][0]["parts"] == [{"text": "hello"}]
        assert {headers["x-a2a-notification-token"] for headers, _ in deliveries} == {"t0ken"}


@check.of("push")
def it_receives_what_comes_after_it_was_registered(caller: Caller) -> None:
    with hook() as there:
        task = caller.send("ask")["task"]["id"]
        caller.push(task, there.url)
        caller.send("blue", taskId=task)
        deliveries = there.wait(lambda body: body["status"]["state"] == "TASK_STATE_COMPLETED")
        assert [body["status"]["state"] for _, body in deliveries] == ["TASK_STATE_WORKING", "TASK_STATE_COMPLETED"]


@check.of("get")
def it_selects_fields_of_a_task(caller: Caller) -> None:
    task = caller.send("echo hello")["task"]["id"]
    assert caller.get(task, fields="id,status/state") == {"id": task, "status": {"state": "TASK_STATE_COMPLETED"}}
    assert caller.get(task, fields="artifacts(parts/text)") == {"artifacts": [{"parts": [{"text": "hello"}]}]}
    assert caller.get(task, fields="id", prettyPrint=True) == {"id": task}
    assert detail(lambda: caller.get(task, fields="id,nothing"), "fieldViolations")[0]["field"] == "fields"


@check.of("get")
def it_reads_enums_as_numbers(caller: Caller) -> None:
    task = caller.send("hello")["task"]["id"]
    request = caller.root.tasks().get(tenant=caller.agent, name=f"tasks/{task}")
    assert with_alt(request, "json;enum-encoding=int").execute()["status"]["state"] == 3


@check.of("stream")
def it_selects_fields_of_each_event(caller: Caller) -> None:
    request = caller.root.message().stream(
        tenant=caller.agent, body=caller.body("stream 3 5"), fields="artifactUpdate/artifact/parts/text"
    )
    events = request.execute()
    assert chunks([event for event in events if event]) == ["chunk-1 ", "chunk-2 ", "chunk-3 "]
    assert {key for event in events for key in event} == {"artifactUpdate"}


@check.of("stream")
def it_streams_server_sent_events_with_alt_sse(caller: Caller) -> None:
    request = with_alt(caller.root.message().stream(tenant=caller.agent, body=caller.body("stream 2 5")), "sse")
    request.postproc = lambda response, content: (response["content-type"], content.decode())
    kind, text = request.execute()
    assert kind.startswith("text/event-stream")
    events = [json.loads(line.removeprefix("data: ")) for line in text.splitlines() if line.startswith("data: ")]
    assert chunks(events) == ["chunk-1 ", "chunk-2 "]


@check.of("list")
def it_lists_tasks(caller: Caller) -> None:
    """The generated client has no method for it; the request is made from that of another method."""
    tasks = [caller.send("hello")["task"]["id"] for _ in range(2)]
    fields, shown = "tasks/id,totalSize,nextPageToken", []
    page = listed_tasks(caller, {"pageSize": 1, "fields": fields})
    shown += [task["id"] for task in page["tasks"]]
    page = listed_tasks(caller, {"pageSize": 1, "fields": fields, "pageToken": page["nextPageToken"]})
    shown += [task["id"] for task in page["tasks"]]
    assert shown == tasks[::-1]
    assert len(listed_tasks(caller, {"pageSize": 100000})["tasks"]) >= 2  # as the largest page


@check.of("list", "push configs")
def it_lists_webhooks_page_by_page(caller: Caller) -> None:
    task = caller.send("ask")["task"]["id"]
    configs, parent = caller.root.tasks().pushNotificationConfigs(), f"tasks/{task}"
    for name in ("a", "b"):
        body = {"pushNotificationConfig": {"url": f"https://{name}.example/hook"}}
        configs.create(
            tenant=caller.agent, parent=f"{parent}/pushNotificationConfigs", configId=name, body=body
        ).execute()
    request, shown = (
        configs.list(tenant=caller.agent, parent=parent, pageSize=1, fields="configs/name,nextPageToken"),
        [],
    )
    while request is not None:
        page = request.execute()
        shown.append([config["name"] for config in page["configs"]])
        request = configs.list_next(request, page)
    assert shown == [[f"{parent}/pushNotificationConfigs/{name}"] for name in ("a", "b")]


def with_alt(request: Any, alt: str) -> Any:
    """Google's request with another `alt`; the library always writes `json`."""
    request.uri = request.uri.replace("alt=json", f"alt={quote(alt)}")
    return request


def listed_tasks(caller: Caller, query: dict[str, Any]) -> dict[str, Any]:
    """A page of tasks."""
    request = caller.root.tasks().get(tenant=caller.agent, name="tasks/t")
    request.uri = f"{request.uri.rpartition('/')[0]}?{urlencode({'alt': 'json', **query})}"
    return dict(request.execute())


def detail(call: Callable[[], Any], key: str) -> Any:
    """Returns a field of the details of the error of a call."""
    try:
        answer = call()
    except HttpError as error:
        return next(found[key] for found in error.error_details if key in found)
    raise AssertionError(f"no error, but {answer!r}")


@check.of("errors")
def it_names_what_it_does_not_know(caller: Caller) -> None:
    body = {**caller.body("hello"), "config": {}}
    unknown = caller.root.message().send(tenant=caller.agent, body=body)
    assert detail(unknown.execute, "fieldViolations")[0]["field"] == "config"
    body = caller.body("", content=[{"data": {"a": 1}}])
    flat = caller.root.message().send(tenant=caller.agent, body=body)
    assert detail(flat.execute, "fieldViolations")[0]["field"].startswith("message.content[0].data")
    proto = with_alt(caller.root.tasks().get(tenant=caller.agent, name="tasks/t"), "proto")
    assert detail(proto.execute, "fieldViolations")[0]["field"] == "alt"


@check.of("errors")
def it_gets_the_first_error_format(caller: Caller) -> None:
    try:
        caller.get("no-such-task", x__xgafv="1")
    except HttpError as error:
        found = json.loads(error.content)["error"]
    assert (found["code"], found["errors"][0]["reason"]) == (404, "notFound")


@check.of("errors")
def it_understands_our_errors(caller: Caller) -> None:
    for call in (caller.get, caller.cancel, caller.subscribe):
        try:
            call("no-such-task")
        except HttpError as error:
            found = error
        assert found.resp.status == 404
        assert found.reason == "Task not found"
        assert found.error_details[0]["reason"] == "TASK_NOT_FOUND"


bare = Checks("google-api-python-client")


@bare.of("refusals")
def what_needs_no_capability_works(caller: Caller) -> None:
    assert caller.send("hello")["task"]["status"]["state"] == "TASK_STATE_COMPLETED"


@bare.of("refusals")
def streams_are_an_unsupported_operation(caller: Caller) -> None:
    task = caller.send("hello")["task"]["id"]
    for call in (lambda: caller.stream("hello"), lambda: caller.subscribe(task)):
        assert reason(call) == "UNSUPPORTED_OPERATION"


@bare.of("refusals")
def webhooks_are_not_supported(caller: Caller) -> None:
    task = caller.send("hello")["task"]["id"]
    configs, name = caller.root.tasks().pushNotificationConfigs(), f"tasks/{task}/pushNotificationConfigs/c"
    body = caller.body("hello")
    body["configuration"] = {"blocking": True, "pushNotification": {"url": "https://one.example/hook"}}
    for call in (
        lambda: caller.push(task, "https://one.example/hook"),
        lambda: caller.listed(task),
        configs.get(tenant=caller.agent, name=name).execute,
        configs.delete(tenant=caller.agent, name=name).execute,
        caller.root.message().send(tenant=caller.agent, body=body).execute,
    ):
        assert reason(call) == "PUSH_NOTIFICATION_NOT_SUPPORTED"


def reason(call: Callable[[], Any]) -> str:
    """Returns the reason of the error of a call."""
    try:
        answer = call()
    except HttpError as error:
        return str(error.error_details[0]["reason"])
    raise AssertionError(f"no error, but {answer!r}")
