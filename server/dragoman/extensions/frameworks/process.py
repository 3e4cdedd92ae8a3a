"""The child process of an executor: start, frames over its pipes, and stop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from asyncio.subprocess import PIPE, Process
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final, Protocol

import orjson
from google.protobuf import json_format

from dragoman.core.errors import InvalidParams
from dragoman.extensions.frameworks.sources import PRIVATE_ENV_PREFIX
from dragoman.wire.json import protojson, remote_values
from dragoman_pb import _pool
from dragoman_pb.dragoman.worker.v1 import worker_pb2 as wk

log = logging.getLogger("dragoman.executor")

CHILD_SCRIPT: Final = Path(__file__).parent / "child" / "start.py"

STDERR_TAIL_LINES: Final = 20
"""Last lines of its stderr to keep, for the reason of its exit."""

ERROR_LINE_PREFIX: Final = "dragoman: error: "
"""Prefix of its last line if the target is not a usable executor."""

LOG_LINE_PREFIX: Final = "dragoman: log: "
"""Prefix of its log records, each of which is a JSON object (`extensions/frameworks/child/logs.py`)."""

PASSED_ENV: Final = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "LANG", "LANGUAGE", "LC_*", "TZ", "TMPDIR", "XDG_*"),
    *("PYTHON*", "VIRTUAL_ENV", "LD_LIBRARY_PATH", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE"),
    *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy"),
)
"""Environment variables that every executor gets. The others of a server may be passwords of its own: PGPASSWORD."""

EXECUTOR_EXIT_TIMEOUT: Final = 3.0
"""Seconds that the process gets to exit by itself."""


_FRAME_JSON: Final = protojson.compile(wk.ConnectResponse, protojson.JsonDialect("dragoman.worker.v1"))
"""Integers in metadata and data are written without `.0`: agents read them as int, as from their SDK's own server."""


def passed_environment(environment: Mapping[str, str], variables: Sequence[str]) -> dict[str, str]:
    """The part of an environment that an executor gets. `variables`: names and patterns besides `PASSED_ENV`."""
    patterns = (*PASSED_ENV, *variables)
    return {
        name: value
        for name, value in environment.items()
        if not name.upper().startswith(PRIVATE_ENV_PREFIX) and any(fnmatchcase(name, pattern) for pattern in patterns)
    }


class FrameChannel(Protocol):
    """Sends frames to one process and receives frames from it."""

    @property
    def name(self) -> str:
        """A name of the process for logs."""
        ...

    def frames(self) -> AsyncIterator[wk.ConnectRequest]:
        """Yields frames until its stdout ends. Raises InvalidParams for a line that is not a frame."""
        ...

    async def send(self, frame: wk.ConnectResponse) -> None:
        """Sends a frame. Raises ValueError if it has no JSON form, OSError if the process has exited."""
        ...

    async def stop(self) -> str:
        """Stops the process, by force after a timeout. Returns the reason of its exit as far as it is known."""
        ...


class ExecutorProcess:
    """A child process and its pipes. Implements `FrameChannel`."""

    def __init__(self, process: Process, agent: str) -> None:
        self._process = process
        self._agent = agent
        self._stderr_tail: deque[str] = deque(maxlen=STDERR_TAIL_LINES)
        self._stderr_task = asyncio.create_task(self._read_stderr(), name=f"stderr of {agent}")

    @classmethod
    async def start(
        cls, python: str, target: str, agent: str, frame_bytes: int, variables: Sequence[str] = ()
    ) -> ExecutorProcess:
        """Starts the process. `frame_bytes`: the largest frame accepted from it. Raises OSError.

        `variables`: names and patterns of environment variables to pass on besides `PASSED_ENV`.
        """
        process = await asyncio.create_subprocess_exec(
            python,
            "-u",
            str(CHILD_SCRIPT),
            target,
            *(["--debug"] if log.isEnabledFor(logging.DEBUG) else []),
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            # JSON escapes can multiply the size. An oversized frame must still be readable, to fail only its turn.
            limit=8 * frame_bytes + 65536,
            # Ctrl-C in a terminal must reach the server only, which then lets running turns end.
            start_new_session=True,
            env=passed_environment(os.environ, variables),
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
                raise InvalidParams("the process sent a line that is longer than the largest frame") from error
            if not line.endswith(b"\n"):
                return
            try:
                content = remote_values.loads(line)
                yield json_format.ParseDict(
                    content, wk.ConnectRequest(), ignore_unknown_fields=True, descriptor_pool=_pool.POOL
                )
            except (ValueError, json_format.ParseError) as error:
                raise InvalidParams(f"the process sent a line that is not a frame: {error}") from error

    async def send(self, frame: wk.ConnectResponse) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(_FRAME_JSON.encode(frame) + b"\n")
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
        with contextlib.suppress(TimeoutError):  # its own child processes may hold its stderr open
            async with asyncio.timeout(0.2):
                await asyncio.wait([self._stderr_task])
        self._stderr_task.cancel()
        last_line = self._stderr_tail[-1] if self._stderr_tail else "(none)"
        if last_line.startswith(ERROR_LINE_PREFIX):
            return last_line.removeprefix(ERROR_LINE_PREFIX)
        exit_status = f"killed by signal {-code}" if code < 0 else f"exited with code {code}"
        return f"{exit_status}; last line of its output: {last_line}"

    def _kill(self) -> None:
        """Kills the process and its child processes."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if hasattr(os, "killpg"):
                os.killpg(self._process.pid, signal.SIGKILL)
            else:
                self._process.kill()

    async def _read_stderr(self) -> None:
        """Copies its stderr, which includes its printed output, to our log."""
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
        text = line.decode(errors="replace").rstrip()
        record = parse_log_line(text, self._agent)
        if record is not None:
            self._stderr_tail.append(record.exc_text.splitlines()[-1] if record.exc_text else record.getMessage())
            logger = logging.getLogger(record.name)
            if logger.isEnabledFor(record.levelno):
                logger.handle(record)
        elif text:
            self._stderr_tail.append(text)
            if not text.startswith(ERROR_LINE_PREFIX):  # the supervisor reports it
                log.info("%s", text, extra={"agent": self._agent})


def parse_log_line(line: str, agent: str) -> logging.LogRecord | None:
    """The log record in a line on stderr; None for a line that was printed."""
    if not line.startswith(LOG_LINE_PREFIX):
        return None
    try:
        fields = orjson.loads(line[len(LOG_LINE_PREFIX) :])
        name, level, message = str(fields["logger"]), int(fields["level"]), str(fields["message"])
        exception, task = str(fields.get("exception", "")), str(fields.get("task", ""))
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError, AttributeError):
        return None
    extra = {"agent": agent, **({"task": task} if task else {})}
    record = log.makeRecord(name, level, "", 0, "%s", (message,), None, extra=extra)
    record.exc_text = exception or None
    return record
