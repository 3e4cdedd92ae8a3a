"""Special-purpose ranges, embedded addresses and the allow-list."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.core.net.addresses import (
    ADDRESS_RANGES,
    AddressKind,
    AddressPolicy,
    AllowEntry,
    address_range,
    embedded_ipv4,
    ends_in_number,
    parse_allow_entry,
)

PUBLIC = ("8.8.8.8", "1.1.1.1", "100.63.255.255", "100.128.0.0", "172.15.0.1", "172.32.0.1", "192.167.0.1", "223.1.1.1")
PUBLIC_6 = ("2606:4700::1111", "2001:4860:4860::8888", "2a00::1", "2400::1", "::ffff:8.8.8.8", "64:ff9b::8.8.8.8")

INTERNAL = {
    "10.0.0.1": "private",
    "10.255.255.255": "private",
    "100.64.0.1": "CGNAT",
    "172.16.0.1": "private",
    "172.31.255.255": "private",
    "192.0.0.8": "IETF",
    "192.0.2.1": "documentation",
    "192.31.196.1": "AS112",
    "192.52.193.1": "AMT",
    "192.88.99.1": "6to4",
    "192.168.1.1": "private",
    "192.175.48.1": "AS112",
    "198.18.0.1": "benchmarking",
    "198.19.255.255": "benchmarking",
    "198.51.100.1": "documentation",
    "203.0.113.1": "documentation",
    "240.0.0.1": "reserved",
    "255.255.255.254": "reserved",
    "fc00::1": "unique local",
    "fdff::1": "unique local",
    "fec0::1": "site-local",
    "100::1": "discard-only",
    "100:0:0:1::1": "dummy",
    "2001:db8::1": "documentation",
    "3fff::1": "documentation",
    "2001:2::1": "benchmarking",
    "2001:10::1": "ORCHID",
    "2001:20::1": "ORCHID",
    "2001:30::1": "drone",
    "2001:1::1": "IETF",
    "2001:4:112::1": "IETF",
    "2620:4f:8000::1": "AS112",
    "5f00::1": "segment routing",
    "3ffe::1": "6bone",
    "4000::1": "reserved",
    "::8:0:0:1": "reserved",
    "::ffff:10.0.0.1": "private",
    "::ffff:192.168.0.1": "private",
    "64:ff9b::10.0.0.1": "private",
    "::8.8.8.8": "IPv4-compatible",
    "::ffff:0:8.8.8.8": "IPv4-translated",
    "64:ff9b:1::8.8.8.8": "NAT64",
    "2002:808:808::1": "6to4",
    "2001:0:808:808:0:0:f7f7:f7f7": "Teredo",
    "2a00::5efe:10.0.0.1": "private",
    "2a00::200:5efe:10.0.0.1": "private",
}

NEVER = (
    *("0.0.0.0", "0.1.2.3", "169.254.169.254", "169.254.170.2", "169.254.0.1", "224.0.0.1", "239.255.255.250"),
    *("255.255.255.255", "100.100.100.200", "192.0.0.192", "168.63.129.16"),
    *("::", "fe80::1", "febf::1", "ff02::1", "fd00:ec2::254", "fd20:ce::254"),
    *("::ffff:0.0.0.0", "::ffff:169.254.169.254", "64:ff9b::169.254.169.254", "64:ff9b::127.0.0.1", "64:ff9b::0.0.0.0"),
    *("2002:a9fe:a9fe::1", "2002:7f00:1::", "::127.0.0.1", "2001:0:7f00:1::", "2a00::5efe:127.0.0.1"),
)

LOOPBACK = ("127.0.0.1", "127.1.2.3", "127.255.255.255", "::1", "::ffff:127.0.0.1")

EVERYTHING = AddressPolicy(tuple(parse_allow_entry(entry) for entry in ("0.0.0.0/0", "::/0", "host.internal")))


@pytest.mark.parametrize("text", [*PUBLIC, *PUBLIC_6])
def test_public_addresses_may_be_called(text: str) -> None:
    assert AddressPolicy().problem(ip_address(text), 443) == ""


@pytest.mark.parametrize(("text", "name"), INTERNAL.items())
def test_special_addresses_need_an_entry_of_the_operator(text: str, name: str) -> None:
    problem = AddressPolicy(loopback=True).problem(ip_address(text), 443)
    assert name in problem
    assert "only if the operator allows them (outbound_allow)" in problem
    assert EVERYTHING.problem(ip_address(text), 443) == ""
    by_name = AddressPolicy((parse_allow_entry("host.internal"),))
    assert by_name.problem(ip_address(text), 443, "HOST.internal.") == ""
    assert by_name.problem(ip_address(text), 443, "other.internal") == problem


@pytest.mark.parametrize("text", NEVER)
def test_no_entry_allows_forbidden_addresses(text: str) -> None:
    assert AddressPolicy().problem(ip_address(text), 443, "host.internal")
    assert EVERYTHING.problem(ip_address(text), 443, "host.internal")
    exactly = AllowEntry("exactly", ip_network(text))
    assert AddressPolicy((*EVERYTHING.allow, exactly)).problem(ip_address(text), 443)


@pytest.mark.parametrize("text", LOOPBACK)
def test_loopback_may_be_called_only_by_a_private_server_or_by_an_entry_that_names_it(text: str) -> None:
    assert AddressPolicy(loopback=True).problem(ip_address(text), 80) == ""
    for allowed in (AddressPolicy(), EVERYTHING, AddressPolicy((parse_allow_entry("126.0.0.0/7"),))):
        problem = allowed.problem(ip_address(text), 80, "host.internal")
        assert problem.startswith("loopback addresses may be called only if the operator names them")
        assert "(outbound_allow)" in problem


@pytest.mark.parametrize(
    ("entry", "allowed", "refused"),
    [
        ("127.0.0.0/8", "127.1.2.3", "::1"),
        ("127.0.0.1", "127.0.0.1", "127.0.0.2"),
        ("127.0.0.1:80", "::ffff:127.0.0.1", "127.0.0.2"),
        ("[::1]:80", "::1", "127.0.0.1"),
        ("::1", "::1", "64:ff9b::127.0.0.1"),
        ("127.0.0.1", "127.0.0.1", "64:ff9b::127.0.0.1"),
        ("127.0.0.1", "127.0.0.1", "2002:7f00:1::"),
    ],
)
def test_an_entry_that_names_loopback_allows_that_address_alone(entry: str, allowed: str, refused: str) -> None:
    policy = AddressPolicy((parse_allow_entry(entry),))
    assert policy.problem(ip_address(allowed), 80) == ""
    assert policy.problem(ip_address(refused), 80)
    assert bool(policy.problem(ip_address(allowed), 81)) == entry.endswith(":80")


def test_an_entry_with_localhost_allows_loopback_under_that_name_alone() -> None:
    policy = AddressPolicy((parse_allow_entry("localhost:9000"),))
    assert policy.problem(ip_address("127.0.0.1"), 9000, "localhost.") == ""
    assert policy.problem(ip_address("::1"), 9000, "localhost") == ""
    assert policy.problem(ip_address("127.0.0.1"), 9001, "localhost")
    assert policy.problem(ip_address("127.0.0.1"), 9000, "127.0.0.1")
    assert policy.problem(ip_address("127.0.0.1"), 9000, "hooks.example")


def test_a_tunnel_address_is_checked_as_both_addresses() -> None:
    tunnels, inside = parse_allow_entry("2002::/16"), parse_allow_entry("10.0.0.0/8")
    address = ip_address("2002:a00:1::1")  # 10.0.0.1 by 6to4
    assert AddressPolicy((tunnels,)).problem(address, 80)
    assert AddressPolicy((inside,)).problem(address, 80)
    assert AddressPolicy((tunnels, inside)).problem(address, 80) == ""


def test_an_entry_with_a_port_allows_only_that_port() -> None:
    for entry, text, host in (
        ("10.0.0.5:8080", "10.0.0.5", "10.0.0.5"),
        ("[fd00::5]:8080", "fd00::5", "fd00::5"),
        ("hooks.internal:8080", "10.9.9.9", "hooks.internal"),
    ):
        allowed = AddressPolicy((parse_allow_entry(entry),))
        assert allowed.problem(ip_address(text), 8080, host) == ""
        assert allowed.problem(ip_address(text), 8081, host)


@pytest.mark.parametrize(
    "text",
    [
        *("", "10.0.0.0/33", "10.0.0.1/8", "a b", "host:0", "host:65536", "host:x", "http://host", "[fd00::5"),
        *("fd00::5:x", "*.internal", "127.1", "0x7f.1", "-host", "host..internal", "user@host", "a" * 64 + ".internal"),
    ],
)
def test_an_invalid_entry_is_rejected_with_the_form(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not NETWORK, ADDRESS, HOST, "):
        parse_allow_entry(text)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("169.254.169.254", "link-local addresses are never called; no entry can allow them"),
        ("169.254.0.0/16", "never called"),
        ("[fe80::1]:80", "never called"),
        ("100.100.100.200:80", "cloud metadata addresses are never called"),
    ],
)
def test_an_entry_without_effect_is_rejected(text: str, rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        parse_allow_entry(text)
    assert parse_allow_entry("100.64.0.0/10").network  # although one address inside it is forbidden


@pytest.mark.parametrize("text", ["1", "a.1", "0x7f", "a.0x", "127.0.0.1", "127.0.0.1.", "017700000001", "a.0X7F"])
def test_names_that_parsers_take_for_numbers(text: str) -> None:
    assert ends_in_number(text)
    assert not ends_in_number(f"{text}.example")


@given(st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=6)))
def test_addresses_that_the_standard_library_calls_special_are_special_here(address: IPv4Address | IPv6Address) -> None:
    if address.is_private or address.is_multicast or address.is_link_local or address.is_reserved:
        assert address_range(address).kind > AddressKind.PUBLIC or embedded_ipv4(address)


@given(st.data())
def test_addresses_that_embed_a_special_address_are_rejected(data: st.DataObject) -> None:
    special = [
        found.network for found in ADDRESS_RANGES if found.network.version == 4 and found.kind > AddressKind.PUBLIC
    ]
    network = data.draw(st.sampled_from(special))
    inside = data.draw(st.ip_addresses(v=4, network=network))
    form = data.draw(st.sampled_from(("::ffff:{0}", "::{0}", "64:ff9b::{0}", "64:ff9b:1::{0}", "2a00::5efe:{0}")))
    address = ip_address(form.format(inside))
    assert AddressPolicy().problem(address, 443), f"{address} carries {inside}"
