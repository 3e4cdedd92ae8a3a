"""Random bytes, many at once."""

from __future__ import annotations

import os
import threading
import uuid

from dragoman.entropy import AT_ONCE, SIZE, Entropy


def test_ids_are_random_uuids_of_version_4() -> None:
    made = uuid.UUID(Entropy().uuid())
    assert (made.version, made.variant) == (4, uuid.RFC_4122)
    assert uuid.UUID(Entropy().hex()).version == 4


def test_the_system_is_asked_once_for_many() -> None:
    asked = []

    def source(size: int) -> bytes:
        asked.append(size)
        return os.urandom(size)

    entropy = Entropy(source)
    taken = {entropy.take() for _ in range(AT_ONCE)}
    assert len(taken) == AT_ONCE
    assert {len(one) for one in taken} == {SIZE}
    assert asked == [SIZE * AT_ONCE]


def test_no_two_threads_are_given_the_same() -> None:
    entropy, taken = Entropy(), list[bytes]()

    def take() -> None:
        taken.extend(entropy.take() for _ in range(5_000))

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(taken)) == len(taken) == 20_000


def test_a_forked_process_takes_nothing_that_its_parent_has() -> None:
    entropy = Entropy()
    entropy.take()
    read, write = os.pipe()
    if (child := os.fork()) == 0:
        os.write(write, entropy.take())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(read, SIZE) not in {entropy.take() for _ in range(AT_ONCE)}
    os.close(read)
    os.close(write)
