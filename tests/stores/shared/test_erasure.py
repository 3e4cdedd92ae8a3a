"""Limits of one step of an erasure, and receipts."""

from __future__ import annotations

import pytest

from dragoman.core.task.maintenance import ErasureCounts
from dragoman.stores.shared.erasure import count_fitting_rows, receipt_from_row


@pytest.mark.parametrize(
    ("sizes", "limit", "result"),
    [
        ([], 10, (0, 0, 0)),
        ([50], 10, (1, 2, 50)),  # a row larger than the limit is deleted alone
        ([4, 4, 4, 4], 10, (3, 6, 12)),
        ([5, 5, 5], 10, (2, 4, 10)),
        ([1, 1], 10, (2, 4, 2)),
    ],
)
def test_a_step_ends_with_the_row_that_reaches_its_limit(
    sizes: list[int], limit: int, result: tuple[int, int, int]
) -> None:
    assert count_fitting_rows([(2, size) for size in sizes], limit) == result


def test_a_receipt_is_read_with_its_six_counts() -> None:
    receipt = receipt_from_row((3, "purge", "context", 10, 20, 1, 2, 3, 4, 5, 6, "digest"))
    assert receipt.counts == ErasureCounts(1, 2, 3, 4, 5, 6)
    assert (receipt.number, receipt.began, receipt.ended, receipt.digest) == (3, 10, 20, "digest")
