"""The program with a server inside."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

from tests.cli.server import PROCESS_TIMEOUT, clean_environment, serving

from dragoman.client import connect

EXAMPLE = Path(__file__).parents[2] / "examples" / "embedded.py"


def test_it_serves_calls_and_stops_itself(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, EXAMPLE],
        cwd=tmp_path,
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=PROCESS_TIMEOUT,
        check=True,
    )
    first, *rest = done.stdout.splitlines()
    assert re.fullmatch(r"cashier at http://127\.0\.0\.1:\d+ and grpc://127\.0\.0\.1:\d+", first)
    assert [ast.literal_eval(rest[0]), *rest[1:]] == [{"apple": 30, "pear": 45}, "stopped"]
    assert list(tmp_path.iterdir()) == []


async def test_the_same_file_is_an_app(tmp_path: Path) -> None:
    with serving(str(EXAMPLE), cwd=tmp_path) as server:
        async with connect(server.http) as client:
            assert (await client.ask("one apple")).data == {"apple": 30}
