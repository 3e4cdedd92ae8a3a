"""Checks of a foreign client: one line of output per check, and an exit status. Uses only the standard library.

A check that covers operations of the table in docs/reference/clients.md prints a line for each of them as well:
`op`, the client, the transport, the operation, and `ok` or `failed`, with tabs between.
"""

from __future__ import annotations

import argparse
import asyncio
import inspect
import json
import random
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from typing import IO, Any


def arguments() -> argparse.Namespace:
    """Addresses of the server: `.http`, `.grpc`; `.project`: the project's folder; `.servers`: how many there are."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--http", required=True)
    parser.add_argument("--grpc", required=True)
    parser.add_argument("--project", required=True)
    parser.add_argument("--servers", type=int, default=1)
    return parser.parse_args()


class Checks:
    """Collects checks. Their names, with spaces for underscores, are printed."""

    def __init__(self, package: str = "") -> None:
        """`package` is the client in the table, with the version installed; without one there are no rows."""
        self._client = f"{package} {_version(package)}" if package else ""
        self._checks: list[tuple[Callable[..., Any], tuple[str, ...]]] = []

    def __call__(self, check: Callable[..., Any]) -> Callable[..., Any]:
        return self.of()(check)

    def of(self, *operations: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Registers a check that covers these operations of the table."""

        def collect(check: Callable[..., Any]) -> Callable[..., Any]:
            self._checks.append((check, operations))
            return check

        return collect

    def extend(self, *others: Checks) -> Checks:
        """Adds the checks of others, and returns itself."""
        for other in others:
            self._checks += other._checks
        return self

    async def run(self, title: str, *given: Any, row: str = "") -> bool:
        """Runs every check with `given`, prints a line for each, and returns whether all passed.

        `row` is the transport in the table, by default the title.
        """
        good = True
        for check, operations in self._checks:
            sentence = f"{title}: {check.__name__.replace('_', ' ')}"
            failed = await _failure(check, given)
            good &= not failed
            print(f"FAIL  {sentence}: {failed}" if failed else f"ok  {sentence}")
            for operation in operations if self._client else ():
                print("op", self._client, row or title, operation, "failed" if failed else "ok", sep="\t", flush=True)
        return good


def _version(package: str) -> str:
    """The version of an installed package; one with a scope is a package of Node in this folder."""
    if not package.startswith("@"):
        return version(package)
    return json.loads(Path("node_modules", package, "package.json").read_text("utf-8"))["version"]


async def _failure(check: Callable[..., Any], given: tuple[Any, ...]) -> str:
    """Returns the problem; empty for a passed check."""
    try:
        async with asyncio.timeout(60):
            found = check(*given)
            if inspect.isawaitable(found):
                await found
    except Exception as error:
        while isinstance(error, ExceptionGroup):
            error = error.exceptions[0]
        where = traceback.extract_tb(error.__traceback__)[-1]
        text = " ".join(str(error).splitlines())
        return f"{type(error).__name__}: {text} (line {where.lineno}: {where.line})"
    return ""


def free_port() -> int:
    """A free port outside the range from which the system assigns ports, so that it is free after a crash, too."""
    while True:
        port = random.randrange(10_000, 32_000)
        with suppress(OSError), socket.socket() as one:
            one.bind(("127.0.0.1", port))
            return port


class Server:
    """A separate server with a store of its own, which a check can kill and start again."""

    def __init__(self, project: str, folder: str, *options: str, lists_grpc: bool = True) -> None:
        """`lists_grpc`: its cards list gRPC, as with `--public-grpc`."""
        self._command = [f"{project}/.venv/bin/python", "-m", "dragoman", "serve", "--log-format", "json", *options]
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self.addresses = {"http": f"127.0.0.1:{free_port()}", "grpc": f"127.0.0.1:{free_port()}"}
        """Where it serves: `http`, a URL, and `grpc`. The same after another start."""
        if lists_grpc:
            self._command += ["--public-grpc", self.addresses["grpc"]]

    def start(self) -> None:
        """Starts it, and returns when it serves."""
        listening = [word for name, at in self.addresses.items() for word in (f"--{name}", at.removeprefix("http://"))]
        process = subprocess.Popen(
            [*self._command, *listening], cwd=self._folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        self._process = process
        found = _addresses(process)
        self.addresses = {name: found[name] for name in self.addresses}

    def kill(self) -> None:
        """Kills it at once (SIGKILL), and returns when it is gone."""
        self._end(subprocess.Popen.kill)

    def stop(self) -> None:
        self._end(subprocess.Popen.terminate)

    def _end(self, end: Callable[[subprocess.Popen[bytes]], None]) -> None:
        if self._process is not None:
            with self._process:
                end(self._process)
            self._process = None


@contextmanager
def started(project: str, *options: str, lists_grpc: bool = True) -> Iterator[Server]:
    """Starts a separate server, and stops it at the end."""
    with tempfile.TemporaryDirectory() as folder:
        server = Server(project, folder, *options, lists_grpc=lists_grpc)
        try:
            server.start()
            yield server
        finally:
            server.stop()


@contextmanager
def serving(project: str, *options: str) -> Iterator[dict[str, str]]:
    """Starts a separate server with other options. Yields its addresses."""
    with started(project, *options) as server:
        yield server.addresses


def _addresses(process: subprocess.Popen[bytes]) -> dict[str, str]:
    """Reads its addresses from its log. Raises RuntimeError with the log if it does not start."""
    assert process.stderr is not None
    log = []
    for line in process.stderr:
        log.append(line.decode("utf-8", "replace"))
        if b'"serving"' in line:
            # Further output is read too, otherwise a full pipe would block the server.
            threading.Thread(target=_read_on, args=(process.stderr,), daemon=True).start()
            return json.loads(line)
    raise RuntimeError(f"the server did not start: {''.join(log)}")


def _read_on(pipe: IO[bytes]) -> None:
    with suppress(ValueError):  # closed at the end of the server
        while pipe.read(65536):
            pass


def command(project: str, *words: str) -> str:
    """Returns the output of a dragoman command."""
    return subprocess.check_output([f"{project}/.venv/bin/python", "-m", "dragoman", *words], text=True).strip()


async def wait_until_received(following: asyncio.Task[Any], begun: asyncio.Event) -> None:
    """Waits until a follower has received an event or has ended."""
    hearing = asyncio.ensure_future(begun.wait())
    await asyncio.wait((following, hearing), return_when=asyncio.FIRST_COMPLETED)
    hearing.cancel()


async def raises(kind: type[BaseException], call: Awaitable[Any], text: str = "") -> None:
    """Awaits `call`, which has to raise `kind` with `text` in its message."""
    caught: BaseException | None = None
    try:
        answer = await call
    except kind as error:
        caught = error
    assert caught is not None, f"no {kind.__name__}, but {answer!r}"
    assert text in str(caught), f"{text!r} is not in {caught!r}"


def finish(all_good: bool) -> None:
    """Ends the script: the line `end` marks complete output."""
    print("end", flush=True)
    sys.exit(not all_good)
