"""Open calls of one server, and their cancellation."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace
from typing import Any

import pytest
from tests.bindings.fake_service import make_cards

from dragoman.bindings.options import ServerOptions
from dragoman.core.errors import TaskNotCancelable
from dragoman.extensions.mcp.endpoint.services import McpServices


class Cancels:
    """Notes the tasks that are canceled, and answers with an error, if there is one."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.tasks: list[str] = []
        self.done = asyncio.Event()

    async def cancel_task(self, call: object, request: Any) -> None:
        self.tasks.append(request.id)
        self.done.set()
        if self.error is not None:
            raise self.error


def services(cancels: Cancels, *, closed: bool = False) -> McpServices:
    pipeline: Any = SimpleNamespace(
        options=ServerOptions(),
        streams=SimpleNamespace(is_closed=closed),
        operations=SimpleNamespace(cancel=cancels),
    )
    return McpServices(pipeline, make_cards(), wait=1, handle_after=0)


def call(task: str) -> Any:
    return SimpleNamespace(task_id=task, call=None)


async def test_a_call_is_known_while_it_waits() -> None:
    cancels = Cancels()
    one = services(cancels)
    key = ("alice", "session", "int:1")
    with one.open_call(key, call("t1")):
        one.cancel_call(("mallory", "session", "int:1"))
        with one.open_call(("alice", "", "int:1"), call("t2")):
            one.cancel_call(("alice", "", "int:1"))
        one.cancel_call(key)
        await cancels.done.wait()
    cancels.done.clear()
    one.cancel_call(key)
    await asyncio.sleep(0)
    assert cancels.tasks == ["t1"]


async def test_nothing_is_canceled_before_the_task_exists_or_when_the_server_stops() -> None:
    cancels = Cancels()
    services(cancels).cancel_in_background(call(""))
    services(cancels, closed=True).cancel_in_background(call("t1"))
    await asyncio.sleep(0)
    assert cancels.tasks == []


@pytest.mark.parametrize(("error", "is_logged"), [(TaskNotCancelable(), False), (RuntimeError("broken"), True)])
async def test_a_cancel_that_fails_is_logged_unless_the_task_has_ended(
    error: Exception, is_logged: bool, caplog: pytest.LogCaptureFixture
) -> None:
    cancels = Cancels(error)
    with caplog.at_level(logging.WARNING):
        services(cancels).cancel_in_background(call("t1"))
        await cancels.done.wait()
        await asyncio.sleep(0)
    assert bool(caplog.records) == is_logged
