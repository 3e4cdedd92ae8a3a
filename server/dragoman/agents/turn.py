"""`Turn`: what a function has in its hands while it answers one message."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from typing import Any, NoReturn

from dragoman.agents.incoming import Incoming
from dragoman.agents.output import OUTPUT, Output
from dragoman.core import delegation, states
from dragoman.core.log import StatusChange
from dragoman.core.usage import Used, report
from dragoman.ports import Desk
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb


class TurnEnded(BaseException):
    """Raised by the verbs that end a turn. Let it pass: it carries how the turn ended.

    No `Exception`, so that an agent's `except Exception` does not swallow it.
    """

    def __init__(self, status: StatusChange, reply: pb.Message | None = None) -> None:
        super().__init__(f"the turn ended as {states.name(status.state)}")
        self.status = status
        self.reply = reply


class Turn(Incoming):
    """One turn of a task: the caller's message, and the verbs to answer it with.

    Verbs are plain calls and safe from threads. They do not wait for the disk: `status`, `artifact` and `chunk`
    return an awaitable that ends when there is room for more, and that may be ignored; in a thread the call itself
    waits for room. They raise InvalidAgentResponse for a value that the protocol has no place for, BufferFull when
    far too much waits uncommitted, and whatever made an earlier commit fail.

    `ask`, `need_auth`, `reject` and `reply` end the turn by raising TurnEnded. A follow-up calls the function anew
    (A2A 1.0 §3.4.3); keep what it needs in `state`.
    """

    def __init__(self, output: Output, agent: str = "") -> None:
        super().__init__(output.desk.message, output.desk.envelope)
        self._agent = agent
        self._output = output
        self._loop = asyncio.get_running_loop()
        self._home = threading.get_ident()

    # The task ---------------------------------------------------------------------------------------------------

    @property
    def _desk(self) -> Desk:
        return self._output.desk

    @property
    def task_id(self) -> str:
        """The task's id, as its caller knows it."""
        return self._desk.task_id

    @property
    def context_id(self) -> str:
        """The conversation the task belongs to."""
        return self._desk.context_id

    @property
    def principal(self) -> str:
        """Who sent the message that this turn answers; `anonymous` for callers who showed no credentials."""
        return self._desk.principal

    @property
    def history(self) -> Sequence[pb.Message]:
        """The task's messages before this one, oldest first, the agent's own among them."""
        return self._desk.history

    @property
    def asked(self) -> pb.Message | None:
        """What this agent asked when it last waited for the caller; None in a task's first turn."""
        return self._desk.asked

    @property
    def references(self) -> Sequence[pb.Task]:
        """The tasks that the message refers to (`referenceTaskIds`): of its caller and this agent, 16 at most."""
        return self._desk.references

    @property
    def state(self) -> dict[str, Any]:
        """JSON of this task, to change in place; kept from turn to turn.

        It is stored with the next event, or with the end of the turn. What JSON cannot hold raises TypeError there.
        """
        return self._output.state

    @property
    def context(self) -> Context:
        """The conversation the task belongs to, with the agent's own JSON of it."""
        return Context(self._output)

    @property
    def attempt(self) -> int:
        """How often this turn was begun: more than once when a process died while it ran the turn (`on_crash`)."""
        return self._desk.attempt

    @property
    def previous_artifacts(self) -> Sequence[pb.Artifact]:
        """What a dead attempt and earlier turns left, when this is not the first attempt. Written again, an artifact
        is replaced; others stay as they are."""
        return self._desk.previous_artifacts

    @property
    def stopping(self) -> bool:
        """Whether the server is about to stop and wants this turn to end in half a minute."""
        return self._desk.stopping

    @property
    def cancel_reason(self) -> str:
        """Why this run was asked to stop: `client`, `deadline`, `drain` or `fenced`; empty when it was not."""
        return self._desk.cancel_reason

    @property
    def cancelled(self) -> bool:
        """Whether somebody asked this run to stop. For sync functions; async ones get CancelledError."""
        return self._desk.cancelled

    def check(self) -> None:
        """Raises CancelledError if somebody asked this run to stop. For sync functions, between two steps."""
        if self._desk.cancelled:
            raise asyncio.CancelledError("the task was canceled")

    def refuse_cancel(self, why: str) -> None:
        """From now on refuses clients who want to cancel this task, with this text (1.0: TaskNotCancelable)."""
        if not why:
            raise ValueError("turn.refuse_cancel: say why")
        self._desk.refuse_cancel(why)

    # Verbs ------------------------------------------------------------------------------------------------------

    def status(self, value: object = None, state: int = states.WORKING) -> Awaitable[None]:
        """Says how it goes: text or a Message, or nothing (1.0 §4.2.1).

        `state` is WORKING or AUTH_REQUIRED; the latter says that the agent waits for authentication elsewhere while
        it goes on running, and keeps streams open. Raises ValueError for any other state: those end the turn.
        """
        if state not in (states.WORKING, states.AUTH_REQUIRED):
            raise ValueError(
                f"turn.status: {states.name(state)} ends a turn; return, raise, or use ask, need_auth, reject"
            )
        return self._output.status(state, value)

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
        """Gives an artifact: any value of the value table, or an Artifact (1.0 §4.2.2).

        Without `id` it is a new one. With the id of one that is there, it replaces that, or with `append` adds to
        it. `last` says that no more is to come; `metadata` is the artifact's.
        """
        if append and not id and not getattr(value, "artifact_id", ""):
            raise ValueError("turn.artifact: append=True needs id=, the artifact to add to")
        made = self._output.new_artifact(value, name=name, description=description, id=id, metadata=metadata)
        return self._output.artifact(made, append=append, last=last)

    def chunk(self, value: object, *, artifact: str = OUTPUT, last: bool = False) -> Awaitable[None]:
        """Adds to an artifact, which the turn's first chunk begins: text is streamed, other values are parts.

        `output` is the turn's own: in the N-th turn of a task it is `output-N`. `last` says that no more is to come.
        """
        if not artifact:
            raise ValueError("turn.chunk: artifact= is empty; leave it out for the turn's own")
        return self._output.chunk(value, artifact=artifact, last=last)

    async def messages(self) -> AsyncIterator[Incoming]:
        """Messages that arrive for the task while it runs, each once; waits for more until the loop is left.

        One that nobody has taken when the turn ends keeps the task WORKING: the function is called again with it.
        """
        async for message, envelope in self._desk.incoming():
            yield Incoming(message, envelope)

    def flush(self) -> Awaitable[None]:
        """Waits until all that was put is on disk: `await turn.flush()`; in a thread the call itself waits.

        Raises what made a commit fail.
        """
        if threading.get_ident() == self._home:
            return self._desk.flush()
        asyncio.run_coroutine_threadsafe(self._desk.flush(), self._loop).result()
        return _Done()

    def usage(self, *, tokens: int = 0, cost: float = 0.0, key: str = "") -> None:
        """Reports what the turn has used since the last report: tokens, and a cost in the operator's currency.

        Reports add up over all turns and attempts of the task; what was spent by an attempt that died was spent. With
        `key` a report counts once in the task, however often it is made: name the call that it is about, if a later
        attempt may find that call's result and report it again. When the sum passes the task's budget, the turn is
        asked to stop, and the task ends as FAILED (OVER_BUDGET) unless a result comes first.
        """
        self._desk.spend(report(tokens, cost, key))

    def delegation(self) -> dict[str, dict[str, str]]:
        """Metadata for a request to another agent, so that what that task uses counts for this one as well.

        `dragoman.client` adds it by itself; with other clients: `metadata={**mine, **turn.delegation()}`. It means
        something to this server alone, and only for tasks of the same principal.
        """
        self._desk.spend(Used())  # whoever runs this turn asks for the sum before it ends
        return {delegation.URI: {"agent": self._agent, "task": self.task_id}}

    # Verbs that end the turn ------------------------------------------------------------------------------------

    def ask(self, question: object) -> NoReturn:
        """Ends the turn as INPUT_REQUIRED, with a question to the caller."""
        raise TurnEnded(self._output.status_change(states.INPUT_REQUIRED, _said("ask", question)))

    def need_auth(self, reason: object) -> NoReturn:
        """Ends the turn as AUTH_REQUIRED, with what the caller must do first."""
        raise TurnEnded(self._output.status_change(states.AUTH_REQUIRED, _said("need_auth", reason)))

    def reject(self, reason: object) -> NoReturn:
        """Ends the task as REJECTED: the agent will not do this."""
        raise TurnEnded(self._output.status_change(states.REJECTED, _said("reject", reason)))

    def reply(self, value: object) -> NoReturn:
        """Answers with a Message instead of a task, if the agent is `direct` and nobody has seen the task yet.

        Otherwise the task ends as COMPLETED with that status message.
        """
        message = self._output.message(_said("reply", value))
        status = StatusChange(states.COMPLETED, message.SerializeToString())
        message.ClearField("task_id")  # of a task that will not have been
        raise TurnEnded(status, message)


class Context:
    """A conversation: what the tasks of one context share."""

    def __init__(self, output: Output) -> None:
        self._output = output

    @property
    def id(self) -> str:
        """The context id."""
        return self._output.desk.context_id

    @property
    def state(self) -> dict[str, Any]:
        """The agent's JSON of this conversation, to change in place; kept from task to task.

        It is stored with the next event, or with the end of the turn. When another task of the conversation has
        written it since this turn began, this turn fails rather than undo that.
        """
        return self._output.context_state


class _Done:
    """An awaitable that has nothing to wait for."""

    def __await__(self) -> Any:
        return iter(())


def _said(verb: str, value: object) -> object:
    if value is None:
        raise ValueError(f"turn.{verb}: says nothing; give it text or a Message")
    return value
