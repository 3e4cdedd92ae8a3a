"""Standard streams that are missing, full, or cannot encode a text."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dragoman.cli.standard_streams import ESCAPING, finish_stdout, prepare_streams

RUN = [sys.executable, "-c"]
COMMAND = """
import json, os, sys
from dragoman.cli.standard_streams import finish_stdout, prepare_streams, write_if_possible
prepare_streams()
def run():
    {body}
sys.stderr.write(finish_stdout(run) + "\\n")
"""


def run(body: str, redirections: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs a body as a command, with the redirections of a shell."""
    shell = f'exec "$0" "$@" {redirections}'
    command = ["sh", "-c", shell, *RUN, COMMAND.format(body=body)]
    return subprocess.run(
        command,
        capture_output=True,
        encoding=environment.get("PYTHONIOENCODING", "utf-8"),
        env={**os.environ, **environment},
        check=False,
    )


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_what_an_encoding_lacks_is_escaped_so_that_json_stays_json(encoding: str) -> None:
    text = "ünï € 👩 \ud800"
    done = run(f"print(json.dumps({text!r}, ensure_ascii=False))", PYTHONIOENCODING=encoding)
    assert json.loads(done.stdout) == text
    assert (done.returncode, done.stderr) == (0, "\n")


@pytest.mark.parametrize("redirection", ["> /dev/full", ">&-"])
def test_a_result_that_cannot_be_written_is_one_line_and_nothing_fails_later(redirection: str) -> None:
    for body in ("print('x')", "print('x', flush=True)", "print('x' * 100_000)"):
        done = run(body, redirection)
        assert done.stderr.startswith("the output cannot be written: ")
        assert (done.returncode, done.stderr.count("\n")) == (0, 1)


@pytest.mark.parametrize("redirection", ["> /dev/full", ">&-", "2> /dev/full", "2>&-", "<&-"])
def test_what_is_dispensable_stops_nothing(redirection: str) -> None:
    done = run("write_if_possible('x'); sys.stderr.write('y' * 100_000); sys.stderr.flush()", redirection)
    assert done.returncode == 0


@pytest.mark.parametrize("redirections", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_no_file_gets_the_number_of_a_closed_stream(redirections: str) -> None:
    assert run("os.open('/', os.O_RDONLY) > 2 or os._exit(1)", redirections).returncode == 0


def test_an_error_of_a_file_is_not_one_of_the_output() -> None:
    with pytest.raises(FileNotFoundError):
        finish_stdout(Path("/no/such/file").read_text)


def test_streams_of_others_are_left_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    replaced = object()
    monkeypatch.setattr(sys, "stderr", replaced)
    prepare_streams()
    assert sys.stderr is replaced
    assert "ä".encode("ascii", ESCAPING) == b"\\u00e4"
