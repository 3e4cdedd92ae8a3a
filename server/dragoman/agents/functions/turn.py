"""`Turn`, the API of an agent function: the caller's message, the methods that answer it, and what they send."""

from __future__ import annotations

import asyncio
import builtins
import threading
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cached_property, partial, wraps
from typing import Any, Final, NoReturn, ParamSpec, TypeVar, overload

from dragoman.agents import values
from dragoman.agents.functions.declared_types import InputTypes, InvalidInput, read_input
from dragoman.agents.functions.spec import ONCE, Retry
from dragoman.agents.functions.state import TurnState
from dragoman.agents.functions.steps import Sleep, StepCall, TurnSteps
from dragoman.agents.values import NewId, struct_of, struct_to_json, value_to_json
from dragoman.core import trace
from dragoman.core.limits.message_checks import media_type_of
from dragoman.core.limits.quotas import UsageReport, checked_usage_report
from dragoman.core.names import ContextId, TaskId
from dragoman.core.task import states
from dragoman.core.task.log import ArtifactChange, StatusChange
from dragoman.ports import NO_CHANGE, TurnContext, TurnResult
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

P = ParamSpec("P")
T = TypeVar("T")

DEFAULT_ARTIFACT_ID: Final = "output"


@dataclass(frozen=True, slots=True)
class ReceivedFile:
    """A file of a message: its bytes or its URL. With a URL, `bytes` is empty: nothing is fetched."""

    name: str
    media_type: str
    bytes: builtins.bytes = b""
    url: str = ""


class Incoming:
    """One message of the caller, with the options of its request."""

    def __init__(self, message: pb.Message, envelope: pb.SendMessageRequest) -> None:
        self.message = message
        """The protocol message, `lf.a2a.v1.Message` (A2A 1.0 §4.1.4)."""
        self._envelope = envelope

    @cached_property
    def text(self) -> str:
        """The text parts, joined with newlines. Empty if there are none."""
        return "\n".join([part.text for part in self.message.parts if part.WhichOneof("content") == "text"])

    @cached_property
    def files(self) -> list[ReceivedFile]:
        """The parts with bytes or a URL, in order."""
        return [
            ReceivedFile(part.filename, media_type_of(part), part.raw, part.url)
            for part in self.message.parts
            if part.WhichOneof("content") in ("raw", "url")
        ]

    @cached_property
    def data(self) -> list[Any]:
        """The JSON values of the data parts, in order. Integral numbers are int."""
        return [value_to_json(part.data) for part in self.message.parts if part.WhichOneof("content") == "data"]

    @cached_property
    def skill(self) -> str:
        """The id of the skill that the caller names in the message's metadata, as `skill`. Empty if there is none."""
        return self.message.metadata.fields["skill"].string_value if "skill" in self.message.metadata.fields else ""

    @cached_property
    def message_metadata(self) -> dict[str, Any]:
        """The metadata of the message. Integral numbers are int, which the Struct `message.metadata` has as floats."""
        return struct_to_json(self.message.metadata)

    @cached_property
    def request_metadata(self) -> dict[str, Any]:
        """The metadata of the request (1.0 §3.2.1)."""
        return struct_to_json(self._envelope.metadata)

    @cached_property
    def accepts(self) -> list[str]:
        """The media types that the caller accepts. Empty if the request names none."""
        return list(self._envelope.configuration.accepted_output_modes)

    @cached_property
    def extensions(self) -> list[str]:
        """URIs of this agent's extensions that the caller activated (1.0 §4.6)."""
        return list(self._envelope.message.extensions)


class TurnEnded(BaseException):
    """Raised by the methods that end a turn; carries the result. Do not catch it.

    A BaseException, so that an agent's `except Exception` does not swallow it.
    """

    def __init__(self, status: StatusChange, reply: pb.Message | None = None) -> None:
        super().__init__(f"the turn ended as {states.name(status.state)}")
        self.status = status
        self.reply = reply


class AgentError(Exception):
    """Ends the turn as FAILED with a text for the caller. The texts of other exceptions may be hidden from callers.

    `raise AgentError("The warehouse is closed until 8:00")`. The log has the traceback, and that of a cause
    (`raise ... from error`), which callers never see.
    """


