"""Strict parsing of outbound URLs, and the operator's rules."""

from __future__ import annotations

import re
from ipaddress import ip_address
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st
from yarl import URL

from dragoman.core.net.addresses import AddressPolicy, parse_allow_entry
from dragoman.core.net.targets import UNSAFE_PORTS, OutboundPolicy, parse_host_port, parse_target


def test_a_url_is_parsed_into_its_parts() -> None:
    target = parse_target("HTTPS://Hooks.Example:8443/a%20b/../c?x=1&y=%2F#part")
    assert (target.scheme, target.host, target.port) == ("https", "hooks.example", 8443)
    assert (target.path, target.query, target.address) == ("/a%20b/../c", "x=1&y=%2F", None)
    assert target.host_port == "hooks.example:8443"
    assert (parse_target("http://a.example").port, parse_target("http://a.example").path) == (80, "/")
    assert parse_target("https://a.example?q").query == "q"
    assert parse_target("https://[2A00::0:1]/").host == "2a00::1"
    assert parse_target("https://[2a00::1]:8/").host_port == "[2a00::1]:8"
    assert parse_target("https://8.8.8.8/").address == ip_address("8.8.8.8")


BAD = {
    "": "must begin with https:// or http://",
    "hooks.example/x": "must begin with",
    "//hooks.example": "must begin with",
    "ftp://hooks.example": "must begin with",
    "file:///etc/passwd": "must begin with",
    "gopher://hooks.example:70/": "must begin with",
    "javascript:alert(1)": "must begin with",
    "https:/hooks.example": "must begin with",
    "https:hooks.example": "must begin with",
    "https://": "a host is labels",
    "https:///path": "a host is labels",
    "https://?q": "a host is labels",
    "https://user@hooks.example/": "must not contain a user name",
    "https://user:secret@hooks.example/": "must not contain a user name",
    "https://hooks.example@127.0.0.1/": "must not contain a user name",
    "https://hooks.example\\@127.0.0.1/": "without backslash",
    "https:\\\\127.0.0.1\\": "without backslash",
    "https://hooks.example\t/": "visible ASCII",
    "https://hooks.exa\nmple/": "visible ASCII",
    " https://hooks.example": "visible ASCII",
    "https://hooks.example/ü": "visible ASCII",
    "https://bücher.example": "xn--",
    "https://\uff11\uff12\uff17.0.0.1/": "visible ASCII",
    "https://①②⑦.0.0.1/": "visible ASCII",
    "https://127。0。0。1/": "visible ASCII",
    "https://hooks.example\x00.internal/": "visible ASCII",
    "https://%31%32%37.0.0.1/": "four decimal numbers",
    "https://hooks%2eexample/": "a host is labels",
    "https://hooks.example:/": "a port is 1 to 65535",
    "https://hooks.example:0/": "a port is 1 to 65535",
    "https://hooks.example:65536/": "a port is 1 to 65535",
    "https://hooks.example:999999999/": "after :// must come HOST or HOST:PORT",
    "https://hooks.example:+80/": "after :// must come HOST or HOST:PORT",
    "https://hooks.example:80:81/": "after :// must come HOST or HOST:PORT",
    "https://::1/": "after :// must come HOST or HOST:PORT",
    "https://[::1/": "after :// must come HOST or HOST:PORT",
    "https://[::1].example/": "after :// must come HOST or HOST:PORT",
    "https://[hooks.example]/": "not an IPv6 address",
    "https://[127.0.0.1]/": "not an IPv6 address",
    "https://[v1.fe80]/": "not an IPv6 address",
    "https://[fe80::1%25eth0]/": "must not contain a zone",
    "https://[fe80::1%eth0]/": "must not contain a zone",
    "https://2130706433/": "four decimal numbers",
    "https://0x7f000001/": "four decimal numbers",
    "https://0x7f.0.0.1/": "four decimal numbers",
    "https://017700000001/": "four decimal numbers",
    "https://0177.0.0.1/": "four decimal numbers",
    "https://127.0.0.01/": "four decimal numbers",
    "https://127.1/": "four decimal numbers",
    "https://127.0.1/": "four decimal numbers",
    "https://127.0.0.0x1/": "four decimal numbers",
    "https://127.0.0.1./": "four decimal numbers",
    "https://127.0.0.1.1/": "four decimal numbers",
    "https://256.0.0.1/": "four decimal numbers",
    "https://0/": "four decimal numbers",
    "https://hooks.123/": "four decimal numbers",
    "https://-hooks.example/": "a host is labels",
    "https://hooks..example/": "a host is labels",
    "https://.example/": "a host is labels",
    "https://hooks.example../": "a host is labels",
    f"https://{'a' * 64}.example/": "a host is labels",
    f"https://{'a.' * 127}example/": "a host is labels",
    f"https://hooks.example/{'a' * 2048}": "at most 2048",
    "https://127.0.0.1,hooks.example/": "a host is labels",
    "https://127.0.0.1;hooks.example/": "a host is labels",
    "https://127.0.0.1&hooks.example/": "a host is labels",
}


