"""Frames over a pair of pipes, and heartbeats during silence."""

from __future__ import annotations

import io
import json
import os
import queue
from collections.abc import Iterator
from typing import Any, BinaryIO

import pytest

from dragoman.executor_child.main import FramePipe


class Pipes:
    """A FramePipe and the other ends of its pipes."""

    def __init__(self) -> None:
        there, here = os.pipe()
        self.hears: BinaryIO = os.fdopen(there, "rb")
        back, self._back = os.pipe()
        self.tells: BinaryIO = os.fdopen(self._back, "wb", buffering=0)
        self.line = FramePipe(os.fdopen(back, "rb"), os.fdopen(here, "wb"))

    def receive(self) -> dict[str, Any]:
        return dict(json.loads(self.hears.readline()))

    def close(self) -> None:
        self.line.close(5)
        for end in (self.tells, self.hears, self.line._incoming, self.line._outgoing):
            end.close()


@pytest.fixture
def pipes() -> Iterator[Pipes]:
    pipes = Pipes()
    yield pipes
    pipes.close()


def test_the_first_frame_is_what_it_says_first_however_long_that_takes(pipes: Pipes) -> None:
    pipes.line.heartbeat_interval = 0.01
    os.set_blocking(pipes.hears.fileno(), False)
    pipes.line._writer.join(0.1)
    assert pipes.hears.read() is None
    os.set_blocking(pipes.hears.fileno(), True)
    pipes.line.send(hello={"name": "x"})
    assert pipes.receive() == {"hello": {"name": "x"}}
    assert pipes.receive() == {"heartbeat": {}}


def test_frames_go_out_in_order_with_any_characters(pipes: Pipes) -> None:
    assert pipes.line.send(text="ünï\n\u2028") > len('{"text":""}')
    pipes.line.send(number=2)
    assert pipes.receive() == {"text": "ünï\n\u2028"}
    assert pipes.receive() == {"number": 2}


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "\ud800", object()])
def test_what_json_cannot_say_is_the_callers_error_and_sends_nothing(pipes: Pipes, value: object) -> None:
    with pytest.raises((ValueError, TypeError)):
        pipes.line.send(value=value)
    pipes.line.send(next=1)
    assert pipes.receive() == {"next": 1}


def test_what_comes_in_is_heard_until_the_other_end_closes(pipes: Pipes) -> None:
    received: queue.Queue[dict[str, Any] | None] = queue.Queue()
    pipes.line.start_reading(received.put, lambda: received.put(None))
    pipes.tells.write(b'{"welcome":{}}\n{"committed":{"number":"1"}}\n')
    assert received.get(timeout=60) == {"welcome": {}}
    assert received.get(timeout=60) == {"committed": {"number": "1"}}
    pipes.tells.close()
    assert received.get(timeout=60) is None


def test_a_reader_that_is_gone_ends_it_quietly() -> None:
    class BrokenWriter(io.RawIOBase):
        def writable(self) -> bool:
            return True

        def write(self, data: object) -> int:
            raise BrokenPipeError

    line = FramePipe(io.BytesIO(), BrokenWriter())  # type: ignore[arg-type]
    line.send(x=1)
    line.close(5)
    assert not line._writer.is_alive()
