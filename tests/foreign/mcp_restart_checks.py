"""Checks of MCP clients with a server that is killed and started again, or whose connections break.

Given a `Connect` and a `Server`.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from checks import Checks, Server
from mcp_client import Connect, EndOfNotices, Json, Result
from mcp_helpers import Place, error_of, handle_in, say, tasks_of, until, until_status

listens = Checks()
"""Of clients that listen for changes of the list of tools. Given the project's folder as well."""
unfinished = Checks()
"""With a server that waits a second for a task."""
restarts = Checks()
resumes = Checks()
"""Of the versions with a handshake, whose clients resume streams."""
repeats = Checks()
"""Of 2026-07-28."""
task_restarts = Checks()
"""Of clients with the extension for tasks."""


class Line:
    """A connection to a server that can be cut.

    While the server is killed and started again, new connections wait for it: the official clients reconnect twice,
    within seconds, and a server starts slowly on a busy machine.
    """

    def __init__(self, http: str) -> None:
        self._host, _, port = http.removeprefix("http://").rpartition(":")
        self._port = int(port)
        self._writers: set[asyncio.StreamWriter] = set()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[str]:
        """Yields a URL that leads to the server."""
        front = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        try:
            yield f"http://127.0.0.1:{front.sockets[0].getsockname()[1]}"
        finally:
            front.close()
            self.cut()

    def cut(self) -> None:
        """Resets all connections; new ones are served."""
        for writer in self._writers:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there = await until(self._connected)
        self._writers |= {writer, there}
        copying = [asyncio.ensure_future(each) for each in (_copy(reader, there), _copy(there_reader, writer))]
        try:
            await asyncio.wait(copying, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._writers -= {writer, there}
            for copy in copying:
                copy.cancel()
            for each in (writer, there):
                each.close()

    async def _connected(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        """A connection to the server; None while it is down."""
        try:
            return await asyncio.open_connection(self._host, self._port)
        except OSError:
            return None


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()


async def crash(server: Server) -> None:
    """Kills the server and starts it again."""
    await asyncio.to_thread(server.kill)
    await asyncio.to_thread(server.start)


def at(url: str, agent: str) -> str:
    """The endpoint of an agent."""
    return Place(url, agent).endpoint


@unfinished.of("restart", "tools")
async def a_task_that_was_not_finished_is_found_after_a_crash(connect: Connect, server: Server) -> None:
    async with connect(at(server.addresses["http"], "steady")) as session:
        waiting = await session.call("steady", say("go"))
        assert "get_task" in waiting.text, waiting
        handle = handle_in(waiting)
        await crash(server)

        async def ended() -> Result | None:
            result = await session.call("get_task", {"task": handle})
            return result if handle not in result.text else None

        assert (await until(ended)).text == "attempt 2"


@restarts.of("restart", "input")
async def a_question_is_answered_after_a_crash(connect: Connect, server: Server) -> None:
    line, crashed = Line(server.addresses["http"]), asyncio.Event()

    async def answer(_: Json) -> Json:
        if not crashed.is_set():  # a stream that is resumed before the answer asks again
            crashed.set()
            await crash(server)
        return {"action": "accept", "content": {"answer": "blue"}}

    async with line.open() as url, connect(at(url, "playground"), answer) as session:
        result = await session.call("playground_ends", say("ask"))
        assert result.text == "you said: blue", result


@resumes.of("restart", "progress")
async def a_stream_goes_on_after_a_crash(connect: Connect, server: Server) -> None:
    line, begun = Line(server.addresses["http"]), asyncio.Event()
    async with line.open() as url, connect(at(url, "steady")) as session:
        call = session.call("steady", say("go"), on_progress=lambda *_: begun.set())
        calling = asyncio.ensure_future(call)
        await begun.wait()
        await crash(server)
        assert (await calling).text == "attempt 2"


@repeats.of("restart")
async def a_repeated_call_gets_the_result_after_a_crash(connect: Connect, server: Server) -> None:
    begun = asyncio.Event()
    meta = {"dragoman/idempotencyKey": str(uuid.uuid4())}
    async with connect(at(server.addresses["http"], "steady")) as session:
        call = session.call("steady", say("go"), on_progress=lambda *_: begun.set(), meta=meta, limit=10)
        calling = asyncio.ensure_future(call)
        await begun.wait()
        await crash(server)
        await error_of(calling)
        assert (await session.call("steady", say("go"), meta=meta)).text == "attempt 2"


@task_restarts.of("restart", "handle")
async def a_handle_is_good_after_a_crash(connect: Connect, server: Server) -> None:
    async with connect(at(server.addresses["http"], "steady"), tasks=True) as session:
        handle = await session.start("steady", say("go"))
        assert (await handle.get())["status"] == "working"
        await crash(server)
        assert (await handle.result()).text == "attempt 2"


@task_restarts.of("restart", "handle", "errors")
async def a_task_that_the_crash_ended_has_failed(connect: Connect, server: Server) -> None:
    async with connect(at(server.addresses["http"], "playground"), tasks=True) as session:
        handle = await session.start("playground_sleep", say("sleep 600"))
        await crash(server)
        failed = await until_status(handle, "failed")
        assert failed["error"]["message"].startswith("INTERRUPTED"), failed


@task_restarts.of("restart", "handle", "input")
async def a_task_s_question_is_answered_after_a_crash(connect: Connect, server: Server) -> None:
    async def answer(_: Json) -> Json:
        await crash(server)
        return {"action": "accept", "content": {"answer": "blue"}}

    async with connect(at(server.addresses["http"], "playground"), answer, tasks=True) as session:
        handle = await session.start("playground_ends", say("ask"))
        assert (await handle.result()).text == "you said: blue"


# A connection that breaks --------------------------------------------------------------------------------------


@resumes.of("progress")
async def a_broken_stream_goes_on_without_a_gap(connect: Connect, server: Server) -> None:
    line, seen = Line(server.addresses["http"]), []
    begun = asyncio.Event()

    def report(progress: float, _: str) -> None:
        seen.append(progress)
        begun.set()

    async with line.open() as url, connect(at(url, "playground")) as session:
        calling = asyncio.ensure_future(session.call("playground_stream", say("stream 20 250"), on_progress=report))
        await begun.wait()
        line.cut()
        result = await calling
    assert "".join(result.texts) == "".join(f"chunk-{n} " for n in range(1, 21)), result
    assert seen == sorted(set(seen)), seen
    assert len(seen) > 3, seen


@repeats.of("cancel")
async def a_broken_connection_cancels_its_call(connect: Connect, server: Server) -> None:
    line, begun, context = Line(server.addresses["http"]), asyncio.Event(), f"broken-{uuid.uuid4()}"
    place = Place(server.addresses["http"], "playground")
    async with line.open() as url, connect(at(url, "playground")) as session:
        call = session.call(
            "playground_sleep",
            say("sleep 600", contextId=context),
            on_progress=lambda *_: begun.set(),
            limit=10,
        )
        calling = asyncio.ensure_future(call)
        await begun.wait()
        line.cut()

        async def canceled() -> bool:
            (task,) = await tasks_of(place, context)
            return task["status"]["state"] == "TASK_STATE_CANCELED"

        await until(canceled)
        await error_of(calling)


@repeats.of("call")
async def a_call_with_a_key_outlives_its_connection(connect: Connect, server: Server) -> None:
    line, begun = Line(server.addresses["http"]), asyncio.Event()
    meta = {"dragoman/idempotencyKey": str(uuid.uuid4())}
    async with line.open() as url, connect(at(url, "playground")) as session:
        call = session.call(
            "playground_stream", say("stream 8 250"), on_progress=lambda *_: begun.set(), meta=meta, limit=10
        )
        calling = asyncio.ensure_future(call)
        await begun.wait()
        line.cut()
        await error_of(calling)
        again = await session.call("playground_stream", say("stream 8 250"), meta=meta)
    assert "".join(again.texts) == "".join(f"chunk-{n} " for n in range(1, 9)), again


# Changes of the tools ------------------------------------------------------------------------------------------


@listens.of("listen", "list")
async def a_new_worker_is_announced(connect: Connect, server: Server, project: str) -> None:
    command = [f"{project}/.venv/bin/python", "-m", "dragoman", "worker", f"{project}/tests/foreign/mcp_worker.py"]
    async with connect(f"{server.addresses['http']}/mcp") as session, session.listen() as notices:
        assert "worker" not in await session.tools()
        process = await asyncio.create_subprocess_exec(
            *command, "--server", f"grpc://{server.addresses['grpc']}", stderr=asyncio.subprocess.DEVNULL
        )
        try:
            await notices.wait()
            assert "worker" in await session.tools()
            assert (await session.call("worker", say("echo hello"))).text == "hello"
        finally:
            process.terminate()
            await process.wait()


@listens.of("listen", "restart")
async def a_server_that_stops_ends_the_stream_in_order(connect: Connect, server: Server, _: str) -> None:
    async with connect(f"{server.addresses['http']}/mcp") as session, session.listen() as notices:
        await asyncio.to_thread(server.stop)
        try:
            notice = await notices.wait()
        except EndOfNotices:
            return
    raise AssertionError(f"no end, but {notice}")
