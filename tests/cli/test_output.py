"""Results on stdout, and progress on stderr."""

from __future__ import annotations

import io
import json
import sys
import time
import unicodedata
from pathlib import Path

import pytest
from google.protobuf.json_format import ParseDict
from hypothesis import given
from hypothesis import strategies as st

from dragoman.cli import escape_controls, print_note
from dragoman.cli.output import (
    ConsoleOutput,
    Progress,
    colored,
    format_elapsed,
    format_usage,
    json_line,
    state_name,
    text_of,
)
from dragoman.core.task import states
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def chunk(artifact: str, text: str, *, append: bool = True) -> pb.TaskArtifactUpdateEvent:
    created_artifact = pb.Artifact(artifact_id=artifact, parts=[pb.Part(text=text)])
    return pb.TaskArtifactUpdateEvent(artifact=created_artifact, append=append)


def test_chunks_are_joined_and_another_artifact_starts_a_line() -> None:
    out = ConsoleOutput(out=(written := io.StringIO()))
    for event in (chunk("a", "one ", append=False), chunk("a", "two "), chunk("b", "three"), chunk("a", "four")):
        out.chunk(event)
    assert written.getvalue() == "one two \nthree\nfour"
    assert not out.at_line_start
    out.end_line()
    out.end_line()
    assert written.getvalue().endswith("four\n")


def test_a_replaced_artifact_starts_a_line() -> None:
    out = ConsoleOutput(out=(written := io.StringIO()))
    for event in (chunk("a", "first try", append=False), chunk("a", "second try", append=False)):
        out.chunk(event)
    assert written.getvalue() == "first try\nsecond try"


@pytest.mark.parametrize(
    ("part", "line"),
    [
        ({"data": {"rows": [2, 0.5]}}, '{"rows":[2,0.5]}'),
        ({"data": 7}, "7"),
        ({"data": None}, "null"),
        ({"url": "https://e.example/x.png", "filename": "x.png"}, "[x.png https://e.example/x.png]"),
        ({"raw": "AAE=", "mediaType": "image/png"}, "[file, image/png, 2 bytes; pass --save DIR to write it]"),
    ],
)
def test_parts_without_text_are_on_separate_lines(part: dict[str, object], line: str) -> None:
    out = ConsoleOutput(out=(written := io.StringIO()))
    out.artifacts([pb.Artifact(parts=[pb.Part(text="text"), ParseDict(part, pb.Part()), pb.Part(text="more")])])
    assert written.getvalue() == f"text\n{line}\nmore\n"


def test_control_characters_are_escaped_on_a_terminal_but_not_in_a_pipe() -> None:
    evil = "a\x1b]0;owned\x07\tb\x9bc\nd\r"
    ConsoleOutput(out=(terminal := Terminal())).write(evil)
    ConsoleOutput(out=(pipe := io.StringIO())).write(evil)
    assert terminal.getvalue() == "a\\u001b]0;owned\\u0007\tb\\u009bc\nd\\r"
    assert pipe.getvalue() == evil


@pytest.mark.parametrize("stream", [Terminal, io.StringIO])
def test_a_line_stays_one_line(stream: type[io.StringIO]) -> None:
    ConsoleOutput(out=(out := stream())).line("task t\nstate COMPLETED\r\x1b[2K\x7f\x85\u2028\u202e")
    assert out.getvalue() == r"task t\nstate COMPLETED\r\u001b[2K\u007f\u0085\u2028\u202e" + "\n"


@given(st.text())
def test_escaped_json_is_the_same_json_without_control_characters(text: str) -> None:
    escaped = escape_controls(json.dumps({"text": text}, ensure_ascii=False))
    assert json.loads(escaped) == {"text": text}
    assert not [c for c in escaped if unicodedata.category(c) in ("Cc", "Zl", "Zp", "Cs")]
    assert len(escape_controls(text).splitlines()) <= 1


def test_notes_on_stderr_keep_lines_and_escape_the_rest(capsys: pytest.CaptureFixture[str]) -> None:
    print_note("one\ntwo\x1b]0;owned\x07")
    assert capsys.readouterr().err == "one\ntwo\\u001b]0;owned\\u0007\n"


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("report.pdf", "report.pdf"),
        ("../../etc/passwd", "passwd"),
        ("C:\\Windows\\evil.dll", "evil.dll"),
        ("/abs/olute.txt", "olute.txt"),
        (".bashrc", "bashrc"),
        ("..", "file"),
        ("", "file"),
        ("a\x00b.txt", "ab.txt"),
    ],
)
def test_a_file_is_written_into_the_folder_for_any_name(tmp_path: Path, name: str, written: str) -> None:
    artifact = pb.Artifact(parts=[pb.Part(raw=b"x", filename=name)])
    ConsoleOutput(tmp_path / "new", out=io.StringIO()).artifacts([artifact])
    assert [path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()] == [
        f"new/{written}"
    ]


