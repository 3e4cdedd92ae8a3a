"""fasta2a 0.6: A2A 0.3 over JSON-RPC. Its client has message/send and tasks/get, its types the rest."""

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
    a2a_request_ta,
    agent_card_ta,
    stream_message_request_ta,
    stream_message_response_ta,
)
from pydantic import TypeAdapter

sys.path.insert(0, str(Path(__file__).parents[1]))
from checks import Checks, arguments, finish, wait_until_received
from fasta2a_client import call, check_deliveries, stream, until
from hook import hook

check = Checks("fasta2a")

canceled_ta = TypeAdapter(CancelTaskResponse)
delivery_ta = TypeAdapter(schema.Task)

PUSH: dict[str, tuple[str, Any]] = {
    "set": ("tasks/pushNotification/set", schema.SetTaskPushNotificationResponse),
    "get": ("tasks/pushNotification/get", schema.GetTaskPushNotificationResponse),
    # It has no types for the responses to these two.
    "list": ("tasks/pushNotificationConfig/list", dict[str, Any]),
    "delete": ("tasks/pushNotificationConfig/delete", dict[str, Any]),
}


class Caller:
    """The package's client, and calls with its types for other methods."""

    def __init__(self, client: A2AClient, named: A2AClient) -> None:
        self.client = client
        self.named = named

    async def send(self, text: str, *parts: dict[str, Any], **fields: Any) -> Any:
        return await self.client.send_message(message(text, *parts, **fields))

    async def result(self, text: str, *parts: dict[str, Any], **fields: Any) -> Any:
        return (await self.send(text, *parts, **fields))["result"]

    async def start(self, text: str) -> Any:
        configuration = {"accepted_output_modes": ["text/plain"], "blocking": False}
        return (await self.client.send_message(message(text), configuration=configuration))["result"]

    async def get(self, task: str) -> Any:
        return await self.client.get_task(task)

    async def cancel(self, task: str) -> Any:
        return await call(self.client, "tasks/cancel", {"id": task}, a2a_request_ta, canceled_ta)

    async def push(self, verb: str, params: dict[str, Any]) -> Any:
        """Makes a call for webhooks and returns its result."""
        method, answers = PUSH[verb]
        return (await call(self.client, method, params, a2a_request_ta, TypeAdapter(answers)))["result"]

    async def stream(self, text: str, **fields: Any) -> list[Any]:
        params = {"message": message(text, **fields)}
        asks, answers = stream_message_request_ta, stream_message_response_ta
        return [answer async for answer in stream(self.client, "message/stream", params, asks, answers)]

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
    content = list(parts) or [{"kind": "text", "text": text}]
    return {"role": "user", "parts": content, "kind": "message", "message_id": "m-1", **fields}


def texts(task: Any) -> str:
    return "".join(part["text"] for artifact in task.get("artifacts", ()) for part in artifact["parts"])


def chunks(results: list[Any]) -> list[str]:
    return [one["artifact"]["parts"][0]["text"] for one in results if one["kind"] == "artifact-update"]


@check.of("send")
async def a_send_gives_the_finished_task(caller: Caller) -> None:
    task = await caller.result("echo hello")
    assert (task["kind"], task["status"]["state"], texts(task)) == ("task", "completed", "hello")
    assert task["history"][0]["parts"] == [{"kind": "text", "text": "echo hello"}]


@check.of("send")
async def an_agent_is_called_by_its_name_too(caller: Caller) -> None:
    answer = await caller.named.send_message(message("echo hello"))  # posts to /playground/
    assert texts(answer["result"]) == "hello"


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
    states = [(await caller.result(text))["status"]["state"] for text in ("fail", "reject", "ask", "auth")]
    assert states == ["failed", "rejected", "input-required", "auth-required"]


@check.of("send")
async def a_direct_reply_is_a_message(caller: Caller) -> None:
    reply = await caller.result("reply hi")
    assert (reply["kind"], reply["role"], reply["parts"][0]["text"]) == ("message", "agent", "hi")


@check.of("send")
async def data_goes_there_and_back(caller: Caller) -> None:
    given = {"numbers": [1, 2.5], "nested": {"yes": True, "nothing": None}}
    task = await caller.result("", {"kind": "data", "data": given})
    assert task["artifacts"][0]["parts"][0]["data"] == given


@check.of("send")
async def files_go_there_and_back(caller: Caller) -> None:
    file = (await caller.result("file"))["artifacts"][0]["parts"][0]["file"]
    assert file["mime_type"] == "text/plain"
    assert base64.b64decode(file["bytes"]).startswith(b"hello")
    given = {"mime_type": "application/octet-stream", "bytes": base64.b64encode(b"\x00\x01").decode()}
    task = await caller.result("", {"kind": "file", "file": given})
    assert task["artifacts"][0]["parts"][0]["file"] == given


@check.of("follow-up")
async def a_follow_up_needs_only_the_task_every_time(caller: Caller) -> None:
    for question in ("ask", "auth"):
        task = await caller.result(question)
        done = await caller.result("blue", task_id=task["id"])
        assert (done["id"], done["context_id"]) == (task["id"], task["context_id"])
        assert texts(done) == "you said: blue"


