"""Random ids from a pool."""

from __future__ import annotations

import os
import threading
import time
import uuid

import pytest
from tests.other_systems import loaded_again

from dragoman import ids
from dragoman.ids import IDS_PER_REFILL, RANDOM_BYTES_PER_ID, IdGenerator


def test_ids_are_random_uuids_of_version_4() -> None:
    created_uuid = uuid.UUID(IdGenerator().uuid())
    assert (created_uuid.version, created_uuid.variant) == (4, uuid.RFC_4122)
    assert uuid.UUID(IdGenerator().hex()).version == 4


def test_one_system_call_serves_many_ids() -> None:
    numbers = []

    def source(size: int) -> bytes:
        numbers.append(size)
        return os.urandom(size)

    id_generator = IdGenerator(source)
    taken = {id_generator.random_bytes() for _ in range(IDS_PER_REFILL)}
    assert len(taken) == IDS_PER_REFILL
    assert {len(one) for one in taken} == {RANDOM_BYTES_PER_ID}
    assert numbers == [RANDOM_BYTES_PER_ID * IDS_PER_REFILL]


def test_threads_get_distinct_ids() -> None:
    id_generator, taken = IdGenerator(), list[bytes]()

    def take() -> None:
        taken.extend(id_generator.random_bytes() for _ in range(5_000))

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(taken)) == len(taken) == 20_000


def test_a_forked_process_gets_other_ids_than_its_parent() -> None:
    id_generator = IdGenerator()
    id_generator.random_bytes()
    read, write = os.pipe()
    if (child := os.fork()) == 0:
        os.write(write, id_generator.random_bytes())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(read, RANDOM_BYTES_PER_ID) not in {id_generator.random_bytes() for _ in range(IDS_PER_REFILL)}
    os.close(read)
    os.close(write)


def test_a_simulation_takes_ids_from_a_source_that_repeats_them() -> None:
    ids = IdGenerator(lambda size: bytes(range(256)) * (size // 256))
    first = ids.random_bytes()
    before = ids.use(lambda size: b"\x01" * size)
    assert (first, ids.random_bytes()) == (bytes(range(16)), b"\x01" * 16)
    ids.use(before)
    assert ids.random_bytes() == first


def test_time_is_measured_without_a_clock_that_counts_suspended_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(time, "CLOCK_BOOTTIME", raising=False)
    elapsed = loaded_again(ids).elapsed_clock
    before = time.clock_gettime(time.CLOCK_MONOTONIC)
    assert before <= elapsed() <= time.clock_gettime(time.CLOCK_MONOTONIC)
    clock = ids.SteadyClock(lambda: 1_000.0, elapsed)
    with clock.follow() as step:
        assert step == 0
