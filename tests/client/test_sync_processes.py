"""The synchronous client in processes that fork, or that end during a run."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.long

FORKS = """
import os, sys
from dragoman.client.sync import connect

with connect(sys.argv[1]) as client:
    assert client.ask("echo parent").text == "parent"
    child = os.fork()
    if not child:
        try:
            client.ask("echo shared")
        except RuntimeError as error:
            print(error)
        with connect(sys.argv[1]) as own:
            print(own.ask("echo child").text)
        sys.stdout.flush()
        os._exit(0)
    os.waitpid(child, 0)
    print(client.ask("echo parent again").text)
"""

LEAVES = """
import sys
from dragoman.client.sync import connect

client = connect(sys.argv[1]).__enter__()
events = client.run("stream 5000 20")
next(events)
print("the end")
"""


STOPS = """
import os, signal, sys, threading
from dragoman.client import Status
from dragoman.client.sync import connect

with connect(sys.argv[1]) as client:
    try:
        for event in client.run("sleep 600"):
            if isinstance(event, Status) and event.state == "WORKING":
                threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    except KeyboardInterrupt:
        print("stopped", client.cancel(event.task_id).task_id == event.task_id)
"""


def run_script(script: str, url: str) -> list[str]:
    """Runs a script and returns its output lines, within a minute."""
    words = [sys.executable, "-c", script, url]
    return subprocess.run(words, check=False, capture_output=True, text=True, timeout=60).stdout.splitlines()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing forks here")
def test_a_forked_process_must_connect_again(url: str) -> None:
    assert run_script(FORKS, url) == [
        "this connection was created before the process was forked; connect again",
        "child",
        "parent again",
    ]


def test_an_open_run_does_not_block_the_end_of_a_program(url: str) -> None:
    assert run_script(LEAVES, url) == ["the end"]


def test_ctrl_c_stops_a_run(url: str) -> None:
    assert run_script(STOPS, url) == ["stopped True"]
