"""What an agent is, and what it needs of the runtime for one turn."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, runtime_checkable

from dragoman.core.cards.agent_spec import AgentSpec
from dragoman.core.limits.quotas import UsageReport
from dragoman.core.names import Owner
from dragoman.core.task.log import ArtifactChange, StatusChange
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb


class BufferFull(Exception):
    """An agent went on putting events far past the limit without waiting for room; its task fails with this text."""


class LeaseLost(Exception):
    """The run no longer holds the task (canceled, ended or taken over): nothing it puts is written."""


class WorkerLost(Exception):
    """The process that ran a turn is gone, and nothing it still says of it is taken. The text says what is known.

    began: whether it may have run anything of the turn.
    """

    def __init__(self, text: str = "", *, may_have_started: bool = True) -> None:
        super().__init__(text)
        self.may_have_started = may_have_started


@dataclass(frozen=True, slots=True)
class StateUpdate:
    """JSON that an agent keeps, where it changed: of the task (`turn.state`), of the conversation."""

    task_state: bytes | None = None
    context_state: bytes | None = None

    def merged_with(self, later: StateUpdate) -> StateUpdate:
        """Both, the later one where both say something."""
        return StateUpdate(
            self.task_state if later.task_state is None else later.task_state,
            self.context_state if later.context_state is None else later.context_state,
        )


NO_CHANGE = StateUpdate()

AGENT_STOP_TIMEOUT: Final = 12.0
"""Seconds that a canceled turn may still take. Longer than the runtime waits: the task has ended by then."""


@dataclass(frozen=True, slots=True)
class TurnResult:
    """How a turn ended: last artifacts, then the status; or, instead of both, a Message as the whole answer."""

    status: StatusChange
    artifacts: Sequence[ArtifactChange] = ()
    reply: pb.Message | None = None
    state_update: StateUpdate = NO_CHANGE


class TurnContext(Protocol):
    """What the runtime gives an agent for one turn. Verbs are plain calls, safe from any thread."""

    @property
    def task_id(self) -> str: ...

    @property
    def context_id(self) -> str: ...

    @property
    def owner(self) -> Owner:
        """Whose task it is. With the context's id it names a conversation, which the id alone does not."""
        ...

    @property
    def principal(self) -> str:
        """Who sent the message that this turn answers."""
        ...

    @property
    def message(self) -> pb.Message:
        """The message this turn answers."""
        ...

    @property
    def envelope(self) -> pb.SendMessageRequest:
        """The request it came in, less the message: metadata, accepted output modes."""
        ...

    @property
    def history(self) -> Sequence[pb.Message]:
        """The task's messages before this one, oldest first."""
        ...

    @property
    def question(self) -> pb.Message | None:
        """What the agent asked when it last waited for this task's caller; None in a first turn."""
        ...

    @property
    def references(self) -> Sequence[pb.Task]:
        """The tasks that the message refers to, as far as its caller may see them."""
        ...

    @property
    def task_state(self) -> bytes:
        """The agent's JSON for this task as last committed; empty at first."""
        ...

    @property
    def context_state(self) -> bytes:
        """The agent's JSON for the conversation as it was when the turn began; empty at first."""
        ...

    @property
    def attempt(self) -> int:
        """How often this turn was begun, 1 unless a process died while it ran the turn."""
        ...

    @property
    def waiting_messages(self) -> int:
        """Messages that had come after this one when the turn began. Where it is begun again, an earlier attempt may
        have had them: they are the first that `incoming` gives."""
        ...

    @property
    def previous_artifacts(self) -> Sequence[pb.Artifact]:
        """The task's artifacts when a second or later attempt began."""
        ...

    @property
    def stopping(self) -> bool:
        """Whether the server is about to stop and wants the turn to end."""
        ...

    @property
    def cancel_reason(self) -> str:
        """Why the run was asked to stop: `client`, `deadline`, `drain` or `fenced`; empty when it was not."""
        ...

    @property
    def cancelled(self) -> bool:
        """Whether somebody asked this run to stop."""
        ...

    def refuse_cancel(self, reason: str) -> None:
        """From now on a client's cancel is refused with this text."""
        ...

    def put(self, change: StatusChange | ArtifactChange, *, state_update: StateUpdate = NO_CHANGE) -> Awaitable[None]:
        """Adds an event to the open batch and does not wait for the disk.

        The awaitable ends when there is room for more and may be ignored. From another thread than the loop's the
        call itself waits for room. Raises BufferFull past 16 times the limit, TurnOver when the run lost the task,
        and whatever made an earlier commit fail.
        """
        ...

    async def flush(self) -> None:
        """Waits until everything put so far is on disk. Raises what made a commit fail."""
        ...

    def report_usage(self, report: UsageReport) -> None:
        """Counts what the agent reports to have used. Does not wait for the disk; safe from any thread."""
        ...

    def incoming(self) -> AsyncIterator[tuple[pb.Message, pb.SendMessageRequest]]:
        """Messages that arrive for the task while it runs, each given once, in order; waits for more."""
        ...


class Agent(Protocol):
    """Something that can take a turn."""

    @property
    def spec(self) -> AgentSpec: ...

    @property
    def leaked_threads(self) -> int:
        """Threads of it that go on although their turn is over."""
        ...

    async def take_turn(self, context: TurnContext) -> TurnResult:
        """Runs one turn. Failures of the agent's own code become an Ending; CancelledError passes through.

        Raises ProcessLost when it ran in another process, and that is gone.
        """
        ...


@runtime_checkable
class RemoteAgent(Agent, Protocol):
    """An agent that other processes run: there may be none of them, or none that has room."""

    @property
    def capacity(self) -> int:
        """Turns that it could have at the same time now, those that it has included."""
        ...

    @property
    def seconds_absent(self) -> float:
        """Seconds since there was no such process any more; 0 while there is one."""
        ...

    def runner_of(self, task_id: str) -> str:
        """Which process runs a turn of this task, for people; empty when none does."""
        ...

    def describe_run(self, task_id: str) -> str:
        """What is to be expected of it where something seems to be wrong, in a few sentences; empty when nothing is."""
        ...

    @property
    def is_worker_backed(self) -> bool:
        """Whether it is workers that have it: then others of the same principal may bring it, too."""
        ...

    async def on_canceled(self, task_state: bytes) -> None:
        """A task of it that waited for its caller was canceled; `memory` is the agent's JSON for the task."""
        ...

    @property
    def problem(self) -> str:
        """Why it is away, in a few words; empty while it is not, and where there is no more to say than that."""
        ...
