"""docs/reference/protocol/shapes.md is what the codecs write."""

from __future__ import annotations

import pytest
from tests.docs import shapes_page


def test_the_page_is_what_the_server_writes() -> None:
    text = shapes_page.PAGE.read_text("utf-8")
    assert text == shapes_page.page(text), "docs/reference/protocol/shapes.md is old: make protocol-pages"


@pytest.mark.parametrize("dialect", shapes_page.TITLES)
def test_a_dialect_says_a_task_in_words_of_its_own(dialect: str) -> None:
    others = [shapes_page.task(other) for other in shapes_page.TITLES if other != dialect]
    assert shapes_page.task(dialect) not in others
