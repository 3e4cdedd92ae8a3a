"""Checks of upstream agents behind Dragoman, with all commands of the playground.

The agent is a foreign one, in this process (`Completions` says what it does); the caller speaks A2A 1.0 over REST to
the
Dragoman. Needs nothing but httpx beside Python.
"""

from __future__ import annotations

import asyncio
import base64
import json
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
from checks import Checks

check = Checks()

NOW = {"returnImmediately": True}
OVER = ("COMPLETED", "FAILED", "CANCELED", "REJECTED")


class Front:
    """Client of one agent of the Dragoman server."""

    def __init__(self, web: httpx.AsyncClient, url: str, agent: str, *without: str) -> None:
        """`without`: commands that the agent lacks; `names`: its files have no names and types."""
        self.without = without
        self._web = web
        self._base = f"{url}/{agent}"

    async def ask(self, text: str, configuration: dict[str, Any] | None = None, **message: Any) -> dict[str, Any]:
        """Sends a message and returns the response: `{"task": ...}` or `{"message": ...}`."""
        body = {"message": _message(text, message), "configuration": configuration or {}}
        return await self._value(self._web.post(f"{self._base}/message:send", json=body))

    async def stream(self, text: str, **message: Any) -> list[dict[str, Any]]:
        """Sends a message and returns all events of the stream."""
        async with self.streaming(text, **message) as events:
            return [event async for event in events]

    @asynccontextmanager
    async def streaming(self, text: str, **message: Any) -> AsyncIterator[AsyncIterator[dict[str, Any]]]:
        """Sends a message and yields the stream."""
        body = {"message": _message(text, message)}
        headers = {"Accept": "text/event-stream"}
        async with self._web.stream("POST", f"{self._base}/message:stream", json=body, headers=headers) as response:
            assert response.status_code == 200, await response.aread()

            async def events() -> AsyncIterator[dict[str, Any]]:
                async for line in response.aiter_lines():
                    if line.startswith("data: "):
                        yield json.loads(line.removeprefix("data: "))

            yield events()

    async def get(self, task: str) -> dict[str, Any]:
        return await self._value(self._web.get(f"{self._base}/tasks/{task}"))

    async def cancel(self, task: str) -> dict[str, Any]:
        return await self._value(self._web.post(f"{self._base}/tasks/{task}:cancel"))

    async def until(self, task: str, done: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Polls the task until `done` holds; the timeout of the check limits the wait."""
        while not done(found := await self.get(task)):
            await asyncio.sleep(0.05)
        return found

    async def _value(self, call: Any) -> dict[str, Any]:
        response = await call
        assert response.status_code == 200, f"{response.status_code}: {response.text}"
        return response.json()


def _message(text: str, fields: dict[str, Any]) -> dict[str, Any]:
    return {"messageId": str(uuid.uuid4()), "role": "ROLE_USER", "parts": [{"text": text}], **fields}


def state(task: dict[str, Any]) -> str:
    return task["status"]["state"].removeprefix("TASK_STATE_")


def texts(task: dict[str, Any]) -> str:
    parts = [part for artifact in task.get("artifacts", ()) for part in artifact["parts"]]
    return "".join(part.get("text", "") for part in parts)


def status_text(task: dict[str, Any]) -> str:
    return "".join(part.get("text", "") for part in task["status"].get("message", {}).get("parts", ()))


@check
async def echo(front: Front) -> None:
    task = (await front.ask("echo hello"))["task"]
    assert (state(task), texts(task)) == ("COMPLETED", "hello")


@check
async def what_is_no_command_is_echoed(front: Front) -> None:
    assert texts((await front.ask("good morning"))["task"]) == "good morning"


@check
async def a_stream_comes_as_a_stream(front: Front) -> None:
    events = await front.stream("stream 5 20")
    chunks = [event["artifactUpdate"] for event in events if "artifactUpdate" in event]
    assert [chunk["artifact"]["parts"][0]["text"] for chunk in chunks] == [f"chunk-{n} " for n in range(1, 6)], chunks
    assert [chunk.get("append", False) for chunk in chunks] == [False, True, True, True, True]
    assert events[-1]["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"
    task = await front.get(events[0]["task"]["id"])
    assert texts(task) == "chunk-1 chunk-2 chunk-3 chunk-4 chunk-5 "


@check
async def sleep(front: Front) -> None:
    assert state((await front.ask("sleep 0.2"))["task"]) == "COMPLETED"


@check
async def a_cancel_reaches_the_agent(front: Front) -> None:
    task = (await front.ask("sleep 600", NOW))["task"]["id"]
    await front.until(task, lambda found: "sleeping" in status_text(found))
    await front.cancel(task)
    ended = await front.until(task, lambda found: state(found) in OVER)
    assert (state(ended), status_text(ended)) == ("CANCELED", "canceled, as asked"), ended


@check
async def a_question_is_sent_and_its_answer_received(front: Front) -> None:
    task = (await front.ask("ask"))["task"]
    assert (state(task), status_text(task)) == ("INPUT_REQUIRED", "what would you like to say?")
    answered = (await front.ask("blue", taskId=task["id"]))["task"]
    assert (answered["id"], state(answered), texts(answered)) == (task["id"], "COMPLETED", "you said: blue")


@check
async def a_canceled_question_is_canceled_there_too(front: Front) -> None:
    task = (await front.ask("ask"))["task"]
    assert state(await front.cancel(task["id"])) == "CANCELED"


@check
async def authentication_is_requested(front: Front) -> None:
    if "auth" in front.without:
        return
    task = (await front.ask("auth"))["task"]
    assert (state(task), status_text(task)) == ("AUTH_REQUIRED", "authenticate, then send anything")
    assert texts((await front.ask("done", taskId=task["id"]))["task"]) == "you said: done"


@check
async def a_failure_is_reported(front: Front) -> None:
    task = (await front.ask("fail"))["task"]
    assert (state(task), status_text(task)) == ("FAILED", "failing, as asked")


@check
async def a_rejection_is_reported(front: Front) -> None:
    task = (await front.ask("reject"))["task"]
    assert (state(task), status_text(task)) == ("REJECTED", "rejecting, as asked")


@check
async def a_message_alone_is_an_answer(front: Front) -> None:
    answer = await front.ask("reply hello")
    assert answer["message"]["parts"][0]["text"] == "hello", answer


@check
async def a_file_comes_with_its_name(front: Front) -> None:
    (part,) = (await front.ask("file"))["task"]["artifacts"][0]["parts"]
    if "names" not in front.without:
        assert (part["filename"], part["mediaType"]) == ("hello.txt", "text/plain"), part
    assert base64.b64decode(part["raw"]) == b"hello from the playground\n", part


@check
async def a_binary_file_goes_there_and_back(front: Front) -> None:
    raw = base64.b64encode(bytes(range(256))).decode()
    task = (await front.ask("", parts=[{"raw": raw, "mediaType": "text/plain"}]))["task"]
    assert [part["raw"] for part in task["artifacts"][0]["parts"]] == [raw], task


@check
async def data_comes_as_data(front: Front) -> None:
    (part,) = (await front.ask("data"))["task"]["artifacts"][0]["parts"]
    assert part["data"] == {"hello": "world", "numbers": [1, 2, 3], "nested": {"true": True, "nothing": None}}, part


@check
async def tasks_of_one_conversation_share_one_there(front: Front) -> None:
    first = (await front.ask("context"))["task"]
    second = (await front.ask("context", contextId=first["contextId"]))["task"]
    other = (await front.ask("context"))["task"]
    assert texts(first) == texts(second) != texts(other)
    assert first["contextId"] not in texts(first)
