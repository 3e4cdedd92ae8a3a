"""An agent that is a program in Go or Java, behind a Dragoman: `upstream.py` of its folder calls `fronted`.

Runs in an environment with httpx (run.py), in the folder with the program's binaries.
"""

from __future__ import annotations

import asyncio
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
from checks import arguments, serving
from fronted import Front, check

from calling import called


@contextmanager
def running() -> Iterator[str]:
    """Runs the binary `agent`, which prints the URL under which each of its bindings has a card."""
    with subprocess.Popen([Path("agent").resolve()], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip()
        finally:
            process.kill()


async def fronted(titles: dict[str, str], *without: str, files: str = "bytes") -> bool:
    """Runs the checks of upstream agents, and of our client. Returns whether all passed.

    `titles` by the name of each binding. `without`, `files`: as in `called`.
    """
    where, good = arguments(), True
    with running() as url, tempfile.NamedTemporaryFile("w", suffix=".toml") as settings:
        settings.writelines(
            f'[[upstream]]\nid = "{name}"\nurl = "{url}/{name}"\nv03_files = "{files}"\n' for name in titles
        )
        settings.flush()
        front = serving(where.project, "--config", settings.name)
        serves = await asyncio.to_thread(front.__enter__)
        try:
            async with httpx.AsyncClient(timeout=60) as caller:
                for name, title in titles.items():
                    good &= await check.run(title, Front(caller, serves["http"], name, *without))
        finally:
            await asyncio.to_thread(front.__exit__, None, None, None)
        for name, title in titles.items():
            good &= await asyncio.to_thread(called, where.project, f"{url}/{name}", title, *without, files=files)
    return good
