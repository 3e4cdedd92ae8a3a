"""fasta2a 2: methods of 0.3 with objects of 1.0. Its client sends, streams and gets, its types have the rest."""

from __future__ import annotations

import asyncio
import base64
import sys
from pathlib import Path
from typing import Any

import httpx
from fasta2a import schema
from fasta2a.client import A2AClient
from fasta2a.schema import (
    CancelTaskResponse,
    ListTasksResponse,
    StreamResponse,
    a2a_request_ta,
    stream_message_response_ta,
)
from pydantic import TypeAdapter

sys.path.insert(0, str(Path(__file__).parents[1]))
from checks import Checks, arguments, finish, wait_until_received
from fasta2a_client import call, check_deliveries, stream, until
from hook import hook

check = Checks("fasta2a")

canceled_ta = TypeAdapter(CancelTaskResponse)
listed_ta = TypeAdapter(ListTasksResponse)
delivery_ta = TypeAdapter(StreamResponse)

PUSH: dict[str, tuple[str, Any]] = {
    "set": ("tasks/pushNotification/set", schema.SetTaskPushNotificationResponse),
    "get": ("tasks/pushNotification/get", schema.GetTaskPushNotificationResponse),
    "list": ("tasks/pushNotificationConfig/list", schema.ListTaskPushNotificationConfigResponse),
    "delete": ("tasks/pushNotificationConfig/delete", schema.DeleteTaskPushNotificationConfigResponse),
}


class Caller:
    """The package's client, and calls with its types for other methods."""

    def __init__(self, http: str, client: A2AClient, named: A2AClient) -> None:
        self.http = http
        self.client = client
        self.named = named

    async def send(self, text: str, *parts: dict[str, Any], **fields: Any) -> Any:
        return await self.client.send_message(message(text, *parts, **fields))

    async def task(self, text: str, *parts: dict[str, Any], **fields: Any) -> Any:
        return (await self.send(text, *parts, **fields))["result"]["task"]

    async def start(self, text: str) -> Any:
        configuration = {"accepted_output_modes": ["text/plain"], "blocking": False}
        return (await self.client.send_message(message(text), configuration=configuration))["result"]["task"]

    async def stream(self, text: str, **fields: Any) -> list[Any]:
        return [answer async for answer in self.client.stream_message(message(text, **fields))]

    async def get(self, task: str) -> Any:
        return await self.client.get_task(task)

    async def list(self, **params: Any) -> Any:
        return (await call(self.client, "tasks/list", params, a2a_request_ta, listed_ta))["result"]

    async def cancel(self, task: str) -> Any:
        return await call(self.client, "tasks/cancel", {"id": task}, a2a_request_ta, canceled_ta)

    async def push(self, verb: str, params: dict[str, Any]) -> Any:
        """Makes a call for webhooks and returns its result."""
        method, answers = PUSH[verb]
        return (await call(self.client, method, params, a2a_request_ta, TypeAdapter(answers)))["result"]

    async def resubscribe(self, task: str, begun: asyncio.Event | None = None) -> list[Any]:
        """Returns all responses; `begun` is set with the first."""
        asks, answers = a2a_request_ta, stream_message_response_ta
        received: list[Any] = []
        async for answer in stream(self.client, "tasks/resubscribe", {"id": task}, asks, answers):
            received.append(answer)
            if begun is not None:
                begun.set()
        return received


def message(text: str, *parts: dict[str, Any], **fields: Any) -> Any:
    return {"role": "user", "parts": list(parts) or [{"text": text}], "message_id": "m-1", **fields}


def texts(task: Any) -> str:
    return "".join(part["text"] for artifact in task.get("artifacts", ()) for part in artifact["parts"])


def results(answers: list[Any]) -> list[Any]:
    """Returns the content of a stream. Unknown content would be an empty result, not an error."""
    found = [answer["result"] for answer in answers]
    assert all(len(one) == 1 for one in found), found
    return found


@check.of("send")
async def a_send_gives_the_finished_task(caller: Caller) -> None:
    task = await caller.task("echo hello")
    assert (task["status"]["state"], texts(task)) == ("completed", "hello")
    assert (task["history"][0]["role"], task["history"][0]["parts"]) == ("user", [{"text": "echo hello"}])


@check.of("send")
async def an_agent_is_called_by_its_name_too(caller: Caller) -> None:
    answer = await caller.named.send_message(message("echo hello"))  # posts to /playground/
    assert texts(answer["result"]["task"]) == "hello"


