"""Agents under test and their tasks, in this process: the real runtime on SQLite in a temporary folder, no ports."""

from __future__ import annotations

import asyncio
import inspect
import logging
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from contextvars import ContextVar
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final, Never, Self, cast

from dragoman.agents.functions.declaration import agent as declare
from dragoman.agents.functions.runner import FAILED_AT_DECLARATION, FAILED_AT_LINE, DeclaredAgent
from dragoman.agents.functions.startup import started, startup_hooks_of
from dragoman.agents.functions.steps import NOT_AWAITED
from dragoman.agents.values import data_part, file_part, parts_of, to_json
from dragoman.bus.local import LocalBus
from dragoman.core.access.identity import Caller, Identity
from dragoman.core.cards.agent_spec import AgentSpec
from dragoman.core.limits.quotas import Usage
from dragoman.core.names import ANONYMOUS_PRINCIPAL
from dragoman.core.task.log import Append, Appended, Event, TaskRecord
from dragoman.core.task.maintenance import StorageOptions
from dragoman.ports import Agent, TurnContext, TurnResult
from dragoman.runtime import Call, Ports, Runtime, RuntimeConfig, open_runtime
from dragoman.runtime.feeds import EventStream
from dragoman.runtime.turn.runner import TurnRunner
from dragoman.stores.sqlite import SqliteStore, open_store
from dragoman.testing.fixtures import Clock, Ids
from dragoman.testing.kit.story import Exchange, Step, Story
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

TURN_TIMEOUT: Final = 60.0  # seconds
EVENTS_PER_READ: Final = 256
UNWIND_TIMEOUT: Final = 2.0  # seconds for the functions of a crashed process to stop; slower ones are abandoned
Testable = Agent | Callable[..., object]
Files = Mapping[str, bytes] | Mapping[str, str] | Iterable[Path | pb.Part | bytes]

_CURRENT_KIT: ContextVar[object] = ContextVar("the AgentUnderTest whose turn this is", default=None)


