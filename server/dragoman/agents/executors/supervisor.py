"""Keeps the process of an executor running, and lends it to the runtime as an agent."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Final

from dragoman.agents.executors.process import ExecutorProcess, FrameChannel
from dragoman.agents.values import NewId
from dragoman.agents.workers.agent import WorkerAgent
from dragoman.agents.workers.connection import HeartbeatTimings, WorkerConnection, check_hello
from dragoman.core.agent_sources import DEFAULT_EXECUTOR_TURNS, ExecutorSpec
from dragoman.core.backoff import Backoff
from dragoman.core.cards.agent_spec import AgentSpec
from dragoman.core.errors import A2AError
from dragoman.core.limits.message_limits import MAX_MESSAGE_BYTES
from dragoman.core.task import states
from dragoman.ids import IDS
from dragoman_pb.dragoman.worker.v1 import worker_pb2 as wk
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

log = logging.getLogger("dragoman.executor")

EXECUTOR_START_TIMEOUT: Final = 120.0
"""Seconds in which it has to say what it is. Some import for long."""

EXECUTOR_RESTART_BACKOFF: Final = Backoff(0.5, 15.0)
"""Until a process that ended is started again."""

EXECUTOR_STABLE_SECONDS: Final = 10.0
"""Seconds after which one that then ends is started again as soon as if it had never ended before."""

StartProcess = Callable[[], Awaitable[FrameChannel]]


class ExecutorStartFailed(Exception):
    """The target gives no executor, or its process cannot be started; the text says why."""


class ExecutorSupervisor:
    """One executor. `open` gives its agent, `close` ends its process."""

    def __init__(
        self,
        executor: ExecutorSpec,
        python: str,
        *,
        clock: Callable[[], int],
        turns: int = DEFAULT_EXECUTOR_TURNS,
        retries: int = 0,
        frame_bytes: int = MAX_MESSAGE_BYTES,
        timings: HeartbeatTimings | None = None,
        start_process: StartProcess | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        now: Callable[[], float] = time.monotonic,
        new_id: NewId = IDS.hex,
    ) -> None:
        """`python`: the interpreter of the environment that has it. `turns`: how many at the same time; `retries`: how
        often one is begun again whose process was lost. `clock` gives milliseconds since the epoch."""
        self._executor = executor
        self._python = python
        self._turns = turns
        self._retries = retries
        self._clock = clock
        self._frame_bytes = frame_bytes
        self._timings = timings or HeartbeatTimings()
        self._start_process = start_process or (
            lambda: ExecutorProcess.start(python, executor.target, executor.id, frame_bytes)
        )
        self._sleep = sleep
        self._now = now
        self._new_id = new_id
        self._agent: WorkerAgent | None = None
        self._ready: asyncio.Future[WorkerAgent] = asyncio.get_running_loop().create_future()
        self._supervision: asyncio.Task[None] | None = None
        self.on_capacity_change: Callable[[], None] = lambda: None
        """Called when it takes more turns than before."""

    async def open(self) -> WorkerAgent:
        """Starts the process, and keeps it running from then on. Raises NoExecutor."""
        self._supervision = asyncio.create_task(self._supervise(), name=f"executor {self._executor.id}")
        return await self._ready

    async def close(self) -> None:
        """Ends the process. Its turns are lost, if there still are any."""
        if self._supervision is not None:
            self._supervision.cancel()
            await asyncio.wait([self._supervision])

    async def _supervise(self) -> None:
        restarts = 0
        while True:
            began = self._now()
            why = await self._run_process()
            if self._agent is None:
                self._ready.set_exception(ExecutorStartFailed(why))
                return
            if self._now() - began >= EXECUTOR_STABLE_SECONDS:
                restarts = 0
            restarts += 1
            wait = EXECUTOR_RESTART_BACKOFF.delay(restarts)
            log.error(
                "the process of executor %s is gone (%s); starting it again in %g s", self._executor, why, wait,
                extra={"agent": self._executor.id},
            )  # fmt: skip
            await self._sleep(wait)

    async def _run_process(self) -> str:
        """One life of the process. Gives why it ended."""
        try:
            process = await self._start_process()
        except OSError as error:
            return f"{self._python} cannot be started: {error.strerror or error}; --executor-python names another"
        trouble: A2AError | None = None
        try:
            trouble = await self._serve_process(process)
        except TimeoutError:
            trouble = A2AError(f"it did not say what it is within {EXECUTOR_START_TIMEOUT:g} s")
        except A2AError as error:
            trouble = error
        except Exception as error:
            log.exception("the process of an executor could not be served", extra={"agent": self._executor.id})
            trouble = A2AError(f"{type(error).__name__}: {error}")
        finally:
            ended = await process.stop()
        return trouble.message if trouble is not None else ended

    async def _serve_process(self, process: FrameChannel) -> A2AError | None:
        """The frames of one life, until it says no more or breaks a rule."""
        frames = process.frames()
        async with asyncio.timeout(EXECUTOR_START_TIMEOUT):
            first = await anext(frames, None)
        if first is None:
            return None
        spec, registration = self._read_hello(first)
        connection = WorkerConnection(
            f"executor {self._executor.target}",
            process.name,
            "",
            {spec.id: spec},
            [registration],
            on_capacity_change=self._notify_capacity,
            new_id=self._new_id,
            frame_bytes=self._frame_bytes,
        )
        connection.send(wk.ConnectResponse(welcome=self._welcome_frame()))

        async def read() -> None:
            async for frame in frames:
                self._receive(connection, frame)

        async def write() -> None:
            while (frame := await connection.outgoing.get()) is not None:
                await self._send(process, connection, frame)

        agent = self._attach(spec, connection)
        work = [asyncio.create_task(one) for one in (read(), write(), connection.run_heartbeat(self._timings))]
        try:
            done, _ = await asyncio.wait(work, return_when=asyncio.FIRST_COMPLETED)
            for one in done:
                if isinstance(error := one.exception(), A2AError):
                    connection.close(error)
            return connection.error
        finally:
            agent.remove_worker(connection)
            connection.close()
            for one in work:
                one.cancel()
            await asyncio.gather(*work, return_exceptions=True)

    def _read_hello(self, first: wk.ConnectRequest) -> tuple[AgentSpec, wk.AgentRegistration]:
        """What it says of itself, and what was said of it here. Raises InvalidParams."""
        hello = first.hello
        for registration in hello.agents:
            registration.id = self._executor.id
            registration.turns = self._turns
            registration.retries = self._retries
        (spec,) = check_hello(hello)
        return spec, hello.agents[0]

    def _attach(self, spec: AgentSpec, connection: WorkerConnection) -> WorkerAgent:
        agent = self._agent
        if agent is None:
            agent = self._agent = WorkerAgent(spec, "", self._clock, self._clock())
            self._ready.set_result(agent)
        agent.add_worker(connection)
        self._notify_capacity()
        log.info("executor %s runs: %s", self._executor, connection, extra={"agent": self._executor.id})
        return agent

    def _notify_capacity(self) -> None:
        if self._agent is not None:
            self._agent.notify_capacity()
        self.on_capacity_change()

    def _welcome_frame(self) -> wk.Welcome:
        welcome = wk.Welcome(principal="", max_frame_bytes=self._frame_bytes)
        welcome.heartbeat.FromNanoseconds(round(self._timings.heartbeat * 1e9))
        welcome.lease.FromNanoseconds(round(self._timings.lease * 1e9))
        return welcome

    # What one turn must not do to the others --------------------------------------------------------------------

    def _receive(self, connection: WorkerConnection, frame: wk.ConnectRequest) -> None:
        """A frame of the process. One that is too large fails its turn, not the process with all turns."""
        size = frame.ByteSize()
        kind = frame.WhichOneof("frame")
        if size > self._frame_bytes and kind in ("events", "turn_end"):
            turn = getattr(frame, kind).turn_id
            text = (
                f"an event of {size} bytes is more than this server takes at once, {self._frame_bytes}: give it in "
                "several chunks, or have the server run with a larger --message-bytes"
            )
            connection.receive(_failed_turn_end(turn, text))
            connection.send(wk.ConnectResponse(turn_over=wk.TurnOver(turn_id=turn, reason=text)))
            return
        connection.receive(frame)

    async def _send(self, process: FrameChannel, connection: WorkerConnection, frame: wk.ConnectResponse) -> None:
        try:
            await process.send(frame)
        except ValueError as error:
            if frame.WhichOneof("frame") != "turn_start":
                raise
            connection.receive(
                _failed_turn_end(frame.turn_start.turn_id, f"the message cannot be said in JSON: {error}")
            )
            agent = frame.turn_start.agent_id
            connection.receive(wk.ConnectRequest(credit=wk.Credit(agent_id=agent, turns=1)))
        except OSError:  # what it says ends, too
            pass


def _failed_turn_end(turn: str, text: str) -> wk.ConnectRequest:
    """The end of a turn, said in the place of its process."""
    message = pb.Message(parts=[pb.Part(text=text)])
    status = wk.StatusChange(state=pb.TaskState.Name(states.FAILED), message=message)
    return wk.ConnectRequest(turn_end=wk.TurnEnd(turn_id=turn, status=status))
