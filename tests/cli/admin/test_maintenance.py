"""`purge`, `export`, `backup`, `restore` against real servers and stores."""

from __future__ import annotations

import hashlib
import json
import re
import signal
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import CommandResult, Run
from tests.cli.server import Server, clean_environment, serving
from typer.testing import CliRunner

from dragoman.cli import cli

pytestmark = pytest.mark.longest

NOT_THERE = "00000000-0000-7000-8000-000000000000"


def task_of(result: CommandResult) -> str:
    return str(json.loads(result.out)["task"]["id"])


def lines_of(result: CommandResult) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.out.splitlines()]


def proof(*tasks: str) -> str:
    """The output of `printf '%s\\n' TASKS | sort | sha256sum`."""
    return hashlib.sha256("".join(f"{task}\n" for task in sorted(tasks)).encode()).hexdigest()


@pytest.fixture
def stopped(tmp_path: Path, dragoman: Run) -> Callable[..., Path]:
    """The store of a stopped server, with a task for each of these texts; the ids are in `ids`."""

    def make(*texts: str, ids: list[str] | None = None) -> Path:
        folder = tmp_path / "stopped"
        folder.mkdir()
        with serving(cwd=folder) as server:
            for text in texts:
                task = task_of(dragoman("send", text, "--json", "--server", server.grpc))
                if ids is not None:
                    ids.append(task)
            server.signal(signal.SIGTERM)
            server.ends()
        return folder / "dragoman.db"

    return make


# Purge -------------------------------------------------------------------------------------------------------------


def test_a_purged_task_is_erased_and_the_receipt_has_the_counts(dragoman: Run) -> None:
    task = task_of(dragoman("send", "echo hello", "--json"))
    dry = dragoman("purge", "--task", task, "--dry-run")
    assert (dry.code, dry.out.splitlines()[0]) == (0, "would remove 1 task: task")
    assert "receipt" not in dry.out
    assert dragoman("get", task).code == 0
    result = dragoman("purge", "--task", task)
    assert result.code == 0
    assert result.out.splitlines()[0] == "removed      1 task: task"
    assert result.out.splitlines()[1] == dry.out.splitlines()[1]
    assert f"sha256       {proof(task)}" in result.out
    assert task not in result.out
    assert "(TASK_NOT_FOUND)" in dragoman("get", task).err


def test_purging_a_context_keeps_other_tasks(dragoman: Run) -> None:
    texts = [task_of(dragoman("send", "echo", "--context", "purged", "--json")) for _ in range(3)]
    stays = task_of(dragoman("send", "echo", "--context", "kept", "--json"))
    receipt = json.loads(dragoman("purge", "--context", "purged", "--json").out)["receipt"]
    assert receipt["tasks"] == "3"
    assert receipt["digest"] == proof(*texts)
    assert dragoman("list", "--context", "purged").err == "no tasks\n"
    assert dragoman("get", stays).code == 0


def test_a_running_task_is_purged_and_its_subscribers_are_notified(dragoman: Run, playground: Server) -> None:
    task = dragoman("send", "sleep 600", "--no-wait").out.strip()
    assert dragoman("purge", "--task", task).code == 0
    assert dragoman("get", task).code == 4
    assert playground.process.poll() is None


def test_purging_by_age_erases_only_ended_tasks(dragoman: Run) -> None:
    text = dragoman("send", "ask", "--context", "old").err.split("task ")[1].split()[0]
    result = dragoman("purge", "--older-than", "1d")
    assert (result.code, result.out) == (0, "removed      0 tasks: older than 1d\n")
    assert dragoman("get", text).code == 0


def test_a_store_without_a_server_is_purged(stopped: Callable[..., Path], dragoman: Run) -> None:
    ids: list[str] = []
    path = stopped("echo 1", "echo 2", ids=ids)
    result = dragoman("purge", "--store", f"sqlite:///{path}", "--task", ids[0])
    assert result.out.startswith("removed      1 task: task\n")
    with serving(cwd=path.parent) as server:
        assert dragoman("get", ids[0], "--server", server.grpc).code == 4
        assert dragoman("get", ids[1], "--server", server.grpc).code == 0


