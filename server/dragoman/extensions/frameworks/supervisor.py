"""Runs and restarts the process of an executor, and offers it as an agent."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable
from typing import Final

from dragoman.agents.values import NewId
from dragoman.agents.workers.agent import WorkerAgent
from dragoman.agents.workers.connection import HeartbeatTimings, WorkerConnection, check_hello, encode_welcome
from dragoman.core.cards.agent_spec import AgentSpec
from dragoman.core.durations import Backoff
from dragoman.core.errors import A2AError
from dragoman.extensions.frameworks.process import ExecutorProcess, FrameChannel
from dragoman.extensions.frameworks.sources import ExecutorSpec, FrameworkSettings
from dragoman.ids import IDS
from dragoman.ports.extension import AgentHost
from dragoman.ports.remote_agents import failed_turn_end, oversized_event_text
from dragoman.supervision import Background, start_task
from dragoman_pb.dragoman.worker.v1 import worker_pb2 as wk

log = logging.getLogger("dragoman.executor")

EXECUTOR_START_TIMEOUT: Final = 120.0
"""Seconds until the first frame of the process. Some executors import for long."""

EXECUTOR_RESTART_BACKOFF: Final = Backoff(0.5, 15.0)
"""Seconds until an ended process is restarted."""

EXECUTOR_STABLE_SECONDS: Final = 10.0
"""Uptime in seconds that resets the restart delay."""

StartProcess = Callable[[], Awaitable[FrameChannel]]


class ExecutorStartFailed(Exception):
    """The target is not a usable executor, or its process cannot start. The text says why."""


class ExecutorSupervisor:
    """Supervises one executor. `open` returns its agent, `close` stops its process."""

    def __init__(
        self,
        executor: ExecutorSpec,
        settings: FrameworkSettings,
        host: AgentHost,
        *,
        timings: HeartbeatTimings | None = None,
        start_process: StartProcess | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        now: Callable[[], float] = time.monotonic,
        new_id: NewId = IDS.hex,
    ) -> None:
        """`host`: its registry learns when the agent can take more turns than before, and knows for how long this
        process may run turns."""
        self._executor = executor
        self._settings = settings
        self._host = host
        self._timings = timings or HeartbeatTimings()
        self._start_process = start_process or (
            lambda: ExecutorProcess.start(
                settings.interpreter, executor.target, executor.id, host.message_bytes, settings.env
            )
        )
        self._sleep = sleep
        self._now = now
        self._new_id = new_id
        self._agent: WorkerAgent | None = None
        self._ready: asyncio.Future[WorkerAgent] = asyncio.get_running_loop().create_future()
        self._supervision: asyncio.Task[None] | None = None

    async def open(self) -> WorkerAgent:
        """Starts the process and supervises it from then on. Raises ExecutorStartFailed."""
        self._supervision = start_task(Background.AGENT_PROCESS, self._supervise, self._executor.id)
        return await self._ready

    async def close(self) -> None:
        """Stops the process. Turns that still run are lost."""
        if self._supervision is not None:
            self._supervision.cancel()
            await asyncio.wait([self._supervision])

    async def _supervise(self) -> None:
        restarts = 0
        while True:
            started_at = self._now()
            reason = await self._run_process()
            if self._agent is None:
                self._ready.set_exception(ExecutorStartFailed(reason))
                return
            if self._now() - started_at >= EXECUTOR_STABLE_SECONDS:
                restarts = 0
            restarts += 1
            wait = EXECUTOR_RESTART_BACKOFF.delay(restarts)
            log.error(
                "the process of executor %s has ended (%s); restarting it in %g s", self._executor, reason, wait,
                extra={"agent": self._executor.id},
            )  # fmt: skip
            await self._sleep(wait)

    async def _run_process(self) -> str:
        """Runs the process once. Returns why it ended."""
        try:
            process = await self._start_process()
        except OSError as error:
            return (
                f"{self._settings.interpreter} cannot be started: {error.strerror or error}; "
                "pass another interpreter with --executor-python"
            )
        failure: A2AError | None = None
        try:
            failure = await self._serve_process(process)
        except TimeoutError:
            failure = A2AError(f"it did not send its first frame within {EXECUTOR_START_TIMEOUT:g} s")
        except A2AError as error:
            failure = error
        except Exception as error:
            log.exception("serving the process of an executor failed", extra={"agent": self._executor.id})
            failure = A2AError(f"{type(error).__name__}: {error}")
        finally:
            exit_reason = await process.stop()
        return failure.message if failure is not None else exit_reason

    async def _serve_process(self, process: FrameChannel) -> A2AError | None:
        """Exchanges frames until the process ends its output or sends an invalid frame."""
        frames = process.frames()
        async with asyncio.timeout(EXECUTOR_START_TIMEOUT):
            first = await anext(frames, None)
        if first is None:
            return None
        spec, registration = self._read_hello(first)
        connection = WorkerConnection(
            wk.Hello(name=f"executor {self._executor.target}", agents=[registration]),
            process.name,
            {spec.id: spec},
            on_capacity_change=self._notify_capacity,
            new_id=self._new_id,
            frame_bytes=self._host.message_bytes,
            lease_left=self._lease_left,
        )
        connection.send(wk.ConnectResponse(welcome=encode_welcome("", self._host.message_bytes, self._timings)))

        async def read() -> None:
            async for frame in frames:
                self._receive(connection, frame)

        async def write() -> None:
            while (frame := await connection.next_frame()) is not None:
                await self._send(process, connection, frame)

        agent = self._attach(spec, connection)
        tasks = [asyncio.create_task(work) for work in (read(), write(), connection.run_heartbeat(self._timings))]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                if isinstance(error := task.exception(), A2AError):
                    connection.close(error)
            return connection.error
        finally:
            agent.remove_worker(connection)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await process.stop()  # first: when its turns are over, nothing runs them
            connection.has_exited = True
            connection.close()

    def _read_hello(self, first: wk.ConnectRequest) -> tuple[AgentSpec, wk.AgentRegistration]:
        """The agent of the first frame, with this server's id, turns and retries. Raises InvalidParams."""
        hello = first.hello
        for registration in hello.agents:
            registration.id = self._executor.id
            registration.turns = self._settings.turns if self._host.turns is None else self._host.turns
            registration.crash_retries = self._settings.retries
        (spec,) = check_hello(hello)
        return spec, hello.agents[0]

    def _attach(self, spec: AgentSpec, connection: WorkerConnection) -> WorkerAgent:
        agent = self._agent
        if agent is None:
            agent = self._agent = WorkerAgent(spec, "", self._host.clock, self._host.clock())
            self._ready.set_result(agent)
        agent.workers.append(connection)
        self._notify_capacity()
        log.info("executor %s is running: %s", self._executor, connection, extra={"agent": self._executor.id})
        return agent

    def _notify_capacity(self) -> None:
        if self._agent is not None:
            self._agent.notify_capacity()
        if self._host.registry is not None:
            self._host.registry.capacity_changed()

    def _lease_left(self) -> float:
        """Seconds for which this process may run turns; a worker may for as long as it is connected."""
        return math.inf if self._host.registry is None else self._host.registry.lease_left()

    # Isolation of turns from each other ---------------------------------------------------------------------------

    def _receive(self, connection: WorkerConnection, frame: wk.ConnectRequest) -> None:
        """Handles a frame of the process. An oversized one fails its own turn only."""
        size = frame.ByteSize()
        kind = frame.WhichOneof("frame")
        if size > self._host.message_bytes and kind in ("events", "turn_end"):
            turn = getattr(frame, kind).turn_id
            text = oversized_event_text(size, self._host.message_bytes)
            connection.receive(wk.ConnectRequest(turn_end=failed_turn_end(turn, text)))
            connection.send(wk.ConnectResponse(turn_revoked=wk.TurnRevoked(turn_id=turn, reason=text)))
            return
        connection.receive(frame)

    async def _send(self, process: FrameChannel, connection: WorkerConnection, frame: wk.ConnectResponse) -> None:
        try:
            await process.send(frame)
        except ValueError as error:
            if frame.WhichOneof("frame") != "turn_start":
                raise
            text = f"the message has no JSON form: {error}"
            connection.receive(wk.ConnectRequest(turn_end=failed_turn_end(frame.turn_start.turn_id, text)))
            agent = frame.turn_start.agent_id
            connection.receive(wk.ConnectRequest(credit=wk.Credit(agent_id=agent, turns=1)))
        except OSError:  # the reader sees the end of its output, too
            pass
