"""Another server of a simulation, which the servers call: its machine, its work, and an unreliable network to it.

A call is a coroutine on the other machine. Requests and answers are lost, come late, wait for the end of a partition as
TCP lets them, and end with the process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from tests.simulation.loop import HostLoop, World
from tests.simulation.plan import Profile

from dragoman.core.task import states

T = TypeVar("T")

SILENCE: Final = 8.0
"""Seconds without a sign of the other machine after which a call fails."""

LATEST_ANSWER: Final = 4.0


class CallLost(Exception):
    """No answer. `may_have_arrived`: whether the other server may have got the request."""

    def __init__(self, *, may_have_arrived: bool) -> None:
        super().__init__("the connection was lost" if may_have_arrived else "the connection was refused")
        self.may_have_arrived = may_have_arrived


@dataclass(slots=True)
class Work:
    """What another server does for one message or call, by its own account. Times in seconds of the history."""

    id: str
    peer: str
    tool: str
    """The tool of an MCP server; empty for an A2A task."""
    text: str
    """The command of the first message."""
    context: str = ""
    messages: list[Any] = field(default_factory=list)
    """The messages of an A2A task."""
    state: int = states.WORKING
    began: float = 0.0
    ended: float | None = None
    """When it stopped: it completed, failed, was canceled, or was lost with its process."""
    cancels: list[float] = field(default_factory=list)
    """When requests to cancel it arrived."""
    is_lost: bool = False
    """Whether its server has forgotten it."""
    output: str = ""
    text_sent: str = ""
    """The text of its status message."""
    running: asyncio.Task[None] | None = None
    wake: asyncio.Event | None = None
    """Set when it is canceled, or has another message."""
    observers: list[Callable[[Any], None]] = field(default_factory=list)
    """Take its events."""

    @property
    def command(self) -> str:
        """The first word of what it does."""
        return self.text.partition(" ")[0]

    @property
    def is_active(self) -> bool:
        """Whether it does something, or waits for a message."""
        return self.ended is None


class Peer:
    """One other server, over its starts. `forgets`: it keeps nothing when its process ends."""

    def __init__(self, world: World, name: str, profile: Callable[[], Profile], *, forgets: bool) -> None:
        self.world = world
        self.name = name
        self.forgets = forgets
        self.starts = 0
        self.works: list[Work] = []
        """Everything that it has begun, also what it has forgotten."""
        self.is_cut = False
        """Whether no packet reaches it, or leaves it."""
        self.is_refused = False
        """Whether its address refuses connections, and has ended the open ones."""
        self._profile = profile
        self._held: list[Callable[[], None]] = []
        """What waits for the end of a partition."""
        self._open: dict[Callable[[], None], None] = {}
        """Called when its process ends, for the calls and streams that are open."""
        self.host: HostLoop = world.host(name)
        self.host.kill()

    @property
    def responds(self) -> bool:
        """Whether its machine sends packets that arrive."""
        return not self.is_cut and self.host.held is None

    @property
    def known(self) -> Sequence[Work]:
        """The work that it remembers."""
        return [work for work in self.works if not work.is_lost]

    def start(self) -> None:
        """Starts its process, which goes on with the work that it remembers."""
        self.starts += 1
        self.host = self.world.host(f"{self.name}.{self.starts}")
        for work in self.known:
            if work.ended is None:
                self._run(work)

    def kill(self) -> None:
        """Ends its process at once."""
        self.host.kill()
        for work in self.known:
            if self.forgets and work.ended is None:
                work.is_lost, work.ended = True, self.world.now
            work.observers.clear()
        if self.forgets:
            for work in self.known:
                work.is_lost = True
        self._end_calls()

    def _end_calls(self) -> None:
        lost, self._open = self._open, {}
        for on_lost in lost:
            self.world.after(self.delay(), on_lost)

    def refuse(self) -> None:
        """Ends all connections, and refuses others, until `heal`. Its work goes on."""
        self.is_refused = True
        self._end_calls()

    def recover(self) -> None:
        """Ends every fault."""
        self.heal()
        if self.host.killed:
            self.start()
        else:
            self.host.resume()

    def heal(self) -> None:
        """Ends a partition: what was on the way arrives."""
        self.is_cut = self.is_refused = False
        held, self._held = self._held, []
        for number, deliver in enumerate(held):  # in order, and before what is sent from now on
            self.world.after(0.0001 + number * 1e-9, deliver)

    # Network ----------------------------------------------------------------------------------------------------------

    def delay(self) -> float:
        """Seconds that a packet is on the way."""
        return self.world.random.uniform(0.0002, 0.003)

    def send(self, deliver: Callable[[], None], seconds: float = 0.0) -> None:
        """Delivers a packet, at the end of the partition if there is one."""
        if self.is_cut:
            self._held.append(deliver)
        else:
            self.world.after(seconds or self.delay(), deliver)

    def on_end(self, lose: Callable[[], None]) -> Callable[[], None]:
        """Calls `lose` when its process ends. Returns what withdraws that."""
        self._open[lose] = None

        def withdraw() -> None:
            self._open.pop(lose, None)

        return withdraw

    async def call(self, client: HostLoop, handle: Callable[[], Awaitable[T]]) -> T:
        """Calls the other server from a machine. Raises what the handler raises, and CallLost."""
        answer: asyncio.Future[T] = client.create_future()
        chance, profile = self.world.chance, self._profile()
        fate = ""
        if profile.lost_calls and chance() < profile.lost_calls:
            fate = "refused" if chance() < 0.3 else "request" if chance() < 0.4 else "answer"
        late = LATEST_ANSWER * chance() if profile.late_answers and chance() < profile.late_answers else 0.0
        withdraw: list[Callable[[], None]] = []

        def settle(result: T | None, error: BaseException | None) -> None:
            if answer.done() or client.killed:
                return
            if error is not None:
                answer.set_exception(error)
            else:
                answer.set_result(result)  # type: ignore[arg-type]  # the result of the handler

        def lose(*, may_have_arrived: bool = True) -> None:
            settle(None, CallLost(may_have_arrived=may_have_arrived))

        async def serve() -> None:
            result, failure = None, None
            try:
                result = await handle()
            except Exception as error:
                failure = error
            if fate == "answer":
                self.world.after(chance(), lose)
            else:
                self.send(lambda: settle(result, failure), late)

        def arrive() -> None:
            if answer.done() or client.killed:
                return
            if fate == "refused" or self.is_refused or self.host.killed:
                self.send(lambda: lose(may_have_arrived=False))
            elif fate == "request":
                self.world.after(chance(), lose)
            else:
                withdraw.append(self.on_end(lose))
                self.host.create_task(serve())

        self.send(arrive)
        try:
            while not answer.done():
                await asyncio.wait([answer], timeout=SILENCE)
                if not answer.done() and not self.responds:
                    raise CallLost(may_have_arrived=True)
            return answer.result()
        finally:
            for one in withdraw:
                one()
            if not answer.done():
                answer.cancel()
            elif not answer.cancelled():
                answer.exception()  # a canceled caller does not read it

    # Work -------------------------------------------------------------------------------------------------------------

    def find(self, id: str) -> Work | None:
        """The work with this id, as far as it is remembered."""
        return next((work for work in self.works if work.id == id and not work.is_lost), None)

    def begin(self, text: str, *, tool: str = "", context: str = "") -> Work:
        """Begins to work for a message or a call."""
        number = len(self.works) + 1
        work = Work(f"{self.name}-{number}", self.name, tool, text, context, began=self.world.now)
        self.works.append(work)
        self._run(work)
        return work

    def cancel(self, work: Work) -> bool:
        """Takes a request to cancel. False if it is refused."""
        work.cancels.append(self.world.now)
        if work.command == "stubborn" or not work.is_active:
            return False
        if work.state == states.INPUT_REQUIRED:
            self.end(work, states.CANCELED)
        elif work.wake is not None:
            work.wake.set()
        return True

    def end(self, work: Work, state: int, text: str = "") -> None:
        """Ends the work in a state, and tells its observers."""
        if work.is_active:
            work.state, work.text_sent, work.ended = state, text, self.world.now
            self.tell(work, None)

    def tell(self, work: Work, event: Any) -> None:
        """Tells the observers of an event; None: of the state."""
        for observe in list(work.observers):
            observe(event)

    def _run(self, work: Work) -> None:
        work.wake = asyncio.Event()
        if work.cancels and work.command != "stubborn":
            work.wake.set()
        work.running = self.host.create_task(self._work(work))

    async def _work(self, work: Work) -> None:
        """Does what the command says, until it is done or canceled. Goes on where an earlier process stopped."""
        assert work.wake is not None
        command, *rest = work.text.partition("#")[0].split()
        match command, *rest:
            case "sleep" | "stubborn", milliseconds:
                await self._pause(work, work.began + int(milliseconds) / 1000 - self.world.now)
            case "reluctant", milliseconds:
                await self._pause(work, work.began + int(milliseconds) / 1000 - self.world.now)
                if work.cancels:
                    await asyncio.sleep(0.5)
            case "stream" | "append", count, milliseconds:
                for number in range(len(work.output.split()), int(count)):
                    if work.cancels:
                        break
                    work.output += f"{number} "
                    self.tell(work, f"{number} ")
                    await self._pause(work, int(milliseconds) / 1000)
            case ("ask",) if len(work.messages) < 2:
                work.state = states.INPUT_REQUIRED
                work.text_sent = "and then?"
                self.tell(work, None)
                return
            case ("fail",):
                self.end(work, states.FAILED, "failing, as asked")
        is_canceled = bool(work.cancels) and command != "stubborn"
        self.end(work, states.CANCELED if is_canceled else states.COMPLETED, "" if is_canceled else work.text)

    async def _pause(self, work: Work, seconds: float) -> None:
        """Waits for so long, or for a cancel."""
        assert work.wake is not None
        if work.command == "stubborn":
            await asyncio.sleep(max(0.0, seconds))
            return
        try:
            async with asyncio.timeout(max(0.0, seconds)):
                await work.wake.wait()
        except TimeoutError:
            return

    def resume(self, work: Work) -> None:
        """Goes on with work that has got the message it waited for."""
        work.state, work.text_sent = states.WORKING, ""
        self._run(work)
