"""Settings: sources, precedence, and errors."""

from __future__ import annotations

import os
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from dragoman.core.limits.quotas import DEFAULT_LIMITS, Quota
from dragoman.core.task import states
from dragoman.settings.settings import Address, Settings, SettingsError, load_settings


@pytest.fixture(autouse=True)
def _no_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.startswith("DRAGOMAN_"):
            monkeypatch.delenv(name)


def test_the_defaults_serve_the_playground_on_loopback() -> None:
    settings = load_settings({})
    assert settings.app == "dragoman.playground"
    assert str(settings.http) == "127.0.0.1:8080"
    assert str(settings.grpc) == "127.0.0.1:50051"
    assert settings.store == "sqlite:///dragoman.db"
    assert settings.message_bytes == 16 * 1024 * 1024


def test_command_line_precedes_environment_precedes_file(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("dragoman.toml").write_text('slots = 1\ndrain = 1\nblocking-wait = 1\nlog_format = "json"\n')
    monkeypatch.setenv("DRAGOMAN_SLOTS", "2")
    monkeypatch.setenv("DRAGOMAN_DRAIN", "2")
    settings = load_settings({"slots": "3", "http": None})
    assert (settings.slots, settings.drain, settings.blocking_wait, settings.log_format) == (3, 2, 1, "json")


def test_the_config_file_is_set_by_argument_or_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("a.toml").write_text("slots = 7")
    Path("b.toml").write_text("slots = 8")
    monkeypatch.setenv("DRAGOMAN_CONFIG", "a.toml")
    assert load_settings({}).slots == 7
    assert load_settings({"config": Path("b.toml")}).slots == 8
    assert load_settings({}).config == Path("a.toml")


@pytest.mark.parametrize("name", sorted(set(Settings.model_fields) - {"config"}))
def test_every_setting_can_come_from_environment_or_file(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    values = {"http": "127.0.0.1:1", "grpc": "[::1]:2", "public_url": "http://a.example", "public_grpc": "a.example:3"}
    values |= {"trusted_proxies": "10.0.0.0/8", "store": "sqlite:///other.db", "app": "a.py", "root": "a"}
    values |= {"log_format": "json", "sqlite_synchronous": "normal", "error_table": "1.0.0"}
    values |= {"retention": "completed=30d", "outbound_allow": "10.0.0.0/8", "outbound_ca": "ca.pem"}
    values |= {
        "metrics": "127.0.0.1:4",
        "role": "worker",
        "audit": "security",
        "processes": "4",
        "isolation": "scope",
        "blocking_default": "return",
        "card_versions": "1.0",
        "push": "false",
        "agent_limits": "a.live-tasks=5",
    }
    values |= {"otlp": "http://a.example:4318", "otlp_headers": "a=b", "trace_share": "0.5", "budgets": "cost=5"}
    values |= {"retention": "completed=30d", "issuers": "https://a.example audience=me", "public_agents": "a,b"}
    values |= {"executor": "a.b:C", "executor_retries": "3", "upstream": "https://a.example/b"}
    values |= {"tls_client_grants": "a=operator", "tls_client_principal": "uri"}
    if name == "sign_cards":
        monkeypatch.setenv("DRAGOMAN_PUBLIC_URL", "https://a.example")
    if name in ("public_agents", "private_pages"):
        monkeypatch.setenv("DRAGOMAN_API_KEYS", "true")
    value = values.get(name, "true" if Settings.model_fields[name].annotation is bool else "4095")
    monkeypatch.setenv(f"DRAGOMAN_{name.upper()}", value)
    response_value = getattr(load_settings({}), name)
    assert response_value != Settings.model_fields[name].default
    monkeypatch.delenv(f"DRAGOMAN_{name.upper()}")
    Path("dragoman.toml").write_text(f"{name} = '{value}'")
    assert getattr(load_settings({}), name) == response_value


def test_an_empty_variable_counts_as_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAGOMAN_SLOTS", "")
    assert load_settings({}).slots == Settings.model_fields["slots"].default


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(ValidationError):
        load_settings({}).slots = 4


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [("127.0.0.1:0", "127.0.0.1", 0), ("[::1]:8080", "::1", 8080), ("localhost:80", "localhost", 80)],
)
def test_an_address_is_host_and_port(text: str, host: str, port: int) -> None:
    assert Address.parse(text) == Address(host, port)
    assert str(Address(host, port)) == text


@pytest.mark.parametrize("text", ["8080", ":8080", "host:", "::1:80", "host:port", "host:65536", "[]:1", "h:٣"])
def test_invalid_addresses_are_rejected(text: str) -> None:
    with pytest.raises(ValueError, match=r"HOST:PORT|65535"):
        Address.parse(text)


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
        ({"config": "absent.toml"}, "--config: file absent.toml does not exist"),
    ],
)
def test_an_invalid_argument_is_reported_with_its_rule(arguments: dict[str, str], response: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings(arguments)
    assert str(caught.value).startswith(response)


def test_an_invalid_variable_is_reported_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAGOMAN_DRAIN", "soon")
    with pytest.raises(SettingsError, match=r'^DRAGOMAN_DRAIN \(environment\): "soon" '):
        load_settings({})


def test_an_invalid_line_of_the_file_is_reported_with_the_file() -> None:
    Path("dragoman.toml").write_text('error_table = "0.9"\ncolour = "red"\n')
    with pytest.raises(SettingsError) as caught:
        load_settings({})
    first, second = sorted(str(caught.value).splitlines())
    assert first.startswith("colour: is not a setting (dragoman.toml); settings are agent_limits, api_keys, app, ")
    assert second == "error_table (dragoman.toml): \"0.9\" must be '1.0.1' or '1.0.0'"


def test_invalid_toml_is_reported_with_its_position() -> None:
    Path("dragoman.toml").write_text("slots = \n")
    with pytest.raises(SettingsError, match=r"^dragoman.toml: is not valid TOML: .*line 1"):
        load_settings({})


def test_all_invalid_settings_are_reported_together() -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings({"http": "x", "grpc": "y", "slots": "z"})
    assert len(str(caught.value).splitlines()) == 3


@pytest.mark.parametrize("address", ["0.0.0.0:8080", "[::]:8080", "192.0.2.1:80", "agents.example:80"])
def test_public_addresses_without_authentication_need_insecure(address: str) -> None:
    with pytest.raises(SettingsError, match=r"can be reached from other machines.*--api-keys.*--insecure"):
        load_settings({"http": address})
    assert str(load_settings({"http": address, "insecure": True}).http) == address


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


def test_errors_do_not_contain_the_token() -> None:
    Path("dragoman.toml").write_text("token = 20261120\n")
    with pytest.raises(SettingsError, match=r"^token \(dragoman.toml\): must be a text$"):
        load_settings({})


def test_issuers_can_be_tables_strings_or_json(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("dragoman.toml").write_text(
        '[[issuers]]\nurl = "https://a.example"\naudience = "me"\nalias = "a"\ngrants = { admins = "operator" }\n'
        '[[issuers]]\nurl = "https://b.example/"\naudience = ["me", "you"]\nalias = "b"\nskew = "10s"\n'
    )
    first, second = load_settings({}).issuers
    assert (first.url, first.audience, first.grants) == ("https://a.example", ("me",), {"admins": ("operator",)})
    assert (second.url, second.audience, second.skew) == ("https://b.example/", ("me", "you"), 10)
    monkeypatch.setenv("DRAGOMAN_ISSUERS", '{"url": "https://c.example", "audience": "me"}')
    assert [issuer.url for issuer in load_settings({}).issuers] == ["https://c.example"]
    texts = ["https://d.example audience=me alias=d; https://e.example audience=me alias=e algorithms=RS256,ES256"]
    assert [(issuer.alias, len(issuer.algorithms)) for issuer in load_settings({"issuers": texts}).issuers] == [
        ("d", 10),
        ("e", 2),
    ]


def test_store_paths_can_be_relative_or_absolute(tmp_path: Path) -> None:
    assert load_settings({"store": "sqlite:///tasks.db"}).store_path == tmp_path / "tasks.db"
    assert load_settings({"store": "sqlite:////var/lib/tasks.db"}).store_path == Path("/var/lib/tasks.db")


def test_trusted_proxies_are_parsed_as_networks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAGOMAN_TRUSTED_PROXIES", "10.0.0.0/8, ::1")
    assert load_settings({}).trusted_proxies == (ip_network("10.0.0.0/8"), ip_network("::1"))
    Path("dragoman.toml").write_text('trusted_proxies = ["192.0.2.0/24"]')
    monkeypatch.delenv("DRAGOMAN_TRUSTED_PROXIES")
    assert load_settings({}).trusted_proxies == (ip_network("192.0.2.0/24"),)


def test_outbound_allow_is_parsed_as_a_list(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("dragoman.toml").write_text(
        'outbound_allow = ["10.0.0.0/8", "hooks.internal"]\noutbound_ports = [443, 8443]\n'
    )
    settings = load_settings({})
    assert [entry.text for entry in settings.outbound_allow] == ["10.0.0.0/8", "hooks.internal"]
    assert settings.outbound_ports == {443, 8443}
    monkeypatch.setenv("DRAGOMAN_OUTBOUND_ALLOW", "10.0.0.0/8, [fd00::5]:80")
    assert [entry.text for entry in load_settings({}).outbound_allow] == ["10.0.0.0/8", "[fd00::5]:80"]


def test_sizes_can_have_a_unit() -> None:
    assert load_settings({"message_bytes": "2MiB"}).message_bytes == 2 * 1024 * 1024


def test_retention_can_be_a_table_with_tables_by_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("dragoman.toml").write_text(
        '[retention]\ncompleted = "30d"\ninput-required = "7d"\n[retention.echo]\ncompleted = 0\n'
    )
    rules = load_settings({"retain_failed": "2h"}).retention_policy
    day = 86_400_000
    assert rules.age("other", states.COMPLETED) == 30 * day
    assert rules.age("other", states.FAILED) == 2 * 3_600_000
    assert rules.age("echo", states.INPUT_REQUIRED) == 7 * day
    assert rules.age("echo", states.COMPLETED) == 0
    monkeypatch.setenv("DRAGOMAN_RETENTION", "completed=1d, echo.completed=2d")
    rules = load_settings({}).retention_policy
    assert (rules.age("other", states.COMPLETED), rules.age("echo", states.COMPLETED)) == (day, 2 * day)
    assert load_settings({"retain_completed": "0"}).retention_policy.age("other", states.COMPLETED) == 0


@pytest.mark.parametrize(
    ("arguments", "response"),
    [
        ({"retain_completed": "soon"}, '--retain-completed (command line): "soon" is not an age: '),
        ({"retention": "working=1d"}, '--retention (command line): "working" is not a state that retention applies to'),
        ({"retention": "completed"}, '--retention (command line): "completed" is not STATE=AGE'),
        ({"retention": "echo.completed=1y"}, '--retention (command line): "1y" is not an age: '),
    ],
)
def test_an_invalid_age_is_rejected_with_the_format(arguments: dict[str, str], response: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings(arguments)
    assert str(caught.value).startswith(response)


def test_an_invalid_age_in_the_file_is_reported_with_the_file() -> None:
    Path("dragoman.toml").write_text("[retention]\ncompleted = true\n")
    with pytest.raises(SettingsError, match=r"^retention \(dragoman.toml\): completed: True is not an age"):
        load_settings({})


def test_isolation_can_be_a_word_a_list_or_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    assert load_settings({}).isolation.policy_of("echo") == "owner"
    Path("dragoman.toml").write_text('[isolation]\ndefault = "context"\necho = "owner"\n')
    isolation = load_settings({}).isolation
    assert (isolation.policy_of("echo"), isolation.policy_of("other")) == ("owner", "context")
    monkeypatch.setenv("DRAGOMAN_ISOLATION", "owner,other=scope")
    isolation = load_settings({}).isolation
    assert (isolation.policy_of("echo"), isolation.policy_of("other")) == ("owner", "scope")
    with pytest.raises(
        SettingsError, match=r'^--isolation \(command line\): default: "none" is not an isolation policy; use owner,'
    ):
        load_settings({"isolation": "none"})


def test_the_blocking_default_can_be_a_word_a_list_or_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    assert load_settings({}).blocking_default.of("echo") == "wait"
    Path("dragoman.toml").write_text('[blocking_default]\ndefault = "return"\necho = "wait"\n')
    blocking_default = load_settings({}).blocking_default
    assert (blocking_default.of("echo"), blocking_default.of("other")) == ("wait", "return")
    monkeypatch.setenv("DRAGOMAN_BLOCKING_DEFAULT", "other=return")
    blocking_default = load_settings({}).blocking_default
    assert (blocking_default.of("echo"), blocking_default.of("other")) == ("wait", "return")
    with pytest.raises(
        SettingsError, match=r'^--blocking-default \(command line\): echo: "no" is not a default; use wait, return'
    ):
        load_settings({"blocking_default": "echo=no"})


def test_a_card_version_in_a_file_needs_no_quotes() -> None:
    Path("dragoman.toml").write_text("card_versions = 1.0\n")
    assert load_settings({}).card_versions == "1.0"
    with pytest.raises(
        SettingsError, match=r"""^--card-versions \(command line\): "2" must be 'all', '1.0' or '0.3'"""
    ):
        load_settings({"card_versions": "2"})


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


def test_default_ages_are_those_in_the_manual() -> None:
    settings = load_settings({})
    assert settings.push_retry_policy.give_up_after == 24 * 3600.0
    assert settings.retain_audit == 365 * 24 * 3600 * 1000
    assert load_settings({"retain_audit": "0"}).retain_audit == 0
