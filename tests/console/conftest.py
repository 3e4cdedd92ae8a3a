"""One browser for all console tests; each test has its own page and server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.console import browser as chromium


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The DevTools address of a running browser."""
    program = chromium.find()
    if not program:
        pytest.skip("no Chromium here; `make browser` says how to get one")
    with chromium.launched(program, tmp_path_factory.mktemp("profile")) as address:
        yield address
