"""Parsing of the settings of MCP servers, and their agent ids."""

from __future__ import annotations

from pathlib import Path

import pytest

from dragoman.extensions.mcp.sources import (
    McpSpec,
    mcp_agent_id,
    mcp_server_from_table,
    parse_mcp_server,
    parse_mcp_servers,
    with_token,
)


@pytest.mark.parametrize(
    ("text", "server"),
    [
        (" https://x.example/mcp?a=1 ", McpSpec(url="https://x.example/mcp?a=1")),
        ("tools=http://x:80/mcp", McpSpec(url="http://x:80/mcp", id="tools")),
        ("npx -y '@a/b c'", McpSpec(command=("npx", "-y", "@a/b c"))),
        ("time=uvx mcp-server-time --zone=UTC", McpSpec(command=("uvx", "mcp-server-time", "--zone=UTC"), id="time")),
        ("server --url http://x", McpSpec(command=("server", "--url", "http://x"))),
    ],
)
def test_a_text_is_a_url_or_a_command_with_or_without_an_id(text: str, server: McpSpec) -> None:
    assert parse_mcp_server(text) == server


def test_several_servers_are_on_lines_or_in_a_list() -> None:
    two = (McpSpec(url="http://a"), McpSpec(command=("b", "c,d"), id="b"))
    assert parse_mcp_servers("http://a\n\nb=b c,d\n") == two
    assert parse_mcp_servers(["http://a", {"command": ["b", "c,d"], "id": "b"}]) == two
    assert parse_mcp_servers(two) == two
    assert parse_mcp_servers(3) == 3  # the settings reject it later


def test_a_table_sets_credentials_and_limits() -> None:
    table = {"url": "https://x/mcp/?k=v", "token": "secret", "headers": {"X-Key": "k"}, "turns": 3, "time-limit": 1.5}
    server = mcp_server_from_table({**table, "silence": 10})
    assert dict(server.headers) == {"X-Key": "k", "Authorization": "Bearer secret"}
    assert (server.turns, server.time_limit, server.silence) == (3, 1.5, 10.0)
    assert "secret" not in repr(server)
    assert server.location == "https://x/mcp"


def test_a_table_sets_the_environment_of_a_command() -> None:
    server = mcp_server_from_table({"command": "npx x --key abc", "env": {"API_KEY": "secret"}, "cwd": "/srv"})
    assert (dict(server.env), server.cwd, server.location) == ({"API_KEY": "secret"}, "/srv", "npx")
    assert "secret" not in repr(server)


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("ws://x", "begins with http:// or https://"),
        ("http://u:p@x", "without user name and password"),
        ("a 'b", "command: cannot be split into words: no closing quotation"),
        ({}, "url, command: set one of them"),
        ({"url": "http://x", "command": "a"}, "url, command: set one of them"),
        ({"url": "http://x", "colour": "red"}, '"colour" is not a key of an MCP server; use url, command'),
        ({"url": 3}, "url: must be a string"),
        ({"url": "http://x", "id": "Desk"}, "id: agent id"),
        ({"url": "http://x", "token": "a", "token_file": "b"}, "set only one of them"),
        ({"url": "http://x", "env": {}}, "env: is for servers with a command"),
        ({"command": "a", "token": "b"}, "token: is for servers with a url"),
        ({"command": "a", "env": {"A B": "c"}}, 'env: "A B" is not the name'),
        ({"command": "a", "env": {"A": 3}}, "env.A: must be a string"),
        ({"command": "a", "env": []}, "env: must be a table"),
        ({"command": ["a", 3]}, "command: must be a string or a list"),
        ({"command": {"a": 1}}, "command: must be a string or a list"),
        ({"command": [""]}, "with a program first"),
        ({"url": "http://x", "turns": 0}, "turns: must be 1 to"),
        ({"url": "http://x", "time_limit": -1}, "time_limit: must be a number of seconds"),
        ({"url": "http://x", "silence": 0}, "silence: must be more than 0 seconds"),
        ({"url": "http://x", "headers": {"a b": "c"}}, "is not a header name"),
        (3, "3 is not an MCP server"),
    ],
)
def test_an_invalid_server_is_explained(value: object, why: str) -> None:
    with pytest.raises(ValueError, match=why.replace("(", r"\(").replace(")", r"\)")):
        parse_mcp_servers([value])


def test_two_servers_cannot_have_the_same_id() -> None:
    with pytest.raises(ValueError, match='"a" is the id of two MCP servers'):
        parse_mcp_servers(["a=http://x", "a=b"])


@pytest.mark.parametrize(
    ("name", "id"),
    [
        ("mcp-server-time", "mcp-server-time"),
        ("Test Tools", "test-tools"),
        ("TestTools", "test-tools"),
        ("mcp-servers/everything", "everything"),
        ("@scope/My_Server", "my-server"),
        ("a" * 80, "a" * 63),
    ],
)
def test_an_id_is_derived_from_the_name(name: str, id: str) -> None:
    assert mcp_agent_id(McpSpec(url="http://x"), name) == id


def test_an_own_id_is_used_and_a_number_gives_none() -> None:
    assert mcp_agent_id(McpSpec(url="http://x", id="own"), "Name") == "own"
    with pytest.raises(ValueError, match="gives no valid agent id"):
        mcp_agent_id(McpSpec(url="http://x"), "1")


def test_a_token_is_read_from_its_file(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(" secret\n")
    server = McpSpec(url="http://x", token_file=str(file), headers={"X-Key": "k"})
    assert dict(with_token(server).headers) == {"X-Key": "k", "Authorization": "Bearer secret"}
    assert with_token(McpSpec(url="http://x")) == McpSpec(url="http://x")
    file.write_text("a\nb")
    with pytest.raises(ValueError, match="must be printable ASCII"):
        with_token(server)
    with pytest.raises(ValueError, match="none cannot be read: No such file"):
        with_token(McpSpec(url="http://x", token_file=str(tmp_path / "none")))
