"""`make cluster` runs its parts, executes typed commands, and leaves no process behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.server import Lines, clean_environment
from tests.docs.shown import differs
from tests.nats import binary
from tests.postgres import needed

from tools.cluster import Outages

pytestmark = pytest.mark.longest

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "how-to" / "postgresql.md"


@pytest.fixture
def cluster() -> Iterator[tuple[subprocess.Popen[str], Lines]]:
    needed()
    if binary() is None:
        pytest.skip("no NATS here")
    words = [sys.executable, "-m", "tools.cluster", "--callers", "2", "--every", "0.5"]
    process = subprocess.Popen(
        words, cwd=ROOT, env=clean_environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdin is not None
    try:
        yield process, Lines(process.stdout)
    finally:
        process.terminate()
        process.wait(60)
        process.stdin.close()


def test_an_outage_is_reported_with_the_part_whose_start_ended_it() -> None:
    outages = Outages()
    assert [outages.completed(now) for now in (100.0, 100.9, 101.8)] == ["", "", ""]
    outages.started = "postgres", 108.0
    assert outages.completed(109.3) == ("recovered: no send was completed for 7.5 s, 1.3 s after the start of postgres")
    assert outages.completed(109.4) == ""
    assert outages.completed(112.4) == "recovered: no send was completed for 3.0 s"


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_parts_are_killed_and_started_by_commands_and_end_with_ctrl_c(
    cluster: tuple[subprocess.Popen[str], Lines],
) -> None:
    process, out = cluster
    assert process.stdin is not None

    def typed(line: str) -> None:
        print(line, file=process.stdin, flush=True)

    out.until("PART is one of: server-1, server-2, worker-1, worker-2, postgres, nats.")
    found = {
        name: int(pid) for name, pid in re.findall(r"^  ([a-z]+-\d)  +pid (\d+)", "\n".join(out.seen), re.MULTILINE)
    }
    assert len(found) == 4
    assert all(map(is_running, found.values()))
    for part in ("server-1", "worker-2", "nats", "postgres"):
        typed(f"kill {part}")
        out.until(f"kill {part}: done")
        for _ in range(4):  # longer than a second, else it is no outage
            text = out.until(f"[down: {part}]")
        typed(f"start {part}")
        out.until(f"start {part}: done")
        if part == "postgres":
            out.until("s after the start of postgres")
    assert not is_running(found["server-1"])
    # quoted in docs/how-to/postgresql.md
    (shown,) = re.findall(r"^.* \[down: postgres\]$", PAGE.read_text("utf-8"), re.MULTILINE)
    begin = shown.partition(";")[0]
    assert not differs([begin], [], [text.partition(";")[0].partition(" [down")[0]], {}, loosely=True)
    typed("pause postgres")
    out.until("PostgreSQL is many processes")
    typed("kill everybody")
    out.until("PART is one of")
    typed("parts")
    last = {int(re.findall(r"pid (\d+)", out.until(f"  {name} "))[0]) for name in found}
    out.until(" streamed/s")
    process.send_signal(signal.SIGINT)
    text = out.until("total: ")
    assert int(re.findall(r"(\d+) sent", text)[0]) > 0
    assert process.wait(60) == 0
    assert not any(map(is_running, last))