class AgentUnderTest:
    """Runs one agent, or several that belong together, inside an `async with`:

        async with AgentUnderTest(desk) as a:
            run = await a.send("A table for two")
            assert run.question == "On which day?"
            await run.answer("Friday")
            assert run.text == "Booked."

    Works as a server does: tasks are stored before they are returned, writes are batched, turns are claimed. Two
    differences: every turn begins with WORKING, which a server omits in very short turns, so that `run.states` is
    deterministic; and pauses of a function (`turn.sleep`, `retry=`) end at once.
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

        principal: the caller's name. turn_timeout: seconds after which a turn fails the test. clock: milliseconds since
        the epoch, by default a `Clock` that stands still (`a.clock`). ids: by default numbered, so that they are the
        same in each test run. options: fields of `dragoman.runtime.RuntimeConfig` such as `strict` and `budgets`, and
        `push_options` and `tracer`.
        """
        self.turn_timeout = turn_timeout
        self.clock = clock or Clock()
        self._ids = ids or Ids()
        kind = partial(_WithoutPauses, clock=self.clock)
        self._agents = [as_agent(testable, self._ids, kind) for testable in (agent, *others)]
        self._identity = Identity(principal)
        self._adapters = {name: options.pop(name) for name in ("push_options", "tracer") if name in options}
        ids_of_tasks = {"new_key": self._ids.key, "new_context": self._ids.context}
        self._config = RuntimeConfig(**{"run_turns": self._run_turns, **ids_of_tasks, **options})
        self._opened = AsyncExitStack()
        self._store: SqliteStore | None = None
        self._process: AsyncExitStack | None = None
        self._runtime: Runtime | None = None
        self._failures = _FailureHandler(self)
        self._runs: dict[str, TaskRun] = {}
        self.restarted: asyncio.Future[None] | None = None
        """Done when the current process has crashed and its replacement runs."""
        self.failed: dict[str, tuple[BaseException, str]] = {}
        """Exceptions raised by agent functions, by task, each with its description."""

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as opened:
            folder = opened.enter_context(tempfile.TemporaryDirectory(prefix="dragoman-", ignore_cleanup_errors=True))
            path, clock = Path(folder) / "tasks.db", self.clock
            sizes = StorageOptions(inline_bytes=1 << 40)  # large parts are inline: no HTTP server could return them
            self._store = await asyncio.to_thread(open_store, path, clock=clock, synchronous="normal", sizes=sizes)
            opened.push_async_callback(self._store.close)
            self._store.blobs.set_base_url(lambda: "http://in-memory.invalid")
            opened.push_async_callback(self._stop)
            logger = logging.getLogger("dragoman.agents")
            logger.addHandler(self._failures)
            opened.callback(logger.removeHandler, self._failures)
            await self._start()
            self._opened = opened.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._opened.aclose()

    async def _stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            await process.aclose()

    async def _start(self) -> None:
        self._process = AsyncExitStack()
        await self._process.enter_async_context(started(startup_hooks_of(self._agents)))
        runtime = await self._process.enter_async_context(
            open_runtime(Ports(self.store, LocalBus(), self._agents, **self._adapters), self._config)
        )
        # Both at once: who follows a task waits for the crash of the process that it follows.
        self._runtime, self.restarted = runtime, asyncio.get_running_loop().create_future()

    async def _run_turns(self, runner: TurnRunner) -> None:
        _CURRENT_KIT.set(self)
        if runner.context.record.visible:
            runner.show_working()
        await TurnRunner.run(runner)

    # Calls ------------------------------------------------------------------------------------------------------

    async def send(
        self,
        text: object = "",
        *,
        agent: str = "",
        files: Files = (),
        data: object = None,
        skill: str = "",
        parts: Iterable[pb.Part] = (),
        message: pb.Message | None = None,
        metadata: Mapping[str, object] | None = None,
        references: Iterable[str] = (),
        accepts: Iterable[str] = (),
        task: str = "",
        context: str = "",
        wait: bool = True,
    ) -> TaskRun:
        """Sends a message and waits until its turn has ended; without `wait` only until it is stored.

        text: or what an agent can return: JSON, a model, a Path, parts, a message. files: paths, bytes, parts, or
        contents by name. data: JSON, a model or a dataclass, for a data part. message: a complete message, instead of
        text, files, data and parts. skill: the id of the skill that the message names. task, context: ids; `run.answer`
        and `run.send` set them.

        Raises subclasses of dragoman.core.errors.A2AError for requests that a server rejects, and AssertionError with
        the agent's current line if the turn exceeds `turn_timeout`.
        """
        created_message = pb.Message(role=pb.ROLE_USER)
        if isinstance(complete := message or text, pb.Message):
            created_message.CopyFrom(complete)
        else:
            content = [] if text == "" else parts_of(text)
            content += [*_files(files), *([data_part(data)] if data is not None else []), *parts]
            created_message.parts.extend(content)
        if skill:
            created_message.metadata["skill"] = skill
        created_message.message_id = created_message.message_id or self._ids.message()
        created_message.task_id = task or created_message.task_id
        created_message.context_id = context or created_message.context_id
        created_message.reference_task_ids.extend(references)
        request = pb.SendMessageRequest(message=created_message)
        if metadata:
            request.metadata.update(to_json(metadata))
        request.configuration.accepted_output_modes.extend(accepts)
        request.configuration.return_immediately = True
        call = self.call(agent)
        response = pb.SendMessageResponse.FromString(await self.runtime.operations.send.send_message(call, request))
        if response.HasField("message"):
            run = TaskRun(self, call.caller)
            run.reply = response.message
            request.ClearField("message")
            run.exchange = [Exchange(1, created_message, request)]
            return run
        run = self._runs.setdefault(response.task.id, TaskRun(self, call.caller, response.task.id))
        await run.refresh()
        if wait:
            await run.wait()
        return run

    async def crash(self) -> None:
        """Simulates the crash of the process, and starts a new one on the same store.

        Running turns are restarted or end as FAILED (INTERRUPTED), according to `on_crash` of their agents. The old
        functions can write nothing any more. Unlike in a killed process, their `finally` blocks run.
        """
        dead, process, restarted = self.runtime.scheduler, self._process, self.restarted
        assert process is not None
        assert restarted is not None
        tasks = []
        for runner in dead.runs:
            run = cast(Any, runner)
            run._log = run.context._log = _DeadLog()
            run.stop.request("lease_lost")  # for functions in threads
            if run.task is not None:
                run.task.cancel()
                tasks.append(run.task)
        dead.runs.by_task.clear()  # so that closing the runtime waits for none of them
        dead.runs.wake_if_idle()
        if tasks:
            await asyncio.wait(tasks, timeout=UNWIND_TIMEOUT)
        await process.aclose()
        await self._start()
        restarted.set_result(None)
        for known in self._runs.values():
            await known.refresh()

    # Interface for TaskRun --------------------------------------------------------------------------------------

    @property
    def runtime(self) -> Runtime:
        if self._runtime is None or self._process is None:
            raise RuntimeError("use an AgentUnderTest inside `async with`")
        return self._runtime

    @property
    def store(self) -> SqliteStore:
        assert self._store is not None
        return self._store

    @property
    def agents(self) -> Sequence[Agent]:
        """The agents, the root agent first."""
        return self._agents

    def call(self, agent: str = "", cursor: str = "") -> Call:
        return Call(self.runtime.operations.access.authorize(agent, self._identity), cursor=cursor)


