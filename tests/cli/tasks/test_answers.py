"""Questions of agents on a terminal, and JSON as data."""

from __future__ import annotations

import io
import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.conftest import Run
from tests.cli.server import Server, clean_environment

from dragoman.cli.tasks import answers
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

pytestmark = pytest.mark.long


class Terminal:
    """A command on a terminal, whose prompts are answered."""

    def __init__(self, *words: str) -> None:
        self._main, secondary = pty.openpty()
        self.shown = ""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "dragoman", *words], stdin=secondary, stdout=secondary, stderr=secondary,
            env=clean_environment() | {"TERM": "dumb"}, start_new_session=True,
        )  # fmt: skip
        os.close(secondary)

    def answer(self, prompt: str, typed: str) -> None:
        """Waits for a prompt, after those answered before, and types."""
        while prompt not in self.shown:
            self.shown += os.read(self._main, 4096).decode()
        self.shown = self.shown.split(prompt, 1)[1]
        os.write(self._main, typed.encode())

    def end(self) -> int:
        """Reads the rest, and returns the exit code."""
        try:
            while chunk := os.read(self._main, 4096):
                self.shown += chunk.decode()
        except OSError:  # the terminal is closed with the process
            pass
        os.close(self._main)
        return self._process.wait(60)


def test_choices_and_forms_are_asked_on_a_terminal(served: Server) -> None:
    terminal = Terminal("send", "hello", "--agent", "table", "--server", served.grpc)
    terminal.answer("Which size?\r\n  1  small\r\n  2  Large\r\nAnswer: ", "3\n")
    terminal.answer("type a number from 1 to 2", "")
    terminal.answer("Answer: ", "2\n")
    terminal.answer("Who comes?\r\nguests: ", "many\n")
    terminal.answer("type a whole number", "")
    terminal.answer("guests: ", "3\n")
    terminal.answer("terrace (yes or no): ", "yes\n")
    terminal.answer("wish (optional)", "\n")
    assert terminal.end() == 0, terminal.shown
    assert '{"data":[{"guests":3,"terrace":true}],"size":"l"}' in terminal.shown


def test_a_default_of_an_agent_does_not_control_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    question = pb.Message()
    fields = {"name": {"type": "string", "default": "\x1b[2Jroot"}}
    question.parts.add().data.struct_value.update({"schema": {"type": "object", "properties": fields}})
    monkeypatch.setattr("sys.stdin", io.StringIO("\n"))
    answer = answers.ask(question)
    assert answer is not None
    assert answer[0].data.struct_value["name"] == "\x1b[2Jroot"
    shown = capfd.readouterr()
    assert "\x1b" not in shown.out + shown.err
    assert "root]" in shown.out + shown.err


def test_a_question_that_is_left_can_be_answered_later(served: Server) -> None:
    terminal = Terminal("send", "hello", "--agent", "table", "--server", served.grpc)
    terminal.answer("Answer: ", "\x04")
    assert terminal.end() == 0, terminal.shown
    assert "answer it with: dragoman send --task " in terminal.shown


def test_json_is_sent_as_data(dragoman: Run, served: Server, tmp_path: Path) -> None:
    at = ("--agent", "table", "--server", served.grpc)
    (tmp_path / "guests.json").write_text('{"guests": 4}')
    sent = dragoman("send", *at, "--data", '{"guests": 3}', "--data", "@guests.json", "-d", "@-", stdin='["text"]')
    assert sent.code == 0, sent
    assert json.loads(sent.out) == {"data": [{"guests": 3}, {"guests": 4}, ["text"]], "size": None}
    assert json.loads(dragoman("send", *at, "--data", "[0.1, 1e300, 9007199254740992.0]").out)["data"] == [
        [0.1, 1e300, 9007199254740992]
    ]


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ("{guests: 3}", "--data: not JSON: Expecting property name enclosed in double quotes at line 1, column 2"),
        ('{"id": 12345678901234567890}', "--data.id: the number 12345678901234567890 is beyond 2^53"),
        ("[9007199254740993.0]", "--data: the number 9007199254740993.0 is beyond 2^53 and would be rounded"),
        ("@absent.json", "--data @absent.json: No such file or directory"),
        ("NaN", "--data: nan is not a JSON number"),
        ("[" * 60 + "]" * 60, "--data: has too many levels of objects and arrays"),
        ("[" * 100_000, "--data: has too many levels of objects and arrays"),
        ('"\udcff"', "data: is not UTF-8"),
    ],
)
def test_invalid_data_is_a_usage_error(dragoman: Run, served: Server, given: str, problem: str) -> None:
    refused = dragoman("send", "--agent", "table", "--server", served.grpc, "--data", given)
    assert (refused.code, problem in refused.err) == (2, True), refused
