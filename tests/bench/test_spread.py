"""Medians and ranges, and how they are written."""

import pytest
from bench.spread import Spread, figure


def test_a_figure_is_its_median_and_its_range() -> None:
    assert Spread.of([3.0, 1.0, 10.0]) == Spread(3.0, 1.0, 10.0, 3)
    assert Spread.of([1.0, 2.0]) == Spread(1.5, 1.0, 2.0, 2)


def test_nothing_has_no_figure() -> None:
    assert Spread.of([]) is None


def test_one_value_stands_without_a_range() -> None:
    assert str(Spread.of([12.0])) == "12.0"
    assert str(Spread.of([1771.2, 1846.9, 1795.0])) == "1,795 [1,771..1,847]"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (12345.6, "12,346"),
        (123.4, "123"),
        (12.34, "12.3"),
        (1.234, "1.23"),
        (0.1234, "0.123"),
        (0, "0.00"),
        (-3.061, "-3.06"),
    ],
)
def test_three_digits_count(value: float, text: str) -> None:
    assert figure(value) == text
