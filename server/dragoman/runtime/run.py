"""One run of one task: an agent at its desk, until the turn has ended on disk.

One asyncio task per run. The agent's verbs go through an open batch; what ends the turn (last artifacts, status,
release of the claim) is one append. Every write carries the claim, so a run that lost its task, to a cancel or
to another session, is refused by the store and stops.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Final

from dragoman.core import states
from dragoman.core.log import (
    CHANGED,
    Append,
    Appended,
    ArtifactChange,
    ContextState,
    Event,
    Head,
    Refused,
    Runner,
    StatusChange,
)
from dragoman.core.names import Owner, id_of
from dragoman.core.usage import NONE, Budget, Usage, Used
from dragoman.ports import NOTHING, Agent, Ending, Notes, ProcessLost, Store, StoredMessage, TurnOver
from dragoman.runtime.batch import Batch, Change
from dragoman.runtime.coalesce import OFF, Coalesce
from dragoman.runtime.deadlines import Deadlines
from dragoman.runtime.log import Log
from dragoman.runtime.notices import BROKEN_OFF, DRAINED, LOST, OUTDATED, OVERTAKEN, PROCESS_LOST, again, notice
from dragoman.runtime.recalling import recall
from dragoman.runtime.referring import Referring
from dragoman.runtime.shown import Shown
from dragoman.runtime.spending import Spending, on_loop
from dragoman.runtime.strict import Strict
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

log = logging.getLogger("dragoman.runtime")

WORKING_AFTER: Final = 0.05
"""Seconds after which a silent run is shown as WORKING; one that ends sooner goes straight to its end."""

HELD_FOR: Final = 2.0
"""Seconds that a `direct` agent may think before its task is shown anyway."""

FENCED_AFTER: Final = 10.0
"""Seconds a cancelled agent has to stop before its task ends without it."""

NO_MESSAGE: Final = pb.Message()
"""In the place of a message that has not been read yet."""


class Run:
    """Drives one claimed task. Implements `dragoman.ports.Desk` for its agent."""

    # What most runs never change stays here: an object of 30 attributes or more has a dictionary of its own kind,
    # and is made in twice the time.
    message: pb.Message = NO_MESSAGE
    envelope: pb.SendMessageRequest = pb.SendMessageRequest()
    asked: pb.Message | None = None
    memory = stored_envelope = b""
    previous_artifacts: Sequence[pb.Artifact] = ()
    references: Sequence[pb.Task] = ()
    waiting = 0
    cancelled = stopping = False
    refusal = ""
    """Why the agent does not let itself be canceled; empty while it does."""
    _context = ContextState()
    _fresh_context = False
    _task: asyncio.Task[None] | None = None
    _stepped = False  # its asyncio task has taken its first step: cancelled before that, it never would
    _ending = False
    _reason = ""
    _fencing: asyncio.Task[None] | None = None
    _asked = False  # a client asked for its end: in the store stands up to which message
    _drained = False
    _lost: ProcessLost | None = None
    budget = Budget()
    spending: Spending | None = None

    def __init__(
        self,
        log: Log,
        store: Store,
        agent: Agent,
        head: Head,
        referring: Referring,
        *,
        first: Sequence[Event] = (),
        strict: bool = False,
        coalesce: Coalesce = OFF,
    ) -> None:
        """`first`: the events of the append that made the task and claimed it, for a task that is new."""
        assert head.running, "a run begins with a claim"
        self.head = head
        loop = asyncio.get_running_loop()
        self.first: asyncio.Future[pb.Message | None] = loop.create_future()
        """Done when the task is seen (None), or with the Message that came instead of it."""
        self.over: asyncio.Future[bool] = loop.create_future()
        """Done when the turn has ended on disk: whether by this run, so that `head` and `shown` are the task."""
        self.shown = Shown(first)
        self._log = log
        self._store = store
        self._agent = agent
        self._referring = referring
        self._strict = Strict(head.state) if strict else None
        self._guard = Runner(head.session, head.token)
        self._batch = Batch(self._send, coalesce)
        self._mail = asyncio.Event()
        self._history: list[pb.Message] = []
        self._touched: set[str] = set()
        self._taken = head.taken
        self.deadlines = Deadlines(agent.spec, lambda: self.cancel("deadline"))
        self.principal = head.principal
        self.attempt = head.attempt
        if head.visible:
            self.first.set_result(None)

    # What the dispatcher asks -----------------------------------------------------------------------------------

    def begin(
        self, message: StoredMessage, spawn: Callable[[Run], asyncio.Task[None]], *, fresh_context: bool = False
    ) -> None:
        """Starts on the first message of a new task, which nothing need be read for; nor for a new conversation."""
        self._take(message)
        self._fresh_context = fresh_context
        self._task = spawn(self)

    def resume(self, spawn: Callable[[Run], asyncio.Task[None]]) -> None:
        """Starts on a task that has a past; the run reads it first."""
        self._task = spawn(self)

    async def drive(self) -> None:
        """Turn after turn, until the task ends, waits for its caller, or is lost."""
        self.deadlines.after(WORKING_AFTER if self.head.visible else HELD_FOR, self._show_working)
        self.deadlines.start()
        self._stepped, early = True, self.cancelled
        try:
            while await self._end(Ending(self._last_words()) if early else await self._turn()):
                early = self._next()
        except Refused as refused:
            log.info("run stopped: %s", refused.reason, extra=self._about())
        except Exception:
            log.exception("a run could not be ended in the store", extra=self._about())
            self._ending = True
            await self._insist(self._change([notice(BROKEN_OFF)], NOTHING, release=True))
        finally:
            self.deadlines.close()
            self._batch.close()
            self._task = None  # nothing of a run that is over leads back to it: it need not wait to be collected
            if not self.first.done():
                self.first.set_result(None)
            if not self.over.done():
                self.over.set_result(False)

    def cancel(self, reason: str = "client") -> None:
        """Asks the agent to stop, and ends the task without it when it does not."""
        if self.refusal and reason == "client":
            return
        self._asked = self._asked or reason == "client"
        if self.cancelled or self._ending:
            return
        self.cancelled, self._reason = True, reason
        self.deadlines.after(FENCED_AFTER, self._fence)
        self._interrupt()

    def drain(self) -> None:
        """The server's patience is over: ends the task as FAILED, or leaves its turn to be begun again elsewhere."""
        self._drained = True
        if not self._ending and self._task is not None and not self._task.done():
            self.cancelled, self._reason = True, self._reason or "drain"
            self._interrupt()

    def _interrupt(self) -> None:
        if self._task is not None and self._stepped:
            self._task.cancel()

    def stop_soon(self) -> None:
        """The server's patience is almost over."""
        self.stopping = True

    def deliver_mail(self) -> None:
        """A message arrived for this task."""
        self._mail.set()

    # What the agent asks (dragoman.ports.Desk) ------------------------------------------------------------------

    @property
    def task_id(self) -> str:
        return self.head.id

    @property
    def context_id(self) -> str:
        return self.head.context

    @property
    def owner(self) -> Owner:
        return self.head.ref.owner

    @property
    def history(self) -> Sequence[pb.Message]:
        return self._history

    @property
    def context_memory(self) -> bytes:
        return self._context.data

    @property
    def cancel_reason(self) -> str:
        return self._reason

    def refuse_cancel(self, why: str) -> None:
        self.refusal = why

    def put(self, change: Change, *, notes: Notes = NOTHING) -> Awaitable[None]:
        self.deadlines.heard()
        if self._strict is not None:
            self._strict.step(change)
        if isinstance(change, ArtifactChange):
            change = self._anew(change)
        return self._batch.put(change, notes)

    def _anew(self, change: ArtifactChange) -> ArtifactChange:
        """The first write of a second attempt to an artifact replaces what the dead one left of it."""
        first = change.artifact_id not in self._touched
        self._touched.add(change.artifact_id)
        return replace(change, append=False) if self.attempt > 1 and first and change.append else change

    async def flush(self) -> None:
        await self._batch.flush()

    def spend(self, used: Used) -> None:
        on_loop(self.over.get_loop(), self._spend, used)

    def _spend(self, used: Used) -> None:
        self.spending = self.spending or self._spending()
        self.spending.add(used)

    def _spending(self, before: Usage = NONE) -> Spending:
        return Spending(self._log, self.head.ref, self._guard, self.budget, self.deadlines.exceed, before)

    async def incoming(self) -> AsyncIterator[tuple[pb.Message, pb.SendMessageRequest]]:
        while True:
            self._mail.clear()
            for stored in await self._log.read(self._unread, self.head.ref, self._guard, self._about):
                self._taken = stored.number
                message = pb.Message.FromString(stored.message)
                self._history.append(message)
                yield message, pb.SendMessageRequest.FromString(stored.envelope)
            await self._mail.wait()

    # The turn ---------------------------------------------------------------------------------------------------

    async def _turn(self) -> Ending:
        """Runs the agent. A cancel that it obeys becomes CANCELED; one that it ignores is overtaken by its result."""
        try:
            if not self._fresh_context or self.message.reference_task_ids:
                await self._log.read(self._prepare, self.head.ref, self._guard, self._about)
            self._fresh_context = False
            ending = await self._agent.take_turn(self)
        except ProcessLost as lost:
            self._lost = lost
            ending = Ending(self._last_words() if self._reason == "client" else notice(PROCESS_LOST, str(lost)))
        except asyncio.CancelledError:
            if not self.cancelled:
                raise
            if self._task is not None:
                self._task.uncancel()
            return Ending(self._last_words())
        self._ending = True
        return ending

    def _next(self) -> bool:
        """Makes ready for the task's next turn, of which nothing was asked yet. True when it is not to begin."""
        while self._task is not None and self._task.cancelling():
            self._task.uncancel()
        self.cancelled, self._reason = self._drained, "drain" if self._drained else ""
        self.message, self.references, self.attempt = NO_MESSAGE, (), self.head.attempt
        self._strict = self._strict and Strict(self.head.state)
        self.deadlines.stop()
        self.deadlines.start()
        if self.spending is not None:
            self.spending.look_again()
        return self._drained

    async def _end(self, ending: Ending) -> bool:
        """Writes the end of the turn. True when unread messages keep the task going."""
        self._ending = True
        if self.spending is not None:
            await self.spending.settle()
        try:
            if ending.reply is not None and await self._reply(ending.reply):
                return False
            put, notes = await self._batch.settle()
            changes = self._begun(put)
        except TurnOver:
            if self._fencing is not None:
                await self._fencing
            return False
        except Refused as refused:
            if refused.reason != CHANGED:
                return False
            # The task is still this run's: only what a verb wrote of the conversation came too late.
            changes, notes = [], NOTHING
            ending = Ending(notice(OUTDATED))
        except Exception as error:
            changes, notes = [], NOTHING
            ending = Ending(notice(LOST, str(error)))
        given_up = self._lost is not None or self._reason == "drain"
        free = self._lost is not None and not self._lost.began
        if given_up and (free or self.attempt <= self._agent.spec.retries) and ending.status.state == states.FAILED:
            await self._leave(changes, notes)
            return False
        changes += [*map(self._anew, ending.artifacts), ending.status]
        notes = notes.then(ending.notes)
        if self._strict is not None:
            changes = self._strict.end(changes, shown=self.head.state)
        write = self._log.insist
        try:
            appended = await write(self._change(changes, notes, release=True), self._written, self._about)
        except Refused as refused:
            if refused.reason != CHANGED:
                raise
            # Another task of the conversation was faster; what this one would undo is not its to undo.
            lost = [*changes[:-1], notice(OUTDATED)]
            appended = await write(self._change(lost, Notes(notes.task), release=True), self._written, self._about)
        self._ending = not appended.again
        return appended.again

    async def _leave(self, changes: list[Change], notes: Notes) -> None:
        """Gives the turn back, to be begun again by another process."""
        if self.head.visible:
            changes = [*changes, again(self.attempt + 1)]
        # Of the conversation it says nothing, which might be refused: whoever begins again will.
        await self._insist(replace(self._change(changes, Notes(notes.task)), taken=0, retry=True))

    async def _insist(self, change: Append) -> None:
        """Ends the turn, or gives it back, as soon as the store can."""
        try:
            await self._log.insist(change, self._written, self._about)
        except Exception as error:
            log.info("run stopped: %s", error, exc_info=not isinstance(error, Refused), extra=self._about())

    def _last_words(self) -> StatusChange:
        """How a run ends that was asked to stop and did."""
        if self._reason == "deadline":
            return self.deadlines.end()
        return notice(DRAINED) if self._reason == "drain" else StatusChange(states.CANCELED)

    async def _reply(self, message: pb.Message) -> bool:
        """Answers with a Message instead of a task, if nobody has seen the task. Takes it away then."""
        if self.head.visible:
            return False
        changes, _ = await self._batch.settle()
        if changes or self.head.visible:
            for change in changes:
                self._batch.put(change)
            return False
        await self._log.append(
            Append(task=self.head.ref, guard=self._guard, discard=True, reply=message.SerializeToString())
        )
        self.first.set_result(message)
        return True

    def _change(self, changes: list[Change], notes: Notes, *, release: bool = False) -> Append:
        context = None
        if notes.context is not None:
            context = self._context = ContextState(notes.context, self._context.version + 1)
        if release and self.spending is not None:
            changes = self.spending.shown(changes)
        return Append(
            task=self.head.ref,
            guard=self._guard,
            events=changes,
            memory=notes.task,
            context=context,
            taken=self._taken,
            release=release,
        )

    def _send(self, changes: list[Change], notes: Notes) -> asyncio.Future[Appended]:
        return self._log.append(self._change(self._begun(changes), notes), self._written)

    def _begun(self, changes: list[Change]) -> list[Change]:
        """Writes WORKING with the first verb of a run that has not said it itself."""
        if changes and self.head.state == states.SUBMITTED and not isinstance(changes[0], StatusChange):
            return [StatusChange(states.WORKING), *changes]
        return changes

    def _written(self, appended: Appended | None) -> None:
        if appended is None:
            return
        self.head = appended.head
        self.shown.add(appended.events)
        if not self.first.done():
            self.first.set_result(None)
        if not (self.head.running or self.head.ready or self.over.done()):  # `ready`: given back, to be begun again
            self.over.set_result(self.spending is None)  # what a task used stands in no event, but in the task

    def _show_working(self) -> None:
        if self.head.state == states.SUBMITTED and not self._ending and not self._batch.busy:
            self._batch.put(StatusChange(states.WORKING))

    def _fence(self) -> None:
        """Ends a task whose agent does not stop. The release makes every later write of this run too late."""
        if self._ending or self._task is None or self._task.done():
            return
        end = notice(OVERTAKEN) if self._reason == "client" else self._last_words()
        self._reason = "fenced"
        log.warning("agent did not stop within %g s of a cancel; fenced", FENCED_AFTER, extra=self._about())
        self._fencing = asyncio.ensure_future(self._insist(self._change([end], NOTHING, release=True)))
        self._batch.close(TurnOver("the task was canceled"))

    # The messages -----------------------------------------------------------------------------------------------

    def _take(self, stored: StoredMessage) -> None:
        self._taken = stored.number
        self.principal = stored.sender or self.head.ref.owner.principal
        self.message = pb.Message.FromString(stored.message)
        self.stored_envelope, self.envelope = stored.envelope, pb.SendMessageRequest.FromString(stored.envelope)

    async def _prepare(self) -> None:
        """Reads what the turn begins with; what is there already when that breaks off is not read again."""
        if self._asked and self.head.ref in await self._store.cancels.among([self.head.ref]):
            self.cancelled, self._reason = True, "client"
            raise asyncio.CancelledError("this message had come before the cancel")
        if self.message is NO_MESSAGE:
            past = await recall(self._store, self.head, self._taken, self.attempt)
            if self.spending is None and past.usage:
                self.spending = self._spending(past.usage)
            self.memory, self.asked, self._history = past.memory, past.asked, past.history
            self.previous_artifacts, self.waiting = past.artifacts, past.waiting
            self._take(past.message)
        if not self._fresh_context:
            self._context = await self._store.context(self.head.ref.owner, self.head.agent, self.head.context)
        if named := self.message.reference_task_ids:
            self.references = await self._referring.tasks(self.head, self.principal, named)

    async def _unread(self) -> list[StoredMessage]:
        conversation = await self._store.conversation(self.head.ref, self._taken)
        return conversation.unread(self._taken) if conversation else []

    def _about(self) -> dict[str, str]:
        return {"task": id_of(self.head.ref.key), "agent": self.head.agent, "scope": self.head.ref.owner.scope}
