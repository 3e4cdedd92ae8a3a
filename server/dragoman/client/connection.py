"""A server, or one agent, as its callers like to have it: `run`, `ask`, `follow`, and the rest of what one
does with
tasks."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, Final, Self, cast
from urllib.parse import quote

from google.protobuf import json_format

from dragoman.calling.errors import Busy, ServerUnavailable
from dragoman.calling.retry import RetryBudget, pop_cursor
from dragoman.calling.transport import WireTrace, no_wire_trace
from dragoman.client import agent_connection as lines
from dragoman.client import calls, content
from dragoman.client import content as sending
from dragoman.client.agent_connection import AgentConnection, Webhook
from dragoman.client.event_reducer import EventReducer, with_question
from dragoman.client.events import Event, Finished, Question, Result
from dragoman.client.transport import CallOptions
from dragoman.client.turn_stream import TurnStream
from dragoman.wire.cards.remote_card import RemoteCard
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

CLIENT_IDLE_TIMEOUT: Final = 60.0
"""Seconds without a byte after which a connection is taken for broken, and the task is taken up again over another.
Servers say something more often (ours every 15 s); one that does not is asked for the task."""

AnswerCallback = Callable[[Question], "str | Awaitable[str | None] | None"]
"""Answers a question, or gives None and lets the run end with it."""


def connect(
    url: str,
    *,
    token: str = "",
    headers: Mapping[str, str] | None = None,
    dialect: str = "",
    binding: str = "",
    retry_timeout: float = 60.0,
    inactivity_timeout: float | None = None,
    ca: Path | None = None,
    cert: Path | None = None,
    trace: WireTrace = no_wire_trace,
) -> Connection:
    """A server at a URL (or one agent, or the URL of its card), for `async with`.

        async with connect("https://agents.example") as client:
            result = await client.ask("echo hello")

    Its card says which versions and bindings it has; the newest version is spoken, over the binding that the card puts
    first; `dialect` (1.0, 0.3, 0.1) and `binding` (grpc, rest, jsonrpc) leave only some. `grpc://HOST:PORT` and
    `grpcs://HOST:PORT` are called without a card.

    token: proves who calls, an API key or any other bearer token. headers: sent with each call. Neither is shown to
    another host than the card's. patience: seconds for which a server that is away or busy is tried again. silence:
    seconds for which a task may say nothing new, after which Silent is raised; None for as long as it likes. There is
    no limit on the whole. ca, cert: files (PEM) of the authorities to trust, and of our own certificate with its key.
    trace: is told what goes over the wire. Raises ValueError for a URL that is none.
    """
    if not url.startswith(("http://", "https://", "grpc://", "grpcs://")):
        raise ValueError(f'"{url}" is no URL of a server: http(s)://HOST[:PORT][/PATH], or grpc(s)://HOST:PORT')
    if dialect not in ("", "1.0", "0.3", "0.1"):
        raise ValueError(f'dialect: "{dialect}" is not spoken; use one of 1.0, 0.3, 0.1')
    if binding not in ("", "grpc", "rest", "jsonrpc"):
        raise ValueError(f'binding: there is no "{binding}"; use one of grpc, rest, jsonrpc')
    means = CallOptions(
        token=token, headers=headers or {}, trace=trace, ca=ca, cert=cert, idle_timeout=CLIENT_IDLE_TIMEOUT
    )
    return Connection(
        url, means, dialect=dialect, binding=binding, retry_timeout=retry_timeout, inactivity_timeout=inactivity_timeout
    )


class Connection:
    """A server whose card was read. Made by `connect`. Calls may run at the same time; all raise ClientError."""

    def __init__(
        self,
        url: str,
        options: CallOptions,
        *,
        dialect: str,
        binding: str,
        retry_timeout: float,
        inactivity_timeout: float | None,
    ) -> None:
        self.url = url
        self._options = options
        self._dialect = dialect
        self._binding = binding
        self._retry_timeout = retry_timeout
        self._inactivity_timeout = inactivity_timeout
        self._agents: dict[str, AgentConnection] = {}
        self._discovery_lock = asyncio.Lock()

    async def __aenter__(self) -> Self:
        await self._agent("")
        return self

    async def __aexit__(self, *_: object) -> None:
        found, self._agents = self._agents, {}
        for line in found.values():
            await line.close()

    @property
    def card(self) -> RemoteCard:
        """The card of the agent at the URL itself."""
        return self._agents[""].card

    async def card_of(self, agent: str = "") -> RemoteCard:
        """The card of an agent of this server, by its id."""
        return (await self._agent(agent)).card

    # Talking ----------------------------------------------------------------------------------------------------

    async def run(
        self,
        text: str | pb.Message = "",
        *,
        agent: str = "",
        files: Iterable[sending.FileInput] = (),
        data: Any = None,
        task: str = "",
        context: str = "",
        metadata: Mapping[str, Any] | None = None,
        accepts: Sequence[str] = (),
        webhook: Webhook = "",
        key: str = "",
        answer: AnswerCallback | None = None,
    ) -> AsyncGenerator[Event, None]:
        """Sends a message and yields what comes of it, until the task has ended (`Finished`) or asks (`Question`).

            async for event in client.run("count to ten"):
                match event:
                    case Text(text):
                        print(text, end="")
                    case Question():
                        event.answer(input(event.text))

        A question that is answered, there or by `answer`, is gone on with in the same task. Close the generator
        (`contextlib.aclosing`) to stop listening; the task goes on.

        text: what to say, or a whole message. agent: the id of one of several at this server. files: paths, bytes,
        (name, bytes). data: a value that JSON can hold. task: goes on with that one, which asked something. context:
        the conversation. metadata: of the request. accepts: media types of the answer. webhook: a URL, or a whole
        configuration, that the server tells of the task's events (`dragoman.client.webhooks` checks them). key: an
        idempotency key of your own, with which the same message may be sent again, also by another process; by default
        one for this call.
        """
        line = await self._agent(agent)
        parent, key = calls.current_traceparent(), key or str(uuid.uuid4())
        message, teller = await self._prepare(
            line, _build_message(text, sending.to_parts(files), data, task, context), parent
        )
        turns = 0
        while True:
            turns += 1
            own = key if turns == 1 else f"{key}.{turns}"
            pursuit = self._turn_stream(line, teller, own, parent)
            asked: Question | None = None
            async with aclosing(
                pursuit.send(line.request(message, metadata, accepts=accepts, webhook=webhook))
            ) as events:
                async for event in events:
                    yield event
                    if isinstance(event, Question):
                        asked = event
                        if event.reply is None and answer is not None:
                            said = answer(event)
                            reply = said if said is None or isinstance(said, str) else await said
                            if reply is not None:
                                event.answer(reply)
                        if event.reply is not None:
                            break
            if asked is None or asked.reply is None or teller.is_over:
                break
            words, more = asked.reply
            metadata, webhook = None, ""  # they were said
            known = teller.task
            message = _build_message(words, sending.to_parts(more), None, known.id, known.context_id)
        if teller.is_over:
            yield teller.finish()

    async def ask(
        self,
        text: str | pb.Message = "",
        *,
        agent: str = "",
        files: Iterable[sending.FileInput] = (),
        data: Any = None,
        task: str = "",
        context: str = "",
        metadata: Mapping[str, Any] | None = None,
        accepts: Sequence[str] = (),
        webhook: Webhook = "",
        key: str = "",
        answer: AnswerCallback | None = None,
    ) -> Result:
        """Sends a message and gives the result, when there is one: `.text`, `.files`, `.data`, `.task`.

        Where the agent asks and `answer` does not answer, the result has its `question`; go on with
        `ask(..., task=result.task_id)`. Arguments as of `run`. Raises TaskFailed for a task that did not end well.
        """
        stream = self.run(
            text,
            agent=agent,
            files=files,
            data=data,
            task=task,
            context=context,
            metadata=metadata,
            accepts=accepts,
            webhook=webhook,
            key=key,
            answer=answer,
        )
        return await self._result(stream, agent)

    async def follow(self, task: str, *, agent: str = "", after: str = "") -> AsyncGenerator[Event, None]:
        """Yields what becomes of a task, until it has ended or asks. `after`: the `cursor` of the last
        event that was
        taken, perhaps by another process; without, it begins with the task as it is."""
        line = await self._agent(agent)
        teller, parent = EventReducer(after), calls.current_traceparent()
        async with aclosing(self._turn_stream(line, teller, "", parent).follow(task)) as events:
            async for event in events:
                yield event
        if teller.is_over:
            if not teller.is_complete:
                teller.task.CopyFrom(await self._get_task(line, task, parent))
            yield teller.finish()

    async def wait(self, task: str, *, agent: str = "") -> Result:
        """Waits for a task to end, or to ask, and gives the result. Raises TaskFailed for one that did not end well."""
        return await self._result(self.follow(task, agent=agent), agent)

    async def start(
        self,
        text: str | pb.Message = "",
        *,
        agent: str = "",
        files: Iterable[sending.FileInput] = (),
        data: Any = None,
        task: str = "",
        context: str = "",
        metadata: Mapping[str, Any] | None = None,
        accepts: Sequence[str] = (),
        webhook: Webhook = "",
        key: str = "",
    ) -> Result:
        """Sends a message and does not wait: the result is the task as it is at first. Arguments as of `run`."""
        line = await self._agent(agent)
        parent = calls.current_traceparent()
        message, teller = await self._prepare(
            line, _build_message(text, sending.to_parts(files), data, task, context), parent
        )
        # In 0.1 a send waits for the end, unless it is a stream.
        streams = line.interface.dialect == "0.1"
        pursuit = self._turn_stream(line, teller, key or str(uuid.uuid4()), parent, may_stream=streams)
        request = line.request(message, metadata, accepts=accepts, webhook=webhook)
        async with aclosing(pursuit.send(request)) as events:
            await anext(events, None)
        return teller.result

    # Tasks ------------------------------------------------------------------------------------------------------

    async def get(self, task: str, *, agent: str = "", history: int | None = None) -> Result:
        """A task as it is, with its last `history` messages (None: as many as the server likes)."""
        line = await self._agent(agent)
        parent = calls.current_traceparent()
        found = await self._retry_budget().retry(lambda: line.get(task, history=history, parent=parent))
        cursor = pop_cursor(found)
        return Result(with_question(found), cursor=cursor)

    async def cancel(self, task: str, *, agent: str = "") -> Result:
        """Asks for a task to stop, and gives it as it is then: still running where its agent is slow."""
        line = await self._agent(agent)
        asked = pb.CancelTaskRequest(tenant=line.interface.tenant, id=task)
        parent = calls.current_traceparent()
        answer = await self._retry_budget().retry(lambda: line.call("CancelTask", asked, parent=parent))
        return Result(cast(pb.Task, answer))

    async def list(
        self, *, agent: str = "", context: str = "", state: str = "", page_size: int = 50
    ) -> AsyncGenerator[Result, None]:
        """The tasks of an agent, newest status first: those of a conversation, those in a state (`WORKING`). Servers
        before 1.0 have no such call over JSON-RPC; then NotSupported is raised."""
        line = await self._agent(agent)
        status = cast(pb.TaskState, pb.TaskState.Value(f"TASK_STATE_{state}")) if state else None
        asked = pb.ListTasksRequest(
            tenant=line.interface.tenant, context_id=context, status=status, page_size=page_size
        )
        parent = calls.current_traceparent()
        while True:
            answer = await self._retry_budget().retry(lambda: line.call("ListTasks", asked, parent=parent))
            page = cast(pb.ListTasksResponse, answer)
            for task in page.tasks:
                yield Result(task)
            if not page.next_page_token:
                return
            asked.page_token = page.next_page_token

    # Within -----------------------------------------------------------------------------------------------------

    async def _prepare(
        self, connection: AgentConnection, message: pb.Message, parent: str
    ) -> tuple[pb.Message, EventReducer]:
        """A message that is ready to be sent, and what is known of its task already."""
        teller = EventReducer()
        if message.task_id:
            teller.load(await self._get_task(connection, message.task_id, parent))
            message.context_id = message.context_id or teller.task.context_id
        return message, teller

    def _turn_stream(
        self, connection: AgentConnection, reducer: EventReducer, key: str, parent: str, *, may_stream: bool = True
    ) -> TurnStream:
        return TurnStream(
            connection,
            reducer,
            key=key,
            parent=parent,
            retry_timeout=self._retry_timeout,
            inactivity_timeout=self._inactivity_timeout,
            may_stream=may_stream,
        )

    async def _get_task(self, connection: AgentConnection, id: str, parent: str) -> pb.Task:
        task = await self._retry_budget().retry(lambda: connection.get(id, history=1, parent=parent))
        pop_cursor(task)
        return with_question(task)

    async def _result(self, stream: AsyncGenerator[Event, None], agent: str) -> Result:
        """What a run comes to."""
        asked: Question | None = None
        async with aclosing(stream) as events:
            async for event in events:
                if isinstance(event, Finished):
                    return event.result.raise_for_state()
                if isinstance(event, Question):
                    asked = event
        assert asked is not None
        return Result(
            await self._get_task(await self._agent(agent), asked.task_id, calls.current_traceparent()),
            cursor=asked.cursor,
        )

    async def _agent(self, agent: str) -> AgentConnection:
        if agent not in self._agents:
            async with self._discovery_lock:
                if agent not in self._agents:
                    at = f"{self.url.rstrip('/')}/{quote(agent, safe='')}" if agent else self.url
                    self._agents[agent] = await self._discover(at)
        return self._agents[agent]

    async def _discover(self, url: str) -> AgentConnection:
        """The line to an agent. A server that was never there is not waited for."""
        patience = self._retry_budget()
        while True:
            try:
                return await lines.discover(url, self._options, binding=self._binding, dialect=self._dialect)
            except ServerUnavailable as error:
                if not (error.may_have_arrived or self._agents):
                    raise
                await patience.wait(error)
            except Busy as error:
                await patience.wait(error)

    def _retry_budget(self) -> RetryBudget:
        return RetryBudget(self._retry_timeout)


def _build_message(text: str | pb.Message, parts: Sequence[pb.Part], data: Any, task: str, context: str) -> pb.Message:
    """A user's message with an id of its own."""
    made = pb.Message(role=pb.ROLE_USER)
    if isinstance(text, pb.Message):
        made.CopyFrom(text)
    elif text:
        made.parts.add(text=text)
    made.message_id = made.message_id or str(uuid.uuid4())
    made.task_id, made.context_id = task or made.task_id, context or made.context_id
    made.parts.extend(parts)
    if data is not None:
        content.check_json_value(data, "data")
        json_format.ParseDict(data, made.parts.add().data)
    return made
