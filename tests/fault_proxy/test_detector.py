"""Where requests and answers begin, in HTTP/1, in HTTP/2, and as a guess in TLS."""

from __future__ import annotations

import pytest

from dragoman.fault_proxy.detector import ExchangeDetector

GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS, HEADERS, DATA = 4, 1, 0


def frame(kind: int, body: bytes = b"") -> bytes:
    return len(body).to_bytes(3, "big") + bytes([kind, 0]) + (1).to_bytes(4, "big") + body


def record(kind: int, body: bytes = b"xyz") -> bytes:
    return bytes([kind, 3, 3]) + len(body).to_bytes(2, "big") + body


def request_started(sight: ExchangeDetector) -> bool:
    return sight.request_started


def test_in_http_1_they_begin_with_the_first_bytes() -> None:
    sight = ExchangeDetector()
    sight.observe_client(b"POST / HTTP/1.1\r\n")
    assert request_started(sight)
    assert sight.observe_server(b"HTTP/1.1 200 OK\r\n") == 0


def test_what_a_server_says_unasked_is_no_answer() -> None:
    sight = ExchangeDetector()
    assert sight.observe_server(b"220 ready\r\n") is None
    sight.observe_client(b"HELO\r\n")
    assert sight.observe_server(b"250 OK\r\n") == 0


@pytest.mark.parametrize("step", [1, 5, 24, 1000])
def test_greetings_of_http_2_are_no_request_and_no_answer(step: int) -> None:
    sight = ExchangeDetector()
    hello = GREETING + frame(SETTINGS, b"s" * 18)
    assert sight.observe_server(frame(SETTINGS, b"s" * 6)) is None  # servers need not wait for the client's
    for at in range(0, len(hello), step):
        sight.observe_client(hello[at : at + step])
    assert not request_started(sight)
    assert sight.observe_server(frame(SETTINGS)) is None
    asking = frame(HEADERS, b"h" * 30) + frame(DATA, b"d" * 300)
    for at in range(0, len(asking), step):
        sight.observe_client(asking[at : at + step])
    assert request_started(sight)
    before = frame(8, b"w" * 4)
    assert sight.observe_server(before + frame(HEADERS, b"h" * 9)) == len(before)
    assert sight.observe_server(frame(DATA, b"more")) == 0


@pytest.mark.parametrize("finished", [(20, 23), (20, 22)], ids=["TLS 1.3", "TLS 1.2"])
def test_the_handshake_of_tls_is_no_request(finished: tuple[int, int]) -> None:
    sight = ExchangeDetector()
    sight.observe_client(record(22, b"h" * 200))
    assert sight.observe_server(record(22) + record(20) + record(23, b"c" * 900)) is None
    sight.observe_client(b"".join(map(record, finished)))
    assert not request_started(sight)
    sight.observe_client(record(23, b"POST"))
    assert request_started(sight)
    assert sight.observe_server(record(23, b"200")) == 0
