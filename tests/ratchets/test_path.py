"""The way of a call does not grow: files that it passes through, and our own functions on the event loop."""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from tests.ratchets.path import CODE, Caller, Passage, recorded_server

LIMITS: Final[dict[str, int]] = tomllib.loads((Path(__file__).parent / "limits.toml").read_text("utf-8"))["path"]
PAGE: Final = (Path(__file__).parents[2] / "docs" / "explanation" / "how-a-message-travels.md").read_text("utf-8")

CALLS: Final = ("jsonrpc_send", "grpc_send", "jsonrpc_subscription", "grpc_subscription")
STATED: Final = {
    "jsonrpc_send": "blocking send over JSON-RPC",
    "grpc_send": "blocking send over gRPC",
    "jsonrpc_subscription": "subscription over JSON-RPC",
    "grpc_subscription": "subscription over gRPC",
}
"""The rows of docs/explanation/how-a-message-travels.md."""

PLANTED: Final[list[dict[str, Any]]] = [{}, {}, {}]
for number, names in enumerate(PLANTED):
    exec(compile("def slip(): pass", f"{CODE}/planted{number}.py", "exec"), names)


def slip() -> None:
    for _ in range(LIMITS["jsonrpc_send_loop_calls"]):
        for names in PLANTED:
            names["slip"]()


async def measured(caller: Caller, call: str, rounds: int = 30, most: int = 600) -> Passage:
    """The files of every round, without what only a first call or a background task does; the fewest functions.

    A busy machine hands results on in more pieces, so only few rounds have the fewest functions: up to `most` rounds,
    until one stays within its limit.
    """
    limit = LIMITS.get(f"{call}_loop_calls", sys.maxsize)
    found: list[Passage] = []
    while len(found) < rounds or (len(found) < most and min(one.loop_calls for one in found) > limit):
        found.append(await getattr(caller, call)())
    files = set.intersection(*[one.files for one in found])
    return Passage(files, min(one.loop_calls for one in found))


def excess(call: str, passage: Passage) -> Iterator[str]:
    """Yields a line for each limit that a call exceeds."""
    if len(passage.files) > (most := LIMITS[f"{call}_files"]):
        yield f"{call}: {len(passage.files)} files, at most {most}: {sorted(passage.files)}"
    if passage.loop_calls > (most := LIMITS.get(f"{call}_loop_calls", passage.loop_calls)):
        yield f"{call}: {passage.loop_calls} functions on the loop, at most {most}"


@pytest.mark.parametrize("call", CALLS)
async def test_the_way_of_a_call_stays_within_its_limits(tmp_path: Path, call: str) -> None:
    async with recorded_server(tmp_path) as caller:
        passage = await measured(caller, call)
    assert list(excess(call, passage)) == []
    assert len(passage.files) >= LIMITS[f"{call}_files"] - 1, f"lower {call}_files to {len(passage.files)}"


async def test_a_further_file_and_further_functions_are_found(tmp_path: Path) -> None:
    async with recorded_server(tmp_path, slip) as caller:
        passage = await measured(caller, "jsonrpc_send", most=30)
    assert f"{CODE}/planted2.py" in passage.files
    assert len(list(excess("jsonrpc_send", passage))) == 2


@pytest.mark.parametrize("call", CALLS)
def test_the_manual_states_the_limits(call: str) -> None:
    (stated,) = re.findall(rf"\| {STATED[call]}[^|]* \| (\d+) \|", PAGE)
    assert int(stated) == LIMITS[f"{call}_files"]
