"""Which connections are dropped and when: by a seed, connection by connection."""

from __future__ import annotations

import pytest

from dragoman.flaky import Moment, Span
from dragoman.flaky.faults import AT_ONCE, Fault, fault_of


def faults(count: int, *, seed: int = 0, every: int = 3, after: Span | None = None) -> list[Fault]:
    return [fault_of(number, seed=seed, every=every, after=after) for number in range(1, count + 1)]


def test_every_third_connection_is_dropped_and_no_other() -> None:
    hit = [number for number, fault in enumerate(faults(30), start=1) if fault.moment]
    assert hit == list(range(3, 31, 3))


def test_all_three_moments_come_up() -> None:
    assert {fault.moment for fault in faults(90)} == {*AT_ONCE, None}


def test_a_seed_chooses_the_same_again_and_another_one_otherwise() -> None:
    assert faults(90, seed=4) == faults(90, seed=4)
    assert faults(90, seed=4) != faults(90, seed=5)


def test_the_others_are_dropped_after_about_what_is_said() -> None:
    for number, fault in enumerate(faults(300, after=Span(seconds=10)), start=1):
        if number % 3:
            assert fault.moment is Moment.LATER
            assert 5 <= fault.span.seconds <= 15
            assert fault.span.size == 0
        else:
            assert fault.moment in AT_ONCE


def test_none_is_dropped_with_0() -> None:
    assert {fault.moment for fault in faults(30, every=0)} == {None}


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("5s", Span(seconds=5)),
        ("1.5s", Span(seconds=1.5)),
        ("500ms", Span(seconds=0.5)),
        ("2m", Span(seconds=120)),
        ("100B", Span(size=100)),
        ("64KiB", Span(size=65536)),
        ("1MiB", Span(size=1048576)),
    ],
)
def test_a_span_is_a_time_or_a_size(text: str, span: Span) -> None:
    assert Span.parse(text) == span


@pytest.mark.parametrize("text", ["", "5", "0s", "-1s", "5 h", "KiB", "1e3s", "5s5s", "٣s"])
def test_what_is_no_span_is_refused_with_the_form(text: str) -> None:
    with pytest.raises(ValueError, match="a positive number with ms, s, m, B, KiB or MiB"):
        Span.parse(text)
