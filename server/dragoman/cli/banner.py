"""What `serve` prints for people, with a line that can be pasted."""

from __future__ import annotations

import base64
import shlex
from typing import Any, Final

import orjson

from dragoman.app import App
from dragoman.core.card import AgentSpec
from dragoman.release import version
from dragoman.settings import Settings

_SAMPLES: Final[dict[str, dict[str, Any]]] = {
    "application/json": {"data": {"hello": "world"}},
    "text/csv": {
        "raw": base64.b64encode(b"name,age\nAda,36\nAlan,41\n").decode(),
        "mediaType": "text/csv",
        "filename": "people.csv",
    },
}
"""A part to try an agent with that takes no text."""


def banner(app: App, settings: Settings, processes: int = 0) -> str:
    """The lines: where everything is, what is served, what to try. `processes`: how many there are, if not one."""
    several = f", {processes} processes" if processes else ""
    if app.at_grpc is None:
        return f"""\
Dragoman {version()}, a worker on a store{several}

  Health  {app.http.url}/readyz
  Agents  {", ".join(sorted(app.agents))}
  Data    {app.store}

Ctrl-C stops, and lets running turns end."""
    others = sorted(agent for agent in app.agents if agent != app.root)
    agents = f"{app.root} (root)" + (f", {', '.join(others)}" if others else "")
    if app.root not in app.agents:
        agents = ", ".join(others) or "those that workers dial in with: dragoman worker APP --server HOST:PORT"
    tried = f"Try it:\n\n  {curl_line(app, settings)}\n\n" if app.root in app.agents else ""
    role = (
        "\n  Role    server: turns of APP run in processes with --role worker, or all"
        if settings.role == "server"
        else ""
    )
    return f"""\
Dragoman {version()}{several}

  Card    {app.card_url}
  HTTP    {app.public_url}
  gRPC    {"grpcs://" if app.grpc.tls else ""}{app.grpc}
  Agents  {agents}
  Data    {app.store}{role}
  Callers {callers(settings)}

{tried}Ctrl-C stops, and lets running turns end."""


def callers(settings: Settings) -> str:
    """Who may call, and how they say who they are."""
    if not settings.asks:
        wide = not (settings.http.is_loopback and settings.grpc.is_loopback)
        who = "other machines can call (--insecure)" if wide else "only this machine can call"
        return f"nobody is asked who they are; {who}"
    shown = ["API keys"] if settings.api_keys else []
    shown += [f"tokens of {issuer.url}" for issuer in settings.issuers]
    shown += ["certificates"] if settings.tls_client_ca else []
    shown += ["the bearer token"] if settings.token.get_secret_value() else []
    public = f"; nothing for {', '.join(settings.public_agents)}" if settings.public_agents else ""
    return f"show {', '.join(shown)}{public}"


def curl_line(app: App, settings: Settings) -> str:
    """A REST call of A2A 1.0 to the root agent that works as it stands, with DRAGOMAN_TOKEN or DRAGOMAN_CERT if need
    be."""
    message = {"messageId": "hello-1", "role": "ROLE_USER", "parts": [sample_part(app.agents[app.root])]}
    body = orjson.dumps({"message": message}).decode()
    headers = "-H 'Content-Type: application/json' -H 'A2A-Version: 1.0'"
    if settings.asks and not {app.root, "*"} & set(settings.public_agents):
        bearer = settings.api_keys or settings.issuers or settings.token.get_secret_value()
        headers += ' -H "Authorization: Bearer $DRAGOMAN_TOKEN"' if bearer else ' --cert "$DRAGOMAN_CERT"'
    return f"curl -sS {app.public_url}/message:send {headers} -d {shlex.quote(body)}"


def sample_part(spec: AgentSpec) -> dict[str, Any]:
    """A part that an agent takes: an example of its own if it reads text."""
    modes = [mode.split(";")[0].strip().lower() for mode in spec.input_modes]
    if any(mode in ("text/plain", "text/*", "text", "*/*", "*") for mode in modes):
        return {"text": next((example for skill in spec.skills for example in skill.examples), "hello")}
    for mode in modes:
        if mode in _SAMPLES:
            return _SAMPLES[mode]
    return {"raw": base64.b64encode(b"hello").decode(), "mediaType": modes[0] if modes else "text/plain"}
