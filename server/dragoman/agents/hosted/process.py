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

START: Final = Path(__file__).parents[2] / "guest" / "start.py"

KEPT: Final = 20
"""Lines of its stderr that are remembered, to tell why it ended."""

SORRY: Final = "dragoman: error: "
"""What its last line begins with when the target gives no executor."""

OURS: Final = "DRAGOMAN_"
"""What variables begin with that it is not given: where the store is, and with which password, is not its business."""

STOPPING: Final = 5.0
"""Seconds that it gets to end by itself."""


class Pipe(Protocol):
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

    async def end(self) -> str:
        """Ends it: asked first, then made to. Gives why it ended, as far as that is known."""
        ...


class GuestProcess:
    """Implements `Pipe`."""

    def __init__(self, process: Process, agent: str) -> None:
        self._process = process
        self._agent = agent
        self._said: deque[str] = deque(maxlen=KEPT)
        self._listening = asyncio.create_task(self._listen(), name=f"stderr of {agent}")

    @classmethod
    async def start(cls, python: str, target: str, agent: str, frame_bytes: int) -> GuestProcess:
        """Starts it. `frame_bytes`: the largest frame that is taken of it. Raises OSError."""
        process = await asyncio.create_subprocess_exec(
            python,
            "-u",
            str(START),
            target,
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            # Much of JSON is escapes at worst; a frame that is too large is told from one that cannot be read at all.
            limit=8 * frame_bytes + 65536,
            # Ctrl-C at a terminal is for the server alone, which then lets running turns end.
            start_new_session=True,
            env={name: value for name, value in os.environ.items() if not name.startswith(OURS)},
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

    async def end(self) -> str:
        process = self._process
        assert process.stdin is not None
        process.stdin.close()
        try:
            async with asyncio.timeout(STOPPING):
                code = await process.wait()
        except TimeoutError:
            self._kill()
            code = await process.wait()
        with contextlib.suppress(TimeoutError):  # what it started may hold on to its stderr
            async with asyncio.timeout(0.2):
                await asyncio.wait([self._listening])
        self._listening.cancel()
        return self._why(code)

    def _kill(self) -> None:
        """Ends it now, with whatever it started."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if hasattr(os, "killpg"):
                os.killpg(self._process.pid, signal.SIGKILL)
            else:
                self._process.kill()

    def _why(self, code: int) -> str:
        last = self._said[-1] if self._said else "it said nothing"
        if last.startswith(SORRY):
            return last.removeprefix(SORRY)
        how = f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"
        return f"{how}; its last line: {last}"

    async def _listen(self) -> None:
        """Puts what it writes to stderr, and prints, into our log."""
        stream = self._process.stderr
        assert stream is not None
        rest = b""
        while chunk := await stream.read(65536):
            *lines, rest = (rest + chunk).split(b"\n")
            rest = rest[-65536:]
            for line in lines:
                self._tell(line)
        self._tell(rest)

    def _tell(self, line: bytes) -> None:
        if text := line.decode(errors="replace").rstrip():
            self._said.append(text)
            if not text.startswith(SORRY):  # whoever started it says it
                log.info("%s", text, extra={"agent": self._agent})
