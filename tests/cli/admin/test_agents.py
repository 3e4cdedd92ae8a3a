"""`agents list`, `pause`, `resume`, `add` and `remove` against a server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.conftest import Run
from tests.cli.server import Server

pytestmark = pytest.mark.long


def test_a_server_is_added_as_its_own_upstream_and_removed(dragoman: Run, playground: Server, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("secret\n")
    added = dragoman("agents", "add", playground.http, "--id", "mirror", "--token-file", str(token), "--turns", "3")
    assert added.code == 0, added
    assert added.out.startswith(
        f"added: mirror\n  upstream {playground.http} (added, with credentials): 0 of 3 turns\n"
    )
    assert f"  uses JSONRPC 1.0 at {playground.http}\n" in added.out
    assert dragoman("send", "echo through a mirror", "--agent", "mirror").out == "through a mirror\n"
    listed = dragoman("agents", "list").out
    assert listed.startswith("playground  (root)  Playground: ")
    assert "\nmirror              Playground: Runs the command" in listed  # below the text of the first
    assert dragoman("agents").out == listed
    assert len(dragoman("agents", "--json").out.splitlines()) == 3
    assert "secret" not in listed
    lines = [json.loads(line) for line in dragoman("agents", "list", "--json").out.splitlines()]
    assert [line.get("id", line.get("agent")) for line in lines] == ["playground", "mirror", "mirror"]
    removed = dragoman("agents", "remove", "mirror")
    assert removed.out == "removed: mirror; waiting tasks that ended as FAILED: 0\n"
    assert "mirror" not in dragoman("agents", "list").out


def test_an_agent_that_cannot_be_added_is_reported(dragoman: Run) -> None:
    refused = dragoman("agents", "add", "http://10.0.0.1:8080")
    assert (refused.code, "10.0.0.1" in refused.err) == (3, True), refused
    wrong = dragoman("agents", "add", "http://x", "--header", "none")
    assert (wrong.code, "NAME: TEXT" in wrong.err) == (2, True), wrong
    missing = dragoman("agents", "add", "http://x", "--token-file", "nowhere")
    assert (missing.code, "cannot be read" in missing.err) == (2, True), missing
    assert dragoman("agents", "remove", "playground").code == 3


def test_an_agent_is_paused_and_resumed(dragoman: Run) -> None:
    paused = dragoman("agents", "pause", "playground", "--reason", "the model is down")
    assert paused.code == 0, paused
    assert paused.out.startswith("playground: paused by anonymous since ")
    assert paused.out.endswith(": the model is down\n")
    try:
        assert dragoman("send", "--no-wait", "echo hello").code == 0
        listed = dragoman("agents", "list").out
        assert "\n  paused by anonymous since " in listed
        assert "pause" in json.loads(dragoman("agents", "list", "--json").out.splitlines()[0])
    finally:
        assert dragoman("agents", "resume", "playground").out == "resumed: playground\n"
    assert "paused" not in dragoman("agents", "list").out
    assert dragoman("send", "echo hello").out == "hello\n"
    assert dragoman("agents", "pause", "nobody").code == 4
