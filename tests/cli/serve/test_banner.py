"""Authentication in the banner, and the part of the curl line."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from dragoman.cli.serve import command
from dragoman.cli.serve.command import describe_authentication, sample_part
from dragoman.core.cards.agent_spec import AgentSpec, Skill
from dragoman.core.limits.message_checks import media_type_of
from dragoman.settings.settings import Settings, load_settings
from dragoman.wire.json.protojson import Codec, JsonDialect
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

pytestmark = pytest.mark.usefixtures("no_settings")


def agent(*modes: str, examples: tuple[str, ...] = ()) -> AgentSpec:
    skill = Skill(id="s", name="s", description="s", examples=examples)
    return AgentSpec(id="a", name="a", description="a", input_modes=modes, skills=(skill,))


def test_the_sample_part_is_an_example_of_the_agent() -> None:
    assert sample_part(agent("text/plain", examples=("echo hello", "other"))) == {"text": "echo hello"}
    assert sample_part(agent("image/png", "text/*")) == {"text": "hello"}


@pytest.mark.parametrize("mode", ["application/json", "text/csv", "image/png", "application/pdf"])
def test_the_sample_part_of_an_agent_without_text_has_an_accepted_type(mode: str) -> None:
    part = Codec(pb.Part, JsonDialect("1.0")).decode(sample_part(agent(mode)))
    assert media_type_of(part) == mode


@pytest.mark.parametrize(
    ("response", "shown"),
    [
        ({}, "none (loopback only)"),
        (
            {"insecure": True, "http": "0.0.0.0:0"},
            "none (--insecure: open to other machines)",
        ),
        (
            {"insecure": True, "public_url": "https://agents.example", "trusted_proxies": "127.0.0.1"},
            "none (--insecure: open to other machines)",
        ),
        ({"public_url": "http://localhost:8080", "public_grpc": "127.0.0.1:50051"}, "none (loopback only)"),
        ({"api_keys": True, "http": "0.0.0.0:0"}, "API keys"),
        (
            {"api_keys": True, "token": "t", "issuers": ["https://a.example audience=x"], "public_agents": "a,b"},
            "API keys, tokens of https://a.example, the bearer token of --token; public agents: a, b",
        ),
    ],
)
def test_the_banner_shows_the_authentication(response: dict[str, Any], shown: str) -> None:
    assert describe_authentication(load_settings(response)) == shown


@pytest.mark.parametrize(
    ("response", "reported"),
    [
        ({"api_keys": True}, False),
        ({"api_keys": True, "http": "0.0.0.0:0"}, True),
        ({"api_keys": True, "http": "0.0.0.0:0", "trusted_proxies": "10.0.0.0/8"}, False),
        ({"insecure": True, "http": "0.0.0.0:0"}, False),
    ],
)
def test_credentials_in_clear_text_are_logged_as_a_warning(
    response: dict[str, Any], reported: bool, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "banner", lambda *_: "")
    app: Any = SimpleNamespace(infra=SimpleNamespace(certificates=None))
    settings: Settings = load_settings(response)
    command._announce(app, settings)
    assert ("credentials reach this server unencrypted" in caplog.text) is reported
