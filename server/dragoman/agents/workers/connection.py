"""One worker that is there: its credits, its turns, and what is on the way to it."""

from __future__ import annotations

import asyncio
import itertools
import logging
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from dragoman.agents.functions.spec import retry, spec_of
from dragoman.agents.values import NewId, struct_to_json
from dragoman.agents.workers.turn import RemoteTurn
from dragoman.core.cards.agent_spec import DEFAULT_MODES, AgentSpec
from dragoman.core.errors import A2AError, InvalidParams, PayloadTooLarge, Unavailable
from dragoman.core.names import check_agent_id
from dragoman.ports import TurnContext
from dragoman_pb.dragoman.worker.v1 import worker_pb2 as wk

log = logging.getLogger("dragoman.workers")

MAX_UNREAD_FRAMES: Final = 10_000
"""Frames on the way to a worker that reads nothing, after which it is let go."""


@dataclass(frozen=True, slots=True)
class HeartbeatTimings:
    """Seconds: between two signs of life, and of silence after which a worker is taken for dead."""

    heartbeat: float = 2.0
    lease: float = 10.0


class WorkerConnection:
    """One worker. `outgoing` holds what is to be sent to it; the end of it is an exception in `failed`, or None."""

    def __init__(
        self,
        name: str,
        peer: str,
        principal: str,
        agents: Mapping[str, AgentSpec],
        registrations: Iterable[wk.AgentRegistration],
        *,
        on_capacity_change: Callable[[], None],
        new_id: NewId,
        frame_bytes: int,
    ) -> None:
        """`agents`: what the registrations say, by id. `changed`: called when it takes more
        turns than before. `frame_bytes`: the largest frame that it may send."""
        self.name = name
        self.peer = peer
        self.principal = principal
        self.draining = False
        self.timings = HeartbeatTimings()
        """As `beat` keeps it."""
        self.outgoing: asyncio.Queue[wk.ConnectResponse | None] = asyncio.Queue()
        self.error: A2AError | None = None
        self._agents = agents
        self._on_capacity_change = on_capacity_change
        self._new_id = new_id
        self._frame_bytes = frame_bytes
        self._loop = asyncio.get_running_loop()
        self._last_received_at = self._loop.time()
        self._registrations = {one.id: one for one in registrations}
        self._credits = Counter({name: one.turns for name, one in self._registrations.items()})
        self._turns: dict[str, RemoteTurn] = {}
        self._turn_numbers = itertools.count(1)
        self._last_turn_number = 0
        self._closed = False

    def __str__(self) -> str:
        return f"{self.name or 'a worker'} ({self.peer})"

    @property
    def agents(self) -> Sequence[str]:
        """The ids of its agents."""
        return tuple(self._agents)

    @property
    def seconds_silent(self) -> float:
        """Seconds since it was heard."""
        return self._loop.time() - self._last_received_at

    def free_capacity(self, agent: str) -> int:
        """Turns of an agent that it would take now."""
        return 0 if self.draining or self._closed else self._credits[agent]

    def running_turns(self, agent: str) -> int:
        """Turns of an agent that it has."""
        return sum(turn.agent == agent for turn in self._turns.values())

    def is_running(self, agent: str, task_id: str) -> bool:
        """Whether it has a turn of this task."""
        return any(turn.agent == agent and turn.turn_context.task_id == task_id for turn in self._turns.values())

    # Turns ------------------------------------------------------------------------------------------------------

    def start_turn(self, agent: str, turn_context: TurnContext) -> RemoteTurn:
        """Begins a turn, for one credit."""
        assert self.free_capacity(agent) > 0, "a turn needs a credit"
        self._credits[agent] -= 1
        self._last_turn_number = next(self._turn_numbers)
        turn = RemoteTurn(str(self._last_turn_number), agent, turn_context, self.send, self._new_id)
        self._turns[turn.id] = turn
        turn.result.add_done_callback(lambda _: self._turns.pop(turn.id, None))
        said = self._registrations[agent]
        turn.start(said.history_length if said.HasField("history_length") else None, self._agents[agent].time_limit)
        return turn

    # Frames -----------------------------------------------------------------------------------------------------

    def send(self, frame: wk.ConnectResponse) -> None:
        """Puts a frame on the way."""
        if self._closed:
            return
        if self.outgoing.qsize() >= MAX_UNREAD_FRAMES:
            self.close(Unavailable(f"the worker reads nothing: {MAX_UNREAD_FRAMES} frames wait for it"))
            return
        self.outgoing.put_nowait(frame)

    def receive(self, frame: wk.ConnectRequest) -> None:
        """A frame of the worker. Raises InvalidParams, PayloadTooLarge for one that breaks a rule."""
        self._last_received_at = self._loop.time()
        if (size := frame.ByteSize()) > self._frame_bytes:
            raise PayloadTooLarge(f"a frame of {size} bytes; at most {self._frame_bytes} (Welcome.max_frame_bytes)")
        match frame.WhichOneof("frame"):
            case "heartbeat":
                pass
            case "credit":
                self._add_credit(frame.credit)
            case "drain":
                self._drain()
            case "events" | "message_wanted" | "cancel_refused" | "usage" | "turn_end" as kind:
                self._dispatch_to_turn(getattr(frame, kind).turn_id, kind, frame)
            case "hello":
                raise InvalidParams.field("hello", "was said already; it comes once, first")
            case _:
                raise InvalidParams.field("frame", "is none that this server knows")

    def _dispatch_to_turn(self, id: str, kind: str, frame: wk.ConnectRequest) -> None:
        turn = self._turns.get(id)
        if turn is not None:
            turn.receive(frame)
        elif not (id.isascii() and id.isdecimal() and 0 < int(id[:20]) <= self._last_turn_number):
            raise InvalidParams.field(f"{kind}.turn_id", f'"{id[:40]}" is no turn that was begun on this stream')
        # Else it was over here before the worker knew.

    def _add_credit(self, credit: wk.Credit) -> None:
        agent = credit.agent_id
        if agent not in self._agents:
            raise InvalidParams.field("credit.agent_id", f'"{agent[:80]}" is no agent of this worker')
        if not 1 <= credit.turns <= MAX_WORKER_CREDITS - self._credits[agent]:
            unused = self._credits[agent]
            rule = f"{credit.turns} is not at least 1, and with the {unused} unused ones at most {MAX_WORKER_CREDITS}"
            raise InvalidParams.field("credit.turns", rule)
        if not self.draining:
            self._credits[agent] += credit.turns
            self._on_capacity_change()

    def _drain(self) -> None:
        if not self.draining:
            self.draining = True
            self._credits.clear()
            log.info("a worker takes no more turns: %s", self, extra={"turns": len(self._turns)})

    # Life and death ---------------------------------------------------------------------------------------------

    async def run_heartbeat(self, timings: HeartbeatTimings) -> None:
        """Shows that the server lives, and looks whether the worker does. Runs until the connection is left."""
        self.timings = timings
        while not self._closed:
            await asyncio.sleep(timings.heartbeat)
            silent = self.seconds_silent
            if silent > timings.lease:
                self.close(Unavailable(f"nothing was heard of the worker for {silent:.1f} s"))
                return
            for turn in tuple(self._turns.values()):
                turn.notify_stopping()
            self.send(wk.ConnectResponse(heartbeat=wk.Heartbeat()))

    def close(self, error: A2AError | None = None) -> None:
        """Ends the connection: with an error, or because the worker went. Its turns are lost."""
        if self._closed:
            return
        self._closed = True
        self.error = error
        self.outgoing.put_nowait(None)
        for turn in tuple(self._turns.values()):
            fields = {"task": turn.turn_context.task_id, "agent": turn.agent, "peer": self.peer}
            log.warning("a turn was lost with its worker: %s", self, extra=fields)
            turn.on_worker_lost()


