"""When a failed turn or step runs again."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman import Retry


@pytest.mark.parametrize(
    ("options", "text"),
    [({"attempts": 0}, "attempts=0 must be 1 to 1000"), ({"backoff": -1}, "backoff=-1 must be seconds, 0 or more")],
)
def test_a_retry_is_checked(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        Retry(**options)


def test_the_delay_of_a_retry_doubles_up_to_its_limit() -> None:
    assert [Retry(backoff=1, max_backoff=3).delay(failures) for failures in (1, 2, 3, 9)] == [1, 2, 3, 3]