class TaskRun(Story):
    """A task of an agent under test. Methods return the run itself, so that calls can be chained."""

    def __init__(self, kit: AgentUnderTest, caller: Caller, task_id: str = "") -> None:
        super().__init__(caller.agent)
        self._kit = kit
        self._caller = caller
        self._record: TaskRecord | None = None
        self._refresh_lock = asyncio.Lock()
        self._id = task_id

    # Calls ------------------------------------------------------------------------------------------------------

    async def answer(self, /, text: object = "", **message: Any) -> Self:
        """Answers the agent's question and waits until the turn has ended; `message` as for `AgentUnderTest.send`.

        Raises AssertionError if the agent has no question.
        """
        if not self.question:
            raise AssertionError(f"{self!r} has no question to answer")
        return await self.send(text, **message)

    async def send(self, /, text: object = "", **message: Any) -> Self:
        """Sends a follow-up message; with `wait=False` it returns while the agent works."""
        await self._kit.send(text, agent=self.agent, task=self.id, **message)
        return self

    async def cancel(self, metadata: Mapping[str, Any] | None = None) -> Self:
        """Cancels the task and waits until the agent has stopped. Raises TaskNotCancelable.

        `metadata`: of the cancel request (`turn.cancel_metadata`).
        """
        request = pb.CancelTaskRequest(id=self.id)
        request.metadata.update(metadata or {})
        await self._kit.runtime.operations.cancel.cancel_task(self._kit.call(self.agent), request)
        await self.refresh()
        return await self.wait()

    async def crash(self) -> Self:
        """Simulates a crash of the process that runs the agent (`AgentUnderTest.crash`)."""
        await self._kit.crash()
        return self

    async def wait(self) -> Self:
        """Waits until the agent's turn has ended: the task has ended or waits for its caller."""
        await self._follow(lambda: not self._busy, "ended its turn")
        return self

    async def until(self, condition: str | Callable[[Self], object]) -> Self:
        """Waits for a state or text of the task (`WORKING`, `halfway`), or for a condition.

        Raises AssertionError if the turn ends before.
        """
        if isinstance(condition, str):
            await self._follow(lambda: self._has_shown(condition), f"reached {condition!r}", strict=True)
        else:
            await self._follow(lambda: bool(condition(self)), "reached the condition of `until`", strict=True)
        return self

    async def wait_or_text(self, text: str, clean: Callable[[str], str] = str) -> Self:
        """Waits for a text of the task or the end of the turn. `clean` is applied to the task's texts first."""
        await self._follow(lambda: not self._busy or self._has_shown(text, clean), f"produced {text!r}")
        return self

    # Following the task -----------------------------------------------------------------------------------------

    @property
    def _busy(self) -> bool:
        return self._record is not None and self._record.has_open_turn

    def _has_shown(self, wanted: str, clean: Callable[[str], str] = str) -> bool:
        return (
            wanted in self.states
            or any(wanted in clean(step.text) for step in self.events)
            or wanted in clean("".join(self.chunks))
        )

    async def refresh(self) -> Self:
        """Reads the current state from the store."""
        async with self._refresh_lock:  # a slower read must not overwrite newer state
            await self._refresh()
        return self

    async def _refresh(self) -> None:
        store = self._kit.store
        record = await store.find(self._caller.owner, self._caller.agent, self._id)
        if record is None:
            return
        snapshot = await store.read(record.ref)
        if snapshot is not None:
            record = snapshot.record  # the task may have changed since it was found
        while self.events[-1:] == [] or self.events[-1].sequence < record.last_sequence:
            batch = await store.events(record.ref, len(self.events), EVENTS_PER_READ)
            if not batch:
                break
            self.events += [Step(event.sequence, pb.StreamResponse.FromString(event.data)) for event in batch]
        if snapshot is not None:
            # Set after the events, so that concurrent waiters never see a state without its events.
            self._record = record
            self.task = pb.Task.FromString(snapshot.task)
        attempts = [step.metadata["attempt"] for step in self.events[self.turn_began :] if "attempt" in step.metadata]
        self.attempt = max(record.attempt, *map(int, attempts), 1)  # of the last turn, also if it has ended
        self.error, self.failure = self._kit.failed.get(self._id, (None, "")) if self.state == "FAILED" else (None, "")
        conversation = await store.messages(record.ref)
        message, request = pb.Message.FromString, pb.SendMessageRequest.FromString
        entries = conversation.messages if conversation else ()
        self.exchange = [Exchange(entry.number, message(entry.message), request(entry.envelope)) for entry in entries]
        self.usage = conversation.usage if conversation else Usage()

    async def _follow(self, is_done: Callable[[], bool], aim: str, *, strict: bool = False) -> None:
        """Checks `is_done` after each event until it holds. `strict`: the turn must not end before."""
        if self.reply is not None:
            return
        await self.refresh()
        deadline = asyncio.get_running_loop().time() + self._kit.turn_timeout
        while not is_done():
            if strict and not self._busy:
                raise AssertionError(f"{self!r} has ended its turn and not {aim}:\n{self._events_text()}")
            operations, restarted, after = self._kit.runtime.operations, self._kit.restarted, str(len(self.events))
            assert restarted is not None
            request = pb.SubscribeToTaskRequest(id=self.id)
            events = operations.read.subscribe_to_task(self._kit.call(self.agent, after), request)
            try:
                has_more = True
                while has_more and not is_done() and (self._busy or not strict):
                    has_more = await self._wait_for_event(events, restarted, deadline, aim)
                    await self.refresh()
            finally:
                await events.aclose()

    async def _wait_for_event(
        self, events: EventStream, restarted: asyncio.Future[None], deadline: float, aim: str
    ) -> bool:
        """Waits for a batch of events; False if the process has crashed or the task has ended."""
        next_batch: asyncio.Future[Sequence[Event] | None] = asyncio.ensure_future(anext(events, None))
        left = deadline - asyncio.get_running_loop().time()
        either: set[asyncio.Future[Any]] = {next_batch, restarted}
        await asyncio.wait(either, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        if next_batch.done():
            return next_batch.result() is not None
        next_batch.cancel()
        await asyncio.wait({next_batch})
        if restarted.done():
            return False
        where = self._agent_line()
        raise AssertionError(
            f"{self!r} has not {aim} within {self._kit.turn_timeout:g} s{where}. Its events:\n{self._events_text()}"
        )

    def _events_text(self) -> str:
        return "\n".join(f"  {step.sequence}. {step}" for step in self.events)

    def _agent_line(self) -> str:
        """Describes the current line of the agent's function."""
        assert self._record is not None
        run: Any = self._kit.runtime.scheduler.runs.find(self._record.ref)
        agent: Any = next((agent for agent in self._kit.agents if agent.spec.id == self.agent), None)
        function = getattr(agent, "__wrapped__", None)
        code = getattr(inspect.unwrap(function), "__code__", None) if function else None
        if run is None or run.task is None or code is None:
            return ""
        waiting, frames = run.task.get_coro(), []
        while waiting is not None:
            frames.append(getattr(waiting, "cr_frame", None) or getattr(waiting, "ag_frame", None))
            waiting = getattr(waiting, "cr_await", None) or getattr(waiting, "ag_await", None)
        lines = [frame.f_lineno for frame in frames if frame and frame.f_code.co_filename == code.co_filename]
        for thread in sys._current_frames().values() if not lines else ():
            stack = [frame for frame, _ in traceback.walk_stack(thread)][::-1]
            if any(frame.f_code is code for frame in stack):
                lines = [frame.f_lineno for frame in stack if frame.f_code.co_filename == code.co_filename]
        return f"; {Path(code.co_filename).name} is at line {lines[-1]}" if lines else ""


class _DeadLog:
    """The log of a turn whose process crashed: discards appends without a result."""

    def append(self, change: Append, on_result: object = None) -> asyncio.Future[Appended]:
        return asyncio.get_running_loop().create_future()

    async def insist(self, *_: object) -> Never:
        raise asyncio.CancelledError("the process died")

    read = insist


class _FailureHandler(logging.Handler):
    """Collects the exceptions of agents from their log records. A step that was never awaited becomes a warning."""

    def __init__(self, kit: AgentUnderTest) -> None:
        super().__init__(logging.WARNING)
        self._kit = kit

    def emit(self, record: logging.LogRecord) -> None:
        if _CURRENT_KIT.get() is not self._kit:
            return
        if record.msg == NOT_AWAITED and isinstance(record.args, tuple):
            file, line, *_ = record.args
            warnings.warn_explicit(record.getMessage(), RuntimeWarning, str(file), cast(int, line))
        elif record.msg in (FAILED_AT_LINE, FAILED_AT_DECLARATION) and record.exc_info:
            failure = cast("Mapping[str, object]", record.args)
            task = str(record.__dict__.get("task", ""))
            error = record.exc_info[1]
            assert error is not None
            self._kit.failed[task] = (error, f"{failure['where']}: {failure['text']}")


class _WithoutPauses(DeclaredAgent[..., Any]):
    """A function whose pauses end at once, also those before another attempt: each moves its clock to its end."""

    def __init__(
        self, function: Callable[..., Any], spec: AgentSpec, *, clock: Callable[[], int], **options: Any
    ) -> None:
        super().__init__(function, spec, clock=lambda: clock() + self._skipped, **options)
        self._clock_of_store, self._skipped = clock, 0

    async def take_turn(self, turn_context: TurnContext) -> TurnResult:
        result = await super().take_turn(turn_context)
        if result.pause is not None:
            now = self._clock_of_store()
            self._skipped += max(result.pause.until - now - self._skipped, 0)
            result.pause = replace(result.pause, until=now)
        return result


def as_agent(testable: Testable, ids: Ids, kind: Callable[..., Agent] = DeclaredAgent) -> Agent:
    """Converts a function or agent to an agent that takes its ids from `ids`. `kind`: what becomes of a function."""
    if hasattr(testable, "take_turn") and not isinstance(testable, DeclaredAgent):
        return cast(Agent, testable)
    one = testable if isinstance(testable, DeclaredAgent) else declare(testable)
    return kind(one.__wrapped__, one.spec, retry=one.retry, new_id=ids.other, inputs=one.inputs)


def _files(files: Files) -> list[pb.Part]:
    if isinstance(files, Mapping):
        named: Iterable[tuple[str, bytes | str]] = files.items()
        return [file_part(body.encode() if isinstance(body, str) else body, name=name) for name, body in named]
    return [part for file in files for part in parts_of(file)]