MAX_WORKER_NAME_CHARS: Final = 200
MAX_WORKER_AGENTS: Final = 100
MAX_WORKER_RETRIES: Final = 100
"""Characters of a worker's name, agents that it may have, and times that a turn is begun again."""

MAX_WORKER_CREDITS: Final = 10_000
"""Unused turns that a worker may have granted for one agent."""

_FIELD_OF_ARGUMENT: Final = {
    "input_modes": "card.default_input_modes",
    "output_modes": "card.default_output_modes",
    "extensions": "card.capabilities.extensions",
    "on_crash": "retries",
    **{name: f"card.{name}" for name in ("name", "description", "version", "skills", "provider", "icon_url")},
    "documentation_url": "card.documentation_url",
}
"""Arguments of `@agent`, and where a registration has them."""

_ARGUMENT_PATTERN: Final = re.compile(r"@agent: (?P<argument>[a-z_]+)")


def check_hello(hello: wk.Hello) -> list[AgentSpec]:
    """The agents of a worker. Raises InvalidParams, naming the field and the rule."""
    if len(hello.name) > MAX_WORKER_NAME_CHARS or not hello.name.isprintable():
        raise InvalidParams.field("hello.name", f"must be printable text of at most {MAX_WORKER_NAME_CHARS} characters")
    if not 1 <= len(hello.agents) <= MAX_WORKER_AGENTS:
        raise InvalidParams.field(
            "hello.agents", f"has {len(hello.agents)} agents; there must be 1 to {MAX_WORKER_AGENTS}"
        )
    specs = [
        read_registration(registration, f"hello.agents[{index}]") for index, registration in enumerate(hello.agents)
    ]
    for index, spec in enumerate(specs):
        if spec.id in [earlier.id for earlier in specs[:index]]:
            raise InvalidParams.field(f"hello.agents[{index}].id", f'"{spec.id}" is the id of an earlier one')
    return specs


