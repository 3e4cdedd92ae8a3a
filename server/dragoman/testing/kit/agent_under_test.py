"""Agents served in memory: the real runtime on the real store, in a folder that is gone afterwards, and no ports."""

from __future__ import annotations

import asyncio
import logging
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Final, Never, Self, cast

from dragoman.agents.functions.declaration import DeclaredAgent
from dragoman.agents.functions.declaration import agent as declare
from dragoman.agents.values import data_part, file_part, fill_struct, parts_of
from dragoman.bus.local import LocalBus
from dragoman.core.access.identity import Identity
from dragoman.core.names import ANONYMOUS_PRINCIPAL
from dragoman.core.task.log import Append, Appended
from dragoman.core.task.maintenance import StorageOptions
from dragoman.ports import Agent
from dragoman.runtime import Call, Runtime, open_runtime
from dragoman.runtime.turn.runner import TurnRunner
from dragoman.stores.sqlite import SqliteStore, open_store
from dragoman.testing.fixtures import Clock, Ids
from dragoman.testing.kit.story import Exchange
from dragoman.testing.kit.task_run import TaskRun
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

TURN_TIMEOUT: Final = 60.0
"""Seconds that a turn may take, unless a test says otherwise."""

UNWIND_TIMEOUT: Final = 2.0
"""Seconds for the functions of a process that died to be taken apart; what hangs longer is left behind."""

Testable = Agent | Callable[..., object]
Files = Mapping[str, bytes] | Mapping[str, str] | Iterable[Path | pb.Part | bytes]

_CURRENT_KIT: ContextVar[object] = ContextVar("the AgentUnderTest whose turn this is", default=None)


class AgentUnderTest:
    """One agent, or several that belong together, for the time of an `async with`:

        async with AgentUnderTest(desk) as a:
            run = await a.send("A table for two")
            assert run.asked == "On which day?"
            await run.answer("Friday")
            assert run.text == "Booked."

    Everything is as on a server: tasks are on disk before anybody sees them, verbs are batched, turns are claimed. But
    every turn begins with WORKING, which a server leaves out of very short ones; so `run.states` is always the same.
    """

    def __init__(
        self,
        agent: Testable,
        *others: Testable,
        principal: str = ANONYMOUS_PRINCIPAL,
        turn_timeout: float = TURN_TIMEOUT,
        clock: Callable[[], int] | None = None,
        ids: Ids | None = None,
        **options: Any,
    ) -> None:
        """Each agent is a function with `@agent`, any `dragoman.ports.Agent`, or a plain function.

        principal: who sends. patience: seconds that a turn may take before a test fails. clock: milliseconds since the
        epoch, by default a `Clock` that stands still (`a.clock`). ids: by default counted, so that they are the same
        in each run of a test. options: those of `dragoman.runtime.open_runtime`, such as `strict` and `budgets`.
        """
        self.turn_timeout = turn_timeout
        self.clock = clock or Clock()
        self._ids = ids or Ids()
        self._agents = [as_agent(one, self._ids) for one in (agent, *others)]
        self._identity = Identity(principal)
        self._options = options
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._store: SqliteStore | None = None
        self._process: AsyncExitStack | None = None
        self._runtime: Runtime | None = None
        self._failures = _FailureHandler(self)
        self._runs: dict[str, TaskRun] = {}
        self.restarted: asyncio.Future[None] | None = None
        """Done when the present process has died and another one has taken its place."""
        self.failed: dict[str, tuple[BaseException, str]] = {}
        """What functions raised, by task, and the same in words."""

    async def __aenter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory(prefix="dragoman-", ignore_cleanup_errors=True)
        path = Path(self._folder.name) / "tasks.db"
        clock = self.clock
        sizes = StorageOptions(
            inline_bytes=1 << 40
        )  # a large part is always in the answer: there is nobody to fetch it from
        self._store = await asyncio.to_thread(open_store, path, clock=clock, synchronous="normal", sizes=sizes)
        self._store.blobs.set_base_url(lambda: "http://in-memory.invalid")
        logging.getLogger("dragoman.agents").addHandler(self._failures)
        try:
            await self._start()
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        logging.getLogger("dragoman.agents").removeHandler(self._failures)
        try:
            if self._process is not None:
                await self._process.aclose()
        finally:
            self._process = None
            if self._store is not None:
                await self._store.close()
            if self._folder is not None:
                self._folder.cleanup()

    async def _start(self) -> None:
        self._process = AsyncExitStack()
        self.restarted = asyncio.get_running_loop().create_future()
        self._runtime = await self._process.enter_async_context(
            open_runtime(
                self.store,
                LocalBus(),
                self._agents,
                **{"new_key": self._ids.key, "new_context": self._ids.context, **self._options},
            )
        )
        self._runtime.scheduler.run_turns = self._run_turns

    async def _run_turns(self, runner: TurnRunner) -> None:
        _CURRENT_KIT.set(self)
        if runner.record.visible:
            cast(Any, runner)._show_working()
        await TurnRunner.run(runner)

    # What callers do --------------------------------------------------------------------------------------------

    async def send(
        self,
        text: str = "",
        *,
        agent: str = "",
        files: Files = (),
        data: object = None,
        parts: Iterable[pb.Part] = (),
        message: pb.Message | None = None,
        metadata: Mapping[str, object] | None = None,
        references: Iterable[str] = (),
        accepts: Iterable[str] = (),
        task: str = "",
        context: str = "",
        wait: bool = True,
    ) -> TaskRun:
        """Sends a message, and waits until its turn has ended; without `wait` only until it is stored.

        files: paths, bytes, parts, or contents by name. data: JSON, for a data part. message: all of it, instead of
        text, files, data and parts. task, context: what it belongs to; `run.answer` and `run.send` fill them in.

        Raises children of dragoman.core.errors.A2AError for what a server would refuse, and AssertionError, naming the
        agent's line, when the turn takes longer than `patience`.
        """
        created_message = pb.Message(role=pb.ROLE_USER)
        if message is not None:
            created_message.CopyFrom(message)
        else:
            if text:
                created_message.parts.add(text=text)
            created_message.parts.extend(_files(files))
            if data is not None:
                created_message.parts.append(data_part(data))
            created_message.parts.extend(parts)
        created_message.message_id = created_message.message_id or self._ids.message()
        created_message.task_id, created_message.context_id = (
            task or created_message.task_id,
            context or created_message.context_id,
        )
        created_message.reference_task_ids.extend(references)
        request = pb.SendMessageRequest(message=created_message)
        if metadata:
            fill_struct(request.metadata, metadata)
        request.configuration.accepted_output_modes.extend(accepts)
        request.configuration.return_immediately = True
        call = self.call(agent)
        answer = pb.SendMessageResponse.FromString(await self.runtime.service.send_message(call, request))
        if answer.HasField("message"):
            run = TaskRun(self, call.caller)
            run.reply = answer.message
            request.ClearField("message")
            run.exchange = [Exchange(1, created_message, request)]
            return run
        run = self._runs.setdefault(answer.task.id, TaskRun(self, call.caller, answer.task.id))
        await run.refresh()
        if wait:
            await run.wait()
        return run

    async def crash(self) -> None:
        """The process dies in the midst of whatever it does, and another one starts on the same store.

        Turns that ran are begun again, or end as FAILED (INTERRUPTED), as their agents say (`on_crash`). Nothing that
        they do from now on is written, though their `finally` runs, which it would not in a process that was killed.
        """
        dead, process, restarted = self.runtime.scheduler, self._process, self.restarted
        assert process is not None
        assert restarted is not None
        tasks = []
        runs: dict[Any, Any] = cast(Any, dead)._runners
        for run in runs.values():
            run._log = _DeadLog()
            run.canceled = True  # for those in threads
            if run._task is not None:
                run._task.cancel()
                tasks.append(run._task)
        runs.clear()  # so that what is closed now waits for none of them
        if tasks:
            await asyncio.wait(tasks, timeout=UNWIND_TIMEOUT)
        cast(Any, dead)._update_idle()
        await process.aclose()
        await self._start()
        restarted.set_result(None)
        for known in self._runs.values():
            await known.refresh()

    # What runs of it need ---------------------------------------------------------------------------------------

    @property
    def runtime(self) -> Runtime:
        """The process that runs now."""
        if self._runtime is None or self._process is None:
            raise RuntimeError("use an AgentUnderTest inside `async with`")
        return self._runtime

    @property
    def store(self) -> SqliteStore:
        """Where its tasks are."""
        assert self._store is not None
        return self._store

    @property
    def agents(self) -> Sequence[Agent]:
        """The agents, the root agent first."""
        return self._agents

    def call(self, agent: str = "", cursor: str = "") -> Call:
        """A call of who tests."""
        return Call(self.runtime.service.authorize(agent, self._identity), cursor=cursor)


