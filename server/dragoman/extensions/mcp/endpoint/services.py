"""Services shared by all requests to one server's MCP endpoint."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from dragoman.bindings.cards import Cards
from dragoman.bindings.pipeline import Pipeline
from dragoman.core.errors import A2AError
from dragoman.extensions.mcp.endpoint.catalog import ToolCatalog
from dragoman.ids import IDS, now_ms
from dragoman.supervision import log_fault
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

if TYPE_CHECKING:
    from dragoman.extensions.mcp.endpoint.tool_call import WaitingCall

CallKey = tuple[str, str, str]
"""Principal, session and id of the request of a call."""

_log: Final = logging.getLogger("dragoman.extensions.mcp.endpoint")


class McpServices:
    """The catalog, the open calls, and the sources of time and ids."""

    def __init__(
        self,
        pipeline: Pipeline,
        cards: Cards,
        wait: float,
        handle_after: float,
        clock: Callable[[], int] = now_ms,
        new_id: Callable[[], str] = IDS.hex,
    ) -> None:
        """`wait`: seconds for which a call waits for its task. `handle_after`: seconds for which one waits whose client
        takes a handle of the task. `clock`: milliseconds since the epoch."""
        self.pipeline = pipeline
        self.cards = cards
        self.catalog = ToolCatalog(cards, pipeline.options.access_policy)
        self.wait = wait
        self.handle_after = handle_after
        self.clock = clock
        self.new_id = new_id
        self._open_calls: dict[CallKey, WaitingCall] = {}
        self._cancels: set[asyncio.Task[None]] = set()

    @contextmanager
    def open_call(self, key: CallKey, call: WaitingCall) -> Iterator[None]:
        """Makes a call known while it waits, so that `cancel_call` finds it."""
        self._open_calls[key] = call
        try:
            yield
        finally:
            if self._open_calls.get(key) is call:
                del self._open_calls[key]

    def cancel_call(self, key: CallKey) -> None:
        """Cancels the task of a call that waits on this server; calls of other servers go on.

        Without a session nothing is canceled: the ids of requests are unique within their session only.
        """
        if key[1] and (call := self._open_calls.get(key)) is not None:
            self.cancel_in_background(call)

    def cancel_in_background(self, call: WaitingCall) -> None:
        """Cancels the task of a call whose client gave it up; not when the server itself ended the stream to stop."""
        if not call.task_id or self.pipeline.streams.is_closed:
            return
        task = asyncio.create_task(self._cancel(call), name="mcp-cancel")
        self._cancels.add(task)
        task.add_done_callback(self._cancels.discard)

    async def _cancel(self, call: WaitingCall) -> None:
        try:
            await self.pipeline.operations.cancel.cancel_task(call.call, pb.CancelTaskRequest(id=call.task_id))
        except A2AError:
            return  # it has ended, or may not be canceled
        except Exception as error:
            log_fault(_log, "cancel of an abandoned call failed", error)
