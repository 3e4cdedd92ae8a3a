"""As test_sessions.py, the other pages."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.docs.test_sessions import FIRST, SESSIONS, check, name

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.mark.parametrize("page", [page for page in SESSIONS if page not in FIRST], ids=name)
def test_what_the_page_shows_is_what_happens(page: Path, tmp_path: Path) -> None:
    check(page, tmp_path)
