"""The port of agents: an agent, its turn context and the result of a turn."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeGuard

from dragoman.core.cards.agent_spec import AgentSpec
from dragoman.core.errors import A2AError
from dragoman.core.limits.quotas import UsageReport
from dragoman.core.names import Owner
from dragoman.core.task.log import ArtifactChange, StatusChange
from dragoman.core.task.projection import merge_metadata
from dragoman.core.task.steps import StepJournal, StepRecord
from dragoman_pb.dragoman.worker.v1 import worker_pb2 as wk
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb


class BufferFull(Exception):
    """The agent put events far beyond the limit without waiting. Its task fails with this text."""


class LeaseLost(Exception):
    """The turn no longer holds the claim (task canceled, ended or taken over). Nothing more is written."""


class AgentStillRuns(Exception):
    """A canceled turn was abandoned at the shutdown of its process: whether its agent has stopped is not known."""


class WorkerLost(Exception):
    """The process that ran a turn has died, perhaps before it executed any of it. Its later writes are ignored."""

    def __init__(self, text: str = "", *, may_have_started: bool = True) -> None:
        super().__init__(text)
        self.may_have_started = may_have_started


@dataclass(frozen=True, slots=True)
class StateUpdate:
    """An agent's changed JSON for the task (`turn.state`) and the conversation; None, or no metadata: unchanged."""

    task_state: bytes | None = None
    context_state: bytes | None = None
    task_metadata: bytes = b""
    """A serialized Struct, merged into Task.metadata by key (1.0 §4.1.1)."""
    steps: tuple[StepRecord, ...] = ()  # steps to store, each in place of the same one stored before

    def merged_with(self, later: StateUpdate) -> StateUpdate:
        """Combines two updates; `later` wins where both have a value."""
        return StateUpdate(
            self.task_state if later.task_state is None else later.task_state,
            self.context_state if later.context_state is None else later.context_state,
            merge_metadata(self.task_metadata, later.task_metadata),
            self.steps + later.steps,
        )


NO_CHANGE = StateUpdate()

WORK_ELSEWHERE: Final = "$elsewhere"
"""The key that marks the state of a task whose agent calls another server, also when that agent is not served."""

AGENT_STOP_TIMEOUT: Final = 12.0
"""Seconds that a turn stopped by a limit or a drain may still take, longer than `Timings.mute_timeout`: by then the
task has ended. A client's cancel has no such limit."""


@dataclass(frozen=True, slots=True)
class Pause:
    """The turn is not over: the agent is called again with the same message, at `until` or later."""

    until: int  # milliseconds since the epoch
    error: str = ""
    """Why this attempt failed; empty when the agent sleeps, which is no attempt of its own."""


@dataclass(slots=True)
class TurnResult:
    """The result of a turn: the last artifacts, then the status; or `reply`, a Message in place of both.

    Never changed. Not frozen, because each send makes one (see `core.task.log.Append`).
    """

    status: StatusChange
    artifacts: Sequence[ArtifactChange] = ()
    reply: pb.Message | None = None
    state_update: StateUpdate = NO_CHANGE
    error: A2AError | None = None
    """The response in place of a task that no caller has seen yet. The task ends with `status` all the same."""
    pause: Pause | None = None
    """Then `status` and `artifacts` count only if the turn cannot continue, because its stop was requested."""


