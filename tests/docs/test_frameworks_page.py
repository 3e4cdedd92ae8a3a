"""The table of frameworks is that of their contract suite."""

from __future__ import annotations

from tests.frameworks.suite import CELLS, FRAMEWORKS, PAGE, UNSUPPORTED, page_with_table


def test_the_page_has_the_table_of_the_suite() -> None:
    page = PAGE.read_text("utf-8")
    assert page_with_table(page) == page, "python -m tests.frameworks.suite writes it"


def test_what_is_unsupported_is_a_cell_of_a_framework() -> None:
    assert {cell for _, cell in UNSUPPORTED} <= CELLS.keys()
    assert {name for name, _ in UNSUPPORTED} <= {one.name for one in FRAMEWORKS}
