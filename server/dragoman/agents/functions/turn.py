"""What the caller sent, read: text, files and data of one message."""

from __future__ import annotations

import asyncio
import builtins
import threading
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NoReturn

from dragoman.agents.functions.output import DEFAULT_ARTIFACT_ID, TurnOutput
from dragoman.agents.values import struct_to_json, value_to_json
from dragoman.core import trace
from dragoman.core.limits.message_checks import media_type_of
from dragoman.core.limits.quotas import UsageReport, checked_usage_report
from dragoman.core.task import states
from dragoman.core.task.log import StatusChange
from dragoman.ports import TurnContext
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb


@dataclass(frozen=True, slots=True)
class File:
    """A file of a message: its bytes, or the URL where they are (then `bytes` is empty and nothing was fetched)."""

    name: str
    media_type: str
    bytes: builtins.bytes = b""
    url: str = ""


class Incoming:
    """One message of the caller, and what its request said about the answer."""

    def __init__(self, message: pb.Message, envelope: pb.SendMessageRequest) -> None:
        self.message = message
        """The message itself, `lf.a2a.v1.Message` (A2A 1.0 §4.1.4)."""
        self._envelope = envelope

    @cached_property
    def text(self) -> str:
        """Its text parts, one under the other; empty when there is none."""
        return "\n".join([part.text for part in self.message.parts if part.WhichOneof("content") == "text"])

    @cached_property
    def files(self) -> list[File]:
        """Its parts with bytes or a URL, in order."""
        return [
            File(part.filename, media_type_of(part), part.raw, part.url)
            for part in self.message.parts
            if part.WhichOneof("content") in ("raw", "url")
        ]

    @cached_property
    def data(self) -> list[Any]:
        """The JSON of its data parts, in order. Numbers without a fraction are int."""
        return [value_to_json(part.data) for part in self.message.parts if part.WhichOneof("content") == "data"]

    @cached_property
    def metadata(self) -> dict[str, Any]:
        """The metadata of the request it came in (1.0 §3.2.1); the message's own is `message.metadata`."""
        return struct_to_json(self._envelope.metadata)

    @cached_property
    def accepts(self) -> list[str]:
        """The media types the caller accepts in answer; empty when it did not say."""
        return list(self._envelope.configuration.accepted_output_modes)

    @cached_property
    def extensions(self) -> list[str]:
        """The URIs of this agent's extensions that the caller activated (1.0 §4.6)."""
        return list(self._envelope.message.extensions)


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

    `ask`, `need_auth`, `reject` and `reply` end the turn by raising TurnEnded. A follow-up calls the function
    anew
    (A2A 1.0 §3.4.3); keep what it needs in `state`.
    """

    def __init__(self, output: TurnOutput, agent: str = "") -> None:
        super().__init__(output.turn_context.message, output.turn_context.envelope)
        self._agent = agent
        self._output = output
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()

    # The task ---------------------------------------------------------------------------------------------------

    @property
    def _turn_context(self) -> TurnContext:
        return self._output.turn_context

    @property
    def task_id(self) -> str:
        """The task's id, as its caller knows it."""
        return self._turn_context.task_id

    @property
    def context_id(self) -> str:
        """The conversation the task belongs to."""
        return self._turn_context.context_id

    @property
    def principal(self) -> str:
        """Who sent the message that this turn answers; `anonymous` for callers who showed no credentials."""
        return self._turn_context.principal

    @property
    def history(self) -> Sequence[pb.Message]:
        """The task's messages before this one, oldest first, the agent's own among them."""
        return self._turn_context.history

    @property
    def question(self) -> pb.Message | None:
        """What this agent asked when it last waited for the caller; None in a task's first turn."""
        return self._turn_context.question

    @property
    def references(self) -> Sequence[pb.Task]:
        """The tasks that the message refers to (`referenceTaskIds`): of its caller and this agent, 16 at most."""
        return self._turn_context.references

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
        return self._turn_context.attempt

    @property
    def previous_artifacts(self) -> Sequence[pb.Artifact]:
        """What a dead attempt and earlier turns left, when this is not the first attempt. Written again, an artifact
        is replaced; others stay as they are."""
        return self._turn_context.previous_artifacts

    @property
    def stopping(self) -> bool:
        """Whether the server is about to stop and wants this turn to end in half a minute."""
        return self._turn_context.stopping

    @property
    def cancel_reason(self) -> str:
        """Why this run was asked to stop: `client`, `deadline`, `drain` or `fenced`; empty when it was not."""
        return self._turn_context.cancel_reason

    @property
    def cancelled(self) -> bool:
        """Whether somebody asked this run to stop. For sync functions; async ones get CancelledError."""
        return self._turn_context.cancelled

    def check(self) -> None:
        """Raises CancelledError if somebody asked this run to stop. For sync functions, between two steps."""
        if self._turn_context.cancelled:
            raise asyncio.CancelledError("the task was canceled")

    def refuse_cancel(self, reason: str) -> None:
        """From now on refuses clients who want to cancel this task, with this text (1.0: TaskNotCancelable)."""
        if not reason:
            raise ValueError("turn.refuse_cancel: say why")
        self._turn_context.refuse_cancel(reason)

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

    def chunk(self, value: object, *, artifact: str = DEFAULT_ARTIFACT_ID, last: bool = False) -> Awaitable[None]:
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
        async for message, envelope in self._turn_context.incoming():
            yield Incoming(message, envelope)

    def flush(self) -> Awaitable[None]:
        """Waits until all that was put is on disk: `await turn.flush()`; in a thread the call itself waits.

        Raises what made a commit fail.
        """
        if threading.get_ident() == self._loop_thread:
            return self._turn_context.flush()
        asyncio.run_coroutine_threadsafe(self._turn_context.flush(), self._loop).result()
        return _CompletedAwaitable()

    def usage(self, *, tokens: int = 0, cost: float = 0.0, key: str = "") -> None:
        """Reports what the turn has used since the last report: tokens, and a cost in the operator's currency.

        Reports add up over all turns and attempts of the task; what was spent by an attempt that died was spent. With
        `key` a report counts once in the task, however often it is made: name the call that it is about, if a later
        attempt may find that call's result and report it again. When the sum passes the task's budget, the turn is
        asked to stop, and the task ends as FAILED (OVER_BUDGET) unless a result comes first.
        """
        self._turn_context.report_usage(checked_usage_report(tokens, cost, key))

    def delegation(self) -> dict[str, dict[str, str]]:
        """Metadata for a request to another agent, so that what that task uses counts for this one as well.

        `dragoman.client` adds it by itself; with other clients: `metadata={**mine, **turn.delegation()}`. It means
        something to this server alone, and only for tasks of the same principal.
        """
        self._turn_context.report_usage(UsageReport())  # whoever runs this turn asks for the sum before it ends
        return {trace.DELEGATION_URI: {"agent": self._agent, "task": self.task_id}}

    # Verbs that end the turn ------------------------------------------------------------------------------------

    def ask(self, question: object) -> NoReturn:
        """Ends the turn as INPUT_REQUIRED, with a question to the caller."""
        raise TurnEnded(self._output.status_change(states.INPUT_REQUIRED, _check_content("ask", question)))

    def need_auth(self, reason: object) -> NoReturn:
        """Ends the turn as AUTH_REQUIRED, with what the caller must do first."""
        raise TurnEnded(self._output.status_change(states.AUTH_REQUIRED, _check_content("need_auth", reason)))

    def reject(self, reason: object) -> NoReturn:
        """Ends the task as REJECTED: the agent will not do this."""
        raise TurnEnded(self._output.status_change(states.REJECTED, _check_content("reject", reason)))

    def reply(self, value: object) -> NoReturn:
        """Answers with a Message instead of a task, if the agent is `direct` and nobody has seen the task yet.

        Otherwise the task ends as COMPLETED with that status message.
        """
        message = self._output.message(_check_content("reply", value))
        status = StatusChange(states.COMPLETED, message.SerializeToString())
        message.ClearField("task_id")  # of a task that will not have been
        raise TurnEnded(status, message)


class Context:
    """A conversation: what the tasks of one context share."""

    def __init__(self, output: TurnOutput) -> None:
        self._output = output

    @property
    def id(self) -> str:
        """The context id."""
        return self._output.turn_context.context_id

    @property
    def state(self) -> dict[str, Any]:
        """The agent's JSON of this conversation, to change in place; kept from task to task.

        It is stored with the next event, or with the end of the turn. When another task of the conversation has
        written it since this turn began, this turn fails rather than undo that.
        """
        return self._output.context_state


class _CompletedAwaitable:
    """An awaitable that has nothing to wait for."""

    def __await__(self) -> Any:
        return iter(())


def _check_content(verb: str, value: object) -> object:
    if value is None:
        raise ValueError(f"turn.{verb}: says nothing; give it text or a Message")
    return value
