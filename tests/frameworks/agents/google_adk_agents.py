"""The agents of the contract suite, in Google's ADK, with a model that follows a script."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import Any

from fastapi.openapi.models import OAuth2, OAuthFlowAuthorizationCode, OAuthFlows
from google.adk.agents import LlmAgent
from google.adk.auth.auth_credential import AuthCredential, AuthCredentialTypes, OAuth2Auth
from google.adk.auth.auth_tool import AuthConfig
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_response import LlmResponse
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.tool_context import ToolContext
from google.genai import types
from pydantic import BaseModel


def text_of(content: Any) -> str:
    return "".join(part.text for part in content.parts or [] if part.text)


class ScriptedModel(BaseLlm):
    """The model: it does what the last prompt says, and answers with what tools have returned."""

    model: str = "scripted"

    async def generate_content_async(self, llm_request: Any, stream: bool = False) -> AsyncGenerator[LlmResponse, None]:
        parts: list[types.Part] = []
        text = ""
        async for piece in self.pieces(llm_request.contents):
            if isinstance(piece, str):
                text += piece
                content = types.Content(role="model", parts=[types.Part(text=piece)])
                yield LlmResponse(content=content, partial=True)
            else:
                parts.append(types.Part(function_call=piece))
        if text:
            parts.append(types.Part(text=text))
        usage = types.GenerateContentResponseUsageMetadata(total_token_count=15)
        yield LlmResponse(content=types.Content(role="model", parts=parts), usage_metadata=usage)

    async def pieces(self, contents: list[Any]) -> AsyncIterator[Any]:
        prompts = [one for one in contents if one.role == "user" and text_of(one)]
        text = text_of(prompts[-1])
        results = [part.function_response.response for part in contents[-1].parts if part.function_response]
        if results:
            yield f"the tool returned {results[0].get('result') or results[0]}"
        elif text.startswith("stream"):
            for number in range(3):
                yield f"chunk {number}\n"
                await asyncio.sleep(0.01)
        elif text.startswith("tool"):
            yield types.FunctionCall(name="double", args={"number": 21}, id="call-1")
        elif text.startswith("delete"):
            yield types.FunctionCall(name="delete", args={"name": "all.txt"}, id="call-2")
        elif text.startswith("mail"):
            yield types.FunctionCall(name="read_mail", args={}, id="call-3")
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
            yield " and ".join(map(text_of, prompts[:-1]))
        elif text.startswith("file"):
            files = [part.inline_data for part in prompts[-1].parts if part.inline_data]
            yield ", ".join(f"{len(file.data)} bytes of {file.mime_type}" for file in files)
        else:
            yield f"you said: {text}"


def double(number: int) -> int:
    """Doubles a number."""
    return 2 * number


def delete(name: str) -> str:
    """Deletes a file."""
    Path("deleted").write_text(name)
    return f"{name} is deleted"


MAIL = AuthConfig(
    auth_scheme=OAuth2(
        flows=OAuthFlows(
            authorizationCode=OAuthFlowAuthorizationCode(
                authorizationUrl="https://login.example/authorize",
                tokenUrl="https://login.example/token",
                scopes={"mail": "read mail"},
            )
        )
    ),
    raw_auth_credential=AuthCredential(
        auth_type=AuthCredentialTypes.OAUTH2, oauth2=OAuth2Auth(client_id="assistant", client_secret="hidden")
    ),
)


def read_mail(tool_context: ToolContext) -> str:
    """Reads the caller's mail."""
    credential = tool_context.get_auth_response(MAIL)
    if credential is None:
        tool_context.request_credential(MAIL)
        return "not authorized"
    return f"a letter for {credential.oauth2.access_token}"


assistant = LlmAgent(
    name="Assistant",
    description="Follows a script",
    model=ScriptedModel(),
    tools=[double, read_mail, FunctionTool(delete, require_confirmation=True)],
)


class City(BaseModel):
    name: str
    people: int


class Extractor(ScriptedModel):
    async def pieces(self, contents: list[Any]) -> AsyncIterator[Any]:
        yield '{"name": "Rome", "people": 2800000}'


structured = LlmAgent(name="Structured", model=Extractor(), output_schema=City)
"""Returns structured data."""
