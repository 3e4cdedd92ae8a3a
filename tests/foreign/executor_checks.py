"""Checks of executors of any SDK, over JSON-RPC of A2A 1.0.

Needs httpx, which all their environments have.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
from checks import Checks

CHECK_TIMEOUT = 60.0

Json = dict[str, Any]

every = Checks()
of_sdks = Checks()
of_workers = Checks()
of_oldest_workers = Checks()


class Asking:
    """Client of A2A 1.0 over JSON-RPC."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client
        self._count = itertools.count(1)

    def _request(self, method: str, params: Json) -> Json:
        return {"jsonrpc": "2.0", "id": next(self._count), "method": method, "params": params}

    async def call(self, method: str, params: Json) -> Json:
        answer = (await self._client.post("/", json=self._request(method, params))).json()
        assert "result" in answer, answer
        return answer["result"]

    def message(self, text: str, **more: Any) -> Json:
        return {
            "message": {
                "messageId": f"hosted-{next(self._count)}",
                "role": "ROLE_USER",
                "parts": [{"text": text}],
                **more,
            }
        }

    async def send(self, text: str, **more: Any) -> Json:
        return await self.call("SendMessage", self.message(text, **more))

    async def task(self, text: str, **more: Any) -> Json:
        return (await self.send(text, **more))["task"]

    async def start(self, text: str) -> Json:
        request = {**self.message(text), "configuration": {"returnImmediately": True}}
        return (await self.call("SendMessage", request))["task"]

    async def stream(self, text: str) -> list[Json]:
        request = self._request("SendStreamingMessage", self.message(text))
        async with self._client.stream("POST", "/", json=request) as answer:
            lines = [line async for line in answer.aiter_lines()]
        return [json.loads(line.removeprefix("data:"))["result"] for line in lines if line.startswith("data:")]

    async def get(self, task: str) -> Json:
        return await self.call("GetTask", {"id": task})

    async def until(self, task: str, state: str) -> Json:
        async with asyncio.timeout(CHECK_TIMEOUT):
            while (found := await self.get(task))["status"]["state"] != f"TASK_STATE_{state}":
                await asyncio.sleep(0.02)
            return found

    async def until_it_shows(self, task: str, artifact: str) -> None:
        async with asyncio.timeout(CHECK_TIMEOUT):
            while artifact not in texts(await self.get(task)):
                await asyncio.sleep(0.02)

    async def card(self) -> Json:
        return (await self._client.get("/.well-known/agent-card.json")).json()


@asynccontextmanager
async def asking(url: str) -> AsyncIterator[Asking]:
    async with httpx.AsyncClient(base_url=url, headers={"A2A-Version": "1.0"}, timeout=CHECK_TIMEOUT) as client:
        yield Asking(client)


def state(task: Json) -> str:
    return str(task["status"]["state"]).removeprefix("TASK_STATE_")


def status_text(task: Json) -> str:
    """Returns the text of the status."""
    return "".join(part.get("text", "") for part in task["status"].get("message", {}).get("parts", []))


def texts(task: Json) -> dict[str, str]:
    """Returns the text of each artifact, by name; fasta2a 0.2 has no artifact ids."""
    return {
        one.get("name") or one["artifactId"]: "".join(part.get("text", "") for part in one["parts"])
        for one in task.get("artifacts", [])
    }


@every
async def its_card_is_shown(ask: Asking) -> None:
    card = await ask.card()
    assert (card["name"], card["description"], card["version"]) == ("Scripted one", "Does what it is told", "3.2.1")
    (skill,) = card["skills"]
    assert (skill["id"], skill["examples"]) == ("echo", ["echo hello"])


@every
async def it_answers(ask: Asking) -> None:
    task = await ask.task("echo hello")
    assert (state(task), status_text(task), texts(task)) == ("COMPLETED", "done", {"echo": "hello"})


@every
async def parts_of_every_kind_arrive(ask: Asking) -> None:
    (artifact,) = (await ask.task("parts"))["artifacts"]
    data, raw, link = artifact["parts"]
    assert data["data"] == [7]
    assert (raw["raw"], raw["filename"], raw["mediaType"]) == ("AP8=", "two.bin", "application/octet-stream")
    assert link["url"] == "https://files.example/x"


@every
async def the_metadata_that_it_sets_is_the_task_s(ask: Asking) -> None:
    task = await ask.task("label")
    labels = {"model": {"a_name": "small", "list": [1, None]}, "percent": 50}
    assert (state(task), task["metadata"]) == ("COMPLETED", labels)
    assert (await ask.get(task["id"]))["metadata"] == labels


@every
async def it_asks_and_is_answered(ask: Asking) -> None:
    task = await ask.task("ask")
    assert (state(task), status_text(task)) == ("INPUT_REQUIRED", "which one?")
    done = await ask.task("that", taskId=task["id"], contextId=task["contextId"])
    assert (state(done), texts(done)) == ("COMPLETED", {"answer": "after ['ask', 'which one?']: that"})


@every
async def what_it_raises_fails_the_task(ask: Asking) -> None:
    task = await ask.task("fail")
    assert (state(task), status_text(task)) == ("FAILED", "RuntimeError: that was wanted")