@check.of("non-blocking send", "get")
async def a_send_that_does_not_wait_gives_a_task_to_poll(caller: Caller) -> None:
    task = await caller.start("sleep 0.5")
    assert task["status"]["state"] in ("submitted", "working")
    await until(lambda: caller.get(task["id"]), "completed")
    got = await caller.get(task["id"])
    assert got["id"] is None, "its requests to get a task have no id, and are no notifications"
    assert got["result"]["status"]["state"] == "completed"


@check.of("send")
async def ways_to_end_are_states_not_errors(caller: Caller) -> None:
    states = [(await caller.task(text))["status"]["state"] for text in ("fail", "reject", "ask", "auth")]
    assert states == ["failed", "rejected", "input-required", "auth-required"]


@check.of("send", "stream")
async def a_direct_reply_is_a_message(caller: Caller) -> None:
    reply = (await caller.send("reply hi"))["result"]["message"]
    assert (reply["role"], reply["parts"][0]["text"]) == ("agent", "hi")
    (only,) = results(await caller.stream("reply hi"))
    assert only["message"]["parts"][0]["text"] == "hi"


PARTS = [
    {"data": {"numbers": [1, 2.5], "nothing": None}},
    {"data": ["a", 1]},
    {"raw": base64.b64encode(b"\x00\x01").decode(), "filename": "x.bin", "media_type": "application/octet-stream"},
    {"url": "http://127.0.0.1:1/x.csv", "media_type": "text/csv"},
]


@check.of("send")
async def parts_of_every_kind_go_there_and_back(caller: Caller) -> None:
    assert (await caller.task("", *PARTS))["artifacts"][0]["parts"] == PARTS
    file = (await caller.task("file"))["artifacts"][0]["parts"][0]
    assert (file["filename"], file["media_type"]) == ("hello.txt", "text/plain")


@check.of("get")
async def a_task_is_got_as_it_was_sent(caller: Caller) -> None:
    task = await caller.task("", *PARTS)
    assert (await caller.get(task["id"]))["result"]["artifacts"][0]["parts"] == PARTS


@check.of("follow-up")
async def a_follow_up_needs_only_the_task_every_time(caller: Caller) -> None:
    for question in ("ask", "auth"):
        task = await caller.task(question)
        done = await caller.task("blue", task_id=task["id"])
        assert (done["id"], done["context_id"]) == (task["id"], task["context_id"])
        assert texts(done) == "you said: blue"


@check.of("stream")
async def a_stream_is_the_task_and_then_its_chunks_in_order(caller: Caller) -> None:
    events = results(await caller.stream("stream 5 5"))
    assert "task" in events[0]
    chunks = [event["artifact_update"] for event in events if "artifact_update" in event]
    assert [chunk["artifact"]["parts"][0]["text"] for chunk in chunks] == [f"chunk-{number} " for number in range(1, 6)]
    assert [chunk.get("append", False) for chunk in chunks] == [False, True, True, True, True]
    assert events[-1]["status_update"]["status"]["state"] == "completed"
    assert texts((await caller.get(events[0]["task"]["id"]))["result"]) == "chunk-1 chunk-2 chunk-3 chunk-4 chunk-5 "


@check.of("stream")
async def a_streamed_question_is_the_last_event(caller: Caller) -> None:
    assert results(await caller.stream("ask"))[-1]["status_update"]["status"]["state"] == "input-required"


@check.of("cancel", "subscribe")
async def a_task_is_canceled_and_its_followers_hear_of_it(caller: Caller) -> None:
    task = (await caller.start("sleep 30"))["id"]
    begun = asyncio.Event()
    following = asyncio.create_task(caller.resubscribe(task, begun))
    await wait_until_received(following, begun)
    assert (await caller.cancel(task))["result"]["status"]["state"] == "canceled"
    events = results(await following)
    assert events[0]["task"]["id"] == task
    assert events[-1]["status_update"]["status"]["state"] == "canceled"


@check.of("list")
async def pages_of_tasks_follow_their_tokens(caller: Caller) -> None:
    tasks = {(await caller.task("hello", context_id="paged by fasta2a"))["id"] for _ in range(3)}
    first = await caller.list(context_id="paged by fasta2a", page_size=2)
    second = await caller.list(context_id="paged by fasta2a", page_size=2, page_token=first["next_page_token"])
    assert {task["id"] for page in (first, second) for task in page["tasks"]} == tasks
    assert (first["total_size"], len(first["tasks"])) == (3, 2)
    assert "artifacts" not in first["tasks"][0]
    assert (await caller.list(context_id="paged by fasta2a", status="failed"))["tasks"] == []


