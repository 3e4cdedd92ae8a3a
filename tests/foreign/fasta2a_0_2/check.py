"""fasta2a 0.2: A2A 0.1 over JSON-RPC. Its client has tasks/send and tasks/get, its types the rest."""

from __future__ import annotations

import asyncio
import base64
import sys
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
from fasta2a import schema
from fasta2a.client import A2AClient, send_task_response_ta
from fasta2a.schema import CancelTaskResponse, SendTaskStreamingRequest, SendTaskStreamingResponse, a2a_request_ta
from pydantic import TypeAdapter

sys.path.insert(0, str(Path(__file__).parents[1]))
from checks import Checks, arguments, finish
from fasta2a_client import call, check_deliveries, stream, until
from hook import hook

check = Checks("fasta2a")

canceled_ta = TypeAdapter(CancelTaskResponse)
delivery_ta = TypeAdapter(schema.Task)

PUSH: dict[str, TypeAdapter[Any]] = {
    "set": TypeAdapter(schema.SetTaskPushNotificationResponse),
    "get": TypeAdapter(schema.GetTaskPushNotificationResponse),
}
streaming_request_ta = TypeAdapter(SendTaskStreamingRequest)
streaming_response_ta = TypeAdapter(SendTaskStreamingResponse)


class Caller:
    """The package's client, and calls with its types for other methods."""

    def __init__(self, client: A2AClient, named: A2AClient) -> None:
        self.client = client
        self.named = named

    async def send(self, text: str, *parts: dict[str, Any]) -> Any:
        """Creates a task: this client chooses the id."""
        return await self.client.send_task(message(text, *parts))

    async def task(self, text: str, *parts: dict[str, Any]) -> Any:
        return (await self.send(text, *parts))["result"]

    async def send_as(self, task: str, text: str) -> Any:
        params = {"id": task, "message": message(text)}
        return await call(self.client, "tasks/send", params, a2a_request_ta, send_task_response_ta)

    async def get(self, task: str) -> Any:
        return await self.client.get_task(task)

    async def cancel(self, task: str) -> Any:
        return await call(self.client, "tasks/cancel", {"id": task}, a2a_request_ta, canceled_ta)

    async def push(self, verb: str, params: dict[str, Any]) -> Any:
        """Makes a call for webhooks and returns its result."""
        answers = PUSH[verb]
        response = await call(self.client, f"tasks/pushNotification/{verb}", params, a2a_request_ta, answers)
        return response["result"]

    async def stream(self, task: str, text: str) -> list[Any]:
        params = {"id": task, "message": message(text)}
        found = stream(self.client, "tasks/sendSubscribe", params, streaming_request_ta, streaming_response_ta)
        return [answer["result"] async for answer in found]

    async def resubscribe(self, task: str) -> list[Any]:
        found = stream(self.client, "tasks/resubscribe", {"id": task}, a2a_request_ta, streaming_response_ta)
        return [answer["result"] async for answer in found]


def message(text: str, *parts: dict[str, Any]) -> Any:
    return {"role": "user", "parts": list(parts) or [{"type": "text", "text": text}]}


def texts(task: Any) -> str:
    return "".join(part["text"] for artifact in task.get("artifacts", ()) for part in artifact["parts"])


def chunks(events: list[Any]) -> list[str]:
    return [event["artifact"]["parts"][0]["text"] for event in events if "artifact" in event]


@check.of("send")
async def a_send_gives_the_finished_task(caller: Caller) -> None:
    answer = await caller.send("echo hello")
    assert answer["id"] is None, "its requests have no id, and are no notifications"
    task = answer["result"]
    assert task["status"]["state"] == "completed"
    assert texts(task) == "hello"
    assert [artifact["index"] for artifact in task["artifacts"]] == [0]
    assert task["history"][0] == message("echo hello")


