"""The dump of a blocked process: where it is, how it is read, and whose code it names."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, Final

import pytest

from dragoman import Turn, agent
from dragoman.cli.logs import TextLogFormatter
from dragoman.runtime.sessions import BlockedLoop
from dragoman.settings.settings import Settings
from dragoman.wiring import loop_guard
from dragoman.wiring.loop_guard import describe_running, describe_stack, dump_path, functions_of, locate, read_dump

pytestmark = pytest.mark.long

APP: Final = "/srv/app/agents.py"
LIBRARY: Final = "/srv/venv/lib/python3.11/site-packages/slow/core.py"
PACKAGE: Final = loop_guard.__file__

DUMP: Final = f"""Timeout (0:01:00)!
Thread 0x00007f0000000001 (most recent call first):
  File "{APP}", line 99 in elsewhere

Thread 0x00007f00000000ff [MainThread] (most recent call first):
  File "{LIBRARY}", line 3 in compute
  File "{APP}", line 12 in helper
  File "{APP}", line 20 in slow
  File "{PACKAGE}", line 7 in take_turn
"""
THREAD: Final = 0x00007F00000000FF


def written(path: Path, dump: str = DUMP, **fields: Any) -> Path:
    header = {"thread": THREAD, "seconds": 60.0, "agents": {"echo": [APP, "echo"], "slow": [APP, "slow"]}, **fields}
    path.write_text(json.dumps(header) + "\n" + dump)
    return path


def test_the_dump_names_the_agent_and_its_innermost_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        assert read_dump(written(tmp_path / "t")) == BlockedLoop("slow", "agents.py, line 12")
    assert not (tmp_path / "t").exists()
    assert "did not run its event loop for 60 s and ended itself" in caplog.text
    (record,) = caplog.records
    assert (
        TextLogFormatter().format(record).splitlines()[0].endswith("it was blocked by agent slow: agents.py, line 12")
    )
    assert TextLogFormatter().format(record).splitlines()[1:4] == [
        "  Timeout (0:01:00)!",
        "  Thread 0x00007f00000000ff [MainThread] (most recent call first):",
        f'    File "{LIBRARY}", line 3 in compute',
    ]


def test_the_tracebacks_in_the_log_are_bounded(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    frames = "".join(f'  File "{APP}", line {n} in f\n' for n in range(1000))
    read_dump(written(tmp_path / "t", f"Thread 0x00007f0000000001 (most recent call first):\n{frames}\n{DUMP}"))
    lines = TextLogFormatter().format(caplog.records[0]).splitlines()
    assert len(lines) == 1 + loop_guard.MAX_LOGGED_LINES + 1
    assert (lines[1], lines[-1]) == (
        "  Thread 0x00007f00000000ff [MainThread] (most recent call first):",
        "  and 809 more lines",
    )


def test_a_process_that_was_killed_has_no_dump(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert read_dump(tmp_path / "none") is None
    assert read_dump(None) is None
    assert read_dump(written(tmp_path / "t", "")) is None
    assert not caplog.records


@pytest.mark.parametrize(
    "content",
    [
        b"\xff\xfe\n" + DUMP.encode(),
        b"[]\n" + DUMP.encode(),
        b'{"thread": "x", "seconds": 1, "agents": {}}\n' + DUMP.encode()[:40],
        b'{"thread": 1, "seconds": null, "agents": {}}\nx',
        b'{"thread": 1, "seconds": 1, "agents": []}\nx',
        b'{"thread": 1, "seconds": 1, "agents": {"a": [1]}}\nx',
        b"\n\nx",
    ],
)
def test_an_unreadable_dump_does_not_stop_a_start(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "t").write_bytes(content)
    assert read_dump(tmp_path / "t") is None


def test_a_process_that_was_frozen_blames_no_agent(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    idle = f'Thread 0x00007f00000000ff (most recent call first):\n  File "{PACKAGE}", line 7 in run\n'
    assert read_dump(written(tmp_path / "t", idle)) is None
    assert "blocked by no agent: it may have been frozen" in caplog.text


def test_code_that_an_agent_started_is_known_by_its_file() -> None:
    frames = loop_guard.frames_of(DUMP.replace("in slow", "in background"), THREAD)
    one = {"slow": (APP, "slow"), "other": ("/srv/app/other.py", "other")}
    assert locate(frames, one) == BlockedLoop("slow", "agents.py, line 12")
    two_in_the_file = {"slow": (APP, "slow"), "echo": (APP, "echo")}
    assert locate(frames, two_in_the_file) == BlockedLoop("", "agents.py, line 12")


def test_only_the_tasks_of_the_blocking_agent_name_its_line() -> None:
    found = BlockedLoop("slow", "agents.py, line 12")
    assert '"slow", agents.py, line 12' in found.reason("slow")
    assert "agents.py" not in found.reason("echo")
    assert "agents.py, line 12" in BlockedLoop("", "agents.py, line 12").reason("echo")


def test_agents_are_known_by_their_functions() -> None:
    @agent
    async def one(turn: Turn) -> str:
        return ""

    assert functions_of([one]) == {"one": (__file__, "one")}


@pytest.mark.parametrize(("store", "name"), [("sqlite:///t.db", "t.db-blocked"), ("memory:", ""), ("a.b:c", "")])
def test_the_dump_is_beside_an_sqlite_store(store: str, name: str) -> None:
    path = dump_path(Settings(store=store))
    assert (path.name if path is not None else "") == name


def test_an_orderly_end_leaves_no_dump(tmp_path: Path) -> None:
    program = """
