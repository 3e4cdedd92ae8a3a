"""The ten steps of a request: their order, which the module and the manual state, and what follows from it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import pytest
from multidict import CIMultiDict
from tests.bindings.fake_service import AGENTS, TASK, FakeService, make_cards, task_event

from dragoman.bindings import method_table, pipeline
from dragoman.bindings.method_table import RpcRow
from dragoman.bindings.options import ServerOptions
from dragoman.bindings.pipeline import ClientDisconnected, Pipeline, RequestExchange, RequestLogEntry
from dragoman.bindings.stream_registry import OpenStream, StreamRegistry
from dragoman.core.access.identity import ANONYMOUS, Caller, Identity
from dragoman.core.counters import RequestMetrics
from dragoman.core.errors import AgentNotFound, InvalidParams, ParseError, RateLimited, Unauthenticated
from dragoman.runtime.access import Access, Admission, Call
from dragoman.runtime.feeds import EventStream
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

STEPS: Final = (
    "authenticate", "rate", "trace", "read", "version", "decode", "authorize", "call", "encode", "observe"
)  # fmt: skip
PAGE: Final = Path(__file__).parents[2] / "docs" / "explanation" / "how-a-message-travels.md"
ROWS: Final = {row.name: row for _, rows in method_table.rpc_services() for row in rows.values() if row.decode is None}


class Journal(list[str]):
    """The steps that happened; the one in `failing` raises its error."""

    failing: dict[str, Exception]

    def __init__(self, **failing: Exception) -> None:
        super().__init__()
        self.failing = failing

    def note(self, step: str) -> None:
        self.append(step)
        if step in self.failing:
            raise self.failing[step]


class JournaledEntry(RequestLogEntry):
    journal: Journal

    def start_trace(self, parent: str) -> None:
        self.journal.note("trace")

    def finish(self, status: object) -> None:
        super().finish(status)
        self.journal.append("observe")


class JournaledAdmission(Admission):
    journal: Journal

    def check_rate(self, identity: Identity) -> None:
        self.journal.note("rate")


class JournaledAuthenticator:
    def __init__(self, journal: Journal) -> None:
        self.journal = journal

    async def authenticate(self, headers: Iterable[tuple[str, str]]) -> Identity | None:
        self.journal.note("authenticate")
        return Identity("alice")

    async def recheck(self, identity: Identity) -> None: ...


class JournaledAccess(Access):
    journal: Journal

    def authorize(self, tenant: str, identity: Identity, *, public: bool = False) -> Caller:
        self.journal.note("authorize")
        return super().authorize(tenant, identity, public=public)


class JournaledService(FakeService):
    journal: Journal

    async def get_task(self, call: Call, request: pb.GetTaskRequest) -> bytes:
        self.journal.note("call")
        return await super().get_task(call, request)


class JournaledExchange(RequestExchange[str]):
    DISCONNECTED_STATUS = "disconnected"

    row: RpcRow

    def __init__(self, journal: Journal, pipeline: Pipeline, row: RpcRow, log_entry: RequestLogEntry) -> None:
        headers = CIMultiDict({"A2A-Version": "1.0"})
        super().__init__(pipeline, log_entry, headers, None, "other")  # type: ignore[arg-type]
        self.row = row
        self.journal = journal

    @property
    def peer(self) -> str:
        return "10.0.0.1"

    def versions(self) -> Iterable[str]:
        self.journal.note("version")
        return super().versions()

    async def read(self) -> None:
        self.journal.note("read")

    async def decode(self) -> Any:
        self.journal.note("decode")
        return self.row.request()

    def call(self) -> Call:
        return Call(self.caller, extensions=self.extensions)

    async def describe(self) -> str:
        return "card"

    async def respond(self, response: bytes) -> str:
        self.journal.note("encode")
        return "response"

    async def stream(self, events: EventStream, registration: OpenStream) -> str:
        self.journal.note("encode")
        async for _ in events:
            pass
        return "stream"

    async def reject(self, error: Exception) -> str:
        self.status = type(error).__name__
        return f"rejected: {self.status}"


class Tracer:
    """A tracer that is asked for nothing: its being there turns traces on."""


def served(journal: Journal, rpc: str = "GetTask", **answers: Any) -> tuple[Pipeline, JournaledExchange]:
    service = JournaledService(answers.get("answer", TASK), [task_event()])
    service.journal = journal
    admission = JournaledAdmission()
    admission.journal = journal
    service.admission = admission
    service.access = access = JournaledAccess(AGENTS, "echo")
    access.journal = journal
    authenticator = JournaledAuthenticator(journal)
    options = ServerOptions(authenticator=authenticator, tracer=Tracer())  # type: ignore[arg-type]
    entry = JournaledEntry(options, "test", rpc, "v1")
    entry.journal = journal
    pipeline = Pipeline(service.operations, make_cards(), options, StreamRegistry())
    return pipeline, JournaledExchange(journal, pipeline, ROWS[rpc], entry)


def counted(metrics: RequestMetrics) -> dict[str, int]:
    """The finished requests by status."""
    requests = next(family for family in metrics.families() if family.name == "requests")
    return {sample.labels[-1]: int(sample.value) for sample in requests.samples}  # type: ignore[arg-type]


async def test_a_request_passes_the_ten_steps_in_order() -> None:
    journal = Journal()
    server, exchange = served(journal)
    assert await server.serve(exchange) == "response"
    assert tuple(journal) == STEPS
    assert exchange.caller == Caller(exchange.caller.owner, "other", Identity("alice"))
    assert exchange.version == "1.0"
    assert counted(server.options.request_metrics) == {"OK": 1}


def test_the_module_and_the_manual_name_the_ten_steps_in_order() -> None:
    assert tuple(re.findall(r"^\d+\. (\w+):", pipeline.__doc__ or "", re.M)) == STEPS
    assert tuple(re.findall(r"^\| \d+ (\w+) \|", PAGE.read_text(), re.M)) == STEPS


@pytest.mark.parametrize(
    ("step", "error"),
    [
        ("authenticate", Unauthenticated("invalid")),
        ("rate", RateLimited("too many", limit="l", maximum=1, retry_after=1)),
        ("read", ParseError("not JSON")),
        ("decode", InvalidParams("wrong")),
        ("authorize", AgentNotFound()),
        ("call", RuntimeError("a bug")),
        ("encode", RuntimeError("a bug")),
    ],
)
async def test_an_error_of_a_step_ends_the_request_there_and_is_observed(step: str, error: Exception) -> None:
    journal = Journal(**{step: error})
    server, exchange = served(journal)
    assert await server.serve(exchange) == f"rejected: {type(error).__name__}"
    assert tuple(journal) == (*STEPS[: STEPS.index(step) + 1], "observe")
    assert counted(server.options.request_metrics) == {type(error).__name__: 1}


async def test_a_fault_of_the_server_is_logged_and_an_error_of_the_caller_is_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    for error in (ParseError("not JSON"), RuntimeError("a bug")):
        server, exchange = served(Journal(read=error))
        await server.serve(exchange)
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == [
        "GetTask failed: RuntimeError: a bug"
    ]


async def test_a_stream_is_registered_while_it_is_sent() -> None:
    server, exchange = served(Journal(), "SubscribeToTask")
    open_streams = []

    async def stream(events: EventStream, registration: OpenStream) -> str:
        open_streams.append((server.streams.count, registration.identity))
        return "stream"

    exchange.stream = stream  # type: ignore[method-assign]
    assert await server.serve(exchange) == "stream"
    assert open_streams == [(1, Identity("alice"))]
    assert server.streams.count == 0


async def test_a_client_that_disconnects_is_counted_too() -> None:
    server, exchange = served(Journal(encode=ClientDisconnected()))
    with pytest.raises(ClientDisconnected):
        await server.serve(exchange)
    assert counted(server.options.request_metrics) == {"disconnected": 1}

    server, exchange = served(Journal(), answer=asyncio.Event())
    request = asyncio.create_task(server.serve(exchange))
    service = server.operations.read
    assert isinstance(service, FakeService)
    await service.waiting.wait()
    request.cancel()
    with pytest.raises(asyncio.CancelledError):
        await request
    assert counted(server.options.request_metrics) == {"disconnected": 1}


async def test_a_server_without_authentication_serves_everyone_as_anonymous() -> None:
    journal = Journal()
    server, exchange = served(journal)
    open_server = Pipeline(server.operations, server.cards, ServerOptions(), server.streams)
    assert await open_server.serve(exchange) == "response"
    assert exchange.identity == ANONYMOUS
    assert "authenticate" not in journal


async def test_the_dialect_of_a_task_is_unknown_to_a_caller_who_may_not_call_its_agent() -> None:
    server, exchange = served(Journal())
    assert await server.task_dialect(exchange, "", "t1") == ""
    exchange.tenant = "nowhere"
    assert await server.task_dialect(exchange, "", "t1") == ""