@check.of("send")
async def an_agent_is_called_by_its_name_too(caller: Caller) -> None:
    answer = await caller.named.send_task(message("echo hello"))  # posts to /playground/
    assert texts(answer["result"]) == "hello"
    assert (await caller.named.get_task(answer["result"]["id"]))["result"]["status"]["state"] == "completed"


@check.of("get")
async def a_task_is_got_as_it_was_sent(caller: Caller) -> None:
    task = await caller.task("stream 3")
    assert (await caller.get(task["id"]))["result"] == task
    assert texts(task) == "chunk-1 chunk-2 chunk-3 "


@check.of("send")
async def ways_to_end_have_words_that_0_1_knows(caller: Caller) -> None:
    states = [(await caller.task(text))["status"]["state"] for text in ("fail", "reject", "ask", "auth")]
    assert states == ["failed", "failed", "input-required", "input-required"]


@check.of("send")
async def a_direct_reply_is_a_task_all_the_same(caller: Caller) -> None:
    task = await caller.task("reply hi")
    assert task["status"]["state"] == "completed"
    assert task["status"]["message"]["parts"][0]["text"] == "hi"


@check.of("send")
async def data_goes_there_and_back(caller: Caller) -> None:
    given = {"numbers": [1, 2.5], "nested": {"yes": True, "nothing": None}}
    task = await caller.task("", {"type": "data", "data": given})
    assert task["artifacts"][0]["parts"][0]["data"] == given
    assert (await caller.task("data"))["artifacts"][0]["parts"][0]["data"]


@check.of("send")
async def files_go_there_and_back_in_its_own_spelling(caller: Caller) -> None:
    file = (await caller.task("file"))["artifacts"][0]["parts"][0]["file"]
    assert (file["name"], file["mime_type"]) == ("hello.txt", "text/plain")
    assert base64.b64decode(file["data"]).startswith(b"hello")
    given = {"name": "x.bin", "mime_type": "application/octet-stream", "data": base64.b64encode(b"\x00\x01").decode()}
    task = await caller.task("", {"type": "file", "file": given})
    assert task["artifacts"][0]["parts"][0]["file"] == given


@check.of("follow-up")
async def the_same_id_again_is_a_follow_up(caller: Caller) -> None:
    task = str(uuid4())
    response = (await caller.send_as(task, "ask"))["result"]
    assert (response["id"], response["status"]["state"]) == (task, "input-required")
    assert response["status"]["message"]["parts"][0]["text"]
    done = (await caller.send_as(task, "blue"))["result"]
    assert (done["id"], done["session_id"], texts(done)) == (task, response["session_id"], "you said: blue")


@check.of("cancel")
async def a_task_is_canceled_and_its_sender_hears_of_it(caller: Caller) -> None:
    task = str(uuid4())
    sending = asyncio.create_task(caller.send_as(task, "sleep 30"))
    await until(lambda: caller.get(task), "working")
    assert (await caller.cancel(task))["result"]["status"]["state"] == "canceled"
    assert (await sending)["result"]["status"]["state"] == "canceled"


@check.of("stream")
async def a_stream_shows_every_chunk_in_order(caller: Caller) -> None:
    task = str(uuid4())
    events = await caller.stream(task, "stream 5 5")
    assert {event["id"] for event in events} == {task}
    assert chunks(events) == [f"chunk-{number} " for number in range(1, 6)]
    found = [event["artifact"] for event in events if "artifact" in event]
    assert [artifact["index"] for artifact in found] == [0] * 5
    assert [artifact.get("append", False) for artifact in found] == [False, True, True, True, True]
    assert events[-1]["status"]["state"] == "completed"
    assert [event["final"] for event in events if "status" in event][-2:] == [False, True]


@check.of("stream")
async def a_streamed_question_is_the_final_event(caller: Caller) -> None:
    last = (await caller.stream(str(uuid4()), "ask"))[-1]
    assert (last["status"]["state"], last["final"]) == ("input-required", True)


