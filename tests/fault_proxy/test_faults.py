"""Which connections are dropped and when: by a seed, connection by connection."""

from __future__ import annotations

import pytest

from dragoman.fault_proxy import DropLimit, DropPoint
from dragoman.fault_proxy.proxy import FIRST_REQUEST_POINTS, Fault, choose_fault


def faults(count: int, *, seed: int = 0, every: int = 3, after: DropLimit | None = None) -> list[Fault]:
    return [choose_fault(number, seed=seed, every=every, after=after) for number in range(1, count + 1)]


def test_every_third_connection_is_dropped_and_no_other() -> None:
    hit = [number for number, fault in enumerate(faults(30), start=1) if fault.point]
    assert hit == list(range(3, 31, 3))


def test_all_three_moments_come_up() -> None:
    assert {fault.point for fault in faults(90)} == {*FIRST_REQUEST_POINTS, None}


def test_a_seed_chooses_the_same_again_and_another_one_otherwise() -> None:
    assert faults(90, seed=4) == faults(90, seed=4)
    assert faults(90, seed=4) != faults(90, seed=5)


def test_other_connections_are_dropped_around_the_limit() -> None:
    for number, fault in enumerate(faults(300, after=DropLimit(seconds=10)), start=1):
        if number % 3:
            assert fault.point is DropPoint.AFTER_LIMIT
            assert 5 <= fault.limit.seconds <= 15
            assert fault.limit.response_bytes == 0
        else:
            assert fault.point in FIRST_REQUEST_POINTS


def test_none_is_dropped_with_0() -> None:
    assert {fault.point for fault in faults(30, every=0)} == {None}


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("5s", DropLimit(seconds=5)),
        ("1.5s", DropLimit(seconds=1.5)),
        ("500ms", DropLimit(seconds=0.5)),
        ("2m", DropLimit(seconds=120)),
        ("100B", DropLimit(response_bytes=100)),
        ("64KiB", DropLimit(response_bytes=65536)),
        ("1MiB", DropLimit(response_bytes=1048576)),
    ],
)
def test_a_span_is_a_time_or_a_size(text: str, span: DropLimit) -> None:
    assert DropLimit.parse(text) == span


@pytest.mark.parametrize("text", ["", "5", "0s", "-1s", "5 h", "KiB", "1e3s", "5s5s", "٣s"])
def test_what_is_no_span_is_refused_with_the_form(text: str) -> None:
    with pytest.raises(ValueError, match="a positive number with ms, s, m, B, KiB or MiB"):
        DropLimit.parse(text)
