"""The process of an executor: how it is started, what goes in and out, and how it is ended."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from asyncio.subprocess import PIPE, Process
from collections import deque
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final, Protocol

import orjson
from google.protobuf import json_format

from dragoman.core.errors import InvalidParams
from dragoman_pb import _pool
from dragoman_pb.dragoman.worker.v1 import worker_pb2 as wk

log = logging.getLogger("dragoman.executor")

CHILD_SCRIPT: Final = Path(__file__).parents[2] / "executor_child" / "start.py"

STDERR_TAIL_LINES: Final = 20
"""Lines of its stderr that are remembered, to tell why it ended."""

ERROR_LINE_PREFIX: Final = "dragoman: error: "
"""What its last line begins with when the target gives no executor."""

PRIVATE_ENV_PREFIX: Final = "DRAGOMAN_"
"""What variables begin with that it is not given: where the store is, and with which password, is not its business."""

EXECUTOR_EXIT_TIMEOUT: Final = 5.0
"""Seconds that it gets to end by itself."""


class FrameChannel(Protocol):
    """Frames from and to one process."""

    @property
    def name(self) -> str:
        """The process, for people."""
        ...

    def frames(self) -> AsyncIterator[wk.ConnectRequest]:
        """What it says, until it says no more. Raises InvalidParams for a line that is no frame."""
        ...

    async def send(self, frame: wk.ConnectResponse) -> None:
        """Tells it something. Raises ValueError for what JSON cannot say, OSError when it is gone."""
        ...

    async def stop(self) -> str:
        """Ends it: asked first, then made to. Gives why it ended, as far as that is known."""
        ...


class ExecutorProcess:
    """Implements `FrameChannel`."""

    def __init__(self, process: Process, agent: str) -> None:
        self._process = process
        self._agent = agent
        self._stderr_tail: deque[str] = deque(maxlen=STDERR_TAIL_LINES)
        self._stderr_task = asyncio.create_task(self._read_stderr(), name=f"stderr of {agent}")

    @classmethod
    async def start(cls, python: str, target: str, agent: str, frame_bytes: int) -> ExecutorProcess:
        """Starts it. `frame_bytes`: the largest frame that is taken of it. Raises OSError."""
        process = await asyncio.create_subprocess_exec(
            python,
            "-u",
            str(CHILD_SCRIPT),
            target,
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            # Much of JSON is escapes at worst; a frame that is too large is told from one that cannot be read at all.
            limit=8 * frame_bytes + 65536,
            # Ctrl-C at a terminal is for the server alone, which then lets running turns end.
            start_new_session=True,
            env={name: value for name, value in os.environ.items() if not name.startswith(PRIVATE_ENV_PREFIX)},
        )
        return cls(process, agent)

    @property
    def name(self) -> str:
        return f"pid {self._process.pid}"

    async def frames(self) -> AsyncIterator[wk.ConnectRequest]:
        assert self._process.stdout is not None
        while True:
            try:
                line = await self._process.stdout.readline()
            except ValueError as error:
                raise InvalidParams("a line of the process is longer than any frame may be") from error
            if not line.endswith(b"\n"):
                return
            try:
                said = orjson.loads(line)
                yield json_format.ParseDict(
                    said, wk.ConnectRequest(), ignore_unknown_fields=True, descriptor_pool=_pool.POOL
                )
            except (orjson.JSONDecodeError, json_format.ParseError) as error:
                raise InvalidParams(f"a line of the process is no frame: {error}") from error

    async def send(self, frame: wk.ConnectResponse) -> None:
        assert self._process.stdin is not None
        try:
            said = json_format.MessageToDict(frame, descriptor_pool=_pool.POOL)
        except json_format.Error as error:
            raise ValueError(str(error)) from error
        self._process.stdin.write(orjson.dumps(said) + b"\n")
        await self._process.stdin.drain()

    async def stop(self) -> str:
        process = self._process
        assert process.stdin is not None
        process.stdin.close()
        try:
            async with asyncio.timeout(EXECUTOR_EXIT_TIMEOUT):
                code = await process.wait()
        except TimeoutError:
            self._kill()
            code = await process.wait()
        with contextlib.suppress(TimeoutError):  # what it started may hold on to its stderr
            async with asyncio.timeout(0.2):
                await asyncio.wait([self._stderr_task])
        self._stderr_task.cancel()
        return self._exit_reason(code)

    def _kill(self) -> None:
        """Ends it now, with whatever it started."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if hasattr(os, "killpg"):
                os.killpg(self._process.pid, signal.SIGKILL)
            else:
                self._process.kill()

    def _exit_reason(self, code: int) -> str:
        last = self._stderr_tail[-1] if self._stderr_tail else "it said nothing"
        if last.startswith(ERROR_LINE_PREFIX):
            return last.removeprefix(ERROR_LINE_PREFIX)
        how = f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"
        return f"{how}; its last line: {last}"

    async def _read_stderr(self) -> None:
        """Puts what it writes to stderr, and prints, into our log."""
        stream = self._process.stderr
        assert stream is not None
        rest = b""
        while chunk := await stream.read(65536):
            *lines, rest = (rest + chunk).split(b"\n")
            rest = rest[-65536:]
            for line in lines:
                self._log_line(line)
        self._log_line(rest)

    def _log_line(self, line: bytes) -> None:
        if text := line.decode(errors="replace").rstrip():
            self._stderr_tail.append(text)
            if not text.startswith(ERROR_LINE_PREFIX):  # whoever started it says it
                log.info("%s", text, extra={"agent": self._agent})
