"""The ceiling keeps what it is compared for: an answered task is on disk, whichever binding asked."""

from __future__ import annotations

import os
import signal
import sqlite3

import pytest
from bench.load.codecs import CODECS
from bench.load.connections import connect
from bench.responses import TEXT
from bench.servers.contestants import CEILING, CONTESTANTS, start_server

from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb


@pytest.mark.parametrize("binding", ["grpc", "rest", "jsonrpc"])
async def test_an_answered_task_is_on_disk_after_a_kill(binding: str) -> None:
    codec = CODECS[binding, "ceiling"]
    with start_server(CONTESTANTS[CEILING]) as server:
        connection = await connect(binding, server.target(binding), codec)
        response = await connection.call(codec.send(TEXT))
        os.kill(server.pid, signal.SIGKILL)
        connection.close()
        database = sqlite3.connect(server.folder.folder / "tasks.db")
        rows = database.execute("SELECT id, task FROM tasks").fetchall()
        database.close()
    assert codec.is_completed(response)
    ((task_id, data),) = rows
    task = pb.Task.FromString(data)
    assert task_id == task.id == codec.task_id(response)
    assert task.status.state == pb.TASK_STATE_COMPLETED
    assert task.artifacts[0].parts[0].text == TEXT
