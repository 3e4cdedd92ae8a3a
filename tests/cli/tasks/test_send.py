"""`dragoman send` against a real server: output, files and exit codes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.conftest import Run
from tests.cli.server import PROCESS_TIMEOUT, Lines, Server, clean_environment

from dragoman.cli.tasks.send import file_parts

pytestmark = pytest.mark.long


def test_results_go_to_stdout_and_progress_to_stderr(dragoman: Run) -> None:
    result = dragoman("send", "echo hello")
    assert (result.code, result.out) == (0, "hello\n")
    assert result.err.startswith("COMPLETED  task ")


def test_a_stream_prints_its_chunks(dragoman: Run) -> None:
    result = dragoman("send", "stream 3", "--stream")
    assert (result.code, result.out) == (0, "chunk-1 chunk-2 chunk-3 \n")


def test_waiting_prints_the_same_text_as_streaming(dragoman: Run) -> None:
    assert dragoman("send", "stream 3").out == dragoman("send", "stream 3", "--stream").out


def test_the_text_is_read_from_stdin(dragoman: Run) -> None:
    assert dragoman("send", "-", stdin="echo from a pipe").out == "from a pipe\n"


def test_bytes_that_are_not_utf_8_are_a_usage_error(dragoman: Run) -> None:
    for words in (("send", "\udcff"), ("get", "\udcff"), ("list", "--text", "\udcff")):
        refused = dragoman(*words)
        assert (refused.code, "is not UTF-8" in refused.err) == (2, True), refused


def test_no_wait_prints_only_the_id_on_stdout(dragoman: Run) -> None:
    result = dragoman("send", "sleep 60", "--no-wait")
    task = result.out.strip()
    assert result.code == 0
    assert f"follow it with: dragoman watch {task} --server " in result.err
    shown = dragoman("get", task)
    assert f"task     {task}\nstate    WORKING\n" in shown.out
    assert "agent    sleeping for 60 s\n" in shown.out
    canceled = dragoman("cancel", task)
    assert (canceled.code, canceled.out) == (0, f"CANCELED  {task}\n")


def test_a_question_is_printed_and_its_answer_continues_the_task(dragoman: Run) -> None:
    result = dragoman("send", "ask")
    assert result.code == 0
    assert result.out.strip()
    task = result.err.split("task ")[1].split()[0]
    assert f"answer it with: dragoman send --task {task} " in result.err
    answered = dragoman("send", "--task", task, "forty-two")
    assert (answered.code, answered.out) == (0, "you said: forty-two\n")
    shown = dragoman("get", task, "--history", "10").out
    assert "\nuser     ask\n" in shown
    assert "\nuser     forty-two\n" in shown


@pytest.mark.parametrize("form", ["{http}", "{http}/", "{http}/.well-known/agent-card.json", "grpc://{grpc}", "{grpc}"])
def test_every_command_takes_every_form_of_address(dragoman: Run, served: Server, form: str) -> None:
    at = ("--server", form.format(http=served.http, grpc=served.grpc))
    assert dragoman("send", "x", "--agent", "quote", *at).code == 0
    assert dragoman("send", "x", "--agent", "quote", "--no-wait", *at).code == 0
    task = dragoman("send", "ask", "--agent", "still", *at).err.split("task ")[1].split()[0]
    assert f"task     {task}\n" in dragoman("get", task, *at).out
    assert task in dragoman("list", "--agent", "still", "--state", "input-required", "--json", *at).out
    assert f"task         {task}\n" in dragoman("explain", task, *at).out
    assert dragoman("steps", task, *at).out == "no steps\n"
    assert dragoman("push", "list", task, *at).out == "no push configurations\n"
    assert dragoman("push", "redeliver", task, "absent", *at).code != 0
    assert task in dragoman("export", task, *at).out
    assert "quote" in dragoman("agents", "list", *at).out
    assert dragoman("workers", "list", *at).code == 0
    assert dragoman("keys", "list", *at).code == 0
    assert dragoman("signing", "list", *at).code == 0
    assert dragoman("cancel", task, *at).out == f"CANCELED  {task}\n"
    assert dragoman("watch", task, *at).code == 1


def test_an_http_address_uses_the_interfaces_of_the_card(dragoman: Run, served: Server) -> None:
    wire = dragoman("send", "x", "--agent", "quote", "--show-wire", "--server", served.http).err
    assert "> GET /quote/.well-known/agent-card.json" in wire.replace(served.http, "")
    assert '"method":"SendStreamingMessage"' in wire
    by_card = dragoman("send", "x", "--agent", "quote", "--binding", "grpc", "--server", served.http)
    assert by_card.code == 0


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("list", "--server", "ftp://x"), '"ftp://x" is not the URL of a server'),
        (
            ("send", "x", "--binding", "rest", "--server", "grpc://127.0.0.1:1"),
            "--binding rest needs HTTP; pass --server http://HOST:PORT",
        ),
    ],
)
def test_an_address_that_a_command_cannot_use_is_invalid_usage(
    dragoman: Run, arguments: tuple[str, ...], text: str
) -> None:
    result = dragoman(*arguments)
    assert (result.code, result.out) == (2, "")
    assert text in " ".join(result.err.split())


def test_a_failed_task_prints_the_reason_with_exit_code_1(dragoman: Run) -> None:
    result = dragoman("send", "fail")
    assert (result.code, result.out) == (1, "")
    assert "FAILED  task " in result.err
    assert "RuntimeError" in result.err
    assert dragoman("send", "reject").code == 1


@pytest.mark.parametrize("how", [[], ["--stream"], ["--dialect", "0.3"], ["--json"]])
def test_send_works_with_an_agent_without_streaming(dragoman: Run, served: Server, how: list[str]) -> None:
    where = ("--agent", "still", "--server", served.grpc, *how)
    result = dragoman("send", "hello", *where)
    assert result.code == 0
    assert "hello" in result.out
    assert "COMPLETED" in (result.out if "--json" in how else result.err)
    if not how:
        task = dragoman("send", "ask", *where).err.split("task ")[1].split()[0]
        assert dragoman("send", "again", "--task", task, *where).out == "again\n"
        refused = dragoman("send", "too late", "--task", task, *where)
        assert (refused.code, refused.out) == (3, "")
        assert "has ended" in refused.err


def test_a_message_instead_of_a_task_is_printed(dragoman: Run) -> None:
    for how in ([], ["--stream"], ["--no-wait"]):
        result = dragoman("send", "reply good morning", *how)
        assert (result.code, result.out) == (0, "good morning\n")


def test_files_are_saved_only_with_the_option(dragoman: Run) -> None:
    result = dragoman("send", "file")
    assert result.out.startswith("[hello.txt, text/plain, ")
    assert not list(Path.cwd().iterdir())
    for name in ("hello.txt", "hello-1.txt"):
        saved = dragoman("send", "file", "--save", "here")
        assert f"written to here/{name}]" in saved.out
        assert Path("here", name).read_bytes().startswith(b"hello")


def test_received_files_stay_in_their_folder(dragoman: Run, served: Server) -> None:
    result = dragoman("send", "x", "--agent", "report", "--save", "here", "--server", served.grpc)
    assert result.out.splitlines() == [
        "above",
        '{"rows":2}',
        "[../../etc/table.csv, text/csv, 4 bytes; written to here/table.csv]",
        "[image/png https://example.com/chart.png]",
    ]
    assert [path.name for path in Path("here").iterdir()] == ["table.csv"]


def test_attached_files_have_names_and_types(dragoman: Run, served: Server) -> None:
    Path("sales.csv").write_text("a,b\n")
    Path("sales.csv.gz").write_bytes(b"x")
    Path("notes.md").write_text("# hi")
    Path("noname").write_text("?")
    arguments = [word for path in sorted(Path.cwd().iterdir()) for word in ("--file", str(path))]
    result = dragoman("send", *arguments, "--server", served.grpc)
    assert result.out.splitlines() == [
        "noname application/octet-stream 1",
        "notes.md text/markdown 4",
        "sales.csv text/csv 4",
        "sales.csv.gz application/octet-stream 1",
    ]


def test_a_context_is_continued(dragoman: Run, served: Server) -> None:
    result = dragoman("send", "hi", "--agent", "quote", "--context", "c-1", "--server", served.grpc)
    assert result.out == "c-1: hi\n"


def test_json_output_is_one_object_per_line(dragoman: Run) -> None:
    (line,) = dragoman("send", "echo hello", "--json").out.splitlines()
    task = json.loads(line)["task"]
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    assert task["artifacts"][0]["parts"] == [{"text": "hello"}]
    assert json.loads(dragoman("get", task["id"], "--json").out)["artifacts"] == task["artifacts"]

    lines = [json.loads(line) for line in dragoman("send", "stream 2", "--stream", "--json").out.splitlines()]
    kinds = [next(iter(line)) for line in lines]
    assert (kinds[0], kinds.count("artifactUpdate"), kinds[-1]) == ("task", 2, "statusUpdate")

    reply = dragoman("send", "reply hi", "--json").out
    assert json.loads(reply)["message"]["parts"] == [{"text": "hi"}]


def test_a_rejection_names_the_field(dragoman: Run, served: Server) -> None:
    result = dragoman("send", "hi", "--agent", "nobody", "--server", served.grpc)
    assert result.code == 4
    assert "files" in result.err  # the existing agents
    Path("photo.png").write_bytes(b"x")
    result = dragoman("send", "--file", "photo.png", "--agent", "quote", "--server", served.grpc)
    assert result.code == 3
    assert "message.parts[0].mediaType" in result.err
    assert "(CONTENT_TYPE_NOT_SUPPORTED)" in result.err


def test_files_over_the_limit_are_not_read(dragoman: Run) -> None:
    with Path("big.bin").open("wb") as file:
        file.truncate(16 * 1024 * 1024 + 1)
    result = dragoman("send", "--file", "big.bin")
    assert result.code == 2
    assert "--file big.bin: 16,777,217 bytes; the files of a message may have 16,777,216 bytes in all" in result.err


def test_ctrl_c_leaves_the_task_running(dragoman: Run, playground: Server) -> None:
    command = [sys.executable, "-m", "dragoman", "send", "sleep 60", "--server", playground.grpc]
    process = subprocess.Popen(
        command, env=clean_environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    assert process.stdout is not None
    lines = Lines(process.stderr)
    with process.stdout:
        lines.until("WORKING")
        process.send_signal(signal.SIGINT)
        line = lines.until("the task continues")
        assert process.wait(PROCESS_TIMEOUT) == 130
    assert "Traceback" not in lines.rest()
    task = line.split("dragoman watch ")[1].split()[0]
    assert "state    WORKING" in dragoman("get", task).out
    dragoman("cancel", task)


def test_a_closed_pipe_is_no_error(playground: Server) -> None:
    command = [sys.executable, "-m", "dragoman", "send", "stream 5000", "--stream", "--server", playground.grpc]
    process = subprocess.Popen(command, env=clean_environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.read(7) == b"chunk-1"
    process.stdout.close()
    with process.stderr:
        assert b"Broken" not in process.stderr.read()
    assert process.wait(PROCESS_TIMEOUT) == 0


def test_files_keep_their_order_and_base_name(tmp_path: Path) -> None:
    (tmp_path / "b.csv").write_bytes(b"1")
    (tmp_path / "a.csv").write_bytes(b"22")
    parts = file_parts([tmp_path / "b.csv", tmp_path / "a.csv"], limit=3)
    assert [(part.filename, part.raw) for part in parts] == [("b.csv", b"1"), ("a.csv", b"22")]


def test_the_limit_applies_to_all_files_together(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"22")
    with pytest.raises(ValueError, match=r"a.csv: 2 bytes; the files of a message may have 3 bytes in all"):
        file_parts([tmp_path / "a.csv", tmp_path / "a.csv"], limit=3)
