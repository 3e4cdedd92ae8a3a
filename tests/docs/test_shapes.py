"""docs/reference/protocol/shapes.md matches the codecs."""

from __future__ import annotations

import pytest
from tests.docs import shapes_page


def test_the_page_is_up_to_date() -> None:
    text = shapes_page.PAGE.read_text("utf-8")
    assert text == shapes_page.page(text), "docs/reference/protocol/shapes.md is old: make protocol-pages"


@pytest.mark.parametrize("dialect", shapes_page.TITLES)
def test_each_dialect_has_its_own_task_shape(dialect: str) -> None:
    others = [shapes_page.task(other) for other in shapes_page.TITLES if other != dialect]
    assert shapes_page.task(dialect) not in others