def test_a_store_held_by_a_server_is_not_purged_directly(dragoman: Run, playground: Server) -> None:
    result = dragoman("purge", "--store", f"sqlite:///{playground.startup_info['store']}", "--principal", "anonymous")
    assert result.code == 1
    assert f"is in use: process {playground.process.pid} has held it" in result.err


@pytest.mark.parametrize(
    ("arguments", "code", "response"),
    [
        (["purge"], 2, "no tasks selected"),
        (["purge", "--agent", "echo"], 2, "no tasks selected"),
        (["purge", "--older-than", "soon"], 2, "is not an age"),
        (["purge", "--cause", "4f1c", "--store", "sqlite:///absent.db"], 2, "need a server"),
        (["purge", "--state", "failed", "--state", "canceled", "--store", "sqlite:///absent.db"], 2, "need a server"),
        (["purge", "--older-than", "0"], 2, "greater than 0"),
        (["purge", "--store", "postgresql://x", "--task", "1"], 2, "is not the URL of a store"),
        (["purge", "--store", "sqlite:///absent.db", "--task", "1"], 1, "absent.db does not exist"),
        (["export", "x", "--store", "sqlite:///absent.db"], 1, "absent.db does not exist"),
        (["backup", "there", "--store", "sqlite:///absent.db"], 1, "absent.db does not exist"),
        (["export", NOT_THERE], 4, "TASK_NOT_FOUND"),
        (["restore", "absent"], 3, "is not a backup"),
        (["backup", "/no/such/folder/x"], 3, "the folder /no/such/folder does not exist"),
    ],
)
def test_invalid_arguments_are_reported(dragoman: Run, arguments: list[str], code: int, response: str) -> None:
    result = dragoman(*arguments)
    assert (result.code, response in result.err) == (code, True), result
    assert not list(Path.cwd().glob("absent.db"))


# Export ------------------------------------------------------------------------------------------------------------


def test_an_export_has_all_entries_in_order(dragoman: Run) -> None:
    result = dragoman("send", "ask")
    task = result.err.split("task ")[1].split()[0]
    dragoman("send", "--task", task, "forty-two")
    lines = lines_of(dragoman("export", task))
    kinds = [next(iter(line)) for line in lines]
    assert kinds == sorted(kinds, key=["header", "task", "event", "message", "end"].index)
    header = lines[0]["header"]
    assert (header["version"], header["taskId"], header["agent"]) == (1, task, "playground")
    assert (header["principal"], header["scope"], header["dialect"]) == ("anonymous", "default", "1.0")
    shown = json.loads(dragoman("get", task, "--json").out)
    assert lines[1]["task"] == shown
    events = [line["event"] for line in lines if "event" in line]
    assert [event["sequence"] for event in events] == list(range(1, len(events) + 1))
    assert "task" in events[0]["event"]
    assert all("time" in event for event in events if "artifactUpdate" not in event["event"])
    messages = [line["message"] for line in lines if "message" in line]
    assert [one["number"] for one in messages] == list(range(1, len(messages) + 1))
    assert "forty-two" in json.dumps(messages)
    assert lines[-1] == {"end": {"events": len(events), "messages": len(messages)}}


def test_an_export_is_the_same_with_and_without_a_server(stopped: Callable[..., Path], dragoman: Run) -> None:
    ids: list[str] = []
    path = stopped("stream 3", ids=ids)
    offline = lines_of(dragoman("export", ids[0], "--store", f"sqlite:///{path}"))
    with serving(cwd=path.parent) as server:
        online = lines_of(dragoman("export", ids[0], "--server", server.grpc))
    assert offline[1:] == online[1:]
    offline[0]["header"].pop("exported")
    online[0]["header"].pop("exported")
    assert offline[0] == online[0]


# Backup and restore ------------------------------------------------------------------------------------------------