class _DeadLog:
    """The log of a run whose process died: nothing is written, and nobody is told."""

    def append(self, change: Append, on_result: object = None) -> asyncio.Future[Appended]:
        return asyncio.get_running_loop().create_future()

    async def insist(self, *_: object) -> Never:
        raise asyncio.CancelledError("the process died")

    read = insist


class _FailureHandler(logging.Handler):
    """Gives what agents raised to the runs that they belong to."""

    def __init__(self, kit: AgentUnderTest) -> None:
        super().__init__(logging.ERROR)
        self._kit = kit

    def emit(self, record: logging.LogRecord) -> None:
        if (
            _CURRENT_KIT.get() is self._kit
            and record.exc_info
            and isinstance(record.args, tuple)
            and len(record.args) == 4
        ):
            file, line, _, text = record.args
            task = str(record.__dict__.get("task", ""))
            error = record.exc_info[1]
            assert error is not None
            self._kit.failed[task] = (error, f"{file}, line {line}: {text}")


def as_agent(testable: Testable, ids: Ids) -> Agent:
    """An agent of whatever may be tested, with ids of its own making."""
    if isinstance(testable, DeclaredAgent):
        return DeclaredAgent(testable.__wrapped__, testable.spec, new_id=ids.other)
    if hasattr(testable, "take_turn"):
        return cast(Agent, testable)
    declared_agent = declare(testable)
    return DeclaredAgent(declared_agent.__wrapped__, declared_agent.spec, new_id=ids.other)


def _files(files: Files) -> list[pb.Part]:
    if isinstance(files, Mapping):
        named: Iterable[tuple[str, bytes | str]] = files.items()
        return [file_part(one.encode() if isinstance(one, str) else one, name=name) for name, one in named]
    return [part for one in files for part in parts_of(one)]
