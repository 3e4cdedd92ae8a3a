"""What MCP gave to one principal, used by another: each name is as unknown as one that never existed (G7)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tests.callers import named
from tests.extensions.mcp.endpoint.mcp_client import FORMS, STATELESS, TASKS, McpCaller, asker
from tests.extensions.mcp.endpoint.mcp_client import serving as serving_mcp
from tests.isolation.mcp_calls import HANDSHAKE, expanded
from tests.isolation.names import settled
from tests.isolation.victim import rows_of

from dragoman.core.names import task_id_of, task_key_of
from dragoman.extensions.mcp.endpoint.tool_call import ElicitationId, ResumePoint

pytestmark = pytest.mark.long

VICTIM = named("alice")
STRANGER = named("mallory")


@dataclass(frozen=True)
class McpNames:
    """All that the server told the caller of one waiting call."""

    handle: str
    request_state: str
    event_id: str
    session: str
    key: str
    """Of the open question."""

    @property
    def phantom(self) -> McpNames:
        """Names of the same form, of a call that never was."""
        agent, _, task = self.handle.partition("/")
        key = task_key_of(task)
        assert key is not None
        other = task_id_of(key[:9] + bytes(255 - byte for byte in key[9:]))
        question, point = ElicitationId.parse(self.request_state), ResumePoint.parse(self.event_id)
        return replace(
            self,
            handle=f"{agent}/{other}",
            request_state=str(replace(question, task_id=other)),
            event_id=str(replace(point, task_id=other)),
        )

    def cleaned(self, text: str) -> str:
        """The text with the id of the task replaced by a placeholder."""
        return settled(text.replace(self.handle.partition("/")[2], "<task>"))


@asynccontextmanager
async def victim_and_stranger(folder: Path) -> AsyncIterator[tuple[McpNames, Callable[..., McpCaller]]]:
    """A server where one principal has a call that asks; the names of the call, and callers for the other."""
    store = f"sqlite:///{folder}/tasks.db"
    async with serving_mcp(asker, store=store, api_keys=True) as app, aiohttp.ClientSession() as session:
        url = f"{app.http.url}/mcp"
        victim = McpCaller(session, url, HANDSHAKE, headers=VICTIM)
        await victim.initialize(FORMS)
        params = {"name": "asker", "arguments": {"message": "x"}}
        async with victim.stream("tools/call", params, {"progressToken": 1}) as events:
            async for event in events:
                message = json.loads(event.data) if event.data else {}
                if message.get("method") == "elicitation/create":
                    break
        question = ElicitationId.parse(message["id"])
        names = McpNames(
            f"{question.tenant}/{question.task_id}",
            message["id"],
            event.id,
            victim.headers["Mcp-Session-Id"],
            question.key,
        )

        def caller(version: str, capabilities: Mapping[str, Any] | None = None) -> McpCaller:
            headers = STRANGER if version == STATELESS else {**STRANGER, "Mcp-Session-Id": names.session}
            return McpCaller(session, url, version, capabilities, headers)

        yield names, caller


ANSWER = {"action": "accept", "content": {"answer": "large"}}

Attack = Callable[[Callable[..., McpCaller], McpNames], Any]


async def retry(caller: Callable[..., McpCaller], names: McpNames) -> Any:
    params = {"name": "asker", "arguments": {"message": "x"}, "requestState": names.request_state}
    return await caller(STATELESS, FORMS).request("tools/call", {**params, "inputResponses": {names.key: ANSWER}})


async def respond(caller: Callable[..., McpCaller], names: McpNames) -> Any:
    one = caller(HANDSHAKE)
    return await one.post({"jsonrpc": "2.0", "id": names.request_state, "result": ANSWER}, one.headers)


async def resume(caller: Callable[..., McpCaller], names: McpNames) -> Any:
    return await caller(HANDSHAKE).resume(names.event_id)


async def update(caller: Callable[..., McpCaller], names: McpNames) -> Any:
    params = {"taskId": names.handle, "inputResponses": {names.key: ANSWER}}
    return await caller(STATELESS, TASKS).request("tasks/update", params)


async def answer(caller: Callable[..., McpCaller], names: McpNames) -> Any:
    return await caller(HANDSHAKE).call("answer_task", task=names.handle, answer="large")


async def cancel_request(caller: Callable[..., McpCaller], names: McpNames) -> Any:
    """Cancels the victim's request, within the victim's session."""
    one = caller(HANDSHAKE)
    body = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 2}}
    return await one.post(body, one.headers)


@pytest.mark.parametrize("attack", [retry, respond, resume, update, answer, cancel_request])
async def test_the_names_of_another_principals_call_are_unknown(tmp_path: Path, attack: Attack) -> None:
    async with victim_and_stranger(tmp_path) as (names, caller):
        before = kept_rows(tmp_path)
        answers = [await attack(caller, one) for one in (names, names.phantom)]
        real, unreal = (
            one.cleaned(expanded(f"{answer.status} {answer.text} {answer.messages} {answer.ids}"))
            for one, answer in zip((names, names.phantom), answers, strict=True)
        )
        assert real == unreal
        assert names.key not in real
        assert "Which size" not in real
        assert kept_rows(tmp_path) == before


async def test_the_victim_itself_may_answer(tmp_path: Path) -> None:
    async with victim_and_stranger(tmp_path) as (names, caller):
        one = caller(HANDSHAKE)
        one.headers |= VICTIM
        before = kept_rows(tmp_path)
        body = {"jsonrpc": "2.0", "id": names.request_state, "result": ANSWER}
        assert (await one.post(body, one.headers)).status == 202
        assert kept_rows(tmp_path) != before


async def test_a_listener_gets_no_notification_of_another_principals_task(tmp_path: Path) -> None:
    async with victim_and_stranger(tmp_path) as (names, caller):
        stranger, victim = caller(STATELESS, TASKS), caller(STATELESS, TASKS)
        victim.headers = dict(VICTIM)
        params = {"notifications": {"taskIds": [names.handle]}}
        async with stranger.stream("subscriptions/listen", params) as events:
            acknowledged = json.loads((await anext(events)).data)
            await victim.request("tasks/cancel", {"taskId": names.handle})
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.3):
                    await anext(events)
        assert acknowledged["params"]["notifications"] == {"taskIds": []}


def kept_rows(folder: Path) -> Mapping[str, Any]:
    """All rows of the victim."""
    return rows_of(folder / "tasks.db", "alice")
