"""`dragoman audit`."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from dragoman.cli import cli
from dragoman.core.audit import GENESIS_HASH, AuditEntry, chain_entries, format_audit_line, parse_audit_line

LOG = chain_entries(
    GENESIS_HASH,
    0,
    [AuditEntry(at, "task.created", "ok", {}, {"principal": "alice"}) for at in (1, 2, 3)],
    [bytes(16)] * 3,
)


def verify(tmp_path: Path, text: str) -> tuple[int, str]:
    file = tmp_path / "audit.jsonl"
    file.write_text(text)
    result = CliRunner().invoke(cli, ["audit", "verify", str(file)])
    return result.exit_code, result.output


def test_an_intact_log_is_verified(tmp_path: Path) -> None:
    code, text = verify(tmp_path, "".join(f"{format_audit_line(kept)}\n" for kept in LOG))
    assert code == 0
    assert "entries 1 to 3 are intact" in text
    assert LOG[-1].hash.hex() in text


def test_an_export_that_continues_another_is_verified_alone(tmp_path: Path) -> None:
    assert (
        "entries 2 to 3 are intact" in verify(tmp_path, "".join(f"{format_audit_line(kept)}\n" for kept in LOG[1:]))[1]
    )


@pytest.mark.parametrize(
    ("text", "code", "rule"),
    [
        (f"{format_audit_line(LOG[0])}\n{format_audit_line(LOG[2])}\n", 1, "line 2: entry 3 follows entry 1"),
        (
            format_audit_line(LOG[0]).replace("alice", "bob"),
            1,
            "line 1: entry 1: its personal data does not match its seal",
        ),
        ("hello\n", 2, "line 1: "),
        ("", 2, "the log has no entries"),
    ],
)
def test_invalid_logs_are_reported_with_their_line(tmp_path: Path, text: str, code: int, rule: str) -> None:
    found, response_text = verify(tmp_path, text)
    assert (found, rule in response_text) == (code, True), response_text


def test_a_log_is_read_from_stdin() -> None:
    result = CliRunner().invoke(cli, ["audit", "verify", "-"], input=f"{format_audit_line(LOG[0])}\n")
    assert result.exit_code == 0


def test_the_log_of_a_store_is_exported_without_a_server(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/tasks.db"
    assert CliRunner().invoke(cli, ["keys", "create", "first", "--store", store]).exit_code == 0
    result = CliRunner().invoke(cli, ["audit", "export", "--store", store])
    assert result.exit_code == 0
    entries = [parse_audit_line(line).entry for line in result.stdout.splitlines()]
    assert [(entry.action, entry.outcome) for entry in entries] == [
        ("operator.CreateKey", "begun"),
        ("operator.CreateKey", "done"),
        ("operator.ExportAudit", "begun"),
    ]
    again = CliRunner().invoke(cli, ["audit", "export", "--store", store, "--after", "3"])
    entries = [parse_audit_line(line).entry for line in again.stdout.splitlines()]
    assert [(entry.action, entry.outcome) for entry in entries] == [
        ("operator.ExportAudit", "done"),
        ("operator.ExportAudit", "begun"),
    ]