@pytest.mark.parametrize(("url", "rule"), BAD.items())
def test_ambiguous_urls_are_rejected_with_the_rule(url: str, rule: str) -> None:
    with pytest.raises(ValueError, match=re.escape(rule)) as caught:
        parse_target(url)
    assert "secret" not in str(caught.value)


def test_a_fragment_does_not_affect_the_host() -> None:
    assert parse_target("https://hooks.example#@127.0.0.1/").host == "hooks.example"


@given(st.text(alphabet="abc.019xX:@[]/?#%-_\\ f", max_size=30), st.sampled_from(("http://", "https://")))
def test_the_connecting_library_parses_a_target_alike(rest: str, scheme: str) -> None:
    try:
        target = parse_target(scheme + rest)
    except ValueError:
        return
    url = URL(scheme + rest)
    assert (url.scheme, url.port) == (target.scheme, target.port)
    assert (url.host or "").removesuffix(".") == target.host.removesuffix(".")


def test_https_can_be_required() -> None:
    assert OutboundPolicy().problem(parse_target("http://hooks.example/")) == ""
    rules = OutboundPolicy(https_only=True)
    assert rules.problem(parse_target("https://hooks.example/")) == ""
    assert "only https://" in rules.problem(parse_target("http://hooks.example/"))


@pytest.mark.parametrize("port", sorted(UNSAFE_PORTS))
def test_ports_of_other_protocols_are_rejected(port: int) -> None:
    assert f"port {port} belongs to another protocol" in OutboundPolicy().problem(
        parse_target(f"http://hooks.example:{port}/")
    )


def test_an_entry_with_a_port_allows_that_port_for_that_host() -> None:
    allowed = AddressPolicy((parse_allow_entry("hooks.example:6379"), parse_allow_entry("8.8.8.8:25")))
    for rules in (OutboundPolicy(allowed), OutboundPolicy(allowed, ports=(443,))):
        assert rules.problem(parse_target("http://hooks.example:6379/")) == ""
        assert rules.problem(parse_target("http://8.8.8.8:25/")) == ""
        assert rules.problem(parse_target("http://other.example:6379/"))
        assert rules.problem(parse_target("http://hooks.example:25/"))


def test_ports_can_be_restricted() -> None:
    rules = OutboundPolicy(ports=(8443, 443))
    assert rules.problem(parse_target("https://hooks.example/")) == ""
    assert "port 80 is not allowed; allowed are 443, 8443" in rules.problem(parse_target("http://hooks.example/"))


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST", "localhost.", "a.localhost", "localhost.localdomain"])
def test_names_of_this_machine_are_allowed_only_where_loopback_is(host: str) -> None:
    target = parse_target(f"http://{host}:8080/")
    for entry in ("10.0.0.0/8", "127.0.0.1:8081", "0.0.0.0/0"):
        assert "outbound_allow" in OutboundPolicy(AddressPolicy((parse_allow_entry(entry),))).problem(target)
    assert OutboundPolicy(AddressPolicy(loopback=True)).problem(target) == ""
    for entry in ("127.0.0.1", "127.0.0.1:8080", "[::1]:8080"):
        assert OutboundPolicy(AddressPolicy((parse_allow_entry(entry),))).problem(target) == ""


