"""The load of tests is sent through this library: no other module of load writes requests of A2A 1.0."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
FOLDERS: Final = ("bench/load", "bench/measurements", "tests/chaos", "tests/endurance", "tests/overload")
OTHERS: Final = {
    "bench/load/codecs.py": "fasta2a's own methods",
    "tests/chaos/load/mcp_clients.py": "an answer of MCP to a request of the server",
    "tests/overload/callers.py": "many calls over one WebSocket",
    "tests/overload/probe.py": "a process without an event loop, which measures itself",
}
"""Modules with requests of their own, and the reason."""
_REQUEST: Final = re.compile(r'insecure_channel\(|"[^"]*/message:(?:send|stream)"|"jsonrpc": ?"2\.0"')


def writes_requests(source: str) -> bool:
    return _REQUEST.search(source) is not None


def test_only_this_library_writes_requests() -> None:
    paths = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]
    found = {str(path.relative_to(ROOT)) for path in paths if writes_requests(path.read_text("utf-8"))}
    assert found == set(OTHERS)


@pytest.mark.parametrize(
    "source",
    [
        'session.post(f"{url}/message:send", json=body)',
        'session.post("/message:stream", json=body)',
        'body = {"jsonrpc": "2.0", "id": 1, "method": method}',
        "channel = grpc.aio.insecure_channel(target)",
    ],
)
def test_a_second_place_is_found(source: str) -> None:
    assert writes_requests(source)