@check.of("push configs")
async def a_webhook_is_kept_listed_and_deleted(caller: Caller) -> None:
    task = (await caller.task("ask"))["id"]
    shown = await caller.push("set", {"task_id": task, **webhook("https://one.example/hook")})
    kept = {"id": "c", "task_id": task, "url": "https://one.example/hook"}
    assert shown == {**kept, "authentication": {"scheme": "Bearer", "credentials": ""}}
    assert await caller.push("get", {"task_id": task, "id": "c"}) == shown
    assert (await caller.push("list", {"task_id": task}))["configs"] == [shown]
    for _ in range(2):
        assert await caller.push("delete", {"task_id": task, "id": "c"}) is None
    assert (await caller.push("list", {"task_id": task}))["configs"] == []


@check.of("push")
async def a_receiver_gets_every_event_of_the_stream(caller: Caller) -> None:
    with hook() as there:
        configuration = {"accepted_output_modes": [], "task_push_notification_config": webhook(there.url)}
        answer = await caller.client.send_message(message("stream 3 5"), configuration=configuration)
        deliveries = await there.until(lambda body: "completed" in str(body))
        received = [delivery_ta.validate_python(body) for _, body in deliveries]
        assert received[0]["task"]["id"] == answer["result"]["task"]["id"]
        chunks = [
            one["artifact_update"]["artifact"]["parts"][0]["text"] for one in received if "artifact_update" in one
        ]
        assert chunks == [f"chunk-{number} " for number in range(1, 4)]
        assert received[-1]["status_update"]["status"]["state"] == "completed"
        check_deliveries(deliveries)


@check.of("push")
async def a_receiver_gets_what_comes_after_it_was_registered(caller: Caller) -> None:
    with hook() as there:
        task = (await caller.task("ask"))["id"]
        await caller.push("set", {"task_id": task, **webhook(there.url)})
        await caller.task("blue", task_id=task)
        deliveries = await there.until(lambda body: "completed" in str(body))
        assert delivery_ta.validate_python(deliveries[0][1])["status_update"]["status"]["state"] == "working"


def webhook(url: str) -> dict[str, Any]:
    authentication = {"scheme": "Bearer", "credentials": "s3cret"}
    return {"id": "c", "url": url, "token": "t0ken", "authentication": authentication}


@check.of("errors")
async def an_unknown_task_is_not_found_in_so_many_words(caller: Caller) -> None:
    for answer in (await caller.get("no-such-task"), await caller.cancel("no-such-task")):
        # Its types accept only these values.
        assert (answer["error"]["code"], answer["error"]["message"]) == (-32001, "Task not found")
    assert (await caller.send("hello", task_id="no-such-task"))["error"]["code"] == -32001


@check.of("errors")
async def a_task_that_has_ended_is_not_canceled_in_so_many_words(caller: Caller) -> None:
    task = (await caller.task("hello"))["id"]
    answer = await caller.cancel(task)
    assert (answer["error"]["code"], answer["error"]["message"]) == (-32002, "Task not cancelable")


@check.of("errors")
async def bad_messages_are_distinguished(caller: Caller) -> None:
    empty = await caller.client.send_message({**message(""), "parts": []})
    assert (empty["error"]["code"], empty["error"]["message"]) == (-32602, "Invalid parameters")
    odd = {"raw": "AAAA", "media_type": "application/x-unsupported"}
    assert (await caller.send("", odd))["error"]["code"] == -32005
    done = await caller.task("hello")
    assert (await caller.send("more", task_id=done["id"]))["error"]["code"] in (-32602, -32004)


@check.of("errors")
async def a_stream_that_cannot_begin_says_why(caller: Caller) -> None:
    for answers in (await caller.stream("hello", task_id="no-such-task"), await caller.resubscribe("no-such-task")):
        assert [answer["error"]["code"] for answer in answers] == [-32001]


@check.of("card")
async def the_card_shows_it_where_to_post(caller: Caller) -> None:
    async with httpx.AsyncClient(timeout=60) as web:
        client = A2AClient(caller.http, web, fetch_card=True)
        assert client.agent_card["name"] == "Playground"
        # It uses the first interface of the card, regardless of the binding.
        assert texts((await client.send_message(message("echo hello")))["result"]["task"]) == "hello"


async def main() -> bool:
    where = arguments()
    async with httpx.AsyncClient(timeout=60) as web, httpx.AsyncClient(timeout=60) as other:
        named = A2AClient(f"{where.http}/playground", other)
        return await check.run("JSONRPC", Caller(where.http, A2AClient(where.http, web), named))


if __name__ == "__main__":
    finish(asyncio.run(main()))
