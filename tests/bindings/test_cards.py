"""Agent cards over HTTP, and the addresses in them."""

from __future__ import annotations

from ipaddress import ip_network
from typing import Any

import pytest
from tests.bindings.fake_service import FakeService, make_cards, over_http

from dragoman.bindings.cards import Cards, Origin
from dragoman.bindings.options import BoundAddress
from dragoman.core.errors import AgentNotFound
from dragoman.wire.cards.remote_card import GRPC_LISTING

LOOPBACK = (ip_network("127.0.0.0/8"),)
CARD = "/.well-known/agent-card.json"


async def card(cards: Cards, headers: dict[str, str], path: str = CARD) -> Any:
    async with over_http(FakeService(), cards) as client, client.get(path, headers=headers) as answer:
        assert answer.status == 200
        return await answer.json()


@pytest.mark.parametrize("path", [CARD, "/.well-known/agent.json"])
async def test_both_paths_return_the_card_of_1_0_and_0_3(path: str) -> None:
    returned = await card(make_cards(), {"Host": "agents.localhost:8080"}, path)
    assert (returned["name"], returned["url"]) == ("Echo", "http://agents.localhost:8080")
    assert {interface["protocolVersion"] for interface in returned["supportedInterfaces"]} == {"1.0", "0.3"}


async def test_the_card_of_another_agent_is_under_its_id() -> None:
    returned = await card(make_cards(), {"Host": "agents.localhost"}, f"/other{CARD}")
    assert (returned["name"], returned["url"]) == ("Other", "http://agents.localhost/other")


async def test_an_unknown_agent_has_no_card() -> None:
    async with over_http(FakeService()) as client, client.get(f"/unknown{CARD}") as answer:
        assert answer.status == 404


async def test_a_matching_etag_is_not_modified() -> None:
    async with over_http(FakeService()) as client:
        async with client.get(CARD) as answer:
            etag = answer.headers["ETag"]
            assert answer.headers["Vary"] == "A2A-Version, A2A-Extensions"
            assert "max-age" in answer.headers["Cache-Control"]
        for condition in (etag, f'"x", W/{etag}', "*"):
            async with client.get(CARD, headers={"If-None-Match": condition}) as answer:
                assert (answer.status, answer.headers["ETag"], await answer.read()) == (304, etag, b"")
        async with client.get(CARD, headers={"If-None-Match": '"x"'}) as answer:
            assert answer.status == 200
        async with client.head(CARD) as answer:
            assert (answer.status, answer.headers["ETag"], await answer.read()) == (200, etag, b"")


async def test_settings_take_precedence_over_request_headers() -> None:
    cards = make_cards(public_url="https://a.example", public_grpc="grpc.example:443", trusted_proxies=LOOPBACK)
    returned = await card(cards, {"Host": "else.test", "X-Forwarded-Host": "x.test"})
    urls = {interface["url"] for interface in returned["supportedInterfaces"]}
    assert urls == {"https://a.example", "grpc.example:443", "dns:///grpc.example:443"}


@pytest.mark.parametrize(
    ("headers", "url"),
    [
        ({"X-Forwarded-Proto": "https", "X-Forwarded-Host": "pub.test"}, "https://pub.test"),
        ({"X-Forwarded-Proto": "https", "X-Forwarded-Host": "spoofed.test, pub.test"}, "https://pub.test"),
        ({"X-Forwarded-Proto": "https", "X-Forwarded-Host": "pub.test", "X-Forwarded-Port": "443"}, "https://pub.test"),
        ({"X-Forwarded-Host": "pub.test", "X-Forwarded-Port": "8443"}, "http://pub.test:8443"),
        ({"X-Forwarded-Proto": "https", "X-Forwarded-Prefix": "/a2a/"}, "https://in.test/a2a"),
        ({"Forwarded": 'for=1.2.3.4;proto=https;host="pub.test:444"'}, "https://pub.test:444"),
    ],
)
async def test_addresses_are_those_forwarded_by_a_trusted_proxy(headers: dict[str, str], url: str) -> None:
    returned = await card(make_cards(trusted_proxies=LOOPBACK), {"Host": "in.test", **headers})
    assert returned["url"] == url