def test_existing_files_are_kept(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("mine")
    artifact = pb.Artifact(parts=[pb.Part(raw=b"1", filename="a.txt"), pb.Part(raw=b"2", filename="a.txt")])
    ConsoleOutput(tmp_path, out=io.StringIO()).artifacts([artifact])
    assert [(tmp_path / name).read_text() for name in ("a.txt", "a-1.txt", "a-2.txt")] == ["mine", "1", "2"]


def test_state_names_and_message_texts() -> None:
    assert state_name(pb.TASK_STATE_INPUT_REQUIRED) == "INPUT_REQUIRED"
    assert text_of(pb.Message(parts=[pb.Part(text=" a "), pb.Part(url="u"), pb.Part(text="b")])) == "a b"
    assert json_line(pb.Task(id="t", context_id="c")) == '{"id":"t","contextId":"c"}'


def test_usage_is_formatted_from_metadata() -> None:
    assert (
        format_usage(pb.Task())
        == format_usage(pb.Task(metadata={"usage": {}}))
        == format_usage(pb.Task(metadata={"x": 1}))
        == ""
    )
    assert format_usage(pb.Task(metadata={"usage": "much"})) == ""
    assert format_usage(pb.Task(metadata={"usage": {"tokens": 1200, "cost": 0.031}})) == "1,200 tokens, cost 0.031"
    assert format_usage(pb.Task(metadata={"usage": {"cost": 2}})) == "0 tokens, cost 2"


# Progress -----------------------------------------------------------------------------------------------------------


async def test_without_a_terminal_each_state_is_printed_once(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress() as progress:
        for state, text in (("SUBMITTED", ""), ("WORKING", ""), ("WORKING", ""), ("WORKING", "half\nway")):
            progress.update(state, text)
        progress.note("COMPLETED")
    assert capsys.readouterr().err == "WORKING\nWORKING  half way\nCOMPLETED\n"


async def test_a_reminder_is_printed_after_silence(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress() as progress:
        progress.update("WORKING")
        progress._remind()
    assert capsys.readouterr().err.splitlines()[1].startswith("WORKING  unchanged after ")


async def test_agents_cannot_write_control_characters_to_the_screen(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress() as progress:
        progress.update("WORKING", "a\x1b[2Jb")
    assert capsys.readouterr().err == "WORKING  a[2Jb\n"


async def test_on_a_terminal_the_spinner_is_erased_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    with Progress() as progress:
        progress.update("WORKING", "a\x1b[2Jb [red]c")
        assert screen.getvalue() == ""  # not yet: the task may end in a moment
        progress._appear()
        progress.hide()
    shown = screen.getvalue()
    assert "WORKING" in shown
    assert "\x1b[2J" not in shown
    assert shown.rstrip("\r").endswith("\x1b[2K")  # the last output erases the line


async def test_the_spinner_does_not_appear_after_half_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    with Progress(may_show=lambda: False) as progress:
        progress.update("WORKING")
        progress._appear()
    assert screen.getvalue() == ""


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.0123, "12 ms"), (2.34, "2.3 s"), (61, "1 min 1 s"), (3605, "60 min 5 s")]
)
def test_elapsed_time_is_formatted(seconds: float, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    progress = Progress()
    monkeypatch.setattr(time, "monotonic", lambda: progress._started_at + seconds)
    assert progress.elapsed == text


def test_states_have_colors_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert colored("FAILED  task FAILED", states.FAILED, Terminal()) == "\x1b[31mFAILED\x1b[0m  task FAILED"
    assert colored("FAILED", states.FAILED, io.StringIO()) == "FAILED"
    monkeypatch.setenv("NO_COLOR", "1")
    assert colored("FAILED", states.FAILED, Terminal()) == "FAILED"


@pytest.mark.parametrize(("stream", "header"), [(Terminal(), True), (io.StringIO(), False)])
def test_a_table_has_a_header_on_a_terminal_only(
    monkeypatch: pytest.MonkeyPatch, stream: io.StringIO, header: bool
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "30")
    rows = [("FAILED", "short", "a text that is longer than 30 columns"), ("COMPLETED", "b\x1b[2J", "-")]
    ConsoleOutput(out=stream).table(("STATE", "AGENT", "MESSAGE"), rows, [states.FAILED, states.COMPLETED])
    lines = stream.getvalue().splitlines()
    assert (lines[0].split() == ["STATE", "AGENT", "MESSAGE"]) == header
    assert lines[-1].startswith("COMPLETED  b\\u001b[2J  -")
    assert max(map(len, lines)) == (30 if header else 60)


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ("14", ["A   BB", "    CCCC  D", "1   22", "    3     4444"]),
        ("10", ["A   BB", "    CCCC", "    D", "1   22", "    3", "    4444"]),
        ("80", ["A   BB  CCCC  D", "1   22  3     4444"]),
    ],
)
def test_columns_that_do_not_fit_go_on_on_further_lines(
    monkeypatch: pytest.MonkeyPatch, columns: str, expected: list[str]
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    stream = Terminal()
    ConsoleOutput(out=stream).table(("A", "BB", "CCCC", "D"), [("1 ", "22", "3", "4444")], [0], unbroken=2)
    assert stream.getvalue().splitlines() == expected


def test_rows_without_a_value_in_a_further_line_have_no_blank_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "14")
    monkeypatch.setenv("NO_COLOR", "1")
    stream = Terminal()
    ConsoleOutput(out=stream).table(("A", "BB", "FAILURE"), [("1", "22", ""), ("3", "44", "cause")], [0, 0], unbroken=2)
    assert stream.getvalue().splitlines() == ["A  BB", "    FAILURE", "1  22", "3  44", "    cause"]


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [(-5, "0s"), (59_999, "59s"), (60_000, "1m"), (3_600_000, "1h"), (86_400_000, "1d"), (8.64e9, "100d")],
)
def test_an_age_is_in_its_largest_unit(milliseconds: float, text: str) -> None:
    assert format_elapsed(milliseconds) == text
