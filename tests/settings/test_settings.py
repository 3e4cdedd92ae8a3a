"""Settings: defaults, rules between settings, and errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from dragoman.core.limits.quotas import DEFAULT_LIMITS, Quota
from dragoman.settings.settings import (
    MIN_TOKEN_LENGTH,
    Settings,
    SettingsError,
    is_public,
    load_settings,
    load_worker_settings,
)

EVERYWHERE = "0.0.0.0:8080"
ISSUER = "https://a.example audience=me"


def test_the_defaults_serve_the_playground_on_loopback() -> None:
    settings = load_settings({})
    assert settings.agents.app == "dragoman.playground"
    assert str(settings.listen.http) == "127.0.0.1:8080"
    assert str(settings.listen.grpc) == "127.0.0.1:50051"
    assert settings.store.url == "sqlite:///dragoman.db"
    assert settings.limits.message_bytes == 16 * 1024 * 1024


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(ValidationError):
        load_settings({}).limits.slots = 4


@pytest.mark.parametrize(
    ("arguments", "response"),
    [
        ({"http": "8080"}, '--http (command line): "8080" is not HOST:PORT; for example 127.0.0.1:8080 or [::1]:8080'),
        ({"log_format": "xml"}, "--log-format (command line): \"xml\" must be 'text' or 'json'"),
        ({"slots": "0"}, '--slots (command line): "0" must be greater than or equal to 1'),
        (
            {"store": "postgresql://db"},
            '--store (command line): "postgresql://db" is not the URL of a store; use sqlite:///PATH',
        ),
        (
            {"store": "sqlite:///:memory:"},
            '--store (command line): "sqlite:///:memory:" is not the URL of a store; use ',
        ),
        ({"public_url": "agents.example"}, "--public-url (command line): "),
        (
            {"public_grpc": "ftp://agents.example:1"},
            '--public-grpc (command line): "ftp://agents.example:1" has an unknown scheme; use HOST:PORT, '
            "http(s)://... or grpc(s)://...",
        ),
        ({"public_grpc": "agents.example"}, '--public-grpc (command line): "agents.example" is not HOST:PORT'),
        ({"trusted_proxies": "10.0.0.0/8,me"}, "--trusted-proxies (command line): 'me' "),
        ({"root": "No Such"}, '--root (command line): "No Such" is not an agent id'),
        ({"blocking_wait": "nan"}, "--blocking-wait (command line): "),
        ({"push_first_wait": "0"}, '--push-first-wait (command line): "0" must be greater than 0'),
        ({"push_give_up": "0s"}, "--push-give-up (command line): must be more than 0: "),
        (
            {"outbound_allow": "10.0.0.1/8"},
            '--outbound-allow (command line): "10.0.0.1/8" is not NETWORK, ADDRESS, HOST',
        ),
        ({"outbound_allow": "169.254.169.254"}, '--outbound-allow (command line): "169.254.169.254": link-local '),
        ({"outbound_ports": "https"}, '--outbound-ports (command line): "https" is not a port; a port is 1 to 65535'),
        ({"mcp": ["ws://x"]}, '--mcp (command line): "ws://x" is not [ID=]URL or [ID=]COMMAND; the URL of an MCP'),
        ({"mcp": ["a 'b"]}, "--mcp (command line): command: cannot be split into words: no closing quotation"),
        ({"config": "absent.toml"}, "--config: file absent.toml does not exist"),
    ],
)
def test_an_invalid_argument_is_reported_with_its_rule(arguments: dict[str, str], response: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings(arguments)
    assert str(caught.value).startswith(response)


@pytest.mark.parametrize("address", ["0.0.0.0:8080", "[::]:8080", "192.0.2.1:80", "agents.example:80"])
def test_public_addresses_without_authentication_need_insecure(address: str) -> None:
    with pytest.raises(SettingsError, match=r"can be reached from other machines.*--api-keys.*--insecure"):
        load_settings({"http": address})
    assert str(load_settings({"http": address, "insecure": True}).listen.http) == address


@pytest.mark.parametrize(
    "requested",
    [
        {"api_keys": "true"},
        {"token": "sixteen letters."},
        {"issuers": ["https://login.example audience=me"]},
    ],
)
def test_public_addresses_are_allowed_with_authentication(requested: dict[str, Any]) -> None:
    settings = load_settings({"http": "0.0.0.0:8080", "grpc": "[::]:50051", **requested})
    assert settings.requires_auth
    assert not load_settings({}).requires_auth


@pytest.mark.parametrize(
    ("arguments", "response"),
    [
        (
            {"token": "short", "http": "0.0.0.0:80"},
            r"--http .* could guess the token; .* at least 16",
        ),
        ({"token": "dgm_aaaaaaaaaaaa_b"}, r"--token \(command line\): is an API key, which identifies a client"),
        ({"token": "not ascii: é"}, r"--token \(command line\): must be printable ASCII"),
        ({"public_agents": "echo"}, r"--public-agents \(command line\): needs authentication; add "),
        ({"private_pages": "true"}, r"--private-pages \(command line\): needs authentication; add "),
        ({"public_agents": "No", "api_keys": "true"}, r'--public-agents \(command line\): "No" is not an agent id'),
        ({"issuers": "https://a.example"}, r"--issuers \(command line\): audience: is required"),
    ],
)
def test_a_setting_that_would_leave_access_open_is_rejected(arguments: dict[str, str], response: str) -> None:
    with pytest.raises(SettingsError, match=response):
        load_settings(arguments)


def test_default_limits_apply_to_authenticated_callers_and_to_all_on_public_addresses() -> None:
    home = load_settings({}).quotas
    assert home.quota("echo", authenticated=False) == Quota()
    assert home.quota("echo", authenticated=True).live_tasks == DEFAULT_LIMITS["live_tasks"]
    wide = load_settings({"http": "0.0.0.0:8080", "insecure": True}).quotas
    assert (
        wide.quota("echo", authenticated=False)
        == wide.quota("echo", authenticated=True)
        == home.quota("echo", authenticated=True)
    )


def test_limits_are_numbers_with_tables_by_agent() -> None:
    Path("dragoman.toml").write_text(
        'live-tasks = 7\nqueued-bytes = "1MiB"\nopen_streams = 0\n[agent-limits.echo]\nlive-tasks = 2\n'
    )
    settings = load_settings({"starts_per_minute": "60", "live_tasks": "8"})
    echo, other = (settings.quotas.quota(agent, authenticated=False) for agent in ("echo", "other"))
    assert echo == Quota(8, 2, 1024 * 1024, 60)
    assert other == Quota(8, 0, 1024 * 1024, 60)
    assert settings.quotas.limit_for("open_streams", authenticated=True) == 0


@pytest.mark.parametrize(
    ("arguments", "response"),
    [
        ({"live_tasks": "-1"}, '--live-tasks (command line): "-1" must be greater than or equal to 0'),
        ({"queued_bytes": "lots"}, '--queued-bytes (command line): "lots" '),
        ({"agent_limits": "echo=5"}, '--agent-limits (command line): "echo=5" is not AGENT.LIMIT=N'),
        (
            {"agent_limits": "echo.open-streams=5"},
            '--agent-limits (command line): echo: "open-streams" is not a limit of',
        ),
    ],
)
def test_an_invalid_limit_is_rejected_with_its_rule(arguments: dict[str, str], response: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings(arguments)
    assert str(caught.value).startswith(response)


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        ({}, True),
        ({"api_keys": True}, False),
        ({"trusted_proxies": "127.0.0.1", "insecure": True}, False),
        ({"public_url": "https://agents.example", "insecure": True}, False),
        ({"public_url": "http://localhost:8080"}, True),
        ({"http": "0.0.0.0:8080", "insecure": True}, False),
        ({"http": "0.0.0.0:8080", "insecure": True, "error_texts": "all"}, True),
        ({"error_texts": "agents"}, False),
    ],
    ids=str,
)
def test_exception_texts_are_shown_where_only_the_developer_calls(arguments: dict[str, object], shown: bool) -> None:
    assert load_settings(arguments).shows_error_texts is shown


def test_a_worker_reads_the_variables_of_its_options_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAGOMAN_LOG_FORMAT", "json")
    monkeypatch.setenv("DRAGOMAN_SLOTS", "many")
    settings = load_worker_settings({"log_format": None, "drain": "5"})
    assert (settings.process.log_format, settings.limits.drain, settings.limits.loop_timeout) == ("json", 5.0, 20.0)
    monkeypatch.setenv("DRAGOMAN_LOG_FORMAT", "xml")
    with pytest.raises(SettingsError, match=r'^DRAGOMAN_LOG_FORMAT \(environment\): "xml" must be'):
        load_worker_settings({"log_format": None})


# Authentication --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "values", [{"token": "x"}, {"api_keys": True}, {"issuers": ISSUER}, {"tls_client_ca": Path("ca.pem")}]
)
def test_each_kind_of_credentials_turns_authentication_on(values: dict[str, Any]) -> None:
    assert Settings(**values).requires_auth
    assert load_settings({**values, "public_agents": "alice"}).access.public_agents == ("alice",)


def test_a_value_that_needs_authentication_is_rejected_without() -> None:
    with pytest.raises(SettingsError, match=r"^--public-agents \(command line\): needs authentication; add --api-keys"):
        load_settings({"public_agents": "alice"})


@pytest.mark.parametrize(
    "values", [{"insecure": True}, {"role": "worker"}, {"api_keys": True}, {"token": "x" * MIN_TOKEN_LENGTH}]
)
@pytest.mark.parametrize("option", ["http", "grpc"])
def test_an_address_for_other_machines_needs_a_reason(option: str, values: dict[str, Any]) -> None:
    assert str(getattr(load_settings({option: EVERYWHERE, **values}).listen, option)) == EVERYWHERE
    with pytest.raises(SettingsError, match=rf"^--{option} \(command line\): .* authentication is off"):
        load_settings({option: EVERYWHERE})


def test_a_short_token_is_enough_on_this_machine_only() -> None:
    assert load_settings({"http": "127.0.0.1:8080", "token": "x"}).listen.http.port == 8080
    with pytest.raises(SettingsError, match=f"at least {MIN_TOKEN_LENGTH} characters"):
        load_settings({"http": EVERYWHERE, "token": "x"})


@pytest.mark.parametrize(
    ("option", "value"),
    [("public_url", "https://a.example"), ("public_grpc", "a.example:443"), ("trusted_proxies", "127.0.0.1")],
)
def test_a_proxy_needs_authentication(option: str, value: str) -> None:
    assert load_settings({option: value, "api_keys": True}).behind_proxy
    with pytest.raises(SettingsError, match=r"other machines call through a proxy, and authentication is off"):
        load_settings({option: value})


def test_all_rules_that_are_broken_are_reported_together() -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings({"http": EVERYWHERE, "grpc": EVERYWHERE, "private_pages": True, "public_grpc": "a.example:1"})
    names = [line.split()[0] for line in str(caught.value).splitlines()]
    assert names == ["--private-pages", "--http", "--grpc", "--public-grpc"]


@pytest.mark.parametrize(
    ("address", "public"), [("", False), ("http://localhost:1", False), ("grpcs://b.example", True)]
)
def test_a_name_of_another_machine_is_public(address: str, public: bool) -> None:
    assert is_public(address) is public