class Turn(Incoming):
    """One turn of a task: the caller's message, and the methods that answer it.

    The methods are plain, thread-safe calls that do not wait for the disk. `status`, `artifact` and `chunk` return an
    awaitable that completes when the buffer has room; awaiting it is optional. In a thread, the call itself waits for
    room. They raise InvalidAgentResponse for a value that the protocol cannot represent, BufferFull when far too much
    is uncommitted, and the error of an earlier failed commit.

    `ask`, `need_auth`, `reject` and `reply` end the turn by raising TurnEnded. A follow-up message calls the function
    again (A2A 1.0 §3.4.3); store in `state` what that call needs.
    """

    def __init__(self, output: TurnOutput, inputs: InputTypes) -> None:
        super().__init__(output.turn_context.message, output.turn_context.envelope)
        self._inputs = inputs
        self._output = output
        self._turn_context = output.turn_context

    # The task -----------------------------------------------------------------------------------------------------

    @cached_property
    def input(self) -> Any:
        """The message's data part, or its text as JSON, as the declared `input` of the skill or the agent.

        A type that is a model is validated, and this is an instance of it. For a JSON Schema it is the JSON value,
        unchecked. A message without a valid input ends the task as REJECTED, and the caller reads which field is wrong
        and why. Raises TypeError if nothing is declared.
        """
        id = self.skill if self.skill in self._inputs else ""
        if id not in self._inputs:
            raise TypeError("turn.input: the agent declares no input; pass input= to @agent, or read turn.data")
        try:
            return read_input(self.data, self.text, self._inputs[id])
        except InvalidInput as error:
            self.reject(str(error))

    @property
    def task_id(self) -> TaskId:
        """The id of the task."""
        return TaskId(self._turn_context.task_id)

    @property
    def context_id(self) -> ContextId:
        """The id of the conversation that the task belongs to."""
        return ContextId(self._turn_context.context_id)

    @property
    def principal(self) -> str:
        """The principal that sent this turn's message; `anonymous` if the caller is not authenticated."""
        return self._turn_context.principal

    @property
    def history(self) -> Sequence[pb.Message]:
        """Earlier messages of the task, of caller and agent, oldest first."""
        return self._turn_context.history

    @property
    def question(self) -> pb.Message | None:
        """The question with which the previous turn asked for input. None in a task's first turn."""
        return self._turn_context.question

    @property
    def references(self) -> Sequence[pb.Task]:
        """Tasks in the message's `referenceTaskIds`, as GetTask shows them: of the same agent, 16 at most."""
        return self._turn_context.references

    @property
    def state(self) -> dict[str, Any]:
        """The agent's JSON object for this task. Change it in place; it is stored between turns.

        Changes are stored with the next event or the end of the turn, which raises TypeError for a value that JSON
        cannot represent.
        """
        return self._output.state.task.value

    @property
    def metadata(self) -> dict[str, Any]:
        """The task's metadata, which clients see in every Task (1.0 §4.1.1). Change it in place.

        Changed keys are merged into the task's metadata with the next event or at the end of the turn, and the event
        that ends the turn repeats them for readers of streams. That raises InvalidAgentResponse for a value that JSON
        cannot represent, for the key `usage`, which the server writes (`turn.usage`), for a removed key (set it to
        None), and above 256 KiB in all.
        """
        return self._output.state.metadata.value

    @property
    def context(self) -> Context:
        """The conversation of the task, with the agent's state for it."""
        return Context(self._output)

    @property
    def attempt(self) -> int:
        """Number of this attempt, from 1. Above 1 if a process died during the turn (`on_crash`)."""
        return self._turn_context.attempt

    @property
    def previous_artifacts(self) -> Sequence[pb.Artifact]:
        """In a repeated attempt: artifacts of the failed attempt and of earlier turns.

        Sending an artifact again replaces it; the others stay. Contents that do not fit into a response are links.
        """
        return self._turn_context.previous_artifacts

    @property
    def stopping(self) -> bool:
        """Whether the server is shutting down and this turn should end within 30 seconds."""
        return self._turn_context.stopping

    @property
    def cancel_reason(self) -> str:
        """Why the turn should stop: `client`, `deadline`, `drain` or `lease_lost`. Empty if it should not."""
        return self._turn_context.cancel_reason

    @property
    def cancel_metadata(self) -> dict[str, Any]:
        """The metadata of the client's cancel request (1.0 §9.4.5). Empty if it has none, and for other reasons."""
        return struct_to_json(struct_of(self._turn_context.cancel_metadata))

    @property
    def canceled(self) -> bool:
        """Whether the turn should stop. For sync functions; async functions receive CancelledError."""
        return self._turn_context.canceled

    def check(self) -> None:
        """Raises CancelledError if the turn should stop. For sync functions, to call between two steps."""
        if self._turn_context.canceled:
            raise asyncio.CancelledError("the task was canceled")

    def refuse_cancel(self, reason: str) -> None:
        """Rejects later cancel requests for this task with TaskNotCancelable and this reason."""
        if not reason:
            raise ValueError("turn.refuse_cancel: reason is empty; pass one that clients can read")
        self._turn_context.refuse_cancel(reason)

    # Events -------------------------------------------------------------------------------------------------------

    def status(
        self, value: object = None, state: int = states.WORKING, *, metadata: Mapping[str, object] | None = None
    ) -> Awaitable[None]:
        """Sends a status update with text, a Message or no message (1.0 §4.2.1). `metadata` is that of the event.

        `state` is WORKING or AUTH_REQUIRED. AUTH_REQUIRED tells clients that the running agent waits for authentication
        elsewhere; streams stay open. Raises ValueError for the other states, which end a turn.

        When the turn runs again after a crash, a failure or a pause, WORKING is not sent again until its last stored
        step is reached.
        """
        if state == states.WORKING and self._output.steps.repeats_output:
            return _CompletedAwaitable()  # an earlier run of this turn has sent it
        if state not in (states.WORKING, states.AUTH_REQUIRED):
            raise ValueError(
                f"turn.status: {states.name(state)} ends a turn; return, raise, or call ask, need_auth or reject"
            )
        return self._output.status(state, value, metadata)

    def artifact(
        self,
        value: object,
        *,
        name: str = "",
        description: str = "",
        id: str = "",
        append: bool = False,
        last: bool = False,
        metadata: Mapping[str, object] | None = None,
    ) -> Awaitable[None]:
        """Sends an artifact: an Artifact, or any value that converts to parts (1.0 §4.2.2).

        Without `id` it is new. With the id of an existing artifact it replaces that one or, with `append`, adds to it.
        `last` marks the last chunk; `metadata` is the artifact's.
        """
        if append and not id and not getattr(value, "artifact_id", ""):
            raise ValueError("turn.artifact: append=True needs id=, the id of the artifact to add to")
        artifact = self._output.new_artifact(value, name=name, description=description, id=id, metadata=metadata)
        return self._output.artifact(artifact, append=append, last=last)

    def chunk(
        self,
        value: object,
        *,
        artifact: str = DEFAULT_ARTIFACT_ID,
        last: bool = False,
        metadata: Mapping[str, object] | None = None,
    ) -> Awaitable[None]:
        """Appends to an artifact; the turn's first chunk creates it. Text is streamed, other values become parts.

        `output` is the turn's default artifact: `output-N` in a task's N-th turn. `last` marks the last chunk;
        `metadata` is that of the event (1.0 §4.2.2).
        """
        if not artifact:
            raise ValueError("turn.chunk: artifact= is empty; omit it for the turn's default artifact")
        return self._output.chunk(value, artifact=artifact, last=last, metadata=metadata)

    async def messages(self) -> AsyncIterator[Incoming]:
        """Yields messages that arrive for the running task, each once. Waits for more until the loop is left.

        A message not read by the end of the turn keeps the task WORKING and starts the next turn.
        """
        async for message, envelope in self._turn_context.incoming():
            yield Incoming(message, envelope)

    def flush(self) -> Awaitable[None]:
        """Waits until all sent events are on disk: `await turn.flush()`. In a thread, the call itself waits.

        Raises the error of a failed commit.
        """
        if self._output.steps.is_on_loop:
            return self._turn_context.flush()
        self._output.steps.run_from_thread(self._turn_context.flush())
        return _CompletedAwaitable()

    def usage(self, *, tokens: int = 0, cost: float = 0.0, key: str = "") -> None:
        """Reports usage since the last report: tokens, and a cost in the operator's currency.

        Reports add up over all turns and attempts of the task, including failed attempts. A report with a `key` counts
        once per task: use the id of the reported call if a later attempt may report the same call again. When the sum
        exceeds the task's budget, the turn is canceled and the task ends as FAILED (OVER_BUDGET), unless the turn
        delivers its result first.
        """
        self._turn_context.report_usage(checked_usage_report(tokens, cost, key))

    def delegation(self) -> dict[str, dict[str, str]]:
        """Request metadata for a call to another agent, which adds that task's usage to this task.

        `dragoman.client` adds it automatically; with other clients pass `metadata={**mine, **turn.delegation()}`. Only
        this server evaluates it, and only for tasks of the same principal.
        """
        self._turn_context.report_usage(UsageReport())  # makes the runtime read the total before the turn ends
        return trace.delegation(self._output.agent, self.task_id)

    # Durable steps ------------------------------------------------------------------------------------------------

    @overload
    def step(
        self,
        name: str,
        function: Callable[..., Awaitable[T]],
        /,
        *args: Any,
        retry: Retry | None = None,
        timeout: float = 0.0,
        **kwargs: Any,
    ) -> StepCall[T]: ...
    @overload
    def step(
        self,
        name: str,
        function: Callable[..., T],
        /,
        *args: Any,
        retry: Retry | None = None,
        timeout: float = 0.0,
        **kwargs: Any,
    ) -> StepCall[T]: ...
    @overload
    def step(self, name: str, /) -> StepCall[Any]: ...
    @overload
    def step(self, function: Callable[P, Awaitable[T]], /) -> Callable[P, StepCall[T]]: ...
    @overload
    def step(
        self, *, retry: Retry | None = None, timeout: float = 0.0
    ) -> Callable[[Callable[P, Awaitable[T]]], Callable[P, StepCall[T]]]: ...
    def step(  # type: ignore[misc]  # mypy does not see that the decorator form passes no positional argument
        self,
        target: Any = None,
        function: Any = None,
        /,
        *args: Any,
        retry: Retry | None = None,
        timeout: float = 0.0,
        **kwargs: Any,
    ) -> Any:
        """Runs a function once for this turn: `result = await turn.step("search", search, query)`.

        Its result is stored before it is returned. When the turn runs again (after a crash, a failed attempt, an
        answered question, or `sleep`), a finished step returns the stored result and does not run. Other forms:
        `@turn.step` or `@turn.step(retry=, timeout=)` above a function, which is then called as usual; and
        `async with turn.step("pay") as step:`, where `step.done` tells whether `step.result` is stored already.
        A sync agent calls `turn.step("search", search, query).wait()`, or uses `with`.

        A step is known by its name, and by how many of that name the turn has called before. Steps of other asyncio
        tasks need names of their own. Raises StepMismatch if the turn calls another step than in its earlier run.

        Results: JSON values, tuples, sets, bytes, dates, dataclasses, pydantic models, enums and protobuf messages, up
        to 16 MiB; TypeError or ValueError for others. `retry`: tries the step again. `timeout`: seconds for each
        attempt, then TimeoutError. Sync functions run in a thread. A step that was interrupted runs again: pass
        `step.key` to services that accept an idempotency key.
        """
        _check_step_options(retry, timeout)
        if callable(target):
            return self._decorate_step(target, retry, timeout)
        if target is None:
            return partial(self._decorate_step, retry=retry, timeout=timeout)
        if function is not None and not callable(function):
            raise TypeError(
                f"turn.step: {function!r} is not a function; write turn.step({target!r}, function, argument), "
                "without calling the function"
            )
        call = None if function is None else partial(function, *args, **kwargs)
        return StepCall(self._output.steps, self._output.steps.begin(target), call, retry or ONCE, timeout)

    def _decorate_step(
        self, function: Callable[P, Awaitable[T]], retry: Retry | None, timeout: float
    ) -> Callable[P, StepCall[T]]:
        name = getattr(function, "__name__", "")

        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> StepCall[T]:
            work = partial(function, *args, **kwargs)
            return StepCall(self._output.steps, self._output.steps.begin(name), work, retry or ONCE, timeout)

        return call

    def sleep(self, seconds: float = 0.0, *, minutes: float = 0.0, hours: float = 0.0, days: float = 0.0) -> Sleep:
        """Pauses the turn: `await turn.sleep(hours=3)`. In a sync agent: `turn.sleep(hours=3).wait()`.

        From one second on nothing stays in memory: the turn is released, and afterwards the function is called again,
        where its finished steps return their stored results. The pause survives restarts; a cancel ends it at once.
        It is a step named `sleep`. While other steps run beside it, the turn stays in memory.
        """
        length = timedelta(seconds=seconds, minutes=minutes, hours=hours, days=days)
        if length < timedelta(0):
            raise ValueError(f"turn.sleep: {length} is negative; pass seconds=, minutes=, hours= or days=")
        steps, until = self._output.steps, self._output.clock() + length // timedelta(milliseconds=1)
        return Sleep(steps, steps.begin("sleep"), until)

    def sleep_until(self, when: datetime) -> Sleep:
        """Pauses the turn until a time, as `sleep` does. Raises ValueError for a time without a timezone."""
        if when.tzinfo is None:
            raise ValueError(
                f"turn.sleep_until: {when!r} has no timezone; use datetime(..., tzinfo=UTC) or .astimezone()"
            )
        steps = self._output.steps
        return Sleep(steps, steps.begin("sleep"), round(when.timestamp() * 1000))

    # Ends of the turn ---------------------------------------------------------------------------------------------

    def ask(self, question: object) -> NoReturn:
        """Ends the turn as INPUT_REQUIRED with a question to the caller."""
        raise TurnEnded(self._output.status_change(states.INPUT_REQUIRED, _check_content("ask", question)))

    def need_auth(self, reason: object) -> NoReturn:
        """Ends the turn as AUTH_REQUIRED; `reason` tells the caller how to authenticate."""
        raise TurnEnded(self._output.status_change(states.AUTH_REQUIRED, _check_content("need_auth", reason)))

    def reject(self, reason: object) -> NoReturn:
        """Ends the task as REJECTED: the agent declines it."""
        raise TurnEnded(self._output.status_change(states.REJECTED, _check_content("reject", reason)))

    def reply(self, value: object) -> NoReturn:
        """Answers with a Message instead of a task, if the agent is `direct` and no client has seen the task.

        Otherwise the task ends as COMPLETED with this status message.
        """
        message = self._output.message(_check_content("reply", value))
        status = StatusChange(states.COMPLETED, message.SerializeToString())
        message.ClearField("task_id")  # the task will not exist
        raise TurnEnded(status, message)


