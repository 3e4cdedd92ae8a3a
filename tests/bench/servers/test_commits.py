"""Another commit as a server of a benchmark."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from bench.rows import Rows
from bench.servers.contestants import CONTESTANTS, DRAGOMAN, ServerFolder
from tests.bench.report.test_document import lines
from tests.bench.report.test_targets import row

from bench.report import document
from bench.servers import commits

NAME = "dragoman at 0bb818d1"


@pytest.fixture
def server() -> Iterator[str]:
    yield commits.add_name(NAME)
    del CONTESTANTS[NAME]


def test_a_commit_runs_in_its_folder_with_its_environment(server: str) -> None:
    contestant = CONTESTANTS[server]
    assert contestant.folder == commits.COMMITS_FOLDER / "0bb818d1"
    command = contestant.command(ServerFolder(contestant.folder / "run", {"http": 1, "grpc": 2}))
    assert command[0] == str(contestant.folder / ".venv" / "bin" / "python")
    assert f"--store=sqlite:///{contestant.folder}/run/tasks.db" in command


def test_a_commit_that_does_not_exist_is_reported_with_the_command() -> None:
    with pytest.raises(commits.CommitNotAvailable, match=r"git rev-parse .*nosuchcommit.*fatal"):
        commits.add_commit("nosuchcommit")


def test_the_report_compares_the_tree_with_the_commit_within_each_round(server: str) -> None:
    measured = {DRAGOMAN: (500, 300.0), server: (1000, 100.0)}
    rows = Rows(
        [
            [
                row("rest-send", "16 callers", name, rate, p50=1.0, p99=2.0, cpu_us=cpu) | {"tool": "own client"}
                for name, (rate, cpu) in measured.items()
            ]
        ]
    )
    table = lines(document.render(rows), f"### The working tree / {server}")
    assert table[0] == ["", "rate", "CPU each"]
    assert table[2] == ["rest-send, 16 callers", "0.500", "3.00"]
