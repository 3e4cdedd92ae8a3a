"""Checks of a foreign client: one line of output per check, and an exit status. Uses only the standard library.

A check that covers operations of the table in docs/reference/clients.md prints a line for each of them as well:
`op`, the client, the transport, the operation, and `ok` or `failed`, with tabs between.
"""

from __future__ import annotations

import argparse
import asyncio
import inspect
import json
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any


def arguments() -> argparse.Namespace:
    """Addresses of the server: `.http`, `.grpc`; `.project`: the project's folder."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--http", required=True)
    parser.add_argument("--grpc", required=True)
    parser.add_argument("--project", required=True)
    return parser.parse_args()


class Checks:
    """Collects checks. Their names, with spaces for underscores, are printed."""

    def __init__(self, package: str = "") -> None:
        """`package` is the client in the table, with the version installed; without one there are no rows."""
        self._client = f"{package} {version(package)}" if package else ""
        self._checks: list[tuple[Callable[..., Any], tuple[str, ...]]] = []

    def __call__(self, check: Callable[..., Any]) -> Callable[..., Any]:
        return self.of()(check)

    def of(self, *operations: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Registers a check that covers these operations of the table."""

        def collect(check: Callable[..., Any]) -> Callable[..., Any]:
            self._checks.append((check, operations))
            return check

        return collect

    async def run(self, title: str, *given: Any) -> bool:
        """Runs every check with `given`, prints a line for each, and returns whether all passed.

        `title` is the transport in the table.
        """
        good = True
        for check, operations in self._checks:
            sentence = f"{title}: {check.__name__.replace('_', ' ')}"
            failed = await _failure(check, given)
            good &= not failed
            print(f"FAIL  {sentence}: {failed}" if failed else f"ok  {sentence}")
            for operation in operations:
                if self._client:
                    print("op", self._client, title, operation, "failed" if failed else "ok", sep="\t", flush=True)
        return good


async def _failure(check: Callable[..., Any], given: tuple[Any, ...]) -> str:
    """Returns the problem; empty for a passed check."""
    try:
        async with asyncio.timeout(60):
            found = check(*given)
            if inspect.isawaitable(found):
                await found
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        text = " ".join(str(error).splitlines())
        return f"{type(error).__name__}: {text} (line {where.lineno}: {where.line})"
    return ""


@contextmanager
def serving(project: str, *options: str) -> Iterator[dict[str, str]]:
    """Starts a separate server with other options. Yields its addresses."""
    with tempfile.TemporaryDirectory() as folder:
        command = [f"{project}/.venv/bin/python", "-m", "dragoman", "serve", "--log-format", "json", *options]
        command += ["--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0"]
        with subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
            try:
                yield _addresses(process)
            finally:
                process.terminate()


def _addresses(process: subprocess.Popen[bytes]) -> dict[str, str]:
    """Reads its addresses from its log."""
    assert process.stderr is not None
    for line in process.stderr:
        if b'"serving"' in line:
            # Further output is read too, otherwise a full pipe would block the server.
            threading.Thread(target=process.stderr.read, daemon=True).start()
            return json.loads(line)
    sys.exit("the server did not start")


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
