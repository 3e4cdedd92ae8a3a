"""A server under a limit of memory: large messages until memory is used up, then small ones, on both stores.

The limit is set from outside while the server runs, as a container's would be. Afterwards the server answers and no
task is stuck; or its process has ended with an error and said so, and the next start ends the tasks.
"""

from __future__ import annotations

import asyncio
import io
import json
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Final

import aiohttp
import grpc
import pytest
from tests.cli.server import Server, serving

from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb
from dragoman_pb.lf.a2a.v1 import a2a_pb2_grpc

if sys.platform == "linux":
    import resource

pytestmark = [pytest.mark.longest, pytest.mark.skipif(sys.platform != "linux", reason="sets limits of another process")]

AGENT: Final = '''
from dragoman import Turn, agent

@agent(default=True)
async def echo(turn: Turn):
    """Says it back."""
    yield turn.text
'''

MIB: Final = 1024 * 1024
SPARE_MIB: Final = 40
"""Memory that the server may still take when the limit is set: two or three of the large messages."""

LARGE: Final = "x" * (7 * MIB)
"""Over gRPC: the library itself answers UNKNOWN when it cannot even copy such a message."""

SIZES: Final = (7 * MIB, MIB, 200 * 1024, 7 * MIB, 2 * MIB, 400 * 1024)
"""Sizes of the messages, one after the other: large ones fail when read, smaller ones where they are written."""

MIB_IN_FLIGHT: Final = 168
RECOVERY_SECONDS: Final = 90.0
"""A task ends, or runs again, within this time on any machine; promise G3 has 15 seconds."""


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/tasks.db"
        return
    yield request.getfixturevalue("postgres_database")


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    timeout = aiohttp.ClientTimeout(total=20)
    async with aiohttp.ClientSession(
        timeout=timeout, headers={"A2A-Version": "1.0", "Content-Type": "application/json"}
    ) as session:
        yield session


def limit_memory(server: Server) -> None:
    """Lets the process take SPARE_MIB more than it has, and no more."""
    pages = int(Path(f"/proc/{server.process.pid}/statm").read_text().split()[0])
    size = pages * resource.getpagesize() + SPARE_MIB * MIB
    resource.prlimit(server.process.pid, resource.RLIMIT_AS, (size, resource.RLIM_INFINITY))


async def send(
    session: aiohttp.ClientSession, server: Server, number: str, text: str, *, wait: bool = False
) -> tuple[int, dict[str, Any]]:
    """Returns the status and the body; status 0 when the connection broke."""
    body = {
        "message": {"messageId": number, "role": "ROLE_USER", "parts": [{"text": text}]},
        "configuration": {"returnImmediately": not wait},
    }
    try:
        async with session.post(f"{server.http}/message:send", data=io.BytesIO(json.dumps(body).encode())) as response:
            return response.status, await response.json()
    except (aiohttp.ClientError, TimeoutError):
        return 0, {}


async def grpc_code(channel: grpc.aio.Channel, text: str) -> str:
    """The status of a send over gRPC."""
    request = pb.SendMessageRequest(
        message=pb.Message(message_id="m", role=pb.ROLE_USER, parts=[pb.Part(text=text)]),
        configuration=pb.SendMessageConfiguration(return_immediately=True),
    )
    try:
        await a2a_pb2_grpc.A2AServiceStub(channel).SendMessage(request, timeout=20)
    except grpc.aio.AioRpcError as error:
        return error.code().name
    return "OK"


async def unfinished(session: aiohttp.ClientSession, server: Server) -> list[str]:
    """The states of all tasks that have not ended."""
    async with session.get(f"{server.http}/tasks", params={"pageSize": "100"}) as response:
        tasks = (await response.json())["tasks"]
    return [task["status"]["state"] for task in tasks if task["status"]["state"] not in ENDED]


ENDED: Final = ("TASK_STATE_COMPLETED", "TASK_STATE_FAILED")


async def recovered(session: aiohttp.ClientSession, server: Server) -> str:
    """Waits until a small message is answered and no task is open. Returns what is wrong after RECOVERY_SECONDS."""
    deadline, number, problem = time.monotonic() + RECOVERY_SECONDS, 0, "nothing was tried"
    while time.monotonic() < deadline and server.process.poll() is None:
        number += 1
        status, body = await send(session, server, f"after {number}", "small", wait=True)
        if status == 200 and body["task"]["status"]["state"] == "TASK_STATE_COMPLETED":
            try:
                if not (states := await unfinished(session, server)):
                    return ""
            except (aiohttp.ClientError, TimeoutError, KeyError) as error:
                problem = f"tasks cannot be listed: {error!r}"
            else:
                problem = f"tasks are stuck: {Counter(states)}"
        else:
            problem = f"a small message got {status} {str(body)[:300]}"
        await asyncio.sleep(0.2)
    return problem


async def test_a_server_that_ran_out_of_memory_recovers_or_ends(
    store: str, session: aiohttp.ClientSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "app.py").write_text(AGENT)
    # Parts stay in rows: files beside the store need less memory.
    with serving("app.py", "--store", store, cwd=tmp_path) as server:
        assert (await send(session, server, "first", "small", wait=True))[0] == 200
        limit_memory(server)
        statuses: Counter[int] = Counter()
        for turn, size in enumerate(SIZES):
            calls = [
                send(session, server, f"large {turn} {number}", "x" * size)
                for number in range(MIB_IN_FLIGHT * MIB // size)
            ]
            statuses += Counter([status for status, _ in await asyncio.gather(*calls)])
        options = [("grpc.max_send_message_length", -1)]
        async with grpc.aio.insecure_channel(server.grpc, options=options) as channel:
            codes = Counter(
                await asyncio.gather(*(grpc_code(channel, LARGE) for _ in range(MIB_IN_FLIGHT * MIB // len(LARGE))))
            )
        problem = await recovered(session, server)
        ended = server.process.poll()
        if ended is None:
            server.process.terminate()
            server.ends()
        log = server.err.rest()
    with capsys.disabled():
        print(f"\n{store.split(':')[0]}: HTTP {dict(statuses)}, gRPC {dict(codes)}, exit {ended}", log.count("\n"))
    if ended is not None:
        # A crash of native code without memory is said by `faulthandler`.
        assert "the process ends" in log or "Fatal Python error" in log, log[-3000:]
        assert ended != 0
        with serving("app.py", "--store", store, cwd=tmp_path) as started_again:
            assert not await recovered(session, started_again)
        return
    assert not problem, f"{problem}\n{log[-6000:]}"
    assert statuses[503] or codes["RESOURCE_EXHAUSTED"], "memory never ran out"
    assert "Traceback" not in log
    assert not statuses[500]
