"""One worker that is there: its credits, its turns, and what is on the way to it."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from dragoman.agents.dialled.registration import CREDITS
from dragoman.agents.dialled.turn import RemoteTurn
from dragoman.agents.values import NewId
from dragoman.core.card import AgentSpec
from dragoman.core.errors import A2AError, InvalidParams, PayloadTooLarge, Unavailable
from dragoman.ports import Desk
from dragoman_pb.dragoman.worker.v1 import worker_pb2 as wk

log = logging.getLogger("dragoman.workers")

UNREAD: Final = 10_000
"""Frames on the way to a worker that reads nothing, after which it is let go."""


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds: between two signs of life, and of silence after which a worker is taken for dead."""

    heartbeat: float = 2.0
    lease: float = 10.0


class Connection:
    """One worker. `outgoing` holds what is to be sent to it; the end of it is an exception in `failed`, or None."""

    def __init__(
        self,
        name: str,
        peer: str,
        principal: str,
        agents: Mapping[str, AgentSpec],
        registrations: Iterable[wk.AgentRegistration],
        *,
        changed: Callable[[], None],
        new_id: NewId,
        frame_bytes: int,
    ) -> None:
        """`agents`: what the registrations say, by id. `changed`: called when it takes more
        turns than before. `frame_bytes`: the largest frame that it may send."""
        self.name = name
        self.peer = peer
        self.principal = principal
        self.draining = False
        self.pace = Pace()
        """As `beat` keeps it."""
        self.outgoing: asyncio.Queue[wk.ConnectResponse | None] = asyncio.Queue()
        self.failed: A2AError | None = None
        self._agents = agents
        self._changed = changed
        self._new_id = new_id
        self._frame_bytes = frame_bytes
        self._loop = asyncio.get_running_loop()
        self._heard = self._loop.time()
        self._registrations = {one.id: one for one in registrations}
        self._credits = Counter({name: one.turns for name, one in self._registrations.items()})
        self._turns: dict[str, RemoteTurn] = {}
        self._count = itertools.count(1)
        self._last = 0
        self._gone = False

    def __str__(self) -> str:
        return f"{self.name or 'a worker'} ({self.peer})"

    @property
    def agents(self) -> Sequence[str]:
        """The ids of its agents."""
        return tuple(self._agents)

    @property
    def silence(self) -> float:
        """Seconds since it was heard."""
        return self._loop.time() - self._heard

    def free(self, agent: str) -> int:
        """Turns of an agent that it would take now."""
        return 0 if self.draining or self._gone else self._credits[agent]

    def running(self, agent: str) -> int:
        """Turns of an agent that it has."""
        return sum(turn.agent == agent for turn in self._turns.values())

    def runs(self, agent: str, task_id: str) -> bool:
        """Whether it has a turn of this task."""
        return any(turn.agent == agent and turn.desk.task_id == task_id for turn in self._turns.values())

    # Turns ------------------------------------------------------------------------------------------------------

    def begin(self, agent: str, desk: Desk) -> RemoteTurn:
        """Begins a turn, for one credit."""
        assert self.free(agent) > 0, "a turn needs a credit"
        self._credits[agent] -= 1
        self._last = next(self._count)
        turn = RemoteTurn(str(self._last), agent, desk, self.send, self._new_id)
        self._turns[turn.id] = turn
        turn.result.add_done_callback(lambda _: self._turns.pop(turn.id, None))
        said = self._registrations[agent]
        turn.start(said.history_length if said.HasField("history_length") else None, self._agents[agent].time_limit)
        return turn

    # Frames -----------------------------------------------------------------------------------------------------

    def send(self, frame: wk.ConnectResponse) -> None:
        """Puts a frame on the way."""
        if self._gone:
            return
        if self.outgoing.qsize() >= UNREAD:
            self.leave(Unavailable(f"the worker reads nothing: {UNREAD} frames wait for it"))
            return
        self.outgoing.put_nowait(frame)

    def take(self, frame: wk.ConnectRequest) -> None:
        """A frame of the worker. Raises InvalidParams, PayloadTooLarge for one that breaks a rule."""
        self._heard = self._loop.time()
        if (size := frame.ByteSize()) > self._frame_bytes:
            raise PayloadTooLarge(f"a frame of {size} bytes; at most {self._frame_bytes} (Welcome.max_frame_bytes)")
        match frame.WhichOneof("frame"):
            case "heartbeat":
                pass
            case "credit":
                self._grant(frame.credit)
            case "drain":
                self._drain()
            case "events" | "message_wanted" | "cancel_refused" | "usage" | "turn_end" as kind:
                self._of_turn(getattr(frame, kind).turn_id, kind, frame)
            case "hello":
                raise InvalidParams.field("hello", "was said already; it comes once, first")
            case _:
                raise InvalidParams.field("frame", "is none that this server knows")

    def _of_turn(self, id: str, kind: str, frame: wk.ConnectRequest) -> None:
        turn = self._turns.get(id)
        if turn is not None:
            turn.take(frame)
        elif not (id.isascii() and id.isdecimal() and 0 < int(id[:20]) <= self._last):
            raise InvalidParams.field(f"{kind}.turn_id", f'"{id[:40]}" is no turn that was begun on this stream')
        # Else it was over here before the worker knew.

    def _grant(self, credit: wk.Credit) -> None:
        agent = credit.agent_id
        if agent not in self._agents:
            raise InvalidParams.field("credit.agent_id", f'"{agent[:80]}" is no agent of this worker')
        if not 1 <= credit.turns <= CREDITS - self._credits[agent]:
            unused = self._credits[agent]
            rule = f"{credit.turns} is not at least 1, and with the {unused} unused ones at most {CREDITS}"
            raise InvalidParams.field("credit.turns", rule)
        if not self.draining:
            self._credits[agent] += credit.turns
            self._changed()

    def _drain(self) -> None:
        if not self.draining:
            self.draining = True
            self._credits.clear()
            log.info("a worker takes no more turns: %s", self, extra={"turns": len(self._turns)})

    # Life and death ---------------------------------------------------------------------------------------------

    async def beat(self, pace: Pace) -> None:
        """Shows that the server lives, and looks whether the worker does. Runs until the connection is left."""
        self.pace = pace
        while not self._gone:
            await asyncio.sleep(pace.heartbeat)
            silent = self.silence
            if silent > pace.lease:
                self.leave(Unavailable(f"nothing was heard of the worker for {silent:.1f} s"))
                return
            for turn in tuple(self._turns.values()):
                turn.look()
            self.send(wk.ConnectResponse(heartbeat=wk.Heartbeat()))

    def leave(self, error: A2AError | None = None) -> None:
        """Ends the connection: with an error, or because the worker went. Its turns are lost."""
        if self._gone:
            return
        self._gone = True
        self.failed = error
        self.outgoing.put_nowait(None)
        for turn in tuple(self._turns.values()):
            fields = {"task": turn.desk.task_id, "agent": turn.agent, "peer": self.peer}
            log.warning("a turn was lost with its worker: %s", self, extra=fields)
            turn.lose()
