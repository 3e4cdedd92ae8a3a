"""Adapter for agents of Google's Agent Development Kit."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterable, Sequence
from typing import Any

from google.adk.agents.run_config import RunConfig, StreamingMode
from google.adk.events.event import Event
from google.adk.runners import Runner
from google.adk.sessions.in_memory_session_service import InMemorySessionService
from google.genai import types

from .adapter import FrameworkAdapter, FrameworkTurn, InputFile, ToolInfo

APP_NAME = "dragoman"

CONFIRMATION = "adk_request_confirmation"
"""The function that the framework calls in place of a tool that needs a confirmation."""

CREDENTIAL = "adk_request_credential"
"""The function that the framework calls after a tool that needs a credential of the caller."""


class GoogleAdkAdapter(FrameworkAdapter):
    """Runs an agent: text, tool calls and transfers are streamed, confirmations become questions.

    The events of a conversation are kept in our store, and each turn has a session with them.
    """

    framework = "google_adk"

    def describe(self) -> tuple[str, str, Iterable[ToolInfo]]:
        tools = [
            ToolInfo(
                str(getattr(tool, "name", None) or getattr(tool, "__name__", "tool")),
                (getattr(tool, "description", None) or inspect.getdoc(tool) or "").partition("\n")[0],
            )
            for tool in getattr(self.value, "tools", [])
        ]
        return self.value.name, self.value.description, tools

    async def run(self, turn: FrameworkTurn) -> None:
        pending = turn.pending or {}
        session_id, user = turn.turn.context_id, turn.turn.start.get("principal", "") or "anonymous"
        service = InMemorySessionService()
        session = await service.create_session(app_name=APP_NAME, user_id=user, session_id=session_id)
        for saved in pending.get("events") or turn.conversation or []:
            await service.append_event(session, Event.model_validate(saved))
        runner = Runner(app_name=APP_NAME, agent=self.value, session_service=service)
        message = _content_of(turn)
        if pending:
            message = (
                _authorizations(turn, pending["configs"]) if "configs" in pending else _answers(turn, pending["calls"])
            )
        events = AdkRunEvents(turn, streams_text=getattr(self.value, "output_schema", None) is None)
        async for event in runner.run_async(
            user_id=user,
            session_id=session_id,
            new_message=message,
            run_config=RunConfig(streaming_mode=StreamingMode.SSE),
        ):
            await events.handle(event)
        turn.usage(events.tokens)
        kept = await service.get_session(app_name=APP_NAME, user_id=user, session_id=session_id)
        assert kept is not None, "it was created above"
        history = [event.model_dump(mode="json", exclude_none=True) for event in kept.events]
        if events.confirmations:
            turn.save_states(None, {"events": history, "calls": [call.id for call in events.confirmations]})
            turn.ask(*_question(events.confirmations))
            return
        if events.credentials:
            configs = {str(call.id): (call.args or {})["authConfig"] for call in events.credentials}
            turn.save_states(None, {"events": history, "configs": configs})
            turn.require_authorization(*_authorization_request(configs))
            return
        await events.send_result()
        turn.save_states(history)
        turn.complete()


class AdkRunEvents:
    """Sends what a run streams, and gathers its confirmations and its usage."""

    def __init__(self, turn: FrameworkTurn, *, streams_text: bool) -> None:
        """`streams_text`: whether the model's text belongs to the output, and is no JSON of a structured result."""
        self._turn = turn
        self._streams_text = streams_text
        self._text = ""
        """Of the last complete response."""
        self._has_partial = False
        self.confirmations: list[types.FunctionCall] = []
        self.credentials: list[types.FunctionCall] = []
        self.tokens = 0
        """Tokens of all responses of models."""

    async def handle(self, event: Event) -> None:
        if event.error_code:
            raise RuntimeError(f"{event.error_code}: {event.error_message}")
        parts = (event.content.parts or []) if event.content else []
        text = "".join(part.text for part in parts if part.text and not part.thought)
        if self._streams_text and (event.partial or not self._has_partial):
            await self._turn.chunk(text)
        self._has_partial = bool(event.partial)
        if event.partial:
            return
        self._text = text or self._text
        if event.usage_metadata is not None:
            self.tokens += event.usage_metadata.total_token_count or 0
        for call in event.get_function_calls():
            if call.name == CONFIRMATION:
                self.confirmations.append(call)
            elif call.name == CREDENTIAL:
                self.credentials.append(call)
            else:
                await self._turn.progress("tool_call", call.name, f"calls {call.name}", id=call.id, arguments=call.args)
        for response in event.get_function_responses():
            if response.id in event.actions.requested_tool_confirmations:
                continue  # it says that the tool waits
            await self._turn.progress("tool_result", response.name, f"{response.name} has answered", id=response.id)
        if event.actions.transfer_to_agent:
            name = event.actions.transfer_to_agent
            await self._turn.progress("handoff", name, f"{name} takes over")

    async def send_result(self) -> None:
        """Sends a structured result."""
        if not self._streams_text:
            await self._turn.data_artifact(json.loads(self._text))