@every
async def a_task_that_it_leaves_unfinished_fails(ask: Asking) -> None:
    task = await ask.task("leave")
    assert state(task) == "FAILED"
    assert "returned without a final state" in status_text(task)


@every
async def a_cancel_stops_it(ask: Asking) -> None:
    task = await ask.start("sleep")
    await ask.until_it_shows(task["id"], "begun")
    cancel = {"id": task["id"], "metadata": {"why": "too late"}}
    assert state(await ask.call("CancelTask", cancel)) == "CANCELED"
    events = await ask.get(task["id"])
    assert any(part.get("text") == "cleaned up: too late" for one in events.get("history", []) for part in one["parts"])


@every
async def a_hundred_at_once_are_served(ask: Asking) -> None:
    tasks = await asyncio.gather(*(ask.task(f"echo {number}") for number in range(100)))
    assert [texts(task)["echo"] for task in tasks] == [str(number) for number in range(100)]


@every
async def a_crash_fails_its_task_and_the_next_is_served(ask: Asking) -> None:
    task = await ask.start("sleep")
    await ask.until_it_shows(task["id"], "begun")
    died = await ask.task("die")
    assert state(died) == "FAILED"
    assert status_text(died).startswith("INTERRUPTED")
    assert state(await ask.until(task["id"], "FAILED")) == "FAILED"
    assert texts(await ask.task("echo again")) == {"echo": "again"}


@of_sdks
async def its_events_are_streamed_in_order(ask: Asking) -> None:
    events = await ask.stream("stream 50")
    pieces = [one["artifactUpdate"] for one in events if "artifactUpdate" in one]
    assert [piece["artifact"]["parts"][0]["text"] for piece in pieces] == [*(f"{n} " for n in range(50)), "end"]
    assert [piece.get("append", False) for piece in pieces] == [False] + [True] * 50
    assert [piece.get("lastChunk", False) for piece in pieces] == [False] * 50 + [True]
    states = [one["statusUpdate"]["status"]["state"] for one in events if "statusUpdate" in one]
    assert states == ["TASK_STATE_WORKING", "TASK_STATE_COMPLETED"]


@of_sdks
async def it_may_answer_with_a_message(ask: Asking) -> None:
    answer = await ask.send("message hello")
    assert answer["message"]["parts"] == [{"text": "a message: hello"}]


@of_sdks
async def it_may_wait_for_credentials(ask: Asking) -> None:
    task = await ask.task("auth")
    assert (state(task), status_text(task)) == ("AUTH_REQUIRED", "log in first")


@of_sdks
async def it_receives_the_caller(ask: Asking) -> None:
    assert texts(await ask.task("who"))["who"].startswith("False")


@of_workers
async def its_conversations_are_kept(ask: Asking) -> None:
    first = await ask.task("echo one")
    then = await ask.task("echo two", contextId=first["contextId"])
    assert texts(await ask.task("words", contextId=then["contextId"])) == {"words": "echo echo"}


@of_workers
async def what_it_reports_on_the_way_is_streamed_in_order(ask: Asking) -> None:
    events = await ask.stream("stream 20")
    shown = [part["text"] for one in events for part in _parts(one) if part.get("text", "").strip().isdecimal()]
    assert shown == [f"{number} " for number in range(20)]
    task = events[0]["task"]["id"]
    assert texts(await ask.get(task)) == {"output": "".join(f"{number} " for number in range(20)) + "end"}


@of_workers
@of_oldest_workers
async def its_last_message_is_in_the_history(ask: Asking) -> None:
    task = await ask.task("echo hello")
    history = [(one["role"], [part["text"] for part in one["parts"]]) for one in task["history"]]
    assert history == [("ROLE_USER", ["echo hello"]), ("ROLE_AGENT", ["done"])]
    assert status_text(task) == "done"


@of_oldest_workers
async def its_session_is_the_context(ask: Asking) -> None:
    first = await ask.task("session")
    then = await ask.task("session", contextId=first["contextId"])
    assert texts(first) == texts(then) == {"session": first["contextId"]}


@of_oldest_workers
async def artifacts_of_one_index_are_kept_and_chunks_are_appended(ask: Asking) -> None:
    assert texts(await ask.task("two")) == {"first": "one", "second": "two"}
    events = await ask.stream("stream 3")
    pieces = [one["artifactUpdate"] for one in events if "artifactUpdate" in one]
    shown = [(one["artifact"]["parts"][0]["text"], one.get("append", False), one["lastChunk"]) for one in pieces[-1:]]
    assert shown == [("end", True, True)]
    assert texts(await ask.get(events[0]["task"]["id"])) == {"output": "0 1 2 end"}


@of_oldest_workers
async def artifacts_of_a_later_turn_replace_none(ask: Asking) -> None:
    waiting = await ask.task("ask")
    done = await ask.task("that", taskId=waiting["id"], contextId=waiting["contextId"])
    assert [one["artifactId"] for one in done["artifacts"]] == ["0-2"]


def _parts(event: Json) -> list[Json]:
    if "artifactUpdate" in event:
        return list(event["artifactUpdate"]["artifact"]["parts"])
    return list(event.get("statusUpdate", {}).get("status", {}).get("message", {}).get("parts", []))
