"""A model for the pages of frameworks: it answers by a script, over the APIs of OpenAI and Gemini.

Agents on pages name a real model. The session of a page sets the variables by which the SDKs find this server instead.
"""

from __future__ import annotations

import itertools
import json
import threading
import tomllib
from collections.abc import Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from tests.docs.model_apis import ChatCompletions, Conversation, Gemini, ModelApi, Reply, Responses, ToolCall

from tools.pages import ROOT

SCRIPT: Final = ROOT / "tests" / "docs" / "given" / "models.toml"
"""What the model answers, by prompt."""

Script = Mapping[str, Sequence[str | Mapping[str, Any]]]


class NoAnswer(Exception):
    """The script has no answer. The text gives the prompt."""


def reply_to(conversation: Conversation, script: Script, number: int) -> Reply:
    """The script's next reply to the last prompt, by the key that is in it. `number`: of the reply. Raises NoAnswer.

    `{result}` in a text is the last result of a tool in the conversation, so it needs the messages before it.
    """
    prompt = conversation.prompts[-1] if conversation.prompts else ""
    steps: Sequence[str | Mapping[str, Any]] = next((script[key] for key in script if key in prompt), ())
    if conversation.steps >= len(steps):
        raise NoAnswer(f"the script has no reply {conversation.steps + 1} to {prompt!r}")
    step = steps[conversation.steps]
    if not isinstance(step, str):
        arguments = {name: step[name] for name in step if name != "call"}
        return Reply(conversation, number, call=ToolCall(f"call_{number}", step["call"], arguments))
    if "{result}" not in step:
        return Reply(conversation, number, step)
    if not conversation.results:
        raise NoAnswer(f"the reply to {prompt!r} needs the result of a tool, and the conversation has none")
    return Reply(conversation, number, step.replace("{result}", conversation.results[-1]))


class ScriptedModel:
    """The server. A context manager."""

    def __init__(self, script: Script | None = None) -> None:
        """`script`: in place of the file."""
        self._script = tomllib.loads(SCRIPT.read_text("utf-8")) if script is None else script
        self._numbers = itertools.count(1)
        self._apis: Mapping[str, ModelApi] = {
            "/v1/chat/completions": ChatCompletions(),
            "/v1/responses": Responses(),
            "/v1beta/models": Gemini(),
        }
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> ScriptedModel:
        self._thread.start()
        return self

    def __exit__(self, *about: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def variables(self) -> dict[str, str]:
        """The environment of programs that shall use this model. Nothing else is sent anywhere."""
        return {
            "OPENAI_API_KEY": "scripted",
            "OPENAI_BASE_URL": f"{self.url}/v1",
            "GOOGLE_API_KEY": "scripted",
            "GOOGLE_GEMINI_BASE_URL": self.url,
            "OPENAI_AGENTS_DISABLE_TRACING": "1",
            "CREWAI_DISABLE_TELEMETRY": "true",
        }

    def api(self, path: str) -> ModelApi | None:
        """The API of a request's path; None for a path of none."""
        return self._apis.get("/v1beta/models" if path.startswith("/v1beta/models/") else path)

    def reply(self, conversation: Conversation) -> Reply:
        """The next reply. Raises NoAnswer."""
        return reply_to(conversation, self._script, next(self._numbers))

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        class Handler(_Handler):
            model = self

        return Handler


class _Handler(BaseHTTPRequestHandler):
    model: ScriptedModel

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        api = self.model.api(self.path)
        if api is None:
            self._send(404, "application/json", _error(f"no such path: {self.path}"))
            return
        try:
            reply = self.model.reply(api.read(body))
        except NoAnswer as error:
            self._send(400, "application/json", _error(str(error)))
            return
        if body.get("stream") or ":streamGenerateContent" in self.path:
            self._send(200, "text/event-stream", *(f"{event}\n\n" for event in api.events(reply)))
        else:
            self._send(200, "application/json", json.dumps(api.whole(reply)))

    def _send(self, status: int, media_type: str, *pieces: str) -> None:
        """Sends a response, piece by piece. Its end is that of the connection."""
        self.send_response(status)
        self.send_header("Content-Type", media_type)
        self.end_headers()
        for piece in pieces:
            self.wfile.write(piece.encode())
            self.wfile.flush()

    def log_message(self, format: str, *arguments: Any) -> None:
        """Logs nothing."""


def _error(text: str) -> str:
    return json.dumps({"error": {"message": text, "type": "invalid_request_error", "status": "INVALID_ARGUMENT"}})
