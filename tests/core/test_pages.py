from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.core import pages
from dragoman.core.errors import InvalidParams
from dragoman.core.names import Owner
from dragoman.core.pages import Query

QUERY = Query(Owner("default", "anonymous"), "echo")
KEYS = st.tuples(st.integers(0, 2**60), st.binary(min_size=16, max_size=16))


@given(KEYS)
def test_a_token_leads_back_to_where_it_was_made(last: tuple[int, bytes]) -> None:
    assert pages.after(QUERY, pages.token(QUERY, last)) == last


@pytest.mark.parametrize(
    "other",
    [
        Query(Owner("default", "somebody"), "echo"),
        Query(Owner("other", "anonymous"), "echo"),
        Query(QUERY.owner, "another"),
        Query(QUERY.owner, "echo", context="c"),
        Query(QUERY.owner, "echo", state=3),
        Query(QUERY.owner, "echo", since=1),
    ],
)
def test_a_token_is_worthless_for_another_query(other: Query) -> None:
    with pytest.raises(InvalidParams, match="other filters"):
        pages.after(other, pages.token(QUERY, (1, bytes(16))))


@given(st.text(max_size=60))
def test_any_other_text_is_refused_by_name(text: str) -> None:
    with pytest.raises(InvalidParams, match="pageToken"):
        pages.after(QUERY, text)


def test_page_size_and_history_may_change_from_page_to_page() -> None:
    token = pages.token(QUERY, (1, bytes(16)))
    assert pages.after(Query(QUERY.owner, "echo", size=7, history=0), token) == (1, bytes(16))
