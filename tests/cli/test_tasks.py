"""`send`, `get`, `watch`, `list`, `cancel` against a real server: output and exit codes."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from tests.cli.conftest import Run
from tests.cli.server import PROCESS_TIMEOUT, Lines, Server, clean_environment

from dragoman.cli import COMMANDS, load_command
from dragoman.cli.tasks import FileError, file_parts

NOT_THERE = "00000000-0000-7000-8000-000000000000"


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


def test_a_list_is_ordered_by_change_and_filtered(dragoman: Run) -> None:
    first = json.loads(dragoman("send", "echo 1", "--context", "of-the-list", "--json").out)["task"]["id"]
    second = json.loads(dragoman("send", "fail", "--context", "of-the-list", "--json").out)["task"]["id"]
    lines = dragoman("list", "--context", "of-the-list").out.splitlines()
    assert [(line.split()[0], line.split()[3]) for line in lines] == [("FAILED", second), ("COMPLETED", first)]
    assert re.fullmatch(rf"FAILED +playground +\d+s +{second} +fail", lines[0])
    completed = ("list", "--context", "of-the-list", "--state", "completed")
    (line,) = dragoman(*completed, "--wide").out.splitlines()
    assert re.fullmatch(rf"COMPLETED +playground +\d+s +{first} +echo 1 +- +default +of-the-list +\d{{4}}-.*", line)
    assert first in dragoman(*completed, "--since", "1h").out
    assert dragoman(*completed, "--since", "0").err == "no tasks\n"
    assert dragoman("list", "--since", "long").code == 2
    (line,) = dragoman("list", "--context", "of-the-list", "--limit", "1", "--json").out.splitlines()
    assert json.loads(line)["id"] == second
    nothing = dragoman("list", "--context", "of-nobody")
    assert (nothing.code, nothing.out, nothing.err) == (0, "", "no tasks\n")


def test_a_list_of_all_callers_shows_what_was_asked(dragoman: Run) -> None:
    task = dragoman("send", "fail in time", "--context", "of-asking", "--no-wait").out.strip()
    dragoman("watch", task)
    (line,) = dragoman("list", "--all", "--context", "of-asking").out.splitlines()
    assert re.fullmatch(rf"FAILED +playground +\d+s +{task} +fail in time", line)
    (wide,) = dragoman("list", "--all", "--context", "of-asking", "--wide").out.splitlines()
    assert re.search(r"fail in time +RuntimeError: .* +default +of-asking", wide)


SCOPE = "projects/p/locations/l/collections/c/engines/e/assistants/a"


def test_tasks_of_every_scope_are_listed_and_found(dragoman: Run, served: Server) -> None:
    at = ("--server", served.grpc)
    context = ("--context", "of-scopes", *at)
    here = dragoman("send", "hi", "--agent", "quote", "--no-wait", *context).out.strip()
    there = dragoman("send", "hi", "--agent", "quote", "--scope", SCOPE, "--no-wait", *context).out.strip()
    dragoman("watch", there, *at)
    lines = [line.split() for line in dragoman("list", *context).out.splitlines()]
    assert {(line[3], line[1]) for line in lines} == {(here, "quote"), (there, f"{SCOPE}/agents/quote")}
    for scope, task in (("default", here), (SCOPE, there)):
        (line,) = dragoman("list", "--scope", scope, *context).out.splitlines()
        assert line.split()[3] == task
        (json_line,) = dragoman("list", "--scope", scope, "--json", *context).out.splitlines()
        listed = json.loads(json_line)
        assert (listed["id"], listed["agent"], listed["scope"]) == (task, "quote", scope)
        for narrowed in ((), ("--scope", scope), ("--agent", "quote")):
            shown = dragoman("get", task, *narrowed, *at)
            assert shown.code == 0
            assert f"\nscope    {scope}\n" in shown.out
            explained = dragoman("explain", task, *narrowed, *at).out
            assert f"\nscope        {scope}\n" in explained
    assert dragoman("list", "--scope", SCOPE, "--agent", "files", *context).err == "no tasks\n"


def test_a_task_in_another_scope_than_the_named_one_is_missing(dragoman: Run, served: Server) -> None:
    at = ("--server", served.grpc)
    task = dragoman("send", "hi", "--agent", "quote", "--scope", SCOPE, "--no-wait", *at).out.strip()
    for command in ("get", "watch", "cancel"):
        missing = dragoman(command, task, "--agent", "quote", "--scope", "default", *at)
        assert (missing.code, "(TASK_NOT_FOUND)" in missing.err) == (4, True)
        unnamed = dragoman(command, NOT_THERE, "--scope", SCOPE, *at)
        assert (unnamed.code, unnamed.out) == (2, "")
        assert "name the agent in this scope: --agent NAME" in unnamed.err
    assert dragoman("explain", task, "--scope", "default", *at).code == 4
    assert dragoman("send", "hi", "--scope", SCOPE).code == 2


def test_follow_up_commands_name_the_scope(dragoman: Run, served: Server) -> None:
    question = dragoman("send", "ask", "--agent", "still", "--scope", SCOPE, "--server", served.grpc)
    assert f"--agent still --scope {SCOPE}" in question.err


def test_an_id_of_several_tasks_has_to_be_narrowed(dragoman: Run, served: Server) -> None:
    for agent in ("quote", "still"):
        params = {"id": "mine", "message": {"role": "user", "parts": [{"type": "text", "text": "hi"}]}}
        body = {"jsonrpc": "2.0", "id": 1, "method": "tasks/send", "params": params}
        request = urllib.request.Request(f"{served.http}/{agent}", json.dumps(body).encode(), method="POST")
        request.add_header("Content-Type", "application/json")
        with urllib.request.urlopen(request) as response:
            assert json.load(response)["result"]["id"] == "mine"
    several = dragoman("get", "mine", "--server", served.grpc)
    assert (several.code, several.out) == (2, "")
    assert "--agent quote --scope default; --agent still --scope default" in several.err
    assert "\nstate    COMPLETED\n" in dragoman("get", "mine", "--agent", "still", "--server", served.grpc).out


def test_watch_prints_past_and_new_output(dragoman: Run) -> None:
    task = dragoman("send", "stream 4 50", "--no-wait").out.strip()
    result = dragoman("watch", task)
    assert (result.code, result.out.replace("\n", "")) == (0, "chunk-1 chunk-2 chunk-3 chunk-4 ")
    assert "COMPLETED  task " in result.err


def test_watch_prints_a_finished_task(dragoman: Run) -> None:
    task = json.loads(dragoman("send", "echo done", "--json").out)["task"]["id"]
    result = dragoman("watch", task)
    assert (result.code, result.out) == (0, "done\n")
    failed = json.loads(dragoman("send", "fail", "--json").out)["task"]["id"]
    assert dragoman("watch", failed).code == 1


def test_the_steps_of_a_task_are_listed(dragoman: Run, served: Server) -> None:
    at = ("--server", served.grpc)
    task = json.loads(dragoman("send", "go", "--agent", "steps", "--json", *at).out)["task"]["id"]
    lines = [line.split() for line in dragoman("steps", task, *at).out.splitlines()]
    assert [(line[0], line[1], line[-2:]) for line in lines] == [
        ("page", "DONE", ["1", "bytes"]),
        ("page#2", "DONE", ["1", "bytes"]),
    ]
    first, _ = map(json.loads, dragoman("steps", task, "--json", *at).out.splitlines())
    assert (first["name"], first["state"], first["attempt"]) == ("page", "TASK_STEP_STATE_DONE", 1)
    exported = [json.loads(line) for line in dragoman("export", task, *at).out.splitlines()]
    assert [one["step"]["result"]["raw"] for one in exported if "step" in one] == ["MA==", "MQ=="]
    assert exported[-1]["end"]["steps"] == 2
    plain = json.loads(dragoman("send", "hi", "--agent", "quote", "--json", *at).out)["task"]["id"]
    assert dragoman("steps", plain, *at).out == "no steps\n"


@pytest.mark.parametrize("command", ["get", "watch", "cancel", "explain", "steps", "logs", "rerun", "send hi --task"])
def test_a_missing_task_is_exit_code_4(dragoman: Run, command: str) -> None:
    result = dragoman(*command.split(), NOT_THERE)
    assert (result.code, result.out) == (4, "")
    assert "(TASK_NOT_FOUND)\npass the complete id, as `dragoman list` shows it; " in result.err
    error = json.loads(dragoman(*command.split(), NOT_THERE, "--json").err)["error"]
    assert (error["code"], error["exitCode"]) == ("TASK_NOT_FOUND", 4)


def test_json_errors_are_one_object_on_stderr(dragoman: Run, unused_tcp_port: int) -> None:
    down = dragoman("list", "--json", "--server", f"127.0.0.1:{unused_tcp_port}")
    assert (down.code, down.out) == (3, "")
    error = json.loads(down.err)["error"]
    assert (error["code"], error["exitCode"]) == ("UNAVAILABLE", 3)
    assert "cannot connect" in error["message"]
    for invalid in (("list", "--json", "--limit", "0"), ("send", "--json"), ("list", "--json", "--nothing")):
        wrong = dragoman(*invalid)
        assert (wrong.code, wrong.out) == (2, "")
        assert json.loads(wrong.err)["error"]["code"] == "USAGE"


def test_times_in_json_have_one_form(dragoman: Run) -> None:
    task = json.loads(dragoman("send", "echo x", "--json").out)["task"]
    (explained,) = dragoman("explain", task["id"], "--json").out.splitlines()
    assert json.loads(explained)["since"] == task["status"]["timestamp"]


def test_a_message_to_a_task_needs_no_agent(dragoman: Run, served: Server) -> None:
    at = ("--server", served.grpc)
    for scope in ((), ("--scope", SCOPE)):
        task = dragoman("send", "ask", "--agent", "still", *scope, "--json", *at).out
        id = json.loads(task)["task"]["id"]
        answered = dragoman("send", "--task", id, "forty-two", *at)
        assert answered.code == 0, answered


@pytest.mark.parametrize("binding", ["grpc", "http"])
def test_a_similar_agent_is_proposed(dragoman: Run, served: Server, binding: str) -> None:
    at = ("--server", getattr(served, binding))
    similar = dragoman("send", "x", "--agent", "quotes", *at)
    assert (similar.code, similar.out) == (4, "")
    assert 'error: no agent "quotes"; did you mean quote? (AGENT_NOT_FOUND)\n' in similar.err
    other = dragoman("get", NOT_THERE, "--agent", "nobody_here", *at)
    assert other.code == 4
    assert 'no agent "nobody_here"; use one of ' in other.err
    listed = dragoman("list", "--agent", "quotes", *at)
    assert (listed.code, listed.out) == (4, "")
    assert 'error: no agent "quotes"; did you mean quote? (AGENT_NOT_FOUND)\n' in listed.err


def test_a_cancel_of_an_ended_task_says_its_state(dragoman: Run) -> None:
    task = json.loads(dragoman("send", "echo x", "--json").out)["task"]["id"]
    refused = dragoman("cancel", task)
    assert refused.code == 3
    assert re.search(rf"task {task} is COMPLETED since \d{{4}}-\d\d-\d\d .*; a task that has ended cannot", refused.err)


def test_a_port_of_another_protocol_is_recognized(dragoman: Run, playground: Server) -> None:
    http_port = dragoman("list", "--server", playground.http.removeprefix("http://"))
    assert (http_port.code, "that is the HTTP port; pass http://HOST:PORT" in http_port.err) == (3, True)
    for command in (("list",), ("send", "x"), ("send", "x", "--binding", "rest")):
        grpc_port = dragoman(*command, "--server", f"http://{playground.grpc}")
        assert (grpc_port.code, "if it is the gRPC port, pass grpc://" in grpc_port.err) == (3, True), grpc_port
        assert "\\x00" not in grpc_port.err


def test_a_rejection_names_the_field(dragoman: Run, served: Server) -> None:
    result = dragoman("send", "hi", "--agent", "nobody", "--server", served.grpc)
    assert result.code == 4
    assert "files" in result.err  # the existing agents
    Path("photo.png").write_bytes(b"x")
    result = dragoman("send", "--file", "photo.png", "--agent", "quote", "--server", served.grpc)
    assert result.code == 3
    assert "message.parts[0].mediaType" in result.err
    assert "(CONTENT_TYPE_NOT_SUPPORTED)" in result.err


def test_an_unreachable_server_is_exit_code_3_with_advice(dragoman: Run, unused_tcp_port: int) -> None:
    for server in (f"127.0.0.1:{unused_tcp_port}", f"http://127.0.0.1:{unused_tcp_port}"):
        result = dragoman("send", "hi", "--server", server)
        assert (result.code, result.out) == (3, "")
        assert f"error: cannot connect to {server}: Connection refused" in result.err
        assert "dragoman serve" in result.err


@pytest.mark.parametrize("server", ["nobody.invalid", "http://nobody.invalid"])
def test_an_unknown_host_is_named_as_one(dragoman: Run, server: str) -> None:
    result = dragoman("list", "--server", server)
    assert result.code == 3
    assert result.err.startswith(f"error: cannot connect to {server}: the name cannot be resolved\n")


@pytest.mark.parametrize(
    ("arguments", "response"),
    [
        (["send"], "the message is empty"),
        (["send", "hi", "--stream", "--no-wait"], "--no-wait"),
        (["send", "hi", "--file", "absent.csv"], "--file absent.csv: No such file"),
        (["send", "hi", "--file", "."], "--file .: "),
        (["list", "--state", "happy"], '"happy" is not a task state; use one of submitted, '),
        (
            ["list", "--state", "complete"],
            "Invalid value for '--state': \"complete\" is not a task state; did you mean",
        ),
        (["cancel", "--state", "complete"], "did you mean completed?"),
        (["purge", "--state", "complete"], "did you mean completed?"),
        (["get"], "TASK"),
        (["juggle"], "juggle"),
    ],
)
def test_invalid_usage_is_exit_code_2_with_the_reason(dragoman: Run, arguments: list[str], response: str) -> None:
    result = dragoman(*arguments)
    assert result.code == 2
    assert response in result.err


def test_files_over_the_limit_are_not_read(dragoman: Run) -> None:
    with Path("big.bin").open("wb") as file:
        file.truncate(16 * 1024 * 1024 + 1)
    result = dragoman("send", "--file", "big.bin")
    assert result.code == 2
    assert "--file big.bin: 16,777,217 bytes; the files of a message may have 16,777,216 bytes in all" in result.err


def test_help_has_examples(dragoman: Run) -> None:
    for command in ("send", "get", "watch", "list", "cancel", "serve"):
        assert f"dragoman {command}" in dragoman(command, "--help").out
    top = dragoman("--help").out
    assert "Exit codes" in top
    assert dragoman("--version").out.startswith("dragoman ")


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


def test_help_imports_no_heavy_modules() -> None:
    code = (
        "import sys; import dragoman.cli;"
        "print([name for name in ('grpc', 'aiohttp', 'pydantic', 'rich', 'sqlite3') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_help_imports_no_command() -> None:
    code = (
        "import sys; from typer.testing import CliRunner; from dragoman.cli import cli;"
        "assert 'explain' in CliRunner().invoke(cli, ['--help']).output;"
        "print([name for name in sys.modules if name.startswith('dragoman.cli.') or name in ('grpc', 'aiohttp')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("name", COMMANDS)
def test_the_table_of_commands_has_the_first_line_of_each_help(name: str) -> None:
    assert load_command(name).help.strip().splitlines()[0] == COMMANDS[name].help


def test_files_keep_their_order_and_base_name(tmp_path: Path) -> None:
    (tmp_path / "b.csv").write_bytes(b"1")
    (tmp_path / "a.csv").write_bytes(b"22")
    parts = file_parts([tmp_path / "b.csv", tmp_path / "a.csv"], limit=3)
    assert [(part.filename, part.raw) for part in parts] == [("b.csv", b"1"), ("a.csv", b"22")]


def test_the_limit_applies_to_all_files_together(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"22")
    with pytest.raises(FileError, match=r"a.csv: 2 bytes; the files of a message may have 3 bytes in all"):
        file_parts([tmp_path / "a.csv", tmp_path / "a.csv"], limit=3)
