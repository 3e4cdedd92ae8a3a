"""The calls of A2A 1.0 (`lf.a2a.v1.A2AService`), each a method."""

from __future__ import annotations

import uuid
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Final, Self

import grpc

from dragoman.client.failure import ClientError
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb
from dragoman_pb.lf.a2a.v1 import a2a_pb2_grpc as rpc

METADATA: Final = (("a2a-version", "1.0"),)

_OPTIONS: Final = (
    # The server decides how much is too much; a limit of ours would only hide its answer.
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    # A server that went away is found missing by a stream that has nothing to say.
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
)


Stream = AsyncGenerator[pb.StreamResponse, None]
"""Events of one task, in order. Close it (`contextlib.aclosing`) to stop before it ends."""


def message(text: str = "", *, parts: Iterable[pb.Part] = (), task: str = "", context: str = "") -> pb.Message:
    """A user's message with an id of its own: `text` first, if there is any, then `parts`."""
    made = pb.Message(message_id=str(uuid.uuid4()), role=pb.ROLE_USER, task_id=task, context_id=context)
    if text:
        made.parts.add(text=text)
    made.parts.extend(parts)
    return made


class Client:
    """One server at HOST:PORT, and one of its agents (`""`: the root agent).

    An asynchronous context manager; calls may run at the same time. All raise ClientError.
    """

    def __init__(self, address: str, *, agent: str = "") -> None:
        self.address = address
        self.agent = agent
        self._channel: grpc.aio.Channel | None = None
        self._stub: rpc.A2AServiceAsyncStub | None = None

    async def __aenter__(self) -> Self:
        self._channel = grpc.aio.insecure_channel(self.address, options=_OPTIONS)
        self._stub = rpc.A2AServiceStub(self._channel)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._channel is not None:
            await self._channel.close()
        self._channel = self._stub = None

    async def send(
        self,
        message: pb.Message,
        *,
        configuration: pb.SendMessageConfiguration | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> pb.SendMessageResponse:
        """Sends a message and waits for the task to end or to ask, as long as the server lets a caller wait.

        With `configuration.return_immediately` it does not wait. The answer holds a task, or a message from
        an agent that needs no task.
        """
        request = self._request(message, configuration, metadata)
        with _failures():
            return await self._calls.SendMessage(request, metadata=METADATA)

    def stream(
        self,
        message: pb.Message,
        *,
        configuration: pb.SendMessageConfiguration | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> Stream:
        """Sends a message and yields the Task, then its updates until the turn ends; or one Message."""
        request = self._request(message, configuration, metadata)
        return _events(self._calls.SendStreamingMessage(request, metadata=METADATA))

    def subscribe(self, task_id: str) -> Stream:
        """Yields the Task as it is, then its updates until it has ended.

        Raises ClientError with reason UNSUPPORTED_OPERATION when it has ended already.
        """
        request = pb.SubscribeToTaskRequest(tenant=self.agent, id=task_id)
        return _events(self._calls.SubscribeToTask(request, metadata=METADATA))

    async def get(self, task_id: str, *, history: int | None = None) -> pb.Task:
        """The task with its last `history` messages (None: as many as the server likes)."""
        with _failures():
            return await self._calls.GetTask(
                pb.GetTaskRequest(tenant=self.agent, id=task_id, history_length=history), metadata=METADATA
            )

    async def list(
        self,
        *,
        context: str = "",
        state: pb.TaskState | str = pb.TASK_STATE_UNSPECIFIED,
        since: datetime | None = None,
        page_size: int | None = None,
        history: int | None = None,
        artifacts: bool | None = None,
    ) -> AsyncGenerator[pb.Task, None]:
        """Tasks by these filters, newest status first, page after page as they are asked for."""
        request = pb.ListTasksRequest(
            tenant=self.agent,
            context_id=context,
            status=state,
            page_size=page_size,
            history_length=history,
            include_artifacts=artifacts,
        )
        if since is not None:
            request.status_timestamp_after.FromDatetime(since)
        while True:
            with _failures():
                page = await self._calls.ListTasks(request, metadata=METADATA)
            for task in page.tasks:
                yield task
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    async def cancel(self, task_id: str) -> pb.Task:
        """Asks for the task to stop and gives it as it is then: still running when its agent is slow."""
        with _failures():
            return await self._calls.CancelTask(pb.CancelTaskRequest(tenant=self.agent, id=task_id), metadata=METADATA)

    @property
    def _calls(self) -> rpc.A2AServiceAsyncStub:
        if self._stub is None:
            raise RuntimeError("use a Client inside `async with`")
        return self._stub

    def _request(
        self,
        message: pb.Message,
        configuration: pb.SendMessageConfiguration | None,
        metadata: Mapping[str, Any] | None,
    ) -> pb.SendMessageRequest:
        request = pb.SendMessageRequest(tenant=self.agent, message=message, configuration=configuration)
        if metadata:
            request.metadata.update(metadata)
        return request


@contextmanager
def _failures() -> Iterator[None]:
    try:
        yield
    except grpc.aio.AioRpcError as error:
        raise ClientError.of(error) from error


async def _events(call: grpc.aio.UnaryStreamCall[Any, pb.StreamResponse]) -> Stream:
    try:
        with _failures():
            async for event in call:
                yield event
    finally:
        call.cancel()  # whoever stops reading early tells the server so
