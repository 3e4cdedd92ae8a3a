"""Servers that send what is no MCP: that call, tool or agent fails with the reason, and all others go on."""

from __future__ import annotations

import asyncio
import sys
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

import pytest
from tests.extensions.mcp.servers.conftest import Open, ask, status_text, texts
from tests.extensions.mcp.servers.raw_server import OUTPUTS, http_raw_server

from dragoman.client.calls import Client
from dragoman.client.operations import Operator
from dragoman.core.task import states
from dragoman.extensions.mcp.sources import McpSpec
from dragoman_pb.dragoman.ops.v1 import upstreams_pb2 as up

pytestmark = pytest.mark.long

RAW_SERVER: Final = Path(__file__).with_name("raw_server.py")

AT_ONCE: Final = 60.0
"""Seconds for a turn to end, far below the silence that a server may have."""

SILENT: Final = (
    'MCP_UNKNOWN: it is unknown what the tool "bad" has done, because nothing came from the MCP server for 0.5 s '
    "while it ran."
)

UNREADABLE: Final = [
    "surrogate", "truncated", "pretty", "no id", "unknown id", "error is a text", "result is null", "result is a list",
    "content is a number", "deep", "too long",
]  # fmt: skip
HARMLESS: Final = ["a log first", "twice", "strange progress", "flood", "requests without end", "strange requests"]


def stdio_server(kind: str, **fields: Any) -> McpSpec:
    return McpSpec(command=(sys.executable, str(RAW_SERVER), kind), id="raw", **fields)


@pytest.mark.parametrize("kind", [*UNREADABLE, *HARMLESS])
async def test_an_answer_over_stdio_that_cannot_be_read_fails_its_call_alone(kind: str, opened: Open) -> None:
    async with opened(stdio_server(kind), upstream_bytes=1_000_000) as app, Client(str(app.grpc)) as client:
        async with asyncio.timeout(AT_ONCE):
            task = await ask(client, "bad {}")
            other = await ask(client, "good {}")
        if kind in HARMLESS:
            assert (task.status.state, texts(task)) == (states.COMPLETED, "ok")
        else:
            assert task.status.state == states.FAILED
            assert status_text(task).startswith("InvalidAgentResponse: ")
        assert (other.status.state, texts(other)) == (states.COMPLETED, "ok")
        assert app.running == 0


@pytest.mark.parametrize("as_events", [False, True])
@pytest.mark.parametrize(
    "kind", ["surrogate", "truncated", "no id", "unknown id", "result is null", "content is a number"]
)
async def test_an_answer_over_http_that_cannot_be_read_fails_its_call_alone(
    kind: str, as_events: bool, opened: Open
) -> None:
    async with (
        http_raw_server(kind, as_events=as_events) as url,
        opened(McpSpec(url=url, id="raw")) as app,
        Client(str(app.grpc)) as client,
    ):
        async with asyncio.timeout(AT_ONCE):
            task = await ask(client, "bad {}")
            other = await ask(client, "good {}")
        if as_events and kind == "unknown id":  # the event of this call's own stream answers it, whatever its id
            assert task.status.state == states.COMPLETED
        else:
            assert task.status.state == states.FAILED
            assert status_text(task)
        assert (other.status.state, texts(other)) == (states.COMPLETED, "ok")


async def test_a_call_over_stdio_without_an_answer_ends_after_the_silence(opened: Open) -> None:
    async with opened(stdio_server("nothing", silence=0.5)) as app, Client(str(app.grpc)) as client:
        calls = [asyncio.create_task(ask(client, text)) for text in ("bad {}", "good {}", "bad {}")]
        async with asyncio.timeout(AT_ONCE):
            silent, good, _ = await asyncio.gather(*calls)
    assert (good.status.state, texts(good)) == (states.COMPLETED, "ok")
    assert silent.status.state == states.FAILED
    assert status_text(silent).startswith(SILENT)


async def test_a_server_that_withdraws_its_question_and_is_silent_ends_that_call_and_later_ones(opened: Open) -> None:
    async with opened(stdio_server("asks and withdraws", silence=0.5)) as app, Client(str(app.grpc)) as client:
        async with asyncio.timeout(AT_ONCE):
            task = await ask(client, "bad {}")
            again = await ask(client, "bad {}")
        assert [status_text(one)[: len(SILENT)] for one in (task, again)] == [SILENT] * 2
        assert app.running == 0


