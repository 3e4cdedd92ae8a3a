"""The lock of a store: one process at a time, and its details for others."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from tests.other_systems import loaded_again

from dragoman.wiring import store_lock
from dragoman.wiring.store_lock import StoreFileError, StoreInUseError, hold_store


def test_a_second_process_gets_an_error_with_the_holder(tmp_path: Path) -> None:
    store = tmp_path / "tasks.db"
    with hold_store(store) as held:
        held.publish(http="http://127.0.0.1:8080", grpc="127.0.0.1:50051")
        with pytest.raises(StoreInUseError) as caught, hold_store(store):
            pass
    text = str(caught.value)
    assert f"process {os.getpid()} has held it since 2" in text
    assert text.endswith("serving http http://127.0.0.1:8080 and grpc 127.0.0.1:50051")


def test_the_error_says_that_the_holder_is_starting(tmp_path: Path) -> None:
    store = tmp_path / "tasks.db"
    with (
        hold_store(store),
        pytest.raises(StoreInUseError, match="and is starting"),
        hold_store(store),
    ):
        pass


def test_a_released_store_can_be_locked(tmp_path: Path) -> None:
    for _ in range(2):
        with hold_store(tmp_path / "tasks.db"):
            pass


def test_each_store_has_its_own_lock(tmp_path: Path) -> None:
    with hold_store(tmp_path / "a.db"), hold_store(tmp_path / "b.db"):
        pass


@pytest.mark.parametrize("make_name", [Path.symlink_to, Path.hardlink_to])
def test_the_lock_holds_through_every_name_of_the_file(tmp_path: Path, make_name: Callable[[Path, Path], None]) -> None:
    store, other = tmp_path / "tasks.db", tmp_path / "other" / "name.db"
    other.parent.mkdir()
    with hold_store(store):
        make_name(other, store)
        with pytest.raises(StoreInUseError, match=re.escape(f"{other} is in use")), hold_store(other):
            pass


def test_the_lock_does_not_depend_on_the_file_beside_the_store(tmp_path: Path) -> None:
    store = tmp_path / "tasks.db"
    with hold_store(store) as held:
        (tmp_path / "tasks.db-lock").unlink()
        with pytest.raises(StoreInUseError, match="in use by another process"), hold_store(store):
            pass
        held.publish(http="http://127.0.0.1:8080")
        with pytest.raises(StoreInUseError, match="8080"), hold_store(store):
            pass


def test_sqlite_neither_waits_for_the_lock_nor_releases_it(tmp_path: Path) -> None:
    store = tmp_path / "tasks.db"
    with hold_store(store):
        for _ in range(2):
            with closing(sqlite3.connect(store, timeout=0)) as connection:
                connection.execute("PRAGMA journal_mode = WAL")
                connection.execute("CREATE TABLE IF NOT EXISTS t (n)")
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        os.close(os.open(store, os.O_RDONLY))
        with pytest.raises(StoreInUseError), hold_store(store):
            pass


def test_a_second_attempt_in_the_same_process_leaves_the_locks_of_sqlite_alone(tmp_path: Path) -> None:
    store = tmp_path / "tasks.db"
    with hold_store(store), closing(sqlite3.connect(store)) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        with pytest.raises(StoreInUseError), hold_store(store):
            pass
        write = f"import sqlite3; sqlite3.connect({str(store)!r}, timeout=0).execute('CREATE TABLE t (n)')"
        other = subprocess.run([sys.executable, "-c", write], capture_output=True, text=True, check=False)
        assert "database is locked" in other.stderr


def test_a_file_with_several_names_is_refused_with_a_remedy(tmp_path: Path) -> None:
    store, other = tmp_path / "tasks.db", tmp_path / "other.db"
    with hold_store(store):
        pass
    other.hardlink_to(store)
    for name in (store, other):
        with pytest.raises(StoreFileError, match=r"one of 2 names .*find -samefile"), hold_store(name):
            pass
    other.unlink()
    with hold_store(store):
        pass


def test_the_holder_learns_that_the_database_file_is_missing(tmp_path: Path) -> None:
    store = tmp_path / "tasks.db"
    with hold_store(store) as held:
        assert not held.was_lost
    with hold_store(store) as held:
        assert not held.was_lost
    store.unlink()
    with hold_store(store) as held:
        assert held.was_lost


def test_a_store_that_was_served_and_is_empty_is_refused(tmp_path: Path) -> None:
    store = tmp_path / "tasks.db"
    with hold_store(store):
        assert store.stat().st_size > 0, "a start that is killed now is repeated"
    with store.open("wb"):
        pass
    refused = pytest.raises(
        StoreFileError, match=r"tasks\.db was served before, and is empty now: .*Move it away .*dragoman restore"
    )
    with refused, hold_store(store):
        pass
    store.unlink()
    with hold_store(store):
        pass


def test_an_empty_file_that_was_never_served_is_a_new_store(tmp_path: Path) -> None:
    (tmp_path / "tasks.db").touch()
    with hold_store(tmp_path / "tasks.db") as held:
        assert not held.was_lost


HOLDER = """
import sys, os
from pathlib import Path
from dragoman.wiring.store_lock import hold_store
with hold_store(Path(sys.argv[1])):
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
        with pytest.raises(StoreInUseError, match=f"process {holder.pid} "), hold_store(store):
            pass
        holder.kill()
        holder.wait()
        with hold_store(store):
            pass


def test_a_python_that_does_not_name_the_lock_takes_the_same_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(fcntl, "F_OFD_SETLK", raising=False)
    copy = loaded_again(store_lock)
    store = tmp_path / "tasks.db"
    with copy.hold_store(store), pytest.raises(StoreInUseError), hold_store(store):
        pass
    with hold_store(store), pytest.raises(copy.StoreInUseError), copy.hold_store(store):
        pass


class FlockOfMacOS(ctypes.Structure):
    """`struct flock` in xnu's bsd/sys/fcntl.h."""

    _fields_ = (
        ("l_start", ctypes.c_int64), ("l_len", ctypes.c_int64), ("l_pid", ctypes.c_int32),
        ("l_type", ctypes.c_short), ("l_whence", ctypes.c_short),
    )  # fmt: skip


def test_macos_is_asked_for_the_same_lock_in_its_own_form(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    requests: list[tuple[int, bytes]] = []
    monkeypatch.setattr(sys, "platform", "darwin")
    copy = loaded_again(store_lock)
    monkeypatch.setattr(fcntl, "fcntl", lambda _, command, request: requests.append((command, request)))
    with copy.hold_store(tmp_path / "tasks.db"):
        pass
    ((command, request),) = requests
    lock = FlockOfMacOS.from_buffer_copy(request)
    assert (command, len(request)) == (90, ctypes.sizeof(FlockOfMacOS))  # F_OFD_SETLK there
    assert (lock.l_start, lock.l_len, lock.l_pid) == (1 << 62, 1, 0)
    assert (lock.l_type, lock.l_whence) == (fcntl.F_WRLCK, os.SEEK_SET)


def test_a_system_without_such_locks_is_not_mistaken_for_another_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(*_: object) -> None:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    monkeypatch.setattr(fcntl, "fcntl", unknown)
    with pytest.raises(OSError, match="Invalid argument"), hold_store(tmp_path / "tasks.db"):
        pass