def test_a_restored_backup_has_another_epoch(dragoman: Run, playground: Server) -> None:
    task = task_of(dragoman("send", "echo hello", "--json"))
    running = dragoman("send", "sleep 600", "--no-wait").out.strip()
    result = dragoman("backup", "copy")
    assert (result.code, result.out.endswith(", verified\n")) == (0, True), result
    assert sorted(file.name for file in Path("copy").iterdir()) == ["backup.json", "tasks.db"]
    after = task_of(dragoman("send", "echo later", "--json"))
    dragoman("cancel", running)
    restored = dragoman("restore", "copy", "--store", "sqlite:///again.db")
    assert restored.code == 0, restored
    assert re.search(r"^running      \d+ tasks? then running", restored.out, re.M)
    assert re.search(r"^epoch        [0-9a-f]{8}, before [0-9a-f]{8}$", restored.out, re.M)
    assert "rejected (INVALID_ARGUMENT: another epoch)" in restored.out
    assert "idempotency keys used since the backup are unknown" in restored.out
    with serving("--store", "sqlite:///again.db", cwd=Path.cwd()) as server:
        assert "state    COMPLETED\n" in dragoman("get", task, "--server", server.grpc).out
        assert "INTERRUPTED" in dragoman("get", running, "--server", server.grpc).out
        assert dragoman("get", after, "--server", server.grpc).code == 4


def test_a_restore_that_fails_names_its_store_and_leaves_no_file(dragoman: Run, stopped: Callable[..., Path]) -> None:
    path = stopped("echo 1")
    assert dragoman("backup", "copy", "--store", f"sqlite:///{path}").code == 0
    absent = dragoman("restore", "copy", "--store", "sqlite:///no/folder/new.db")
    assert (absent.code, "no/folder/new.db cannot be restored from copy: " in absent.err) == (1, True), absent
    assert not list(Path.cwd().glob("new*"))


def test_a_restore_says_that_large_parts_are_missing(dragoman: Run, stopped: Callable[..., Path]) -> None:
    path = stopped("echo 1")
    with sqlite3.connect(path) as store:
        store.execute("INSERT INTO blobs (hash, size, uses) VALUES (?, 9, 1)", (bytes(32),))
    store.close()
    assert dragoman("backup", "copy", "--store", f"sqlite:///{path}").code == 0
    restored = dragoman("restore", "copy", "--store", "sqlite:///new.db")
    assert "missing      1 large part: copy has no file of them in blobs/; readers get links" in restored.out, restored


def test_a_store_is_backed_up_with_and_without_its_server(stopped: Callable[..., Path], dragoman: Run) -> None:
    path = stopped("echo 1")
    assert dragoman("backup", "one", "--store", f"sqlite:///{path}").code == 0
    with serving(cwd=path.parent):
        assert dragoman("backup", "two", "--store", f"sqlite:///{path}").code == 0
    assert json.loads(Path("one/backup.json").read_text())["tasks"] == 1
    assert json.loads(Path("two/backup.json").read_text())["tasks"] == 1


def test_existing_files_are_not_overwritten(dragoman: Run, playground: Server) -> None:
    Path("copy").mkdir()
    result = dragoman("backup", "copy")
    assert (result.code, f"{Path.cwd()}/copy already exists" in result.err) == (3, True)
    assert dragoman("backup", "good").code == 0
    Path("dragoman.db").write_bytes(b"precious")
    result = dragoman("restore", "good")
    assert (result.code, "dragoman.db already exists" in result.err) == (3, True)
    assert Path("dragoman.db").read_bytes() == b"precious"


def test_a_damaged_backup_is_not_restored(dragoman: Run, playground: Server) -> None:
    dragoman("send", "stream 200")
    assert dragoman("backup", "copy").code == 0
    whole = Path("copy/tasks.db").read_bytes()
    Path("copy/tasks.db").write_bytes(whole[: len(whole) // 2])
    result = dragoman("restore", "copy", "--store", "sqlite:///new.db")
    assert (result.code, "new.db cannot be restored from copy: " in result.err) == (1, True), result
    assert not list(Path.cwd().glob("new*"))
    assert "Traceback" not in result.err


def test_help_names_every_option() -> None:
    for command in ("purge", "export", "backup", "restore"):
        shown = CliRunner().invoke(cli, [command, "--help"], env=clean_environment())
        assert shown.exit_code == 0
        assert "--store" in shown.stdout
