"""One connected worker: its registration, credits, turns and outgoing frames."""

from __future__ import annotations

import asyncio
import itertools
import logging
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from google.protobuf.message import Message

from dragoman.agents.functions.spec import MAX_ATTEMPTS, AgentOptions, Retry, retry, spec_of
from dragoman.agents.values import NewId, struct_to_json
from dragoman.agents.workers.turn import RemoteTurn, WorkerLink
from dragoman.core.cards.agent_spec import DEFAULT_MODES, AgentSpec, card_skills
from dragoman.core.errors import A2AError, InvalidParams, PayloadTooLarge, Unavailable
from dragoman.core.names import check_agent_id
from dragoman.ports import TurnContext, WorkerStatus
from dragoman_pb.dragoman.worker.v1 import worker_pb2 as wk

log = logging.getLogger("dragoman.workers")

MAX_UNREAD_FRAMES: Final = 10_000  # unread frames after which a worker that reads nothing is disconnected
MAX_UNREAD_ANSWERS: Final = 16  # calls of its turns that are made, or whose answers it has not read; further ones wait


@dataclass(frozen=True, slots=True)
class HeartbeatTimings:
    """Seconds between two heartbeats, and of silence after which a worker counts as lost.

    `margin`: seconds that agents get to stop at the end of a worker's lease.
    """

    heartbeat: float = 2.0
    lease: float = 10.0
    margin: float = 2.0


