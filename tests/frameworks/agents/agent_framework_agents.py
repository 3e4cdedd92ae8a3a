"""The agents of the contract suite, in the Microsoft Agent Framework, with a model that follows a script."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from agent_framework import Agent, BaseChatClient, ChatResponseUpdate, Content, FunctionInvocationLayer, tool
from pydantic import BaseModel


class ScriptedClient(FunctionInvocationLayer, BaseChatClient):
    """The model: it does what the last prompt says, and answers with what tools have returned."""

    def _inner_get_response(self, *, messages: Any, stream: bool, options: Any, **_: Any) -> Any:
        return self._build_response_stream(self.updates(messages), response_format=options.get("response_format"))

    async def updates(self, messages: Any) -> AsyncIterator[ChatResponseUpdate]:
        async for piece in self.pieces(messages):
            content = Content.from_text(piece) if isinstance(piece, str) else piece
            yield ChatResponseUpdate(role="assistant", contents=[content], message_id="message")
        usage = Content.from_usage({"input_token_count": 10, "output_token_count": 5, "total_token_count": 15})
        yield ChatResponseUpdate(role="assistant", contents=[usage], message_id="message")

    async def pieces(self, messages: Any) -> AsyncIterator[Any]:
        prompts = [one for one in messages if one.role == "user" and one.text]
        text = prompts[-1].text
        results = [content for content in messages[-1].contents if content.type == "function_result"]
        if results:
            yield f"the tool returned {results[0].result}"
        elif text.startswith("stream"):
            for number in range(3):
                yield f"chunk {number}\n"
                await asyncio.sleep(0.01)
            # As the client of OpenAI's Responses does, which repeats what it has streamed.
            yield Content.from_text("chunk 0\nchunk 1\nchunk 2\n", merge_mode="replace")
        elif text.startswith("tool"):
            for arguments in ('{"number"', ": 21}"):
                yield Content.from_function_call("call-1", "double", arguments=arguments, merge_mode="append")
            yield Content.from_function_call("call-1", "double", arguments='{"number": 21}', merge_mode="replace")
        elif text.startswith("delete"):
            yield Content.from_function_call("call-2", "delete", arguments={"name": "all.txt"})
        elif text.startswith("fail"):
            raise ConnectionError("the model is away")
        elif text.startswith("hang"):
            Path("hanging").touch()
            try:
                await asyncio.Event().wait()
            finally:
                Path("stopped").touch()
        elif text.startswith("remember"):
            yield "noted"
        elif text.startswith("recall"):
            yield " and ".join(one.text for one in prompts[:-1])
        elif text.startswith("file"):
            heads = [one.uri.removeprefix("data:").partition(";base64,") for one in prompts[-1].contents if one.uri]
            yield ", ".join(f"{len(data) * 3 // 4 - data.count('=')} bytes of {kind}" for kind, _, data in heads)
        else:
            yield f"you said: {text}"


@tool(approval_mode="never_require")
def double(number: int) -> int:
    """Doubles a number."""
    return 2 * number


@tool(approval_mode="always_require")
def delete(name: str) -> str:
    """Deletes a file."""
    Path("deleted").write_text(name)
    return f"{name} is deleted"


assistant = Agent(ScriptedClient(), name="Assistant", description="Follows a script", tools=[double, delete])


class City(BaseModel):
    name: str
    people: int


class Extractor(ScriptedClient):
    async def pieces(self, messages: Any) -> AsyncIterator[Any]:
        yield '{"name": "Rome", "people": 2800000}'


structured = Agent(Extractor(), name="Structured", default_options={"response_format": City})
"""Returns structured data."""
