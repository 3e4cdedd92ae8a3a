"""High-level client of a server and its agents: `connect`, `run`, `ask`, `follow`, `get`, `list`, `cancel`."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, Self, TypedDict, Unpack, cast

from dragoman.calling.retry import RetryBudget, pop_cursor
from dragoman.calling.transport import WireTrace, no_wire_trace
from dragoman.client import calls, content
from dragoman.client.agent_connection import GRPC_SCHEMES, AgentConnection, Webhook, agent_url, discover, url_problem
from dragoman.client.event_reducer import EventReducer, with_question
from dragoman.client.events import Event, Finished, Question, Result
from dragoman.client.options import CallOptions
from dragoman.client.turn_stream import TurnStream
from dragoman.core.agent_sources import FILE_FORMS, FileForm
from dragoman.wire.cards.remote_card import RemoteCard
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

CLIENT_IDLE_TIMEOUT: Final = 60.0
"""Seconds without a byte after which a connection counts as broken, and the task is resumed over another. Dragoman
sends keep-alives every 15 s. If another server sends none, the task is polled."""

AnswerCallback = Callable[[Question], "str | Awaitable[str | None] | None"]
"""Returns the answer to a question, or None to end the run with the question."""


class StartOptions(TypedDict, total=False):
    """Arguments of `Connection.start` beside the text, as of `Connection.run`."""

    agent: str
    files: Iterable[content.FileInput]
    data: Any
    task: str
    context: str
    metadata: Mapping[str, Any] | None
    accepts: Sequence[str]
    webhook: Webhook
    key: str


class RunOptions(StartOptions, total=False):
    """Arguments of `Connection.run` beside the text."""

    answer: AnswerCallback | None


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
    v03_files: FileForm | None = None,
    trace: WireTrace = no_wire_trace,
) -> Connection:
    """Connects to a server at a URL (of the server, of one agent, or of its card), for `async with`.

        async with connect("https://agents.example") as client:
            result = await client.ask("echo hello")

    The card says which versions and bindings the agent has. The client uses the newest version, over the first binding
    of the card; `dialect` (1.0, 0.3, 0.1) and `binding` (grpc, rest, jsonrpc) restrict the choice.
    `grpc://HOST:PORT[/AGENT]` and `grpcs://HOST:PORT[/AGENT]` are called without a card.

    token: an API key or any other bearer token. headers: sent with each call. Both go to the card's host only.
    retry_timeout: seconds for which an unavailable or busy server is retried, for its card too. inactivity_timeout:
    seconds without an event of the task, after which InactivityTimeout is raised; None for no limit. There is no total
    limit. ca, cert: files (PEM) of the authorities to trust, and of the client certificate with its key. v03_files: how
    an agent of 0.3 over gRPC or REST carries files: as `bytes`, or as `base64` text. While that is unknown, JSON-RPC is
    preferred for 0.3. trace: receives the wire traffic. Raises ValueError for an invalid URL or option.
    """
    if problem := url_problem(url):
        raise ValueError(problem)
    if dialect not in ("", "1.0", "0.3", "0.1"):
        raise ValueError(f'dialect: "{dialect}" is unknown; use one of 1.0, 0.3, 0.1')
    if binding not in ("", "grpc", "rest", "jsonrpc"):
        raise ValueError(f'binding: "{binding}" is unknown; use one of grpc, rest, jsonrpc')
    if url.startswith(GRPC_SCHEMES) and (dialect == "0.1" or binding not in ("", "grpc")):
        wanted = f'dialect: "{dialect}"' if dialect == "0.1" else f'binding: "{binding}"'
        raise ValueError(f"{wanted} cannot be used with {url}; a gRPC address has dialects 1.0 and 0.3 over grpc only")
    if v03_files not in (None, *FILE_FORMS):
        raise ValueError(f'v03_files: "{v03_files}" is unknown; use one of {", ".join(FILE_FORMS)}')
    options = CallOptions(
        token=token,
        headers=headers or {},
        trace=trace,
        ca=ca,
        cert=cert,
        v03_files=v03_files,
        idle_timeout=CLIENT_IDLE_TIMEOUT,
    )
    find = partial(discover, options=options, binding=binding, dialect=dialect)
    return Connection(url, find, retry_timeout, inactivity_timeout)


@dataclass(eq=False, repr=False)
class Connection:
    """A server whose card was read. Created by `connect`. Calls may run concurrently; all raise ClientError."""

    url: str
    _find: Callable[[str], Awaitable[AgentConnection]]  # discovers the agent at a URL
    _retry_timeout: float
    _inactivity_timeout: float | None
    _agents: dict[str, AgentConnection] = field(default_factory=dict, init=False)
    _discovery_lock: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)

    async def __aenter__(self) -> Self:
        await self._agent("")
        return self

    async def __aexit__(self, *_: object) -> None:
        connections, self._agents = self._agents, {}
        for connection in connections.values():
            await connection.close()

    @property
    def card(self) -> RemoteCard:
        """The card of the agent at the URL itself."""
        return self._agents[""].card

    async def card_of(self, agent: str = "") -> RemoteCard:
        """The card of an agent of this server, by the agent's id."""
        return (await self._agent(agent)).card

    # Messages ---------------------------------------------------------------------------------------------------

    async def run(
        self, text: str | pb.Message = "", *, answer: AnswerCallback | None = None, **options: Unpack[StartOptions]
    ) -> AsyncGenerator[Event, None]:
        """Sends a message and yields the events of the turn, until the task ends (`Finished`) or asks (`Question`).

            async for event in client.run("count to ten"):
                match event:
                    case Text(text):
                        print(text, end="")
                    case Question():
                        event.answer(input(event.text))

        A question answered by `Question.answer` or by the `answer` callback continues the same task. Close
        the generator (`contextlib.aclosing`) to stop listening; the task continues.

        text: the text, or a complete message. agent: the id of one of the server's agents, or its resource name
        (`projects/…/agents/ID`). files: paths, bytes, or (name, bytes). data: a JSON value. task: the interrupted task
        to continue. context: the id of the context. metadata: of the request. accepts: accepted media types of the
        result. webhook: a URL, or a complete push configuration, that receives the task's events
        (`dragoman.client.webhooks` verifies them). key: the idempotency key, by default a new one; another process can
        repeat the send with it. answer: replies to questions.
        """
        parent = calls.current_traceparent()
        key = options["key"] = options.get("key") or str(uuid.uuid4())
        turn, request = await self._first_turn(text, parent, True, **options)
        connection, reducer, turns = turn.connection, turn.reducer, 1
        while True:
            question: Question | None = None
            async with aclosing(turn.send(request)) as events:
                async for event in events:
                    yield event
                    if isinstance(event, Question):
                        question = event
                        if event.reply is None and answer is not None:
                            result = answer(event)
                            reply = result if result is None or isinstance(result, str) else await result
                            if reply is not None:
                                event.answer(reply)
                        if event.reply is not None:
                            break
            if question is None or question.reply is None or reducer.is_over:
                break
            text, files = question.reply
            turns += 1
            turn = self._turn_stream(connection, reducer, f"{key}.{turns}", parent)
            message = _build_message(text, files, None, reducer.task.id, reducer.task.context_id)
            request = connection.request(message, accepts=options.get("accepts", ()))  # the rest was sent already
        if reducer.is_over:
            yield reducer.finish()

    async def ask(self, text: str | pb.Message = "", **options: Unpack[RunOptions]) -> Result:
        """Sends a message and waits for the result: `.text`, `.files`, `.data`, `.task`.

        If the agent asks and `answer` does not reply, the result has its `question`; continue with
        `ask(..., task=result.task_id)`. Arguments as of `run`. Raises TaskFailed for a task that is FAILED, REJECTED or
        CANCELED.
        """
        return await self._result(self.run(text, **options), options.get("agent", ""))

    async def follow(self, task: str, *, agent: str = "", after: str = "") -> AsyncGenerator[Event, None]:
        """Yields the events of a task until it ends or asks. `after`: the `cursor` of the last event received, also by
        another process; without it the first event is the current state of the task."""
        connection = await self._agent(agent)
        reducer, parent = EventReducer(after), calls.current_traceparent()
        async with aclosing(self._turn_stream(connection, reducer, "", parent).follow(task)) as events:
            async for event in events:
                yield event
        if reducer.is_over:
            if not reducer.is_complete:
                reducer.task.CopyFrom((await self._get(connection, task, parent)).task)
            yield reducer.finish()

    async def wait(self, task: str, *, agent: str = "") -> Result:
        """Waits until a task ends or asks, and returns its result. Raises TaskFailed as `ask` does."""
        return await self._result(self.follow(task, agent=agent), agent)

    async def start(self, text: str | pb.Message = "", **options: Unpack[StartOptions]) -> Result:
        """Sends a message and does not wait: the result is the task in its first state. Arguments as of `run`."""
        options["key"] = options.get("key") or str(uuid.uuid4())
        turn, request = await self._first_turn(text, calls.current_traceparent(), False, **options)
        async with aclosing(turn.send(request)) as events:
            await anext(events, None)
        return turn.reducer.result

    # Tasks ------------------------------------------------------------------------------------------------------

    async def get(self, task: str, *, agent: str = "", history: int | None = None) -> Result:
        """Reads a task with its last `history` messages (None: the server's default)."""
        return await self._get(await self._agent(agent), task, calls.current_traceparent(), history=history)

    async def cancel(self, task: str, *, agent: str = "", metadata: Mapping[str, Any] | None = None) -> Result:
        """Requests that a task stops, and returns the task, which may still be running. metadata: for the agent; the
        bindings of 0.3 over gRPC and REST have no field for it."""
        connection = await self._agent(agent)
        request = pb.CancelTaskRequest(tenant=connection.interface.tenant, id=task)
        if metadata:
            request.metadata.update(metadata)
        parent = calls.current_traceparent()
        response = await self._retry_budget().retry(lambda: connection.call("CancelTask", request, parent=parent))
        return Result(cast(pb.Task, response))

    async def list(
        self, *, agent: str = "", context: str = "", state: str = "", page_size: int = 50
    ) -> AsyncGenerator[Result, None]:
        """Yields the tasks of an agent, newest status first. context: only tasks of this context. state: only tasks in
        this state (`WORKING`). Raises NotSupported for JSON-RPC before 1.0, which cannot list tasks."""
        connection = await self._agent(agent)
        status = cast(pb.TaskState, pb.TaskState.Value(f"TASK_STATE_{state}")) if state else None
        request = pb.ListTasksRequest(
            tenant=connection.interface.tenant, context_id=context, status=status, page_size=page_size
        )
        parent = calls.current_traceparent()
        while True:
            response = await self._retry_budget().retry(lambda: connection.call("ListTasks", request, parent=parent))
            page = cast(pb.ListTasksResponse, response)
            for task in page.tasks:
                await connection.transport.restore(task)
                yield Result(task)
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    # Internals --------------------------------------------------------------------------------------------------

    async def _first_turn(
        self,
        text: str | pb.Message,
        parent: str,
        waits: bool,
        /,
        *,
        key: str,
        agent: str = "",
        files: Iterable[content.FileInput] = (),
        data: Any = None,
        task: str = "",
        context: str = "",
        metadata: Mapping[str, Any] | None = None,
        accepts: Sequence[str] = (),
        webhook: Webhook = "",
    ) -> tuple[TurnStream, pb.SendMessageRequest]:
        """The turn of a new message, after what the task has so far, and the request that begins it."""
        connection = await self._agent(agent)
        message = _build_message(text, files, data, task, context)
        reducer = EventReducer()
        if message.task_id:
            reducer.load((await self._get(connection, message.task_id, parent)).task)
            message.context_id = message.context_id or reducer.task.context_id
        # In 0.1 a send waits for the end unless it is a stream.
        may_stream = waits or connection.interface.dialect == "0.1"
        request = connection.request(message, metadata, accepts=accepts, webhook=webhook)
        return self._turn_stream(connection, reducer, key, parent, may_stream=may_stream), request

    def _turn_stream(
        self, connection: AgentConnection, reducer: EventReducer, key: str, parent: str, *, may_stream: bool = True
    ) -> TurnStream:
        budget, timeout = self._retry_budget(), self._inactivity_timeout
        return TurnStream(
            connection, reducer, budget, key=key, parent=parent, inactivity_timeout=timeout, may_stream=may_stream
        )

    async def _get(self, connection: AgentConnection, id: str, parent: str, *, history: int | None = 1) -> Result:
        task = await self._retry_budget().retry(lambda: connection.get(id, history=history, parent=parent))
        cursor = pop_cursor(task)
        return Result(with_question(task), cursor=cursor)

    async def _result(self, stream: AsyncGenerator[Event, None], agent: str) -> Result:
        """Consumes a run and returns its result, or the question at which it stopped."""
        question: Question | None = None
        async with aclosing(stream) as events:
            async for event in events:
                if isinstance(event, Finished):
                    return event.result.raise_for_state()
                if isinstance(event, Question):
                    question = event
        assert question is not None
        result = await self._get(await self._agent(agent), question.task_id, calls.current_traceparent())
        return replace(result, cursor=question.cursor)

    async def _agent(self, agent: str) -> AgentConnection:
        if agent not in self._agents:
            async with self._discovery_lock:
                if agent not in self._agents:
                    url = agent_url(self.url, agent)
                    self._agents[agent] = await self._retry_budget().retry(lambda: self._find(url))
        return self._agents[agent]

    def _retry_budget(self) -> RetryBudget:
        return RetryBudget(self._retry_timeout)


def _build_message(
    text: str | pb.Message, files: Iterable[content.FileInput], data: Any, task: str, context: str
) -> pb.Message:
    """A user's message, with a new id unless it has one. Raises OSError for files."""
    message = pb.Message(role=pb.ROLE_USER)
    if isinstance(text, pb.Message):
        message.CopyFrom(text)
    elif text:
        message.parts.add(text=text)
    message.message_id = message.message_id or str(uuid.uuid4())
    message.task_id, message.context_id = task or message.task_id, context or message.context_id
    message.parts.extend(map(content.to_part, files))
    if data is not None:
        message.parts.append(content.data_part(data, "data"))
    return message