@check.of("cancel", "subscribe")
async def a_task_is_canceled_and_its_followers_hear_of_it(caller: Caller) -> None:
    task = (await caller.start("sleep 30"))["id"]
    begun = asyncio.Event()
    following = asyncio.create_task(caller.resubscribe(task, begun))
    await wait_until_received(following, begun)
    assert (await caller.cancel(task))["result"]["status"]["state"] == "canceled"
    last = (await following)[-1]["result"]
    assert (last["kind"], last["status"]["state"], last["final"]) == ("status-update", "canceled", True)


@check.of("stream")
async def a_stream_shows_every_chunk_in_order(caller: Caller) -> None:
    results = [answer["result"] for answer in await caller.stream("stream 5 5")]
    assert chunks(results) == [f"chunk-{number} " for number in range(1, 6)]
    assert (results[-1]["status"]["state"], results[-1]["final"]) == ("completed", True)
    assert texts((await caller.get(results[-1]["task_id"]))["result"]) == "chunk-1 chunk-2 chunk-3 chunk-4 chunk-5 "


@check.of("stream")
async def a_streamed_question_is_the_final_event(caller: Caller) -> None:
    last = (await caller.stream("ask"))[-1]["result"]
    assert (last["status"]["state"], last["final"]) == ("input-required", True)


@check.of("errors")
async def an_unknown_task_is_not_found_in_so_many_words(caller: Caller) -> None:
    for answer in (await caller.get("no-such-task"), await caller.cancel("no-such-task")):
        # Its types accept only these values.
        assert (answer["error"]["code"], answer["error"]["message"]) == (-32001, "Task not found")


@check.of("push configs")
async def a_webhook_is_kept_listed_and_deleted(caller: Caller) -> None:
    task = (await caller.result("ask"))["id"]
    shown = await caller.push("set", {"id": task, "push_notification_config": webhook("https://one.example/hook")})
    assert shown["id"] == task
    kept = {"id": "c", "url": "https://one.example/hook", "authentication": {"schemes": ["Bearer"]}}
    assert shown["push_notification_config"] == kept
    assert (await caller.push("get", {"id": task}))["push_notification_config"] == kept
    (listed,) = await caller.push("list", {"id": task})
    assert listed["pushNotificationConfig"]["id"] == "c"
    for _ in range(2):
        assert await caller.push("delete", {"id": task, "push_notification_config_id": "c"}) is None
    assert await caller.push("list", {"id": task}) == []


@check.of("push")
async def a_receiver_gets_the_task_as_its_state_changes(caller: Caller) -> None:
    with hook() as there:
        configuration = {"accepted_output_modes": [], "push_notification_config": webhook(there.url)}
        answer = await caller.client.send_message(message("echo hello"), configuration=configuration)
        deliveries = await there.until(lambda body: body["status"]["state"] == "completed")
        received = [delivery_ta.validate_python(body) for _, body in deliveries]
        assert {one["id"] for one in received} == {answer["result"]["id"]}
        assert (received[0]["status"]["state"], texts(received[-1])) == ("submitted", "hello")
        check_deliveries(deliveries)


@check.of("push")
async def a_receiver_gets_what_comes_after_it_was_registered(caller: Caller) -> None:
    with hook() as there:
        task = (await caller.result("ask"))["id"]
        await caller.push("set", {"id": task, "push_notification_config": webhook(there.url)})
        await caller.result("blue", task_id=task)
        deliveries = await there.until(lambda body: body["status"]["state"] == "completed")
        assert [body["kind"] for _, body in deliveries] == ["task", "task"]


def webhook(url: str) -> dict[str, Any]:
    return {"id": "c", "url": url, "authentication": {"schemes": ["Bearer"], "credentials": "s3cret"}}


@check.of("errors")
async def a_task_that_has_ended_is_not_canceled_in_so_many_words(caller: Caller) -> None:
    task = (await caller.result("hello"))["id"]
    answer = await caller.cancel(task)
    assert (answer["error"]["code"], answer["error"]["message"]) == (-32002, "Task not cancelable")


@check.of("errors")
async def bad_messages_are_distinguished(caller: Caller) -> None:
    empty = await caller.client.send_message({**message(""), "parts": []})
    assert (empty["error"]["code"], empty["error"]["message"]) == (-32602, "Invalid parameters")
    odd = {"mime_type": "application/x-unsupported", "bytes": "AAAA"}
    assert (await caller.send("", {"kind": "file", "file": odd}))["error"]["code"] == -32005
    done = await caller.result("hello")
    assert (await caller.send("more", task_id=done["id"]))["error"]["code"] == -32602


@check.of("errors")
async def a_stream_that_cannot_begin_says_why(caller: Caller) -> None:
    for answers in (await caller.stream("hello", task_id="no-such-task"), await caller.resubscribe("no-such-task")):
        assert [answer["error"]["code"] for answer in answers] == [-32001]


@check
async def the_card_has_what_its_type_asks_for(caller: Caller) -> None:
    # Its client reads no card, so the table has no row for it.
    found = await caller.client.http_client.get("/.well-known/agent-card.json")
    assert agent_card_ta.validate_json(found.content)["name"] == "Playground"


async def main() -> bool:
    where = arguments()
    async with httpx.AsyncClient(timeout=60) as web, httpx.AsyncClient(timeout=60) as other:
        caller = Caller(A2AClient(where.http, web), A2AClient(f"{where.http}/playground", other))
        return await check.run("JSONRPC", caller)


if __name__ == "__main__":
    finish(asyncio.run(main()))
