"""A process that is gone is known to be; one that may be there is not taken for gone."""

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


def test_a_process_is_gone_when_it_has_ended() -> None:
    with subprocess.Popen([sys.executable, "-c", SAY], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as one:
        assert one.stdout is not None
        said = one.stdout.readline().strip()
        assert said
        assert not claims.has_process_ended(said)
        one.kill()
        one.wait()
        assert claims.has_process_ended(said)


def test_nobody_takes_itself_for_gone() -> None:
    assert not claims.has_process_ended(claims.current_process())


def test_an_id_that_was_given_again_is_another_process() -> None:
    place, _, began = claims.current_process().rpartition(" ")
    assert claims.has_process_ended(f"{place} {int(began) - 1}")


@pytest.mark.parametrize("said", ["", "x", "boot pid:[1] 1 2", f"{claims.current_pid_namespace()}x 1 2"])
def test_who_is_not_to_be_seen_from_here_is_not_gone(said: str) -> None:
    assert not claims.has_process_ended(said)


def test_who_is_there_and_hidden_is_not_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where /proc shows nobody the processes of others."""
    said = claims.current_process()
    monkeypatch.setattr(claims, "_start_tick", lambda _: "")
    assert not claims.has_process_ended(said)

    def is_not_ours(pid: int, number: int) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "kill", is_not_ours)
    assert not claims.has_process_ended(said)


def test_a_system_without_proc_says_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    said = claims.current_process()
    monkeypatch.setattr(claims, "PROC_FOLDER", tmp_path)
    assert claims.current_process() == ""
    assert not claims.has_process_ended(said)
