from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.core.errors import InvalidParams
from dragoman.core.names import Owner
from dragoman.core.task import cursors
from dragoman.core.task.cursors import TaskQuery

QUERY = TaskQuery(Owner("default", "anonymous"), "echo")
KEYS = st.tuples(st.integers(0, 2**60), st.binary(min_size=16, max_size=16))


@given(KEYS)
def test_a_token_decodes_to_its_position(last: tuple[int, bytes]) -> None:
    assert cursors.parse_page_token(QUERY, cursors.page_token(QUERY, last)) == last


@pytest.mark.parametrize(
    "other",
    [
        TaskQuery(Owner("default", "bob"), "echo"),
        TaskQuery(Owner("other", "anonymous"), "echo"),
        TaskQuery(QUERY.owner, "another"),
        TaskQuery(QUERY.owner, "echo", context="c"),
        TaskQuery(QUERY.owner, "echo", state=3),
        TaskQuery(QUERY.owner, "echo", updated_since=1),
    ],
)
def test_a_token_of_another_query_is_rejected(other: TaskQuery) -> None:
    with pytest.raises(InvalidParams, match="other filters"):
        cursors.parse_page_token(other, cursors.page_token(QUERY, (1, bytes(16))))


@given(st.text(max_size=60))
def test_any_other_text_is_rejected_with_the_field(text: str) -> None:
    with pytest.raises(InvalidParams, match="pageToken"):
        cursors.parse_page_token(QUERY, text)


def test_page_size_and_history_may_change_from_page_to_page() -> None:
    token = cursors.page_token(QUERY, (1, bytes(16)))
    assert cursors.parse_page_token(TaskQuery(QUERY.owner, "echo", page_size=7, history=0), token) == (1, bytes(16))