@check.of("subscribe")
async def a_resubscription_shows_the_rest(caller: Caller) -> None:
    task = str(uuid4())
    sending = asyncio.create_task(caller.send_as(task, "stream 20 40"))
    await until(lambda: caller.get(task), "working")
    events = await caller.resubscribe(task)
    assert "".join(chunks(events)) == "".join(f"chunk-{number} " for number in range(1, 21))
    assert (events[-1]["status"]["state"], events[-1]["final"]) == ("completed", True)
    assert (await sending)["result"]["status"]["state"] == "completed"


@check.of("push configs")
async def a_webhook_is_kept_and_replaced(caller: Caller) -> None:
    task = (await caller.task("ask"))["id"]
    for url in ("https://one.example/hook", "https://two.example/hook"):
        params = {"id": task, "push_notification_config": {"url": url, "token": "t0ken"}}
        assert await caller.push("set", params) == params
        assert await caller.push("get", {"id": task}) == params


@check.of("push")
async def a_receiver_gets_the_task_as_its_state_changes(caller: Caller) -> None:
    with hook() as there:
        push = {"url": there.url, "token": "t0ken"}
        params = {"id": str(uuid4()), "message": message("echo hello"), "push_notification": push}
        await call(caller.client, "tasks/send", params, a2a_request_ta, send_task_response_ta)
        deliveries = await there.until(lambda body: body["status"]["state"] == "completed")
        received = [delivery_ta.validate_python(body) for _, body in deliveries]
        assert {one["id"] for one in received} == {params["id"]}
        assert (received[0]["status"]["state"], texts(received[-1])) == ("submitted", "hello")
        check_deliveries(deliveries)


@check.of("push")
async def a_receiver_gets_what_comes_after_it_was_registered(caller: Caller) -> None:
    with hook() as there:
        task = (await caller.task("ask"))["id"]
        await caller.push("set", {"id": task, "push_notification_config": {"url": there.url}})
        await caller.send_as(task, "blue")
        deliveries = await there.until(lambda body: body["status"]["state"] == "completed")
        assert [body["status"]["state"] for _, body in deliveries] == ["working", "completed"]


@check.of("errors")
async def an_unknown_task_is_not_found_in_so_many_words(caller: Caller) -> None:
    for answer in (await caller.get("no-such-task"), await caller.cancel("no-such-task")):
        # Its types accept only these values.
        assert (answer["error"]["code"], answer["error"]["message"]) == (-32001, "Task not found")


@check.of("errors")
async def a_task_that_has_ended_is_not_canceled_in_so_many_words(caller: Caller) -> None:
    task = (await caller.task("hello"))["id"]
    answer = await caller.cancel(task)
    assert (answer["error"]["code"], answer["error"]["message"]) == (-32002, "Task not cancelable")


@check.of("follow-up")
async def other_content_restarts_a_task_that_has_ended(caller: Caller) -> None:
    done = await caller.task("hello")
    again = (await caller.send_as(done["id"], "more"))["result"]
    assert (again["id"], again["status"]["state"]) == (done["id"], "completed")
    assert again["artifacts"] != done["artifacts"]


@check.of("errors")
async def bad_messages_are_distinguished(caller: Caller) -> None:
    empty = await caller.client.send_task({"role": "user", "parts": []})
    assert (empty["error"]["code"], empty["error"]["message"]) == (-32602, "Invalid parameters")
    odd = {"mime_type": "application/x-unsupported", "data": "AAAA"}
    assert (await caller.send("", {"type": "file", "file": odd}))["error"]["code"] == -32005


async def main() -> bool:
    where = arguments()
    async with httpx.AsyncClient(timeout=60) as web, httpx.AsyncClient(timeout=60) as other:
        caller = Caller(A2AClient(where.http, web), A2AClient(f"{where.http}/playground", other))
        return await check.run("JSONRPC", caller)


if __name__ == "__main__":
    finish(asyncio.run(main()))
