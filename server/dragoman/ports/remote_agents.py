"""The ports of remote agents: registries of workers and upstream agents, and parts of the worker protocol."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from dragoman.core.access.identity import Identity
from dragoman.core.agent_sources import UpstreamSpec
from dragoman.core.task import states
from dragoman.core.task.steps import StepRecord, StepState
from dragoman.ports.agent import RemoteAgent
from dragoman_pb.dragoman.worker.v1 import worker_pb2 as wk
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb


class RemoteAgentRegistry(Protocol):
    """Registers and unregisters agents at run time."""

    def is_local(self, agent: str) -> bool:
        """Whether the id belongs to a local agent, which workers cannot register."""

    def is_registered(self, agent: str) -> bool:
        """Whether an agent with this id is served."""

    async def register(self, agent: RemoteAgent) -> None:
        """Serves an agent, or updates its specification."""

    async def unregister(self, agent: str) -> int:
        """Stops serving an agent and ends its waiting tasks as FAILED. Returns their number."""

    def lease_left(self) -> float:
        """Seconds for which this process may run turns; infinite if no other process uses the store."""

    def capacity_changed(self) -> None:
        """Called when a remote agent came or went, or has more capacity."""


@dataclass(frozen=True, slots=True)
class WorkerStatus:
    """The state of one worker for one agent."""

    name: str
    peer: str
    free_turns: int  # turns that it would accept now
    running_turns: int  # turns that it runs
    draining: bool


@dataclass(frozen=True, slots=True)
class AgentWorkers:
    """The workers of one agent that are connected to this process."""

    agent: str
    principal: str
    last_seen: int
    """When one of them was last connected, in milliseconds since the epoch."""
    workers: tuple[WorkerStatus, ...]


class WorkerHub(Protocol):
    """Accepts the connections of workers."""

    def connect(
        self, frames: AsyncIterator[wk.ConnectRequest], identity: Identity, peer: str
    ) -> AsyncGenerator[wk.ConnectResponse]:
        """Serves one worker until it disconnects; yields the frames to send. Raises A2AError for a rejected one."""

    def list_agents(self) -> Sequence[AgentWorkers]:
        """The agents of workers and who runs them, by id."""

    async def forget(self, agent: str) -> int:
        """Frees an agent's id and ends its waiting tasks as FAILED. Returns their number.

        Raises core.errors.InvalidParams for an agent with connected workers, or without any before.
        """


@dataclass(frozen=True, slots=True)
class RegisteredAgent:
    """An agent registered by workers of one principal. Times are the caller's, in milliseconds since the epoch."""

    agent: str
    principal: str
    registration: bytes
    """A serialized `dragoman.worker.v1.AgentRegistration`: of the worker that connected last."""
    registered_at: int
    last_seen: int  # when that worker connected


class WorkerRegistry(Protocol):
    """The stored agents of workers: their tasks exist while no worker is connected."""

    async def register(self, entry: RegisteredAgent) -> RegisteredAgent:
        """Stores an agent, or a later worker's registration of it. Returns the stored entry.

        Its `registered_at` is the first one. An agent of another principal stays unchanged.
        """

    async def list(self) -> list[RegisteredAgent]:
        """All agents, by id."""

    async def unregister(self, agent: str) -> bool:
        """Deletes an agent, which frees its id. False when there was none."""


@dataclass(frozen=True, slots=True)
class AddedUpstream:
    """An upstream agent that was added at run time."""

    agent: str
    spec: bytes
    """Its settings as JSON (`core.agent_sources.upstream_to_json`), encrypted if there are secret keys."""
    added_at: int  # the caller's time, in milliseconds since the epoch


class UpstreamStore(Protocol):
    """The stored upstream agents, in addition to those in the settings."""

    async def add(self, added: AddedUpstream) -> bool:
        """Stores an upstream. False when its id is taken; the existing one stays unchanged."""

    async def list(self) -> list[AddedUpstream]:
        """All of them, oldest first."""

    async def remove(self, agent: str) -> bool:
        """Deletes one. False when there was none."""


@dataclass(frozen=True, slots=True)
class UpstreamStatus:
    """The state of an upstream agent in this process. It holds no secrets."""

    agent: str
    url: str
    from_settings: bool
    """Whether it comes from the settings, so that it cannot be removed at run time."""
    has_credentials: bool  # whether calls to it carry credentials
    seconds_absent: float  # seconds since it became unavailable; 0 while it is available
    problem: str  # why it is unavailable, or the last error
    seconds_since_error: float  # seconds since the last error; 0 without one
    interfaces: Sequence[str]  # its usable interfaces, the current one first
    skipped_interfaces: Sequence[str]  # its other interfaces, with the reason
    running_turns: int  # turns that it runs for this process
    max_turns: int  # its maximum of concurrent turns


class UpstreamRegistry(Protocol):
    """The upstream agents of this process."""

    async def add(self, upstream: UpstreamSpec) -> UpstreamStatus:
        """Serves another upstream, also after a restart.

        Raises core.errors.InvalidParams for invalid settings, AgentIdTaken, Unavailable when it does not respond.
        """

    async def remove(self, agent: str) -> int:
        """As `WorkerHub.forget`. Raises InvalidParams when no such upstream can be removed."""

    def status(self) -> Sequence[UpstreamStatus]:
        """The state of each, by id."""


MAX_DETAILS_BYTES: Final = 192 * 1024  # the largest StepDetails of a step
_STEP_FIELDS: Final = ("name", "number", "position", "attempt", "error")
_STEP_TIMES: Final = ("started", "ended", "wake_at")


def encode_step(step: StepRecord) -> wk.Step:
    """A step as a message of the worker protocol."""
    fields = {name: getattr(step, name) for name in _STEP_FIELDS}
    encoded = wk.Step(state=wk.StepState.Name(step.state), **fields)
    for name in _STEP_TIMES:
        if milliseconds := getattr(step, name):
            getattr(encoded, name).FromMilliseconds(milliseconds)
    for content in ("result", "details"):
        if data := getattr(step, content):
            getattr(encoded, content).MergeFromString(data)
    return encoded


def decode_step(step: wk.Step) -> StepRecord:
    """The step of a message of the worker protocol, unchecked."""
    fields = {name: getattr(step, name) for name in _STEP_FIELDS}
    times = {name: getattr(step, name).ToMilliseconds() for name in _STEP_TIMES}
    contents = {name: getattr(step, name).SerializeToString() for name in ("result", "details") if step.HasField(name)}
    return StepRecord(state=StepState(step.state), size=len(step.result.raw), **contents, **fields, **times)


def failed_turn_end(turn_id: str, text: str) -> wk.TurnEnd:
    """A turn end with FAILED and this text, for a turn whose own end cannot be sent."""
    message = pb.Message(parts=[pb.Part(text=text)])
    return wk.TurnEnd(turn_id=turn_id, status=wk.StatusChange(state=pb.TaskState.Name(states.FAILED), message=message))


def oversized_event_text(size: int, max_bytes: int) -> str:
    """The error text for an event that is larger than the server accepts. Sizes are in bytes."""
    return (
        f"an event has {size} bytes; this server accepts at most {max_bytes}. "
        "Send it in several chunks, or start the server with a larger --message-bytes."
    )
