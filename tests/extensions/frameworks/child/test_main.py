"""Frames over a pair of pipes, and heartbeats during silence."""

from __future__ import annotations

import asyncio
import io
import json
import os
import queue
from collections.abc import Iterator
from typing import Any, BinaryIO

import pytest

from dragoman.extensions.frameworks.child.main import ExecutorChild, FramePipe
from dragoman.extensions.frameworks.child.turn import ExecutorTurn


class Pipes:
    """A FramePipe and the other ends of its pipes."""

    def __init__(self) -> None:
        read_end, write_end = os.pipe()
        self.output: BinaryIO = os.fdopen(read_end, "rb")
        child_read_end, child_write_end = os.pipe()
        self.input: BinaryIO = os.fdopen(child_write_end, "wb", buffering=0)
        self.frame_pipe = FramePipe(os.fdopen(child_read_end, "rb"), os.fdopen(write_end, "wb"))

    def receive(self) -> dict[str, Any]:
        return dict(json.loads(self.output.readline()))

    def close(self) -> None:
        self.frame_pipe.close(5)
        for end in (self.input, self.output, self.frame_pipe._incoming, self.frame_pipe._outgoing):
            end.close()


@pytest.fixture
def pipes() -> Iterator[Pipes]:
    pipes = Pipes()
    yield pipes
    pipes.close()


def test_no_heartbeat_is_sent_before_the_first_frame(pipes: Pipes) -> None:
    pipes.frame_pipe.heartbeat_interval = 0.01
    os.set_blocking(pipes.output.fileno(), False)
    pipes.frame_pipe._writer.join(0.1)
    assert pipes.output.read() is None
    os.set_blocking(pipes.output.fileno(), True)
    pipes.frame_pipe.send(hello={"name": "x"})
    assert pipes.receive() == {"hello": {"name": "x"}}
    assert pipes.receive() == {"heartbeat": {}}


def test_frames_are_sent_in_order_with_any_characters(pipes: Pipes) -> None:
    assert pipes.frame_pipe.send(text="ünï\n\u2028") > len('{"text":""}')
    pipes.frame_pipe.send(number=2)
    assert pipes.receive() == {"text": "ünï\n\u2028"}
    assert pipes.receive() == {"number": 2}


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "\ud800", object()])
def test_a_frame_without_a_json_form_raises_and_sends_nothing(pipes: Pipes, value: object) -> None:
    with pytest.raises((ValueError, TypeError)):
        pipes.frame_pipe.send(value=value)
    pipes.frame_pipe.send(next=1)
    assert pipes.receive() == {"next": 1}


def test_frames_are_received_until_the_other_end_closes(pipes: Pipes) -> None:
    received: queue.Queue[dict[str, Any] | None] = queue.Queue()
    pipes.frame_pipe.start_reading(received.put, lambda: received.put(None))
    pipes.input.write(b'{"welcome":{}}\n{"committed":{"number":"1"}}\n')
    assert received.get(timeout=60) == {"welcome": {}}
    assert received.get(timeout=60) == {"committed": {"number": "1"}}
    pipes.input.close()
    assert received.get(timeout=60) is None


def test_a_closed_reader_ends_the_writer_without_an_error() -> None:
    class BrokenWriter(io.RawIOBase):
        def writable(self) -> bool:
            return True

        def write(self, data: object) -> int:
            raise BrokenPipeError

    frame_pipe = FramePipe(io.BytesIO(), BrokenWriter())  # type: ignore[arg-type]
    frame_pipe.send(x=1)
    frame_pipe.close(5)
    assert not frame_pipe._writer.is_alive()


class ExitingExecutor:
    """Raises its error in execute() and in cancel(), except for turn `fine`."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    async def execute(self, turn: ExecutorTurn) -> None:
        if turn.id != "fine":
            raise self._error
        await turn.status("TASK_STATE_COMPLETED")

    async def cancel(self, turn: ExecutorTurn) -> None:
        raise self._error


@pytest.mark.parametrize(
    ("error", "text"), [(SystemExit(3), "SystemExit: 3"), (KeyboardInterrupt(), "KeyboardInterrupt")]
)
async def test_an_executor_that_exits_ends_only_its_turn(pipes: Pipes, error: BaseException, text: str) -> None:
    def write(frame: dict[str, Any]) -> None:
        pipes.input.write(json.dumps(frame).encode() + b"\n")

    async def receive(kind: str) -> Any:
        while kind not in (frame := await asyncio.to_thread(pipes.receive)):
            pass
        return frame[kind]

    serving = asyncio.create_task(ExecutorChild(ExitingExecutor(error), pipes.frame_pipe).run({"id": "a"}))
    await receive("hello")
    write({"welcome": {"maxFrameBytes": "10000", "heartbeat": "60s"}})
    for turn in ("broken", "fine"):
        write({"turnStart": {"turnId": turn, "taskId": turn, "agentId": "a", "showErrorTexts": True}})
        status = (await receive("turnEnd"))["status"]
        if turn == "broken":
            assert (status["state"], status["message"]["parts"]) == ("TASK_STATE_FAILED", [{"text": text}])
        else:
            assert status["state"] == "TASK_STATE_COMPLETED"
    pipes.input.close()
    await serving


async def test_an_error_that_is_hidden_from_callers_is_logged_with_the_id_that_they_see(
    pipes: Pipes, caplog: pytest.LogCaptureFixture
) -> None:
    serving = asyncio.create_task(ExecutorChild(ExitingExecutor(OSError("db.internal")), pipes.frame_pipe).run({}))
    while "hello" not in await asyncio.to_thread(pipes.receive):
        pass
    frames: tuple[dict[str, Any], ...] = (
        {"welcome": {"maxFrameBytes": "10000", "heartbeat": "60s"}},
        {"turnStart": {"turnId": "broken", "taskId": "broken", "agentId": "a"}},
    )
    pipes.input.write(b"".join(json.dumps(frame).encode() + b"\n" for frame in frames))
    while "turnEnd" not in (frame := await asyncio.to_thread(pipes.receive)):
        pass
    [part] = frame["turnEnd"]["status"]["message"]["parts"]
    [record] = [one for one in caplog.records if "the executor failed" in one.getMessage()]
    assert "db.internal" not in part["text"]
    assert part["text"].rstrip(".").rpartition(" ")[2] in record.getMessage()
    assert record.exc_info is not None
    pipes.input.close()
    await serving