# Host headers ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "host", "port", "is_local"),
    [
        ("localhost", "localhost", None, True),
        ("LOCALHOST.:8080", "localhost", 8080, True),
        ("demo.localhost:1", "demo.localhost", 1, True),
        ("127.9.8.7:65535", "127.9.8.7", 65535, True),
        ("[::1]:8080", "::1", 8080, True),
        ("[0:0::1]", "::1", None, True),
        ("[::ffff:127.0.0.1]", str(ip_address("::ffff:7f00:1")), None, True),
        ("[::ffff:10.0.0.1]", str(ip_address("::ffff:a00:1")), None, False),
        ("[64:ff9b::7f00:1]", "64:ff9b::7f00:1", None, False),
        ("0.0.0.0", "0.0.0.0", None, False),
        ("192.168.1.7", "192.168.1.7", None, False),
        ("evil.example", "evil.example", None, False),
        ("localhost.evil.example", "localhost.evil.example", None, False),
        ("notlocalhost", "notlocalhost", None, False),
    ],
)
def test_host_headers_are_read(text: str, host: str, port: int | None, is_local: bool) -> None:
    parsed = parse_host_port(text)
    assert (parsed.host, parsed.port, parsed.is_local) == (host, port, is_local)


@pytest.mark.parametrize(
    "text",
    [
        *("", ":80", "evil.123", "[evil.com]", "evil.com:80@127.0.0.1", "user@localhost", "localhost:", "localhost:0"),
        *(
            "localhost:65536",
            "localhost:+1",
            "localhost:1:2",
            "localhost/",
            "localhost,evil.com",
            "127.1",
            "127.0.0.1.",
        ),
        *(
            "0x7f.0.0.1",
            "0177.0.0.1",
            "2130706433",
            "::1",
            "[::1",
            "[::1%lo]",
            "[127.0.0.1]",
            "local host",
            " localhost",
        ),
        *("localhost\n", "localhost..", ".localhost", "localhost\x00", "l\u00f6calhost", "localhost:\u0661"),
    ],
)
def test_anything_but_host_and_port_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_host_port(text)


_GRAMMAR = re.compile(
    r"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_](?:[A-Za-z0-9_.-]*[A-Za-z0-9_])?\.?)(?::[0-9]{1,5})?", re.ASCII
)
"""Every accepted text has this form; which labels, addresses and ports are valid is the parser's business."""
_PIECES = (
    "localhost",
    ".localhost",
    "127.0.0.1",
    "[::1]",
    "[",
    "]",
    ":",
    "@",
    "/",
    ".",
    "evil.com",
    "8080",
    "%",
    "1",
    "\n",
)


@given(st.one_of(st.text(max_size=20), st.lists(st.sampled_from(_PIECES), max_size=6).map("".join)))
def test_accepted_host_headers_have_the_strict_form_and_mean_the_same_to_the_standard_library(text: str) -> None:
    try:
        parsed = parse_host_port(text)
    except ValueError:
        return
    assert _GRAMMAR.fullmatch(text)
    split = urlsplit(f"//{text}")
    assert (split.username, split.password, split.path, split.query, split.fragment) == (None, None, "", "", "")
    assert split.port == parsed.port
    if parsed.address is not None:
        assert ip_address(split.hostname or "") == parsed.address
    else:
        assert (split.hostname or "").removesuffix(".") == parsed.host
    if parsed.is_local:
        assert parsed.host.endswith("localhost") or parsed.address is not None