def _question(confirmations: Sequence[types.FunctionCall]) -> tuple[str, Any]:
    calls = [(call.args or {}).get("originalFunctionCall", {}) for call in confirmations]
    texts = [f"{call.get('name')}({json.dumps(call.get('args', {}), default=str)})" for call in calls]
    data = [
        {"id": confirmation.id, "name": call.get("name"), "arguments": call.get("args", {})}
        for confirmation, call in zip(confirmations, calls, strict=True)
    ]
    return f"Approve {', '.join(texts)}? Answer yes or no.", {"approvals": data}


def _answers(turn: FrameworkTurn, calls: Sequence[str]) -> types.Content:
    """The caller's approvals: one for all, or a data part `{"approvals": {id: true}}`."""
    found = [value["approvals"] for value in turn.data if isinstance(value, dict) and "approvals" in value]
    given: dict[str, Any] = found[0] if found else {}
    responses = [
        types.FunctionResponse(id=id, name=CONFIRMATION, response={"confirmed": given.get(id, turn.approval) is True})
        for id in calls
    ]
    return types.Content(role="user", parts=[types.Part(function_response=one) for one in responses])


def _authorization_request(configs: dict[str, Any]) -> tuple[str, Any]:
    """The text, and what clients need of each AuthConfig: no secrets."""
    data = [
        {"id": id, "scheme": config["authScheme"].get("type"), "authorizationUrl": _authorization_url(config)}
        for id, config in configs.items()
    ]
    urls = [one["authorizationUrl"] for one in data if one["authorizationUrl"]]
    if not urls:
        return "A tool needs a credential. Send it as a data part: its AuthCredential by id.", {"credentials": data}
    text = f"Authorize at {' and '.join(urls)}, and send the address to which you are redirected."
    return text, {"credentials": data}


def _authorization_url(config: dict[str, Any]) -> str:
    return str(((config.get("exchangedAuthCredential") or {}).get("oauth2") or {}).get("authUri") or "")


def _authorizations(turn: FrameworkTurn, configs: dict[str, Any]) -> types.Content:
    """The caller's credentials: a data part `{"credentials": {id: AuthCredential}}`, or the redirected address."""
    found = [value["credentials"] for value in turn.data if isinstance(value, dict) and "credentials" in value]
    given: dict[str, Any] = found[0] if found else {}
    responses = []
    for id, config in configs.items():
        credential = given.get(id)
        if credential is None:
            credential = config.get("exchangedAuthCredential") or {}
            credential = {**credential, "oauth2": {**(credential.get("oauth2") or {}), "authResponseUri": turn.text}}
        response = {**config, "exchangedAuthCredential": credential}
        responses.append(types.FunctionResponse(id=id, name=CREDENTIAL, response=response))
    return types.Content(role="user", parts=[types.Part(function_response=one) for one in responses])


def _content_of(turn: FrameworkTurn) -> types.Content:
    text = [types.Part(text=turn.prompt)] if turn.prompt else []
    return types.Content(role="user", parts=[*text, *map(_part, turn.files)])


def _part(file: InputFile) -> types.Part:
    if file.url:
        return types.Part.from_uri(file_uri=file.url, mime_type=file.media_type)
    return types.Part.from_bytes(data=file.data, mime_type=file.media_type)