class Context:
    """A conversation: the state that the tasks of one context share."""

    def __init__(self, output: TurnOutput) -> None:
        self._output = output

    @property
    def id(self) -> str:
        """The context id."""
        return self._output.turn_context.context_id

    @property
    def state(self) -> dict[str, Any]:
        """The agent's JSON object for this conversation. Change it in place; it is stored between tasks.

        Changes are stored with the next event or the end of the turn. If another task of the conversation has changed
        it since this turn began, this turn fails, so that no change is lost.
        """
        return self._output.state.context.value


class TurnOutput:
    """The inside of a `Turn`: its events and, created on first use, its state and its durable steps.

    Create it in the asyncio task of the turn; its methods are thread-safe. The first chunk of an artifact in a turn
    replaces it (append=false), later ones append, from any thread. The default artifact is `output` in a task's first
    turn and `output-N` in its N-th, so that the response to a follow-up does not overwrite earlier ones.
    """

    _state: TurnState | None = None
    _steps: TurnSteps | None = None

    def __init__(
        self, turn_context: TurnContext, new_id: NewId, agent: str = "", clock: Callable[[], int] | None = None
    ) -> None:
        """`agent`: its id. `clock`: milliseconds since the epoch, in place of the turn's."""
        self.turn_context = turn_context
        self.agent = agent
        self._clock = clock
        self.new_id = new_id
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        task = asyncio.current_task()
        assert task is not None, "a turn runs in an asyncio task"
        self._own_task = weakref.ref(task)  # a reference would be a cycle: the task's context leads to its turn
        self._lock = threading.Lock()
        self._first_chunk_lock = threading.Lock()
        self._started: set[str] = set()
        self._written: set[str] = set()
        earlier = turn_context.history
        before = sum(message.role == pb.ROLE_USER for message in earlier) if earlier else 0
        self._default_artifact_id = f"{DEFAULT_ARTIFACT_ID}-{before + 1}" if before else DEFAULT_ARTIFACT_ID

    @property
    def clock(self) -> Callable[[], int]:
        """Milliseconds since the epoch, for steps and pauses."""
        return self._clock or self.turn_context.now

    @property
    def is_closed(self) -> bool:
        """Whether the turn's coroutine is destroyed, which its own task does not do."""
        task = self._own_task()
        return task is None or asyncio.current_task(self._loop) is not task

    @property
    def state(self) -> TurnState:
        """State and metadata, which most turns leave as they are."""
        with self._lock:
            self._state = self._state or TurnState(self.turn_context)
            return self._state

    @property
    def steps(self) -> TurnSteps:
        """Durable steps, which most turns do not have."""
        with self._lock:
            self._steps = self._steps or TurnSteps(
                self.turn_context, self.agent, self.clock, self._loop, self._loop_thread, self._own_task
            )
            return self._steps

    def status(self, state: int, value: object = None, metadata: Mapping[str, object] | None = None) -> Awaitable[None]:
        return self._send(replace(self.status_change(state, value), metadata=values.event_metadata(metadata)))

    def artifact(self, artifact: pb.Artifact, *, append: bool = False, last: bool = False) -> Awaitable[None]:
        accepted = self._send(values.artifact_change(artifact, append=append, last=last))
        self._written.add(artifact.artifact_id)
        return accepted

    def chunk(
        self, value: object, *, artifact: str, last: bool, metadata: Mapping[str, object] | None
    ) -> Awaitable[None]:
        id = self._default_artifact_id if artifact == DEFAULT_ARTIFACT_ID else values.checked_string(artifact)
        text = values.checked_string(value) if isinstance(value, str) else None
        parts = values.encode_parts(values.parts_of(value)) if text is None else b""
        head, event_metadata = values.encode_artifact_head(id), values.event_metadata(metadata) if metadata else b""
        change = ArtifactChange(id, head, parts, text=text, append=True, last_chunk=last, metadata=event_metadata)
        if id in self._written:
            return self._send(change)
        with self._serialize_first_chunk():
            append = id in self._started
            self._started.add(id)
            accepted = self._send(replace(change, append=append))
            self._written.add(id)
        return accepted

    def _send(self, change: StatusChange | ArtifactChange) -> Awaitable[None]:
        state = self._state
        if state is None:
            return self.turn_context.put(change)
        update = state.changes()
        accepted = self.turn_context.put(change, state_update=update)
        state.mark_saved(update)
        return accepted

    @contextmanager
    def _serialize_first_chunk(self) -> Iterator[None]:
        """Lets one thread at a time send a first chunk, so that no later chunk overtakes it and is replaced."""
        # A thread may hold the lock while it waits for the buffer, which only the loop can empty, so the loop waits
        # 0.1 s at most. The thread's chunk is in the buffer by then, so a chunk sent without the lock follows it.
        acquired = self._first_chunk_lock.acquire(timeout=0.1 if threading.get_ident() == self._loop_thread else -1)
        try:
            yield
        finally:
            if acquired:
                self._first_chunk_lock.release()

    def message(self, value: object) -> pb.Message:
        return values.message_of(value, self.new_id, self.turn_context)

    def new_artifact(self, value: object, **fields: Any) -> pb.Artifact:
        return values.artifact_of(value, self.new_id, **fields)

    def status_change(self, state: int, value: object = None) -> StatusChange:
        return StatusChange(state, b"" if value is None else self.message(value).SerializeToString())

    def turn_result(
        self, status: StatusChange, *, artifacts: Sequence[ArtifactChange] = (), reply: pb.Message | None = None
    ) -> TurnResult:
        """The result of the turn, with the current state. Raises TypeError for a state that is not JSON."""
        return TurnResult(status, artifacts, reply, NO_CHANGE if self._state is None else self._state.changes())

    def failed_result(self, text: str, failure: bytes) -> TurnResult:
        """FAILED with a text and a failure (see `StatusChange`). Stores valid changes of the metadata, and no state."""
        update = NO_CHANGE if self._state is None else self._state.valid_metadata()
        return TurnResult(replace(self.status_change(states.FAILED, text), failure=failure), state_update=update)


class _CompletedAwaitable:
    """An awaitable that is already complete."""

    def __await__(self) -> Any:
        return iter(())


def _check_step_options(retry: object, timeout: object) -> None:
    if retry is not None and not isinstance(retry, Retry):
        raise TypeError(f"turn.step: retry={retry!r} must be a Retry, such as Retry(attempts=3)")
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or timeout < 0:
        raise ValueError(f"turn.step: timeout={timeout!r} must be seconds, 0 for no limit")


def _check_content(method: str, value: object) -> object:
    if value is None:
        raise ValueError(f"turn.{method}: the content is None; pass a string or a Message")
    return value