import asyncio, faulthandler, stat
from pathlib import Path
from dragoman.wiring.loop_guard import guarded_loop
dump, timer = Path("t-blocked"), []
faulthandler.dump_traceback_later = lambda seconds, exit, file: timer.append(seconds)
faulthandler.cancel_dump_traceback_later = lambda: timer.append(None)
async def run():
    with guarded_loop(0.4, (), dump):
        while len(timer) < 3:  # the loop restarts the timer
            await asyncio.sleep(0.01)
        print(oct(stat.S_IMODE(dump.stat().st_mode)))
    print("stopped", set(timer[:3]), timer[-1])
asyncio.run(run())
print("ended", dump.exists())
"""
    ended = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    output = ["0o600", "stopped", "{0.4}", "None", "ended", "False"]
    assert (ended.stdout.split(), ended.returncode) == (output, 0), ended.stderr


@pytest.mark.parametrize("dump", ["None", "Path('missing-folder/t-blocked')"])
def test_without_a_file_the_tracebacks_go_to_stderr(tmp_path: Path, dump: str) -> None:
    program = f"""
import asyncio, time
from pathlib import Path
from dragoman.wiring.loop_guard import guarded_loop
async def run():
    with guarded_loop(1, (), {dump}):
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        time.sleep(60)
asyncio.run(run())
"""
    ended = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert 'File "<string>", line 9 in run' in ended.stderr


def test_the_stack_is_shown_before_the_process_ends(tmp_path: Path) -> None:
    program = """
import asyncio, re
from pathlib import Path
from dragoman.wiring.loop_guard import LoopGuard
async def run():
    running = asyncio.create_task(LoopGuard(60, (), Path("t-blocked"), early_share=0.005).run())
    await asyncio.sleep(0.1)
    re.match("(a+)+$", "a" * 60 + "b")  # holds the interpreter's lock
asyncio.run(run())
"""
    with subprocess.Popen([sys.executable, "-c", program], cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            assert 'File "<string>", line 8 in run\n' in (line.lstrip() for line in process.stderr)
        finally:
            process.kill()


def test_without_a_stack_beforehand_the_process_still_ends(tmp_path: Path) -> None:
    program = """
import asyncio, faulthandler, time
from pathlib import Path
from dragoman.wiring.loop_guard import guarded_loop
del faulthandler.register
async def run():
    with guarded_loop(1, (), Path("t-blocked")):
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        time.sleep(60)
asyncio.run(run())
"""
    ended = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (1, "")
    assert 'File "<string>", line 10 in run' in (tmp_path / "t-blocked").read_text()


def test_a_debugger_stops_the_timer(tmp_path: Path) -> None:
    program = """
import asyncio, sys, time
from dragoman.wiring.loop_guard import guarded_loop
async def run():
    with guarded_loop(0.4):
        await asyncio.sleep(0.3)
        time.sleep(1.0)
sys.settrace(lambda *_: None)
asyncio.run(run())
print("ended")
"""
    ended = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ended.stdout, ended.returncode) == ("ended\n", 0)


# What still runs ----------------------------------------------------------------------------------------------------


async def test_what_still_runs_is_described_by_author_and_line() -> None:
    go = threading.Event()
    thread = threading.Thread(target=go.wait, name="left-behind")
    thread.start()
    task = asyncio.create_task(asyncio.sleep(60), name="of-a-library")

    async def waits() -> None:
        await asyncio.sleep(60)

    own = asyncio.create_task(waits(), name="of-an-agent")
    await asyncio.sleep(0)
    text = describe_running(asyncio.get_running_loop(), lambda: ["agent a (task 1)"])
    go.set()
    task.cancel()
    own.cancel()
    assert text.startswith("turn of agent a (task 1), ")
    assert "task of-an-agent (test_loop_guard.py, line " in text
    assert "of-a-library" not in text
    assert "thread left-behind (" in text
    assert "thread MainThread (test_loop_guard.py, line " in text


def test_a_thread_that_has_ended_has_no_line() -> None:
    assert describe_stack(0) == ""
    assert describe_stack(threading.get_ident()).startswith("test_loop_guard.py, line ")


def test_many_names_are_counted() -> None:
    loop = asyncio.new_event_loop()
    text = describe_running(loop, lambda: [str(number) for number in range(20)])
    loop.close()
    assert text.count("turn of") == 10
    assert " and 1" in text
