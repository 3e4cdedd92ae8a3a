"""Tables, and the generated part of a page."""

from __future__ import annotations

import pytest
from bench.report.tables import NoMarkers, replace_generated, table

BEGIN, END = MARKERS = "<!-- begin -->", "<!-- end -->"


def test_table_columns_are_aligned() -> None:
    assert table([("a", "bcd"), ("efgh", "i")]) == "| a    | bcd |\n| ---- | --- |\n| efgh | i   |"


def test_only_the_text_between_the_markers_is_replaced() -> None:
    before = f"By hand.\n\n{BEGIN}\n\nold\n\n{END}\n\nMore by hand.\n"
    after = replace_generated(before, "new\n", MARKERS)
    assert after == before.replace("old", "new")
    assert replace_generated(after, "new", MARKERS) == after


@pytest.mark.parametrize("text", ["", BEGIN, f"{BEGIN}{BEGIN}{END}"])
def test_a_page_without_both_markers_is_rejected(text: str) -> None:
    with pytest.raises(NoMarkers, match="each once"):
        replace_generated(text, "new", MARKERS)