class WorkerConnection:
    """One worker. `outgoing` is the send queue; None ends it, and `error` then says why (None: it disconnected)."""

    def __init__(
        self,
        hello: wk.Hello,
        peer: str,
        agents: Mapping[str, AgentSpec],
        *,
        on_capacity_change: Callable[[], None],
        new_id: NewId,
        frame_bytes: int,
        lease_left: Callable[[], float],
    ) -> None:
        """`agents`: the specs of the agents in `hello`, by id. `on_capacity_change`: called when it can take more turns
        than before. `frame_bytes`: the largest frame that it may send. `lease_left`: seconds for which this server may
        run turns."""
        self.name = hello.name
        self.peer = peer
        self.draining = False
        self.timings = HeartbeatTimings()  # the timings of `run_heartbeat`
        self.outgoing: asyncio.Queue[wk.ConnectResponse | None] = asyncio.Queue()
        self.error: A2AError | None = None
        self._link = WorkerLink(self.send, asyncio.Semaphore(MAX_UNREAD_ANSWERS))
        self._agents = agents
        self._on_capacity_change = on_capacity_change
        self._new_id = new_id
        self._frame_bytes = frame_bytes
        self._loop = asyncio.get_running_loop()
        self._last_received_at = self._last_sent_at = self._loop.time()
        self._registrations = {one.id: one for one in hello.agents}
        self._credits = Counter({name: one.turns for name, one in self._registrations.items()})
        self._turns: dict[str, RemoteTurn] = {}
        self._turn_numbers = itertools.count(1)
        self._last_turn_number = 0
        self._closed = False
        self._lease_left = lease_left
        self._lease_ends: float | None = None
        """When the worker's last lease is over, on the loop's clock. None for a worker that asks for none."""
        self._refused_turn = False  # since the last lease, a turn was returned that had not begun
        self.has_exited = False  # whether its process is known to have ended

    def __str__(self) -> str:
        return f"{self.name or 'a worker'} ({self.peer})"

    @property
    def seconds_silent(self) -> float:
        """Seconds since the last frame from the worker."""
        return self._loop.time() - self._last_received_at

    @property
    def remaining_lease(self) -> float:
        """Seconds for which the worker may still run turns after its connection is lost."""
        # An older worker stops when it has heard nothing for the lease.
        ends = self._last_sent_at + self.timings.lease if self._lease_ends is None else self._lease_ends
        return 0.0 if self.has_exited else ends + self.timings.margin - self._loop.time()

    @property
    def has_lease(self) -> bool:
        """Whether the worker may run turns, as far as known here. Without a lease it returns them at once."""
        if self._lease_ends is None:
            return True
        return not self._refused_turn and self._loop.time() < self._lease_ends

    def free_capacity(self, agent: str) -> int:
        """Further turns of an agent that the worker takes now."""
        return self._credits[agent] if self.has_lease and not (self.draining or self._closed) else 0

    def status(self, agent: str) -> WorkerStatus:
        return WorkerStatus(self.name, self.peer, self.free_capacity(agent), self.running_turns(agent), self.draining)

    def running_turns(self, agent: str) -> int:
        return sum(turn.agent == agent for turn in self._turns.values())

    def is_running(self, agent: str, task_id: str) -> bool:
        return any(turn.agent == agent and turn.turn_context.task_id == task_id for turn in self._turns.values())

    # Turns --------------------------------------------------------------------------------------------------------

    def start_turn(self, agent: str, turn_context: TurnContext) -> RemoteTurn:
        """Starts a turn; uses one credit."""
        assert self.free_capacity(agent) > 0, "a turn needs a credit"
        self._credits[agent] -= 1
        self._last_turn_number = next(self._turn_numbers)
        turn = RemoteTurn(str(self._last_turn_number), agent, turn_context, self._link, self._new_id)
        self._turns[turn.id] = turn
        turn.result.add_done_callback(lambda _: self._on_turn_over(turn))
        registration = self._registrations[agent]
        history_length = registration.history_length if registration.HasField("history_length") else None
        turn.start(history_length, self._agents[agent].time_limit)
        return turn

    def _on_turn_over(self, turn: RemoteTurn) -> None:
        self._turns.pop(turn.id, None)
        self._refused_turn = self._refused_turn or turn.was_refused

    # Frames -------------------------------------------------------------------------------------------------------

    def send(self, frame: wk.ConnectResponse) -> None:
        """Queues a frame for the worker. Disconnects a worker that has stopped reading."""
        if self._closed:
            return
        self._last_sent_at = self._loop.time()
        if self.outgoing.qsize() >= MAX_UNREAD_FRAMES:
            self.close(Unavailable(f"the worker has stopped reading: {MAX_UNREAD_FRAMES} frames are queued for it"))
            return
        self.outgoing.put_nowait(frame)

    async def next_frame(self) -> wk.ConnectResponse | None:
        """Takes the next frame for the worker, which has read the ones before; None ends the stream."""
        frame = await self.outgoing.get()
        if frame is not None and frame.HasField("task_call_result"):
            self._link.call_slots.release()
        return frame

    def receive(self, frame: wk.ConnectRequest) -> None:
        """Handles a frame from the worker. Raises InvalidParams or PayloadTooLarge for an invalid frame."""
        self._last_received_at = self._loop.time()
        if (size := frame.ByteSize()) > self._frame_bytes:
            maximum = f"the maximum is {self._frame_bytes} (Welcome.max_frame_bytes)"
            raise PayloadTooLarge(f"the frame has {size} bytes; {maximum}")
        match frame.WhichOneof("frame"):
            case "heartbeat":
                self._renew_lease(frame.heartbeat.number)
            case "credit":
                self._add_credit(frame.credit)
            case "drain":
                self._drain()
            case "events" | "message_request" | "cancel_refused" | "task_call" | "usage" | "turn_end" as kind:
                self._dispatch_to_turn(getattr(frame, kind).turn_id, kind, frame)
            case "hello":
                raise InvalidParams.field("hello", "was sent before; send it once, as the first frame")
            case _:
                raise InvalidParams.field("frame", "is not a frame that this server knows")

    def _renew_lease(self, number: int) -> None:
        """Answers a heartbeat with a lease, which is never longer than this server's own."""
        if not number:
            return
        seconds, had_lease = max(min(self.timings.lease - self.timings.margin, self._lease_left()), 0.0), self.has_lease
        self._lease_ends = max(self._lease_ends or 0.0, self._loop.time() + seconds)
        self._refused_turn = self._refused_turn and not seconds
        answer = wk.Heartbeat(number=number)
        answer.lease.FromNanoseconds(round(seconds * 1e9))
        self.send(wk.ConnectResponse(heartbeat=answer))
        if self.has_lease and not had_lease:  # after the answer: the worker has the lease before it gets a turn
            self._on_capacity_change()

    def _dispatch_to_turn(self, id: str, kind: str, frame: wk.ConnectRequest) -> None:
        turn = self._turns.get(id)
        if turn is not None:
            turn.receive(frame)
        elif not (id.isascii() and id.isdecimal() and 0 < int(id[:20]) <= self._last_turn_number):
            raise InvalidParams.field(f"{kind}.turn_id", f'"{id[:40]}" is not a turn that was started on this stream')
        # Otherwise the turn ended here before the worker knew.

    def _add_credit(self, credit: wk.Credit) -> None:
        agent = credit.agent_id
        if agent not in self._agents:
            raise InvalidParams.field("credit.agent_id", f'"{agent[:80]}" is not an agent of this worker')
        if not 1 <= credit.turns <= MAX_WORKER_CREDITS - self._credits[agent]:
            unused = self._credits[agent]
            rule = f"{credit.turns} must be at least 1 and, with the {unused} unused ones, at most {MAX_WORKER_CREDITS}"
            raise InvalidParams.field("credit.turns", rule)
        if not self.draining:
            self._credits[agent] += credit.turns
            self._on_capacity_change()

    def _drain(self) -> None:
        if not self.draining:
            self.draining = True
            self._credits.clear()
            log.info("worker drains and takes no more turns: %s", self, extra={"turns": len(self._turns)})

    # Lifetime -----------------------------------------------------------------------------------------------------

    async def run_heartbeat(self, timings: HeartbeatTimings) -> None:
        """Sends heartbeats and disconnects a silent worker. Runs until the connection is closed."""
        self.timings = timings
        while not self._closed:
            await asyncio.sleep(timings.heartbeat)
            silence = self.seconds_silent
            if silence > timings.lease:
                self.close(Unavailable(f"the worker has sent nothing for {silence:.1f} s"))
                return
            for turn in tuple(self._turns.values()):
                turn.notify_stopping()
            self.send(wk.ConnectResponse(heartbeat=wk.Heartbeat()))

    def close(self, error: A2AError | None = None) -> None:
        """Ends the connection; its turns are lost. `error`: None if the worker disconnected."""
        if self._closed:
            return
        self._closed = True
        self.error = error
        self.outgoing.put_nowait(None)
        for turn in tuple(self._turns.values()):
            fields = {"task": turn.turn_context.task_id, "agent": turn.agent, "peer": self.peer}
            log.warning("turn lost with its worker: %s", self, extra=fields)
            turn.on_worker_lost()


