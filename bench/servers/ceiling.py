"""The ceiling: the least server that keeps the promise of a blocking send, to compare a whole server with.

A send is two commits with `synchronous=FULL`, as with Dragoman: the message before its agent starts, the result before
the answer. Ids are real and tasks are protobuf, one asyncio task runs each agent, and sends that wait at the same time
share a commit. There is nothing else: no versions, callers, limits, streams, cancels or webhooks.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import queue
import sqlite3
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import grpc
import orjson
import uvloop
from aiohttp import web

from bench.responses import jsonrpc_response
from bench.servers.bare_grpc import SERVICE
from bench.servers.contestants import write_addresses
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

INSERT: Final = "INSERT INTO tasks (id, task) VALUES (?, ?)"
UPDATE: Final = "UPDATE tasks SET task = ?2 WHERE id = ?1"

Write = tuple[str, str, bytes, "asyncio.Future[None]"]
"""Statement, task id, the task's bytes, and the future that waits for the commit."""


class Store:
    """One table in SQLite. A thread writes whatever waits in one transaction, and wakes all its callers at once."""

    def __init__(self, file: Path, loop: asyncio.AbstractEventLoop) -> None:
        self._file = file
        self._loop = loop
        self._waiting: queue.SimpleQueue[Write] = queue.SimpleQueue()
        threading.Thread(target=self._run, name="writer", daemon=True).start()

    def write(self, statement: str, task: pb.Task) -> asyncio.Future[None]:
        """Writes a task; the future ends when it is on disk."""
        done: asyncio.Future[None] = self._loop.create_future()
        self._waiting.put((statement, task.id, task.SerializeToString(), done))
        return done

    def _run(self) -> None:
        connection = sqlite3.connect(self._file, isolation_level=None)
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("CREATE TABLE tasks (id TEXT PRIMARY KEY, task BLOB NOT NULL) WITHOUT ROWID")
        while True:
            writes = [self._waiting.get()]
            with contextlib.suppress(queue.Empty):
                while True:
                    writes.append(self._waiting.get_nowait())
            connection.execute("BEGIN IMMEDIATE")
            for statement, task_id, task, _ in writes:
                connection.execute(statement, (task_id, task))
            connection.execute("COMMIT")
            self._loop.call_soon_threadsafe(_wake, writes)


def _wake(writes: list[Write]) -> None:
    for *_, done in writes:
        if not done.done():
            done.set_result(None)


async def echo(message: pb.Message) -> str:
    """The agent."""
    return message.parts[0].text


class Ceiling:
    """Sends a message to the agent, and answers with the completed task."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def send(self, message: pb.Message) -> pb.Task:
        """Returns the completed task."""
        task = pb.Task(id=_task_id(), context_id=str(uuid.uuid4()))
        message.task_id, message.context_id = task.id, task.context_id
        task.history.append(message)
        _set_state(task, pb.TASK_STATE_SUBMITTED)
        await self._store.write(INSERT, task)
        text = await asyncio.create_task(echo(message))
        task.artifacts.add(artifact_id=os.urandom(16).hex()).parts.add(text=text)
        _set_state(task, pb.TASK_STATE_COMPLETED)
        await self._store.write(UPDATE, task)
        return task

    async def grpc_send(self, request: pb.SendMessageRequest, _context: Any) -> pb.SendMessageResponse:
        return pb.SendMessageResponse(task=await self.send(request.message))

    async def rest_send(self, request: web.Request) -> web.Response:
        task = await self.send(_message(orjson.loads(await request.read())))
        return web.Response(body=orjson.dumps({"task": _task_json(task)}), content_type="application/json")

    async def jsonrpc_send(self, request: web.Request) -> web.Response:
        task = await self.send(_message(orjson.loads(await request.read())["params"]))
        body = jsonrpc_response(orjson.dumps({"task": _task_json(task)}))
        return web.Response(body=body, content_type="application/json")


def _task_id() -> str:
    """A UUID that begins with the time, so that new rows stand together."""
    return str(uuid.UUID(bytes=(time.time_ns() // 1_000_000).to_bytes(6, "big") + os.urandom(10), version=4))


def _set_state(task: pb.Task, state: pb.TaskState) -> None:
    task.status.state = state
    task.status.timestamp.FromNanoseconds(time.time_ns())


def _message(params: dict[str, Any]) -> pb.Message:
    message = params["message"]
    parts = [pb.Part(text=part["text"]) for part in message["parts"]]
    return pb.Message(message_id=message["messageId"], role=message["role"], parts=parts)


def _task_json(task: pb.Task) -> dict[str, Any]:
    status = {"state": pb.TaskState.Name(task.status.state), "timestamp": task.status.timestamp.ToJsonString()}
    return {
        "id": task.id,
        "contextId": task.context_id,
        "status": status,
        "history": [_message_json(message) for message in task.history],
        "artifacts": [{"artifactId": one.artifact_id, "parts": _parts_json(one)} for one in task.artifacts],
    }


def _message_json(message: pb.Message) -> dict[str, Any]:
    ids = {"messageId": message.message_id, "contextId": message.context_id, "taskId": message.task_id}
    return {**ids, "role": pb.Role.Name(message.role), "parts": _parts_json(message)}


def _parts_json(owner: pb.Message | pb.Artifact) -> list[dict[str, str]]:
    return [{"text": part.text} for part in owner.parts]


async def _serve_grpc(ceiling: Ceiling) -> tuple[grpc.aio.Server, int]:
    parse: Callable[[bytes], pb.SendMessageRequest] = pb.SendMessageRequest.FromString
    handler = grpc.unary_unary_rpc_method_handler(
        ceiling.grpc_send, request_deserializer=parse, response_serializer=pb.SendMessageResponse.SerializeToString
    )
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {"SendMessage": handler}),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    return server, port


async def main(address_file: str, store_file: Path) -> None:
    ceiling = Ceiling(Store(store_file, asyncio.get_running_loop()))
    server, grpc_port = await _serve_grpc(ceiling)
    app = web.Application()
    app.add_routes([web.post("/message:send", ceiling.rest_send), web.post("/SendMessage", ceiling.jsonrpc_send)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    http_port = runner.addresses[0][1]
    write_addresses(address_file, {"grpc": f"127.0.0.1:{grpc_port}", "http": f"127.0.0.1:{http_port}"})
    await server.wait_for_termination()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("address_file")
    parser.add_argument("store_file", type=Path)
    arguments = parser.parse_args()
    uvloop.run(main(arguments.address_file, arguments.store_file))