async def test_a_question_of_a_canceled_task_leaves_the_limit_of_later_calls(opened: Open) -> None:
    async with opened(stdio_server("asks when told", silence=0.5)) as app, Client(str(app.grpc)) as client:
        async with asyncio.timeout(AT_ONCE):
            question = await ask(client, 'bad {"ask": true}')
            await client.cancel(question.id)
            silent = await ask(client, "bad {}")
            other = await ask(client, 'bad {"ask": true}')
    assert (question.status.state, status_text(question)) == (states.INPUT_REQUIRED, "Who?")
    assert status_text(silent).startswith(SILENT)
    assert other.status.state == states.INPUT_REQUIRED, "the id of the first question is free again"


async def test_a_process_that_ends_during_a_call_ends_the_turn(opened: Open) -> None:
    async with opened(stdio_server("ends")) as app, Client(str(app.grpc)) as client, asyncio.timeout(AT_ONCE):
        task = await ask(client, "bad {}")
    assert (task.status.state, status_text(task).startswith("MCP_UNKNOWN: ")) == (states.FAILED, True)


@pytest.mark.parametrize("kind", OUTPUTS)
async def test_structured_content_is_checked_here_and_not_by_the_library(kind: str, opened: Open) -> None:
    async with opened(stdio_server(kind)) as app, Client(str(app.grpc)) as client:
        started = time.thread_time()
        async with asyncio.timeout(AT_ONCE):
            task = await ask(client, "bad {}")
        assert time.thread_time() - started < 1.0, "the pattern takes hours in `re`"
    reasons = {
        "output differs": 'the result of the tool "bad" does not match its output schema: n: must be of type integer',
        "output is missing": 'the tool "bad" declares an output, but its result has no data',
    }
    if kind == "output pattern":  # 5,000 characters: it may cost more than a check may, and is left to the caller
        assert task.status.state == states.COMPLETED
    else:
        assert status_text(task).removeprefix("InvalidAgentResponse: ") == reasons.get(kind, "")
        assert task.status.state == (states.FAILED if kind in reasons else states.COMPLETED)


@pytest.mark.parametrize(
    ("kind", "problem"),
    [
        ("no version", "its answer is not valid MCP: serverInfo.version: is required"),
        ("list is a text", "its list of tools has no array `tools`"),
        ("tools without end", "it has more than 1000 tools"),
        ("pages without end", "its list of tools does not end"),
    ],
)
async def test_a_server_that_cannot_be_read_is_an_unavailable_agent_with_the_reason(
    kind: str, problem: str, opened: Open, caplog: pytest.LogCaptureFixture
) -> None:
    async with AsyncExitStack() as stack:
        good = await stack.enter_async_context(http_raw_server("good"))
        app = await stack.enter_async_context(opened(stdio_server(kind), McpSpec(url=good, id="fine")))
        client = await stack.enter_async_context(Client(str(app.grpc), agent="fine"))
        task = await ask(client, "good {}")
        operator = await stack.enter_async_context(Operator(str(app.grpc)))
        listed = (await operator.list_upstreams(up.ListUpstreamsRequest())).upstreams
    assert (task.status.state, texts(task)) == (states.COMPLETED, "ok")
    (raw,) = [one for one in listed if one.agent == "raw"]
    assert problem in raw.last_error
    assert any(problem in text for text in caplog.messages)


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("tool without a schema", 'tool "bad": its inputSchema is missing'),
        ("tool of a number", "tool 1: is not an object"),
        ("long description", ""),
    ],
)
async def test_a_tool_that_cannot_be_read_is_left_out_with_the_reason(
    kind: str, reason: str, opened: Open, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(stdio_server(kind), upstream_bytes=30_000_000) as app, Client(str(app.grpc)) as client:
        task = await ask(client, "good {}")
        assert task.status.state == states.COMPLETED
        skills = [skill.id for skill in app.agents["raw"].skills]
    assert skills == (["good"] if reason else ["bad", "good"])
    assert any(reason in text for text in [*caplog.messages, ""])
