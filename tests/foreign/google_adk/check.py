"""google-adk 2.13.0: `RemoteA2aAgent` with the address of a card, of a server that was started without options."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from checks import Checks, arguments, finish, started
from google.adk.agents.remote_a2a_agent import RemoteA2aAgent
from google.adk.runners import InMemoryRunner
from google.genai import types

check = Checks("google-adk")
USER = "tester"


class Conversation:
    """One session of ADK, whose only agent is remote."""

    def __init__(self, url: str) -> None:
        agent = RemoteA2aAgent(name="remote", agent_card=f"{url}/.well-known/agent-card.json")
        self._runner = InMemoryRunner(agent=agent, app_name="check")
        self._session = ""

    async def say(self, *parts: types.Part) -> list[Any]:
        """The events that follow a message."""
        if not self._session:
            session = await self._runner.session_service.create_session(app_name="check", user_id=USER)
            self._session = session.id
        message = types.Content(role="user", parts=list(parts))
        run = self._runner.run_async(user_id=USER, session_id=self._session, new_message=message)
        return [event async for event in run]


def texts(events: Sequence[Any]) -> str:
    """The text of the final responses: what programs show, and what ADK keeps in its session."""
    final = [event for event in events if event.is_final_response() and event.content]
    parts = [part for event in final for part in event.content.parts or ()]
    return "".join(part.text for part in parts if part.text and not part.thought)


def text(words: str) -> types.Part:
    return types.Part(text=words)


@check.of("card", "send", "stream")
async def it_reads_the_card_and_calls_the_agent(url: str) -> None:
    events = await Conversation(url).say(text("echo hello"))
    assert not any(event.error_message for event in events), events
    assert texts(events) == "hello", events


@check.of("follow-up")
async def a_session_goes_on_in_the_same_context(url: str) -> None:
    conversation = Conversation(url)
    first = await conversation.say(text("echo one"))
    second = await conversation.say(text("echo two"))
    assert texts(second) == "two", second
    contexts = {
        event.custom_metadata["a2a:context_id"]
        for event in (*first, *second)
        if event.custom_metadata and "a2a:context_id" in event.custom_metadata
    }
    assert len(contexts) == 1, contexts


@check.of("errors")
async def a_failed_task_is_reported(url: str) -> None:
    events = await Conversation(url).say(text("fail"))
    assert texts(events) == "RuntimeError: failing, as asked", events


def main() -> bool:
    with started(arguments().project, lists_grpc=False) as server:
        return asyncio.run(check.run("JSONRPC", server.addresses["http"]))


finish(main())