class TurnContext(Protocol):
    """The runtime's interface to an agent in one turn. Methods that are not coroutines are safe from any thread."""

    message: pb.Message
    """The message that this turn answers."""
    envelope: pb.SendMessageRequest
    """The request of that message, without the message: metadata, accepted output modes, history length."""
    question: pb.Message | None
    """The agent's last question to the caller of this task; None in the first turn."""
    references: Sequence[pb.Task]
    """The tasks that the message refers to and its caller may see."""
    task_state: bytes
    """The agent's JSON for this task as last committed; initially empty."""
    task_metadata: bytes
    """The task's metadata, with what this turn has put: a serialized Struct."""
    principal: str
    """The principal that sent the message of this turn."""
    attempt: int
    """The number of this attempt of the turn: above 1 after a process died."""
    waiting_messages: int
    """Later messages that had arrived when the turn began.

    They are the first that `incoming` yields. In a second attempt, an earlier one may have received them.
    """
    previous_artifacts: Sequence[pb.Artifact]
    """The task's artifacts at the start of a second or later attempt."""
    stopping: bool
    """Whether the server is shutting down and the turn should end."""

    @property
    def task_id(self) -> str: ...

    @property
    def context_id(self) -> str: ...

    @property
    def owner(self) -> Owner:
        """The owner of the task. Only together with it does a context id identify a conversation."""

    @property
    def shows_error_texts(self) -> bool:
        """Whether callers see what any exception of the agent says; else only what an AgentError says."""

    @property
    def history(self) -> Sequence[pb.Message]:
        """The task's earlier messages, oldest first."""

    @property
    def context_state(self) -> bytes:
        """The agent's JSON for the conversation at the start of the turn; initially empty."""

    def now(self) -> int:
        """The store's time in milliseconds since the epoch, for steps and pauses. Follows elapsed time."""

    @property
    def cancel_reason(self) -> str:
        """Why the turn is to stop: `client`, `deadline`, `drain` or `lease_lost`; empty otherwise."""

    @property
    def cancel_metadata(self) -> bytes:
        """The metadata of the client's cancel request: a serialized Struct; empty for other reasons to stop."""

    @property
    def canceled(self) -> bool:
        """Whether the turn is to stop."""

    def refuse_cancel(self, reason: str) -> None:
        """Rejects cancel requests of clients from now on, with this text."""

    def put(self, change: StatusChange | ArtifactChange, *, state_update: StateUpdate = NO_CHANGE) -> Awaitable[None]:
        """Adds an event to the open batch, without waiting for the commit.

        The awaitable completes when there is room for more; it may be ignored. In other threads than the loop's, the
        call itself waits for room. Raises BufferFull past 16 times the limit, LeaseLost when the claim is lost, and the
        error of an earlier commit that failed.
        """

    async def flush(self) -> None:
        """Waits until everything put so far is committed. Raises the error of a failed commit."""

    @property
    def journal(self) -> StepJournal:
        """The steps that earlier runs of this turn have stored, and the calls of this run."""

    def store(self, state_update: StateUpdate) -> Awaitable[None]:
        """Adds a change without an event, on the event loop. The awaitable is its commit. Raises as `put`."""

    def report_usage(self, report: UsageReport) -> None:
        """Adds reported usage, without waiting for the commit. Safe from any thread."""

    async def call(self, call: wk.TaskCall) -> wk.TaskCallResult:
        """Creates, continues, reads or cancels a task of this agent as the `principal`. Raises or returns A2AError."""

    def incoming(self) -> AsyncIterator[tuple[pb.Message, pb.SendMessageRequest]]:
        """Yields messages that arrive during the turn, each once and in order; waits for more."""


class Agent(Protocol):
    """An agent that can take turns."""

    @property
    def spec(self) -> AgentSpec: ...

    @property
    def leaked_threads(self) -> int:
        """The number of its threads that still run after their turn ended."""

    async def take_turn(self, context: TurnContext) -> TurnResult:
        """Runs one turn. Errors of the agent become a TurnResult. Raises WorkerLost, and CancelledError."""


class RemoteAgent(Agent, Protocol):
    """An agent that runs in other processes, which may be absent or at capacity."""

    @property
    def capacity(self) -> int:
        """Concurrent turns that it can have now, including those that run."""

    @property
    def seconds_absent(self) -> float:
        """Seconds since its last process disappeared; 0 while there is one."""

    def runner_of(self, task_id: str) -> str:
        """A description of the process that runs this task; empty when none does."""

    def describe_run(self, task_id: str) -> str:
        """Explains a problem of this task's turn and what will follow, in a few sentences; empty when there is none."""

    @property
    def is_worker_backed(self) -> bool:
        """Whether workers run it. Then other workers of the same principal may register it, too."""

    def may_have_work(self, task_state: bytes, attempt: int) -> bool:
        """Whether another server may have work for a task, by the agent's JSON for it and the attempt of its turn.

        Then only that server can say that the work has stopped.
        """

    async def cancel_waiting(self, task_state: bytes, metadata: bytes) -> bool:
        """Cancels the work of a task that waits for its caller. Returns when its server has confirmed that.

        False: its server cannot confirm it. `metadata`: of the cancel request, a serialized Struct. Raises
        TaskNotCancelable when the server refuses, Unavailable when it does not answer.
        """

    @property
    def problem(self) -> str:
        """Why it is unavailable, in a few words; empty while it is available or when no reason is known."""


def is_remote(agent: Agent | None) -> TypeGuard[RemoteAgent]:
    """Whether an agent runs in other processes. Looks for one method, because every turn asks."""
    return hasattr(agent, "cancel_waiting")


def is_called(agent: Agent | None) -> TypeGuard[RemoteAgent]:
    """Whether an agent calls another server, which alone can say that its work has stopped."""
    return is_remote(agent) and not agent.is_worker_backed
