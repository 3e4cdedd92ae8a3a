"""How texts and TOML values become settings: addresses, lists, tables, ages."""

from __future__ import annotations

from ipaddress import ip_network
from pathlib import Path

import pytest

from dragoman.core.task import states
from dragoman.settings.settings import SettingsError, load_settings
from dragoman.settings.types import Address, check_collector_url, check_trace_url, parse_headers, without_password


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


def test_issuers_can_be_tables_strings_or_json(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("dragoman.toml").write_text(
        '[[issuers]]\nurl = "https://a.example"\naudience = "me"\nalias = "a"\ngrants = { admins = "operator" }\n'
        '[[issuers]]\nurl = "https://b.example/"\naudience = ["me", "you"]\nalias = "b"\nskew = "10s"\n'
    )
    first, second = load_settings({}).access.issuers
    assert (first.url, first.audience, first.grants) == ("https://a.example", ("me",), {"admins": ("operator",)})
    assert (second.url, second.audience, second.skew) == ("https://b.example/", ("me", "you"), 10)
    monkeypatch.setenv("DRAGOMAN_ISSUERS", '{"url": "https://c.example", "audience": "me"}')
    assert [issuer.url for issuer in load_settings({}).access.issuers] == ["https://c.example"]
    texts = ["https://d.example audience=me alias=d; https://e.example audience=me alias=e algorithms=RS256,ES256"]
    assert [(issuer.alias, len(issuer.algorithms)) for issuer in load_settings({"issuers": texts}).access.issuers] == [
        ("d", 10),
        ("e", 2),
    ]


def test_trusted_proxies_are_parsed_as_networks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAGOMAN_API_KEYS", "true")
    monkeypatch.setenv("DRAGOMAN_TRUSTED_PROXIES", "10.0.0.0/8, ::1")
    assert load_settings({}).public.trusted_proxies == (ip_network("10.0.0.0/8"), ip_network("::1"))
    Path("dragoman.toml").write_text('trusted_proxies = ["192.0.2.0/24"]')
    monkeypatch.delenv("DRAGOMAN_TRUSTED_PROXIES")
    assert load_settings({}).public.trusted_proxies == (ip_network("192.0.2.0/24"),)


def test_outbound_allow_is_parsed_as_a_list(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("dragoman.toml").write_text(
        'outbound_allow = ["10.0.0.0/8", "hooks.internal"]\noutbound_ports = [443, 8443]\n'
    )
    settings = load_settings({})
    assert [entry.text for entry in settings.outbound.allow] == ["10.0.0.0/8", "hooks.internal"]
    assert settings.outbound.ports == {443, 8443}
    monkeypatch.setenv("DRAGOMAN_OUTBOUND_ALLOW", "10.0.0.0/8, [fd00::5]:80")
    assert [entry.text for entry in load_settings({}).outbound.allow] == ["10.0.0.0/8", "[fd00::5]:80"]


def test_sizes_can_have_a_unit() -> None:
    assert load_settings({"message_bytes": "2MiB"}).limits.message_bytes == 2 * 1024 * 1024


def test_retention_can_be_a_table_with_tables_by_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("dragoman.toml").write_text(
        '[retention]\ncompleted = "30d"\nfailed = "2h"\ninput-required = "7d"\n[retention.echo]\ncompleted = 0\n'
    )
    rules = load_settings({}).retention.tasks
    day = 86_400_000
    assert rules.age("other", states.COMPLETED) == 30 * day
    assert rules.age("other", states.FAILED) == 2 * 3_600_000
    assert rules.age("echo", states.INPUT_REQUIRED) == 7 * day
    assert rules.age("echo", states.COMPLETED) == 0
    monkeypatch.setenv("DRAGOMAN_RETENTION", "completed=1d, echo.completed=2d")
    rules = load_settings({}).retention.tasks
    assert (rules.age("other", states.COMPLETED), rules.age("echo", states.COMPLETED)) == (day, 2 * day)
    assert load_settings({"retention": "completed=0"}).retention.tasks.age("other", states.COMPLETED) == 0


@pytest.mark.parametrize(
    ("arguments", "response"),
    [
        ({"retention": "completed=soon"}, '--retention (command line): "soon" is not an age: '),
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
    assert load_settings({}).access.isolation.of("echo") == "owner"
    Path("dragoman.toml").write_text('[isolation]\ndefault = "scope"\necho = "owner"\n')
    isolation = load_settings({}).access.isolation
    assert (isolation.of("echo"), isolation.of("other")) == ("owner", "scope")
    monkeypatch.setenv("DRAGOMAN_ISOLATION", "owner,other=scope")
    isolation = load_settings({}).access.isolation
    assert (isolation.of("echo"), isolation.of("other")) == ("owner", "scope")
    with pytest.raises(
        SettingsError, match=r'^--isolation \(command line\): default: "none" is not an isolation policy; use owner,'
    ):
        load_settings({"isolation": "none"})


@pytest.mark.parametrize(
    ("host", "loopback"),
    [("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("::", False),
     ("localhost.example", False)],
)  # fmt: skip
def test_only_loopback_addresses_are_private(host: str, loopback: bool) -> None:
    assert Address(host, 80).is_loopback is loopback


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://me:secret@host/db", "postgresql://me@host/db"),
        ("postgresql://me:with@sign:and:more@host/db", "postgresql://me@host/db"),
        ("postgresql://host/db?user=me&password=secret&x=1", "postgresql://host/db?user=me&password=***&x=1"),
        ("postgresql://me@host:5432/db", "postgresql://me@host:5432/db"),
        ("sqlite:///tasks.db", "sqlite:///tasks.db"),
    ],
)
def test_urls_are_shown_without_their_password(url: str, shown: str) -> None:
    assert without_password(url) == shown


def test_headers_are_names_with_values() -> None:
    assert parse_headers(" Authorization=Bearer a=b , X-Team = me,, ") == {
        "Authorization": "Bearer a=b",
        "X-Team": "me",
    }
    assert parse_headers("X-Empty=") == {"X-Empty": ""}
    for text in ("Authorization", "=value", "a=b,c"):
        with pytest.raises(ValueError, match="is not NAME=VALUE"):
            parse_headers(text)


@pytest.mark.parametrize("url", ["", "http://a:4318", "https://a/path", "grpc://a:4317", "grpcs://a"])
def test_a_collector_has_one_of_four_schemes(url: str) -> None:
    assert check_collector_url(url) == url


@pytest.mark.parametrize("url", ["a:4318", "ftp://a", "http://", "http://a?x=1", "grpc://a#b"])
def test_other_urls_of_a_collector_are_rejected(url: str) -> None:
    with pytest.raises(ValueError, match="is not the URL of a collector"):
        check_collector_url(url)


def test_a_public_url_loses_its_last_slash_and_has_no_query() -> None:
    assert load_settings({"public_url": "https://a.example/b/", "api_keys": True}).public.url == "https://a.example/b"
    for url in ("https://a.example?x=1", "https://a.example/#b", "ftp://a.example", "https://"):
        with pytest.raises(SettingsError, match=r'^--public-url \(command line\): ".*" is not http\(s\)://HOST'):
            load_settings({"public_url": url})


def test_a_store_url_in_an_error_has_no_password() -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings({"store": "postgresql://me:secret@host"})
    assert str(caught.value).startswith('--store (command line): "postgresql://me@host" is not the URL of a store')


def test_the_blocking_default_can_be_a_word_a_list_or_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    assert load_settings({}).protocol.blocking_default.of("echo") == "wait"
    Path("dragoman.toml").write_text('[blocking_default]\ndefault = "return"\necho = "wait"\n')
    blocking_default = load_settings({}).protocol.blocking_default
    assert (blocking_default.of("echo"), blocking_default.of("other")) == ("wait", "return")
    monkeypatch.setenv("DRAGOMAN_BLOCKING_DEFAULT", "other=return")
    blocking_default = load_settings({}).protocol.blocking_default
    assert (blocking_default.of("echo"), blocking_default.of("other")) == ("wait", "return")
    with pytest.raises(
        SettingsError, match=r'^--blocking-default \(command line\): echo: "no" is not a default; use wait, return'
    ):
        load_settings({"blocking_default": "echo=no"})


def test_a_card_version_in_a_file_needs_no_quotes() -> None:
    Path("dragoman.toml").write_text("card_versions = 1.0\n")
    assert load_settings({}).protocol.card_versions == "1.0"
    with pytest.raises(
        SettingsError, match=r"""^--card-versions \(command line\): "2" must be 'all', '1.0' or '0.3'"""
    ):
        load_settings({"card_versions": "2"})


@pytest.mark.parametrize("url", ["", "https://jaeger.example/trace/{trace_id}", "http://logs?q={task_id}&t={trace_id}"])
def test_the_url_of_a_trace_is_a_template(url: str) -> None:
    assert check_trace_url(url) == url


@pytest.mark.parametrize(
    "url", ["jaeger/{trace_id}", "https://jaeger.example", "https://a/{agent}", "javascript:{task_id}"]
)
def test_other_templates_of_a_trace_are_rejected(url: str) -> None:
    with pytest.raises(ValueError, match=r"must be an HTTP URL with \{trace_id\} or \{task_id\}"):
        check_trace_url(url)