def read_registration(registration: wk.AgentRegistration, field: str = "registration") -> AgentSpec:
    """The agent as the server knows it. `where` is the field that it came in. Raises InvalidParams."""
    try:
        check_agent_id(registration.id)
    except ValueError as error:
        raise InvalidParams.field(f"{field}.id", str(error).removesuffix("; set id=")) from error
    if registration.retries > MAX_WORKER_RETRIES:
        raise InvalidParams.field(f"{field}.retries", f"{registration.retries} is more than {MAX_WORKER_RETRIES}")
    if registration.turns > MAX_WORKER_CREDITS:
        raise InvalidParams.field(f"{field}.turns", f"{registration.turns} is more than {MAX_WORKER_CREDITS}")
    try:
        return _spec_of_registration(registration)
    except (TypeError, ValueError) as error:
        named = _ARGUMENT_PATTERN.match(str(error))
        rule = str(error)[named.end() :].lstrip(":") if named else str(error)
        argument = named["argument"] if named else "card"
        raise InvalidParams.field(f"{field}.{_FIELD_OF_ARGUMENT.get(argument, argument)}", rule.strip()) from error


def _spec_of_registration(registration: wk.AgentRegistration) -> AgentSpec:
    card = registration.card
    return spec_of(
        _placeholder_function,
        id=registration.id,
        name=card.name or None,
        description=card.description or card.name or None,
        version=card.version or "1.0.0",
        skills=_skills(card.skills),
        input_modes=card.default_input_modes or DEFAULT_MODES,
        output_modes=card.default_output_modes or DEFAULT_MODES,
        provider={"organization": card.provider.organization, "url": card.provider.url}
        if card.HasField("provider")
        else None,
        icon_url=card.icon_url,
        documentation_url=card.documentation_url,
        extensions=[
            {
                "uri": extension.uri,
                "description": extension.description,
                "required": extension.required,
                "params": struct_to_json(extension.params),
            }
            for extension in card.capabilities.extensions
        ],
        security_schemes={},
        security=(),
        state_transition_history=False,
        extended_skills=_skills(registration.extended_skills),
        default=False,
        streaming=card.capabilities.streaming if card.capabilities.HasField("streaming") else True,
        direct=registration.direct,
        cancelable=not registration.uncancelable,
        while_working="refuse" if registration.refuses_messages else "queue",
        on_crash=retry(registration.retries) if registration.retries else "fail",
        idle_limit=_seconds(registration, "idle_limit"),
        time_limit=_seconds(registration, "time_limit"),
        retention={name: f"{round(age.ToSeconds())}s" for name, age in registration.retention.items()} or None,
    )


def _placeholder_function(turn: object) -> None:
    """Stands for a function that is elsewhere: nothing is to be read from it."""


_placeholder_function.__doc__ = ""


def _skills(skills: Iterable[Any]) -> list[dict[str, Any]]:
    return [
        {
            "id": skill.id,
            "name": skill.name,
            "description": skill.description,
            "tags": tuple(skill.tags),
            "examples": tuple(skill.examples),
            "input_modes": tuple(skill.input_modes),
            "output_modes": tuple(skill.output_modes),
        }
        for skill in skills
    ]


def _seconds(registration: wk.AgentRegistration, field: str) -> float:
    duration = getattr(registration, field)
    return float(duration.seconds + duration.nanos / 1e9)