MAX_WORKER_NAME_CHARS: Final = 200
MAX_WORKER_AGENTS: Final = 100
MAX_WORKER_RETRIES: Final = 100  # repetitions of a turn
MAX_WORKER_CREDITS: Final = 10_000  # unused credits that a worker may grant for one agent

_FIELD_OF_ARGUMENT: Final = {
    "input_modes": "card.default_input_modes",
    "output_modes": "card.default_output_modes",
    "extensions": "card.capabilities.extensions",
    "on_crash": "crash_retries",
    **{name: f"card.{name}" for name in ("name", "description", "version", "skills", "provider", "icon_url")},
    "documentation_url": "card.documentation_url",
}
"""Arguments of `@agent`, and their fields in a registration."""

_ARGUMENT_PATTERN: Final = re.compile(r"@agent: (?P<argument>[a-z_]+)")


def encode_welcome(principal: str, max_frame_bytes: int, timings: HeartbeatTimings) -> wk.Welcome:
    """The server's first frame: who the worker is, the largest frame it may send, and the heartbeat."""
    welcome = wk.Welcome(principal=principal, max_frame_bytes=max_frame_bytes)
    welcome.heartbeat.FromNanoseconds(round(timings.heartbeat * 1e9))
    welcome.lease.FromNanoseconds(round(timings.lease * 1e9))
    return welcome


