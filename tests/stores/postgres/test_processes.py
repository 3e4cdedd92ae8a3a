"""Dead processes are detected; a process that may be running never counts as dead."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dragoman.stores.postgres import claims

pytestmark = pytest.mark.skipif(
    not claims.current_pid_namespace(), reason="this system does not tell about processes in /proc"
)

SAY = "from dragoman.stores.postgres import claims; print(claims.current_process(), flush=True); input()"


def test_a_killed_process_has_ended() -> None:
    with subprocess.Popen([sys.executable, "-c", SAY], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as one:
        assert one.stdout is not None
        process_name = one.stdout.readline().strip()
        assert process_name
        assert not claims.has_process_ended(process_name)
        one.kill()
        one.wait()
        assert claims.has_process_ended(process_name)


def test_the_own_process_has_not_ended() -> None:
    assert not claims.has_process_ended(claims.current_process())


def test_a_reused_pid_is_another_process() -> None:
    place, _, began = claims.current_process().rpartition(" ")
    assert claims.has_process_ended(f"{place} {int(began) - 1}")


@pytest.mark.parametrize("process_name", ["", "x", "boot pid:[1] 1 2", f"{claims.current_pid_namespace()}x 1 2"])
def test_a_process_of_another_namespace_counts_as_running(process_name: str) -> None:
    assert not claims.has_process_ended(process_name)


def test_a_process_hidden_by_proc_counts_as_running(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where /proc hides the processes of other users."""
    process_name = claims.current_process()
    monkeypatch.setattr(claims, "_start_tick", lambda _: "")
    assert not claims.has_process_ended(process_name)

    def is_not_ours(pid: int, number: int) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "kill", is_not_ours)
    assert not claims.has_process_ended(process_name)


def test_a_system_without_proc_names_no_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    process_name = claims.current_process()
    monkeypatch.setattr(claims, "PROC_FOLDER", tmp_path)
    assert claims.current_process() == ""
    assert not claims.has_process_ended(process_name)
