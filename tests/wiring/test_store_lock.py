"""The lock of a store: one process at a time, and its details for others."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dragoman.wiring import infra


def test_a_second_process_gets_an_error_with_the_holder(tmp_path: Path) -> None:
    store = tmp_path / "tasks.db"
    with infra.hold_store(store) as held:
        held.publish(http="http://127.0.0.1:8080", grpc="127.0.0.1:50051")
        with pytest.raises(infra.StoreInUseError) as caught, infra.hold_store(store):
            pass
    text = str(caught.value)
    assert f"process {os.getpid()} has held it since 2" in text
    assert text.endswith("serving http http://127.0.0.1:8080 and grpc 127.0.0.1:50051")


def test_the_error_says_that_the_holder_is_starting(tmp_path: Path) -> None:
    store = tmp_path / "tasks.db"
    with (
        infra.hold_store(store),
        pytest.raises(infra.StoreInUseError, match="and is starting"),
        infra.hold_store(store),
    ):
        pass


def test_a_released_store_can_be_locked(tmp_path: Path) -> None:
    for _ in range(2):
        with infra.hold_store(tmp_path / "tasks.db"):
            pass


def test_each_store_has_its_own_lock(tmp_path: Path) -> None:
    with infra.hold_store(tmp_path / "a.db"), infra.hold_store(tmp_path / "b.db"):
        pass


HOLDER = """
import sys, os
from pathlib import Path
from dragoman.wiring import infra
with infra.hold_store(Path(sys.argv[1])):
    if sys.argv[2] == "fork":
        reader, writer = os.pipe()
        if os.fork() == 0:
            os.write(writer, b"!")  # the child runs, so it has closed the lock
            sys.stdin.read()
            os._exit(0)
        os.read(reader, 1)
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("how", ["alone", "fork"])
def test_a_killed_process_releases_its_lock_while_its_child_lives(tmp_path: Path, how: str) -> None:
    store = tmp_path / "tasks.db"
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(store), how], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(infra.StoreInUseError, match=f"process {holder.pid} "), infra.hold_store(store):
            pass
        holder.kill()
        holder.wait()
        with infra.hold_store(store):
            pass