def check_hello(hello: wk.Hello) -> list[AgentSpec]:
    """The specs of a worker's agents. Raises InvalidParams that names the field and the rule."""
    if len(hello.name) > MAX_WORKER_NAME_CHARS or not hello.name.isprintable():
        raise InvalidParams.field("hello.name", f"must be printable text of at most {MAX_WORKER_NAME_CHARS} characters")
    if not 1 <= len(hello.agents) <= MAX_WORKER_AGENTS:
        raise InvalidParams.field("hello.agents", f"has {len(hello.agents)} agents; send 1 to {MAX_WORKER_AGENTS}")
    specs = [read_registration(one, f"hello.agents[{index}]") for index, one in enumerate(hello.agents)]
    for index, spec in enumerate(specs):
        if spec.id in [earlier.id for earlier in specs[:index]]:
            raise InvalidParams.field(f"hello.agents[{index}].id", f'"{spec.id}" is the id of an earlier agent')
    return specs


def read_registration(registration: wk.AgentRegistration, field: str = "registration") -> AgentSpec:
    """Converts a registration to a spec. `field`: its path for error texts. Raises InvalidParams."""
    try:
        check_agent_id(registration.id)
    except ValueError as error:
        raise InvalidParams.field(f"{field}.id", str(error).removesuffix("; set id=")) from error
    limits = {"crash_retries": MAX_WORKER_RETRIES, "max_attempts": MAX_ATTEMPTS, "turns": MAX_WORKER_CREDITS}
    for name, limit in limits.items():
        if (value := getattr(registration, name)) > limit:
            raise InvalidParams.field(f"{field}.{name}", f"{value} is more than {limit}")
    try:
        return _spec_of_registration(registration)
    except (TypeError, ValueError) as error:
        match = _ARGUMENT_PATTERN.match(str(error))
        rule = str(error)[match.end() :].lstrip(":") if match else str(error)
        argument = match["argument"] if match else "card"
        raise InvalidParams.field(f"{field}.{_FIELD_OF_ARGUMENT.get(argument, argument)}", rule.strip()) from error


def _spec_of_registration(registration: wk.AgentRegistration) -> AgentSpec:
    card = registration.card
    options = AgentOptions(
        id=registration.id, name=card.name or None, description=card.description or card.name or None,
        version=card.version or "1.0.0", skills=card_skills(card.skills),
        input_modes=card.default_input_modes or DEFAULT_MODES, output_modes=card.default_output_modes or DEFAULT_MODES,
        provider=_fields(card.provider, "organization", "url") if card.HasField("provider") else None,
        icon_url=card.icon_url, documentation_url=card.documentation_url,
        extensions=[
            {**_fields(one, "uri", "description", "required"), "params": struct_to_json(one.params)}
            for one in card.capabilities.extensions
        ],
        extended_skills=card_skills(registration.extended_skills),
        streaming=card.capabilities.streaming if card.capabilities.HasField("streaming") else True,
        retry=Retry(attempts=registration.max_attempts or 1), direct=registration.direct,
        cancelable=not registration.uncancelable, while_working="refuse" if registration.refuses_messages else "queue",
        on_crash=retry(registration.crash_retries) if registration.crash_retries else "fail",
        idle_limit=registration.idle_limit.ToNanoseconds() / 1e9,
        time_limit=registration.time_limit.ToNanoseconds() / 1e9,
        retention={name: f"{round(age.ToSeconds())}s" for name, age in registration.retention.items()} or None,
    )  # fmt: skip
    return spec_of(lambda _: None, options)  # stands for the function, whose name and docstring are elsewhere


def _fields(message: Message, *names: str) -> dict[str, Any]:
    return {name: getattr(message, name) for name in names}
