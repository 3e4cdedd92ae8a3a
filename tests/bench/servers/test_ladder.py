"""The rungs of the ladder."""

from __future__ import annotations

import subprocess
import sys

import pytest
from bench.servers.ladder import BARE, LADDER

from tools.environments import ROOT

CALL = """
import asyncio
import sys
from bench.responses import SEND_RESPONSE_JSON, jsonrpc_response
from bench.servers import ladder
from multidict import CIMultiDict
from dragoman.bindings.http.jsonrpc import JsonRpcExchange

rung = next(rung for rung in ladder.LADDER if rung.name == sys.argv[1])
ladder.end_before(rung.before)
exchange = object.__new__(JsonRpcExchange)
response = asyncio.run(JsonRpcExchange.reject(exchange, ladder.RungReached()))
assert response.body == jsonrpc_response(SEND_RESPONSE_JSON), response.body
"""


def test_the_ladder_begins_with_the_bare_transport_and_ends_with_the_whole_path() -> None:
    assert LADDER[0].name == BARE
    assert not LADDER[-1].before
    assert LADDER[-1].waits
    assert LADDER[-1].durable
    assert len({rung.name for rung in LADDER}) == len(LADDER)


@pytest.mark.parametrize("name", [LADDER[1].name, "decode"])
def test_a_request_that_ends_at_its_rung_gets_the_fixed_response(name: str) -> None:
    """In a process of its own, because a rung changes the bindings for good."""
    done = subprocess.run([sys.executable, "-c", CALL, name], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
