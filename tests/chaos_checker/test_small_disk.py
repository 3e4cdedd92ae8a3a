"""A small disk: full while a test wants it, and its files stay afterwards."""

from __future__ import annotations

from errno import ENOSPC
from pathlib import Path

import pytest
from tests.chaos.faults.small_disk import SmallDisk


def test_a_full_disk_has_no_room_until_it_is_freed_and_leaves_its_files(tmp_path: Path) -> None:
    disk = SmallDisk(tmp_path / "disk")
    if disk.missing:
        pytest.skip(f"a small disk is missing: {disk.missing}")
    file = disk.folder / "file"
    try:
        disk.fill()
        with pytest.raises(OSError, match="No space left") as caught:
            file.write_bytes(b"x")
        assert caught.value.errno == ENOSPC
        disk.free()
        file.write_bytes(b"x")
    finally:
        disk.remove()
    assert file.read_bytes() == b"x"
    assert [path.name for path in tmp_path.iterdir()] == ["disk"]