@pytest.mark.parametrize("trusted", [(), (ip_network("10.0.0.0/8"),)])
async def test_forwarded_headers_of_untrusted_callers_are_ignored(trusted: Any) -> None:
    headers = {"Host": "in.localhost", "X-Forwarded-Host": "evil.test", "Forwarded": "host=evil.test;proto=https"}
    assert (await card(make_cards(trusted_proxies=trusted), headers))["url"] == "http://in.localhost"


@pytest.mark.parametrize("host", ['a"b', "a/b", "a b", "a@b", "x" * 300])
async def test_an_invalid_forwarded_host_is_not_used(host: str) -> None:
    returned = await card(make_cards(trusted_proxies=LOOPBACK), {"Host": "in.localhost", "X-Forwarded-Host": host})
    assert returned["url"].startswith("http://127.0.0.1:")


def asking(url: str, name: str, *, forwarded: bool = False) -> Origin:
    """The origin of a caller that takes gRPC."""
    return Origin(url, name, forwarded, lists_grpc=True)


@pytest.mark.parametrize(
    ("bound", "origin", "address"),
    [
        (BoundAddress("127.0.0.1", 50051), asking("http://localhost:80", "localhost"), "127.0.0.1:50051"),
        (BoundAddress("0.0.0.0", 50051), asking("http://box.test:80", "box.test"), "box.test:50051"),
        (BoundAddress("::", 50051), asking("http://[::1]:80", "[::1]"), "[::1]:50051"),
        (BoundAddress("0.0.0.0", 50051), None, "localhost:50051"),
        (BoundAddress("127.0.0.1", 50051), asking("https://pub.test", "pub.test", forwarded=True), ""),
        (None, asking("http://box.test", "box.test"), ""),
        (BoundAddress("127.0.0.1", 50051), Origin("http://localhost:80", "localhost"), ""),
    ],
)
def test_the_grpc_address_is_one_that_the_caller_can_reach(
    bound: BoundAddress | None, origin: Origin | None, address: str
) -> None:
    cards = make_cards()
    cards.grpc = bound
    assert (f'"{address}"' in cards.document("echo", origin).body.decode()) == bool(address)
    assert ("GRPC" in cards.document("echo", origin).body.decode()) == bool(address)


async def test_a_card_has_addresses_of_its_own_origin_unless_its_reader_takes_others() -> None:
    """Clients refuse a card whose addresses have several origins, and the port of gRPC is one of its own."""
    cards = make_cards()
    async with over_http(FakeService(), cards) as client:
        cards.grpc = BoundAddress("127.0.0.1", 50051)
        async with client.get(CARD) as answer:
            usual = await answer.json()
        async with client.get(CARD, headers={"A2A-Extensions": f"urn:other, {GRPC_LISTING}"}) as answer:
            wider = await answer.json()
    urls = [one["url"] for one in (*usual["supportedInterfaces"], *usual["additionalInterfaces"])]
    assert {url.removesuffix("/v1") for url in urls} == {usual["url"]}
    assert "127.0.0.1:50051" in [one["url"] for one in wider["supportedInterfaces"]]


def test_cards_are_cached_by_address_up_to_a_limit() -> None:
    cards = make_cards()
    first = cards.document("echo", Origin("http://a.test", "a.test"))
    assert cards.document("echo", Origin("http://a.test", "a.test")) is first
    for number in range(1000):
        cards.document("echo", Origin(f"http://{number}.test", f"{number}.test"))
    assert len(cards._cache) <= 256
    assert cards.document("echo", Origin("http://a.test", "a.test")) is not first


def test_an_unknown_agent_is_not_found() -> None:
    with pytest.raises(AgentNotFound):
        make_cards().document("unknown", None)
