"""`make endurance` for twelve seconds instead of ten minutes, against Dragoman only."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.endurance import following_client
from tests.endurance.run import follow_dragoman

pytestmark = pytest.mark.longest


@pytest.mark.timeout(300)
async def test_clients_of_every_binding_get_each_event_once_over_a_flaky_network(tmp_path: Path) -> None:
    lines = await follow_dragoman(12, 4, tmp_path)
    assert [line.split()[0] for line in lines] == list(following_client.DROP_MODES)
    assert all("as in the log" in line for line in lines)
