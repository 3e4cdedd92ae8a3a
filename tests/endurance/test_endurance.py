"""The ten minutes of `make patience` in twelve seconds, against our server alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.endurance import following_client
from tests.endurance.run import ours


@pytest.mark.timeout(300)
async def test_callers_over_every_binding_get_every_event_once_through_a_bad_network(tmp_path: Path) -> None:
    lines = await ours(12, 4, tmp_path)
    assert [line.split()[0] for line in lines] == list(following_client.HOWS)
    assert all("as in the log" in line for line in lines)
