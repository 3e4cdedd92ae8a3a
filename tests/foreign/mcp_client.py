"""What the checks of MCP clients want of a client: each Python client adapts its own classes to these."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

Json = dict[str, Any]

Answer = Callable[[Json], Awaitable[Json]]
"""The client's user: receives the parameters of an elicitation, returns its result."""

OnProgress = Callable[[float, str], None]
"""Receives the progress and the message of a notification."""


class RpcError(Exception):
    """A call was answered with a JSON-RPC error, or with none at all (code 0)."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code


@dataclass(frozen=True)
class Tool:
    """A tool as the client lists it."""

    description: str
    input: Json
    output: Json | None
    annotations: Json


@dataclass(frozen=True)
class Result:
    """The result of a tool, as the client's types have it. `files`: of embedded resources, by URI."""

    texts: tuple[str, ...] = ()
    data: Any = None
    files: Mapping[str, bytes] = field(default_factory=dict)
    is_error: bool = False
    meta: Mapping[str, Any] = field(default_factory=dict)

    @property
    def text(self) -> str:
        return "\n".join(self.texts)


class Handle(Protocol):
    """A task that a call began."""

    id: str

    async def get(self) -> Json:
        """What `tasks/get` answers."""

    async def result(self) -> Result:
        """Waits for its result, and answers its questions on the way. Raises RpcError if it failed."""

    async def cancel(self) -> None: ...


class Notices(Protocol):
    """Notifications of a server."""

    async def wait(self) -> Json:
        """The next one: its parameters. Raises EndOfNotices when the server has ended the stream."""


class EndOfNotices(Exception):
    """The server ended a stream of notifications in order."""


class Session(Protocol):
    """A connected client."""

    version: str

    async def tools(self) -> dict[str, Tool]: ...

    async def call(
        self,
        tool: str,
        arguments: Json,
        *,
        on_progress: OnProgress | None = None,
        limit: float | None = None,
        meta: Json | None = None,
    ) -> Result:
        """Calls a tool and waits for its result. `limit`: seconds, after which the client gives up by itself.

        Raises RpcError.
        """

    async def start(self, tool: str, arguments: Json) -> Handle:
        """Calls a tool that answers with a handle. Only in sessions with tasks."""

    def handle(self, id: str) -> Handle:
        """A task that another session began."""

    def listen(self, *tasks: str) -> AbstractAsyncContextManager[Notices]:
        """Follows the list of tools; with handles, these tasks instead. Only in clients that listen (2026-07-28)."""


class Connect(Protocol):
    """Connects a client to an endpoint. `answer`: without one it declares no elicitation. `tasks`: whether it declares
    the extension for tasks."""

    def __call__(
        self, url: str, answer: Answer | None = None, *, tasks: bool = False
    ) -> AbstractAsyncContextManager[Session]: ...


def accept(**content: Any) -> Answer:
    """A user who fills in a form like this."""

    async def answer(_: Json) -> Json:
        return {"action": "accept", "content": content}

    return answer


def refuse(action: str) -> Answer:
    """A user who declines (`decline`), or dismisses the form (`cancel`)."""

    async def answer(_: Json) -> Json:
        return {"action": action}

    return answer
