"""How a foreign client says what it checked: one line each, and an exit status. Needs nothing but Python."""

from __future__ import annotations

import argparse
import asyncio
import inspect
import sys
import traceback
from collections.abc import Awaitable, Callable
from typing import Any


def arguments() -> argparse.Namespace:
    """Where the server is: `.http`, `.grpc`, and `.project`, the project's folder."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--http", required=True)
    parser.add_argument("--grpc", required=True)
    parser.add_argument("--project", required=True)
    return parser.parse_args()


class Checks:
    """Collects checks; their names, with blanks for underscores, are the sentences that are printed."""

    def __init__(self) -> None:
        self._checks: list[Callable[..., Any]] = []

    def __call__(self, check: Callable[..., Any]) -> Callable[..., Any]:
        self._checks.append(check)
        return check

    async def run(self, title: str, *given: Any) -> bool:
        """Runs every check with `given`, prints a line for each, and says whether all were well."""
        good = True
        for check in self._checks:
            sentence = f"{title}: {check.__name__.replace('_', ' ')}"
            try:
                async with asyncio.timeout(30):
                    found = check(*given)
                    if inspect.isawaitable(found):
                        await found
            except Exception as error:
                good = False
                where = traceback.extract_tb(error.__traceback__)[-1]
                print(f"FAIL  {sentence}: {type(error).__name__}: {error} (line {where.lineno}: {where.line})")
            else:
                print(f"ok  {sentence}", flush=True)
        return good


async def raises(kind: type[BaseException], call: Awaitable[Any], text: str = "") -> None:
    """Awaits `call`, which has to fail with `kind` and with `text` in what it says."""
    caught: BaseException | None = None
    try:
        answer = await call
    except kind as error:
        caught = error
    assert caught is not None, f"no {kind.__name__}, but {answer!r}"
    assert text in str(caught), f"{text!r} is not in {caught!r}"


def finish(all_good: bool) -> None:
    """Ends the script."""
    sys.exit(not all_good)
